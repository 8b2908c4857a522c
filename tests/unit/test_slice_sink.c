/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Publication against an API server that is played (slice_server.h): how many calls each change
 * costs, what is done about faults and about others who write, and that any life of a node ends
 * with slices that say what its table says.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "statd/inventory.h"
#include "statd/publish.h"
#include "statd/slice_limits.h"
#include "statd/slice_plan.h"
#include "statd/slice_sink.h"
#include "tests/unit/records.h"
#include "tests/unit/slice_server.h"
#include "tests/unit/unit.h"

/* --- the node ----------------------------------------------------------------------------- */

static struct tables tables;
static struct pool_list pools;
static struct flaws flaws;
static struct slice_sink *sink;

static void annotate(void)
{
	publish_annotate(&tables, &pools, &flaws);
}

static void update(void)
{
	annotate();
	slice_sink_update(sink);
}

static void on_refused(void *ctx, const char *device, const char *why)
{
	(void)ctx;
	flaws_refuse(&flaws, device_row_get(&tables, device), why);
	annotate();
}

static void start(void)
{
	sink = slice_sink_kube_new(NULL, NULL, &tables, DRIVER, NODE, server.node_uid);
	sink->refused = on_refused;
}

static void stop(void)
{
	slice_sink_free(sink);
	sink = NULL;
}

static void setup(void)
{
	log_set_level(LOG_ERROR);
	server_reset();
	clock_ms = 1000000;
	chance_state = 1;
	tables_init(&tables);
	pools.pools.v = xcalloc(1, sizeof(*pools.pools.v));
	rec_of(&rec_pool, "{'name': 'p', 'filter': {}}", &pools.pools.v[0]);
	pools.pools.n = 1;
	start();
}

static void teardown(void)
{
	stop();
	ck_assert(!watch && !in_flight);
	server_reset();
	flaws_fini(&flaws);
	tables_fini(&tables);
	rec_fini(&rec_pool, &pools.pools.v[0]);
	free(pools.pools.v);
	pools = (struct pool_list){0};
}

static int device_state; /* which is in the table, and not in slices */

static void put_device(struct device *device, const char *name, int speed, bool shared)
{
	json_t *attributes = json_pack("{s:{s:i}}", "speed", "int", speed);

	*device = (struct device){.name = xstrdup(name),
		.state = packed_take(json_pack("{s:i}", "State", device_state))};
	if (speed < 0)
		(void)json_object_set_new(attributes, "refused", json_pack("{s:b}", "bool", 1));
	device->attributes = packed_take(attributes);
	if (!shared)
		return;
	device->allow_multiple = (struct rec_bool){true, true};
	device->capacity = packed_take(json_pack("{s:{s:s, s:{s:s}}}", "memory", "value",
		"1024Mi", "requestPolicy", "default", "1Mi"));
}

static void report(struct device *devices, size_t n)
{
	struct device_list list = {.devices = {.v = devices, .n = n}};

	inventory_report(&tables, MANAGER_DUMMY, &list);
	for (size_t i = 0; i < n; i++)
		rec_fini(&rec_device, &devices[i]);
	free(devices);
}

/* d0000 to d<n-1>, each with this speed */
static void offer(size_t n, int speed)
{
	struct device *devices = xcalloc(n, sizeof(*devices));

	for (size_t i = 0; i < n; i++) {
		cleanup_free char *name = xasprintf("d%04zu", i);

		put_device(&devices[i], name, speed, false);
	}
	report(devices, n);
	update();
}

/* names separated by blanks; "x!" has another speed, "x*" can be shared, "x?" is refused */
static void offer_these(const char *names)
{
	cleanup_free char *copy = xstrdup(names);
	struct device *devices = xcalloc(strlen(names) + 1, sizeof(*devices));
	char *save = NULL;
	size_t n = 0;

	for (char *name = strtok_r(copy, " ", &save); name; name = strtok_r(NULL, " ", &save)) {
		char mark = name[strlen(name) - 1];

		if (strchr("!*?", mark))
			name[strlen(name) - 1] = '\0';
		put_device(&devices[n++], name,
			mark == '!'   ? 2
			: mark == '?' ? -1
				      : 1,
			mark == '*');
	}
	report(devices, n);
	update();
}

/* --- what should be ----------------------------------------------------------------------- */

static int compare_slices(const void *a, const void *b)
{
	return strcmp(name_of(*(json_t *const *)a), name_of(*(json_t *const *)b));
}

