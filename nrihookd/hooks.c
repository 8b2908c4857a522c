/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Carrying out what the runtime asks.
 *
 * Each event becomes an operation in the queue of its sandbox (pods.h), and the first of a
 * queue is under way: with statd, or waiting to try again, because statd is away, has just lost
 * a manager, or is still to be asked. Different sandboxes do not wait for each other.
 *
 * Silence is the one answer that must not be given: a runtime that waits in vain closes the
 * connection and starts the pod without its devices. So each event is answered a little before
 * its budget is spent, with what is known then, and so it is when it waits in a queue. What was
 * begun is then carried on with: a detach is worth finishing though nobody listens any more,
 * and an attach that comes too late is undone by the stop that the runtime sends after an
 * error.
 *
 * A sandbox of the host's network has nothing to be attached to, and a pod whose names are none
 * of Kubernetes' has no claim: both are answered at once. For all others statd is asked, and it
 * alone knows whether there is anything to do.
 *
 * A namespace is opened for a call and closed when the call has been sent: an open one would
 * keep alive what the runtime has removed.
 */
#include "nrihookd/hooks.h"

#include <utlist.h>

#include "common/check.h"
#include "common/daemon.h"
#include "common/log.h"
#include "common/util.h"

#define MARGIN_MS    150 /* for our answer to arrive, and for a loop that is late */
#define RETRY_MS     20
#define LATE_AT_ONCE 16 /* each has a descriptor in flight, which the kernel counts */

static const char *const op_names[] = {
	[POD_OP_RUN] = "attach",
	[POD_OP_STOP] = "detach",
	[POD_OP_REMOVE] = "detach",
	[POD_OP_LATE] = "late attach",
};

#define POD_FIELDS(pod_, err_)                                                                 \
	FIELDS(F("pod", (pod_)->uid), F("sandbox", (pod_)->sandbox_id),                        \
		F("namespace", (pod_)->namespace), F("name", (pod_)->name), F("err", err_))

static void arm(struct hooks *h);

static bool is_stopping(const struct hooks *h)
{
	return h->on_idle != NULL;
}

/* --- answering the runtime ---------------------------------------------------------------- */

static uint64_t answer_within_ms(uint64_t budget_ms)
{
	return MAX(budget_ms / 2, budget_ms > MARGIN_MS ? budget_ms - MARGIN_MS : 0);
}

/* At most once. The failure of a removal is not told: it is the last event of a sandbox, and no
 * runtime does anything about it. */
static void answer(struct hooks *h, struct pod_op *op, const struct err *err)
{
	if (!op->answer_by_ms)
		return;
	op->answer_by_ms = 0;
	runtime_reply(h->runtime, op->ticket, op->kind == POD_OP_REMOVE ? NULL : err);
}

static void answer_when_due(struct hooks *h, struct pod_op *op, uint64_t now)
{
	struct err err = op->err;

	if (!op->answer_by_ms || now < op->answer_by_ms)
		return;
	if (err.kind == ERR_NONE)
		(void)err_set(&err, ERR_DEADLINE, "it is not done within the runtime's time");
	(void)err_wrap(&err, "%s of the pod's devices", op_names[op->kind]);
	answer(h, op, &err);
}

/* --- the end of an operation -------------------------------------------------------------- */

static void log_end(const struct pod_op *op, const struct err *err, int64_t devices)
{
	const char *what = op_names[op->kind];

	if (err && op->kind == POD_OP_LATE)
		LOG(ERROR, POD_FIELDS(op->pod, err->message),
			"%s failed: the pod runs without its devices", what);
	else if (err)
		LOG(ERROR, POD_FIELDS(op->pod, err->message), "%s failed", what);
	else if (devices > 0)
		LOG(INFO, POD_FIELDS(op->pod, ""), "%s: %lld devices", what,
			(long long)devices);
	else
		LOG(DEBUG, POD_FIELDS(op->pod, ""), "%s: done", what);
}

