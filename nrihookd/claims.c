/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draplugind makes these paths from the same options, so they are compared component by component:
 * no other path is one of ours, whatever it leads to. A pod that may mount any path of the host can
 * look like one that was given a claim; all that comes of it is a question to statd, which refuses.
 */
#include "nrihookd/claims.h"

#include <string.h>

#include "common/check.h"
#include "common/claim_files.h"

/* --- mounts ------------------------------------------------------------------------------- */

/* The length of the next component, which is passed; 0 at the end. */
static size_t take_component(const char **at, const char **ret)
{
	size_t len;

	*ret = *at + strspn(*at, "/");
	len = strcspn(*ret, "/");
	*at = *ret + len;
	return len;
}

/* Passes as many components as path has. Whether they are the same. */
static bool take_path(const char **at, const char *path)
{
	const char *want, *found;
	size_t len;

	while ((len = take_component(&path, &want)) > 0)
		if (take_component(at, &found) != len || memcmp(found, want, len) != 0)
			return false;
	return true;
}

/* The next component, if it is of this grammar. The caller's. */
static char *take_word(const char **at, int (*check)(const char *text, struct err *err))
{
	const char *found;
	size_t len = take_component(at, &found);
	cleanup_free char *word = xmemdup0(found, len);
	struct err ignored;

	return check(word, &ignored) == 0 ? take_ptr(word) : NULL;
}

char *claims_of_mount(const char *kubelet_dir, const char *driver, const char *source)
{
	cleanup_free char *claim = NULL, *request = NULL;
	const char *at = source;

	if (*source != '/' || !take_path(&at, kubelet_dir) || !take_path(&at, "plugins") ||
		!take_path(&at, driver) || !take_path(&at, CLAIM_FILES_STORE))
		return NULL;
	claim = take_word(&at, check_claim_dir);
	request = take_word(&at, check_dns_label);
	if (!claim || !request || !take_path(&at, CLAIM_FILES_NAME) || *at)
		return NULL;
	return take_ptr(claim);
}

/* --- lists -------------------------------------------------------------------------------- */

void claims_add(struct strlist *to, const struct strlist *claims)
{
	for (size_t i = 0; i < claims->n && to->n < CLAIMS_MAX; i++)
		if (!strlist_has(to, claims->v[i]))
			strlist_add(to, claims->v[i]);
}

bool claims_has(const struct strlist *in, const struct strlist *claims)
{
	for (size_t i = 0; i < claims->n; i++)
		if (!strlist_has(in, claims->v[i]))
			return false;
	return true;
}

char *claims_format(const struct strlist *claims)
{
	struct buf text = BUF_INIT;

	buf_puts(&text, claims->n == 1 ? "claim " : "claims ");
	for (size_t i = 0; i < claims->n; i++) {
		const char *name = claims->v[i], *underscore = strchr(name, '_');

		buf_puts(&text, i ? ", " : "");
		if (underscore)
			buf_printf(&text, "%.*s/%s", (int)(underscore - name), name,
				underscore + 1);
		else
			buf_puts(&text, name);
	}
	return buf_take(&text);
}