static void assert_state(enum slice_sink_state state)
{
	struct slice_sink_status status;

	slice_sink_status(sink, &status);
	ck_assert_int_eq(status.state, state);
}

/* The pool on the server is whole and says what the table says. */
static void assert_published(void)
{
	struct strlist offered = {0}, found = {0};
	const struct table_row *row;
	int64_t generation = 0;

	for (row = publish_first(&tables); row; row = publish_next(row))
		strlist_add(&offered, row->key);
	ck_assert_uint_eq(server.n_slices, slice_count(offered.n));
	qsort(server.slices, server.n_slices, sizeof(*server.slices), compare_slices);
	for (size_t i = 0; i < server.n_slices; i++) {
		const json_t *pool = pool_of(server.slices[i]), *device;
		const char *last = "";
		size_t j;

		ck_assert_int_eq(
			slice_name_index(name_of(server.slices[i]), server.n_slices), (long)i);
		ck_assert_str_eq(json_string_value(json_object_get(pool, "name")), NODE);
		ck_assert_int_eq(
			json_integer_value(json_object_get(pool, "resourceSliceCount")),
			(json_int_t)server.n_slices);
		if (i == 0)
			generation = json_integer_value(json_object_get(pool, "generation"));
		ck_assert_int_eq(
			json_integer_value(json_object_get(pool, "generation")), generation);
		ck_assert_uint_le(
			json_array_size(devices_of(server.slices[i])), SLICE_MAX_DEVICES);
		json_array_foreach (devices_of(server.slices[i]), j, device) {
			const char *name = json_string_value(json_object_get(device, "name"));
			json_t *should;

			ck_assert_str_lt(last, name);
			last = name;
			ck_assert(!strlist_has(&found, name));
			strlist_add(&found, name);
			row = table_row(tables.devices, name);
			ck_assert_ptr_nonnull(row);
			should = publish_device(device_row_of(row));
			ck_assert(json_equal(json_object_get(should, "attributes"),
				json_object_get(device, "attributes")));
			json_decref(should);
		}
	}
	ck_assert_uint_eq(found.n, offered.n);
	for (size_t i = 0; i < offered.n; i++)
		ck_assert(strlist_has(&found, offered.v[i]));
	strlist_fini(&offered);
	strlist_fini(&found);
	assert_state(SLICE_SINK_PUBLISHED);
}

static int64_t generation_of(size_t at)
{
	return json_integer_value(json_object_get(pool_of(server.slices[at]), "generation"));
}

/* Since the last time. */
static void assert_calls(unsigned lists, unsigned creates, unsigned replaces, unsigned deletes)
{
	ck_assert_uint_eq(calls.lists, lists);
	ck_assert_uint_eq(calls.creates, creates);
	ck_assert_uint_eq(calls.replaces, replaces);
	ck_assert_uint_eq(calls.deletes, deletes);
	memset(&calls, 0, sizeof(calls));
}

/* However it goes, a minute has no more calls than its seconds' worth, and a second no more than
 * two seconds' worth. */
static void assert_rate(void)
{
	for (unsigned i = 0; i < call_times; i++) {
		unsigned n = 0;

		for (unsigned j = i; j < call_times && call_ms[j] < call_ms[i] + 1000; j++)
			n++;
		ck_assert_uint_le(n, 41 + 3); /* lists are not counted among the calls */
	}
}

/* --- a pool's life ------------------------------------------------------------------------ */

START_TEST(nothing_is_asked_before_the_first_update)
{
	char *text_of;

	ck_assert(run(100000));
	assert_calls(0, 0, 0, 0);
	text_of = slice_sink_describe(sink);
	ck_assert_str_eq(text_of, "nothing is published yet");
	free(text_of);
}
END_TEST

static const struct {
	size_t devices, slices;
} sizes[] = {{0, 1}, {1, 1}, {64, 1}, {65, 2}, {130, 3}, {4096, 64}};

START_TEST(first_publication)
{
	cleanup_free char *told = NULL, *should = NULL;

	offer(sizes[_i].devices, 1);
	assert_state(SLICE_SINK_PUBLISHING);
	ck_assert(run(100000));
	assert_published();
	assert_calls(1, (unsigned)sizes[_i].slices, 0, 0);
	ck_assert_int_eq(generation_of(0), 1);
	told = slice_sink_describe(sink);
	should = xasprintf("%zu slice%s, generation 1, published", sizes[_i].slices,
		sizes[_i].slices == 1 ? "" : "s");
	ck_assert_str_eq(told, should);
	assert_rate();
	/* nothing changed, nothing is written, and nothing waits */
	update();
	ck_assert(run(10000000));
	assert_calls(0, 0, 0, 0);
}
END_TEST

