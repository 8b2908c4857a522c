/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handing links over, on the real kernel: each test makes two network namespaces of its own,
 * one to be the host and one to be the pod.
 *
 * Every request that changes something goes through a wrapper here that can refuse it: one
 * alone, as a kernel that fails once, or one and all after it, as a process that died there.
 */
#include "common/link_move.h"

#include <check.h>
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/log.h"
#include "common/netns.h"
#include "tests/unit/unit.h"

#define LINK "vf0"
#define UID  "1f0c-uid"
#define MARK "netclaim:" UID ":vf0"
#define NET1 "net1"

/* --- requests that fail ------------------------------------------------------------------- */

static struct {
	int n;         /* requests so far */
	int fail_from; /* numbers of those that fail; from 1 */
	int fail_to;
	int sys;                               /* what they fail with */
	int mac_sys;                           /* what setting an address fails with */
	void (*before)(void);                  /* runs before each request */
	void (*before_move)(const char *name); /* and this before a move */
} requests;

static void requests_reset(int fail_from, int fail_to)
{
	requests.n = 0;
	requests.fail_from = fail_from;
	requests.fail_to = fail_to;
	requests.sys = EIO;
}

static int refused(struct err *err)
{
	if (requests.before)
		requests.before();
	requests.n++;
	if (requests.n < requests.fail_from || requests.n > requests.fail_to)
		return 0;
	return err_errno(err, requests.sys, "request %d", requests.n);
}

#define WRAP(name, params, args)                                                               \
	int __real_##name params;                                                              \
	int __wrap_##name params;                                                              \
	int __wrap_##name params                                                               \
	{                                                                                      \
		return refused(err) < 0 ? -1 : __real_##name args;                             \
	}
WRAP(nl_link_set_name, (struct nl * nl, int i, const char *name, struct err *err),
	(nl, i, name, err))
WRAP(nl_link_set_number,
	(struct nl * nl, int i, enum link_number which, uint32_t v, struct err *err),
	(nl, i, which, v, err))

int __real_nl_link_set_mac(struct nl *nl, int i, const char *mac, struct err *err);
int __wrap_nl_link_set_mac(struct nl *nl, int i, const char *mac, struct err *err);
int __wrap_nl_link_set_mac(struct nl *nl, int i, const char *mac, struct err *err)
{
	if (requests.mac_sys)
		return err_errno(err, requests.mac_sys, "address");
	return refused(err) < 0 ? -1 : __real_nl_link_set_mac(nl, i, mac, err);
}

WRAP(nl_link_set_up, (struct nl * nl, int i, bool up, struct err *err), (nl, i, up, err))
WRAP(nl_link_add_altname, (struct nl * nl, int i, const char *name, struct err *err),
	(nl, i, name, err))
WRAP(nl_link_del_altname, (struct nl * nl, int i, const char *name, struct err *err),
	(nl, i, name, err))

int __real_nl_link_move(
	struct nl *nl, int i, int netns_fd, const char *name, int want, struct err *err);
int __wrap_nl_link_move(
	struct nl *nl, int i, int netns_fd, const char *name, int want, struct err *err);
int __wrap_nl_link_move(
	struct nl *nl, int i, int netns_fd, const char *name, int want, struct err *err)
{
	if (requests.before_move)
		requests.before_move(name);
	return refused(err) < 0 ? -1 : __real_nl_link_move(nl, i, netns_fd, name, want, err);
}

int __real_nl_link_move_up(
	struct nl *nl, int i, int netns_fd, const char *name, struct err *err);
int __wrap_nl_link_move_up(
	struct nl *nl, int i, int netns_fd, const char *name, struct err *err);
int __wrap_nl_link_move_up(
	struct nl *nl, int i, int netns_fd, const char *name, struct err *err)
{
	if (requests.before_move)
		requests.before_move(name);
	return refused(err) < 0 ? -1 : __real_nl_link_move_up(nl, i, netns_fd, name, err);
}

/* --- two namespaces ----------------------------------------------------------------------- */

static struct {
	struct nl host, pod;
	struct link_ends ends;
	const char *kind; /* one that this kernel has */
	struct link_origin origin;
	struct err err;
} t;

#define OK(call)   ck_assert_msg((call) == 0, "%s: %s", #call, t.err.message)
#define FAIL(call) ck_assert_msg((call) == -1, "%s succeeded", #call)

static void open_end(struct nl *nl, int *fd)
{
	ck_assert_msg(unshare(CLONE_NEWNET) == 0, "unshare: %s", strerror(errno));
	*fd = netns_open_own(&t.err);
	ck_assert_int_ge(*fd, 0);
	OK(nl_init(nl, -1, &t.err));
}

static void add_link(struct nl *nl, const char *name, const char *mark, struct link_info *ret)
{
	OK(nl_link_add(nl, name, t.kind, 0, &t.err));
	OK(nl_link_get(nl, name, ret, &t.err));
	if (mark)
		OK(nl_link_set_alias(nl, ret->ifindex, mark, &t.err));
}

static const char *find_kind(void)
{
	static const char *const kinds[] = {"dummy", "veth"};

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		cleanup_link_info struct link_info link = {0};

		if (nl_link_add(&t.host, "probe", kinds[i], 0, &t.err) < 0)
			continue;
		OK(nl_link_get(&t.host, "probe", &link, &t.err));
		OK(nl_link_del(&t.host, link.ifindex, &t.err));
		return kinds[i];
	}
	ck_abort_msg("this kernel has neither dummy nor veth links");
}

static void add_address(const char *local, const char *peer, uint32_t flags)
{
	cleanup_link_info struct link_info link = {0};
	struct link_address a = {.flags = flags};

	OK(nl_link_get(&t.host, LINK, &link, &t.err));
	(void)snprintf(a.local, sizeof(a.local), "%s", local);
	(void)snprintf(a.peer, sizeof(a.peer), "%s", peer);
	OK(nl_address_add(&t.host, link.ifindex, &a, &t.err));
}

