/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A virtual function in a claim's hands.
 *
 *	observe: how the port is, of a function without a link
 *	setup:  mark the link, note how port and link were  ->  VLAN of the port
 *	attach: VLAN is still there  ->  into the pod (common/link_move.h)
 *	detach: out of the pod, as it was
 *	free:   VLAN of before  ->  link as it was, mark off
 *
 * The mark comes first and goes last, so whoever finds a function without one finds it without
 * a claim's VLAN, too. Setup can be repeated: what it found at first is in the note behind the
 * mark, which stays until the link goes into a pod; by then the claim's status has it.
 *
 * A function is known by its PCI address. Names, its own and that of its physical function, are
 * looked up each time, since both may change while it is prepared; the address is checked
 * against the physical function's list, so a VLAN never goes to another function's port.
 *
 * A function that another driver has (vfio-pci) has no link and so no mark. Nothing is moved,
 * the rest is the same.
 */
#include <errno.h>
#include <string.h>

#include "common/link_move.h"
#include "common/log.h"
#include "dmgr-sriov/pci.h"
#include "dmgr-sriov/sriov.h"
#include "dmgr-sriov/state.h"

/* --- which function it is ----------------------------------------------------------------- */

struct target {
	struct vf_state state;
	struct pci_vf vf;
	struct link_info link; /* link.name is "" if there is none on the host */
	char mark[LINK_MARK_SIZE];
};

static void target_fini(struct target *t)
{
	rec_fini(&rec_vf_state, &t->state);
	link_info_fini(&t->link);
}
#define cleanup_target __attribute__((cleanup(target_fini)))

/* Its link on the host, if it is there. udev may rename it in between. */
static int find_link(struct sriov *s, struct target *t, struct err *err)
{
	for (int i = 0; i < 8; i++) {
		if (!*t->vf.if_name)
			return 0;
		if (nl_link_get(&s->host, t->vf.if_name, &t->link, err) == 0)
			return 0;
		link_info_fini(&t->link);
		t->link = (struct link_info){0};
		if (err->kind != ERR_NOT_FOUND ||
			pci_vf_read(s->sys_fd, t->state.addr, &t->vf, err) < 0)
			return -1;
	}
	return err_set(
		err, ERR_BUSY, "the link of %s changes its name all the time", t->state.addr);
}

static int open_target(
	struct sriov *s, const struct device_alloc *a, struct target *t, struct err *err)
{
	if (vf_state_open(a->device, &t->state, err) < 0)
		return -1;
	link_mark_format(a, t->mark);
	if (pci_vf_read(s->sys_fd, t->state.addr, &t->vf, err) < 0)
		return -1;
	return find_link(s, t, err);
}

static bool has_link(const struct target *t)
{
	return *t->link.name;
}

/* ERR_BUSY if it must have a link, and the host has it not. */
static int check_link_is_here(const struct target *t, struct err *err)
{
	if (has_link(t) || pci_driver_has_no_link(t->vf.driver))
		return 0;
	return err_set(err, ERR_BUSY,
		"the link of virtual function %s is not on the host: it is in another network "
		"namespace and comes back when that ends",
		t->state.addr);
}

/* An alias that is no mark, or one of another device, is nobody's mark here: no setup writes it,
 * and no audit finds it. */
static bool is_anothers(const struct target *t)
{
	char name[PCI_ADDR_SIZE];
	struct link_mark mark;

	pci_device_name(t->state.addr, name);
	return link_mark_parse(t->link.alias, &mark, NULL) && strcmp(mark.device, name) == 0 &&
	       !link_mark_is(t->link.alias, t->mark);
}

static int check_owner(const struct target *t, struct err *err)
{
	if (!is_anothers(t))
		return 0;
	return err_set(err, ERR_CONFLICT,
		"link '%s' belongs to another claim: its alias is \"%s\"", t->link.name,
		t->link.alias);
}

