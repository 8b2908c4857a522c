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
 * A pod whose devices cannot be attached meets two gates: its sandbox, and then each of its
 * containers (answer.h says which of them close). At the second one an attach is tried once
 * more. It stands in the way of every container of the node, so whoever is known to have all
 * its devices passes at once.
 *
 * A container that was given a claim of ours (claims.h) is let through when statd has confirmed
 * that the claim's devices are in its sandbox, whatever else is known of the pod. statd is asked
 * with the names of the claims, and so answers for a claim that another pod has.
 *
 * A pod whose names are none of Kubernetes' has no claim and is answered at once. So is one that the
 * node's own record (record.h) does not name, at every event, unless statd was asked to attach to it
 * before. For all others statd is asked. While it cannot be asked, what it has not said yet counts as
 * a no. Nothing is attached to a sandbox of the host's network. It never waits, for our own pod may be
 * one, unless the record names its pod or a container was given a claim: then it is refused if a
 * device was to be moved into it.
 *
 * A namespace is opened for a call and closed when the call has been sent: an open one would
 * keep alive what the runtime has removed.
 */
#include "nrihookd/hooks.h"

#include <utlist.h>

#include "common/daemon.h"
#include "common/log.h"
#include "common/util.h"
#include "nrihookd/answer.h"
#include "nrihookd/claims.h"
#include "nrihookd/list.h"

#define RETRY_MS 20
#define RESYNC_MS                                                                              \
	1000 /* after a late attach that had no answer: nobody else asks for it again */
#define LATE_AT_ONCE 16 /* each has a descriptor in flight, which the kernel counts */

static void arm(struct hooks *h);

static bool is_stopping(const struct hooks *h)
{
	return h->on_idle != NULL;
}

/* --- the end of an operation -------------------------------------------------------------- */

/* Whether it is statd's word, and not that there was none. */
static bool is_verdict(const struct err *err)
{
	return err->kind != ERR_UNAVAILABLE && err->kind != ERR_DEADLINE;
}

