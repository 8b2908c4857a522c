/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Privileges: each test takes them on in a process of its own, which Check forks, and then
 * looks at itself through /proc and by trying what should no longer be possible.
 */
#include "common/privileges.h"

#include <cap-ng.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <uv.h>

#include "common/log.h"
#include "common/util.h"
#include "tests/unit/unit.h"

#define NOBODY  65534
#define MAX_FDS 128

static const int net_admin[] = {CAP_NET_ADMIN};
#define NET_ADMIN_MASK "0000000000001000"
#define NO_CAPS_MASK   "0000000000000000"

static const struct identity nobody = {NOBODY, NOBODY};

static const struct privileges nothing = {.program = "test", .max_fds = MAX_FDS};
static const struct privileges one_cap = {
	.program = "test", .caps = net_admin, .n_caps = 1, .max_fds = MAX_FDS};
static const struct privileges user_one_cap = {.program = "test",
	.own_user = true,
	.caps = net_admin,
	.n_caps = 1,
	.max_fds = MAX_FDS};
static const struct privileges user_nothing = {
	.program = "test", .own_user = true, .max_fds = MAX_FDS};

static void drop(const struct privileges *p, const struct identity *who)
{
	struct err err = ERR_INIT;

	ck_assert_msg(privileges_drop(p, who, &err) == 0, "%s", err.message);
}

static void drop_fails(
	const struct privileges *p, const struct identity *who, const char *message)
{
	struct err err = ERR_INIT;

	ck_assert_int_eq(privileges_drop(p, who, &err), -1);
	ck_assert_str_eq(err.message, message);
}

/* --- what /proc says -------------------------------------------------------------------------- */

static void read_fd(int fd, char *text, size_t size)
{
	ssize_t n = pread(fd, text, size - 1, 0);

	ck_assert_int_ge(n, 0);
	text[n] = '\0';
}

/* A line of a process's status: "CapEff:\t<value>\n". */
static void assert_status(const char *status, const char *name, const char *value)
{
	cleanup_free char *line = xasprintf("\n%s:\t%s\n", name, value);

	ck_assert_msg(strstr(status, line) != NULL, "%s is not %s in: %s", name, value, status);
}

static void assert_caps(const char *status, const char *mask)
{
	assert_status(status, "CapPrm", mask);
	assert_status(status, "CapEff", mask);
	assert_status(status, "CapInh", NO_CAPS_MASK);
	assert_status(status, "CapAmb", NO_CAPS_MASK);
	assert_status(status, "NoNewPrivs", "1");
}

static void read_own_status(char *status, size_t size)
{
	cleanup_close int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	read_fd(fd, status, size);
}

/* What a program sees of itself that this process executes. */
static void read_status_of_exec(char *status, size_t size)
{
	cleanup_close int out = memfd_create("status", MFD_CLOEXEC);
	int code;
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		(void)dup2(out, STDOUT_FILENO);
		(void)execl("/bin/cat", "cat", "/proc/self/status", (char *)NULL);
		_exit(127);
	}
	ck_assert_int_eq(waitpid(pid, &code, 0), pid);
	ck_assert_int_eq(code, 0);
	read_fd(out, status, size);
}

static void assert_limits(void)
{
	struct rlimit limit;

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_uint_eq(limit.rlim_cur, MAX_FDS);
	ck_assert_uint_eq(limit.rlim_max, MAX_FDS);
	ck_assert_int_eq(getrlimit(RLIMIT_CORE, &limit), 0);
	ck_assert_uint_eq(limit.rlim_max, 0);
	ck_assert_int_eq(prctl(PR_GET_DUMPABLE), 0);
}

/* capabilities(7): root is nobody special, and none of it can be undone. */
static void assert_secure_bits(void)
{
	ck_assert_int_eq(prctl(PR_GET_SECUREBITS),
		SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |
			SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED |
			SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED);
}

/* --- drop, started as root --------------------------------------------------------------------- */

