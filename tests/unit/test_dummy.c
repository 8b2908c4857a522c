/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dummy manager's decisions, on a host that is a table: the functions of common/nl.h that
 * it calls there are replaced at link time. What the kernel does is tested elsewhere.
 */
#include "dmgr-dummy/dummy.h"

#include <check.h>
#include <errno.h>
#include <string.h>

#include "common/link_move.h"
#include "tests/unit/unit.h"

#define UID   "1f0c-uid"
#define MARK  "netclaim:" UID ":dummy0"
#define OTHER "netclaim:another:dummy0"

/* --- a host ------------------------------------------------------------------------------- */

#define MAX_LINKS 4

static struct {
	struct link_info links[MAX_LINKS]; /* ifindex 0: free */
	char altname[IFNAMSIZ];            /* of the first */
	int adds, dels, gets;
	/* numbers of the calls that fail with EPERM, from 1 */
	int fail_add, fail_del, fail_get, fail_alias;
} host;

static struct link_info *slot(const char *name)
{
	for (size_t i = 0; i < MAX_LINKS; i++)
		if (strcmp(host.links[i].name, name) == 0)
			return &host.links[i];
	return NULL;
}

static struct link_info *host_add(const char *name, const char *kind, const char *alias)
{
	struct link_info *link = slot("");

	ck_assert_ptr_nonnull(link);
	link->ifindex = (int)(link - host.links) + 1;
	(void)snprintf(link->name, sizeof(link->name), "%s", name);
	(void)snprintf(link->kind, sizeof(link->kind), "%s", kind);
	(void)snprintf(link->alias, sizeof(link->alias), "%s", alias);
	return link;
}

int __wrap_nl_link_get(struct nl *nl, const char *name, struct link_info *ret, struct err *err);
int __wrap_nl_link_get_by_index(
	struct nl *nl, int ifindex, struct link_info *ret, struct err *err);
int __wrap_nl_link_find(struct nl *nl,
	bool (*match)(const void *ctx, const struct link_info *link), const void *ctx,
	struct link_info *ret, struct err *err);
int __wrap_nl_link_find_all(struct nl *nl,
	bool (*match)(const void *ctx, const struct link_info *link), const void *ctx,
	struct link_list *ret, struct err *err);
int __wrap_nl_link_add(
	struct nl *nl, const char *name, const char *kind, uint32_t group, struct err *err);
int __wrap_nl_link_del(struct nl *nl, int ifindex, struct err *err);
int __wrap_nl_link_set_alias_and_group(
	struct nl *nl, int ifindex, const char *alias, uint32_t group, struct err *err);

int __wrap_nl_link_get(
	struct nl *nl UNUSED, const char *name, struct link_info *ret, struct err *err)
{
	const struct link_info *link = slot(name);

	*ret = (struct link_info){0};
	if (++host.gets == host.fail_get)
		return err_errno(err, EPERM, "get");
	if (!link && strcmp(host.altname, name) == 0)
		link = &host.links[0];
	if (!link)
		return err_errno(err, ENODEV, "get");
	*ret = *link;
	return 0;
}

int __wrap_nl_link_get_by_index(
	struct nl *nl UNUSED, int ifindex, struct link_info *ret, struct err *err)
{
	*ret = (struct link_info){0};
	for (size_t i = 0; i < MAX_LINKS; i++)
		if (host.links[i].ifindex == ifindex)
			*ret = host.links[i];
	return ret->ifindex ? 0 : err_errno(err, ENODEV, "get");
}

int __wrap_nl_link_find(struct nl *nl UNUSED,
	bool (*match)(const void *ctx, const struct link_info *link), const void *ctx,
	struct link_info *ret, struct err *err)
{
	*ret = (struct link_info){0};
	for (size_t i = 0; i < MAX_LINKS && !ret->ifindex; i++)
		if (host.links[i].ifindex && match(ctx, &host.links[i]))
			*ret = host.links[i];
	return ret->ifindex ? 0 : err_errno(err, ENODEV, "find");
}

int __wrap_nl_link_find_all(struct nl *nl UNUSED,
	bool (*match)(const void *ctx, const struct link_info *link), const void *ctx,
	struct link_list *ret, struct err *err)
{
	if (++host.gets == host.fail_get)
		return err_errno(err, EPERM, "list");
	ret->v = xcalloc(MAX_LINKS, sizeof(*ret->v));
	for (size_t i = 0; i < MAX_LINKS; i++)
		if (match(ctx, &host.links[i]))
			ret->v[ret->n++] = host.links[i];
	return 0;
}

