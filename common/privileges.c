/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Taking on what the table allows, and nothing else.
 *
 * Order is all of it. Locking the secure bits and emptying the bounding set need CAP_SETPCAP,
 * changing identity needs CAP_SETUID and CAP_SETGID; so the capability sets themselves come
 * after both. SECBIT_NO_SETUID_FIXUP keeps the kernel from emptying the sets on the way, so
 * that a change of user needs no PR_SET_KEEPCAPS. The kernel resets "dumpable" whenever
 * credentials change, hence it is last. Nothing is believed: privileges_drop() ends by asking
 * the kernel for each of these and comparing, by raw calls and not by the library that has just
 * set them.
 *
 * What keeps a process that stays root from getting its capabilities back by an exec is NOROOT
 * in the secure bits, the bounding set, and no_new_privs. The first two cannot be set without
 * CAP_SETPCAP, which a container or a unit with User= may have withheld; the last always can
 * and suffices alone (security/commoncap.c: an exec under it never adds to the permitted set).
 *
 * The system call filter is a list of what may be called; everything else fails with EPERM,
 * which a library may survive, but what no daemon of ours ever does for a good reason kills.
 */
#include "common/privileges.h"

#include <assert.h>
#include <cap-ng.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/nsfs.h>
#include <linux/securebits.h>
#include <linux/sockios.h>
#include <pwd.h>
#include <seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/log.h"
#include "common/util.h"

#define ID_MAX (UINT32_MAX - 1) /* -1 means "leave as it is" to the kernel */

/* --- names of users and groups ------------------------------------------------------------ */

int group_parse(const char *text, gid_t *ret, struct err *err)
{
	const struct group *group;
	int64_t id;

	if (parse_i64(text, 0, ID_MAX, &id) == 0) {
		*ret = (gid_t)id;
		return 0;
	}
	errno = 0;
	group = getgrnam(text);
	if (!group && errno)
		return err_errno(err, errno, "looking up group \"%s\"", text);
	if (!group)
		return err_set(err, ERR_INVALID, "there is no group \"%s\"", text);
	*ret = group->gr_gid;
	return 0;
}

/* Found by name or number; NULL and no error when a number has no entry. */
static int find_user(
	const char *text, uid_t *ret_uid, const struct passwd **ret, struct err *err)
{
	int64_t id;

	errno = 0;
	if (parse_i64(text, 0, ID_MAX, &id) == 0) {
		*ret_uid = (uid_t)id;
		*ret = getpwuid((uid_t)id);
		return 0;
	}
	*ret = getpwnam(text);
	if (!*ret && errno)
		return err_errno(err, errno, "looking up user \"%s\"", text);
	if (!*ret)
		return err_set(err, ERR_INVALID, "there is no user \"%s\"", text);
	*ret_uid = (*ret)->pw_uid;
	return 0;
}

int identity_parse(const char *text, struct identity *ret, struct err *err)
{
	cleanup_free char *user = xstrdup(text);
	char *group = strchr(user, ':');
	const struct passwd *passwd;
	struct identity id;

	if (group)
		*group++ = '\0';
	if (find_user(user, &id.uid, &passwd, err) < 0)
		return -1;
	if (group) {
		if (group_parse(group, &id.gid, err) < 0)
			return -1;
	} else if (passwd) {
		id.gid = passwd->pw_gid;
	} else {
		return err_set(err, ERR_INVALID,
			"user %s has no entry that tells its group: say %s:GROUP", user, user);
	}
	*ret = id;
	return 0;
}

/* --- capabilities ------------------------------------------------------------------------- */

/* Bit n is capability n. */
struct cap_sets {
	uint64_t permitted, effective, inheritable, ambient, bounding;
};

static uint64_t cap_bit(int cap)
{
	return UINT64_C(1) << cap;
}

static uint64_t table_caps(const struct privileges *p)
{
	uint64_t set = 0;

	for (size_t i = 0; i < p->n_caps; i++) {
		assert(p->caps[i] >= 0 && p->caps[i] <= CAP_LAST_CAP);
		set |= cap_bit(p->caps[i]);
	}
	return set;
}

