/* SPDX-License-Identifier: Apache-2.0 */
/* The manager as a process: its configuration, what it keeps open, its operations. */
#include "dmgr-sriov/sriov.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "common/check.h"
#include "common/netns.h"
#include "dmgr-sriov/links.h"
#include "dmgr-sriov/pci.h"
#include "dmgr-sriov/uevent.h"

#define MAX_IFACES 1024  /* as statd takes them: statd/config.c */
#define MAX_VFS    65535 /* TotalVFs of the SR-IOV capability has 16 bits */

/* --- configuration ------------------------------------------------------------------------ */

struct iface_config {
	char *if_name;
	struct rec_int vf_count;
};
struct sriov_config {
	char *sysfs_root;
	struct REC_LIST(struct iface_config) ifaces;
};

static const struct rec_field iface_fields[] = {
	REC_STR(struct iface_config, if_name, "ifName", REC_REQUIRED, 0, check_any_if_name,
		"link of a physical function"),
	REC_INT(struct iface_config, vf_count, "vfCount", REC_OPTIONAL, 0, MAX_VFS,
		"virtual functions to make"),
};
static REC_DESC(rec_iface_config, struct iface_config, "an interface", iface_fields, NULL,
	"a physical function to provision");

static const struct rec_field config_fields[] = {
	REC_STR(struct sriov_config, sysfs_root, "sysBusPCIDevPath", REC_OPTIONAL, 0, NULL,
		"where the host's sysfs is"),
	REC_RECS(struct sriov_config, ifaces, "ifaces", REC_OPTIONAL, MAX_IFACES,
		struct iface_config, &rec_iface_config, "physical functions to provision"),
};
static REC_DESC(rec_sriov_config, struct sriov_config, "sriov", config_fields, NULL,
	"deviceManagerConfigs.sriov, without `enabled`, which is statd's");

static void ifaces_fini(struct sriov *s)
{
	for (size_t i = 0; i < s->n_ifaces; i++)
		free((char *)(uintptr_t)s->ifaces[i].if_name);
	free(s->ifaces);
	s->ifaces = NULL;
	s->n_ifaces = 0;
}

static size_t len_without_slash(const char *path)
{
	size_t len = strlen(path);

	while (len > 1 && path[len - 1] == '/')
		len--;
	return len;
}

static bool is_same_path(const char *a, const char *b)
{
	const size_t len = len_without_slash(a);

	return len == len_without_slash(b) && memcmp(a, b, len) == 0;
}

/* A privileged process opens no path that another one names: it is only compared. */
static int check_root(const struct sriov *s, const struct sriov_config *c, struct err *err)
{
	if (!c->sysfs_root || is_same_path(c->sysfs_root, s->sysfs_root))
		return 0;
	return err_set(err, ERR_INVALID,
		"sysBusPCIDevPath is %s, but dmgr-sriov reads %s: start it with "
		"--sysfs-root %s, or leave the field out",
		c->sysfs_root, s->sysfs_root, c->sysfs_root);
}

int sriov_configure(void *ctx, const json_t *config, struct err *err)
{
	struct sriov_config c = {0};
	struct sriov *s = ctx;
	int rc;

	if (rec_decode(&rec_sriov_config, config, REC_LENIENT, "sriov", NULL, &c, err) < 0)
		return -1;
	rc = check_root(s, &c, err);
	if (rc == 0) {
		ifaces_fini(s);
		s->n_ifaces = c.ifaces.n;
		s->ifaces = xcalloc(s->n_ifaces, sizeof(*s->ifaces));
		for (size_t i = 0; i < s->n_ifaces; i++)
			s->ifaces[i] = (struct provision_iface){
				.if_name = xstrdup(c.ifaces.v[i].if_name),
				.count = (unsigned)c.ifaces.v[i].vf_count.v};
	}
	rec_fini(&rec_sriov_config, &c);
	return rc;
}

/* --- the process -------------------------------------------------------------------------- */

static int add_to_wake(const struct sriov *s, int fd, struct err *err)
{
	struct epoll_event event = {.events = EPOLLIN};

	if (epoll_ctl(s->wake_fd, EPOLL_CTL_ADD, fd, &event) < 0)
		return err_errno(err, errno, "epoll_ctl");
	return 0;
}

static int open_events(struct sriov *s, struct err *err)
{
	s->uevent_fd = uevent_open(err);
	if (s->uevent_fd < 0)
		return -1;
	s->links_fd = links_open(err);
	if (s->links_fd < 0)
		return -1;
	s->wake_fd = epoll_create1(EPOLL_CLOEXEC);
	if (s->wake_fd < 0)
		return err_errno(err, errno, "epoll_create1");
	if (add_to_wake(s, s->uevent_fd, err) < 0)
		return -1;
	return add_to_wake(s, s->links_fd, err);
}

int sriov_open(void *ctx, const char *sysfs_root, struct err *err)
{
	struct sriov *s = ctx;

	s->sysfs_root = sysfs_root;
	s->sys_fd = pci_open(sysfs_root, err);
	if (s->sys_fd < 0)
		return err_wrap(err, "--sysfs-root");
	s->provisioner = provisioner_start(s->sys_fd, err);
	if (!s->provisioner)
		return err_wrap(err, "starting the child that makes virtual functions");
	if (open_events(s, err) < 0)
		return -1;
	s->host_netns_fd = netns_open_own(err);
	if (s->host_netns_fd < 0)
		return -1;
	return nl_init(&s->host, -1, err);
}

void sriov_close(struct sriov *s)
{
	provisioner_end(s->provisioner);
	ifaces_fini(s);
	sriov_forget_seen(s);
	nl_fini(&s->host);
	close_fd(&s->host_netns_fd);
	close_fd(&s->wake_fd);
	close_fd(&s->links_fd);
	close_fd(&s->uevent_fd);
	close_fd(&s->sys_fd);
}

static int watch(const void *ctx)
{
	const struct sriov *s = ctx;

	return s->wake_fd;
}

static void use_prepared(void *ctx, const struct prepared *prepared)
{
	struct sriov *s = ctx;

	s->prepared = prepared;
}

/* --- in the pod and back ------------------------------------------------------------------ */

static int attach(void *ctx, const struct device_attach *a, int netns_fd, int rtnl_fd,
	struct device_attach_result *ret, struct err *err)
{
	const int rc = sriov_attach(ctx, a, netns_fd, rtnl_fd, ret, err);

	sriov_settle(ctx, a->allocation->device->name);
	return rc;
}

static int detach(
	void *ctx, const struct device_attach *a, int netns_fd, int rtnl_fd, struct err *err)
{
	const int rc = sriov_detach(ctx, a, netns_fd, rtnl_fd, err);

	sriov_settle(ctx, a->allocation->device->name);
	return rc;
}

static int reclaim(void *ctx, const struct device_alloc *a, struct err *err)
{
	const int rc = sriov_reclaim(ctx, a, err);

	sriov_settle(ctx, a->device->name);
	return rc;
}

const struct manager_ops sriov_ops = {
	.type = MANAGER_SRIOV,
	.reads_sysfs = true,
	.open = sriov_open,
	.configure = sriov_configure,
	.discover = sriov_discover,
	.watch = watch,
	.woken = sriov_woken,
	.use_prepared = use_prepared,
	.take_appeared = sriov_take_appeared,
	.restore = sriov_restore,
	.observe = sriov_observe,
	.setup = sriov_setup,
	.recover = sriov_recover,
	.free = sriov_free,
	.attach = attach,
	.detach = detach,
	.reclaim = reclaim,
	.audit = sriov_audit,
};
