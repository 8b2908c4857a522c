/* SPDX-License-Identifier: Apache-2.0 */
#include "statd/hold.h"

#include <string.h>

#include "common/hash.h"

struct hold {
	char *key; /* device/share */
	char *claim_uid;
	UT_hash_handle hh;
};

int hold_take(struct hold **all, const char *device, const char *share_id,
	const char *claim_uid, struct err *err)
{
	cleanup_free char *key = xasprintf("%s/%s", device, share_id ? share_id : "");
	struct hold *h;

	HASH_FIND_STR(*all, key, h);
	if (h && strcmp(h->claim_uid, claim_uid) != 0)
		return err_set(err, ERR_BUSY,
			"device %s is being prepared for claim %s right now", device,
			h->claim_uid);
	if (h)
		return 0;
	h = xcalloc(1, sizeof(*h));
	h->key = take_ptr(key);
	h->claim_uid = xstrdup(claim_uid);
	HASH_ADD_KEYPTR(hh, *all, h->key, strlen(h->key), h);
	return 0;
}

void hold_release_claim(struct hold **all, const char *claim_uid)
{
	struct hold *h, *tmp;

	HASH_ITER (hh, *all, h, tmp) {
		if (strcmp(h->claim_uid, claim_uid) != 0)
			continue;
		HASH_DEL(*all, h);
		free(h->key);
		free(h->claim_uid);
		free(h);
	}
}

void hold_claims(struct hold *const *all, struct strlist *ret)
{
	struct hold *h, *tmp;

	HASH_ITER (hh, *all, h, tmp)
		if (!strlist_has(ret, h->claim_uid))
			strlist_add(ret, h->claim_uid);
}