START_TEST(one_attribute_of_4096_devices)
{
	struct device *devices = xcalloc(4096, sizeof(*devices));

	offer(4096, 1);
	ck_assert(run(100000));
	memset(&calls, 0, sizeof(calls));
	for (size_t i = 0; i < 4096; i++) {
		cleanup_free char *name = xasprintf("d%04zu", i);

		put_device(&devices[i], name, i == 2345 ? 2 : 1, false);
	}
	report(devices, 4096);
	update();
	ck_assert(run(100000));
	assert_published();
	assert_calls(0, 0, 1, 0);
	ck_assert_int_eq(generation_of(0), 1);
}
END_TEST

START_TEST(slice_object)
{
	const json_t *slice, *owner;
	json_t *spec;

	offer_these("b a*");
	ck_assert(run(100000));
	slice = server.slices[0];
	ck_assert(str_has_prefix(name_of(slice), "00000-" DRIVER "-" NODE "-"));
	owner = json_array_get(
		json_object_get(json_object_get(slice, "metadata"), "ownerReferences"), 0);
	spec = tree_of("{'apiVersion': 'v1', 'kind': 'Node', 'name': '" NODE
		       "', 'uid': 'uid-of-node', 'controller': true}");
	ck_assert(json_equal(owner, spec));
	json_decref(spec);
	spec = tree_of(
		"{'driver': '" DRIVER "', 'nodeName': '" NODE "',"
		" 'pool': {'name': '" NODE "', 'generation': 1, 'resourceSliceCount': 1},"
		" 'devices': ["
		"{'name': 'a', 'attributes': {'speed': {'int': 1}, 'pool': {'string': 'p'},"
		" 'deviceManager': {'string': 'dummy'}},"
		" 'capacity': {'memory': {'value': '1Gi', 'requestPolicy': {'default': "
		"'1Mi'}}},"
		" 'allowMultipleAllocations': true},"
		"{'name': 'b', 'attributes': {'speed': {'int': 1}, 'pool': {'string': 'p'},"
		" 'deviceManager': {'string': 'dummy'}}}]}");
	ck_assert(json_equal(json_object_get(slice, "spec"), spec));
	json_decref(spec);
}
END_TEST

/* The slice controller's table: what there is, what is offered then, what is done. */
static const struct {
	const char *name;
	size_t before, after;
	const char *then; /* devices offered then; NULL: `after` of them */
	unsigned creates, replaces, deletes;
	int64_t generation;
} transitions[] = {
	{"nothing changes", 130, 130, NULL, 0, 0, 0, 1},
	{"one slice, one desired: in place", 3, 2, NULL, 0, 1, 0, 1},
	{"one slice, other devices: in place", 3, 0, "x y z", 0, 1, 0, 1},
	{"emptied: still a slice", 3, 0, NULL, 0, 1, 0, 1},
	{"filled up", 10, 64, NULL, 0, 1, 0, 1},
	{"one added", 64, 65, NULL, 1, 1, 0, 2},
	{"several added", 10, 200, NULL, 3, 1, 0, 2},
	{"the last one removed", 130, 128, NULL, 0, 2, 1, 2},
	{"several removed", 200, 10, NULL, 0, 1, 3, 1},
	{"all removed", 200, 0, NULL, 0, 1, 3, 1},
};

START_TEST(transition)
{
	offer(transitions[_i].before, 1);
	ck_assert(run(100000));
	memset(&calls, 0, sizeof(calls));
	if (transitions[_i].then)
		offer_these(transitions[_i].then);
	else
		offer(transitions[_i].after, 1);
	ck_assert(run(100000));
	assert_published();
	ck_assert_msg(generation_of(0) == transitions[_i].generation, "%s: generation %lld",
		transitions[_i].name, (long long)generation_of(0));
	assert_calls(
		0, transitions[_i].creates, transitions[_i].replaces, transitions[_i].deletes);
	update();
	ck_assert(run(100000));
	assert_calls(0, 0, 0, 0);
}
END_TEST

START_TEST(two_slices_changed)
{
	offer(130, 1);
	ck_assert(run(100000));
	memset(&calls, 0, sizeof(calls));
	offer(130, 2);
	ck_assert(run(100000));
	assert_published();
	assert_calls(0, 0, 3, 0);
	ck_assert_int_eq(generation_of(0), 2);
}
END_TEST