static void dress(int ifindex)
{
	OK(nl_link_set_number(&t.host, ifindex, LINK_TX_QUEUE_LEN, 77, &t.err));
	OK(nl_link_set_number(&t.host, ifindex, LINK_GROUP, 7, &t.err));
	OK(nl_link_set_number(&t.host, ifindex, LINK_GSO_MAX_SIZE, 32000, &t.err));
	OK(nl_link_set_number(&t.host, ifindex, LINK_GSO_MAX_SEGS, 16, &t.err));
	OK(nl_link_set_flags(&t.host, ifindex, IFF_MULTICAST | IFF_ALLMULTI, &t.err));
	OK(nl_link_set_addr_gen_mode(&t.host, ifindex, 1 /* none */, &t.err));
	OK(nl_link_set_number(&t.host, ifindex, LINK_MTU, 1400, &t.err));
	OK(nl_link_set_mac(&t.host, ifindex, "02:00:00:00:00:42", &t.err));
	OK(nl_link_add_altname(&t.host, ifindex, "enp1s0v0", &t.err));
	OK(nl_link_add_altname(&t.host, ifindex, "a-name-longer-than-fifteen-bytes", &t.err));
}

/* The host has vf0, up, with an MTU, an address and alternative names that are not usual. */
static void set_up(void)
{
	cleanup_link_info struct link_info link = {0};

	open_end(&t.pod, &t.ends.pod_netns_fd);
	open_end(&t.host, &t.ends.host_netns_fd);
	t.ends.host = &t.host;
	t.ends.pod = &t.pod;
	t.kind = find_kind();
	add_link(&t.host, LINK, MARK, &link);
	dress(link.ifindex);
	OK(nl_link_set_up(&t.host, link.ifindex, true, &t.err));
	add_address("10.77.0.1/24", "", 0);
	add_address("10.77.0.2/24", "", 0x200 /* noprefixroute */);
	add_address("10.78.0.1", "10.78.0.2/32", 0);
	add_address("fd77::1/64", "", 0x02 /* nodad */);
	link_info_fini(&link);
	OK(nl_link_get(&t.host, LINK, &link, &t.err));
	OK(link_origin_of(&t.host, &link, &t.origin, &t.err));
	requests_reset(0, 0);
}

static void tear_down(void)
{
	nl_fini(&t.pod);
	nl_fini(&t.host);
	close_fd(&t.ends.pod_netns_fd);
	close_fd(&t.ends.host_netns_fd);
	rec_fini(&rec_link_origin, &t.origin);
	requests.before = NULL;
	requests.before_move = NULL;
}

static struct link_info get(struct nl *nl, const char *name)
{
	struct link_info link;

	OK(nl_link_get(nl, name, &link, &t.err));
	return link;
}

static bool has(struct nl *nl, const char *name)
{
	cleanup_link_info struct link_info link = {0};

	if (nl_link_get(nl, name, &link, &t.err) == 0)
		return true;
	ck_assert_int_eq(t.err.kind, ERR_NOT_FOUND);
	return false;
}

static bool has_marked(struct nl *nl)
{
	cleanup_link_info struct link_info link = {0};

	if (link_find(nl, MARK, &t.origin, &link, &t.err) == 0)
		return true;
	ck_assert_int_eq(t.err.kind, ERR_NOT_FOUND);
	return false;
}

/* All of it is as it was, but for the order of the alternative names. */
static void assert_on_host(void)
{
	cleanup_link_info struct link_info link = get(&t.host, LINK);
	struct strlist before = t.origin.altnames;
	struct link_origin now;

	ck_assert_str_eq(link.name, LINK);
	ck_assert_str_eq(link.alias, MARK);
	ck_assert_uint_eq(link.altnames.n, before.n);
	for (size_t i = 0; i < link.altnames.n; i++)
		ck_assert(strlist_has(&before, link.altnames.v[i]));
	OK(link_origin_of(&t.host, &link, &now, &t.err));
	ck_assert_uint_eq(now.addresses.n, t.origin.addresses.n);
	strlist_fini(&now.altnames);
	t.origin.altnames = (struct strlist){0};
	if (!rec_equal(&rec_link_origin, &now, &t.origin))
		ck_abort_msg("is %s\nwas %s", json_dumps(rec_encode(&rec_link_origin, &now), 0),
			json_dumps(rec_encode(&rec_link_origin, &t.origin), 0));
	t.origin.altnames = before;
	rec_fini(&rec_link_origin, &now);
	ck_assert(!has_marked(&t.pod));
}

static void assert_in_pod(const char *name)
{
	cleanup_link_info struct link_info link = get(&t.pod, name);

	ck_assert_str_eq(link.name, name);
	ck_assert_str_eq(link.alias, MARK);
	ck_assert(link.up);
	ck_assert(!has_marked(&t.host));
}

static int take(void)
{
	return link_take(&t.ends, MARK, &t.origin, &t.err);
}

static int give_so(const char *if_name, bool keep_down, struct device_attach_result *ret)
{
	const struct device_attach a = {
		.if_name = (char *)(uintptr_t)if_name, .keep_down = {.v = keep_down}};

	return link_give(&t.ends, MARK, &t.origin, &a, ret, &t.err);
}

static int give(const char *if_name, struct device_attach_result *ret)
{
	return give_so(if_name, false, ret);
}

static void give_ok(const char *if_name, const char *called, bool was_there)
{
	struct device_attach_result ret;

	OK(give(if_name, &ret));
	ck_assert_str_eq(ret.if_name, called);
	ck_assert(ret.was_there.set);
	ck_assert_int_eq(ret.was_there.v, was_there);
	free(ret.if_name);
	assert_in_pod(called);
}

static void give_fails(enum err_kind kind)
{
	struct device_attach_result ret;

	FAIL(give(NET1, &ret));
	ck_assert_msg(t.err.kind == kind, "%s", t.err.message);
	ck_assert_ptr_null(ret.if_name);
}

/* --- the log ------------------------------------------------------------------------------ */

static int log_fd = -1;

/* Each test is a process of its own, and what it logs from here on is looked at. */
static void log_capture(void)
{
	log_fd = memfd_create("log", MFD_CLOEXEC);
	ck_assert_int_ge(log_fd, 0);
	ck_assert_int_ge(dup2(log_fd, STDERR_FILENO), 0);
}

static const char *logged(void)
{
	static char text[16384];
	ssize_t n = pread(log_fd, text, sizeof(text) - 1, 0);

	ck_assert_int_ge(n, 0);
	text[n] = '\0';
	return text;
}