int __wrap_nl_link_add(struct nl *nl UNUSED, const char *name, const char *kind, uint32_t group,
	struct err *err)
{
	if (++host.adds == host.fail_add)
		return err_errno(err, EPERM, "add");
	if (slot(name) || strcmp(host.altname, name) == 0)
		return err_errno(err, EEXIST, "add");
	host_add(name, kind, "")->numbers[LINK_GROUP] = group;
	return 0;
}

int __wrap_nl_link_del(struct nl *nl UNUSED, int ifindex, struct err *err)
{
	if (++host.dels == host.fail_del)
		return err_errno(err, EPERM, "del");
	host.links[ifindex - 1] = (struct link_info){0};
	return 0;
}

int __wrap_nl_link_set_alias_and_group(
	struct nl *nl UNUSED, int ifindex, const char *alias, uint32_t group, struct err *err)
{
	struct link_info *link = &host.links[ifindex - 1];

	if (host.fail_alias)
		return err_errno(err, EPERM, "alias");
	(void)snprintf(link->alias, sizeof(link->alias), "%s", alias);
	link->numbers[LINK_GROUP] = group;
	return 0;
}

/* --- an allocation ------------------------------------------------------------------------ */

static struct dummy dummy;
static struct err err;
static struct device_list list;
static struct device_config config;
static char uid[] = UID, share_id[] = "s1";
static struct device_alloc alloc;

static int configure(int count)
{
	json_t *tree = json_pack("{sbsi}", "enabled", 1, "count", count);
	int rc = dummy_configure(&dummy, tree, &err);

	json_decref(tree);
	return rc;
}

static void set_up(void)
{
	memset(&host, 0, sizeof(host));
	config = (struct device_config){0};
	ck_assert_int_eq(configure(3), 0);
	ck_assert_int_eq(dummy_discover(&dummy, &list, &err), 0);
	alloc = (struct device_alloc){
		.device = &list.devices.v[0], .claim_uid = uid, .config = &config};
}

static void tear_down(void)
{
	rec_fini(api_method_info(API_MANAGER_DEVICES)->request, &list);
}

/* The inventory's device, and the number of its link. */
static void assert_prepared(const struct device *prepared)
{
	json_t *state = packed_open(prepared->state), *was = packed_open(alloc.device->state);
	const struct link_info *link = slot("dummy0");

	if (!link)
		ck_abort_msg("there is no dummy0");
	ck_assert_str_eq(prepared->name, alloc.device->name);
	ck_assert(packed_equal(prepared->attributes, alloc.device->attributes));
	(void)json_object_set_new(was, "IfIndex", json_integer(link->ifindex));
	ck_assert(json_equal(state, was));
	json_decref(state);
	json_decref(was);
}

static void setup_ok(void)
{
	struct device ret = {0};

	ck_assert_msg(dummy_ops.setup(&dummy, &alloc, &ret, &err) == 0, "%s", err.message);
	assert_prepared(&ret);
	rec_fini(&rec_device, &ret);
	ck_assert_str_eq(slot("dummy0")->kind, "dummy");
	ck_assert_str_eq(slot("dummy0")->alias, MARK);
}

static void setup_fails(enum err_kind kind, const char *why)
{
	struct device ret = {0};

	ck_assert_int_eq(dummy_ops.setup(&dummy, &alloc, &ret, &err), -1);
	ck_assert_msg(err.kind == kind && strstr(err.message, why), "%s", err.message);
	ck_assert_ptr_null(ret.name);
}

/* --- inventory and state ------------------------------------------------------------------ */

START_TEST(inventory_is_as_many_as_configured)
{
	cleanup_free struct packed *want = packed_take(json_pack("{s{ss}s{ss}}", "ifName",
		"string", "dummy2", "kernelIfName", "string", "dummy2"));

	ck_assert_uint_eq(list.devices.n, 3);
	ck_assert_str_eq(list.devices.v[0].name, "dummy0");
	ck_assert_str_eq(list.devices.v[2].name, "dummy2");
	ck_assert_str_eq(list.devices.v[2].if_name, "dummy2");
	ck_assert_str_eq(list.devices.v[2].kernel_if_name, "dummy2");
	ck_assert(packed_equal(list.devices.v[2].attributes, want));
	ck_assert_ptr_null(list.devices.v[2].capacity);
	ck_assert(!list.devices.v[2].allow_multiple.v);
}
END_TEST