/* The record and the inventory are text; the kernel takes any bytes for a name. */
static int check_name(const struct target *t, struct err *err)
{
	char name[IFNAMSIZ];

	if (utf8_valid(t->link.name, strlen(t->link.name)))
		return 0;
	memcpy(name, t->link.name, sizeof(name));
	str_sanitize(name);
	return err_set(err, ERR_CONFLICT,
		"the name of link '%s' of virtual function %s is not UTF-8: rename it", name,
		t->state.addr);
}

/* --- the port's VLAN ---------------------------------------------------------------------- */

static bool wants_vlan(const struct device_alloc *a)
{
	return a->config && a->config->vlan.set;
}

/* 1: the port has one that cannot be read, and err says why. */
static int get_vlan(
	struct sriov *s, const struct target *t, struct vf_vlan *ret, struct err *err)
{
	int rc;

	if (!*t->vf.pf_name)
		return err_set(err, ERR_BUSY,
			"VLAN of virtual function %u: the link of its physical function is not "
			"on the host",
			t->vf.id);
	rc = nl_vf_get_vlan(&s->host, t->vf.pf_name, t->vf.id, ret, err);
	return rc < 0 ? err_wrap(err, "VLAN of virtual function %u", t->vf.id) : rc;
}

static bool is_same_vlan(const struct vf_vlan *a, const struct vf_vlan *b)
{
	return a->id == b->id && a->qos == b->qos && (a->id == 0 || a->proto == b->proto);
}

static int set_vlan(
	struct sriov *s, const struct target *t, const struct vf_vlan *to, struct err *err)
{
	struct vf_vlan now;
	int rc = get_vlan(s, t, &now, err);

	if (rc < 0)
		return -1;
	if (rc == 0 && is_same_vlan(&now, to))
		return 0;
	return nl_vf_set_vlan(&s->host, t->vf.pf_name, t->vf.id, to, err);
}

static struct vf_vlan vlan_of_claim(const struct device_alloc *a)
{
	return (struct vf_vlan){.id = (uint16_t)a->config->vlan.v, .proto = ETH_P_8021Q};
}

static int set_vlan_of_claim(
	struct sriov *s, const struct device_alloc *a, const struct target *t, struct err *err)
{
	const struct vf_vlan wanted = wants_vlan(a) ? vlan_of_claim(a) : (struct vf_vlan){0};

	if (!wants_vlan(a))
		return 0;
	return set_vlan(s, t, &wanted, err);
}

/* --- setup -------------------------------------------------------------------------------- */

/* Then the port is in nobody's VLAN: the mark comes first and goes last. */
static bool is_unmarked(const struct target *t)
{
	return has_link(t) && !str_has_prefix(t->link.alias, LINK_MARK_PREFIX);
}

/* How the port was before this claim: by the note of an earlier try, or as it is now. */
static int record_port(struct sriov *s, const struct device_alloc *a, struct target *t,
	const struct vf_vlan *noted, struct err *err)
{
	const struct vf_vlan none = {.proto = ETH_P_8021Q};
	struct vf_vlan before;
	int rc = 0;

	if (!wants_vlan(a))
		return 0;
	if (noted)
		before = *noted;
	else if ((rc = get_vlan(s, t, &before, err)) < 0)
		return -1;
	else if (rc == 0 && before.id == a->config->vlan.v && !is_unmarked(t))
		/* it may be that we did it, in an earlier try of which nothing else is left: it
		 * must not be left behind for the next claim */
		before = none;
	if (rc > 0) {
		LOG(WARN,
			FIELDS(F("device", t->state.addr), F("claim", a->claim_uid),
				F("err", err->message)),
			"what VLAN the port is in before the claim cannot be read; it will be in "
			"none after it");
		before = none;
	}
	t->state.port_vlan = port_vlan_of(&before);
	return 0;
}

static int record_link(
	struct sriov *s, struct target *t, const char *noted_alias, struct err *err)
{
	if (!has_link(t))
		return 0;
	t->state.link = xcalloc(1, sizeof(*t->state.link));
	if (link_origin_of(&s->host, &t->link, t->state.link, err) < 0)
		return -1;
	if (*link_boot())
		t->state.link->boot = xstrdup(link_boot());
	if (noted_alias && *noted_alias) {
		free(t->state.link->alias);
		/* as it was encoded into the note */
		t->state.link->alias = utf8_valid(noted_alias, strlen(noted_alias))
					       ? xstrdup(noted_alias)
					       : link_text_encode(noted_alias);
	}
	return 0;
}

