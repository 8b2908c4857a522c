/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The root object and the order of things:
 *
 *	rpc           first: only statd knows the driver's name and whether the node is ready
 *	dra           once the name is known
 *	registration  once the name is known; begins when statd is ready, and does not begin again
 *
 * At the end the kubelet's sockets go first, so that nothing new comes in, then the conversation with
 * statd when its last call is answered. The loop is empty when both are through.
 */
#include "draplugind/draplugind.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "common/log.h"

/* --- registration tells ---------------------------------------------------------------------- */

static void show_state(const struct dra_rpc *rpc)
{
	daemon_status("%s%s%s", rpc->state, rpc->detail ? ": " : "",
		rpc->detail ? rpc->detail : "");
}

static void on_state(void *ctx, const char *state, const char *detail)
{
	struct draplugind *d = ctx;

	dra_rpc_tell_state(&d->rpc, state, detail);
	show_state(&d->rpc);
}

static void on_failed(void *ctx, const struct err *err)
{
	struct draplugind *d = ctx;

	LOG(ERROR, FIELDS(F("err", err->message)), "registration failed");
	daemon_fail(&d->daemon);
}

/* --- statd tells ----------------------------------------------------------------------------- */

static void configure(struct draplugind *d, const struct front_hello_result *settings)
{
	static const struct registration_events events = {
		.on_state = on_state,
		.on_failed = on_failed,
	};

	LOG(INFO, FIELDS(F("driver", settings->driver_name), F("node", settings->node_name)),
		"configured by statd");
	dra_init(&d->dra, &d->rpc, settings->driver_name, d->options->kubelet_dir,
		d->options->cdi_dir);
	registration_init(&d->registration, &d->loop, d->options->kubelet_dir, settings,
		&dra_service, &d->dra, &events, d);
	d->configured = true;
}

static void on_hello(void *ctx, const struct front_hello_result *settings)
{
	struct draplugind *d = ctx;

	show_state(&d->rpc); /* that it refused us is over */
	if (!d->configured) {
		configure(d, settings);
		return;
	}
	if (strcmp(d->dra.driver, settings->driver_name) != 0) {
		/* every path and every name that was handed out has the old one in it */
		LOG(ERROR, FIELDS(F("driver", settings->driver_name)),
			"the driver is called differently now, starting over");
		daemon_fail(&d->daemon);
	}
}

static void on_ready(void *ctx)
{
	struct draplugind *d = ctx;

	if (!d->daemon.stopping)
		registration_start(&d->registration);
}

/* --- life ------------------------------------------------------------------------------------ */

static void stop(void *ctx)
{
	struct draplugind *d = ctx;

	if (d->configured)
		registration_stop(&d->registration);
	dra_rpc_stop(&d->rpc);
}

int draplugind_check(
	struct draplugind *d, const struct draplugind_options *options, struct err *err)
{
	struct stat st;

	*d = (struct draplugind){.options = options};
	if (options->statd_user && identity_parse(options->statd_user, &d->statd, err) < 0)
		return err_wrap(err, "--statd-user");
	if (options->kubelet_dir[0] != '/')
		return err_set(err, ERR_INVALID,
			"--kubelet-dir %s: must be absolute, the kubelet dials paths below it",
			options->kubelet_dir);
	if (stat(options->kubelet_dir, &st) < 0)
		return err_errno(err, errno, "--kubelet-dir %s", options->kubelet_dir);
	if (!S_ISDIR(st.st_mode))
		return err_set(err, ERR_INVALID, "--kubelet-dir %s: is not a directory",
			options->kubelet_dir);
	return 0;
}

void draplugind_init(struct draplugind *d, const struct draplugind_options *options)
{
	static const struct dra_rpc_events events = {
		.on_hello = on_hello,
		.on_ready = on_ready,
	};

	if (uv_loop_init(&d->loop) < 0)
		abort();
	daemon_init(&d->daemon, &d->loop, stop, d);
	dra_rpc_init(&d->rpc, &d->loop, options->runtime_dir,
		options->statd_user ? &d->statd.uid : NULL, &events, d);
	on_state(d, "waiting", "for statd to be ready");
}

void draplugind_fini(struct draplugind *d)
{
	if (d->configured) {
		registration_fini(&d->registration);
		dra_fini(&d->dra);
	}
	dra_rpc_fini(&d->rpc);
	(void)uv_loop_close(&d->loop);
}