static void assert_logged(const char *what)
{
	ck_assert_msg(strstr(logged(), what), "no '%s' in: %s", what, logged());
}

static void assert_not_logged(const char *what)
{
	ck_assert_msg(!strstr(logged(), what), "'%s' in: %s", what, logged());
}

/* --- giving ------------------------------------------------------------------------------- */

/* One request, or, where the name is one of its own alternative names, several: it is moved, loses
 * that one, is renamed and brought up. */
static const struct {
	const char *if_name;
	int requests;
} ways[] = {{NET1, 1}, {"enp1s0v0", 4}};

START_TEST(give_moves_names_and_brings_up)
{
	give_ok(NET1, NET1, false);
	ck_assert(!has(&t.host, LINK));
}
END_TEST

START_TEST(giving_again_changes_nothing)
{
	give_ok(NET1, NET1, false);
	requests_reset(1, INT_MAX);
	give_ok(NET1, NET1, true);
	ck_assert_int_eq(requests.n, 0);
}
END_TEST

/* It is not finished until it is up, however often it is asked for. */
START_TEST(link_that_is_kept_down_is_brought_up_by_the_next_call)
{
	for (int i = 0; i < 2; i++) {
		cleanup_link_info struct link_info link = {0};
		struct device_attach_result ret;

		OK(give_so(NET1, true, &ret));
		ck_assert_str_eq(ret.if_name, NET1);
		ck_assert(!ret.was_there.v);
		free(ret.if_name);
		link = get(&t.pod, NET1);
		ck_assert(!link.up);
	}
	give_ok(NET1, NET1, false);
	give_ok(NET1, NET1, true);
	ck_assert_int_eq(take(), 0);
	assert_on_host();
}
END_TEST

START_TEST(link_renamed_by_the_pod_is_left_so)
{
	cleanup_link_info struct link_info link = {0};

	give_ok(NET1, NET1, false);
	link = get(&t.pod, NET1);
	OK(nl_link_set_up(&t.pod, link.ifindex, false, &t.err));
	OK(nl_link_set_name(&t.pod, link.ifindex, "mine", &t.err));
	OK(nl_link_set_up(&t.pod, link.ifindex, true, &t.err));
	give_ok(NET1, "mine", true);
}
END_TEST

START_TEST(link_renamed_on_the_host_is_found_by_its_mark)
{
	cleanup_link_info struct link_info link = get(&t.host, LINK);

	OK(nl_link_set_up(&t.host, link.ifindex, false, &t.err));
	OK(nl_link_set_name(&t.host, link.ifindex, "other", &t.err));
	give_ok(NET1, NET1, false);
}
END_TEST

START_TEST(missing_link_is_not_found)
{
	cleanup_link_info struct link_info link = get(&t.host, LINK);

	OK(nl_link_del(&t.host, link.ifindex, &t.err));
	give_fails(ERR_NOT_FOUND);
}
END_TEST

START_TEST(link_with_another_mark_is_not_touched)
{
	cleanup_link_info struct link_info link = get(&t.host, LINK);

	OK(nl_link_set_alias(&t.host, link.ifindex, "netclaim:another:vf0", &t.err));
	give_fails(ERR_NOT_FOUND);
	ck_assert(has(&t.host, LINK));
	ck_assert_int_eq(take(), 1);
	ck_assert(has(&t.host, LINK));
}
END_TEST

START_TEST(own_alternative_name_may_be_the_pods_name)
{
	give_ok("enp1s0v0", "enp1s0v0", false);
	ck_assert_int_eq(take(), 0);
	assert_on_host();
}
END_TEST

START_TEST(taken_name_brings_the_link_back)
{
	cleanup_link_info struct link_info link = {0};

	add_link(&t.pod, NET1, NULL, &link);
	give_fails(ERR_CONFLICT);
	assert_on_host();
	ck_assert(has(&t.pod, NET1));
}
END_TEST

/* The pod's link of the same name as ours has on the host is not in the way. */
START_TEST(name_on_the_host_may_be_taken_in_the_pod)
{
	cleanup_link_info struct link_info link = {0};

	add_link(&t.pod, LINK, NULL, &link);
	give_ok(NET1, NET1, false);
	ck_assert_int_eq(take(), 0);
	assert_on_host();
}
END_TEST

START_TEST(both_names_taken_in_the_pod_leave_the_link_on_the_host)
{
	cleanup_link_info struct link_info link = {0}, other = {0};

	add_link(&t.pod, LINK, NULL, &link);
	add_link(&t.pod, NET1, NULL, &other);
	give_fails(ERR_CONFLICT);
	assert_on_host();
}
END_TEST

START_TEST(alternative_name_taken_in_the_pod_leaves_the_link_on_the_host)
{
	cleanup_link_info struct link_info link = {0};

	add_link(&t.pod, "enp1s0v0", NULL, &link);
	give_fails(ERR_CONFLICT);
	assert_on_host();
}
END_TEST

static void take_name_in_pod(const char *name)
{
	requests.before_move = NULL;
	OK(nl_link_add(&t.pod, name, "bridge", 0, &t.err));
}

/* The kernel moves first and finds the name taken after that. */
START_TEST(name_taken_meanwhile_brings_the_link_back)
{
	struct device_attach_result ret;

	requests.before_move = take_name_in_pod;
	FAIL(give(ways[_i].if_name, &ret));
	ck_assert_int_eq(t.err.kind, ERR_CONFLICT);
	assert_on_host();
}
END_TEST

START_TEST(any_failing_request_brings_the_link_back)
{
	const char *if_name = ways[_i].if_name;

	for (int n = 1;; n++) {
		struct device_attach_result ret;
		int rc;

		requests_reset(n, n);
		rc = give(if_name, &ret);
		free(ret.if_name);
		if (rc == 0 && requests.n < n) {
			ck_assert_int_eq(requests.n, ways[_i].requests);
			break;
		}
		ck_assert_int_eq(rc, -1);
		ck_assert_int_eq(t.err.sys, EIO);
		assert_on_host();
	}
	assert_in_pod(if_name);
}
END_TEST

