/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the runtime is told of an event, and what the log says of it.
 */

#include "nrihookd/hooks.h"

/* For LOG(); err may be "". */
#define POD_FIELDS(pod_, err_)                                                                 \
	FIELDS(F("pod", (pod_)->uid), F("sandbox", (pod_)->sandbox_id),                        \
		F("namespace", (pod_)->namespace), F("name", (pod_)->name), F("err", err_))

/* Who the runtime is, which decides what it may be told. ctx is the struct hooks. */
void answer_configured(void *ctx, const char *name, const char *version);

/* Whether the runtime gets to know that an operation of this kind failed. */
bool answer_is_told(const struct hooks *h, enum pod_op_kind kind);
/* Milliseconds that we take of those that the runtime gives. */
uint64_t answer_within_ms(uint64_t budget_ms);

/* Each answers at most once, and not an operation that nobody waits for. err NULL is success. */
void answer(struct hooks *h, struct pod_op *op, const struct err *err);
void answer_when_due(struct hooks *h, struct pod_op *op, uint64_t now);
/* The event could not even be queued. */
void answer_not_taken(struct hooks *h, enum pod_op_kind kind, const struct nri_pod *told,
	struct runtime_ticket ticket, const struct err *err);

/* Says in the log how it ended. */
void answer_log(
	const struct hooks *h, const struct pod_op *op, const struct err *err, int64_t devices);
