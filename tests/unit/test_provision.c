/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Provisioning, on a sysfs made of files, by the real child. A driver that hangs is a lease on
 * the file: whoever opens it for writing waits until that is given up. The child's write can
 * fail as that of a physical function does which somebody else was faster with, or is broken.
 */
#include "dmgr-sriov/provision.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/log.h"
#include "draplugind/tree.h"
#include "tests/unit/unit.h"

#define PF0        "0000:01:00.0"
#define PF1        "0000:02:00.0"
#define PLAIN      "0000:03:00.0" /* an adapter that cannot have any */
#define WAIT_MS    60000          /* for an answer that does come */
#define NO_WAIT_MS 30             /* for one that does not */

/* --- a sysfs ------------------------------------------------------------------------------ */

static char top[32];
static int sys_fd = -1;

static int open_file(const char *path, int flags)
{
	const int fd = openat(sys_fd, path, flags | O_CLOEXEC, 0644);

	ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
	return fd;
}

static void put(const char *addr, const char *name, const char *text)
{
	cleanup_free char *path = xasprintf("bus/pci/devices/%s/%s", addr, name);
	cleanup_close int fd = open_file(path, O_WRONLY | O_CREAT | O_TRUNC);

	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

static void make_dir(const char *path)
{
	ck_assert_msg(mkdirat(sys_fd, path, 0755) == 0, "%s: %s", path, strerror(errno));
}

static void add_device(const char *addr, const char *if_name)
{
	cleanup_free char *device = xasprintf("bus/pci/devices/%s", addr);
	cleanup_free char *net = xasprintf("%s/net", device);
	cleanup_free char *link = xasprintf("%s/%s", net, if_name);

	make_dir(device);
	make_dir(net);
	make_dir(link);
}

static void add_pf(const char *addr, const char *if_name, const char *total, const char *num)
{
	add_device(addr, if_name);
	put(addr, "sriov_totalvfs", total);
	put(addr, "sriov_numvfs", num);
}

static char *get(const char *addr, const char *name)
{
	cleanup_free char *path = xasprintf("bus/pci/devices/%s/%s", addr, name);
	cleanup_buf struct buf text = BUF_INIT;
	struct err err;

	ck_assert_int_eq(tree_read(sys_fd, path, 64, &text, &err), 0);
	text.data[strcspn(text.data, "\n")] = '\0';
	return buf_take(&text);
}

static void assert_num_vfs(const char *addr, const char *should)
{
	cleanup_free char *is = get(addr, "sriov_numvfs");

	ck_assert_str_eq(is, should);
}

/* --- the child ---------------------------------------------------------------------------- */

static struct provisioner *provisioner;
static int child = -1; /* a pidfd */
static pid_t child_pid;
static bool is_beaten; /* each write finds that it has been done already */
static bool is_broken; /* each write fails, and nothing is written */

ssize_t __real_write(int fd, const void *data, size_t len);
ssize_t __wrap_write(int fd, const void *data, size_t len);

ssize_t __wrap_write(int fd, const void *data, size_t len)
{
	ssize_t n = -1;

	errno = EIO;
	if (!is_broken)
		n = __real_write(fd, data, len);
	if (!is_beaten)
		return n;
	errno = EBUSY;
	return -1;
}

static void start(void)
{
	cleanup_close int fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
	struct err err = ERR_INIT;
	char text[32];
	ssize_t n;

	provisioner = provisioner_start(sys_fd, &err);
	ck_assert_msg(provisioner != NULL, "%s", err.message);
	ck_assert_int_ge(fd, 0);
	n = read(fd, text, sizeof(text) - 1);
	ck_assert_int_gt(n, 0);
	text[n] = '\0';
	child_pid = (pid_t)strtol(text, NULL, 10);
	ck_assert_int_gt(child_pid, 0);
	child = (int)syscall(SYS_pidfd_open, child_pid, 0);
	ck_assert_int_ge(child, 0);
}

static void wait_for_child(void)
{
	struct pollfd end = {.fd = child, .events = POLLIN};

	ck_assert_int_eq(poll(&end, 1, WAIT_MS), 1);
}

static void assert_child_is_gone(void)
{
	wait_for_child();
	/* A zombie would be returned. Not by its number: the kernel gives that up a moment later. */
	ck_assert_int_eq(waitpid(child_pid, NULL, 0), -1);
	ck_assert_int_eq(errno, ECHILD);
}

static void assert_child_lives(void)
{
	struct pollfd end = {.fd = child, .events = POLLIN};

	ck_assert_int_eq(poll(&end, 1, 0), 0);
}

/* --- provisioning ------------------------------------------------------------------------- */

static struct strlist notes;

static int ask(const struct provision_iface *ifaces, size_t n, unsigned wait_ms)
{
	strlist_fini(&notes);
	return provision(provisioner, sys_fd, ifaces, n, wait_ms, &notes);
}

static int ask_one(const char *if_name, unsigned count, unsigned wait_ms)
{
	return ask(&(const struct provision_iface){if_name, count, ""}, 1, wait_ms);
}

static void assert_note(size_t i, const char *should)
{
	ck_assert_uint_gt(notes.n, i);
	ck_assert_str_eq(notes.v[i], should);
}

static void assert_one_note(const char *should)
{
	assert_note(0, should);
	ck_assert_uint_eq(notes.n, 1);
}

static void setup(void)
{
	(void)snprintf(top, sizeof(top), "/tmp/test_provision-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(top));
	sys_fd = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(sys_fd, 0);
	make_dir("bus");
	make_dir("bus/pci");
	make_dir("bus/pci/devices");
	add_pf(PF0, "pf0", "4\n", "0\n");
	add_pf(PF1, "pf1", "2\n", "0\n");
	add_device(PLAIN, "eth0");
	is_beaten = false;
	is_broken = false;
}

static void teardown(void)
{
	struct err err;

	provisioner_end(provisioner);
	provisioner = NULL;
	if (child >= 0)
		wait_for_child();
	close_fd(&child);
	strlist_fini(&notes);
	close_fd(&sys_fd);
	ck_assert_int_eq(tree_remove(AT_FDCWD, top, &err), 0);
}

START_TEST(functions_are_made)
{
	start();
	ck_assert_int_eq(ask_one("pf0", 1, WAIT_MS), 0);
	ck_assert_uint_eq(notes.n, 0);
	assert_num_vfs(PF0, "1");
	assert_num_vfs(PF1, "0");
	assert_child_is_gone();
}
END_TEST

START_TEST(all_interfaces_are_served)
{
	const struct provision_iface ifaces[] = {{"pf0", 4, ""}, {"pf1", 2, ""}};

	start();
	ck_assert_int_eq(ask(ifaces, ARRAY_SIZE(ifaces), WAIT_MS), 0);
	ck_assert_uint_eq(notes.n, 0);
	assert_num_vfs(PF0, "4");
	assert_num_vfs(PF1, "2");
}
END_TEST

START_TEST(nothing_is_configured)
{
	start();
	ck_assert_int_eq(ask(NULL, 0, WAIT_MS), 0);
	ck_assert_uint_eq(notes.n, 0);
	assert_child_is_gone();
}
END_TEST

/* what the file says stays as it is, to the byte */
START_TEST(none_are_asked_for)
{
	put(PF0, "sriov_numvfs", "0 \n");
	start();
	ck_assert_int_eq(ask_one("pf0", 0, WAIT_MS), 0);
	ck_assert_uint_eq(notes.n, 0);
	assert_num_vfs(PF0, "0 ");
	assert_child_is_gone();
}
END_TEST

START_TEST(what_is_there_is_left_alone)
{
	put(PF0, "sriov_numvfs", "2\n");
	start();
	ck_assert_int_eq(ask_one("pf0", 2, WAIT_MS), 0);
	ck_assert_uint_eq(notes.n, 0);
	ck_assert_int_eq(ask_one("pf0", 1, WAIT_MS), 0);
	assert_one_note("interface pf0: has 2 virtual functions, which are left as they are, "
			"not 1 as configured; to have them made anew, remove them while no "
			"pod uses one: echo 0 > /sys/bus/pci/devices/" PF0
			"/sriov_numvfs, then restart dmgr-sriov");
	ck_assert_int_eq(ask_one("pf0", 0, WAIT_MS), 0);
	ck_assert_uint_eq(notes.n, 1);
	assert_num_vfs(PF0, "2");
}
END_TEST

static const struct {
	const char *if_name;
	unsigned count;
	const char *note;
} refused[] = {
	{"pf0", 5, "interface pf0: can have at most 4 virtual functions, not 5"},
	{"pf9", 1, "interface pf9: no PCI device has a link of this name"},
	{"eth0", 1, "interface eth0: its device " PLAIN " has no SR-IOV capability"},
};

/* and another interface is served all the same, before and behind it */
START_TEST(interface_is_refused)
{
	const struct provision_iface ifaces[] = {
		{"pf1", 2, ""}, {refused[_i].if_name, refused[_i].count, ""}, {"pf0", 3, ""}};
	const size_t n = strcmp(refused[_i].if_name, "pf0") == 0 ? 2 : 3;

	start();
	ck_assert_int_eq(ask(ifaces, n, WAIT_MS), 1);
	assert_one_note(refused[_i].note);
	assert_num_vfs(PF1, "2");
	assert_num_vfs(PF0, n == 3 ? "3" : "0");
	assert_child_lives();
}
END_TEST

START_TEST(all_that_is_wrong_is_told)
{
	const struct provision_iface ifaces[] = {{"pf9", 1, ""}, {"pf1", 1, ""}, {"pf0", 5, ""}};

	put(PF1, "sriov_numvfs", "2\n");
	start();
	ck_assert_int_eq(ask(ifaces, ARRAY_SIZE(ifaces), WAIT_MS), 1);
	ck_assert_uint_eq(notes.n, 3);
	assert_note(0, refused[1].note);
	ck_assert_ptr_nonnull(strstr(notes.v[1], "interface pf1: has 2 virtual functions"));
	assert_note(2, refused[0].note);
}
END_TEST

/* An adapter that comes later is provisioned then. */
START_TEST(it_goes_on_where_it_was)
{
	const struct provision_iface ifaces[] = {{"pf0", 1, ""}, {"pf2", 1, ""}};

	start();
	ck_assert_int_eq(ask(ifaces, ARRAY_SIZE(ifaces), WAIT_MS), 1);
	ck_assert_uint_eq(notes.n, 1);
	add_pf("0000:04:00.0", "pf2", "1\n", "0\n");
	ck_assert_int_eq(ask(ifaces, ARRAY_SIZE(ifaces), WAIT_MS), 0);
	ck_assert_uint_eq(notes.n, 0);
	assert_num_vfs("0000:04:00.0", "1");
	assert_child_is_gone();
}
END_TEST

/* --- the write fails ---------------------------------------------------------------------- */

START_TEST(write_is_refused)
{
	start();
	/* the child has no capability that would open it all the same */
	ck_assert_int_eq(fchmodat(sys_fd, "bus/pci/devices/" PF0 "/sriov_numvfs", 0444, 0), 0);
	ck_assert_int_eq(ask_one("pf0", 2, WAIT_MS), 1);
	assert_one_note("interface pf0: bus/pci/devices/" PF0
			"/sriov_numvfs: writing 2: Permission denied");
	assert_num_vfs(PF0, "0");
	assert_child_lives();
	ck_assert_int_eq(fchmodat(sys_fd, "bus/pci/devices/" PF0 "/sriov_numvfs", 0644, 0), 0);
	ck_assert_int_eq(ask_one("pf0", 2, WAIT_MS), 0);
	assert_num_vfs(PF0, "2");
}
END_TEST

/* A symbolic link is none of sysfs's. */
START_TEST(link_is_not_followed)
{
	cleanup_free char *elsewhere = NULL;

	start();
	put(PF0, "elsewhere", "0\n");
	ck_assert_int_eq(unlinkat(sys_fd, "bus/pci/devices/" PF0 "/sriov_numvfs", 0), 0);
	ck_assert_int_eq(
		symlinkat("elsewhere", sys_fd, "bus/pci/devices/" PF0 "/sriov_numvfs"), 0);
	ck_assert_int_eq(ask_one("pf0", 2, WAIT_MS), 1);
	assert_one_note("interface pf0: bus/pci/devices/" PF0
			"/sriov_numvfs: writing 2: Too many levels of symbolic links");
	elsewhere = get(PF0, "elsewhere");
	ck_assert_str_eq(elsewhere, "0");
}
END_TEST

START_TEST(somebody_was_faster)
{
	is_beaten = true;
	start();
	is_beaten = false;
	ck_assert_int_eq(ask_one("pf0", 2, WAIT_MS), 0);
	ck_assert_uint_eq(notes.n, 0);
	assert_num_vfs(PF0, "2");
}
END_TEST

/* "30" over "3" leaves another number than was asked for */
START_TEST(somebody_was_faster_with_another_number)
{
	put(PF0, "sriov_numvfs", "00\n");
	is_beaten = true;
	start();
	is_beaten = false;
	ck_assert_int_eq(ask_one("pf0", 3, WAIT_MS), 1);
	assert_one_note("interface pf0: bus/pci/devices/" PF0
			"/sriov_numvfs: writing 3: Device or resource busy");
}
END_TEST

/* --- the driver hangs --------------------------------------------------------------------- */

/* Until end_hang(). Whoever opens the file for reading does not wait. */
static int begin_hang(const char *addr)
{
	cleanup_free char *path = xasprintf("bus/pci/devices/%s/sriov_numvfs", addr);
	const int fd = open_file(path, O_RDONLY);

	(void)signal(SIGIO, SIG_IGN); /* the lease should be given up */
	ck_assert_int_eq(fcntl(fd, F_SETLEASE, F_RDLCK), 0);
	return fd;
}

static void end_hang(int *fd)
{
	ck_assert_int_eq(fcntl(*fd, F_SETLEASE, F_UNLCK), 0);
	close_fd(fd);
}

static const char hanging[] =
	"interface pf0: the driver of " PF0 " is not done yet with making 2 virtual functions";
static const char broken[] =
	"interface pf0: bus/pci/devices/" PF0 "/sriov_numvfs: writing 2: Input/output error";

START_TEST(driver_hangs)
{
	int hang = begin_hang(PF0);

	start();
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(ask_one("pf0", 2, NO_WAIT_MS), 1);
		assert_one_note(hanging);
		assert_num_vfs(PF0, "0");
	}
	assert_child_lives();
	end_hang(&hang);
	ck_assert_int_eq(ask_one("pf0", 2, WAIT_MS), 0);
	ck_assert_uint_eq(notes.n, 0);
	assert_num_vfs(PF0, "2");
	assert_child_is_gone();
}
END_TEST

/* The next interface waits for it; what needs no child is done. */
START_TEST(driver_of_one_interface_hangs)
{
	const struct provision_iface ifaces[] = {{"pf0", 2, ""}, {"pf1", 1, ""}, {"pf9", 1, ""}};
	int hang = begin_hang(PF0);

	start();
	ck_assert_int_eq(ask(ifaces, ARRAY_SIZE(ifaces), NO_WAIT_MS), 1);
	ck_assert_uint_eq(notes.n, 3);
	assert_note(0, hanging);
	assert_note(1, "interface pf1: the driver of " PF0
		       " is not done yet with making 2 virtual functions");
	assert_note(2, refused[1].note);
	assert_num_vfs(PF1, "0");
	end_hang(&hang);
	ck_assert_int_eq(ask(ifaces, 2, WAIT_MS), 0);
	assert_num_vfs(PF0, "2");
	assert_num_vfs(PF1, "1");
}
END_TEST

/* Nothing is configured any more, and then something else. */
START_TEST(child_is_kept_while_a_driver_hangs)
{
	int hang = begin_hang(PF0);

	start();
	ck_assert_int_eq(ask_one("pf0", 2, NO_WAIT_MS), 1);
	ck_assert_int_eq(ask(NULL, 0, NO_WAIT_MS), 0);
	end_hang(&hang);
	ck_assert_int_eq(ask_one("pf1", 1, WAIT_MS), 0);
	ck_assert_uint_eq(notes.n, 0);
	assert_num_vfs(PF1, "1");
	assert_child_is_gone();
}
END_TEST

/* When nobody waits for it any more. While it is being tried again, the reason stays. */
START_TEST(late_failure_is_told)
{
	const struct provision_iface ifaces[] = {{"pf0", 2, ""}, {"pf1", 1, ""}};
	int hang = begin_hang(PF0);

	is_broken = true;
	start();
	is_broken = false;
	ck_assert_int_eq(ask(ifaces, ARRAY_SIZE(ifaces), NO_WAIT_MS), 1);
	assert_note(0, hanging);
	end_hang(&hang);
	ck_assert_int_eq(ask(ifaces, ARRAY_SIZE(ifaces), WAIT_MS), 1);
	assert_note(0, broken);
	/* it was this one's turn */
	assert_note(1, "interface pf1: bus/pci/devices/" PF1
		       "/sriov_numvfs: writing 1: Input/output error");
	hang = begin_hang(PF0);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(ask_one("pf0", 2, NO_WAIT_MS), 1);
		assert_one_note(broken);
	}
	end_hang(&hang);
	assert_num_vfs(PF0, "0");
	assert_num_vfs(PF1, "0");
}
END_TEST