START_TEST(restart_writes_nothing)
{
	offer(200, 1);
	ck_assert(run(100000));
	/* not the layout of a first publication */
	offer_these("d0001 d0100 d0199 a z");
	ck_assert(run(100000));
	offer(200, 1);
	ck_assert(run(100000));
	assert_published();
	stop();
	memset(&calls, 0, sizeof(calls));
	start();
	update();
	ck_assert(run(100000));
	assert_published();
	assert_calls(1, 0, 0, 0);
	ck_assert_uint_eq(calls.gets, 0);
}
END_TEST

/* --- slices of others --------------------------------------------------------------------- */

/* NAME/POOL/GENERATION/COUNT/DEVICES, devices separated by commas */
static void there_is(const char *what)
{
	char name[64], pool[64], devices[64] = "";
	int generation, count;
	json_t *list = json_array(), *slice;
	char *save = NULL;

	ck_assert_int_ge(sscanf(what, "%63[^/]/%63[^/]/%d/%d/%63s", name, pool, &generation,
				 &count, devices),
		4);
	for (char *d = strtok_r(devices, ",", &save); d; d = strtok_r(NULL, ",", &save))
		(void)json_array_append_new(
			list, json_pack("{s:s, s:{s:{s:i}, s:{s:s}, s:{s:s}}}", "name", d,
				      "attributes", "speed", "int", 1, "pool", "string", "p",
				      "deviceManager", "string", "dummy"));
	slice = json_pack("{s:{s:s, s:[{s:s, s:s, s:s, s:s, s:b}]},"
			  " s:{s:s, s:s, s:{s:s, s:i, s:i}, s:o}}",
		"metadata", "name", name, "ownerReferences", "apiVersion", "v1", "kind", "Node",
		"name", NODE, "uid", "uid-of-node", "controller", 1, "spec", "driver", DRIVER,
		"nodeName", NODE, "pool", "name", pool, "generation", generation,
		"resourceSliceCount", count, "devices", list);
	(void)server_create(slice);
	json_decref(slice);
	server.foreign = true;
}

/* Slices that there are at the start, with "a b" offered. */
static const struct {
	const char *there[4];
	unsigned creates, replaces, deletes;
	int64_t generation;
} starts[] = {
	{{"00000-x/node-1/7/1/a,b"}, 0, 0, 0, 7},
	{{"00000-x/node-1/7/1/b,a"}, 0, 1, 0, 7}, /* the order counts */
	{{"00000-x/node-1/7/2/a,b"}, 0, 1, 0, 7}, /* the count is wrong */
	{{"00000-x/node-1/0/1/a,b"}, 0, 0, 0, 0},
	{{"00000-x/node-1/7/1/a"}, 0, 1, 0, 7},
	/* an older generation is obsolete */
	{{"00000-x/node-1/7/1/a,b", "00000-w/node-1/6/1/a,b"}, 0, 0, 1, 7},
	{{"00000-x/node-1/6/2/a,b", "00001-w/node-1/7/2/a,b"}, 1, 0, 2, 8},
	/* so is an index that is not needed, or taken */
	{{"00000-x/node-1/7/2/a", "00001-x/node-1/7/2/b"}, 0, 1, 1, 7},
	{{"00000-x/node-1/7/1/a,b", "00000-y/node-1/7/1/a,b"}, 0, 0, 1, 7},
	/* names without one, as older helpers made them */
	{{"node-1-driver-8vx2k/node-1/3/1/a,b"}, 1, 0, 1, 4},
	{{"node-1-driver-8vx2k/node-1/3/2/b", "00000-x/node-1/3/2/a,b"}, 0, 1, 1, 3},
	{{"0000-x/node-1/3/1/a,b"}, 1, 0, 1, 4},
	{{"000000-x/node-1/3/1/a,b"}, 1, 0, 1, 4},
	/* another pool is withdrawn, its generation does not count */
	{{"00000-x/logical/9/1/a", "00000-y/node-1/3/1/a,b"}, 0, 0, 1, 3},
	{{"00000-x/logical/9/1/a"}, 1, 0, 1, 1},
};