START_TEST(root_keeps_nothing)
{
	const gid_t groups[] = {1, 2};
	char status[4096];

	ck_assert_int_eq(setgroups(ARRAY_SIZE(groups), groups), 0);
	drop(&nothing, NULL);
	read_own_status(status, sizeof(status));
	assert_caps(status, NO_CAPS_MASK);
	assert_status(status, "CapBnd", NO_CAPS_MASK);
	assert_status(status, "Uid", "0\t0\t0\t0");
	assert_status(status, "Gid", "0\t0\t0\t0");
	assert_status(status, "Groups", " ");
	assert_limits();
	assert_secure_bits();
	ck_assert_int_eq(setuid(NOBODY), -1);
	read_status_of_exec(status, sizeof(status));
	assert_caps(status, NO_CAPS_MASK);
}
END_TEST

START_TEST(root_keeps_its_table)
{
	char status[4096];

	drop(&one_cap, NULL);
	read_own_status(status, sizeof(status));
	assert_caps(status, NET_ADMIN_MASK);
	assert_status(status, "CapBnd", NET_ADMIN_MASK);
	assert_status(status, "Uid", "0\t0\t0\t0");
	read_status_of_exec(status, sizeof(status));
	assert_caps(status, NO_CAPS_MASK);
}
END_TEST

START_TEST(user_keeps_its_table)
{
	const gid_t groups[] = {1, 2};
	char status[4096];

	ck_assert_int_eq(setgroups(ARRAY_SIZE(groups), groups), 0);
	drop(&user_one_cap, &nobody);
	read_own_status(status, sizeof(status));
	assert_caps(status, NET_ADMIN_MASK);
	assert_status(status, "CapBnd", NET_ADMIN_MASK);
	assert_status(status, "Uid", "65534\t65534\t65534\t65534");
	assert_status(status, "Gid", "65534\t65534\t65534\t65534");
	assert_status(status, "Groups", " ");
	assert_limits();
	assert_secure_bits();
	ck_assert_int_eq(setresuid(0, 0, 0), -1);
	ck_assert_int_eq(setresgid(0, 0, 0), -1);
	read_status_of_exec(status, sizeof(status));
	assert_caps(status, NO_CAPS_MASK);
}
END_TEST

START_TEST(what_is_kept_is_logged)
{
	cleanup_close int log = memfd_create("log", MFD_CLOEXEC);
	char text[1024];

	log_set_level(LOG_INFO);
	(void)dup2(log, STDERR_FILENO);
	drop(&user_one_cap, &nobody);
	read_fd(log, text, sizeof(text));
	ck_assert_msg(
		strstr(text, ": privileges dropped caps=CAP_NET_ADMIN uid=65534 gid=65534\n"),
		"%s", text);
}
END_TEST

START_TEST(user_must_not_be_root)
{
	const struct identity root = {0, 0};

	drop_fails(&user_nothing, &root,
		"taking on the privileges of test: would stay root: choose another user, or "
		"start "
		"it as one");
}
END_TEST

/* A container that gives no CAP_SETPCAP: neither bounding set nor secure bits can be
 * changed. */
START_TEST(root_without_setpcap)
{
	char status[4096];

	ck_assert_int_eq(setgroups(0, NULL), 0);
	capng_clear(CAPNG_SELECT_CAPS);
	ck_assert_int_eq(
		capng_updatev(CAPNG_ADD, (capng_type_t)(CAPNG_EFFECTIVE | CAPNG_PERMITTED),
			CAP_NET_ADMIN, CAP_NET_RAW, -1),
		0);
	ck_assert_int_eq(capng_apply(CAPNG_SELECT_CAPS), 0);
	drop(&one_cap, NULL);
	read_own_status(status, sizeof(status));
	assert_caps(status, NET_ADMIN_MASK);
	read_status_of_exec(status, sizeof(status));
	assert_caps(status, NET_ADMIN_MASK);
}
END_TEST

/* A kernel that says yes and does nothing is found out. */
static const struct lie {
	const char *syscall;
	int option; /* of prctl, or 0 */
	const char *message;
} lies[] = {
	{"capset", 0, "permitted capabilities are CAP_CHOWN "},
	{"setresuid", 0, "users are 0, 0, 0 and should be 65534"},
	{"setresgid", 0, "groups are 0, 0, 0 and should be 65534"},
	{"setgroups", 0, "supplementary groups are left"},
	{"prctl", PR_SET_NO_NEW_PRIVS, "no_new_privs is 0 after it was set to 1"},
	{"prctl", PR_SET_SECUREBITS, "secure bits is 0 after it was set to "},
	{"prctl", PR_CAPBSET_DROP, "bounding capabilities are CAP_CHOWN "},
};

