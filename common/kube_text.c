/* SPDX-License-Identifier: Apache-2.0 */
/* Paths and queries of the API, and how long to wait before the next attempt. */
#include "common/kube.h"

#include <string.h>
#include <sys/random.h>

#include "common/kube_internal.h"
#include "common/util.h"

#define BACKOFF_FIRST_MS   500
#define BACKOFF_MAX_MS     30000
/* A server that asks for more than this is asked again all the same: it may have been replaced
 * by one that is well. */
#define RETRY_AFTER_MAX_MS 120000

/* --- paths and queries -------------------------------------------------------------------- */

static bool is_unreserved(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
	       (c && strchr("-._~", c));
}

/* RFC 3986, 2.1 */
static void put_escaped(struct buf *b, const char *text)
{
	for (; *text; text++)
		if (is_unreserved(*text))
			buf_put(b, text, 1);
		else
			buf_printf(b, "%%%02X", (unsigned char)*text);
}

static void put_segment(struct buf *b, const char *segment)
{
	buf_puts(b, "/");
	put_escaped(b, segment);
}

char *kube_path(const char *group_version, const char *namespace, const char *resource,
	const char *name, const char *subresource)
{
	struct buf path = BUF_INIT;

	/* the core group, which is the oldest, has no name and a place of its own */
	buf_printf(&path, strchr(group_version, '/') ? "/apis/%s" : "/api/%s", group_version);
	if (namespace) {
		buf_puts(&path, "/namespaces");
		put_segment(&path, namespace);
	}
	put_segment(&path, resource);
	if (name)
		put_segment(&path, name);
	if (subresource)
		put_segment(&path, subresource);
	return buf_take(&path);
}

void kube_query(struct buf *query, const char *key, const char *value)
{
	if (query->len > 0)
		buf_puts(query, "&");
	put_escaped(query, key);
	buf_puts(query, "=");
	put_escaped(query, value);
}

/* --- time --------------------------------------------------------------------------------- */

uint64_t kube_random_below(uint64_t n)
{
	uint64_t random = 0;

	/* that one bit of it is a little more likely than another is no matter here */
	if (getrandom(&random, sizeof(random), GRND_NONBLOCK) != sizeof(random))
		random = now_ns();
	return random % n;
}

uint64_t kube_backoff_ms(unsigned attempt, unsigned retry_after_ms)
{
	uint64_t wait_ms = BACKOFF_MAX_MS;

	if (attempt < 16)
		wait_ms = MIN((uint64_t)BACKOFF_FIRST_MS << attempt, wait_ms);
	/* no sooner than asked, which the fifth less must not make it */
	if (retry_after_ms >= wait_ms * 4 / 5) {
		wait_ms = MIN(retry_after_ms, RETRY_AFTER_MAX_MS);
		return wait_ms + kube_random_below(wait_ms * 2 / 5 + 1);
	}
	return wait_ms * 4 / 5 + kube_random_below(wait_ms * 2 / 5 + 1);
}
