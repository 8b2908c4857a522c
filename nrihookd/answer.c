/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers.
 *
 * An error stops a pod, so who is told of one decides what happens to pods whose devices cannot
 * be attached:
 *
 *                                    sandbox    containers
 *	as a rule                       refused    refused
 *	the runtime leaks (release.h)   stands     refused
 *	--on-attach-failure=log         stands     run
 *
 * What is kept from the runtime is in the log, with what becomes of the pod.
 */
#include "nrihookd/answer.h"

#include "common/log.h"
#include "common/util.h"
#include "nrihookd/release.h"

/* For our answer to arrive, and for a loop that is late: an answer that misses the runtime's time
 * lets a pod start without its devices. 150 ms were not enough on a node with six times as much
 * to run as it has processors. */
#define MARGIN_MS 400

static const char *const op_names[] = {
	[POD_OP_RUN] = "attach",
	[POD_OP_STOP] = "detach",
	[POD_OP_REMOVE] = "detach",
	[POD_OP_LATE] = "late attach",
	[POD_OP_CREATE] = "attach",
};

/* --- whom to tell what -------------------------------------------------------------------- */

void answer_configured(void *ctx, const char *name, const char *version)
{
	struct hooks *h = ctx;
	const char *what = "its sandbox is refused, and its containers";

	h->defer = release_leaks_refused(name, version);
	if (h->log_only)
		what = "it runs without them, as --on-attach-failure says";
	else if (h->defer)
		what = "its sandbox stands and its containers are refused, because this "
		       "runtime does not clean up after a sandbox that is refused";
	LOG(INFO, FIELDS(F("runtime", name), F("version", version)),
		"when the devices of a pod cannot be attached, %s", what);
}

bool answer_is_told(const struct hooks *h, enum pod_op_kind kind)
{
	switch (kind) {
	case POD_OP_RUN: return !h->log_only && !h->defer;
	case POD_OP_CREATE: return !h->log_only;
	case POD_OP_STOP: return true;
	case POD_OP_REMOVE: /* the last event of a sandbox: no runtime does anything about it */
	case POD_OP_LATE: break;
	}
	return false;
}

/* --- the runtime -------------------------------------------------------------------------- */

uint64_t answer_within_ms(uint64_t budget_ms)
{
	return MAX(budget_ms / 2, budget_ms > MARGIN_MS ? budget_ms - MARGIN_MS : 0);
}

static void reply(struct hooks *h, enum pod_op_kind kind, struct runtime_ticket ticket,
	const struct err *err)
{
	runtime_reply(h->runtime, ticket, answer_is_told(h, kind) ? err : NULL);
}

void answer(struct hooks *h, struct pod_op *op, const struct err *err)
{
	const struct pod *pod = op->pod;
	const char *what = op_names[op->kind];
	struct err told;

	if (!op->answer_by_ms)
		return;
	op->answer_by_ms = 0;
	if (err) {
		told = *err;
		if (pod->name && pod->namespace)
			(void)err_wrap(&told, "%s of the devices of pod %s/%s", what,
				pod->namespace, pod->name);
		else
			(void)err_wrap(&told, "%s of the devices of pod %s", what, pod->uid);
	}
	reply(h, op->kind, op->ticket, err ? &told : NULL);
}

void answer_when_due(struct hooks *h, struct pod_op *op, uint64_t now)
{
	/* one that waits has what it waits for to blame */
	struct err err = op->err.kind != ERR_NONE ? op->err : op->pod->ops->err;

	if (!op->answer_by_ms || now < op->answer_by_ms)
		return;
	if (err.kind == ERR_NONE)
		(void)err_set(&err, ERR_DEADLINE, "it is not done within the runtime's time");
	answer(h, op, &err);
}

/* --- the log ------------------------------------------------------------------------------ */

static const char *consequence(const struct hooks *h, enum pod_op_kind kind)
{
	switch (kind) {
	case POD_OP_RUN:
		if (answer_is_told(h, kind))
			return ": the sandbox is refused";
		if (!h->log_only)
			return ": the sandbox stands, its containers are refused";
		return ": the pod runs without its devices";
	case POD_OP_CREATE:
		if (answer_is_told(h, kind))
			return ": the container is refused";
		return ": the container runs without the pod's devices";
	case POD_OP_LATE: return ": the pod runs without its devices";
	case POD_OP_STOP:
	case POD_OP_REMOVE: break;
	}
	return "";
}

void answer_log(
	const struct hooks *h, const struct pod_op *op, const struct err *err, int64_t devices)
{
	const char *what = op_names[op->kind];

	if (err)
		LOG(ERROR, POD_FIELDS(op->pod, err->message), "%s failed%s", what,
			consequence(h, op->kind));
	else if (devices > 0)
		LOG(INFO, POD_FIELDS(op->pod, ""), "%s: %lld devices", what,
			(long long)devices);
	else
		LOG(DEBUG, POD_FIELDS(op->pod, ""), "%s: done", what);
}

void answer_not_taken(struct hooks *h, enum pod_op_kind kind, const struct nri_pod *told,
	struct runtime_ticket ticket, const struct err *err)
{
	LOG(ERROR, FIELDS(F("pod", told->uid), F("err", err->message)),
		"an event of the runtime's is not taken%s", consequence(h, kind));
	reply(h, kind, ticket, err);
}
