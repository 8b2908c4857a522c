/* SPDX-License-Identifier: Apache-2.0 */
/* An inventory before it is sent, and what is prepared of it. */
#include "common/device_list.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/mp.h"
#include "common/prepared.h"
#include "tests/unit/records.h"
#include "tests/unit/unit.h"

/* --- a list ------------------------------------------------------------------------------- */

static struct device_list list;
static struct strlist left_out;

static void tear_down(void)
{
	rec_fini(&rec_device_list, &list);
	strlist_fini(&left_out);
}

static struct device *add(const char *name)
{
	struct device *device;

	list.devices.v = xrealloc(list.devices.v, list.devices.n + 1, sizeof(*list.devices.v));
	device = &list.devices.v[list.devices.n++];
	*device = (struct device){.name = xstrdup(name), .state = packed_take(json_object())};
	return device;
}

/* Devices that are called "p..." are prepared. */
static bool is_prepared(const void *ctx UNUSED, const char *device)
{
	return device[0] == 'p';
}

static uint64_t fit(void)
{
	strlist_fini(&left_out);
	return device_list_fit(&list, is_prepared, NULL, &left_out);
}

/* What the other end makes of it. */
static void assert_sendable(void)
{
	struct device_list back = {0};
	struct buf bytes = {0};
	struct mp_scan scan = {0};
	struct mp_cursor c;
	struct err err;

	device_list_fit_notes(&list);
	rec_pack(&rec_device_list, &list, &bytes);
	ck_assert_int_eq(mp_scan(&scan, bytes.data, bytes.len, 16 << 20, &err), 1);
	ck_assert_msg(mp_check(bytes.data, bytes.len, &err) == 0, "%s", err.message);
	c = mp_cursor(bytes.data);
	ck_assert_msg(rec_unpack(&rec_device_list, &c, &back, &err) == 0, "%s", err.message);
	ck_assert(rec_equal(&rec_device_list, &list, &back));
	rec_fini(&rec_device_list, &back);
	buf_fini(&bytes);
}

/* --- devices that statd does not take ----------------------------------------------------- */

static void set_kernel_name(struct device *device, const char *name)
{
	device->kernel_if_name = xstrdup(name);
}

static void bad_utf8(struct device *device)
{
	set_kernel_name(device, "eth\xe9");
}

static void bad_name(struct device *device)
{
	set_kernel_name(device, "a-name-of-16-byt");
}

static void slash(struct device *device)
{
	set_kernel_name(device, "a/b");
}

static void no_state(struct device *device)
{
	free(device->state);
	device->state = NULL;
}

static void no_label(struct device *device)
{
	free(device->name);
	device->name = xstrdup("\xff\x01 Upper");
}

static void no_name(struct device *device)
{
	free(device->name);
	device->name = NULL;
}

static void huge_attributes(struct device *device)
{
	char *text = xcalloc(1, REC_MAX_PACKED + 1);

	memset(text, 'x', REC_MAX_PACKED);
	device->attributes = packed_take(json_pack("{s{ss}}", "a", "string", text));
	free(text);
}

static void deep_attributes(struct device *device)
{
	json_t *tree = json_object();

	for (int i = 0; i < 12; i++)
		tree = json_pack("{so}", "a", tree);
	device->attributes = packed_take(tree);
}

static const struct {
	void (*spoil)(struct device *device);
	const char *why;
} bad[] = {
	{bad_utf8, "UTF-8"},
	{bad_name, "kernelIfName"},
	{slash, "kernelIfName"},
	{no_state, "state: is required"},
	{no_label, "device ?? Upper is left out: name: a text is not UTF-8"},
	{no_name, "name: is required"},
	{huge_attributes, "attributes"},
	{deep_attributes, ""},
};