static void lie_about(const struct lie *lie)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	const struct scmp_arg_cmp option = {0, SCMP_CMP_EQ, (scmp_datum_t)lie->option, 0};

	ck_assert_ptr_nonnull(filter);
	ck_assert_int_eq(seccomp_attr_set(filter, SCMP_FLTATR_CTL_NNP, 0), 0);
	ck_assert_int_eq(seccomp_rule_add_array(filter, SCMP_ACT_ERRNO(0),
				 seccomp_syscall_resolve_name(lie->syscall),
				 lie->option ? 1 : 0, &option),
		0);
	ck_assert_int_eq(seccomp_load(filter), 0);
	seccomp_release(filter);
}

START_TEST(lie_is_found_out)
{
	const gid_t groups[] = {1, 2};
	struct err err = ERR_INIT;

	ck_assert_int_eq(setgroups(ARRAY_SIZE(groups), groups), 0);
	lie_about(&lies[_i]);
	ck_assert_int_eq(privileges_drop(&user_nothing, &nobody, &err), -1);
	ck_assert_msg(strstr(err.message, lies[_i].message) != NULL,
		"\"%s\" is not about \"%s\"", err.message, lies[_i].message);
}
END_TEST

/* --- drop, started as somebody else -------------------------------------------------------------- */

/* As a unit with User= and AmbientCapabilities= would start us. */
static void become_nobody_with(unsigned cap_a, unsigned cap_b)
{
	ck_assert_int_eq(prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0), 0);
	ck_assert_int_eq(setresgid(NOBODY, NOBODY, NOBODY), 0);
	ck_assert_int_eq(setresuid(NOBODY, NOBODY, NOBODY), 0);
	capng_clear(CAPNG_SELECT_CAPS);
	ck_assert_int_eq(
		capng_updatev(CAPNG_ADD,
			(capng_type_t)(CAPNG_EFFECTIVE | CAPNG_PERMITTED | CAPNG_INHERITABLE),
			cap_a, cap_b, -1),
		0);
	ck_assert_int_eq(capng_apply(CAPNG_SELECT_CAPS), 0);
	ck_assert_int_eq(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap_a, 0, 0), 0);
	ck_assert_int_eq(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, cap_b, 0, 0), 0);
}

START_TEST(user_drops_what_is_beyond)
{
	char status[4096];

	become_nobody_with(CAP_NET_ADMIN, CAP_NET_RAW);
	drop(&user_one_cap, NULL);
	read_own_status(status, sizeof(status));
	assert_caps(status, NET_ADMIN_MASK);
	assert_status(status, "Uid", "65534\t65534\t65534\t65534");
	assert_limits();
}
END_TEST

/* A table that stays root says what root would hold, not that uid 0 is needed. */
START_TEST(user_keeps_a_root_table)
{
	char status[4096];

	become_nobody_with(CAP_NET_ADMIN, CAP_NET_RAW);
	drop(&one_cap, NULL);
	read_own_status(status, sizeof(status));
	assert_caps(status, NET_ADMIN_MASK);
}
END_TEST

START_TEST(user_lacks_its_table)
{
	ck_assert_int_eq(setresuid(NOBODY, NOBODY, NOBODY), 0);
	drop_fails(&user_one_cap, &nobody,
		"taking on the privileges of test: needs CAP_NET_ADMIN: start it as root, or "
		"with "
		"AmbientCapabilities=CAP_NET_ADMIN");
}
END_TEST

/* --- drop, as anybody ------------------------------------------------------------------------------ */

/* Anybody may hold nothing. */
START_TEST(anybody_keeps_nothing)
{
	char status[4096];

	drop(&nothing, NULL);
	read_own_status(status, sizeof(status));
	assert_caps(status, NO_CAPS_MASK);
	assert_limits();
}
END_TEST

