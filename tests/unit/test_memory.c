/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What statd's tables cost. The figures are of the C library's own account, so that they are the
 * same on every run; the limits are a quarter above what they are, for libraries that round
 * otherwise.
 */
#include <check.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#include "common/mp.h"
#include "statd/inventory.h"
#include "tests/unit/records.h"
#include "tests/unit/unit.h"

#ifdef NETCLAIM_SANITIZED
#define SANITIZED true
#else
#define SANITIZED false
#endif

#define N_DEVICES 4096
#define N_ALLOCS  1000

#define MAX_DUMMY_ROW   400  /* bytes: a name, its state and two attributes */
#define MAX_VF_ROW      700  /* a state of 200 bytes and six attributes of 250 */
#define MAX_ALLOC_ROW   1200 /* such a device, two UIDs and a sandbox's id */
#define MAX_VF_UNPACKED 640  /* a device of a message that was read */
#define MAX_SAME_ROW    16   /* what telling the same again leaves behind */

static struct tables tables;

#define STATUS_SKIP 77 /* tests/run */

static void setup(void)
{
	tables_init(&tables);
}

static void teardown(void)
{
	tables_fini(&tables);
}

/* Bytes that are allocated. */
static size_t allocated(void)
{
	struct mallinfo2 info;

	(void)malloc_trim(0);
	info = mallinfo2();
	return info.uordblks + info.hblkhd;
}

static json_t *dummy(unsigned i)
{
	char name[16];

	(void)snprintf(name, sizeof(name), "dummy%u", i);
	return json_pack("{ss ss ss s{sssssisi} s{s{ss}s{ss}}}", "name", name, "ifName", name,
		"kernelIfName", name, "state", "Name", name, "HWAddr", "", "MTU", 0, "Flags", 0,
		"attributes", "ifName", "string", name, "kernelIfName", "string", name);
}

static json_t *virtual_function(unsigned i)
{
	char name[32], address[32], link[16];

	(void)snprintf(
		name, sizeof(name), "0000-%02x-%02x-%u", i >> 8 & 255, i >> 3 & 31, i & 7);
	(void)snprintf(address, sizeof(address), "0000:%02x:%02x.%u", i >> 8 & 255, i >> 3 & 31,
		i & 7);
	(void)snprintf(link, sizeof(link), "ens1f0v%u", i);
	return json_pack(
		"{ss ss ss s{ss ss ss ss ss ss ss si} s{s{ss}s{ss}s{ss}s{ss}s{ss}s{ss}}}",
		"name", name, "ifName", link, "kernelIfName", link, "state", "Addr", address,
		"Driver", "mlx5_core", "Vendor", "0x15b3", "DeviceID", "0x1018",
		"KernelIfaceName", link, "PfName", "ens1f0", "PfAddr", "0000:03:00.0",
		"VfIndex", i, "attributes", "kernelIfName", "string", link, "pfName", "string",
		"ens1f0", "resource.kubernetes.io/pciBusID", "string", address, "vendor",
		"string", "0x15b3", "deviceID", "string", "0x1018", "driver", "string",
		"mlx5_core");
}

/* The inventory as its manager's message has it. */
static void make_message(json_t *make(unsigned i), struct buf *ret)
{
	json_t *devices = json_array(), *list;

	for (unsigned i = 0; i < N_DEVICES; i++)
		(void)json_array_append_new(devices, make(i));
	list = json_pack("{so}", "devices", devices);
	mp_encode(list, ret);
	json_decref(list);
}

static void read_message(const struct buf *message, struct device_list *ret)
{
	struct mp_cursor cursor = mp_cursor(message->data);
	struct err err = ERR_INIT;

	ck_assert_int_eq(mp_check(message->data, message->len, &err), 0);
	ck_assert_int_eq(rec_unpack(&rec_device_list, &cursor, ret, &err), 0);
	ck_assert_uint_eq(ret->devices.n, N_DEVICES);
}

static void report(enum manager_type manager, const struct buf *message)
{
	struct device_list list = {0};

	read_message(message, &list);
	inventory_report(&tables, manager, &list);
	rec_fini(&rec_device_list, &list);
}