START_TEST(one_that_is_wrong_keeps_no_other_away)
{
	struct device *device;
	struct err err = ERR_INIT;

	set_kernel_name(add("a"), "eth0");
	device = add("b");
	bad[_i].spoil(device);
	ck_assert_int_eq(device_check(device, &err), -1);
	set_kernel_name(add("c"), "eth\xc3\xa9");
	ck_assert_int_eq(device_check(&list.devices.v[2], &err), 0);
	(void)fit();
	ck_assert_uint_eq(list.devices.n, 2);
	ck_assert_str_eq(list.devices.v[0].name, "a");
	ck_assert_str_eq(list.devices.v[1].name, "c");
	ck_assert_uint_eq(left_out.n, 1);
	ck_assert_msg(strstr(left_out.v[0], bad[_i].why), "%s", left_out.v[0]);
	strlist_add(&list.notes, left_out.v[0]);
	assert_sendable();
}
END_TEST

START_TEST(hash_says_whether_it_is_the_same)
{
	uint64_t one, same, other;

	set_kernel_name(add("a"), "eth0");
	(void)add("b");
	one = fit();
	same = fit();
	ck_assert(one == same);
	set_kernel_name(&list.devices.v[1], "eth1");
	other = fit();
	ck_assert(one != other);
	ck_assert_uint_eq(left_out.n, 0);
}
END_TEST

START_TEST(nothing_is_a_list_too)
{
	(void)fit();
	ck_assert_uint_eq(list.devices.n, 0);
	ck_assert_uint_eq(left_out.n, 0);
	assert_sendable();
}
END_TEST

/* --- limits ------------------------------------------------------------------------------- */

START_TEST(first_ones_are_offered)
{
	char name[16];

	/* in no order at all */
	for (unsigned i = 0; i < DEVICE_LIST_MAX_DEVICES + 10; i++) {
		(void)snprintf(name, sizeof(name), "d%05u",
			i * 7919 % (DEVICE_LIST_MAX_DEVICES + 10));
		(void)add(name);
	}
	(void)add("p-prepared");
	(void)add("z-last");
	(void)fit();
	ck_assert_uint_eq(list.devices.n, DEVICE_LIST_MAX_DEVICES);
	ck_assert_str_eq(list.devices.v[0].name, "p-prepared");
	ck_assert_str_eq(list.devices.v[1].name, "d00000");
	ck_assert_str_eq(list.devices.v[DEVICE_LIST_MAX_DEVICES - 1].name, "d04094");
	ck_assert_uint_eq(left_out.n, 1);
	ck_assert_str_eq(left_out.v[0],
		"there are 4108 devices, and 12 of them are not offered: a manager offers at "
		"most 4096, first those that are prepared, then by name");
	strlist_add(&list.notes, left_out.v[0]);
	assert_sendable();
}
END_TEST

START_TEST(order_is_kept_below_the_limit)
{
	(void)add("c");
	(void)add("a");
	(void)add("p");
	(void)fit();
	ck_assert_str_eq(list.devices.v[0].name, "c");
	ck_assert_str_eq(list.devices.v[2].name, "p");
}
END_TEST

START_TEST(message_has_a_bound)
{
	char *text = xcalloc(1, 60001), name[16];

	memset(text, 'x', 60000);
	for (unsigned i = 0; i < 400; i++) {
		(void)snprintf(name, sizeof(name), "d%u", i);
		add(name)->attributes =
			packed_take(json_pack("{s{ss}}", "a", "string", text));
	}
	free(text);
	(void)fit();
	ck_assert_uint_gt(list.devices.n, 200);
	ck_assert_uint_lt(list.devices.n, 400);
	ck_assert_uint_eq(left_out.n, 1);
	strlist_add(&list.notes, left_out.v[0]);
	assert_sendable();
}
END_TEST

START_TEST(notes_are_made_fit)
{
	char *longest = xcalloc(1, 5001);

	memset(longest, 'y', 5000);
	strlist_add(&list.notes, "a\x01 b\xe9");
	strlist_add(&list.notes, "");
	strlist_add(&list.notes, longest);
	device_list_fit_notes(&list);
	ck_assert_uint_eq(list.notes.n, 2);
	ck_assert_str_eq(list.notes.v[0], "a? b?");
	ck_assert_uint_eq(strlen(list.notes.v[1]), DEVICE_LIST_NOTE_SIZE - 1);
	for (int i = 0; i < 99; i++)
		strlist_add(&list.notes, "more");
	assert_sendable();
	ck_assert_uint_eq(list.notes.n, DEVICE_LIST_MAX_NOTES);
	ck_assert_str_eq(
		list.notes.v[DEVICE_LIST_MAX_NOTES - 1], "and 38 more; the log has all");
	free(longest);
}
END_TEST