START_TEST(limit_leaves_room)
{
	const struct privileges few = {.program = "test", .max_fds = 3};

	drop_fails(&few, NULL,
		"taking on the privileges of test: opening a descriptor under the limit of 3: "
		"Too "
		"many open files");
	/* leave room for what a sanitizer opens at exit */
	(void)close(STDIN_FILENO);
}
END_TEST

START_TEST(lower_limit_stays)
{
	const struct rlimit lower = {MAX_FDS / 2, MAX_FDS / 2};
	struct rlimit limit;

	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &lower), 0);
	drop(&nothing, NULL);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_uint_eq(limit.rlim_cur, MAX_FDS / 2);
}
END_TEST

/* --- names --------------------------------------------------------------------------------------- */

static const struct identity_row {
	const char *text;
	struct identity id;
	const char *message; /* NULL: id is what it means */
} identity_rows[] = {
	{"root", {0, 0}, NULL},
	{"0", {0, 0}, NULL},
	{"root:5", {0, 5}, NULL},
	{"123456:654321", {123456, 654321}, NULL},
	{"7:root", {7, 0}, NULL},
	{"4294967294:0", {4294967294, 0}, NULL},
	{"4294967295:0", {0, 0}, "there is no user \"4294967295\""},
	{"-1:0", {0, 0}, "there is no user \"-1\""},
	{"123456", {0, 0}, "user 123456 has no entry that tells its group: say 123456:GROUP"},
	{"no such", {0, 0}, "there is no user \"no such\""},
	{"", {0, 0}, "there is no user \"\""},
	{":0", {0, 0}, "there is no user \"\""},
	{"0:", {0, 0}, "there is no group \"\""},
	{"0:no such", {0, 0}, "there is no group \"no such\""},
	{"0:0:0", {0, 0}, "there is no group \"0:0\""},
};

START_TEST(identity_is_parsed)
{
	const struct identity_row *r = &identity_rows[_i];
	struct identity id = {77, 77};
	struct err err = ERR_INIT;
	int got = identity_parse(r->text, &id, &err);

	if (r->message) {
		ck_assert_int_eq(got, -1);
		ck_assert_str_eq(err.message, r->message);
		ck_assert_uint_eq(id.uid, 77);
		return;
	}
	ck_assert_msg(got == 0, "%s", err.message);
	ck_assert_uint_eq(id.uid, r->id.uid);
	ck_assert_uint_eq(id.gid, r->id.gid);
}
END_TEST

START_TEST(group_is_parsed)
{
	struct err err = ERR_INIT;
	gid_t gid = 77;

	ck_assert_int_eq(group_parse("root", &gid, &err), 0);
	ck_assert_uint_eq(gid, 0);
	ck_assert_int_eq(group_parse("1234", &gid, &err), 0);
	ck_assert_uint_eq(gid, 1234);
	ck_assert_int_eq(group_parse("no such", &gid, &err), -1);
	ck_assert_str_eq(err.message, "there is no group \"no such\"");
	ck_assert_uint_eq(gid, 1234);
}
END_TEST

/* --- confine ------------------------------------------------------------------------------------- */

#ifndef NETCLAIM_SANITIZED

static void confine(const char *const *syscalls, size_t n)
{
	const struct privileges p = {
		.program = "test", .max_fds = MAX_FDS, .syscalls = syscalls, .n_syscalls = n};
	struct err err = ERR_INIT;

	drop(&p, NULL);
	ck_assert_msg(privileges_confine(&p, &err) == 0, "%s", err.message);
}

/* At a test's end Check looks for a clock with timer_create(), which is refused by now, and takes another
 * clock than at its beginning: what it calls the duration may be negative then, which it refuses. */
static void end_confined(void)
{
	_exit(0);
}

static void assert_refused(long r)
{
	ck_assert_int_eq(r, -1);
	ck_assert_int_eq(errno, EPERM);
}