START_TEST(giving_after_a_crash_anywhere_finishes)
{
	const char *if_name = ways[_i].if_name;

	for (int n = 1;; n++) {
		struct device_attach_result ret;
		int rc;

		requests_reset(n, INT_MAX);
		rc = give(if_name, &ret);
		free(ret.if_name);
		requests_reset(0, 0);
		if (rc == 0) {
			ck_assert_int_gt(n, ways[_i].requests);
			break;
		}
		give_ok(if_name, if_name, false);
		ck_assert_int_eq(take(), 0);
		assert_on_host();
	}
}
END_TEST

START_TEST(taking_after_a_crash_while_giving_brings_back)
{
	for (int n = 1;; n++) {
		struct device_attach_result ret;
		bool done;

		requests_reset(n, INT_MAX);
		done = give(ways[_i].if_name, &ret) == 0;
		free(ret.if_name);
		requests_reset(0, 0);
		ck_assert_int_eq(take(), 0);
		/* before the first request it was not even set down */
		assert_on_host();
		if (done)
			break;
	}
}
END_TEST

START_TEST(failure_after_a_crash_brings_back_as_recorded)
{
	cleanup_link_info struct link_info link = {0};
	struct device_attach_result ret;

	requests_reset(2, INT_MAX);
	FAIL(give("enp1s0v0", &ret));
	requests_reset(0, 0);
	ck_assert(has_marked(&t.pod));
	add_link(&t.pod, NET1, NULL, &link);
	give_fails(ERR_CONFLICT);
	assert_on_host();
}
END_TEST

/* --- taking ------------------------------------------------------------------------------- */

/* What root in a pod may do to the link it was given. */
static void spoil(void)
{
	cleanup_link_info struct link_info link = get(&t.pod, NET1);
	int i = link.ifindex;

	OK(nl_link_set_up(&t.pod, i, false, &t.err));
	OK(nl_link_set_name(&t.pod, i, "spoilt", &t.err));
	OK(nl_link_set_number(&t.pod, i, LINK_MTU, 9000, &t.err));
	OK(nl_link_set_mac(&t.pod, i, "02:00:00:00:00:66", &t.err));
	OK(nl_link_set_number(&t.pod, i, LINK_TX_QUEUE_LEN, 5, &t.err));
	OK(nl_link_set_number(&t.pod, i, LINK_GROUP, 1, &t.err));
	OK(nl_link_set_number(&t.pod, i, LINK_GSO_MAX_SIZE, 65000, &t.err));
	OK(nl_link_set_number(&t.pod, i, LINK_GSO_MAX_SEGS, 99, &t.err));
	OK(nl_link_set_flags(&t.pod, i, IFF_NOARP, &t.err));
	OK(nl_link_del_altname(&t.pod, i, "enp1s0v0", &t.err));
	/* the host has one of this name */
	OK(nl_link_add_altname(&t.pod, i, "lo1", &t.err));
	OK(nl_link_set_up(&t.pod, i, true, &t.err));
}

START_TEST(take_restores_everything)
{
	cleanup_link_info struct link_info other = {0};

	add_link(&t.host, "lo1", NULL, &other);
	give_ok(NET1, NET1, false);
	spoil();
	ck_assert_int_eq(take(), 0);
	assert_on_host();
}
END_TEST

START_TEST(taking_after_a_crash_anywhere_restores)
{
	for (int n = 1;; n++) {
		bool done;

		give_ok(NET1, NET1, false);
		spoil();
		requests_reset(n, INT_MAX);
		done = take() == 0;
		requests_reset(0, 0);
		ck_assert_int_eq(take(), 0);
		assert_on_host();
		if (done)
			break;
		ck_assert_int_lt(n, 40);
	}
}
END_TEST

START_TEST(one_failure_does_not_keep_the_rest_from_being_restored)
{
	cleanup_link_info struct link_info link = {0};

	give_ok(NET1, NET1, false);
	spoil();
	requests_reset(5, 5); /* drop a name, down, rename, move; then the name */
	FAIL(take());
	ck_assert_int_eq(t.err.sys, EIO);
	ck_assert(!has(&t.host, LINK));
	OK(nl_link_get_by_index(&t.host, (int)t.origin.ifindex.v, &link, &t.err));
	ck_assert_int_eq(link.numbers[LINK_MTU], 1400);
	ck_assert_str_eq(link.mac, t.origin.mac);
	ck_assert_int_eq((int)link.altnames.n, 2);
	ck_assert_int_eq(take(), 0);
	assert_on_host();
}
END_TEST

/* The adapter's administrator has fixed it meanwhile. */
START_TEST(address_that_cannot_be_set_is_told_and_the_rest_restored)
{
	cleanup_link_info struct link_info link = {0};

	give_ok(NET1, NET1, false);
	spoil();
	requests.mac_sys = EADDRNOTAVAIL;
	ck_assert_int_eq(take(), 0);
	link = get(&t.host, LINK);
	ck_assert_str_eq(link.mac, "02:00:00:00:00:66");
	ck_assert_int_eq(link.numbers[LINK_MTU], 1400);
	ck_assert(link.up);
	requests.mac_sys = EBUSY; /* it may go the next time */
	FAIL(take());
	requests.mac_sys = 0;
	ck_assert_int_eq(take(), 0);
	assert_on_host();
}
END_TEST

START_TEST(taking_twice_leaves_the_host_alone)
{
	cleanup_link_info struct link_info link = {0};

	give_ok(NET1, NET1, false);
	ck_assert_int_eq(take(), 0);
	link = get(&t.host, LINK);
	OK(nl_link_set_up(&t.host, link.ifindex, true, &t.err));
	requests_reset(1, INT_MAX);
	ck_assert_int_eq(take(), 0);
	ck_assert_int_eq(requests.n, 0);
	assert_on_host();
}
END_TEST

START_TEST(taking_what_is_gone_says_so)
{
	cleanup_link_info struct link_info link = {0};

	give_ok(NET1, NET1, false);
	link = get(&t.pod, NET1);
	OK(nl_link_del(&t.pod, link.ifindex, &t.err));
	ck_assert_int_eq(take(), 1);
}
END_TEST

/* A device of a bus comes back by itself when the namespace ends, under the pod's name for
 * it. */