START_TEST(found_at_the_start)
{
	for (size_t i = 0; i < ARRAY_SIZE(starts[_i].there) && starts[_i].there[i]; i++)
		there_is(starts[_i].there[i]);
	offer_these("a b");
	ck_assert(run(100000));
	assert_published();
	assert_calls(1, starts[_i].creates, starts[_i].replaces, starts[_i].deletes);
	ck_assert_int_eq(generation_of(0), starts[_i].generation);
}
END_TEST

static void edit(size_t at)
{
	json_t *device = json_array_get(devices_of(server.slices[at]), 0);

	(void)json_object_set_new(
		json_object_get(device, "attributes"), "speed", json_pack("{s:i}", "int", 99));
	set_version(server.slices[at]);
	tell(KUBE_MODIFIED, server.slices[at]);
	server.foreign = true;
}

START_TEST(edits_are_repaired)
{
	uint64_t at;

	offer(130, 1);
	ck_assert(run(100000));
	memset(&calls, 0, sizeof(calls));
	edit(1);
	at = clock_ms;
	ck_assert(run(100000));
	assert_published();
	assert_calls(0, 0, 1, 0);
	ck_assert_int_eq(generation_of(0), 1);
	ck_assert_uint_ge(call_ms[call_times - 1], at + 1000);
	ck_assert_uint_le(call_ms[call_times - 1], at + 1100);
	/* who edits on and on is not fought: each repair waits twice as long as the last */
	at = clock_ms;
	for (int i = 0; i < 600; i++) {
		edit(1);
		(void)run(1000);
	}
	ck_assert_uint_le(calls.replaces, 60);
	ck_assert_uint_ge(calls.replaces, 10);
	ck_assert(run(100000));
	assert_published();
	ck_assert_uint_eq(calls.creates, 0);
}
END_TEST

static void add_label(size_t at)
{
	(void)json_object_set_new(json_object_get(server.slices[at], "metadata"), "labels",
		json_pack("{s:s}", "mine", "yes"));
	set_version(server.slices[at]);
	tell(KUBE_MODIFIED, server.slices[at]);
}

START_TEST(labels_are_no_concern)
{
	offer(10, 1);
	ck_assert(run(100000));
	memset(&calls, 0, sizeof(calls));
	add_label(0);
	ck_assert(run(100000));
	assert_calls(0, 0, 0, 0);
	/* and stay when we write */
	offer(10, 2);
	ck_assert(run(100000));
	assert_published();
	assert_calls(0, 0, 1, 0);
	ck_assert_str_eq(json_string_value(json_object_get(
				 json_object_get(json_object_get(server.slices[0], "metadata"),
					 "labels"),
				 "mine")),
		"yes");
}
END_TEST

START_TEST(deletion_is_repaired)
{
	offer(200, 1);
	ck_assert(run(100000));
	memset(&calls, 0, sizeof(calls));
	server_delete(find_slice(name_of(server.slices[1])));
	ck_assert(run(100000));
	assert_published();
	ck_assert_uint_eq(calls.gets, 1); /* whether the Node is still the same */
	assert_calls(0, 1, 3, 0);
	ck_assert_int_eq(generation_of(0), 2);
}
END_TEST

/* what the kubelet does when it starts */
START_TEST(wipe_is_repaired)
{
	offer(200, 1);
	ck_assert(run(100000));
	memset(&calls, 0, sizeof(calls));
	while (server.n_slices > 0) {
		server_delete(0);
		(void)run(300);
	}
	ck_assert(run(100000));
	assert_published();
	assert_calls(0, 4, 0, 0);
}
END_TEST

START_TEST(node_made_anew)
{
	const json_t *owner;

	offer(70, 1);
	ck_assert(run(100000));
	memset(&calls, 0, sizeof(calls));
	strcpy(server.node_uid, "");
	server_delete(0);
	server_delete(0);
	ck_assert(!run(100000));
	assert_state(SLICE_SINK_FAILING);
	ck_assert_uint_le(calls.gets, 15);
	assert_calls(0, 0, 0, 0);
	strcpy(server.node_uid, "uid-of-other");
	ck_assert(run(100000));
	assert_published();
	owner = json_array_get(json_object_get(json_object_get(server.slices[1], "metadata"),
				       "ownerReferences"),
		0);
	ck_assert_str_eq(json_string_value(json_object_get(owner, "uid")), "uid-of-other");
}
END_TEST

/* More than are kept in mind: they are deleted, the others come to light, and so on. */
START_TEST(very_many_of_others)
{
	for (unsigned i = 0; i < 1500; i++) {
		cleanup_free char *what = xasprintf("x%u/node-1/1/1", i);

		there_is(what);
	}
	offer(3, 1);
	ck_assert(run(1000000));
	assert_published();
	ck_assert_uint_eq(calls.deletes, 1500);
	ck_assert_uint_le(calls.lists, 3);
	assert_rate();
}
END_TEST