static void *map(int prot)
{
	return mmap(NULL, 4096, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

START_TEST(confined_is_confined)
{
	struct rlimit limit = {0, 0};
	pid_t parent = getppid();
	void *page;
	int n = 0;

	confine(NULL, 0);
	assert_refused(open("/etc/passwd", O_RDONLY | O_CLOEXEC));
	assert_refused(unlink("/nonexistent"));
	assert_refused(mkdir("/nonexistent", 0700));
	assert_refused(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
	assert_refused(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0));
	assert_refused(kill(parent, 0));
	assert_refused(syscall(SYS_tgkill, parent, parent, 0));
	assert_refused(ioctl(STDIN_FILENO, TIOCSTI, "x"));
	assert_refused(unshare(0));
	assert_refused(setrlimit(RLIMIT_CORE, &limit));
	assert_refused(fork());
	assert_refused(prctl(PR_SET_DUMPABLE, 1));
	ck_assert_ptr_eq(map(PROT_READ | PROT_EXEC), MAP_FAILED);
	page = map(PROT_READ | PROT_WRITE);
	ck_assert_ptr_ne(page, MAP_FAILED);
	assert_refused(mprotect(page, 4096, PROT_READ | PROT_EXEC));
	ck_assert_int_eq(mprotect(page, 4096, PROT_READ), 0);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	ck_assert_int_ge(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), 0);
	ck_assert_int_eq(ioctl(eventfd(0, EFD_CLOEXEC), FIONBIO, &n), 0);
	end_confined();
}
END_TEST

START_TEST(table_widens)
{
	static const char *const syscalls[] = {"openat", "socket", "mmap", "execve", "ioctl"};

	confine(syscalls, ARRAY_SIZE(syscalls));
	ck_assert_int_ge(open("/proc/self/status", O_RDONLY | O_CLOEXEC), 0);
	ck_assert_int_ge(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, 0), 0);
	ck_assert_ptr_ne(map(PROT_READ | PROT_EXEC), MAP_FAILED);
	ck_assert_int_eq(syscall(SYS_execve, NULL, NULL, NULL), -1);
	ck_assert_int_eq(errno, EFAULT);
	ck_assert_int_eq(ioctl(-1, TIOCSTI, "x"), -1);
	ck_assert_int_eq(errno, EBADF);
	end_confined();
}
END_TEST

/* --- confine, and read files ---------------------------------------------------------------------- */

static void assert_can_read(int dir)
{
	cleanup_close int fd = openat(dir, "file", O_RDONLY | O_CLOEXEC);
	cleanup_close int up = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char text[16], entries[1024];
	struct stat st;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(read(fd, text, sizeof(text)), 4);
	ck_assert_mem_eq(text, "text", 4);
	ck_assert_int_ge(up, 0);
	ck_assert_int_gt(syscall(SYS_getdents64, up, entries, sizeof(entries)), 0);
	ck_assert_int_eq(readlinkat(dir, "link", text, sizeof(text)), 4);
	ck_assert_int_eq(fstatat(dir, "link", &st, AT_SYMLINK_NOFOLLOW), 0);
}

static void assert_cannot_change(int dir)
{
	static const int flags[] = {O_WRONLY, O_RDWR, O_WRONLY | O_CREAT, O_RDONLY | O_CREAT,
		O_RDONLY | O_TRUNC, O_WRONLY | O_TRUNC, O_WRONLY | O_APPEND,
		O_RDWR | O_TMPFILE | O_DIRECTORY, O_RDONLY | O_CREAT | O_EXCL};

	for (size_t i = 0; i < ARRAY_SIZE(flags); i++) {
		assert_refused(openat(dir, "file", flags[i] | O_CLOEXEC, 0600));
		assert_refused(openat(dir, "new", flags[i] | O_CLOEXEC, 0600));
	}
	assert_refused(syscall(SYS_openat2, dir, "file", NULL, 0));
	assert_refused(syscall(SYS_open, "/dev/null", O_RDONLY));
	assert_refused(syscall(SYS_creat, "/nonexistent/new", 0600));
	assert_refused(truncate("/nonexistent/file", 0));
	assert_refused(unlinkat(dir, "file", 0));
	assert_refused(mkdirat(dir, "new", 0700));
	assert_refused(renameat(dir, "file", dir, "new"));
	assert_refused(symlinkat("file", dir, "new"));
	assert_refused(linkat(dir, "file", dir, "new", 0));
	assert_refused(fchmodat(dir, "file", 0777, 0));
}