START_TEST(no_devices_is_an_inventory_too)
{
	struct device_list none = {0};

	ck_assert_int_eq(configure(0), 0);
	ck_assert_int_eq(dummy_discover(&dummy, &none, &err), 0);
	ck_assert_uint_eq(none.devices.n, 0);
	rec_fini(api_method_info(API_MANAGER_DEVICES)->request, &none);
}
END_TEST

START_TEST(count_has_bounds)
{
	ck_assert_int_eq(configure(DUMMY_MAX_COUNT), 0);
	ck_assert_int_eq(configure(-1), -1);
	ck_assert_msg(strstr(err.message, "dummy device count must not be negative: -1"), "%s",
		err.message);
	ck_assert_int_eq(configure(DUMMY_MAX_COUNT + 1), -1);
	ck_assert_msg(strstr(err.message, "must be at most 4096"), "%s", err.message);
	ck_assert_int_eq(err.kind, ERR_INVALID);
}
END_TEST

static void set_state(const char *json)
{
	free(alloc.device->state);
	alloc.device->state = packed_take(json_loads(json, 0, NULL));
}

START_TEST(state_has_the_drivers_keys_and_comes_back)
{
	cleanup_free struct packed *want = packed_take(
		json_pack("{sssssisi}", "Name", "dummy0", "HWAddr", "", "MTU", 0, "Flags", 0));
	struct device ret = {0};

	ck_assert(packed_equal(alloc.device->state, want));
	ck_assert_int_eq(dummy_restore(&dummy, &alloc, &ret, &err), 0);
	ck_assert(rec_equal(&rec_device, &ret, alloc.device));
	rec_fini(&rec_device, &ret);
	/* as the driver written in Go has it: a nil address */
	set_state("{\"Name\": \"dummy0\", \"HWAddr\": null, \"MTU\": 0, \"Flags\": 0}");
	ck_assert_msg(dummy_restore(&dummy, &alloc, &ret, &err) == 0, "%s", err.message);
	rec_fini(&rec_device, &ret);
}
END_TEST

START_TEST(state_that_is_not_the_devices_is_refused)
{
	static const char *const bad[] = {"{}", "{\"Name\": 7}", "{\"Name\": \"dummy1\"}",
		"{\"Name\": \"dummy0\", \"MTU\": -1}"};

	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct device ret = {0};

		set_state(bad[i]);
		ck_assert_int_eq(dummy_restore(&dummy, &alloc, &ret, &err), -1);
		ck_assert_int_eq(err.kind, ERR_INVALID);
		ck_assert_int_eq(dummy_free(&dummy, &alloc, &err), -1);
	}
	ck_assert_int_eq(host.gets, 0);
}
END_TEST

/* --- setup -------------------------------------------------------------------------------- */

START_TEST(setup_makes_the_link_and_marks_it)
{
	setup_ok();
	ck_assert_int_eq(host.adds, 1);
	setup_ok(); /* recover is the same */
	ck_assert_int_eq(host.dels, 0);
	ck_assert(dummy_ops.recover == dummy_ops.setup);
}
END_TEST

START_TEST(share_is_part_of_the_mark)
{
	struct device ret = {0};

	alloc.share_id = share_id;
	ck_assert_int_eq(dummy_setup(&dummy, &alloc, &ret, &err), 0);
	ck_assert_str_eq(slot("dummy0")->alias, MARK ":s1");
	rec_fini(&rec_device, &ret);
}
END_TEST

START_TEST(failing_add_is_told)
{
	host.fail_add = 1;
	setup_fails(ERR_INTERNAL, "failed to create dummy interface dummy0: ");
	ck_assert_int_eq(err.sys, EPERM);
}
END_TEST

START_TEST(dummy_link_without_a_mark_is_adopted)
{
	host_add("dummy0", "dummy", "an administrator's");
	setup_ok();
	ck_assert_int_eq(host.dels, 0);
}
END_TEST

START_TEST(link_of_another_kind_is_never_touched)
{
	static const char *const kinds[] = {"bridge", "bond", "veth", "ifb", ""};
	static const char *const aliases[] = {"", MARK};

	for (size_t i = 0; i < ARRAY_SIZE(kinds) * ARRAY_SIZE(aliases); i++) {
		const char *kind = kinds[i / ARRAY_SIZE(aliases)];
		const char *alias = aliases[i % ARRAY_SIZE(aliases)];
		cleanup_free char *why =
			xasprintf("the name 'dummy0' is taken by a link of kind '%s'",
				*kind ? kind : "physical");

		memset(&host, 0, sizeof(host));
		host_add("dummy0", kind, alias);
		setup_fails(ERR_CONFLICT, why);
		ck_assert_int_eq(dummy_free(&dummy, &alloc, &err), 0);
		ck_assert_int_eq(dummy_ops.reclaim(&dummy, &alloc, &err), 1);
		ck_assert_str_eq(slot("dummy0")->alias, alias);
		ck_assert_int_eq(host.dels, 0);
	}
}
END_TEST