/* Of a device that is prepared and set up once more. */
static void forget_record(struct vf_state *state)
{
	if (state->link)
		rec_fini(&rec_link_origin, state->link);
	free(take_ptr(state->link));
	free(take_ptr(state->port_vlan));
}

/* What is behind the mark or, where there can be none, was observed. */
static bool find_note(const struct target *t, struct vf_vlan *ret, const char **alias)
{
	struct link_mark mark;
	const char *note = "";

	*alias = NULL;
	if (has_link(t))
		return link_mark_parse(t->link.alias, &mark, &note) &&
		       vf_note_parse(note, ret, alias);
	if (t->state.port_vlan)
		*ret = vf_vlan_of(t->state.port_vlan);
	return t->state.port_vlan != NULL;
}

static int record(
	struct sriov *s, const struct device_alloc *a, struct target *t, struct err *err)
{
	struct vf_vlan noted;
	const char *alias;
	const bool is_noted = find_note(t, &noted, &alias);

	forget_record(&t->state);
	if (record_link(s, t, alias, err) < 0)
		return -1;
	return record_port(s, a, t, is_noted && noted.proto ? &noted : NULL, err);
}

/* The alias is cut where the kernel's room ends: it is whole in the claim's status. */
static int set_mark(struct sriov *s, const struct target *t, struct err *err)
{
	char note[VF_NOTE_SIZE], alias[LINK_ALIAS_SIZE];

	if (!has_link(t))
		return 0;
	vf_note_format(t->state.port_vlan, t->state.link->alias, note);
	_Static_assert(sizeof(alias) > LINK_MARK_SIZE, "a mark and what a note begins with");
	(void)snprintf(alias, sizeof(alias), "%.*s %.*s", LINK_MARK_SIZE - 1, t->mark,
		LINK_ALIAS_SIZE - 2 - (int)strlen(t->mark), note);
	return nl_link_set_alias(&s->host, t->link.ifindex, alias, err);
}

/* What is longer than the adapter lets through is lost without a word. */
static void warn_of_mtu(struct sriov *s, const struct device_alloc *a, const struct target *t)
{
	cleanup_link_info struct link_info pf = {0};
	struct err none;

	if (!has_link(t) || !*t->vf.pf_name ||
		nl_link_get(&s->host, t->vf.pf_name, &pf, &none) < 0 ||
		t->link.numbers[LINK_MTU] <= pf.numbers[LINK_MTU])
		return;
	LOG(WARN, FIELDS(F("device", a->device->name), F("claim", a->claim_uid)),
		"link '%s' has an MTU of %u, and its physical function '%s' one of %u: longer "
		"frames may be lost",
		t->link.name, t->link.numbers[LINK_MTU], t->vf.pf_name, pf.numbers[LINK_MTU]);
}

/* The failure that is being undone is what the caller reports. The mark of an earlier try stays,
 * with what it notes: the port may be in the claim's VLAN since. */
static void undo_mark(struct sriov *s, const struct target *t)
{
	struct err err = ERR_INIT;

	if (has_link(t) &&
		nl_link_set_alias(&s->host, t->link.ifindex, t->link.alias, &err) < 0)
		LOG(ERROR, FIELDS(F("device", t->state.addr), F("err", err.message)),
			"the mark of a failed setup stays");
}

static void make_prepared(struct target *t, struct device *ret)
{
	free(t->state.kernel_if_name);
	t->state.kernel_if_name = xstrdup(t->link.name);
	free(t->state.pf_name);
	t->state.pf_name = xstrdup(t->vf.pf_name);
	free(t->state.driver);
	t->state.driver = xstrdup(t->vf.driver);
	t->state.vf_id = (struct rec_int){.v = t->vf.id, .set = true};
	vf_make_device(&t->state, &t->vf, t->link.max_mtu, ret);
}