/* What the directory of a test holds in the end: a file "file" and a link "link". */
static void remove_dir(const char *path, int dir)
{
	struct stat st;

	ck_assert_int_eq(fstatat(dir, "file", &st, 0), 0);
	ck_assert_int_eq(st.st_size, 4);
	ck_assert_int_eq(unlinkat(dir, "file", 0), 0);
	ck_assert_int_eq(unlinkat(dir, "link", 0), 0);
	ck_assert_int_eq(rmdir(path), 0);
}

/* As a process of its own does it, since who is confined cannot tidy up. */
START_TEST(reader_reads_and_changes_nothing)
{
	const struct privileges p = {
		.program = "test", .max_fds = MAX_FDS, .reads_files = true};
	char path[] = "/tmp/test_privileges-XXXXXX";
	cleanup_close int dir = -1, file = -1;
	struct err err = ERR_INIT;
	int code;
	pid_t pid;

	ck_assert_ptr_nonnull(mkdtemp(path));
	dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	file = openat(dir, "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_eq(write(file, "text", 4), 4);
	ck_assert_int_eq(symlinkat("file", dir, "link"), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		drop(&p, NULL);
		ck_assert_msg(privileges_confine(&p, &err) == 0, "%s", err.message);
		assert_can_read(dir);
		assert_cannot_change(dir);
		_exit(EXIT_SUCCESS);
	}
	ck_assert_int_eq(waitpid(pid, &code, 0), pid);
	remove_dir(path, dir);
	ck_assert_int_eq(code, 0);
}
END_TEST

/* The C library starts a child by the older call then. */
START_TEST(clone3_is_unknown)
{
	static const char *const syscalls[] = {"clone", "wait4"};
	int code;
	pid_t pid;

	confine(syscalls, ARRAY_SIZE(syscalls));
	ck_assert_int_eq(syscall(SYS_clone3, NULL, 0), -1);
	ck_assert_int_eq(errno, ENOSYS);
	pid = fork();
	if (pid == 0)
		_exit(7);
	ck_assert_int_eq(waitpid(pid, &code, 0), pid);
	ck_assert_int_eq(WEXITSTATUS(code), 7);
	end_confined();
}
END_TEST

static const long deadly[] = {SYS_execve, SYS_execveat, SYS_ptrace, SYS_bpf, SYS_keyctl,
	SYS_add_key, SYS_request_key, SYS_process_vm_readv, SYS_process_vm_writev,
	SYS_kexec_load, SYS_init_module, SYS_finit_module, SYS_perf_event_open,
	SYS_userfaultfd};

START_TEST(deadly_call_kills)
{
	confine(NULL, 0);
	(void)syscall(deadly[_i], -1, 0, 0, 0, 0);
}
END_TEST

START_TEST(abort_works)
{
	confine(NULL, 0);
	abort();
}
END_TEST

START_TEST(unknown_name_is_told)
{
	static const char *const syscalls[] = {"openat", "opneat"};
	const struct privileges p = {.program = "test", .syscalls = syscalls, .n_syscalls = 2};
	struct err err = ERR_INIT;

	ck_assert_int_eq(privileges_confine(&p, &err), -1);
	ck_assert_str_eq(err.message, "confining test: there is no system call \"opneat\"");
	/* and nothing was confined */
	ck_assert_int_ge(open("/proc/self/status", O_RDONLY | O_CLOEXEC), 0);
}
END_TEST

static void on_signal(uv_signal_t *handle, int signum)
{
	(void)signum;
	uv_close((uv_handle_t *)handle, NULL);
}

static void on_timer(uv_timer_t *handle)
{
	uv_close((uv_handle_t *)handle, NULL);
	(void)raise(SIGTERM);
}

static void on_poll(uv_poll_t *handle, int status, int events)
{
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(events, UV_READABLE);
	uv_close((uv_handle_t *)handle, NULL);
}

/* An event loop needs nothing but what every daemon has. */
START_TEST(loop_runs_confined)
{
	uv_loop_t loop;
	uv_timer_t timer;
	uv_signal_t sigterm;
	uv_poll_t poll;
	int ends[2];

	confine(NULL, 0);
	ck_assert_int_eq(uv_loop_init(&loop), 0);
	ck_assert_int_eq(uv_timer_init(&loop, &timer), 0);
	ck_assert_int_eq(uv_timer_start(&timer, on_timer, 1, 0), 0);
	ck_assert_int_eq(uv_signal_init(&loop, &sigterm), 0);
	ck_assert_int_eq(uv_signal_start(&sigterm, on_signal, SIGTERM), 0);
	ck_assert_int_eq(
		socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
	ck_assert_int_eq(uv_poll_init(&loop, &poll, ends[0]), 0);
	ck_assert_int_eq(uv_poll_start(&poll, UV_READABLE, on_poll), 0);
	ck_assert_int_eq(send(ends[1], "x", 1, MSG_NOSIGNAL), 1);
	ck_assert_int_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
	ck_assert_int_eq(uv_loop_close(&loop), 0);
	end_confined();
}
END_TEST

static void add_confine(TCase *tcase)
{
	tcase_add_exit_test(tcase, confined_is_confined, 0);
	tcase_add_exit_test(tcase, table_widens, 0);
	tcase_add_test(tcase, reader_reads_and_changes_nothing);
	tcase_add_exit_test(tcase, clone3_is_unknown, 0);
	tcase_add_loop_test_raise_signal(
		tcase, deadly_call_kills, SIGSYS, 0, (int)ARRAY_SIZE(deadly));
	tcase_add_test_raise_signal(tcase, abort_works, SIGABRT);
	tcase_add_test(tcase, unknown_name_is_told);
	tcase_add_exit_test(tcase, loop_runs_confined, 0);
}

#else

static void add_confine(TCase *tcase)
{
	(void)tcase;
	puts("skipped: a sanitized build has no system call filter to test");
}

#endif

/* Root as in a container may lack what these need to set their scene. */
static bool is_full_root(void)
{
	if (capng_get_caps_process() != 0)
		return false;
	return geteuid() == 0 && capng_have_capability(CAPNG_EFFECTIVE, CAP_SETUID) &&
	       capng_have_capability(CAPNG_EFFECTIVE, CAP_SETGID) &&
	       capng_have_capability(CAPNG_EFFECTIVE, CAP_SETPCAP) &&
	       capng_have_capability(CAPNG_EFFECTIVE, CAP_SYS_ADMIN);
}

static void add_as_root(TCase *tcase)
{
	if (!is_full_root()) {
		puts("skipped: what becomes of root's privileges, since these tests are not "
		     "run "
		     "as root with CAP_SETUID, CAP_SETGID, CAP_SETPCAP and CAP_SYS_ADMIN");
		return;
	}
	tcase_add_test(tcase, root_keeps_nothing);
	tcase_add_test(tcase, root_keeps_its_table);
	tcase_add_test(tcase, user_keeps_its_table);
	tcase_add_test(tcase, what_is_kept_is_logged);
	tcase_add_test(tcase, user_must_not_be_root);
	tcase_add_test(tcase, root_without_setpcap);
	tcase_add_loop_test(tcase, lie_is_found_out, 0, (int)ARRAY_SIZE(lies));
	tcase_add_test(tcase, user_drops_what_is_beyond);
	tcase_add_test(tcase, user_keeps_a_root_table);
	tcase_add_test(tcase, user_lacks_its_table);
}

int main(void)
{
	Suite *suite = suite_create("privileges");
	TCase *tcase = tcase_create("privileges");

	log_init("test", LOG_ERROR);
	add_as_root(tcase);
	tcase_add_test(tcase, anybody_keeps_nothing);
	tcase_add_test(tcase, limit_leaves_room);
	tcase_add_test(tcase, lower_limit_stays);
	tcase_add_loop_test(tcase, identity_is_parsed, 0, (int)ARRAY_SIZE(identity_rows));
	tcase_add_test(tcase, group_is_parsed);
	add_confine(tcase);
	suite_add_tcase(suite, tcase);
	/* privileges that are dropped do not come back for the next test */
	return unit_run_forked(suite);
}