START_TEST(failing_lookup_is_told)
{
	host_add("dummy0", "dummy", "");
	host.fail_get = 1;
	setup_fails(ERR_INTERNAL, "dummy interface dummy0 exists but could not be read: ");
}
END_TEST

START_TEST(failing_mark_is_told)
{
	host.fail_alias = 1;
	setup_fails(ERR_INTERNAL, "failed to mark dummy interface dummy0: ");
}
END_TEST

START_TEST(another_claims_link_is_a_conflict)
{
	static const char *const kinds[] = {"dummy", "veth"};

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		memset(&host, 0, sizeof(host));
		host_add("dummy0", kinds[i], OTHER);
		setup_fails(ERR_CONFLICT, i == 0 ? OTHER : "of kind 'veth'");
		ck_assert_str_eq(slot("dummy0")->alias, OTHER);
		ck_assert_int_eq(host.dels, 0);
	}
}
END_TEST

START_TEST(alternative_name_is_a_conflict)
{
	host_add("eth7", "dummy", "");
	(void)snprintf(host.altname, sizeof(host.altname), "dummy0");
	setup_fails(ERR_CONFLICT, "'dummy0' is an alternative name of link 'eth7'");
	ck_assert_str_eq(slot("eth7")->alias, "");
	ck_assert_int_eq(host.dels, 0);
}
END_TEST

START_TEST(vlan_is_refused_before_anything_is_touched)
{
	config.vlan = (struct rec_int){.v = 7, .set = true};
	setup_fails(ERR_INVALID, "vlan: a dummy device has no VLAN support");
	ck_assert_int_eq(host.adds + host.gets, 0);
}
END_TEST

START_TEST(foreign_names_are_refused)
{
	static const char *const names[] = {
		"eth0", "dummy", "dummy01", "dummy4096", "dummy-1", "dummy0x", "xdummy0"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		free(alloc.device->name);
		alloc.device->name = xstrdup(names[i]);
		setup_fails(ERR_INVALID, "is not a dummy device");
	}
	ck_assert_int_eq(host.adds + host.gets, 0);
}
END_TEST

/* --- free --------------------------------------------------------------------------------- */

START_TEST(free_deletes_once)
{
	setup_ok();
	ck_assert_int_eq(dummy_free(&dummy, &alloc, &err), 0);
	ck_assert_int_eq(host.dels, 1);
	ck_assert_int_eq(dummy_free(&dummy, &alloc, &err), 0);
	ck_assert_int_eq(host.dels, 1);
}
END_TEST

START_TEST(free_leaves_what_is_not_the_claims)
{
	static const char *const aliases[] = {OTHER, "", MARK ":s1"};

	for (size_t i = 0; i < ARRAY_SIZE(aliases); i++) {
		memset(&host, 0, sizeof(host));
		host_add("dummy0", "dummy", aliases[i]);
		ck_assert_int_eq(dummy_free(&dummy, &alloc, &err), 0);
		ck_assert_int_eq(host.dels, 0);
	}
}
END_TEST

START_TEST(free_takes_an_alternative_name_for_nothing)
{
	host_add("eth7", "dummy", MARK);
	(void)snprintf(host.altname, sizeof(host.altname), "dummy0");
	ck_assert_int_eq(dummy_free(&dummy, &alloc, &err), 0);
	ck_assert_int_eq(host.dels, 0);
}
END_TEST

START_TEST(free_tells_what_fails)
{
	setup_ok();
	host.fail_del = 1;
	ck_assert_int_eq(dummy_free(&dummy, &alloc, &err), -1);
	ck_assert_int_eq(err.sys, EPERM);
	host.fail_get = host.gets + 1;
	ck_assert_int_eq(dummy_free(&dummy, &alloc, &err), -1);
	ck_assert_int_eq(err.sys, EPERM);
}
END_TEST

/* --- detach ------------------------------------------------------------------------------- */