/* --- failures ----------------------------------------------------------------------------- */

static void plan_fault(int status, unsigned retry_after_ms, unsigned times)
{
	while (times--) {
		planned[n_planned].status = status;
		planned[n_planned++].retry_after_ms = retry_after_ms;
	}
}

static const int faults[] = {0, -1, 403, 409, 429, 500, 503};

/* at each step of a first publication, and of one that replaces all */
START_TEST(failure_at_each_step)
{
	const int status = faults[_i / 8];
	const unsigned step = (unsigned)_i % 4;
	const bool replacing = _i % 8 >= 4;

	offer(200, 1);
	if (replacing) {
		ck_assert(run(100000));
		memset(&calls, 0, sizeof(calls));
		offer(200, 2);
	}
	plan_fault(200, 0, step);
	plan_fault(status, 0, 1);
	ck_assert(run(100000));
	assert_published();
	ck_assert_int_eq(generation_of(0), replacing ? 2 : 1);
	ck_assert_uint_eq(calls.deletes, 0);
	if (replacing)
		ck_assert_uint_le(calls.replaces, 5);
	else
		ck_assert_uint_le(calls.creates, 5);
	assert_rate();
}
END_TEST

START_TEST(backs_off)
{
	unsigned n = 0;

	offer(1, 1);
	plan_fault(500, 0, 12);
	ck_assert(run(1000000));
	assert_published();
	for (unsigned i = 2; i < call_times; i++) {
		uint64_t wait = call_ms[i] - call_ms[i - 1];

		ck_assert_uint_ge(wait, i < 8 ? (400u << (i - 2)) : 24000u);
		n++;
	}
	ck_assert_uint_eq(n, 12);
}
END_TEST

START_TEST(retry_after)
{
	offer(1, 1);
	plan_fault(429, 20000, 1);
	ck_assert(run(100000));
	assert_published();
	ck_assert_uint_eq(call_times, 3);
	ck_assert_uint_ge(call_ms[2], call_ms[1] + 20000);
}
END_TEST

/* What our limits do not know: the device that the server names is hidden, the others are
 * there. */
START_TEST(refused_devices)
{
	cleanup_free char *note = NULL;

	offer_these("a b? c d? e");
	ck_assert(run(10000));
	assert_published();
	ck_assert_uint_eq(json_array_size(devices_of(server.slices[0])), 3);
	assert_calls(1, 3, 0, 0);
	note = xstrdup_opt(device_row_get(&tables, "b")->note);
	ck_assert_pstr_eq(note, "device cannot be published: "
				"spec.devices[1].attributes[refused]: Forbidden");
	ck_assert_ptr_null(device_row_get(&tables, "b")->pool);
	/* it stays hidden for as long as it is what it was */
	offer_these("a b? c d e");
	ck_assert(run(10000));
	assert_published();
	ck_assert_uint_eq(json_array_size(devices_of(server.slices[0])), 4);
	assert_calls(0, 0, 1, 0);
	offer_these("a b c d e");
	ck_assert(run(10000));
	assert_published();
	ck_assert_uint_eq(json_array_size(devices_of(server.slices[0])), 5);
}
END_TEST

/* Nobody hides it: tried again now and then, and when something changed. */
START_TEST(refused_for_good)
{
	sink->refused = NULL;
	offer_these("a b?");
	ck_assert(!run(300000));
	assert_state(SLICE_SINK_FAILING);
	ck_assert_uint_le(calls.creates, 17);
	memset(&calls, 0, sizeof(calls));
	offer_these("a b");
	ck_assert(run(3000));
	assert_published();
	assert_calls(0, 1, 0, 0);
}
END_TEST

START_TEST(dropped_fields)
{
	cleanup_free char *told = NULL;

	server.drops = true;
	offer_these("a* b* c");
	ck_assert(run(100000));
	assert_published();
	assert_calls(1, 1, 0, 0);
	told = slice_sink_describe(sink);
	ck_assert_msg(strstr(told, "published; ") && strstr(told, "DRAConsumableCapacity"),
		"%s", told);
	/* it is not sent again and again, whatever else changes in the table; a change is */
	update();
	ck_assert(run(100000));
	device_state++;
	offer_these("a* b* c");
	ck_assert(run(100000));
	assert_calls(0, 0, 0, 0);
	offer_these("a* b* c!");
	ck_assert(run(100000));
	assert_published();
	assert_calls(0, 0, 1, 0);
	/* and with the gate on, the next change brings all of it */
	server.drops = false;
	offer_these("a* b* c");
	ck_assert(run(100000));
	assert_published();
	free(told);
	told = slice_sink_describe(sink);
	ck_assert_ptr_null(strstr(told, "DRAConsumableCapacity"));
}
END_TEST