START_TEST(link_that_the_kernel_returned_gets_its_name_back)
{
	cleanup_link_info struct link_info link = {0};

	give_ok(NET1, NET1, false);
	link = get(&t.pod, NET1);
	/* in the way of its name */
	OK(nl_link_add_altname(&t.pod, link.ifindex, LINK, &t.err));
	OK(nl_link_move(&t.pod, link.ifindex, t.ends.host_netns_fd, NET1, 0, &t.err));
	ck_assert_int_eq(take(), 0);
	assert_on_host();
}
END_TEST

/* --- returned by the kernel --------------------------------------------------------------- */

/* The mark of another claim, one that is none, and no alias at all: the pod may have written each. */
static const char *const pods_aliases[] = {"netclaim:another:vf0", "netclaim:", "mine", ""};

/* As the kernel does when the namespace ends: the link has all that the pod left on it. */
static struct link_info return_as_kernel_does(const char *alias)
{
	struct link_info link;

	give_ok(NET1, NET1, false);
	spoil();
	link = get(&t.pod, "spoilt");
	OK(nl_link_set_up(&t.pod, link.ifindex, false, &t.err));
	OK(nl_link_set_alias(&t.pod, link.ifindex, alias, &t.err));
	OK(nl_link_move(&t.pod, link.ifindex, t.ends.host_netns_fd, "spoilt",
		(int)t.origin.ifindex.v, &t.err));
	link_info_fini(&link);
	return get(&t.host, "spoilt");
}

static int reclaim(const char *name)
{
	cleanup_link_info struct link_info link = get(&t.host, name);

	return link_reclaim(&t.host, &link, MARK, &t.origin, &t.err);
}

START_TEST(reclaiming_restores_everything_whatever_the_alias)
{
	cleanup_link_info struct link_info link = return_as_kernel_does(pods_aliases[_i]);

	OK(link_reclaim(&t.host, &link, MARK, &t.origin, &t.err));
	assert_on_host();
	requests_reset(1, INT_MAX);
	OK(reclaim(LINK));
	ck_assert_int_eq(requests.n, 0);
}
END_TEST

START_TEST(reclaiming_after_a_crash_anywhere_restores)
{
	for (int n = 1;; n++) {
		cleanup_link_info struct link_info link = return_as_kernel_does("mine");
		bool done;

		requests_reset(n, INT_MAX);
		done = link_reclaim(&t.host, &link, MARK, &t.origin, &t.err) == 0;
		requests_reset(0, 0);
		OK(reclaim(has(&t.host, LINK) ? LINK : "spoilt"));
		assert_on_host();
		if (done)
			break;
		ck_assert_int_lt(n, 40);
	}
}
END_TEST

START_TEST(link_of_another_kind_is_not_reclaimed)
{
	cleanup_link_info struct link_info link = {0}, now = {0};

	OK(nl_link_add(&t.host, "other", "bridge", 0, &t.err));
	link = get(&t.host, "other");
	FAIL(link_reclaim(&t.host, &link, MARK, &t.origin, &t.err));
	ck_assert_int_eq(t.err.kind, ERR_CONFLICT);
	now = get(&t.host, "other");
	ck_assert_str_eq(now.alias, "");
}
END_TEST

/* The link on the host that has another name than its own: one that nothing has. */
static struct link_info get_renamed(void)
{
	struct link_info link;

	OK(nl_link_get_by_index(&t.host, (int)t.origin.ifindex.v, &link, &t.err));
	ck_assert_str_eq(link.alias, MARK);
	ck_assert_uint_eq(strlen(link.name), IFNAMSIZ - 1);
	ck_assert_msg(strncmp(link.name, "nc", 2) == 0, "%s", link.name);
	return link;
}

START_TEST(link_whose_name_is_taken_comes_back_under_another)
{
	cleanup_link_info struct link_info other = {0}, link = {0};

	give_ok(NET1, NET1, false);
	spoil();
	add_link(&t.host, LINK, NULL, &other);
	log_capture();
	ck_assert_int_eq(take(), 0);
	assert_logged("name is nc");
	assert_logged("was vf0");
	link = get_renamed();
	ck_assert_int_eq(link.numbers[LINK_MTU], 1400);
	ck_assert_str_eq(link.mac, t.origin.mac);
	ck_assert(link.up);
	ck_assert_int_eq(take(), 0);
	OK(nl_link_del(&t.host, other.ifindex, &t.err));
	ck_assert_int_eq(take(), 0);
	assert_on_host();
}
END_TEST

START_TEST(name_of_the_pods_is_not_left_on_a_link_that_is_reclaimed)
{
	cleanup_link_info struct link_info other = {0}, link = return_as_kernel_does("mine"),
					   renamed = {0};

	add_link(&t.host, LINK, NULL, &other);
	OK(link_reclaim(&t.host, &link, MARK, &t.origin, &t.err));
	ck_assert(!has(&t.host, "spoilt"));
	renamed = get_renamed();
	OK(reclaim(renamed.name));
	ck_assert(has(&t.host, renamed.name));
	OK(nl_link_del(&t.host, other.ifindex, &t.err));
	OK(reclaim(renamed.name));
	assert_on_host();
}
END_TEST

static const char *const dressed_altnames[] = {"enp1s0v0", "a-name-longer-than-fifteen-bytes"};

START_TEST(link_comes_back_without_an_alternative_name_that_is_taken)
{
	cleanup_link_info struct link_info other = {0}, link = {0};

	give_ok(NET1, NET1, false);
	add_link(&t.host, "taker", NULL, &other);
	OK(nl_link_add_altname(&t.host, other.ifindex, dressed_altnames[_i], &t.err));
	log_capture();
	ck_assert_int_eq(take(), 0);
	assert_logged("alternative name ");
	assert_logged(dressed_altnames[_i]);
	assert_logged(" is missing");
	link = get(&t.host, LINK);
	ck_assert_uint_eq(link.altnames.n, 1);
	ck_assert(!has_marked(&t.pod));
	OK(nl_link_del(&t.host, other.ifindex, &t.err));
	ck_assert_int_eq(take(), 0);
	assert_on_host();
}
END_TEST

/* --- values that the kernel refuses ------------------------------------------------------- */

static const int refusals[] = {
	EINVAL, ERANGE, EOPNOTSUPP, EPERM, EACCES, EADDRNOTAVAIL, EEXIST, ENOSPC, 524 /* ENOTSUPP */
};