/* The table is the pod, and its second link is the claim's: as it came in, or as the pod made it. */
static void pod_has(const char *name, const char *alias)
{
	memset(&host, 0, sizeof(host));
	(void)host_add("eth0", "veth", "");
	(void)host_add(name, "dummy", alias);
	(void)host_add("pods", "dummy", "");
}

static int detach(void)
{
	static char net1[] = "net1", sandbox[] = "5a5a";
	const struct device_attach a = {
		.allocation = &alloc, .if_name = net1, .sandbox_id = sandbox};

	return dummy_ops.detach(&dummy, &a, -1, -1, &err);
}

static void set_number(int ifindex)
{
	cleanup_free char *state = xasprintf(
		"{\"Name\": \"dummy0\", \"HWAddr\": \"\", \"MTU\": 0, \"Flags\": 0, "
		"\"IfIndex\": %d}",
		ifindex);

	set_state(state);
}

#define THIRD "netclaim:claim3:dummy3"

/* number: of the prepared device, 0: of one that an earlier version has prepared. */
static const struct {
	const char *name, *alias;
	int number, rc;
} pods[] = {
	{"net1", MARK, 2, 0},
	{"mine", MARK, 0, 0},
	{"net1", "", 2, 0},
	{"net1", "", 0, 0},   /* by its name alone */
	{"mine", "", 2, 0},   /* by its number alone */
	{"mine", "its", 2, 0},
	{"mine", "netclaim:", 2, 0},
	{"net1", "its", 77, 0}, /* it had to take another number in the pod */
	{"mine", "", 0, 1},     /* nothing is left to know it by */
	{"mine", "", 1, 1},     /* of another kind */
	{"mine", THIRD, 2, 1},  /* another claim's, as far as it can be seen */
	{"net1", THIRD, 77, 1},
	{"net1", THIRD, 2, 0}, /* the pod has written it: number and name are this one's */
	{"mine", "netclaim:claim3:dummy0", 2, 0}, /* no other claim has this device */
};

START_TEST(link_is_found_whatever_the_pod_has_written_on_it)
{
	pod_has(pods[_i].name, pods[_i].alias);
	if (pods[_i].number)
		set_number(pods[_i].number);
	ck_assert_msg(detach() == pods[_i].rc, "%s", err.message);
	ck_assert_int_eq(host.dels, pods[_i].rc ? 0 : 1);
	ck_assert(!!slot(pods[_i].name) == (pods[_i].rc > 0));
	ck_assert_ptr_nonnull(slot("pods"));
	if (pods[_i].rc == 0)
		ck_assert_int_eq(detach(), 1);
}
END_TEST

START_TEST(failing_detach_is_reported)
{
	pod_has("net1", MARK);
	host.fail_del = 1;
	ck_assert_int_eq(detach(), -1);
	ck_assert_int_eq(err.sys, EPERM);
}
END_TEST

START_TEST(number_of_the_link_comes_back)
{
	struct device ret = {0};

	set_number(7);
	ck_assert_int_eq(dummy_restore(&dummy, &alloc, &ret, &err), 0);
	ck_assert(packed_equal(ret.state, alloc.device->state));
	rec_fini(&rec_device, &ret);
}
END_TEST

/* --- reclaim ------------------------------------------------------------------------------ */

/* One that is the claim's and on the host has never left it; any other says nothing of it. */
START_TEST(reclaim_touches_nothing)
{
	static const char *const aliases[] = {MARK, OTHER, ""};

	ck_assert_int_eq(dummy_ops.reclaim(&dummy, &alloc, &err), 1);
	for (size_t i = 0; i < ARRAY_SIZE(aliases); i++) {
		memset(&host, 0, sizeof(host));
		host_add("dummy0", "dummy", aliases[i]);
		ck_assert_int_eq(dummy_ops.reclaim(&dummy, &alloc, &err), i > 0);
		ck_assert_str_eq(slot("dummy0")->alias, aliases[i]);
		ck_assert_int_eq(host.dels, 0);
	}
	host.fail_get = host.gets + 1;
	ck_assert_int_eq(dummy_ops.reclaim(&dummy, &alloc, &err), -1);
	ck_assert_int_eq(err.sys, EPERM);
}
END_TEST

/* --- audit -------------------------------------------------------------------------------- */