/* --- the child is gone -------------------------------------------------------------------- */

static const char no_child[] = "interface pf0: the process that makes virtual functions has "
			       "ended: restart dmgr-sriov";

START_TEST(child_was_killed)
{
	start();
	ck_assert_int_eq(kill(child_pid, SIGKILL), 0);
	assert_child_is_gone();
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(ask_one("pf0", 2, WAIT_MS), 1);
		assert_one_note(no_child);
	}
	assert_num_vfs(PF0, "0");
	/* who needs nothing has nothing to complain about */
	ck_assert_int_eq(ask_one("pf0", 0, WAIT_MS), 0);
}
END_TEST

START_TEST(child_was_killed_at_work)
{
	int hang = begin_hang(PF0);

	start();
	ck_assert_int_eq(ask_one("pf0", 2, NO_WAIT_MS), 1);
	ck_assert_int_eq(kill(child_pid, SIGKILL), 0);
	assert_child_is_gone();
	end_hang(&hang);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(ask_one("pf0", 2, WAIT_MS), 1);
		assert_one_note(no_child);
	}
	assert_num_vfs(PF0, "0");
}
END_TEST

START_TEST(child_ends_when_it_is_told)
{
	start();
	provisioner_end(provisioner);
	provisioner = NULL;
	assert_child_is_gone();
}
END_TEST