/* Down, rename and move come first: before those the link is in the pod. */
START_TEST(any_value_that_is_refused_is_a_difference)
{
	for (int n = 5;; n++) {
		bool all;

		give_ok(NET1, NET1, false);
		spoil();
		requests_reset(n, n);
		requests.sys = refusals[_i];
		ck_assert_msg(take() == 0, "request %d: %s", n, t.err.message);
		ck_assert(!has_marked(&t.pod));
		ck_assert(has_marked(&t.host));
		all = requests.n < n;
		requests_reset(0, 0);
		ck_assert_int_eq(take(), 0); /* as when the claim is freed: all is tried again */
		assert_on_host();
		if (all)
			break;
		ck_assert_int_lt(n, 40);
	}
}
END_TEST

START_TEST(refused_for_good_it_is_back_all_the_same)
{
	give_ok(NET1, NET1, false);
	spoil();
	requests_reset(5, INT_MAX);
	requests.sys = EINVAL;
	log_capture();
	ck_assert_int_eq(take(), 0);
	assert_logged("mtu is 9000, was 1400");
	assert_logged("txqlen is 5, was 77");
	assert_logged("Invalid argument");
	ck_assert(has_marked(&t.host));
}
END_TEST

/* The kernel's own answer. */
START_TEST(mtu_that_the_link_cannot_have_any_more)
{
	cleanup_link_info struct link_info link = {0};

	give_ok(NET1, NET1, false);
	t.origin.numbers[LINK_MTU].v = 1 << 20;
	log_capture();
	ck_assert_int_eq(take(), 0);
	assert_logged("mtu is 1400, was 1048576");
	assert_logged("mtu greater than device maximum");
	link = get(&t.host, LINK);
	ck_assert(link.up);
}
END_TEST

START_TEST(what_could_not_be_done_is_a_failure)
{
	static const int failures[] = {EBUSY, EAGAIN, EIO, ENOMEM, ETIMEDOUT};

	for (size_t i = 0; i < ARRAY_SIZE(failures); i++) {
		give_ok(NET1, NET1, false);
		spoil();
		requests_reset(5, 5);
		requests.sys = failures[i];
		FAIL(take());
		ck_assert_int_eq(t.err.sys, failures[i]);
		requests_reset(0, 0);
		ck_assert_int_eq(take(), 0);
		assert_on_host();
	}
}
END_TEST

START_TEST(link_of_another_kind_is_not_let_out)
{
	cleanup_link_info struct link_info link = {0}, forged = {0};

	give_ok(NET1, NET1, false);
	link = get(&t.pod, NET1);
	OK(nl_link_set_alias(&t.pod, link.ifindex, "", &t.err));
	OK(nl_link_add(&t.pod, "forged", "bridge", 0, &t.err));
	forged = get(&t.pod, "forged");
	OK(nl_link_set_alias(&t.pod, forged.ifindex, MARK, &t.err));
	ck_assert_int_eq(take(), 1);
	ck_assert(has(&t.pod, "forged"));
	ck_assert(has(&t.pod, NET1));
}
END_TEST

/* udev names what arrives, at the same time as we do. */
static void add_altname_meanwhile(void)
{
	cleanup_link_info struct link_info link = {0};
	struct err err;

	if (link_find(&t.host, MARK, &t.origin, &link, &err) == 0)
		(void)__real_nl_link_add_altname(&t.host, link.ifindex, "enp1s0v0", &err);
}

START_TEST(alternative_name_given_by_udev_meanwhile_is_welcome)
{
	give_ok(NET1, NET1, false);
	spoil();
	requests.before = add_altname_meanwhile;
	OK(take());
	assert_on_host();
}
END_TEST

/* --- names and records -------------------------------------------------------------------- */

static int check_name(const char *name, const char *claim_uid)
{
	struct name_list list = {0};
	int rc;

	strlist_add(&list.names, "free");
	strlist_add(&list.names, name);
	strlist_add(&list.claim_uids, claim_uid);
	rc = link_check_names(&t.pod, &list, &t.err);
	strlist_fini(&list.names);
	strlist_fini(&list.claim_uids);
	return rc;
}

START_TEST(names_in_the_pod_collide)
{
	cleanup_link_info struct link_info link = {0};

	add_link(&t.pod, "eth0", NULL, &link);
	OK(nl_link_add_altname(&t.pod, link.ifindex, "alt0", &t.err));
	OK(check_name(NET1, UID));
	FAIL(check_name("eth0", UID));
	ck_assert_int_eq(t.err.kind, ERR_CONFLICT);
	ck_assert_str_eq(t.err.message,
		"interface name collision: \"eth0\" already exists in pod namespace (possibly "
		"from CNI)");
	FAIL(check_name("alt0", UID));
	ck_assert_int_eq(t.err.kind, ERR_CONFLICT);
	give_ok(NET1, NET1, false);
	OK(check_name(NET1, UID));
	FAIL(check_name(NET1, "another"));
}
END_TEST

START_TEST(marks_of_unknown_claims_are_leftovers)
{
	static const char *const aliases[] = {"netclaim:lost:vf1", "netclaim:" UID ":vf2",
		"netclaim:no device", "somebody's"};
	cleanup_link_list struct link_list found = {0};
	struct strlist known = {0};

	for (size_t i = 0; i < ARRAY_SIZE(aliases); i++) {
		cleanup_link_info struct link_info link = {0};
		char name[IFNAMSIZ];

		(void)snprintf(name, sizeof(name), "some%zu", i);
		add_link(&t.host, name, aliases[i], &link);
	}
	strlist_add(&known, "another");
	strlist_add(&known, UID);
	OK(link_find_leftovers(&t.host, &known, &found, &t.err));
	ck_assert_uint_eq(found.n, 1);
	ck_assert_str_eq(found.v[0].name, "some0");
	link_list_fini(&found);
	OK(link_find_leftovers(&t.pod, &known, &found, &t.err));
	ck_assert_uint_eq(found.n, 0);
	strlist_fini(&known);
}
END_TEST