int sriov_observe(void *ctx, const struct device_alloc *a, struct device *ret, struct err *err)
{
	cleanup_target struct target t = {0};
	struct sriov *s = ctx;

	if (open_target(s, a, &t, err) < 0 || record(s, a, &t, err) < 0)
		return -1;
	make_prepared(&t, ret);
	return 0;
}

int sriov_setup(void *ctx, const struct device_alloc *a, struct device *ret, struct err *err)
{
	cleanup_target struct target t = {0};
	struct sriov *s = ctx;

	if (open_target(s, a, &t, err) < 0 || check_link_is_here(&t, err) < 0 ||
		check_name(&t, err) < 0 || check_owner(&t, err) < 0 ||
		record(s, a, &t, err) < 0)
		return -1;
	if (set_mark(s, &t, err) < 0)
		return err_wrap(err, "failed to mark the link of %s", t.state.addr);
	if (set_vlan_of_claim(s, a, &t, err) < 0) {
		undo_mark(s, &t);
		return -1;
	}
	warn_of_mtu(s, a, &t);
	make_prepared(&t, ret);
	return 0;
}

/* Of a function that is prepared: what it is to be put back to is in its state. */
static int mark_anew(struct sriov *s, const struct target *t, struct err *err)
{
	if (!has_link(t) || link_mark_is(t->link.alias, t->mark))
		return 0;
	if (nl_link_set_alias(&s->host, t->link.ifindex, t->mark, err) < 0)
		return err_wrap(err, "failed to mark the link of %s", t->state.addr);
	return 0;
}

int sriov_recover(void *ctx, const struct device_alloc *a, struct device *ret, struct err *err)
{
	cleanup_target struct target t = {0};
	struct sriov *s = ctx;

	if (open_target(s, a, &t, err) < 0 || check_link_is_here(&t, err) < 0 ||
		check_owner(&t, err) < 0)
		return -1;
	if (mark_anew(s, &t, err) < 0)
		return -1;
	if (set_vlan_of_claim(s, a, &t, err) < 0)
		return -1;
	/* the state is the claim's, and stays what the claim's status has */
	rec_copy(&rec_device, ret, a->device);
	return 0;
}

/* --- free --------------------------------------------------------------------------------- */

/* The port goes back to what it was if it is what the claim made it. */
static int free_vlan(
	struct sriov *s, const struct device_alloc *a, const struct target *t, struct err *err)
{
	struct vf_vlan now, before = {.proto = ETH_P_8021Q};
	int rc;

	if (!wants_vlan(a))
		return 0;
	rc = get_vlan(s, t, &now, err);
	if (rc < 0)
		return -1;
	if (t->state.port_vlan)
		before = vf_vlan_of(t->state.port_vlan);
	if (rc == 0 && is_same_vlan(&now, &before))
		return 0;
	if (rc == 0 && now.id != a->config->vlan.v) {
		LOG(WARN, FIELDS(F("device", a->device->name), F("claim", a->claim_uid)),
			"left alone: virtual function %u of %s is in VLAN %u, not in the "
			"claim's %lld",
			t->vf.id, t->vf.pf_name, now.id, (long long)a->config->vlan.v);
		return 0;
	}
	return nl_vf_set_vlan(&s->host, t->vf.pf_name, t->vf.id, &before, err);
}

