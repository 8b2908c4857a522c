/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kubelet watches its registry directory. When a socket appears it connects, asks GetInfo,
 * decides, and reports with NotifyRegistrationStatus; then it connects to the socket that GetInfo
 * named and keeps that connection.
 *
 * An attempt puts both sockets up and waits for a positive report. Without one in time it takes
 * both down, so that the next attempt's are new to the kubelet's watch, pauses, and tries again, up
 * to a number of times. Interval, time and number are statd's configuration (the seed's defaults: 1
 * s, 5 s, 10). A negative report does not end an attempt: the kubelet tries again by itself.
 *
 * After the last attempt the process ends with status 1. Its supervisor starts it anew, with the
 * pauses that the administrator configured there: a daemon that stays but does nothing would look
 * healthy.
 *
 * Once registered there is nothing more to do. A kubelet that restarts reads the directory and asks
 * again. A restart of statd is none of the kubelet's business: the sockets stay.
 *
 * A socket file is removed only if it still is the one that was bound here: another instance may
 * have put its own in its place.
 */
#include "draplugind/registration.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "common/log.h"
#include "common/rpc.h"
#include "draplugind/tree.h"
#include "proto/registration.pb.h"

#define REGISTRY_DIR "plugins_registry"
#define PLUGINS_DIR  "plugins"
#define DIR_MODE     0750 /* as the kubelet makes them */

/* --- the service ----------------------------------------------------------------------------- */

static void become_registered(struct registration *r);

static void handle_get_info(void *ctx, struct grpc_call *call, const void *request)
{
	static char type[] = "DRAPlugin", v1[] = "v1.DRAPlugin",
		    v1beta1[] = "v1beta1.DRAPlugin";
	char *versions[] = {v1, v1beta1}; /* the kubelet takes the first that it knows */
	struct registration *r = ctx;
	const registration_plugin_info_t info = {
		.type = type,
		.name = r->driver,
		.endpoint = r->dra.path,
		.supported_versions_count = ARRAY_SIZE(versions),
		.supported_versions = versions,
	};

	(void)request;
	grpc_reply(call, &info);
}

static void be_refused(struct registration *r, const char *why)
{
	free(r->refusal);
	r->refusal = xstrdup(why);
	str_sanitize(r->refusal);
	LOG(WARN, FIELDS(F("err", r->refusal)), "the kubelet refuses to register the driver");
	r->events->on_state(r->ctx, "registering", r->refusal);
}

static void handle_notify(void *ctx, struct grpc_call *call, const void *request)
{
	const registration_registration_status_response_t nothing =
		REGISTRATION_REGISTRATION_STATUS_RESPONSE_INIT_ZERO;
	const registration_registration_status_t *status = request;
	struct registration *r = ctx;

	if (status->plugin_registered) {
		become_registered(r);
		grpc_reply(call, &nothing);
		return;
	}
	be_refused(r, status->error ? status->error : "it did not say why");
	grpc_reply_error(call, GRPC_UNKNOWN, r->refusal);
}

static const struct grpc_method methods[] = {
	GRPC_METHOD("/pluginregistration.Registration/GetInfo", registration_info_request_t,
		registration_plugin_info_t, handle_get_info),
	GRPC_METHOD("/pluginregistration.Registration/NotifyRegistrationStatus",
		registration_registration_status_t, registration_registration_status_response_t,
		handle_notify),
};
static const struct grpc_service registry_service = {
	.name = "registration",
	.methods = methods,
	.n_methods = ARRAY_SIZE(methods),
};

/* --- sockets --------------------------------------------------------------------------------- */

static int endpoint_up(struct registration_endpoint *e, uv_loop_t *loop, struct err *err)
{
	cleanup_close int fd = rpc_bind(e->path, getegid(), err);
	struct stat st;

	if (fd < 0)
		return -1;
	if (lstat(e->path, &st) < 0)
		return err_errno(err, errno, "%s", e->path);
	e->dev = st.st_dev;
	e->ino = st.st_ino;
	e->server = grpc_server_new(loop, &fd, e->service, e->ctx);
	return 0;
}

static void endpoint_down(struct registration_endpoint *e)
{
	struct stat st;

	if (!e->server)
		return;
	if (lstat(e->path, &st) == 0 && st.st_dev == e->dev && st.st_ino == e->ino)
		(void)unlink(e->path);
	grpc_server_free(take_ptr(e->server));
}

/* The kubelet's own directory must be there, or it is the wrong one; what is below may be ours to
 * make when the kubelet has never run yet. */