/* Says how it ended. The caller takes it out of the queue. */
static void finish(struct hooks *h, struct pod_op *op, const struct err *err, int64_t devices)
{
	struct err told = ERR_INIT;

	log_end(op, err, devices);
	if (err) {
		told = *err;
		(void)err_wrap(&told, "%s of the pod's devices", op_names[op->kind]);
		/* the runtime takes a sandbox down whose start has failed */
		if (op->kind == POD_OP_RUN)
			op->pod->live = false;
	}
	answer(h, op, err ? &told : NULL);
}

static bool attempt(struct hooks *h, struct pod_op *op);

/* Takes a finished operation out and goes on with the next one of its sandbox. */
static void advance(struct hooks *h, struct pod_op *op)
{
	do
		op = pods_op_done(&h->pods, op);
	while (op && attempt(h, op));
}

/* --- calls to statd ----------------------------------------------------------------------- */

static void retry_later(struct pod_op *op, const struct err *err)
{
	op->err = *err;
	op->retry_ms = now_ms() + RETRY_MS;
}

/* What is unavailable may be there again in a moment: statd or a manager that restarts. */
static bool worth_another_try(const struct pod_op *op, const struct err *err)
{
	return err->kind == ERR_UNAVAILABLE && now_ms() + RETRY_MS < op->give_up_ms;
}

static void end_call(struct hooks *h, struct pod_op *op, const struct err *err, int64_t devices)
{
	op->call = NULL;
	if (op->kind == POD_OP_LATE)
		h->late_calls--;
	if (err && worth_another_try(op, err)) {
		retry_later(op, err);
	} else {
		finish(h, op, err, devices);
		advance(h, op);
	}
	arm(h);
}

static void on_attached(void *ctx, const struct err *err, const void *result, int *fds UNUSED)
{
	const struct pod_attach_result *attached = result;
	struct pod_op *op = ctx;

	end_call(op->hooks, op, err, attached ? attached->devices.v : 0);
}

static void on_detached(
	void *ctx, const struct err *err, const void *result UNUSED, int *fds UNUSED)
{
	struct pod_op *op = ctx;

	end_call(op->hooks, op, err, 0);
}

static uint64_t left_ms(const struct pod_op *op)
{
	uint64_t now = now_ms();

	return op->give_up_ms > now ? op->give_up_ms - now : 1;
}

static void call_attach(struct hooks *h, struct pod_op *op, int netns_fd)
{
	const struct pod *pod = op->pod;
	const struct pod_attach request = {
		.pod_uid = pod->uid,
		.sandbox_id = pod->sandbox_id,
		.pod_name = pod->name,
		.pod_namespace = pod->namespace,
	};

	if (op->kind == POD_OP_LATE)
		h->late_calls++;
	op->call = rpc_start(h->loop, hook_rpc_conn(h->rpc), API_POD_ATTACH, &request,
		&netns_fd, left_ms(op), on_attached, op);
}

static void call_detach(struct hooks *h, struct pod_op *op)
{
	const struct pod_detach request = {
		.pod_uid = op->pod->uid,
		.sandbox_id = op->pod->sandbox_id,
	};

	op->call = rpc_start(h->loop, hook_rpc_conn(h->rpc), API_POD_DETACH, &request, NULL,
		left_ms(op), on_detached, op);
}

/* --- the sandboxes that live -------------------------------------------------------------- */

/* A runtime forgets to tell of sandboxes that ended while it was away, but their namespaces end
 * with them. One that cannot be opened for another reason is there. */
static bool is_gone(const struct hooks *h, const struct pod *pod)
{
	struct err err = ERR_INIT;
	cleanup_close int fd = pod_netns_open(h->netns, pod->netns_path, &err);

	return fd < 0 && err.kind == ERR_NOT_FOUND;
}

