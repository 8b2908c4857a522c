/* SPDX-License-Identifier: Apache-2.0 */
/* A device is there as long as one of its allocations is. */
#include "common/prepared.h"

#include <string.h>

#include "common/hash.h"

struct entry {
	char *device;
	struct packed *state;
	struct strlist owners; /* "claim/share" */
	UT_hash_handle hh;
};

struct prepared {
	struct entry *entries;
};

struct prepared *prepared_new(void)
{
	return xcalloc(1, sizeof(struct prepared));
}

static void entry_delete(struct prepared *p, struct entry *e)
{
	HASH_DEL(p->entries, e);
	strlist_fini(&e->owners);
	free(e->state);
	free(e->device);
	free(e);
}

void prepared_clear(struct prepared *p)
{
	struct entry *e, *next;

	HASH_ITER (hh, p->entries, e, next)
		entry_delete(p, e);
}

void prepared_free(struct prepared *p)
{
	if (!p)
		return;
	prepared_clear(p);
	free(p);
}

static struct entry *find(const struct prepared *p, const char *device)
{
	struct entry *e;

	HASH_FIND_STR(p->entries, device, e);
	return e;
}

static char *owner_of(const struct device_alloc *a)
{
	return xasprintf("%s/%s", a->claim_uid, a->share_id ? a->share_id : "");
}

void prepared_put(struct prepared *p, const struct device_alloc *a, const struct device *device)
{
	cleanup_free char *owner = owner_of(a);
	struct entry *e = find(p, device->name);

	if (!e) {
		e = xcalloc(1, sizeof(*e));
		e->device = xstrdup(device->name);
		HASH_ADD_KEYPTR(hh, p->entries, e->device, strlen(e->device), e);
	}
	free(e->state);
	e->state = packed_copy(device->state);
	if (!strlist_has(&e->owners, owner))
		strlist_add(&e->owners, owner);
}

void prepared_drop(struct prepared *p, const struct device_alloc *a)
{
	cleanup_free char *owner = owner_of(a);
	struct entry *e = find(p, a->device->name);

	if (!e)
		return;
	strlist_remove(&e->owners, owner);
	if (e->owners.n == 0)
		entry_delete(p, e);
}

const struct packed *prepared_state(const struct prepared *p, const char *device)
{
	const struct entry *e = find(p, device);

	return e ? e->state : NULL;
}