/* Says how it ended. The caller takes it out of the queue. */
static void finish(struct hooks *h, struct pod_op *op, const struct err *err, int64_t devices)
{
	answer_log(h, op, err, devices);
	/* the runtime takes a sandbox down whose start has failed */
	if (err && op->kind == POD_OP_RUN && answer_is_told(h, op->kind))
		op->pod->live = false;
	if (err && op->kind == POD_OP_LATE && !is_verdict(err))
		hooks_resync(h);
	answer(h, op, err);
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
	op->handed_over = false;
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

static void in_place(const struct pod_op *op)
{
	op->pod->devices = DEVICES_IN_PLACE;
	claims_add(&op->pod->claims, &op->claims);
}

/* What was in place still is if it is about a claim that is new to the sandbox. */
static void not_in_place(const struct pod_op *op)
{
	if (op->pod->devices != DEVICES_IN_PLACE || op->claims.n == 0)
		op->pod->devices = DEVICES_MISSING;
}

static void on_attached(void *ctx, const struct err *err, const void *result, int *fds UNUSED)
{
	const struct pod_attach_result *attached = result;
	struct pod_op *op = ctx;

	if (!err) {
		in_place(op);
		claims_add(&op->pod->claims, &attached->claims);
	} else if (is_verdict(err)) {
		not_in_place(op);
	}
	end_call(op->hooks, op, err, attached ? attached->devices.v : 0);
}

static uint64_t left_ms(const struct pod_op *op)
{
	uint64_t now = now_ms();

	return op->give_up_ms > now ? op->give_up_ms - now : 1;
}

static void call_attach(struct hooks *h, struct pod_op *op, int netns_fd, rpc_done_cb *done)
{
	const struct pod *pod = op->pod;
	const struct pod_attach request = {
		.pod_uid = pod->uid,
		.sandbox_id = pod->sandbox_id,
		.pod_name = pod->name,
		.pod_namespace = pod->namespace,
		.claims = op->claims,
	};

	if (op->kind == POD_OP_LATE)
		h->late_calls++;
	op->pod->involved = true;
	op->call = rpc_start(h->loop, hook_rpc_conn(h->rpc), API_POD_ATTACH, &request,
		&netns_fd, left_ms(op), done, op);
}

/* The sandbox's namespace does not open, for the reason in op->err. That stops the pod only if
 * it has devices: else a mount that is missing would stop every pod of the node. */
static void on_checked(void *ctx, const struct err *err, const void *result, int *fds UNUSED)
{
	const struct pod_check_result *devices = result;
	struct pod_op *op = ctx;

	if (!err && devices->there.v < devices->wanted.v) {
		not_in_place(op);
		err = &op->err;
	} else if (!err) {
		in_place(op);
	}
	end_call(op->hooks, op, err, 0);
}

static void call_check(struct hooks *h, struct pod_op *op)
{
	const struct pod_ref request = {
		.pod_uid = op->pod->uid,
		.sandbox_id = op->pod->sandbox_id,
		.claims = op->claims,
	};

	op->pod->involved = true;
	op->call = rpc_start(h->loop, hook_rpc_conn(h->rpc), API_POD_CHECK, &request, NULL,
		left_ms(op), on_checked, op);
}

static int open_netns(const struct hooks *h, const struct pod *pod, struct err *err)
{
	if (pod->host_network)
		return err_set(err, ERR_INVALID,
			"the pod is on the host's network (hostNetwork: true), and a claimed device "
			"cannot be moved into it");
	return pod_netns_open(h->netns, pod->netns_path, err);
}

static void call_detach(struct hooks *h, struct pod_op *op);

static void on_handed_over(
	void *ctx, const struct err *err, const void *result UNUSED, int *fds UNUSED)
{
	struct pod_op *op = ctx;
	struct err first = op->err;

	if (!err)
		call_detach(op->hooks, op);
	else
		end_call(op->hooks, op, is_verdict(err) ? &first : err, 0);
}

/* A statd that was started after the sandbox began to end does not know its namespace, and while the
 * namespace exists no device returns to the host by itself. An attach hands the namespace over; the
 * detach that follows it has one. */
static bool hand_over(struct hooks *h, struct pod_op *op, const struct err *err)
{
	cleanup_close int fd = -1;
	struct err ignored;

	if (op->kind != POD_OP_STOP || op->handed_over || err->kind != ERR_BUSY ||
		!hook_rpc_conn(h->rpc))
		return false;
	fd = open_netns(h, op->pod, &ignored);
	if (fd < 0)
		return false;
	op->handed_over = true;
	op->err = *err;
	call_attach(h, op, fd, on_handed_over);
	return true;
}

static void on_detached(
	void *ctx, const struct err *err, const void *result UNUSED, int *fds UNUSED)
{
	struct pod_op *op = ctx;

	if (!err || !hand_over(op->hooks, op, err))
		end_call(op->hooks, op, err, 0);
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

/* --- trying ------------------------------------------------------------------------------- */

static bool is_attach(enum pod_op_kind kind)
{
	return kind == POD_OP_RUN || kind == POD_OP_LATE || kind == POD_OP_CREATE;
}

static bool attempt_attach(struct hooks *h, struct pod_op *op)
{
	struct err err = ERR_INIT;
	cleanup_close int fd = open_netns(h, op->pod, &err);

	if (fd >= 0) {
		call_attach(h, op, fd, on_attached);
		return false;
	}
	if (op->kind != POD_OP_LATE) {
		op->err = err;
		call_check(h, op);
		return false;
	}
	/* it may have ended in the meantime, and its namespace with it */
	if (err.kind != ERR_NOT_FOUND)
		finish(h, op, &err, 0);
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

/* Whether another sandbox of the pod has started since: the devices are that one's. */
static bool is_overtaken(const struct hooks *h, const struct pod_op *op)
{
	const struct pod *other;

	for (other = h->pods.by_id; other; other = other->hh.next)
		if (other->live && other->started > op->begun &&
			str_equal(other->uid, op->pod->uid))
			return true;
	return false;
}

/* A late attach is of no use to a sandbox that has stopped, and nobody waits for it. One that
 * was overtaken is asked for again, in case that the other sandbox is refused. */
static bool is_moot(struct hooks *h, const struct pod_op *op)
{
	if (op->kind != POD_OP_LATE)
		return false;
	if (!op->pod->live || is_stopping(h))
		return true;
	if (!is_overtaken(h, op))
		return false;
	hooks_resync(h);
	return true;
}

/* Late attaches are a few at a time, but those that hold up a container do not wait. */
static bool awaits_its_turn(const struct hooks *h, const struct pod_op *op)
{
	return op->kind == POD_OP_LATE && h->late_calls >= LATE_AT_ONCE && !op->next;
}

/* Whether the node's record says that the pod has no claim, and nothing says otherwise. */
static bool is_without_claim(const struct hooks *h, struct pod *pod)
{
	enum record_answer answer;

	if (pod->involved)
		return false;
	answer = record_find(h->record, pod->uid);
	pod->involved = answer == RECORD_HAS;
	return answer == RECORD_HAS_NOT;
}

/* Whether there is nothing to do, from what is known here. */
static bool is_known_done(const struct hooks *h, const struct pod_op *op)
{
	struct pod *pod = op->pod;

	if (op->kind == POD_OP_LATE || !claims_has(&pod->claims, &op->claims))
		return false;
	if (op->kind == POD_OP_CREATE && pod->devices == DEVICES_IN_PLACE)
		return true;
	if (!is_without_claim(h, pod))
		return false;
	pod->devices = DEVICES_IN_PLACE;
	return true;
}

/* Whether a pod on the host's network is known to have a claim of ours. */
static bool host_network_matters(const struct hooks *h, const struct pod_op *op)
{
	return is_attach(op->kind) && (!claims_has(&op->pod->claims, &op->claims) ||
					      record_find(h->record, op->pod->uid) == RECORD_HAS);
}

/* Positive when nothing is to be done, 0 when statd is needed; negative and err when there is
 * no use in that. */
static int decide(const struct hooks *h, const struct pod_op *op, uint64_t now, struct err *err)
{
	const struct pod *pod = op->pod;

	if (pod->host_network && !host_network_matters(h, op))
		return 1;
	if (op->kind == POD_OP_CREATE && !pod->live)
		return err_set(err, ERR_CONFLICT, "the sandbox has stopped");
	if (is_known_done(h, op))
		return 1;
	if (now < op->give_up_ms)
		return 0;
	*err = op->err;
	if (err->kind == ERR_NONE)
		(void)err_set(err, ERR_DEADLINE, "its time was up before it began");
	return -1;
}

static bool is_known_of(const struct pod *pod)
{
	return pod->involved || pod->devices != DEVICES_UNKNOWN;
}

/* There is no statd to go to. Negative when it has been away for so long that waiting for it
 * would only hold up the runtime, which waits for one plugin's answer at a time. */
static int await_statd(const struct hooks *h, struct pod_op *op)
{
	cleanup_free char *claims = NULL;

	(void)err_set(&op->err, ERR_UNAVAILABLE, "%s", hook_rpc_missing(h->rpc));
	if (op->claims.n) {
		claims = claims_format(&op->claims);
		(void)err_wrap(&op->err, "%s: whether the devices are there is not known",
			claims);
	} else if (is_attach(op->kind) && !is_known_of(op->pod)) {
		(void)err_wrap(&op->err, "whether it has any is not known");
	}
	return hook_rpc_is_lost(h->rpc) ? -1 : 0;
}

/* Begins or tries again. True when the operation is finished; else a call is under way, or
 * retry_ms says when to come back. */
static bool attempt(struct hooks *h, struct pod_op *op)
{
	uint64_t now = now_ms();
	struct err err = ERR_INIT;
	int decided;

	op->retry_ms = now + RETRY_MS;
	if (is_moot(h, op))
		return true;
	if (awaits_its_turn(h, op))
		return false;
	begin(op, now);
	decided = decide(h, op, now, &err);
	if (decided != 0) {
		finish(h, op, decided < 0 ? &err : NULL, 0);
		return true;
	}
	if (!hook_rpc_conn(h->rpc)) {
		if (await_statd(h, op) == 0)
			return false;
		finish(h, op, &op->err, 0);
		return true;
	}
	if (is_attach(op->kind))
		return attempt_attach(h, op);
	call_detach(h, op);
	return false;
}

void hooks_attach_late(struct hooks *h, struct pod *pod)
{
	struct err err = ERR_INIT;
	struct pod_op *op;

	pod->devices = DEVICES_MISSING;
	strlist_fini(&pod->claims);
	pod->involved = true;
	op = pods_op_add(&h->pods, pod, POD_OP_LATE, &err);
	if (!op) {
		LOG(ERROR, POD_FIELDS(pod, err.message), "no late attach");
		return;
	}
	op->hooks = h;
	if (op == pod->ops && attempt(h, op))
		advance(h, op);
	arm(h);
}

void hooks_resync(struct hooks *h)
{
	h->resync_ms = now_ms() + RESYNC_MS;
	arm(h);
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
	if (h->resync_ms && now >= h->resync_ms) {
		h->resync_ms = 0;
		list_sync(h);
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
	if (h->resync_ms)
		next = MIN(next, h->resync_ms);
	if (is_stopping(h) && !h->pods.busy)
		next = now;
	if (next == UINT64_MAX)
		(void)uv_timer_stop(&h->clock);
	else
		(void)uv_timer_start(&h->clock, on_clock, next > now ? next - now : 0, 0);
}

/* --- what the runtime tells --------------------------------------------------------------- */

void hooks_tell_state(struct hooks *h)
{
	const char *state = runtime_state(h->runtime), *problem = record_problem(h->record);
	char detail[2 * ERR_MESSAGE_MAX]; /* what front.state takes */

	(void)snprintf(detail, sizeof(detail), "%s%s%.450s", runtime_detail(h->runtime),
		*problem ? "; no use of the node's record: " : "", problem);
	str_sanitize(detail);
	hook_rpc_tell(h->rpc, state, detail);
	daemon_status("%s: %s", state, detail);
}

static void on_changed(void *ctx)
{
	hooks_tell_state(ctx);
}

static const enum pod_op_kind kinds[] = {
	[NRI_RUN] = POD_OP_RUN,
	[NRI_STOP] = POD_OP_STOP,
	[NRI_REMOVE] = POD_OP_REMOVE,
	[NRI_CREATE] = POD_OP_CREATE,
};

static struct pod_op *queue(
	struct hooks *h, enum nri_event event, const struct nri_pod *told, struct err *err)
{
	struct pod *pod = pods_put(&h->pods, told, err);
	struct pod_op *op = pod ? pods_op_add(&h->pods, pod, kinds[event], err) : NULL;

	if (!op) {
		if (pod)
			pods_drop(&h->pods, pod);
		return NULL;
	}
	op->hooks = h;
	claims_add(&op->claims, &told->claims);
	if (event == NRI_RUN) {
		pod->devices = DEVICES_UNKNOWN;
		strlist_fini(&pod->claims);
	}
	if (event == NRI_RUN || event == NRI_CREATE) {
		pod->host_network = !pod->netns_path;
		pod->known = pod->live = true;
	}
	return op;
}

static char *on_claim_of(void *ctx, const char *source)
{
	const struct hooks *h = ctx;

	return claims_of_mount(h->kubelet_dir, h->rpc->driver_name, source);
}

static void on_pod_event(void *ctx, enum nri_event event, const struct nri_pod *told,
	struct runtime_ticket ticket, uint64_t budget_ms)
{
	struct hooks *h = ctx;
	struct err err = ERR_INIT;
	struct pod_op *op;

	if (!pods_is_kubernetes(told)) {
		LOG(DEBUG, FIELDS(F("sandbox", told->id)), "no pod of Kubernetes'");
		runtime_reply(h->runtime, ticket, NULL);
		return;
	}
	op = queue(h, event, told, &err);
	if (!op) {
		answer_not_taken(h, kinds[event], told, ticket, &err);
		return;
	}
	op->ticket = ticket;
	op->answer_by_ms = now_ms() + answer_within_ms(budget_ms);
	if (is_attach(op->kind))
		op->give_up_ms = op->answer_by_ms;
	if (op == op->pod->ops && attempt(h, op))
		advance(h, op);
	arm(h);
}

const struct runtime_events hooks_runtime_events = {
	.changed = on_changed,
	.configured = answer_configured,
	.list_begin = list_begin,
	.list_pod = list_pod,
	.list_end = list_end,
	.claim_of = on_claim_of,
	.pod_event = on_pod_event,
};

/* --- for the owner ------------------------------------------------------------------------ */

void hooks_init(struct hooks *h, uv_loop_t *loop, struct hook_rpc *rpc, struct runtime *runtime,
	const struct pod_netns *netns, struct record *record, const char *kubelet_dir,
	bool log_only)
{
	*h = (struct hooks){
		.loop = loop,
		.rpc = rpc,
		.runtime = runtime,
		.netns = netns,
		.record = record,
		.kubelet_dir = kubelet_dir,
		.log_only = log_only,
	};
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
	if (h->sync)
		rpc_cancel(h->sync);
	uv_close((uv_handle_t *)&h->clock, NULL);
	pods_fini(&h->pods);
}