/* Calls with all that live, and in any case with this one, which the runtime starts. */
static struct rpc_pending *call_sync(struct hooks *h, const struct pod *started,
	uint64_t deadline_ms, rpc_done_cb *cb, void *ctx)
{
	struct pod_ref *refs = xcalloc(HASH_COUNT(h->pods.by_id), sizeof(*refs));
	struct pod_sync request = {.pods = {.v = refs}};
	struct rpc_pending *call;

	for (const struct pod *pod = h->pods.by_id; pod; pod = pod->hh.next)
		if (pod->live && !pod->host_network && (pod == started || !is_gone(h, pod)))
			refs[request.pods.n++] = (struct pod_ref){
				.pod_uid = pod->uid,
				.sandbox_id = pod->sandbox_id,
			};
	call = rpc_start(h->loop, hook_rpc_conn(h->rpc), API_POD_SYNC, &request, NULL,
		deadline_ms, cb, ctx);
	free(refs);
	return call;
}

static void attach_late(struct hooks *h, const char *sandbox_id)
{
	struct pod *pod = pods_get(&h->pods, sandbox_id);
	struct err err = ERR_INIT;
	struct pod_op *op;

	/* gone in the meantime, or in hand */
	if (!pod || !pod->live || pods_op_queued(pod, POD_OP_RUN) ||
		pods_op_queued(pod, POD_OP_LATE))
		return;
	op = pods_op_add(&h->pods, pod, POD_OP_LATE, &err);
	if (!op) {
		LOG(ERROR, POD_FIELDS(pod, err.message), "no late attach");
		return;
	}
	op->hooks = h;
	if (op == pod->ops && attempt(h, op))
		advance(h, op);
}

static void on_missing(void *ctx, const struct err *err, const void *result, int *fds UNUSED)
{
	const struct pod_sync_result *missing = result;
	struct hooks *h = ctx;

	if (is_stopping(h))
		return;
	if (err) {
		/* when statd is back it is told again */
		LOG(WARN, FIELDS(F("err", err->message)), "cannot tell statd which pods live");
		return;
	}
	for (size_t i = 0; i < missing->sandbox_ids.n; i++)
		attach_late(h, missing->sandbox_ids.v[i]);
	arm(h);
}

void hooks_sync(struct hooks *h)
{
	if (h->listed && hook_rpc_conn(h->rpc))
		(void)call_sync(h, NULL, 0, on_missing, h);
}

/* --- trying ------------------------------------------------------------------------------- */

/* The sandbox's namespace does not open, for the reason in op->err. That stops the pod only if
 * it has devices: else a mount that is missing would stop every pod of the node. */
static void on_asked(void *ctx, const struct err *err, const void *result, int *fds UNUSED)
{
	const struct pod_sync_result *missing = result;
	struct pod_op *op = ctx;

	if (!err && !strlist_has(&missing->sandbox_ids, op->pod->sandbox_id))
		end_call(op->hooks, op, NULL, 0);
	else
		end_call(op->hooks, op, err ? err : &op->err, 0);
}

static bool attempt_attach(struct hooks *h, struct pod_op *op)
{
	struct err err = ERR_INIT;
	cleanup_close int fd = pod_netns_open(h->netns, op->pod->netns_path, &err);

	if (fd >= 0) {
		call_attach(h, op, fd);
		return false;
	}
	if (op->kind == POD_OP_RUN && h->listed) {
		op->err = err;
		op->call = call_sync(h, op->pod, left_ms(op), on_asked, op);
		return false;
	}
	/* a late one may have stopped in the meantime */
	finish(h, op, op->kind == POD_OP_LATE && err.kind == ERR_NOT_FOUND ? NULL : &err, 0);
	return true;
}

/* Settles how long it will be tried. */
static void begin(struct pod_op *op, uint64_t now)
{
	const enum api_method method =
		op->kind == POD_OP_LATE ? API_POD_ATTACH : API_POD_DETACH;

	if (op->kind == POD_OP_STOP || op->kind == POD_OP_REMOVE)
		op->pod->live = false;
	if (op->kind == POD_OP_REMOVE)
		op->pod->known = false;
	if (!op->give_up_ms)
		op->give_up_ms = now + api_method_info(method)->deadline_ms;
}

