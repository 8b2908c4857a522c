/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Leftovers: what a manager made for a claim that no row knows.
 *
 * What is done for a claim is recorded before it is done, so this is what remains when a record was
 * lost with the boot's state directory, or is the kernel's way of returning what was lost from sight.
 * The mark that the manager put on it names the claim, so that the manager can list what carries a mark of
 * an unknown claim, and statd has it freed: before the first claim is served, each time that the
 * manager connects, and when an unknown link of its appears on the host.
 *
 * Claims that are being prepared have rows, and that is looked at again right before each free: a
 * manager does one thing after the other, so a setup that was sent before the free is known here,
 * and one that is sent after it makes the device anew. A claim whose record cannot be read counts as
 * known. While the store has a claim that cannot be read, nothing is freed: it may be its device.
 *
 * An unprepare of a claim without rows looks for that one claim, with all managers.
 */
#include <string.h>

#include "common/log.h"
#include "statd/flows.h"

struct audit {
	struct statd *s;
	enum manager_type manager;
	struct device_audit_result found; /* own copy */
	size_t at;
	/* of an audit for one claim; else claim_uid is NULL */
	char *claim_uid;
	struct err err; /* of all that failed */
	void (*done)(void *ctx, const struct err *err);
	void *ctx;
};

static void audit_next_manager(struct audit *a);

static void known_claims(const struct statd *s, struct strlist *ret)
{
	const struct table_row *row = table_first(s->tables.allocations);

	/* rows come sorted by device, not by claim, and a claim has few: a UID may come
	 * twice */
	for (; row; row = table_next(row))
		strlist_add(ret, alloc_row_of(row)->claim_uid);
	for (size_t i = 0; i < s->broken.n; i++)
		strlist_add(ret, s->broken.v[i]);
}

static void audit_end(struct audit *a)
{
	struct statd *s = a->s;

	rec_fini(api_method_info(API_DEVICE_AUDIT)->result, &a->found);
	a->at = 0;
	if (a->claim_uid) {
		a->manager++;
		audit_next_manager(a);
		return;
	}
	s->audited[a->manager] = true;
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
	if (err)
		err_join(&a->err, err);
	free_next(a);
}

static bool is_known(const struct statd *s, const char *claim_uid)
{
	return strlist_has(&s->broken, claim_uid) ||
	       table_index_first(s->tables.allocations, ALLOC_BY_CLAIM, claim_uid);
}

/* A mark proves nothing against a row: the pod that has the device may have written it. */
static bool is_held_by_another(const struct statd *s, const struct device_alloc *leftover)
{
	const struct table_row *at = table_index_first(
		s->tables.allocations, ALLOC_BY_DEVICE, leftover->device->name);

	for (; at; at = table_index_next(at, ALLOC_BY_DEVICE)) {
		const struct alloc_row *row = alloc_row_of(at);

		if (strcmp(row->claim_uid, leftover->claim_uid) == 0 ||
			!str_equal(row->share_id ? row->share_id : "",
				leftover->share_id ? leftover->share_id : ""))
			continue;
		LOG(WARN, FIELDS(F("claim", row->claim_uid), F("device", row->device_name)),
			"the device bears the mark of another claim, %s; it stays this one's",
			leftover->claim_uid);
		return true;
	}
	return false;
}

/* Whether this is one to be freed. */
static bool is_wanted(const struct audit *a, const struct device_alloc *leftover)
{
	if (is_held_by_another(a->s, leftover))
		return false;
	if (a->claim_uid)
		return strcmp(leftover->claim_uid, a->claim_uid) == 0;
	if (is_known(a->s, leftover->claim_uid))
		return false;
	if (!a->s->has_unreadable)
		return true;
	LOG(WARN, FIELDS(F("claim", leftover->claim_uid), F("device", leftover->device->name)),
		"a device of a claim that is not known is kept, since there is a claim that cannot "
		"be read");
	return false;
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

		if (!is_wanted(a, leftover))
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
	if (err)
		err_join(&a->err, err);
	else
		rec_copy(api_method_info(API_DEVICE_AUDIT)->result, &a->found, result);
	free_next(a);
}

static void ask(struct audit *a, const struct device_audit *request)
{
	(void)rpc_start(a->s->loop, statd_manager(a->s, a->manager), API_DEVICE_AUDIT, request,
		NULL, 0, on_audited, a);
}

void audit_manager(struct statd *s, enum manager_type manager)
{
	struct audit *a = xcalloc(1, sizeof(*a));
	struct device_audit request = {0};

	a->s = s;
	a->manager = manager;
	known_claims(s, &request.claim_uids);
	statd_job_begin(s);
	ask(a, &request);
	strlist_fini(&request.claim_uids);
}

static void audit_next_manager(struct audit *a)
{
	void (*done)(void *ctx, const struct err *err) = a->done;
	struct device_audit request = {0};
	struct err err = a->err;
	void *ctx = a->ctx;

	while (a->manager < MANAGER_TYPE_MAX && !config_enabled(&a->s->config, a->manager))
		a->manager++;
	if (a->manager < MANAGER_TYPE_MAX) {
		known_claims(a->s, &request.claim_uids);
		strlist_remove(&request.claim_uids, a->claim_uid);
		ask(a, &request);
		strlist_fini(&request.claim_uids);
		return;
	}
	free(a->claim_uid);
	free(a);
	done(ctx, err.kind != ERR_NONE ? &err : NULL);
}

void audit_claim(struct statd *s, const char *claim_uid,
	void (*done)(void *ctx, const struct err *err), void *ctx)
{
	struct audit *a = xcalloc(1, sizeof(*a));

	*a = (struct audit){.s = s, .done = done, .ctx = ctx};
	a->claim_uid = xstrdup(claim_uid);
	audit_next_manager(a);
}

bool audit_complete(const struct statd *s)
{
	for (int m = 0; m < MANAGER_TYPE_MAX; m++)
		if (config_enabled(&s->config, (enum manager_type)m) && !s->audited[m])
			return false;
	return true;
}
