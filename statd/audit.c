/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leftovers: what a manager made for a claim that no row knows.
 *
 * A process that dies between a device's setup and the claim's status leaves something in the
 * kernel that nothing else remembers. The mark that the manager put on it names the claim, so
 * that the manager can list what carries a mark of an unknown claim, and statd has it freed:
 * before the first claim is served, and again each time that the manager connects.
 *
 * Claims that are being prepared count as known, and that is looked at again right before each
 * free: a manager does one thing after the other, so a setup that was sent before the free is
 * known here, and one that is sent after it makes the device anew.
 */
#include <string.h>

#include "common/log.h"
#include "statd/flows.h"
#include "statd/hold.h"

struct audit {
	struct statd *s;
	enum manager_type manager;
	struct device_audit_result found; /* own copy */
	size_t at;
};

static void known_claims(const struct statd *s, struct strlist *ret)
{
	const struct table_row *row = table_first(s->tables.allocations);

	/* rows come sorted by device, not by claim, and a claim has few: a UID may come
	 * twice */
	for (; row; row = table_next(row))
		strlist_add(ret, alloc_row_of(row)->claim_uid);
	hold_claims(&s->holds, ret);
}

static void audit_end(struct audit *a)
{
	struct statd *s = a->s;

	s->audited[a->manager] = true;
	rec_fini(api_method_info(API_DEVICE_AUDIT)->result, &a->found);
	free(a);
	statd_check_ready(s);
	statd_job_end(s);
}

static void free_next(struct audit *a);

static void on_freed(
	void *ctx, const struct err *err, const void *result UNUSED, int *fds UNUSED)
{
	struct audit *a = ctx;
	const struct device_alloc *leftover = &a->found.leftovers.v[a->at++];

	if (err)
		LOG(ERROR,
			FIELDS(F("claim", leftover->claim_uid),
				F("device", leftover->device->name), F("err", err->message)),
			"a leftover could not be freed; it may need a look by hand");
	free_next(a);
}

static bool is_known(const struct statd *s, const char *claim_uid)
{
	struct strlist held = {0};
	bool known;

	hold_claims(&s->holds, &held);
	known = strlist_has(&held, claim_uid) ||
		table_index_first(s->tables.allocations, ALLOC_BY_CLAIM, claim_uid);
	strlist_fini(&held);
	return known;
}

/* name: namespace/name */
static void tell_claim(struct statd *s, const struct device_alloc *leftover, const char *name)
{
	const char *slash = strchr(name, '/');
	cleanup_free char *namespace = xasprintf("%.*s", (int)(slash - name), name);
	cleanup_free char *note = xasprintf("its preparation was interrupted; device %s, which "
					    "nothing else knew of, is freed",
		leftover->device->name);
	const struct claim_ref ref = {
		namespace, (char *)(uintptr_t)(slash + 1), leftover->claim_uid};

	event_claim(s, &ref, EVENT_LEFTOVER_FREED, note);
}

static void tell(struct statd *s, const struct device_alloc *leftover)
{
	const char *claim = strmap_get(&s->unprepared, leftover->claim_uid);

	if (claim) {
		tell_claim(s, leftover, claim);
		LOG(WARN,
			FIELDS(F("claim", leftover->claim_uid),
				F("device", leftover->device->name)),
			"claim %s was being prepared when the driver ended; freeing its device",
			claim);
	} else {
		LOG(WARN,
			FIELDS(F("claim", leftover->claim_uid),
				F("device", leftover->device->name)),
			"freeing a device of a claim that is not known");
	}
}

static void free_next(struct audit *a)
{
	for (; a->at < a->found.leftovers.n; a->at++) {
		const struct device_alloc *leftover = &a->found.leftovers.v[a->at];

		if (is_known(a->s, leftover->claim_uid))
			continue;
		tell(a->s, leftover);
		(void)rpc_start(a->s->loop, statd_manager(a->s, a->manager), API_DEVICE_FREE,
			leftover, NULL, 0, on_freed, a);
		return;
	}
	audit_end(a);
}

static void on_audited(void *ctx, const struct err *err, const void *result, int *fds UNUSED)
{
	struct audit *a = ctx;

	if (err)
		LOG(ERROR,
			FIELDS(F("manager", manager_type_name(a->manager)),
				F("err", err->message)),
			"the manager could not look for leftovers");
	else
		rec_copy(api_method_info(API_DEVICE_AUDIT)->result, &a->found, result);
	free_next(a);
}

void audit_manager(struct statd *s, enum manager_type manager)
{
	struct audit *a = xcalloc(1, sizeof(*a));
	struct device_audit request = {0};

	a->s = s;
	a->manager = manager;
	known_claims(s, &request.claim_uids);
	statd_job_begin(s);
	(void)rpc_start(s->loop, statd_manager(s, manager), API_DEVICE_AUDIT, &request, NULL, 0,
		on_audited, a);
	strlist_fini(&request.claim_uids);
}

bool audit_complete(const struct statd *s)
{
	for (int m = 0; m < MANAGER_TYPE_MAX; m++)
		if (config_enabled(&s->config, (enum manager_type)m) && !s->audited[m])
			return false;
	return true;
}