/* A late attach is of no use to a sandbox that has stopped, and nobody waits for it. */
static bool is_moot(const struct hooks *h, const struct pod_op *op)
{
	return op->kind == POD_OP_LATE && (!op->pod->live || is_stopping(h));
}

/* Begins or tries again. True when the operation is finished; else a call is under way, or
 * retry_ms says when to come back. */
static bool attempt(struct hooks *h, struct pod_op *op)
{
	uint64_t now = now_ms();
	struct err err = op->err;

	op->retry_ms = now + RETRY_MS;
	if (is_moot(h, op))
		return true;
	if (op->kind == POD_OP_LATE && h->late_calls >= LATE_AT_ONCE)
		return false;
	begin(op, now);
	if (op->pod->host_network) {
		finish(h, op, NULL, 0);
		return true;
	}
	if (now >= op->give_up_ms) {
		if (err.kind == ERR_NONE)
			(void)err_set(&err, ERR_DEADLINE, "its time was up before it began");
		finish(h, op, &err, 0);
		return true;
	}
	if (!hook_rpc_conn(h->rpc)) {
		(void)err_set(&op->err, ERR_UNAVAILABLE, "%s", hook_rpc_missing(h->rpc));
		return false;
	}
	if (op->kind == POD_OP_RUN || op->kind == POD_OP_LATE)
		return attempt_attach(h, op);
	call_detach(h, op);
	return false;
}

/* --- the clock ---------------------------------------------------------------------------- */

static void on_clock(uv_timer_t *timer)
{
	struct hooks *h = timer->data;
	uint64_t now = now_ms();
	struct pod *pod, *tmp;

	if (is_stopping(h) && !h->pods.busy) {
		h->on_idle(h->ctx);
		return;
	}
	DL_FOREACH_SAFE(h->pods.busy, pod, tmp)
	{
		struct pod_op *op;

		DL_FOREACH(pod->ops, op)
		{
			answer_when_due(h, op, now);
		}
		op = pod->ops;
		if (!op->call && now >= op->retry_ms && attempt(h, op))
			advance(h, op);
	}
	arm(h);
}

/* Sets the clock to what is due next; while there is nothing, it does not run. */
static void arm(struct hooks *h)
{
	uint64_t now = now_ms(), next = UINT64_MAX;
	const struct pod *pod;
	const struct pod_op *op;

	DL_FOREACH(h->pods.busy, pod)
	{
		DL_FOREACH(pod->ops, op)
		{
			if (op->answer_by_ms)
				next = MIN(next, op->answer_by_ms);
		}
		if (!pod->ops->call)
			next = MIN(next, pod->ops->retry_ms);
	}
	if (is_stopping(h) && !h->pods.busy)
		next = now;
	if (next == UINT64_MAX)
		(void)uv_timer_stop(&h->clock);
	else
		(void)uv_timer_start(&h->clock, on_clock, next > now ? next - now : 0, 0);
}

/* --- what the runtime tells --------------------------------------------------------------- */

static void on_changed(void *ctx)
{
	struct hooks *h = ctx;
	const char *state = runtime_state(h->runtime), *detail = runtime_detail(h->runtime);

	hook_rpc_tell(h->rpc, state, detail);
	daemon_status("%s: %s", state, detail);
}

/* All others have no claims, whatever they are called. */
static bool is_of_kubernetes(const struct nri_pod *told)
{
	struct err ignored;

	return check_uid(told->uid, &ignored) == 0 &&
	       (!*told->name || check_dns_subdomain(told->name, &ignored) == 0) &&
	       (!*told->namespace || check_dns_subdomain(told->namespace, &ignored) == 0);
}

/* The list has sandboxes that have stopped and are not removed yet. Such a one has no process,
 * and where none ever has, no namespace. */