/* "CAP_NET_ADMIN CAP_SYS_ADMIN", or "none". The caller's. */
static char *format_caps(uint64_t set)
{
	struct buf b = BUF_INIT;

	for (int cap = 0; cap < 64; cap++) {
		const char *name = capng_capability_to_name((unsigned)cap);

		if (!(set & cap_bit(cap)))
			continue;
		buf_puts(&b, b.len ? " " : "");
		if (name)
			for (buf_puts(&b, "CAP_"); *name; name++)
				buf_printf(&b, "%c",
					*name >= 'a' && *name <= 'z' ? *name - 'a' + 'A'
								     : *name);
		else
			buf_printf(&b, "%d", cap);
	}
	if (b.len == 0)
		buf_puts(&b, "none");
	return buf_take(&b);
}

static int read_caps(struct cap_sets *ret, struct err *err)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct d[_LINUX_CAPABILITY_U32S_3] = {0};

	if (syscall(SYS_capget, &header, d) < 0)
		return err_errno(err, errno, "capget");
	*ret = (struct cap_sets){
		.permitted = d[0].permitted | (uint64_t)d[1].permitted << 32,
		.effective = d[0].effective | (uint64_t)d[1].effective << 32,
		.inheritable = d[0].inheritable | (uint64_t)d[1].inheritable << 32,
	};
	/* the kernel refuses to tell of capabilities that it does not know: there they end */
	for (int cap = 0; cap < 64; cap++) {
		int bounding = prctl(PR_CAPBSET_READ, cap, 0, 0, 0);

		if (bounding < 0)
			break;
		if (bounding > 0)
			ret->bounding |= cap_bit(cap);
		if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, cap, 0, 0) == 1)
			ret->ambient |= cap_bit(cap);
	}
	return 0;
}

/* --- step "drop" -------------------------------------------------------------------------- */

#define SECUREBITS                                                                             \
	(SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP |                       \
		SECBIT_NO_SETUID_FIXUP_LOCKED | SECBIT_KEEP_CAPS_LOCKED |                      \
		SECBIT_NO_CAP_AMBIENT_RAISE | SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED)

/* What a drop is to end in, settled before it begins. */
struct goal {
	uint64_t caps;
	bool as_root;  /* started as root: identity and groups are set */
	bool may_lock; /* holds CAP_SETPCAP: secure bits and bounding set are set */
	struct identity id;
	rlim_t max_fds;
};

static int set_goal(const struct privileges *p, const struct identity *who, struct goal *ret,
	struct err *err)
{
	struct cap_sets now;
	uint64_t missing;

	assert(who || !p->own_user || geteuid() != 0);
	if (read_caps(&now, err) < 0)
		return -1;
	*ret = (struct goal){
		.caps = table_caps(p),
		.as_root = geteuid() == 0,
		.may_lock = now.effective & cap_bit(CAP_SETPCAP),
		.id = {geteuid(), getegid()},
		.max_fds = p->max_fds,
	};
	missing = ret->caps & ~now.permitted;
	if (missing) {
		cleanup_free char *names = format_caps(missing);

		return err_set(err, ERR_UNAVAILABLE,
			"needs %s: start it as root, or with AmbientCapabilities=%s", names,
			names);
	}
	if (!ret->as_root)
		return 0;
	ret->id = p->own_user ? *who : (struct identity){0, 0};
	if (p->own_user && ret->id.uid == 0)
		return err_set(err, ERR_INVALID,
			"would stay root: choose another user, or start it as one");
	return 0;
}

/* A limit that is lower already stays; the table's is what the daemon may need under full
 * load. */
