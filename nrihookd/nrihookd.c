/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the parts hang together: statd's readiness starts the connection to the runtime, the
 * runtime's events become hooks, and these are calls to statd. A start needs neither of the two
 * to be there, and each may come and go.
 *
 * A stop takes no more events, answers those that came, and closes; an event that is still in
 * the socket then finds it closed, and the next list of sandboxes makes up for it.
 */
#include "nrihookd/nrihookd.h"

#include "common/util.h"
#include "nrihookd/list.h"

static void on_record_changed(void *ctx)
{
	struct nrihookd *d = ctx;

	hooks_tell_state(&d->hooks);
}

static void on_statd_hello(void *ctx, const struct front_hello_result *settings)
{
	struct nrihookd *d = ctx;

	record_hello(&d->record, settings);
	hooks_tell_state(&d->hooks);
}

static void on_statd_ready(void *ctx)
{
	struct nrihookd *d = ctx;

	record_ready(&d->record);
	runtime_start(&d->runtime, d->rpc.driver_name);
	list_sync(&d->hooks);
}

static void on_idle(void *ctx)
{
	struct nrihookd *d = ctx;

	hooks_close(&d->hooks);
	runtime_close(&d->runtime);
	hook_rpc_close(&d->rpc);
}

static void stop(void *ctx)
{
	struct nrihookd *d = ctx;

	runtime_stop(&d->runtime);
	hooks_stop(&d->hooks, on_idle, d);
}

static const struct hook_rpc_events rpc_events = {
	.on_hello = on_statd_hello,
	.on_ready = on_statd_ready,
};

int nrihookd_init(struct nrihookd *d, const struct nrihookd_options *options, struct err *err)
{
	*d = (struct nrihookd){.netns = {.own = -1}};
	(void)uv_loop_init(&d->loop);
	if (options->kubelet_dir[0] != '/')
		return err_set(err, ERR_INVALID, "--kubelet-dir %s: is not an absolute path",
			options->kubelet_dir);
	if (pod_netns_init(&d->netns, options->netns_dir, err) < 0)
		return err_wrap(err, "--netns-dir");
	if (hook_rpc_init(&d->rpc, &d->loop, options->runtime_dir, options->statd_user,
		    &rpc_events, d, err) < 0)
		return -1;
	if (runtime_init(&d->runtime, &d->loop, options->nri_socket, options->nri_index,
		    &hooks_runtime_events, &d->hooks, err) < 0)
		return -1;
	d->state_dir = options->state_dir ? xstrdup(options->state_dir)
					  : xasprintf("%s/state", options->runtime_dir);
	record_init(&d->record, d->state_dir, on_record_changed, d);
	hooks_init(&d->hooks, &d->loop, &d->rpc, &d->runtime, &d->netns, &d->record,
		options->kubelet_dir,
		str_equal(options->on_attach_failure, "log"));
	daemon_init(&d->daemon, &d->loop, stop, d);
	return 0;
}

void nrihookd_start(struct nrihookd *d)
{
	hook_rpc_start(&d->rpc);
	hooks_runtime_events.changed(&d->hooks);
}

void nrihookd_fini(struct nrihookd *d)
{
	pod_netns_fini(&d->netns);
	record_fini(&d->record);
	free(d->state_dir);
	(void)uv_loop_close(&d->loop);
}