START_TEST(mark_is_read_as_it_was_written)
{
	static const char *const bad[] = {"", "netclaim", "netclaim:", "netclaim:1f0c",
		"netclaim:1f0c:", "netclaim::dummy0",
		"netclaim:1f0c:dummy0:", "netclaim:1f0c:dummy0:s1:x", "netclaim:1 c:dummy0",
		"netclaim:1f0c:Dummy0", "Netclaim:1f0c:dummy0",
		"netclaim:0123456789012345678901234567890123456789012345678901234567890123:d"};
	struct link_mark mark;

	ck_assert(link_mark_parse("netclaim:1f0c:dummy0", &mark, NULL));
	ck_assert_str_eq(mark.claim_uid, "1f0c");
	ck_assert_str_eq(mark.device, "dummy0");
	ck_assert_str_eq(mark.share_id, "");
	ck_assert(link_mark_parse("netclaim:1f0c:dummy0:s1", &mark, NULL));
	ck_assert_str_eq(mark.share_id, "s1");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_msg(!link_mark_parse(bad[i], &mark, NULL), "%s", bad[i]);
}
END_TEST

START_TEST(mark_names_the_allocation)
{
	struct device device = {.name = (char[]){"dummy0"}};
	struct device_alloc a = {.device = &device, .claim_uid = (char[]){"1f0c"}};
	char mark[LINK_MARK_SIZE];

	link_mark_format(&a, mark);
	ck_assert_str_eq(mark, "netclaim:1f0c:dummy0");
	a.share_id = (char[]){"s1"};
	link_mark_format(&a, mark);
	ck_assert_str_eq(mark, "netclaim:1f0c:dummy0:s1");
}
END_TEST

START_TEST(origin_survives_the_claims_status)
{
	json_t *tree = rec_encode(&rec_link_origin, &t.origin);
	struct link_origin back = {0};

	ck_assert_str_eq(json_string_value(json_object_get(tree, "Name")), LINK);
	OK(rec_decode(&rec_link_origin, tree, REC_LENIENT, "", NULL, &back, &t.err));
	ck_assert(rec_equal(&rec_link_origin, &t.origin, &back));
	rec_fini(&rec_link_origin, &back);
	json_array_append_new(json_object_get(tree, "AltNames"),
		json_string(
			"a-name-that-is-longer-than-the-127-bytes-that-the-kernel-allows-for-"
			"all-that-is-an-"
			"an-alternative-name-and-that-would-not-fit-into-its-message"));
	FAIL(rec_decode(&rec_link_origin, tree, REC_LENIENT, "", NULL, &back, &t.err));
	ck_assert_int_eq(t.err.kind, ERR_INVALID);
	json_decref(tree);
}
END_TEST

/* The kernel takes any bytes for an alias or a name, and a record is text. */
static const struct {
	const char *bytes, *text;
} encodings[] = {
	{"uplink of rack 7", "uplink of rack 7"},
	{"caf\xc3\xa9 \\ x", "caf\xc3\xa9 \\ x"},
	{"caf\xe9", "\\x636166e9"},
	{"\\x41", "\\x5c783431"},
	{"\xff", "\\xff"},
	{"", ""},
};

START_TEST(bytes_survive_as_text)
{
	char back[LINK_ALIAS_SIZE];

	for (size_t i = 0; i < ARRAY_SIZE(encodings); i++) {
		cleanup_free char *text = link_text_encode(encodings[i].bytes);

		ck_assert_str_eq(text, encodings[i].text);
		link_text_decode(text, back, sizeof(back));
		ck_assert_str_eq(back, encodings[i].bytes);
	}
	link_text_decode("\\x4142zz", back, sizeof(back));
	ck_assert_str_eq(back, "AB");
	link_text_decode("\\x414", back, sizeof(back));
	ck_assert_str_eq(back, "A");
	link_text_decode("\\x414200", back, 2);
	ck_assert_str_eq(back, "A");
}
END_TEST

START_TEST(alias_and_alternative_name_that_are_no_text_come_back)
{
	cleanup_link_info struct link_info link = get(&t.host, LINK), now = {0};
	static char altname[] = "alt\xe9", alias[LINK_ALIAS_SIZE];
	struct link_origin before, origin = {0};
	json_t *tree;

	memset(alias, 0xe9, sizeof(alias) - 1);
	OK(nl_link_set_alias(&t.host, link.ifindex, alias, &t.err));
	OK(nl_link_add_altname(&t.host, link.ifindex, altname, &t.err));
	link_info_fini(&link);
	link = get(&t.host, LINK);
	OK(link_origin_of(&t.host, &link, &before, &t.err));
	tree = rec_encode(&rec_link_origin, &before);
	OK(rec_decode(&rec_link_origin, tree, REC_LENIENT, "", NULL, &origin, &t.err));
	json_decref(tree);
	OK(nl_link_set_alias(&t.host, link.ifindex, MARK, &t.err));
	rec_fini(&rec_link_origin, &t.origin);
	t.origin = origin;
	give_ok(NET1, NET1, false);
	OK(nl_link_del_altname(&t.pod, link.ifindex, altname, &t.err));
	log_capture();
	ck_assert_int_eq(take(), 0);
	assert_not_logged("not all of it is as it was");
	ck_assert_int_eq(link_release(&t.host, MARK, &t.origin, &t.err), 0);
	now = get(&t.host, LINK);
	ck_assert_str_eq(now.alias, alias);
	ck_assert(strlist_has(&now.altnames, altname));
	rec_fini(&rec_link_origin, &before);
}
END_TEST

/* The pod has renamed it to what is no text: it is attached, and called by its name of before. */
START_TEST(name_that_is_no_text_is_not_answered)
{
	cleanup_link_info struct link_info link = {0};
	struct device_attach_result ret;

	give_ok(NET1, NET1, false);
	link = get(&t.pod, NET1);
	OK(nl_link_set_up(&t.pod, link.ifindex, false, &t.err));
	OK(nl_link_set_name(&t.pod, link.ifindex, "m\xe9", &t.err));
	OK(nl_link_set_up(&t.pod, link.ifindex, true, &t.err));
	OK(give(NET1, &ret));
	ck_assert_str_eq(ret.if_name, NET1);
	ck_assert(ret.was_there.v);
	free(ret.if_name);
}
END_TEST

/* --- another boot ------------------------------------------------------------------------- */