static int make_dirs(const struct registration *r, struct err *err)
{
	cleanup_close int top = open(r->kubelet_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_close int plugins = -1, ours = -1, registry = -1;

	if (top < 0)
		return err_errno(err, errno, "kubelet directory %s", r->kubelet_dir);
	registry = tree_make(top, REGISTRY_DIR, DIR_MODE, err);
	if (registry < 0)
		return err_wrap(err, "%s", r->kubelet_dir);
	plugins = tree_make(top, PLUGINS_DIR, DIR_MODE, err);
	if (plugins < 0)
		return err_wrap(err, "%s", r->kubelet_dir);
	ours = tree_make(plugins, r->driver, DIR_MODE, err);
	if (ours < 0)
		return err_wrap(err, "%s/" PLUGINS_DIR, r->kubelet_dir);
	return 0;
}

/* The service first: a kubelet that finds the registry's socket may follow at once. */
static int sockets_up(struct registration *r, struct err *err)
{
	if (make_dirs(r, err) < 0 || endpoint_up(&r->dra, r->loop, err) < 0)
		return -1;
	return endpoint_up(&r->registry, r->loop, err);
}

static void sockets_down(struct registration *r)
{
	endpoint_down(&r->registry);
	endpoint_down(&r->dra);
}

/* --- attempts -------------------------------------------------------------------------------- */

static void on_timer(uv_timer_t *timer);

static void give_up(struct registration *r, const struct err *err)
{
	sockets_down(r);
	r->phase = REGISTRATION_OVER;
	r->events->on_state(r->ctx, "failed", err->message);
	r->events->on_failed(r->ctx, err);
}

static void attempt(struct registration *r)
{
	char detail[64];
	struct err err;

	r->attempt++;
	if (sockets_up(r, &err) < 0) {
		(void)err_wrap(&err, "cannot serve the kubelet");
		give_up(r, &err);
		return;
	}
	r->phase = REGISTRATION_TRYING;
	(void)snprintf(detail, sizeof(detail), "attempt %lld of %lld", (long long)r->attempt,
		(long long)r->max_attempts);
	LOG(INFO, FIELDS(F("socket", r->registry.path)),
		"waiting for the kubelet to register the driver, %s", detail);
	r->events->on_state(r->ctx, "registering", detail);
	(void)uv_timer_start(&r->timer, on_timer, r->timeout_ms, 0);
}

static void on_timeout(struct registration *r)
{
	const char *said = r->refusal ? r->refusal : "nothing was heard of it";
	struct err err;

	if (r->attempt >= r->max_attempts) {
		(void)err_set(&err, ERR_DEADLINE,
			"the kubelet did not register the driver in %lld attempts: %s",
			(long long)r->attempt, said);
		give_up(r, &err);
		return;
	}
	LOG(WARN, FIELDS(F("err", said)),
		"the kubelet did not register the driver in time, recreating the sockets");
	sockets_down(r);
	r->phase = REGISTRATION_PAUSING;
	(void)uv_timer_start(&r->timer, on_timer, r->retry_interval_ms, 0);
}

static void on_timer(uv_timer_t *timer)
{
	struct registration *r = timer->data;

	if (r->phase == REGISTRATION_TRYING)
		on_timeout(r);
	else
		attempt(r);
}

static void become_registered(struct registration *r)
{
	if (r->phase != REGISTRATION_TRYING && r->phase != REGISTRATION_DONE)
		return;
	(void)uv_timer_stop(&r->timer);
	r->phase = REGISTRATION_DONE;
	LOG(INFO, FIELDS(F("socket", r->dra.path)), "registered with the kubelet");
	r->events->on_state(r->ctx, "registered", NULL);
}

/* --- life ------------------------------------------------------------------------------------ */

void registration_init(struct registration *r, uv_loop_t *loop, const char *kubelet_dir,
	const struct front_hello_result *settings, const struct grpc_service *service,
	void *service_ctx, const struct registration_events *events, void *ctx)
{
	*r = (struct registration){
		.loop = loop,
		.kubelet_dir = kubelet_dir,
		.driver = xstrdup(settings->driver_name),
		.retry_interval_ms = (uint64_t)settings->retry_interval_ms.v,
		.timeout_ms = (uint64_t)settings->registration_timeout_ms.v,
		.max_attempts = settings->max_attempts.v,
		.events = events,
		.ctx = ctx,
	};
	r->dra = (struct registration_endpoint){
		.path = xasprintf("%s/" PLUGINS_DIR "/%s/dra.sock", kubelet_dir, r->driver),
		.service = service,
		.ctx = service_ctx,
	};
	r->registry = (struct registration_endpoint){
		.path = xasprintf("%s/" REGISTRY_DIR "/%s-reg.sock", kubelet_dir, r->driver),
		.service = &registry_service,
		.ctx = r,
	};
	(void)uv_timer_init(loop, &r->timer);
	r->timer.data = r;
}

void registration_start(struct registration *r)
{
	if (r->phase == REGISTRATION_IDLE)
		attempt(r);
}

void registration_stop(struct registration *r)
{
	if (uv_is_closing((uv_handle_t *)&r->timer))
		return;
	sockets_down(r);
	r->phase = REGISTRATION_OVER;
	uv_close((uv_handle_t *)&r->timer, NULL);
}

void registration_fini(struct registration *r)
{
	free(r->driver);
	free(r->dra.path);
	free(r->registry.path);
	free(r->refusal);
}
