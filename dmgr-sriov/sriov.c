/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inventory of virtual functions: what is configured is made, what sysfs shows is offered.
 *
 * An interface that cannot be provisioned, or a function that cannot be offered, keeps nobody
 * else's device away: the rest is served, and what is wrong is logged once and told to statd,
 * which shows it until it is gone.
 */
#include "dmgr-sriov/sriov.h"

#include <string.h>
#include <unistd.h>

#include "common/check.h"
#include "common/log.h"
#include "common/netns.h"
#include "dmgr-sriov/pci.h"
#include "dmgr-sriov/state.h"
#include "dmgr-sriov/uevent.h"

/* How long the first inventory waits for a driver that makes virtual functions: most are done
 * in a few seconds, and statd waits for us before the node is registered. */
#define PROVISION_WAIT_MS 15000
#define AGAIN_WAIT_MS     500   /* each later one, so that statd's calls are served meanwhile */
#define MAX_IFACES        1024  /* as statd takes them: statd/config.c */
#define MAX_VFS           65535 /* TotalVFs of the SR-IOV capability has 16 bits */

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
	REC_STR(struct iface_config, if_name, "ifName", REC_REQUIRED, 0, check_kernel_if_name,
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
	s->uevent_fd = uevent_open(err);
	if (s->uevent_fd < 0)
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
	strlist_fini(&s->told);
	nl_fini(&s->host);
	close_fd(&s->host_netns_fd);
	close_fd(&s->uevent_fd);
	close_fd(&s->sys_fd);
}

static int watch(const void *ctx)
{
	const struct sriov *s = ctx;

	return s->uevent_fd;
}

static bool woken(void *ctx)
{
	const struct sriov *s = ctx;

	return uevent_drain(s->uevent_fd, s->sys_fd);
}

/* --- inventory ---------------------------------------------------------------------------- */

/* Of a link that is there; 0 otherwise. */
static uint32_t max_mtu_of(struct sriov *s, const struct pci_vf *vf)
{
	cleanup_link_info struct link_info link = {0};
	struct err err;

	if (!*vf->if_name || nl_link_get(&s->host, vf->if_name, &link, &err) < 0)
		return 0;
	return link.max_mtu;
}

static void add_devices(struct sriov *s, const struct pci_scan *scan, struct device_list *ret)
{
	ret->devices.v = xcalloc(scan->n_vfs, sizeof(*ret->devices.v));
	ret->devices.n = scan->n_vfs;
	for (size_t i = 0; i < scan->n_vfs; i++) {
		const struct pci_vf *vf = &scan->vfs[i];
		struct vf_state state;

		vf_state_of(vf, &state);
		vf_make_device(&state, vf, max_mtu_of(s, vf), &ret->devices.v[i]);
		rec_fini(&rec_vf_state, &state);
	}
}

static void add_skipped(const struct pci_scan *scan, struct strlist *problems)
{
	for (size_t i = 0; i < scan->n_skipped; i++) {
		cleanup_free char *text = xasprintf("virtual function %s is not offered: %s",
			scan->skipped[i].addr, scan->skipped[i].why.message);

		strlist_add(problems, text);
	}
}

static void log_new(struct sriov *s, const struct strlist *problems)
{
	for (size_t i = 0; i < problems->n; i++)
		if (!strlist_has(&s->told, problems->v[i]))
			LOG(WARN, NO_FIELDS, "%s", problems->v[i]);
	strlist_fini(&s->told);
	for (size_t i = 0; i < problems->n; i++)
		strlist_add(&s->told, problems->v[i]);
}

/* All are in the log. */
static void bound_notes(struct strlist *notes)
{
	cleanup_free char *more = NULL;

	if (notes->n <= DEVICE_LIST_MAX_NOTES)
		return;
	more = xasprintf("and %zu more; the log has all", notes->n - DEVICE_LIST_MAX_NOTES + 1);
	while (notes->n >= DEVICE_LIST_MAX_NOTES)
		strlist_remove(notes, notes->v[notes->n - 1]);
	strlist_add(notes, more);
}

int sriov_discover(void *ctx, struct device_list *ret, struct err *err)
{
	struct strlist skipped = {0};
	struct pci_scan scan = {0};
	struct sriov *s = ctx;
	int left;

	left = provision(s->provisioner, s->sys_fd, s->ifaces, s->n_ifaces,
		s->has_waited ? AGAIN_WAIT_MS : PROVISION_WAIT_MS, &ret->notes);
	s->has_waited = true;
	if (pci_scan(s->sys_fd, &scan, err) < 0)
		return err_wrap(err, "%s", s->sysfs_root);
	add_devices(s, &scan, ret);
	add_skipped(&scan, &skipped);
	log_new(s, &skipped); /* provision() has logged its own */
	for (size_t i = 0; i < skipped.n; i++)
		strlist_add(&ret->notes, skipped.v[i]);
	bound_notes(&ret->notes);
	strlist_fini(&skipped);
	pci_scan_fini(&scan);
	return left;
}

int sriov_restore(void *ctx, const struct device_alloc *a, struct device *ret, struct err *err)
{
	const struct sriov *s = ctx;
	struct vf_state state = {0};
	struct pci_vf vf;
	struct err gone;

	if (vf_state_open(a->device, &state, err) < 0)
		return -1;
	if (pci_vf_read(s->sys_fd, state.addr, &vf, &gone) == 0)
		vf_make_device(&state, &vf, 0, ret);
	else
		vf_make_device(&state, NULL, 0, ret);
	rec_fini(&rec_vf_state, &state);
	return 0;
}

const struct manager_ops sriov_ops = {
	.type = MANAGER_SRIOV,
	.reads_sysfs = true,
	.open = sriov_open,
	.configure = sriov_configure,
	.discover = sriov_discover,
	.watch = watch,
	.woken = woken,
	.restore = sriov_restore,
	.setup = sriov_setup,
	.recover = sriov_recover,
	.free = sriov_free,
	.attach = sriov_attach,
	.detach = sriov_detach,
	.audit = sriov_audit,
};