/* As after a reboot: the record is an earlier boot's, and the number and the address are new. */
static void make_new(const char *boot)
{
	cleanup_link_info struct link_info link = get(&t.host, LINK);

	free(t.origin.boot);
	t.origin.boot = xstrdup(boot);
	free(t.origin.mac);
	t.origin.mac = xstrdup("02:00:00:00:00:43");
	t.origin.ifindex.v = link.ifindex + 1000;
}

START_TEST(what_a_new_boot_makes_new_is_not_compared)
{
	cleanup_link_info struct link_info link = {0};

	make_new("1f0c1f0c-0000-4000-8000-000000000000");
	log_capture();
	OK(link_release(&t.host, MARK, &t.origin, &t.err));
	assert_not_logged("not all of it is as it was");
	link = get(&t.host, LINK);
	ck_assert_str_eq(link.mac, "02:00:00:00:00:42");
	ck_assert_str_eq(link.alias, "");
}
END_TEST

START_TEST(after_another_boot_the_rest_is_compared)
{
	make_new("1f0c1f0c-0000-4000-8000-000000000000");
	t.origin.numbers[LINK_MTU].v = 1 << 20;
	give_ok(NET1, NET1, false);
	requests.mac_sys = EADDRNOTAVAIL;
	log_capture();
	ck_assert_int_eq(take(), 0);
	assert_logged("mtu is 1400, was 1048576");
	assert_not_logged("address is");
	assert_not_logged("ifindex is");
}
END_TEST

START_TEST(in_the_same_boot_all_is_compared)
{
	ck_assert_uint_eq(strlen(link_boot()), 36);
	make_new(link_boot());
	requests.mac_sys = EADDRNOTAVAIL;
	log_capture();
	OK(link_release(&t.host, MARK, &t.origin, &t.err));
	assert_logged("address is 02:00:00:00:00:42, was 02:00:00:00:00:43");
	assert_logged("ifindex is ");
}
END_TEST

/* ------------------------------------------------------------------------------------------ */

static Suite *suite(void)
{
	Suite *s = suite_create("link_move");
	TCase *c = tcase_create("two namespaces");

	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_set_timeout(c, 60);
	tcase_add_test(c, give_moves_names_and_brings_up);
	tcase_add_test(c, giving_again_changes_nothing);
	tcase_add_test(c, link_that_is_kept_down_is_brought_up_by_the_next_call);
	tcase_add_test(c, link_renamed_by_the_pod_is_left_so);
	tcase_add_test(c, link_renamed_on_the_host_is_found_by_its_mark);
	tcase_add_test(c, missing_link_is_not_found);
	tcase_add_test(c, link_with_another_mark_is_not_touched);
	tcase_add_test(c, own_alternative_name_may_be_the_pods_name);
	tcase_add_test(c, taken_name_brings_the_link_back);
	tcase_add_test(c, name_on_the_host_may_be_taken_in_the_pod);
	tcase_add_test(c, both_names_taken_in_the_pod_leave_the_link_on_the_host);
	tcase_add_test(c, alternative_name_taken_in_the_pod_leaves_the_link_on_the_host);
	tcase_add_loop_test(c, name_taken_meanwhile_brings_the_link_back, 0, ARRAY_SIZE(ways));
	tcase_add_loop_test(c, any_failing_request_brings_the_link_back, 0, ARRAY_SIZE(ways));
	tcase_add_loop_test(c, giving_after_a_crash_anywhere_finishes, 0, ARRAY_SIZE(ways));
	tcase_add_loop_test(
		c, taking_after_a_crash_while_giving_brings_back, 0, ARRAY_SIZE(ways));
	tcase_add_test(c, failure_after_a_crash_brings_back_as_recorded);
	tcase_add_test(c, take_restores_everything);
	tcase_add_test(c, taking_after_a_crash_anywhere_restores);
	tcase_add_test(c, one_failure_does_not_keep_the_rest_from_being_restored);
	tcase_add_test(c, address_that_cannot_be_set_is_told_and_the_rest_restored);
	tcase_add_test(c, taking_twice_leaves_the_host_alone);
	tcase_add_test(c, taking_what_is_gone_says_so);
	tcase_add_test(c, link_that_the_kernel_returned_gets_its_name_back);
	tcase_add_loop_test(c, reclaiming_restores_everything_whatever_the_alias, 0,
		ARRAY_SIZE(pods_aliases));
	tcase_add_test(c, reclaiming_after_a_crash_anywhere_restores);
	tcase_add_test(c, link_of_another_kind_is_not_reclaimed);
	tcase_add_test(c, link_whose_name_is_taken_comes_back_under_another);
	tcase_add_test(c, name_of_the_pods_is_not_left_on_a_link_that_is_reclaimed);
	tcase_add_loop_test(c, link_comes_back_without_an_alternative_name_that_is_taken, 0,
		ARRAY_SIZE(dressed_altnames));
	tcase_add_loop_test(
		c, any_value_that_is_refused_is_a_difference, 0, ARRAY_SIZE(refusals));
	tcase_add_test(c, refused_for_good_it_is_back_all_the_same);
	tcase_add_test(c, mtu_that_the_link_cannot_have_any_more);
	tcase_add_test(c, what_could_not_be_done_is_a_failure);
	tcase_add_test(c, link_of_another_kind_is_not_let_out);
	tcase_add_test(c, alternative_name_given_by_udev_meanwhile_is_welcome);
	tcase_add_test(c, names_in_the_pod_collide);
	tcase_add_test(c, marks_of_unknown_claims_are_leftovers);
	tcase_add_test(c, mark_is_read_as_it_was_written);
	tcase_add_test(c, mark_names_the_allocation);
	tcase_add_test(c, origin_survives_the_claims_status);
	tcase_add_test(c, bytes_survive_as_text);
	tcase_add_test(c, alias_and_alternative_name_that_are_no_text_come_back);
	tcase_add_test(c, name_that_is_no_text_is_not_answered);
	tcase_add_test(c, what_a_new_boot_makes_new_is_not_compared);
	tcase_add_test(c, after_another_boot_the_rest_is_compared);
	tcase_add_test(c, in_the_same_boot_all_is_compared);
	suite_add_tcase(s, c);
	return s;
}

int main(void)
{
	if (geteuid() != 0) {
		return unit_skip("test_link_move", "making network namespaces needs root");
	}
	return unit_run_forked(suite()); /* the tests change namespace and log */
}
