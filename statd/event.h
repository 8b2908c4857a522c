/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Events (events.k8s.io/v1): what a user who looks at a pod or a claim must know. Sent and
 * forgotten: a cluster that takes none misses only the telling. Without an API server these do
 * nothing.
 */

#include <stdbool.h>
#include <stdint.h>

struct statd;
struct claim_ref;

enum event_reason {
	EVENT_PREPARE_FAILED, /* claim */
	EVENT_PARAMETER_IGNORED, /* claim: it is prepared without one that is not known */
	EVENT_ATTACH_FAILED,  /* pod */
	EVENT_ATTACHED_LATE,  /* pod: its containers ran without the device for a while */
	EVENT_LEFTOVER_FREED, /* claim: what an interrupted preparation had left */
	EVENT_REASON_MAX
};

/* What keeps a node in trouble from flooding the cluster: so many at once, one more every so
 * often, and the same reason for the same object at most once in a while. */
#define EVENT_BURST	 20
#define EVENT_REFILL_MS	 10000
#define EVENT_REPEAT_MS	 300000
#define EVENT_REMEMBERED 64

struct events {
	uint64_t full_ms; /* when the bucket is full again */
	struct {
		char uid[64];
		enum event_reason reason;
		uint64_t told_ms; /* 0: unused */
	} told[EVENT_REMEMBERED];
};

/* Whether one may be sent now, which it then was. Pure but for *e. */
bool event_admit(struct events *e, const char *uid, enum event_reason reason, uint64_t now);

/* note: a sentence; what is longer than the API takes is cut. */
void event_claim(struct statd *s, const struct claim_ref *claim, enum event_reason reason,
	const char *note);
void event_pod(struct statd *s, const char *namespace, const char *name, const char *uid,
	enum event_reason reason, const char *note);
