/* SPDX-License-Identifier: Apache-2.0 */
#include "common/device_list.h"

#include <stdio.h>
#include <string.h>

#include "common/hash.h"
#include "common/mp.h"

/* Of all devices: a message has 16 MiB (common/rpc.c), and notes take some of it. */
#define MAX_BYTES (15u << 20)

/* --- one device --------------------------------------------------------------------------- */

/* The same gates and the same table as at the other end. */
static int check_packed(const struct buf *bytes, struct err *err)
{
	struct mp_scan scan = {0};
	struct device again = {0};
	struct mp_cursor c = mp_cursor(bytes->data);
	const int rc = mp_scan(&scan, bytes->data, bytes->len, MAX_BYTES, err);

	if (rc == 0)
		return err_set(err, ERR_INTERNAL, "its record has no end");
	if (rc < 0 || mp_check(bytes->data, bytes->len, err) < 0 ||
		rec_unpack(&rec_device, &c, &again, err) < 0)
		return -1;
	rec_fini(&rec_device, &again);
	return 0;
}

int device_check(const struct device *device, struct err *err)
{
	cleanup_buf struct buf bytes = BUF_INIT;

	rec_pack(&rec_device, device, &bytes);
	return check_packed(&bytes, err);
}

/* --- all of them -------------------------------------------------------------------------- */

struct fitting {
	struct device_list *list;
	struct strlist *notes;
	struct buf bytes; /* of the device at hand */
	size_t n, total_bytes;
	size_t n_beyond; /* the limits */
	uint64_t hash;
};

static void leave_out(struct fitting *f, struct device *device, const struct err *err)
{
	cleanup_free char *text = xasprintf("device %s is left out: %s",
		device->name ? device->name : "without a name", err->message);

	str_sanitize(text);
	strlist_add(f->notes, text);
	rec_fini(&rec_device, device);
}

static void add_to_hash(struct fitting *f)
{
	const uint64_t both[] = {f->hash, hash_bytes_64(f->bytes.data, f->bytes.len)};

	f->hash = hash_bytes_64(both, sizeof(both));
}

static void fit_one(struct fitting *f, struct device *device)
{
	struct err err = ERR_INIT;

	f->bytes.len = 0;
	rec_pack(&rec_device, device, &f->bytes);
	if (check_packed(&f->bytes, &err) < 0) {
		leave_out(f, device, &err);
		return;
	}
	if (f->n == DEVICE_LIST_MAX_DEVICES || f->total_bytes + f->bytes.len > MAX_BYTES) {
		f->n_beyond++;
		rec_fini(&rec_device, device);
		return;
	}
	f->total_bytes += f->bytes.len;
	add_to_hash(f);
	f->list->devices.v[f->n++] = *device;
}

static int compare_names(const void *a, const void *b)
{
	const struct device *da = a, *db = b;

	return strcmp(da->name ? da->name : "", db->name ? db->name : "");
}

/* Prepared ones first, each part by name. */
static void put_in_order(struct device_list *list,
	bool (*is_prepared)(const void *ctx, const char *device), const void *ctx)
{
	struct device *sorted = xcalloc(list->devices.n, sizeof(*sorted));
	size_t n = 0;

	qsort(list->devices.v, list->devices.n, sizeof(*list->devices.v), compare_names);
	for (int wanted = 1; wanted >= 0; wanted--)
		for (size_t i = 0; i < list->devices.n; i++) {
			const char *name = list->devices.v[i].name;

			if ((name && is_prepared(ctx, name)) == (wanted == 1))
				sorted[n++] = list->devices.v[i];
		}
	free(list->devices.v);
	list->devices.v = sorted;
}

uint64_t device_list_fit(struct device_list *list,
	bool (*is_prepared)(const void *ctx, const char *device), const void *ctx,
	struct strlist *ret_notes)
{
	struct fitting f = {.list = list, .notes = ret_notes};
	const size_t found = list->devices.n;

	if (found > DEVICE_LIST_MAX_DEVICES)
		put_in_order(list, is_prepared, ctx);
	for (size_t i = 0; i < found; i++) {
		struct device device = list->devices.v[i];

		list->devices.v[i] = (struct device){0};
		fit_one(&f, &device);
	}
	list->devices.n = f.n;
	if (f.n_beyond) {
		cleanup_free char *text = xasprintf(
			"there are %zu devices, and %zu of them are not offered: a manager "
			"offers at most %d, first those that are prepared, then by name",
			found, f.n_beyond, DEVICE_LIST_MAX_DEVICES);

		strlist_add(ret_notes, text);
	}
	buf_fini(&f.bytes);
	return f.hash;
}

/* --- notes -------------------------------------------------------------------------------- */

/* All are in the log. */
static void bound_notes(struct strlist *notes)
{
	cleanup_free char *more = NULL;

	if (notes->n <= DEVICE_LIST_MAX_NOTES)
		return;
	more = xasprintf("and %zu more; the log has all", notes->n - DEVICE_LIST_MAX_NOTES + 1);
	for (size_t i = DEVICE_LIST_MAX_NOTES - 1; i < notes->n; i++)
		free(notes->v[i]);
	notes->n = DEVICE_LIST_MAX_NOTES - 1;
	strlist_add(notes, more);
}

void device_list_fit_notes(struct device_list *list)
{
	struct strlist fit = {0};

	for (size_t i = 0; i < list->notes.n; i++) {
		char text[DEVICE_LIST_NOTE_SIZE];

		(void)snprintf(text, sizeof(text), "%s", list->notes.v[i]);
		str_sanitize(text);
		if (*text)
			strlist_add(&fit, text);
	}
	strlist_fini(&list->notes);
	list->notes = fit;
	bound_notes(&list->notes);
}