/* --- what is prepared --------------------------------------------------------------------- */

static void put(struct prepared *p, const char *name, const char *claim, const char *share,
	int state)
{
	struct device device = {.name = (char *)(uintptr_t)name,
		.state = packed_take(json_pack("{si}", "n", state))};
	const struct device_alloc a = {.device = &device,
		.claim_uid = (char *)(uintptr_t)claim,
		.share_id = (char *)(uintptr_t)share};

	prepared_put(p, &a, &device);
	free(device.state);
}

static void drop(struct prepared *p, const char *name, const char *claim, const char *share)
{
	struct device device = {.name = (char *)(uintptr_t)name};

	prepared_drop(p, &(const struct device_alloc){.device = &device,
				 .claim_uid = (char *)(uintptr_t)claim,
				 .share_id = (char *)(uintptr_t)share});
}

static int state_of(const struct prepared *p, const char *name)
{
	const struct packed *state = prepared_state(p, name);
	json_t *tree = packed_open(state);
	const int n = state ? (int)json_integer_value(json_object_get(tree, "n")) : -1;

	json_decref(tree);
	return n;
}

START_TEST(prepared_ones_are_remembered)
{
	struct prepared *p = prepared_new();

	ck_assert_int_eq(state_of(p, "a"), -1);
	put(p, "a", "claim", NULL, 1);
	put(p, "b", "claim", NULL, 2);
	ck_assert_int_eq(state_of(p, "a"), 1);
	put(p, "a", "claim", NULL, 3); /* set up once more */
	ck_assert_int_eq(state_of(p, "a"), 3);
	drop(p, "a", "another", NULL);
	ck_assert_int_eq(state_of(p, "a"), 3);
	drop(p, "a", "claim", NULL);
	ck_assert_int_eq(state_of(p, "a"), -1);
	drop(p, "a", "claim", NULL);
	ck_assert_int_eq(state_of(p, "b"), 2);
	prepared_clear(p);
	ck_assert_int_eq(state_of(p, "b"), -1);
	put(p, "b", "claim", NULL, 4);
	prepared_free(p);
	prepared_free(NULL);
}
END_TEST

START_TEST(shared_one_is_prepared_as_long_as_one_share_is)
{
	struct prepared *p = prepared_new();

	put(p, "a", "claim", "s1", 1);
	put(p, "a", "claim", "s2", 2);
	drop(p, "a", "claim", NULL);
	drop(p, "a", "claim", "s1");
	ck_assert_int_eq(state_of(p, "a"), 2);
	drop(p, "a", "claim", "s2");
	ck_assert_int_eq(state_of(p, "a"), -1);
	prepared_free(p);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("device_list");
	TCase *c = tcase_create("fit"), *prepared = tcase_create("prepared");

	tcase_add_checked_fixture(c, NULL, tear_down);
	tcase_add_loop_test(c, one_that_is_wrong_keeps_no_other_away, 0, ARRAY_SIZE(bad));
	tcase_add_test(c, hash_says_whether_it_is_the_same);
	tcase_add_test(c, nothing_is_a_list_too);
	tcase_add_test(c, first_ones_are_offered);
	tcase_add_test(c, order_is_kept_below_the_limit);
	tcase_add_test(c, message_has_a_bound);
	tcase_add_test(c, notes_are_made_fit);
	suite_add_tcase(s, c);
	tcase_add_test(prepared, prepared_ones_are_remembered);
	tcase_add_test(prepared, shared_one_is_prepared_as_long_as_one_share_is);
	suite_add_tcase(s, prepared);
	return s;
}

int main(void)
{
	return unit_run(suite());
}
