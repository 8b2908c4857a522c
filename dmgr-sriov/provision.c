/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making virtual functions.
 *
 * The child is forked before its parent gives anything up, and then gives up everything but
 * being root, whose file it is. It takes one request at a time: an address and a number. Its
 * parent never waits for it longer than it is told: a driver may hang in the write, and then
 * the answer is read by a later call, or never. A failure that comes that late is told by the
 * call that reads it, which does not try again at once: others have waited behind it.
 *
 * All that decides what is written is read by the parent. When nothing is left to be written,
 * the socket is closed and the child ends.
 */
#include "dmgr-sriov/provision.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/child.h"
#include "common/log.h"
#include "dmgr-sriov/pci.h"
#include "dmgr-sriov/sandbox.h"

struct request {
	char addr[PCI_ADDR_SIZE];
	unsigned count;
};

struct provisioner {
	int fd;                 /* -1: the child has ended, or has been told to */
	struct request pending; /* addr is "" when nothing is */
	struct request late;    /* failed, the last that no call waited for; addr may be "" */
	int late_sys;           /* why */
	bool is_news;           /* this call has read it */
	struct strlist told;    /* each is logged once */
};

/* --- the child ---------------------------------------------------------------------------- */

static int write_count(int sys_fd, const struct request *r)
{
	cleanup_free char *path = xasprintf("bus/pci/devices/%s/sriov_numvfs", r->addr);
	cleanup_close int fd = openat(sys_fd, path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
	char digits[16];
	const int len = snprintf(digits, sizeof(digits), "%u", r->count);

	if (fd < 0 || write(fd, digits, (size_t)len) < 0)
		return errno;
	return 0;
}

static int serve(int fd, int sys_fd)
{
	struct request r;
	ssize_t n;
	int sys;

	for (;;) {
		do
			n = recv(fd, &r, sizeof(r), 0);
		while (n < 0 && errno == EINTR);
		if (n != sizeof(r))
			return 0;
		r.addr[sizeof(r.addr) - 1] = '\0';
		sys = pci_addr_ok(r.addr) ? write_count(sys_fd, &r) : EINVAL;
		if (send(fd, &sys, sizeof(sys), MSG_NOSIGNAL) != sizeof(sys))
			return 0;
	}
}

static int run_child(int fd, void *ctx)
{
	const struct privileges *p = &sriov_provision_privileges;
	const int *sys_fd = ctx;
	struct err err = ERR_INIT;

	if (privileges_drop(p, NULL, &err) < 0 || privileges_confine(p, &err) < 0) {
		LOG(ERROR, FIELDS(F("err", err.message)), "cannot make virtual functions");
		return 1;
	}
	return serve(fd, *sys_fd);
}

struct provisioner *provisioner_start(int sys_fd, struct err *err)
{
	const int fd = child_start(run_child, &sys_fd, err);
	struct provisioner *p;

	if (fd < 0)
		return NULL;
	p = xcalloc(1, sizeof(*p));
	p->fd = fd;
	return p;
}

void provisioner_end(struct provisioner *p)
{
	if (!p)
		return;
	close_fd(&p->fd);
	strlist_fini(&p->told);
	free(p);
}

/* --- asking it ---------------------------------------------------------------------------- */

/* 0 with the errno that the child tells, 1: not yet, -1: there is no child. */
static int read_answer(struct provisioner *p, unsigned wait_ms, int *ret)
{
	struct pollfd poll_fd = {.fd = p->fd, .events = POLLIN};
	ssize_t n;
	int rc;

	do
		rc = poll(&poll_fd, 1, (int)wait_ms);
	while (rc < 0 && errno == EINTR);
	if (rc <= 0)
		return 1;
	n = recv(p->fd, ret, sizeof(*ret), MSG_DONTWAIT);
	p->pending = (struct request){0};
	if (n == sizeof(*ret))
		return 0;
	close_fd(&p->fd);
	return -1;
}

static int no_child(struct err *err)
{
	return err_set(err, ERR_UNAVAILABLE,
		"the process that makes virtual functions has ended: restart dmgr-sriov");
}

/* The same text each time: a note that changes would be news each time. */
static int still_at_it(const struct provisioner *p, struct err *err)
{
	return err_set(err, ERR_BUSY,
		"the driver of %s is not done yet with making %u virtual functions",
		p->pending.addr, p->pending.count);
}

static int refused(const struct request *r, int sys, struct err *err)
{
	return err_errno(
		err, sys, "bus/pci/devices/%s/sriov_numvfs: writing %u", r->addr, r->count);
}

/* Why it failed before tells more than that it is being tried again. */
static int not_yet(const struct provisioner *p, const struct pci_pf *pf, struct err *err)
{
	if (strcmp(p->pending.addr, pf->addr) == 0 && strcmp(p->late.addr, pf->addr) == 0)
		return refused(&p->late, p->late_sys, err);
	return still_at_it(p, err);
}

/* The answer to what an earlier call did not wait for. */
static void read_late(struct provisioner *p, unsigned wait_ms)
{
	const struct request asked = p->pending;
	int sys;

	if (p->fd < 0 || !*asked.addr || read_answer(p, wait_ms, &sys) != 0)
		return;
	p->late = sys ? asked : (struct request){0};
	p->late_sys = sys;
	p->is_news = sys != 0;
}

static int ask(struct provisioner *p, const struct pci_pf *pf, unsigned count, unsigned wait_ms,
	struct err *err)
{
	struct request r = {.count = count};
	int sys, rc;

	if (p->fd < 0)
		return no_child(err);
	if (p->is_news && strcmp(p->late.addr, pf->addr) == 0)
		return refused(&p->late, p->late_sys, err);
	if (*p->pending.addr) /* of another interface, or of this one */
		return not_yet(p, pf, err);
	(void)snprintf(r.addr, sizeof(r.addr), "%s", pf->addr);
	p->pending = r;
	if (send(p->fd, &r, sizeof(r), MSG_NOSIGNAL) < 0) {
		close_fd(&p->fd);
		p->pending = (struct request){0};
		return no_child(err);
	}
	rc = read_answer(p, wait_ms, &sys);
	if (rc < 0)
		return no_child(err);
	if (rc > 0)
		return not_yet(p, pf, err);
	return sys ? refused(&r, sys, err) : 0;
}

/* --- what is configured ------------------------------------------------------------------- */

static void tell(struct provisioner *p, enum log_level level, const char *text)
{
	if (strlist_has(&p->told, text))
		return;
	strlist_add(&p->told, text);
	log_record(level, NO_FIELDS, "%s", text);
}

static void note(struct provisioner *p, struct strlist *notes, enum log_level level,
	const struct provision_iface *iface, const char *what)
{
	cleanup_free char *text = xasprintf("interface %s: %s", iface->if_name, what);

	tell(p, level, text);
	strlist_add(notes, text);
}

/* There are some already. */
static void leave_alone(struct provisioner *p, const struct pci_pf *pf,
	const struct provision_iface *iface, struct strlist *notes)
{
	cleanup_free char *text = NULL;

	if (pf->num_vfs == iface->count) {
		text = xasprintf("interface %s: has its %u virtual functions already",
			iface->if_name, pf->num_vfs);
		tell(p, LOG_INFO, text);
		return;
	}
	text = xasprintf(
		"has %u virtual functions, which are left as they are, not %u as "
		"configured; to have them made anew, remove them while no pod uses one: "
		"echo 0 > /sys/bus/pci/devices/%s/sriov_numvfs, then restart dmgr-sriov",
		pf->num_vfs, iface->count, pf->addr);
	note(p, notes, LOG_WARN, iface, text);
}

static int make(struct provisioner *p, int sys_fd, const struct pci_pf *pf,
	const struct provision_iface *iface, unsigned wait_ms, struct err *err)
{
	struct pci_pf again;

	if (ask(p, pf, iface->count, wait_ms, err) == 0)
		return 0;
	/* somebody else, perhaps our predecessor's child, may have been faster */
	if (err->sys == EBUSY && pci_pf_read(sys_fd, pf->addr, &again, err) == 0 &&
		again.num_vfs == iface->count)
		return 0;
	return -1;
}

/* Whether it is done. */
static bool work_off(struct provisioner *p, int sys_fd, const struct provision_iface *iface,
	unsigned wait_ms, struct strlist *notes)
{
	const char *name = *iface->link ? iface->link : iface->if_name;
	struct err err = ERR_INIT;
	struct pci_pf pf;

	if (pci_pf_by_name(sys_fd, name, &pf, &err) < 0) {
		note(p, notes, LOG_ERROR, iface, err.message);
		return false;
	}
	if (iface->count > pf.total_vfs) {
		(void)err_set(&err, ERR_INVALID,
			"can have at most %u virtual functions, not %u", pf.total_vfs,
			iface->count);
		note(p, notes, LOG_ERROR, iface, err.message);
		return false;
	}
	if (pf.num_vfs > 0) {
		leave_alone(p, &pf, iface, notes);
		return true;
	}
	if (iface->count == 0)
		return true;
	if (make(p, sys_fd, &pf, iface, wait_ms, &err) < 0) {
		note(p, notes, LOG_ERROR, iface, err.message);
		return false;
	}
	LOG(INFO, FIELDS(F("device", iface->if_name)), "%u virtual functions were made",
		iface->count);
	return true;
}

int provision(struct provisioner *p, int sys_fd, const struct provision_iface *ifaces, size_t n,
	unsigned wait_ms, struct strlist *notes)
{
	bool all = true;

	p->is_news = false;
	read_late(p, wait_ms);
	for (size_t i = 0; i < n; i++)
		all &= work_off(p, sys_fd, &ifaces[i], wait_ms, notes);
	if (all && !*p->pending.addr)
		close_fd(&p->fd);
	return all ? 0 : 1;
}