/* One that hangs as well. */
START_TEST(child_ends_with_its_parent)
{
	int hang = begin_hang(PF0), ends[2];
	pid_t parent;

	/* for the orphan, so that it leaves nothing behind */
	ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
	ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
	parent = fork();
	ck_assert_int_ge(parent, 0);
	if (parent == 0) {
		start();
		(void)ask_one("pf0", 2, NO_WAIT_MS);
		if (write(ends[1], &child_pid, sizeof(child_pid)) != sizeof(child_pid))
			_exit(EXIT_FAILURE);
		for (;;)
			(void)pause();
	}
	(void)close(ends[1]);
	ck_assert_int_eq(read(ends[0], &child_pid, sizeof(child_pid)), sizeof(child_pid));
	(void)close(ends[0]);
	child = (int)syscall(SYS_pidfd_open, child_pid, 0);
	ck_assert_int_ge(child, 0);
	assert_child_lives();
	ck_assert_int_eq(kill(parent, SIGKILL), 0);
	wait_for_child();
	ck_assert_int_eq(waitpid(parent, NULL, 0), parent);
	ck_assert_int_eq(waitpid(child_pid, NULL, 0), child_pid);
	end_hang(&hang);
}
END_TEST

/* --- the log ------------------------------------------------------------------------------ */