START_TEST(audit_lists_what_free_can_undo)
{
	struct device_audit_result found = {0};
	struct strlist known = {0};

	strlist_add(&known, UID);
	host_add("dummy0", "dummy", MARK);
	host_add("dummy1", "dummy", "netclaim:lost:dummy1:s1");
	host_add("dummy2", "veth", "netclaim:lost:dummy2");
	host_add("dummy3", "dummy", "netclaim:lost:vf3");
	ck_assert_int_eq(dummy_audit(&dummy, &known, &found, &err), 0);
	ck_assert_uint_eq(found.leftovers.n, 1);
	ck_assert_str_eq(found.leftovers.v[0].claim_uid, "lost");
	ck_assert_str_eq(found.leftovers.v[0].share_id, "s1");
	ck_assert_str_eq(found.leftovers.v[0].device->name, "dummy1");
	ck_assert_int_eq(dummy_free(&dummy, &found.leftovers.v[0], &err), 0);
	ck_assert_ptr_null(slot("dummy1"));
	rec_fini(api_method_info(API_DEVICE_AUDIT)->result, &found);
	host.fail_get = host.gets + 1;
	ck_assert_int_eq(dummy_audit(&dummy, &known, &found, &err), -1);
	ck_assert_int_eq(err.sys, EPERM);
	strlist_fini(&known);
}
END_TEST

static void audit_ok(void)
{
	struct device_audit_result found = {0};
	const struct strlist none = {0};

	ck_assert_int_eq(dummy_audit(&dummy, &none, &found, &err), 0);
	ck_assert_uint_eq(found.leftovers.n, 0);
}

START_TEST(audit_deletes_what_a_crash_kept_from_being_marked)
{
	host.fail_alias = 1;
	ck_assert_int_eq(dummy_setup(&dummy, &alloc, &(struct device){0}, &err), -1);
	ck_assert_ptr_nonnull(slot("dummy0"));
	host.fail_del = 1;
	ck_assert_int_eq(dummy_audit(&dummy, &(struct strlist){0},
				 &(struct device_audit_result){0}, &err),
		-1);
	ck_assert_int_eq(err.sys, EPERM);
	audit_ok();
	ck_assert_ptr_null(slot("dummy0"));
}
END_TEST

START_TEST(audit_deletes_nothing_that_may_be_somebodys)
{
	setup_ok();
	ck_assert_uint_eq(host.links[0].numbers[LINK_GROUP], 0);
	host.links[0].alias[0] = '\0';
	host_add("dummy1", "veth", "");
	host_add("mine", "dummy", "");
	host_add("dummy3", "dummy", "somebody's");
	for (size_t i = 1; i < MAX_LINKS; i++)
		host.links[i].numbers[LINK_GROUP] = 0x6e636c6d;
	audit_ok();
	ck_assert_int_eq(host.dels, 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("dummy");
	TCase *c = tcase_create("decisions");

	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_add_test(c, inventory_is_as_many_as_configured);
	tcase_add_test(c, no_devices_is_an_inventory_too);
	tcase_add_test(c, count_has_bounds);
	tcase_add_test(c, state_has_the_drivers_keys_and_comes_back);
	tcase_add_test(c, state_that_is_not_the_devices_is_refused);
	tcase_add_test(c, setup_makes_the_link_and_marks_it);
	tcase_add_test(c, share_is_part_of_the_mark);
	tcase_add_test(c, failing_add_is_told);
	tcase_add_test(c, dummy_link_without_a_mark_is_adopted);
	tcase_add_test(c, link_of_another_kind_is_never_touched);
	tcase_add_test(c, failing_lookup_is_told);
	tcase_add_test(c, failing_mark_is_told);
	tcase_add_test(c, another_claims_link_is_a_conflict);
	tcase_add_test(c, alternative_name_is_a_conflict);
	tcase_add_test(c, vlan_is_refused_before_anything_is_touched);
	tcase_add_test(c, foreign_names_are_refused);
	tcase_add_test(c, free_deletes_once);
	tcase_add_test(c, free_leaves_what_is_not_the_claims);
	tcase_add_test(c, free_takes_an_alternative_name_for_nothing);
	tcase_add_test(c, free_tells_what_fails);
	tcase_add_loop_test(
		c, link_is_found_whatever_the_pod_has_written_on_it, 0, ARRAY_SIZE(pods));
	tcase_add_test(c, failing_detach_is_reported);
	tcase_add_test(c, number_of_the_link_comes_back);
	tcase_add_test(c, reclaim_touches_nothing);
	tcase_add_test(c, audit_lists_what_free_can_undo);
	tcase_add_test(c, audit_deletes_what_a_crash_kept_from_being_marked);
	tcase_add_test(c, audit_deletes_nothing_that_may_be_somebodys);
	suite_add_tcase(s, c);
	return s;
}

int main(void)
{
	return unit_run(suite());
}