static int limit_fds(struct goal *goal, struct err *err)
{
	struct rlimit now, limit;
	int probe;

	if (getrlimit(RLIMIT_NOFILE, &now) < 0)
		return err_errno(err, errno, "getrlimit");
	if (now.rlim_max < goal->max_fds) {
		LOG(WARN, NO_FIELDS, "only %llu descriptors are allowed, %llu may be needed",
			(unsigned long long)now.rlim_max, (unsigned long long)goal->max_fds);
		goal->max_fds = now.rlim_max;
	}
	limit = (struct rlimit){goal->max_fds, goal->max_fds};
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		return err_errno(err, errno, "limiting descriptors");
	/* what is open stays open beyond the limit, but nothing could be opened any more */
	probe = eventfd(0, EFD_CLOEXEC);
	if (probe < 0)
		return err_errno(err, errno, "opening a descriptor under the limit of %llu",
			(unsigned long long)goal->max_fds);
	close_fd(&probe);
	return 0;
}

static int limit_resources(struct goal *goal, struct err *err)
{
	const struct rlimit none = {0, 0};

	if (limit_fds(goal, err) < 0)
		return -1;
	if (setrlimit(RLIMIT_CORE, &none) < 0)
		return err_errno(err, errno, "limiting core files");
	return 0;
}

