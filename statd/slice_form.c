/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The canonical form is a text like JSON's that is never parsed again, so it need not be JSON: a
 * quantity is written as its number of billionths behind a '#'. Every string below "capacity" is
 * taken for a quantity if it reads as one, which costs nothing where it is none.
 *
 * One device is about a kilobyte of text, hashed before the next is written: the digest of a
 * slice is the hash of its devices' hashes in order, and of the rest.
 */
#include "statd/slice_form.h"

#include <inttypes.h>
#include <string.h>

#include "common/hash.h"
#include "statd/quantity.h"

/* Deeper than any field of a slice. What is below is not told apart, but there is something. */
#define MAX_DEPTH 16

static bool is_empty(const json_t *node, unsigned depth)
{
	const json_t *value;
	const char *key;
	size_t i;

	if (!node || json_is_null(node))
		return true;
	if (depth >= MAX_DEPTH || (!json_is_object(node) && !json_is_array(node)))
		return false;
	json_array_foreach (node, i, value)
		if (!is_empty(value, depth + 1))
			return false;
	json_object_foreach ((json_t *)(uintptr_t)node, key, value)
		if (!is_empty(value, depth + 1))
			return false;
	return true;
}

static void put(struct buf *out, const json_t *node, bool quantities, unsigned depth);

static int compare_keys(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void put_text(struct buf *out, const char *text, size_t len)
{
	buf_printf(out, "%zu:", len);
	buf_put(out, text, len);
}

static void put_object(struct buf *out, const json_t *object, bool quantities, unsigned depth)
{
	const char **keys = xcalloc(json_object_size(object) + 1, sizeof(*keys)), *key;
	const json_t *value;
	size_t n = 0;

	json_object_foreach ((json_t *)(uintptr_t)object, key, value)
		if (!is_empty(value, depth + 1))
			keys[n++] = key;
	qsort(keys, n, sizeof(*keys), compare_keys);
	buf_puts(out, "{");
	for (size_t i = 0; i < n; i++) {
		put_text(out, keys[i], strlen(keys[i]));
		put(out, json_object_get(object, keys[i]),
			quantities || strcmp(keys[i], "capacity") == 0, depth + 1);
	}
	buf_puts(out, "}");
	free(keys);
}

static void put_string(struct buf *out, const json_t *node, bool quantities)
{
	struct quantity quantity;
	struct err err;

	if (quantities && quantity_parse(json_string_value(node), &quantity, &err) == 0)
		buf_printf(out, "#%" PRIu64 ".%09" PRIu32, quantity.whole, quantity.nanos);
	else
		put_text(out, json_string_value(node), json_string_length(node));
}

static void put(struct buf *out, const json_t *node, bool quantities, unsigned depth)
{
	const json_t *value;
	size_t i;

	if (depth >= MAX_DEPTH) {
		buf_puts(out, "?");
		return;
	}
	if (json_is_object(node))
		put_object(out, node, quantities, depth);
	else if (json_is_string(node))
		put_string(out, node, quantities);
	else if (json_is_integer(node))
		buf_printf(out, "i%" JSON_INTEGER_FORMAT ";", json_integer_value(node));
	else if (json_is_real(node))
		buf_printf(out, "r%.17g;", json_real_value(node));
	else if (!json_is_array(node))
		buf_puts(out, json_is_true(node) ? "t" : json_is_false(node) ? "f" : "n");
	else {
		buf_puts(out, "[");
		json_array_foreach (node, i, value)
			put(out, value, quantities, depth + 1);
		buf_puts(out, "]");
	}
}

static uint64_t hash_text(struct buf *text)
{
	uint64_t hash = hash_bytes_64(text->data, text->len);

	text->len = 0;
	return hash ? hash : 1;
}

static uint64_t hash_two(uint64_t a, uint64_t b)
{
	const uint64_t both[] = {a, b};

	return hash_bytes_64(both, sizeof(both));
}

void slice_digest_begin(struct slice_digest *d, const json_t *object)
{
	const json_t *owners =
		json_object_get(json_object_get(object, "metadata"), "ownerReferences");
	json_t *spec = json_copy(json_object_get(object, "spec"));

	*d = (struct slice_digest){.text = BUF_INIT};
	(void)json_object_del(spec, "pool");
	(void)json_object_del(spec, "devices");
	if (!is_empty(owners, 0))
		put(&d->text, owners, false, 0);
	put(&d->text, spec, false, 0);
	json_decref(spec);
	d->head = hash_text(&d->text);
}

void slice_digest_device(struct slice_digest *d, const json_t *device)
{
	put(&d->text, device, false, 0);
	d->devices = hash_two(d->devices, hash_text(&d->text));
}

uint64_t slice_digest_end(struct slice_digest *d)
{
	uint64_t digest = hash_two(d->head, d->devices);

	buf_fini(&d->text);
	return digest ? digest : 1;
}

uint64_t slice_digest_object(const json_t *object)
{
	const json_t *devices = json_object_get(json_object_get(object, "spec"), "devices"),
		     *device;
	struct slice_digest d;
	size_t i;

	slice_digest_begin(&d, object);
	json_array_foreach (devices, i, device)
		slice_digest_device(&d, device);
	return slice_digest_end(&d);
}

uint64_t slice_name_hash(const char *name)
{
	return hash_bytes_64(name, strlen(name));
}

uint64_t slice_device_hash(const json_t *device)
{
	struct buf text = BUF_INIT;
	uint64_t hash;

	put(&text, device, false, 0);
	hash = hash_text(&text);
	buf_fini(&text);
	return hash;
}

void slice_gated_add(struct slice_gated *gated, const json_t *device)
{
	json_t *capacity = json_object_get(device, "capacity"), *entry;
	const char *name;

	gated->allow_multiple +=
		json_is_true(json_object_get(device, "allowMultipleAllocations"));
	json_object_foreach (capacity, name, entry)
		gated->request_policies += json_object_get(entry, "requestPolicy") != NULL;
}