static bool lives(const struct hooks *h, const struct nri_pod *told)
{
	struct err ignored;
	cleanup_close int fd = -1;

	if (told->pid != 0 || runtime_tells_pids(h->runtime))
		return told->pid != 0;
	if (told->netns_path)
		fd = pod_netns_open(h->netns, told->netns_path, &ignored);
	return !told->netns_path || fd >= 0;
}

static void on_list_begin(void *ctx)
{
	struct hooks *h = ctx;

	pods_list_begin(&h->pods);
}

static void on_list_pod(void *ctx, const struct nri_pod *told)
{
	struct hooks *h = ctx;
	struct err err = ERR_INIT;
	struct pod *pod;

	if (!is_of_kubernetes(told))
		return;
	pod = pods_put(&h->pods, told, &err);
	if (!pod) {
		LOG(WARN, FIELDS(F("pod", told->uid), F("err", err.message)),
			"a sandbox of the runtime's list is left out");
		return;
	}
	if (!pod->ops)
		pod->host_network = !told->netns_path;
	pods_listed(&h->pods, pod, lives(h, told));
}

static void on_list_end(void *ctx)
{
	struct hooks *h = ctx;

	pods_list_end(&h->pods);
	h->listed = true;
	hooks_sync(h);
}

static struct pod_op *queue(
	struct hooks *h, enum nri_event event, const struct nri_pod *told, struct err *err)
{
	static const enum pod_op_kind kinds[] = {
		[NRI_RUN] = POD_OP_RUN,
		[NRI_STOP] = POD_OP_STOP,
		[NRI_REMOVE] = POD_OP_REMOVE,
	};
	struct pod *pod = pods_put(&h->pods, told, err);
	struct pod_op *op = pod ? pods_op_add(&h->pods, pod, kinds[event], err) : NULL;

	if (!op) {
		if (pod)
			pods_drop(&h->pods, pod);
		return NULL;
	}
	op->hooks = h;
	if (event == NRI_RUN) {
		pod->host_network = !told->netns_path;
		pod->known = pod->live = true;
	}
	return op;
}

static void on_pod_event(void *ctx, enum nri_event event, const struct nri_pod *told,
	struct runtime_ticket ticket, uint64_t budget_ms)
{
	struct hooks *h = ctx;
	struct err err = ERR_INIT;
	struct pod_op *op;

	if (!is_of_kubernetes(told)) {
		LOG(DEBUG, FIELDS(F("sandbox", told->id)), "no pod of Kubernetes'");
		runtime_reply(h->runtime, ticket, NULL);
		return;
	}
	op = queue(h, event, told, &err);
	if (!op) {
		LOG(ERROR, FIELDS(F("pod", told->uid), F("err", err.message)),
			"an event of the runtime is refused");
		runtime_reply(h->runtime, ticket, &err);
		return;
	}
	op->ticket = ticket;
	op->answer_by_ms = now_ms() + answer_within_ms(budget_ms);
	if (op->kind == POD_OP_RUN)
		op->give_up_ms = op->answer_by_ms;
	if (op == op->pod->ops && attempt(h, op))
		advance(h, op);
	arm(h);
}

const struct runtime_events hooks_runtime_events = {
	.changed = on_changed,
	.list_begin = on_list_begin,
	.list_pod = on_list_pod,
	.list_end = on_list_end,
	.pod_event = on_pod_event,
};

/* --- for the owner ------------------------------------------------------------------------ */

void hooks_init(struct hooks *h, uv_loop_t *loop, struct hook_rpc *rpc, struct runtime *runtime,
	const struct pod_netns *netns)
{
	*h = (struct hooks){.loop = loop, .rpc = rpc, .runtime = runtime, .netns = netns};
	(void)uv_timer_init(loop, &h->clock);
	h->clock.data = h;
}

void hooks_stop(struct hooks *h, void (*on_idle)(void *ctx), void *ctx)
{
	h->on_idle = on_idle;
	h->ctx = ctx;
	arm(h);
}

void hooks_close(struct hooks *h)
{
	uv_close((uv_handle_t *)&h->clock, NULL);
	pods_fini(&h->pods);
}