static int lock_capabilities(const struct goal *goal, struct err *err)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return err_errno(err, errno, "PR_SET_NO_NEW_PRIVS");
	if (!goal->may_lock)
		return 0;
	if (prctl(PR_SET_SECUREBITS, SECUREBITS, 0, 0, 0) < 0)
		return err_errno(err, errno, "PR_SET_SECUREBITS");
	for (int cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if (!(goal->caps & cap_bit(cap)) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			return err_errno(err, errno,
				"dropping capability %d from the bounding set", cap);
	return 0;
}

static int take_identity(const struct goal *goal, struct err *err)
{
	if (!goal->as_root)
		return 0;
	if (getgroups(0, NULL) != 0 && setgroups(0, NULL) < 0)
		return err_errno(err, errno, "leaving supplementary groups");
	if (setresgid(goal->id.gid, goal->id.gid, goal->id.gid) < 0)
		return err_errno(err, errno, "becoming group %u", goal->id.gid);
	if (setresuid(goal->id.uid, goal->id.uid, goal->id.uid) < 0)
		return err_errno(err, errno, "becoming user %u", goal->id.uid);
	return 0;
}

/* An empty inheritable set empties the ambient set with it (capabilities(7)). */
static int take_caps(const struct privileges *p, struct err *err)
{
	capng_clear(CAPNG_SELECT_CAPS);
	for (size_t i = 0; i < p->n_caps; i++)
		if (capng_update(CAPNG_ADD, (capng_type_t)(CAPNG_EFFECTIVE | CAPNG_PERMITTED),
			    (unsigned)p->caps[i]) < 0)
			return err_set(
				err, ERR_INTERNAL, "capability %d is unknown", p->caps[i]);
	if (capng_apply(CAPNG_SELECT_CAPS) != 0)
		return err_errno(err, errno, "setting capabilities");
	return 0;
}

static int forbid_dump(struct err *err)
{
	if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
		return err_errno(err, errno, "PR_SET_DUMPABLE");
	return 0;
}

/* --- reading it back ---------------------------------------------------------------------- */

static int differs(struct err *err, const char *what, uint64_t is, uint64_t should)
{
	return err_set(err, ERR_INTERNAL, "%s is %llu after it was set to %llu", what,
		(unsigned long long)is, (unsigned long long)should);
}

static int verify_set(const char *what, uint64_t is, uint64_t should, struct err *err)
{
	cleanup_free char *is_names = format_caps(is);
	cleanup_free char *should_names = format_caps(should);

	if (is == should)
		return 0;
	return err_set(err, ERR_INTERNAL, "%s capabilities are %s and should be %s", what,
		is_names, should_names);
}

static int verify_caps(const struct goal *goal, struct err *err)
{
	struct cap_sets now;

	if (read_caps(&now, err) < 0 ||
		verify_set("permitted", now.permitted, goal->caps, err) < 0 ||
		verify_set("effective", now.effective, goal->caps, err) < 0 ||
		verify_set("inheritable", now.inheritable, 0, err) < 0 ||
		verify_set("ambient", now.ambient, 0, err) < 0)
		return -1;
	/* a container may have made it smaller than the table */
	if (goal->may_lock)
		return verify_set("bounding", now.bounding & ~goal->caps, 0, err);
	return 0;
}

static int verify_identity(const struct goal *goal, struct err *err)
{
	uid_t r, e, s;
	gid_t rg, eg, sg;

	if (getresuid(&r, &e, &s) < 0 || getresgid(&rg, &eg, &sg) < 0)
		return err_errno(err, errno, "reading the identity");
	if (r != goal->id.uid || e != goal->id.uid || s != goal->id.uid)
		return err_set(err, ERR_INTERNAL, "users are %u, %u, %u and should be %u", r, e,
			s, goal->id.uid);
	if (rg != goal->id.gid || eg != goal->id.gid || sg != goal->id.gid)
		return err_set(err, ERR_INTERNAL, "groups are %u, %u, %u and should be %u", rg,
			eg, sg, goal->id.gid);
	if (goal->as_root && getgroups(0, NULL) != 0)
		return err_set(err, ERR_INTERNAL, "supplementary groups are left");
	return 0;
}

static int verify_prctl(int option, const char *what, int should, struct err *err)
{
	int is = prctl(option, 0, 0, 0, 0);

	if (is < 0)
		return err_errno(err, errno, "%s", what);
	return is == should ? 0 : differs(err, what, (uint64_t)is, (uint64_t)should);
}

static int verify_limit(int resource, const char *what, rlim_t should, struct err *err)
{
	struct rlimit now;

	if (getrlimit((__rlimit_resource_t)resource, &now) < 0)
		return err_errno(err, errno, "%s", what);
	if (now.rlim_cur != should)
		return differs(err, what, now.rlim_cur, should);
	return now.rlim_max == should ? 0 : differs(err, what, now.rlim_max, should);
}

static int verify(const struct goal *goal, struct err *err)
{
	if (verify_identity(goal, err) < 0 || verify_caps(goal, err) < 0 ||
		verify_prctl(PR_GET_NO_NEW_PRIVS, "no_new_privs", 1, err) < 0 ||
		verify_prctl(PR_GET_DUMPABLE, "dumpable", 0, err) < 0 ||
		verify_limit(RLIMIT_NOFILE, "RLIMIT_NOFILE", goal->max_fds, err) < 0 ||
		verify_limit(RLIMIT_CORE, "RLIMIT_CORE", 0, err) < 0)
		return -1;
	if (goal->may_lock)
		return verify_prctl(PR_GET_SECUREBITS, "secure bits", SECUREBITS, err);
	return 0;
}

static void log_kept(const struct goal *goal)
{
	cleanup_free char *caps = format_caps(goal->caps);
	char uid[16], gid[16];

	(void)snprintf(uid, sizeof(uid), "%u", goal->id.uid);
	(void)snprintf(gid, sizeof(gid), "%u", goal->id.gid);
	LOG(INFO, FIELDS(F("caps", caps), F("uid", uid), F("gid", gid)), "privileges dropped");
}

int privileges_drop(const struct privileges *p, const struct identity *who, struct err *err)
{
	struct goal goal;

	if (set_goal(p, who, &goal, err) < 0 || limit_resources(&goal, err) < 0 ||
		lock_capabilities(&goal, err) < 0 || take_identity(&goal, err) < 0 ||
		take_caps(p, err) < 0 || forbid_dump(err) < 0 || verify(&goal, err) < 0)
		return err_wrap(err, "taking on the privileges of %s", p->program);
	log_kept(&goal);
	return 0;
}

/* --- step "confine" ----------------------------------------------------------------------- */

#ifdef NETCLAIM_SANITIZED

/* The sanitizers' own calls are nobody's list. */
int privileges_confine(const struct privileges *p, struct err *err)
{
	(void)err;
	LOG(WARN, NO_FIELDS, "a sanitized build of %s has no system call filter", p->program);
	return 0;
}

#else

static const char *const common_syscalls[] = {
	/* event loop */
	"epoll_create1",
	"epoll_ctl",
	"epoll_pwait",
	"epoll_wait",
	"eventfd2",
	"pipe2",
	"poll",
	"ppoll",
	"timerfd_create",
	"timerfd_gettime",
	"timerfd_settime",
	/* descriptors that are open */
	"close",
	"dup",
	"dup2",
	"dup3",
	"fcntl",
	"fstat",
	"lseek",
	"newfstatat",
	"pread64",
	"read",
	"readv",
	"statx",
	"write",
	"writev",
	/* sockets */
	"accept",
	"accept4",
	"bind",
	"connect",
	"getpeername",
	"getsockname",
	"getsockopt",
	"listen",
	"recvfrom",
	"recvmsg",
	"sendmsg",
	"sendto",
	"setsockopt",
	"shutdown",
	"socketpair",
	/* memory */
	"brk",
	"madvise",
	"mremap",
	"munmap",
	/* locks and scheduling, as the C library needs them */
	"futex",
	"restart_syscall",
	"rseq",
	"sched_getaffinity",
	"sched_yield",
	"set_robust_list",
	/* clocks */
	"clock_getres",
	"clock_gettime",
	"clock_nanosleep",
	"gettimeofday",
	"nanosleep",
	"time",
	/* signals and the end */
	"exit",
	"exit_group",
	"rt_sigaction",
	"rt_sigpending",
	"rt_sigprocmask",
	"rt_sigreturn",
	"rt_sigsuspend",
	"rt_sigtimedwait",
	"sigaltstack",
	/* who and where we are */
	"getegid",
	"geteuid",
	"getgid",
	"getgroups",
	"getpid",
	"getppid",
	"getrandom",
	"getresgid",
	"getresuid",
	"getrusage",
	"gettid",
	"getuid",
	"sysinfo",
	"uname",
};

/* Allowed with this value of an argument only, unless the room's table names the call: then
 * any. */
static const struct narrow {
	const char *name;
	struct scmp_arg_cmp arg;
} narrow_syscalls[] = {
	{"socket", {0, SCMP_CMP_EQ, AF_UNIX, 0}},
	/* no code that was not there at the start */
	{"mmap", {2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0}},
	{"mprotect", {2, SCMP_CMP_MASKED_EQ, PROT_EXEC, 0}},
	{"ioctl", {1, SCMP_CMP_EQ, FIONBIO, 0}},
	{"ioctl", {1, SCMP_CMP_EQ, FIOCLEX, 0}},
	{"ioctl", {1, SCMP_CMP_EQ, FIONREAD, 0}},
	{"ioctl", {1, SCMP_CMP_EQ, NS_GET_NSTYPE, 0}},
	{"ioctl", {1, SCMP_CMP_EQ, SIOCGSKNS, 0}},
	/* reading a limit */
	{"prlimit64", {2, SCMP_CMP_EQ, 0, 0}},
};

/* Of who reads files; openat() without what could change one. */
static const char *const reading_syscalls[] = {"getdents64", "newfstatat", "readlinkat"};
static const struct narrow reading_openat = {
	"openat", {2, SCMP_CMP_MASKED_EQ, O_ACCMODE | O_CREAT | O_TRUNC, O_RDONLY}};

/* The C library calls the older one when the kernel does not know these; EPERM would be
 * final. */
static const char *const superseded_syscalls[] = {"clone3", "faccessat2"};

/* What an attacker wants and no daemon does. */
static const char *const deadly_syscalls[] = {
	"add_key",
	"bpf",
	"execve",
	"execveat",
	"finit_module",
	"init_module",
	"kexec_load",
	"keyctl",
	"perf_event_open",
	"process_vm_readv",
	"process_vm_writev",
	"ptrace",
	"request_key",
	"userfaultfd",
};

static bool in_table(const struct privileges *p, const char *name)
{
	for (size_t i = 0; i < p->n_syscalls; i++)
		if (strcmp(p->syscalls[i], name) == 0)
			return true;
	return false;
}

/* A call that this machine's architecture lacks is no error; one that libseccomp never heard
 * of is a slip of the pen in a table. */
static int add_rule(scmp_filter_ctx filter, uint32_t action, const char *name,
	const struct scmp_arg_cmp *arg, struct err *err)
{
	int nr = seccomp_syscall_resolve_name(name), r;

	if (nr == __NR_SCMP_ERROR)
		return err_set(err, ERR_INTERNAL, "there is no system call \"%s\"", name);
	r = seccomp_rule_add_array(filter, action, nr, arg ? 1 : 0, arg);
	if (r < 0)
		return err_errno(err, -r, "system call \"%s\"", name);
	return 0;
}

static int add_list(scmp_filter_ctx filter, uint32_t action, const char *const *names, size_t n,
	const struct privileges *except, struct err *err)
{
	for (size_t i = 0; i < n; i++)
		if (!(except && in_table(except, names[i])) &&
			add_rule(filter, action, names[i], NULL, err) < 0)
			return -1;
	return 0;
}

static int add_narrow(scmp_filter_ctx filter, const struct privileges *p, struct err *err)
{
	/* abort() and assert() raise a signal: in this process, and in no other of the same
	 * user */
	const struct scmp_arg_cmp self = {0, SCMP_CMP_EQ, (scmp_datum_t)getpid(), 0};

	for (size_t i = 0; i < ARRAY_SIZE(narrow_syscalls); i++)
		if (!in_table(p, narrow_syscalls[i].name) &&
			add_rule(filter, SCMP_ACT_ALLOW, narrow_syscalls[i].name,
				&narrow_syscalls[i].arg, err) < 0)
			return -1;
	if (in_table(p, "tgkill"))
		return 0;
	return add_rule(filter, SCMP_ACT_ALLOW, "tgkill", &self, err);
}

static int add_reading(scmp_filter_ctx filter, const struct privileges *p, struct err *err)
{
	if (!p->reads_files)
		return 0;
	if (add_list(filter, SCMP_ACT_ALLOW, reading_syscalls, ARRAY_SIZE(reading_syscalls), p,
		    err) < 0)
		return -1;
	return add_rule(filter, SCMP_ACT_ALLOW, reading_openat.name, &reading_openat.arg, err);
}

static int add_rules(scmp_filter_ctx filter, const struct privileges *p, struct err *err)
{
	if (add_list(filter, SCMP_ACT_ALLOW, p->syscalls, p->n_syscalls, NULL, err) < 0 ||
		add_list(filter, SCMP_ACT_ALLOW, common_syscalls, ARRAY_SIZE(common_syscalls),
			p, err) < 0 ||
		add_narrow(filter, p, err) < 0 || add_reading(filter, p, err) < 0)
		return -1;
	if (add_list(filter, SCMP_ACT_ERRNO(ENOSYS), superseded_syscalls,
		    ARRAY_SIZE(superseded_syscalls), p, err) < 0)
		return -1;
	return add_list(filter, SCMP_ACT_KILL_PROCESS, deadly_syscalls,
		ARRAY_SIZE(deadly_syscalls), p, err);
}

static int load(scmp_filter_ctx filter, struct err *err)
{
	int r = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);

	if (r == 0)
		r = seccomp_load(filter);
	if (r < 0)
		return err_errno(err, -r, "loading the filter");
	return 0;
}

int privileges_confine(const struct privileges *p, struct err *err)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ERRNO(EPERM));
	int r;

	if (!filter)
		return err_set(err, ERR_UNAVAILABLE, "there are no system call filters here");
	r = add_rules(filter, p, err);
	if (r == 0)
		r = load(filter, err);
	seccomp_release(filter);
	if (r < 0)
		return err_wrap(err, "confining %s", p->program);
	return 0;
}

#endif