START_TEST(watch_that_fails)
{
	cleanup_free char *told = NULL;

	watch_fails = 3;
	offer(3, 1);
	(void)run(1500);
	assert_state(SLICE_SINK_FAILING);
	told = slice_sink_describe(sink);
	ck_assert_msg(str_has_prefix(told, "failing since ") && strstr(told, ": GET: 403"),
		"%s", told);
	ck_assert(run(100000));
	assert_published();
}
END_TEST

/* --- two voices --------------------------------------------------------------------------- */

START_TEST(watch_that_lags)
{
	server.lag_ms = 0;
	offer(200, 1);
	ck_assert(run(100000));
	memset(&calls, 0, sizeof(calls));
	server.lag_ms = 4000;
	offer(200, 2);
	(void)run(500);
	offer(200, 3);
	(void)run(500);
	/* what it tells of our first writes is not taken for somebody else's */
	for (int i = 0; i < 60; i++) {
		assert_state(SLICE_SINK_PUBLISHED);
		(void)run(100);
	}
	ck_assert(run(100000));
	assert_published();
	assert_calls(0, 0, 8, 0);
}
END_TEST

static void delete_last_written(void)
{
	for (size_t i = 0; i < server.n_slices; i++)
		if (strcmp(text(server.slices[i], "metadata", "resourceVersion"),
			    text(in_flight->answer, "metadata", "resourceVersion")) == 0)
			server_delete(i);
	server.foreign = true;
}

static void edit_last_written(void)
{
	for (size_t i = 0; i < server.n_slices; i++)
		if (strcmp(text(server.slices[i], "metadata", "resourceVersion"),
			    text(in_flight->answer, "metadata", "resourceVersion")) == 0)
			edit(i);
}

/* Somebody acts between our write and its answer, and the watch tells of that before the
 * answer comes. */
START_TEST(overtaken)
{
	static void (*const acts[])(void) = {delete_last_written, edit_last_written};
	const bool creating = _i % 2;

	offer(10, 1);
	if (!creating) {
		ck_assert(run(100000));
		offer(10, 2);
	}
	server.latency_ms = 500;
	after_apply = acts[_i / 2];
	ck_assert(run(100000));
	ck_assert(!after_apply);
	assert_published();
}
END_TEST

/* The watch lists anew in the middle of our writes, and that list is older than some of them. */
START_TEST(list_amid_writes)
{
	server.latency_ms = 40;
	offer(1000, 1);
	(void)run(100 + (uint64_t)_i * 10);
	ck_assert_uint_gt(calls.creates, 0);
	ck_assert(watch->synced);
	watch_list(watch);
	ck_assert(run(100000));
	assert_published();
	ck_assert_uint_eq(calls.creates, 16);
	ck_assert_uint_eq(calls.gets + calls.deletes + calls.replaces, 0);
	ck_assert_uint_le(calls.lists, 3);
}
END_TEST

START_TEST(list_before_writes)
{
	offer(64, 1);
	ck_assert(run(100000));
	memset(&calls, 0, sizeof(calls));
	watch_list(watch);
	watch_step(watch); /* the server has looked */
	ck_assert_ptr_nonnull(watch->snapshot);
	watch->due = clock_ms + 5000; /* the answer is slow */
	offer(65, 1);
	(void)run(1000);
	ck_assert(!watch->begun);
	ck_assert_uint_eq(calls.creates, 1);
	ck_assert(run(100000));
	assert_published();
	assert_calls(2, 1, 1, 0);
}
END_TEST

/* --- anything ----------------------------------------------------------------------------- */

static void random_offer(void)
{
	const size_t max = 1 + chance(260);
	struct device *devices = xcalloc(max, sizeof(*devices));
	const unsigned gap = 1 + chance(4);
	size_t n = 0;

	for (size_t i = 0; i < max; i++) {
		cleanup_free char *name = xasprintf("d%04zu", i);

		if (chance(gap + 1) < gap)
			put_device(
				&devices[n++], name, (int)chance(20) ? 1 : 2, chance(10) == 0);
	}
	report(devices, n);
	update();
}