/* As placing the devices does it: each row once more, in one transaction. */
static void put_into_pool(void)
{
	db_begin(tables.db);
	for (const struct table_row *at = table_first(tables.devices); at;
		at = table_next(at)) {
		struct device_row row;
		struct err err;

		rec_copy(&rec_device_row, &row, device_row_of(at));
		row.pool = xstrdup("fast-net");
		ck_assert_int_eq(table_update(tables.devices, &row, &err), 0);
	}
	db_commit(tables.db);
}

static const struct {
	const char *what;
	enum manager_type manager;
	json_t *(*make)(unsigned i);
	size_t max;
} kinds[] = {
	{"dummy link", MANAGER_DUMMY, dummy, MAX_DUMMY_ROW},
	{"virtual function", MANAGER_SRIOV, virtual_function, MAX_VF_ROW},
};

START_TEST(device_row)
{
	cleanup_buf struct buf message = BUF_INIT;
	size_t before, bytes;

	make_message(kinds[_i].make, &message);
	before = allocated();
	report(kinds[_i].manager, &message);
	put_into_pool();
	bytes = (allocated() - before) / N_DEVICES;
	ck_assert_uint_eq(table_count(tables.devices), N_DEVICES);
	ck_assert_msg(bytes <= kinds[_i].max, "the row of a %s takes %zu bytes", kinds[_i].what,
		bytes);
	before = allocated();
	report(kinds[_i].manager, &message);
	bytes = (allocated() - before) / N_DEVICES;
	ck_assert_msg(bytes <= MAX_SAME_ROW, "the same again takes %zu bytes more", bytes);
}
END_TEST

START_TEST(unpacked_device)
{
	cleanup_buf struct buf message = BUF_INIT;
	struct device_list list = {0};
	size_t before, bytes;

	make_message(virtual_function, &message);
	before = allocated();
	read_message(&message, &list);
	bytes = (allocated() - before) / N_DEVICES;
	ck_assert_msg(bytes <= MAX_VF_UNPACKED, "a device of a message takes %zu bytes", bytes);
	rec_fini(&rec_device_list, &list);
	ck_assert_uint_le(allocated() - before, 65536);
}
END_TEST

static void insert_allocation(unsigned i)
{
	cleanup_free char *uid = xasprintf("%08x-1111-2222-3333-444455556666", i);
	cleanup_free char *sandbox = xasprintf("%064x", i), *claim = xasprintf("claim-%u", i);
	struct alloc_row row = {.manager = xstrdup("sr-iov"),
		.logical_pool = xstrdup("fast-net"),
		.pod_uid = xasprintf("%08x-9999-8888-7777-666655554444", i),
		.claim_uid = xstrdup(uid),
		.config = xcalloc(1, sizeof(struct device_config)),
		.claim_namespace = xstrdup("default"),
		.claim_name = xstrdup(claim),
		.request = xstrdup("net"),
		.dra_pool = xstrdup("node-1"),
		.sandbox_id = xstrdup(sandbox),
		.pod_if_name = xstrdup("net1"),
		.prepared = xcalloc(1, sizeof(struct device))};
	json_t *device = virtual_function(i);
	struct err err = ERR_INIT;

	ck_assert_int_eq(
		rec_decode(&rec_device, device, REC_STRICT, "", NULL, row.prepared, &err), 0);
	json_decref(device);
	row.device_name = xstrdup(row.prepared->name);
	row.prepared_device = packed_copy(row.prepared->state);
	ck_assert_int_eq(table_insert(tables.allocations, &row, &err), 0);
}

START_TEST(allocation_row)
{
	size_t before, bytes;

	before = allocated();
	for (unsigned i = 0; i < N_ALLOCS; i++)
		insert_allocation(i);
	bytes = (allocated() - before) / N_ALLOCS;
	ck_assert_msg(bytes <= MAX_ALLOC_ROW, "an allocation's row takes %zu bytes", bytes);
}
END_TEST

int main(void)
{
	Suite *suite;
	TCase *tc;

	if (SANITIZED) {
		puts("a sanitized build allocates in its own way");
		return STATUS_SKIP;
	}
	suite = suite_create("memory");
	tc = tcase_create("memory");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, device_row, 0, ARRAY_SIZE(kinds));
	tcase_add_test(tc, unpacked_device);
	tcase_add_test(tc, allocation_row);
	suite_add_tcase(suite, tc);
	return unit_run(suite);
}