/* What an audit found: all that is known is what the mark says. */
static int free_leftover(struct sriov *s, struct target *t, struct err *err)
{
	struct vf_vlan now, before = {.proto = ETH_P_8021Q};
	const char *note = "", *alias = "";
	char before_mark[LINK_ALIAS_SIZE];
	struct link_mark mark;
	bool is_noted;
	int rc;

	(void)link_mark_parse(t->link.alias, &mark, &note);
	is_noted = vf_note_parse(note, &before, &alias);
	if (!is_noted || before.proto) {
		rc = get_vlan(s, t, &now, err);
		if (rc < 0)
			return -1;
		if (rc == 0 && !is_noted && now.id)
			LOG(WARN,
				FIELDS(F("device", t->state.addr), F("claim", mark.claim_uid)),
				"virtual function %u of %s is taken out of VLAN %u; what its "
				"port had before the claim is not known",
				t->vf.id, t->vf.pf_name, now.id);
		if (!is_noted)
			before = (struct vf_vlan){.proto = ETH_P_8021Q};
		if ((rc > 0 || !is_same_vlan(&now, &before)) &&
			nl_vf_set_vlan(&s->host, t->vf.pf_name, t->vf.id, &before, err) < 0)
			return -1;
	}
	link_text_decode(alias, before_mark, sizeof(before_mark));
	return nl_link_set_alias(&s->host, t->link.ifindex, before_mark, err);
}

/* Whether the function that could not be opened does not exist: then nothing is left to undo. */
static bool is_gone(const struct device_alloc *a, const struct err *err)
{
	if (err->kind != ERR_NOT_FOUND)
		return false;
	LOG(WARN, FIELDS(F("device", a->device->name), F("claim", a->claim_uid)),
		"virtual function is gone; there is nothing to give back");
	return true;
}

int sriov_free(void *ctx, const struct device_alloc *a, struct err *err)
{
	cleanup_target struct target t = {0};
	struct sriov *s = ctx;

	if (open_target(s, a, &t, err) < 0)
		return is_gone(a, err) ? 0 : -1;
	if (is_anothers(&t)) {
		LOG(WARN, FIELDS(F("device", a->device->name), F("claim", a->claim_uid)),
			"left alone: this link is not the claim's, its alias is \"%s\"",
			t.link.alias);
		return 0;
	}
	if (check_link_is_here(&t, err) < 0)
		return -1;
	if (!t.state.link && has_link(&t) && link_mark_is(t.link.alias, t.mark))
		return free_leftover(s, &t, err);
	if (free_vlan(s, a, &t, err) < 0)
		return -1;
	if (t.state.link && link_release(&s->host, t.mark, t.state.link, err) < 0)
		return -1;
	return 0;
}

/* --- in the pod --------------------------------------------------------------------------- */

static int check_has_link(const struct vf_state *state, struct err *err)
{
	if (state->link)
		return 0;
	return err_set(err, ERR_INVALID,
		"virtual function %s has no link to hand over (driver %s)", state->addr,
		state->driver);
}

/* A function that was made anew since setup is in no VLAN. */
static int check_vlan(struct sriov *s, const struct device_alloc *a, struct err *err)
{
	cleanup_target struct target t = {0};

	if (!wants_vlan(a))
		return 0;
	if (open_target(s, a, &t, err) < 0 || check_owner(&t, err) < 0)
		return -1;
	return set_vlan_of_claim(s, a, &t, err);
}

int sriov_attach(void *ctx, const struct device_attach *a, int netns_fd, int rtnl_fd,
	struct device_attach_result *ret, struct err *err)
{
	struct vf_state state = {0};
	cleanup_nl struct nl pod = {0};
	char mark[LINK_MARK_SIZE];
	struct sriov *s = ctx;
	int rc = -1;

	if (nl_init(&pod, rtnl_fd, err) < 0 || check_vlan(s, a->allocation, err) < 0 ||
		vf_state_open(a->allocation->device, &state, err) < 0)
		return -1;
	link_mark_format(a->allocation, mark);
	if (check_has_link(&state, err) == 0)
		rc = link_give(
			&(const struct link_ends){
				.host = &s->host,
				.host_netns_fd = s->host_netns_fd,
				.pod = &pod,
				.pod_netns_fd = netns_fd,
			},
			mark, state.link, a, ret, err);
	rec_fini(&rec_vf_state, &state);
	return rc;
}

