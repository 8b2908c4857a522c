/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An Event is a courtesy: the kubelet, the runtime and the log have the same words. So none is
 * sent twice, none is waited for, and what keeps a cluster from being flooded is decided from a
 * table of what was told lately and a bucket that fills by the clock, without a timer.
 */
#include "statd/event.h"

#include <string.h>

#include "common/log.h"
#include "statd/statd.h"

/* events.k8s.io/v1: note may have 1024 bytes, reportingInstance 128. */
#define NOTE_MAX     1024
#define INSTANCE_MAX 128

static const struct {
	const char *reason, *type, *action;
} reasons[EVENT_REASON_MAX] = {
	[EVENT_PREPARE_FAILED] = {"PrepareFailed", "Warning", "Prepare"},
	[EVENT_PARAMETER_IGNORED] = {"ParameterIgnored", "Warning", "Prepare"},
	[EVENT_ATTACH_FAILED] = {"AttachFailed", "Warning", "Attach"},
	[EVENT_ATTACHED_LATE] = {"AttachedLate", "Warning", "Attach"},
	[EVENT_LEFTOVER_FREED] = {"LeftoverFreed", "Warning", "Free"},
};

/* --- how many ----------------------------------------------------------------------------- */

/* One that was told lately, or else the place for it: an unused one or the oldest. */
static size_t find_told(const struct events *e, const char *uid, enum event_reason reason)
{
	size_t oldest = 0;

	for (size_t i = 0; i < EVENT_REMEMBERED; i++) {
		if (e->told[i].told_ms && e->told[i].reason == reason &&
			strcmp(e->told[i].uid, uid) == 0)
			return i;
		if (e->told[i].told_ms < e->told[oldest].told_ms)
			oldest = i;
	}
	return oldest;
}

bool event_admit(struct events *e, const char *uid, enum event_reason reason, uint64_t now)
{
	const uint64_t bucket_ms = (uint64_t)EVENT_BURST * EVENT_REFILL_MS;
	size_t at = find_told(e, uid, reason);
	uint64_t full_ms = MAX(e->full_ms, now) + EVENT_REFILL_MS;

	if (e->told[at].told_ms && e->told[at].reason == reason &&
		strcmp(e->told[at].uid, uid) == 0 &&
		now - e->told[at].told_ms < EVENT_REPEAT_MS)
		return false;
	if (full_ms - now > bucket_ms)
		return false;
	e->full_ms = full_ms;
	(void)snprintf(e->told[at].uid, sizeof(e->told[at].uid), "%s", uid);
	e->told[at].reason = reason;
	e->told[at].told_ms = now;
	return true;
}

/* --- sending ------------------------------------------------------------------------------ */

static void on_sent(
	void *ctx UNUSED, const struct kube_error *error, const json_t *object UNUSED)
{
	if (error)
		LOG(DEBUG, FIELDS(F("err", error->err.message)), "an event was not taken");
}

struct regarding {
	const char *api_version, *kind, *namespace, *name, *uid;
};

static json_t *event_object(
	const struct statd *s, const struct regarding *r, enum event_reason reason, char *note)
{
	char time[RFC3339_SIZE], instance[INSTANCE_MAX + 1];
	cleanup_free char *prefix = xasprintf("%s-", r->name), *micro = NULL;

	if (strlen(note) > NOTE_MAX)
		note[NOTE_MAX] = '\0';
	str_sanitize(note); /* a character may have been cut in two */
	(void)rfc3339_format(wall_ms(), true, time);
	/* MicroTime wants six digits of a second */
	micro = xasprintf("%.*s000Z", (int)strlen(time) - 1, time);
	(void)snprintf(instance, sizeof(instance), "%s", s->config.node_name);
	return json_pack("{ss ss s{ss ss} ss ss ss ss ss ss ss s{ss ss ss ss ss}}",
		"apiVersion", "events.k8s.io/v1", "kind", "Event", "metadata", "generateName",
		prefix, "namespace", r->namespace, "eventTime", micro, "type",
		reasons[reason].type, "reason", reasons[reason].reason, "action",
		reasons[reason].action, "note", note, "reportingController",
		s->config.spec.driver_name, "reportingInstance", instance, "regarding",
		"apiVersion", r->api_version, "kind", r->kind, "namespace", r->namespace,
		"name", r->name, "uid", r->uid);
}

static void send_event(
	struct statd *s, const struct regarding *r, enum event_reason reason, const char *text)
{
	cleanup_free char *path = NULL, *note = NULL;
	json_t *object;

	if (!s->cluster.kube || s->stopping || !r->namespace || !r->name ||
		!event_admit(&s->events, r->uid, reason, now_ms()))
		return;
	path = kube_path("events.k8s.io/v1", r->namespace, "events", NULL, NULL);
	note = xstrdup(text);
	object = event_object(s, r, reason, note);
	(void)kube_create(s->cluster.kube, path, object, on_sent, NULL);
	json_decref(object);
}

void event_claim(struct statd *s, const struct claim_ref *claim, enum event_reason reason,
	const char *note)
{
	const struct regarding r = {"resource.k8s.io/v1", "ResourceClaim", claim->namespace,
		claim->name, claim->uid};

	send_event(s, &r, reason, note);
}

void event_pod(struct statd *s, const char *namespace, const char *name, const char *uid,
	enum event_reason reason, const char *note)
{
	const struct regarding r = {"v1", "Pod", namespace, name, uid};

	send_event(s, &r, reason, note);
}