static size_t count_in_log(int log, const char *text)
{
	char all[8192];
	const ssize_t n = pread(log, all, sizeof(all) - 1, 0);
	size_t count = 0;

	ck_assert_int_ge(n, 0);
	all[n] = '\0';
	for (const char *at = strstr(all, text); at; at = strstr(at + 1, text))
		count++;
	return count;
}

START_TEST(each_problem_is_logged_once)
{
	cleanup_close int log = memfd_create("log", MFD_CLOEXEC);
	const int stderr_fd = dup(STDERR_FILENO);

	start();
	log_set_level(LOG_INFO);
	(void)dup2(log, STDERR_FILENO);
	for (int i = 0; i < 3; i++)
		(void)ask_one("pf0", 5, WAIT_MS);
	(void)ask_one("pf0", 1, WAIT_MS);
	(void)dup2(stderr_fd, STDERR_FILENO);
	(void)close(stderr_fd);
	log_set_level(LOG_ERROR);
	ck_assert_uint_eq(count_in_log(log, refused[0].note), 1);
	ck_assert_uint_eq(count_in_log(log, "1 virtual functions were made"), 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("provision");
	TCase *tcase = tcase_create("provision");

	log_init("test", LOG_ERROR);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, functions_are_made);
	tcase_add_test(tcase, all_interfaces_are_served);
	tcase_add_test(tcase, nothing_is_configured);
	tcase_add_test(tcase, none_are_asked_for);
	tcase_add_test(tcase, what_is_there_is_left_alone);
	tcase_add_loop_test(tcase, interface_is_refused, 0, (int)ARRAY_SIZE(refused));
	tcase_add_test(tcase, all_that_is_wrong_is_told);
	tcase_add_test(tcase, it_goes_on_where_it_was);
	tcase_add_test(tcase, write_is_refused);
	tcase_add_test(tcase, link_is_not_followed);
	tcase_add_test(tcase, somebody_was_faster);
	tcase_add_test(tcase, somebody_was_faster_with_another_number);
	tcase_add_test(tcase, driver_hangs);
	tcase_add_test(tcase, driver_of_one_interface_hangs);
	tcase_add_test(tcase, child_is_kept_while_a_driver_hangs);
	tcase_add_test(tcase, late_failure_is_told);
	tcase_add_test(tcase, child_was_killed);
	tcase_add_test(tcase, child_was_killed_at_work);
	tcase_add_test(tcase, child_ends_when_it_is_told);
	tcase_add_test(tcase, child_ends_with_its_parent);
	tcase_add_test(tcase, each_problem_is_logged_once);
	suite_add_tcase(suite, tcase);
	/* a child of each test's own */
	return unit_run_forked(suite);
}