static void random_foreigner(void)
{
	size_t at = server.n_slices ? chance((unsigned)server.n_slices) : 0;

	server.foreign = true;
	switch (chance(5)) {
	case 0:
		if (server.n_slices && json_array_size(devices_of(server.slices[at])))
			edit(at);
		break;
	case 1:
		if (server.n_slices)
			server_delete(at);
		break;
	case 2:
		while (server.n_slices)
			server_delete(0);
		break;
	case 3: {
		cleanup_free char *what = xasprintf("%05x-f%u/node-1/%u/3/d0001,d0002",
			chance(4), ++server.uids, chance(9));

		there_is(what);
		break;
	}
	default:
		if (server.n_slices) {
			(void)json_object_set_new(pool_of(server.slices[at]), "generation",
				json_integer(generation_of(at) + (int)chance(3)));
			set_version(server.slices[at]);
			tell(KUBE_MODIFIED, server.slices[at]);
		}
	}
}

/* The watch's connection is lost, and the server does not remember where it was. */
static void forget_watch(void)
{
	if (watch && watch->synced)
		watch_list(watch);
}

static void random_life(unsigned seed, bool foreign)
{
	chance_state = seed;
	server.latency_ms = 1 + chance(60);
	server.lag_ms = 1 + chance(2000);
	server.fault_percent = chance(3) ? chance(40) : 0;
	server.drops = chance(8) == 0;
	for (unsigned i = 0; i < 12; i++) {
		if (chance(2))
			random_offer();
		if (foreign && chance(3) == 0)
			random_foreigner();
		if (chance(4) == 0)
			forget_watch();
		if (chance(12) == 0) {
			stop();
			start();
			update();
		}
		(void)run(chance(3000));
	}
	update();
	server.fault_percent = 0;
	ck_assert(run(10000000));
	assert_published();
	assert_rate();
	memset(&calls, 0, sizeof(calls));
	update();
	ck_assert(run(1000000));
	assert_calls(0, 0, 0, 0);
	stop();
	start();
	update();
	ck_assert(run(1000000));
	assert_published();
	if (!server.drops)
		assert_calls(1, 0, 0, 0);
}

#define LIVES 300

START_TEST(any_life)
{
	random_life((unsigned)_i + 1, false);
}
END_TEST

START_TEST(any_life_among_others)
{
	random_life((unsigned)_i + 1000, true);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("slice_sink");
	TCase *tcase = tcase_create("sink");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, nothing_is_asked_before_the_first_update);
	tcase_add_loop_test(tcase, first_publication, 0, ARRAY_SIZE(sizes));
	tcase_add_test(tcase, one_attribute_of_4096_devices);
	tcase_add_test(tcase, slice_object);
	tcase_add_loop_test(tcase, transition, 0, ARRAY_SIZE(transitions));
	tcase_add_test(tcase, two_slices_changed);
	tcase_add_test(tcase, restart_writes_nothing);
	tcase_add_loop_test(tcase, found_at_the_start, 0, ARRAY_SIZE(starts));
	tcase_add_test(tcase, edits_are_repaired);
	tcase_add_test(tcase, labels_are_no_concern);
	tcase_add_test(tcase, deletion_is_repaired);
	tcase_add_test(tcase, wipe_is_repaired);
	tcase_add_test(tcase, node_made_anew);
	tcase_add_test(tcase, very_many_of_others);
	tcase_add_loop_test(tcase, failure_at_each_step, 0, 8 * ARRAY_SIZE(faults));
	tcase_add_test(tcase, backs_off);
	tcase_add_test(tcase, retry_after);
	tcase_add_test(tcase, refused_devices);
	tcase_add_test(tcase, refused_for_good);
	tcase_add_test(tcase, dropped_fields);
	tcase_add_test(tcase, watch_that_fails);
	tcase_add_test(tcase, watch_that_lags);
	tcase_add_loop_test(tcase, overtaken, 0, 4);
	tcase_add_loop_test(tcase, list_amid_writes, 0, 40);
	tcase_add_test(tcase, list_before_writes);
	tcase_add_loop_test(tcase, any_life, 0, LIVES);
	tcase_add_loop_test(tcase, any_life_among_others, 0, LIVES);
	suite_add_tcase(suite, tcase);
	return unit_run(suite);
}