int sriov_detach(
	void *ctx, const struct device_attach *a, int netns_fd, int rtnl_fd, struct err *err)
{
	struct vf_state state = {0};
	cleanup_nl struct nl pod = {0};
	char mark[LINK_MARK_SIZE];
	struct sriov *s = ctx;
	int rc = -1;

	if (nl_init(&pod, rtnl_fd, err) < 0 ||
		vf_state_open(a->allocation->device, &state, err) < 0)
		return -1;
	link_mark_format(a->allocation, mark);
	if (check_has_link(&state, err) == 0)
		rc = link_take(
			&(const struct link_ends){
				.host = &s->host,
				.host_netns_fd = s->host_netns_fd,
				.pod = &pod,
				.pod_netns_fd = netns_fd,
			},
			mark, state.link, err);
	rec_fini(&rec_vf_state, &state);
	/* neither in the pod nor on the host by its mark: it is looked for by its address */
	return rc > 0 ? sriov_reclaim(s, a->allocation, err) : rc;
}

/* --- returned by the kernel --------------------------------------------------------------- */

/* Whose the function is, statd's table says: whatever mark the link bears, of this claim, of
 * another or none, the pod may have written it. No setup for another claim can have marked it
 * meanwhile, for statd starts none as long as this claim's row holds the device. */
int sriov_reclaim(void *ctx, const struct device_alloc *a, struct err *err)
{
	cleanup_target struct target t = {0};
	struct sriov *s = ctx;

	if (open_target(s, a, &t, err) < 0)
		return is_gone(a, err) ? 0 : -1;
	if (check_link_is_here(&t, err) < 0)
		return -1;
	if (t.state.link && has_link(&t)) {
		if (link_reclaim(&s->host, &t.link, t.mark, t.state.link, err) < 0)
			return -1;
	} else if (mark_anew(s, &t, err) < 0) {
		return -1;
	}
	return set_vlan_of_claim(s, a, &t, err);
}

/* --- audit -------------------------------------------------------------------------------- */

static const struct pci_vf *vf_of_link(const struct pci_scan *scan, const char *if_name)
{
	for (size_t i = 0; i < scan->n_vfs; i++)
		if (strcmp(scan->vfs[i].if_name, if_name) == 0)
			return &scan->vfs[i];
	return NULL;
}

/* The allocation that the link was marked for, as far as its mark tells. */
static void add_leftover(
	struct device_audit_result *to, const struct link_mark *mark, const struct pci_vf *vf)
{
	const size_t n = to->leftovers.n++;
	struct device_alloc *a;
	struct vf_state state;

	to->leftovers.v = xrealloc(to->leftovers.v, n + 1, sizeof(*to->leftovers.v));
	a = &to->leftovers.v[n];
	*a = (struct device_alloc){
		.device = xcalloc(1, sizeof(*a->device)),
		.claim_uid = xstrdup(mark->claim_uid),
		.share_id = *mark->share_id ? xstrdup(mark->share_id) : NULL,
	};
	vf_state_of(vf, &state);
	vf_make_device(&state, vf, 0, a->device);
	rec_fini(&rec_vf_state, &state);
}

static void add_leftovers(const struct link_list *found, const struct pci_scan *scan,
	struct device_audit_result *ret)
{
	for (size_t i = 0; i < found->n; i++) {
		const struct pci_vf *vf = vf_of_link(scan, found->v[i].name);
		char name[PCI_ADDR_SIZE];
		struct link_mark mark;

		if (!vf || !link_mark_parse(found->v[i].alias, &mark, NULL))
			continue;
		pci_device_name(vf->addr, name);
		if (strcmp(name, mark.device) == 0)
			add_leftover(ret, &mark, vf);
	}
}

int sriov_audit(void *ctx, const struct strlist *claim_uids, struct device_audit_result *ret,
	struct err *err)
{
	cleanup_link_list struct link_list found = {0};
	struct pci_scan scan = {0};
	struct sriov *s = ctx;

	if (link_find_leftovers(&s->host, claim_uids, &found, err) < 0)
		return -1;
	if (found.n == 0)
		return 0;
	if (pci_scan(s->sys_fd, &scan, err) < 0)
		return -1;
	add_leftovers(&found, &scan, ret);
	pci_scan_fini(&scan);
	return 0;
}
