/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inventory of virtual functions: what is configured is made, what sysfs shows is offered.
 *
 * A function is offered if it can be prepared; why another one is not is a note. A function
 * that is prepared is offered all the time: what cannot be seen while its link is in a pod,
 * its driver unbound or its physical function's link away is taken from its prepared state,
 * and of a physical function from the last look.
 *
 * Each look takes note of where the links are. So an event of a link costs a look at that
 * function alone, and when it is where it was, as after an attach or a detach of our own, that
 * is all. A link that was away and is on the host is reported, whether an event or a look finds
 * it: its namespace has ended.
 *
 * An interface that cannot be provisioned, or a function that cannot be offered, keeps no other
 * device away: the rest is served, and what is wrong is logged once and a note for statd, which
 * shows it until it is over.
 */
#include <string.h>

#include "common/check.h"
#include "common/link_move.h"
#include "common/link_table.h"
#include "common/log.h"
#include "dmgr-sriov/links.h"
#include "dmgr-sriov/pci.h"
#include "dmgr-sriov/sriov.h"
#include "dmgr-sriov/state.h"
#include "dmgr-sriov/uevent.h"

/* How long the first inventory waits for a driver that makes virtual functions: most are done
 * in a few seconds, and statd waits for us before the node is registered. */
#define PROVISION_WAIT_MS 15000
#define AGAIN_WAIT_MS     500 /* each later one, so that statd's calls are served meanwhile */
#define MAX_ALTERNATIVES  64  /* names of one link: an administrator gives a few */

/* --- names -------------------------------------------------------------------------------- */

/* A name that a message, an attribute and a person can read. The kernel lets a link have nearly
 * any bytes (dev_valid_name(), net/core/dev.c). */
static bool is_readable(const char *name)
{
	char shown[LINK_ALTNAME_SIZE];

	(void)snprintf(shown, sizeof(shown), "%s", name);
	str_sanitize(shown);
	return strcmp(shown, name) == 0;
}

static bool is_fit_name(const char *if_name)
{
	struct err err;

	return is_readable(if_name) && check_kernel_if_name(if_name, &err) == 0;
}

/* "0000-03-00-1" -> "0000:03:00.1" */
static void addr_of_device(const char *device, char out[static PCI_ADDR_SIZE])
{
	char *last;

	(void)snprintf(out, PCI_ADDR_SIZE, "%s", device);
	for (char *p = out; *p; p++)
		if (*p == '-')
			*p = ':';
	last = strrchr(out, ':');
	if (last)
		*last = '.';
}

/* A copy of what is readable, and not too much of it. */
static void copy_names(struct strlist *to, const struct strlist *from)
{
	for (size_t i = 0; i < from->n && to->n < MAX_ALTERNATIVES; i++)
		if (is_readable(from->v[i]))
			strlist_add(to, from->v[i]);
}

/* Whether `copy` is what copy_names() makes of these. */
static bool has_names(const struct strlist *copy, const struct strlist *of)
{
	struct strlist again = {0};
	bool same;

	copy_names(&again, of);
	same = again.n == copy->n;
	for (size_t i = 0; same && i < again.n; i++)
		same = strcmp(again.v[i], copy->v[i]) == 0;
	strlist_fini(&again);
	return same;
}

/* --- what is prepared --------------------------------------------------------------------- */

static const struct packed *prepared_by_addr(const struct sriov *s, const char *addr)
{
	char name[PCI_ADDR_SIZE];

	pci_device_name(addr, name);
	return s->prepared ? prepared_state(s->prepared, name) : NULL;
}

/* Its prepared state, if it has one. *ret is for rec_fini(). */
static bool open_prepared(const struct sriov *s, const char *addr, struct vf_state *ret)
{
	const struct packed *state = prepared_by_addr(s, addr);
	char name[PCI_ADDR_SIZE];
	struct err err;

	pci_device_name(addr, name);
	return state && vf_state_open(&(const struct device){.name = name,
					      .state = (struct packed *)(uintptr_t)state},
				ret, &err) == 0;
}

/* --- links that appear -------------------------------------------------------------------- */

static bool is_marked(struct sriov *s, const char *if_name)
{
	cleanup_link_info struct link_info link = {0};
	struct err err;

	return nl_link_get(&s->host, if_name, &link, &err) == 0 &&
	       str_has_prefix(link.alias, LINK_MARK_PREFIX);
}

/* Not one that its driver has just made, unless a claim has the function. */
static void link_appears(struct sriov *s, const struct seen_vf *vf, const char *if_name)
{
	char name[PCI_ADDR_SIZE];

	if (!vf->had_link && !prepared_by_addr(s, vf->addr) && !is_marked(s, if_name))
		return;
	pci_device_name(vf->addr, name);
	if (!strlist_has(&s->appeared, name))
		strlist_add(&s->appeared, name);
}

void sriov_take_appeared(void *ctx, struct strlist *ret)
{
	struct sriov *s = ctx;

	for (size_t i = 0; i < s->appeared.n; i++)
		strlist_add(ret, s->appeared.v[i]);
	strlist_fini(&s->appeared);
}

static int compare_seen(const void *a, const void *b)
{
	const struct seen_vf *va = a, *vb = b;

	return strcmp(va->addr, vb->addr);
}

static struct seen_vf *find_seen(const struct sriov *s, const char *addr)
{
	struct seen_vf key = {.if_name = ""};

	if (!s->n_vfs)
		return NULL;
	(void)snprintf(key.addr, sizeof(key.addr), "%s", addr);
	return bsearch(&key, s->vfs, s->n_vfs, sizeof(*s->vfs), compare_seen);
}

static void set_seen(struct seen_vf *vf, const char *if_name)
{
	(void)snprintf(vf->if_name, sizeof(vf->if_name), "%s", if_name);
	vf->had_link |= *if_name != '\0';
}

void sriov_settle(struct sriov *s, const char *device)
{
	char addr[PCI_ADDR_SIZE], if_name[IFNAMSIZ];
	struct seen_vf *vf;

	addr_of_device(device, addr);
	vf = find_seen(s, addr);
	if (vf && pci_look(s->sys_fd, addr, if_name) == PCI_VF)
		set_seen(vf, if_name);
}

/* --- events ------------------------------------------------------------------------------- */

/* Whether the inventory may be another now. What a pod holds is shown as it was prepared. */
static bool link_changes(struct sriov *s, struct seen_vf *vf, const char *if_name)
{
	const bool is_prepared = prepared_by_addr(s, vf->addr) != NULL;

	if (strcmp(vf->if_name, if_name) == 0)
		return false;
	if (!*vf->if_name)
		link_appears(s, vf, if_name);
	set_seen(vf, if_name);
	return !is_prepared || *if_name;
}

static bool event_matters(struct sriov *s, const struct uevent *e)
{
	char addr[PCI_ADDR_SIZE], if_name[IFNAMSIZ];
	struct seen_vf *vf;
	enum pci_kind kind;

	if (uevent_is_of_pci(e))
		return true;
	if (!uevent_function(e, addr))
		return false;
	kind = pci_look(s->sys_fd, addr, if_name);
	vf = find_seen(s, addr);
	return kind == PCI_VF && vf ? link_changes(s, vf, if_name) : kind != PCI_OTHER;
}

struct waking {
	struct sriov *s;
	bool matters;
};

static void on_event(void *ctx, const struct uevent *e)
{
	struct waking *w = ctx;

	w->matters |= event_matters(w->s, e);
}

static struct seen_pf *find_pf_by_ifindex(const struct sriov *s, int ifindex)
{
	for (size_t i = 0; i < s->n_pfs; i++)
		if (s->pfs[i].ifindex == ifindex)
			return &s->pfs[i];
	return NULL;
}

/* The kernel reports a link also when a VLAN of one of its virtual functions is set. */
static void on_link(void *ctx, const struct link_report *report)
{
	struct waking *w = ctx;
	const struct seen_pf *pf = find_pf_by_ifindex(w->s, report->ifindex);

	if (!pf)
		return;
	w->matters |= pf->mtu != report->mtu;
	w->matters |= !has_names(&pf->altnames, &report->altnames);
}

bool sriov_woken(void *ctx)
{
	struct waking w = {.s = ctx};

	if (!uevent_drain(w.s->uevent_fd, on_event, &w))
		w.matters = true;
	if (!links_drain(w.s->links_fd, on_link, &w))
		w.matters = true;
	return w.matters;
}

/* --- a look ------------------------------------------------------------------------------- */

static void end_look(struct sriov *s)
{
	pci_scan_fini(&s->scan);
	s->has_scan = false;
}

static int begin_look(struct sriov *s, struct err *err)
{
	end_look(s);
	if (pci_scan(s->sys_fd, &s->scan, err) < 0) {
		pci_scan_fini(&s->scan);
		return err_wrap(err, "%s", s->sysfs_root);
	}
	s->has_scan = true;
	return 0;
}

static void pfs_fini(struct seen_pf *pfs, size_t n)
{
	for (size_t i = 0; i < n; i++)
		strlist_fini(&pfs[i].altnames);
	free(pfs);
}

void sriov_forget_seen(struct sriov *s)
{
	end_look(s);
	pfs_fini(s->pfs, s->n_pfs);
	free(s->vfs);
	strlist_fini(&s->noted);
	strlist_fini(&s->appeared);
}

static struct seen_pf *find_pf(struct seen_pf *pfs, size_t n, const char *addr)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(pfs[i].addr, addr) == 0)
			return &pfs[i];
	return NULL;
}

/* As the last look has it while its link is not on the host. */
static void see_pf(struct sriov *s, const struct pci_vf *vf, struct seen_pf *ret)
{
	const struct seen_pf *before = find_pf(s->pfs, s->n_pfs, vf->pf_addr);
	cleanup_link_info struct link_info link = {0};
	struct err err;

	*ret = (struct seen_pf){.link_speed = -1, .mtu = -1};
	(void)snprintf(ret->addr, sizeof(ret->addr), "%s", vf->pf_addr);
	if (*vf->pf_name) {
		memcpy(ret->name, vf->pf_name, sizeof(ret->name));
		ret->link_speed = vf->link_speed;
		ret->mtu = vf->pf_mtu;
		if (nl_link_get(&s->host, vf->pf_name, &link, &err) == 0) {
			ret->ifindex = link.ifindex;
			copy_names(&ret->altnames, &link.altnames);
		}
	} else if (before) {
		memcpy(ret->name, before->name, sizeof(ret->name));
		ret->link_speed = before->link_speed;
		ret->mtu = before->mtu;
		copy_names(&ret->altnames, &before->altnames);
	}
}

struct pf_view {
	struct seen_pf *v;
	size_t n;
};

static void view_pf(struct sriov *s, struct pf_view *view, const struct pci_vf *vf)
{
	if (!*vf->pf_addr || find_pf(view->v, view->n, vf->pf_addr))
		return;
	view->v = xrealloc(view->v, view->n + 1, sizeof(*view->v));
	see_pf(s, vf, &view->v[view->n++]);
}

static void watch_pfs(const struct sriov *s)
{
	int *indexes = xcalloc(s->n_pfs, sizeof(*indexes));
	size_t n = 0;

	for (size_t i = 0; i < s->n_pfs; i++)
		if (s->pfs[i].ifindex)
			indexes[n++] = s->pfs[i].ifindex;
	links_watch(s->links_fd, indexes, n);
	free(indexes);
}

static void see_pfs(struct sriov *s)
{
	struct pf_view view = {0};

	for (size_t i = 0; i < s->scan.n_vfs; i++)
		view_pf(s, &view, &s->scan.vfs[i]);
	for (size_t i = 0; i < s->scan.n_skipped; i++)
		view_pf(s, &view, &s->scan.skipped[i].vf);
	pfs_fini(s->pfs, s->n_pfs);
	s->pfs = view.v;
	s->n_pfs = view.n;
	watch_pfs(s);
}

/* The first look after a restart: the link of a prepared function that has not the name that it
 * was prepared with has been elsewhere. */
static bool was_renamed(const struct sriov *s, const struct pci_vf *vf)
{
	struct vf_state was = {0};
	bool renamed;

	if (!*vf->if_name || !open_prepared(s, vf->addr, &was))
		return false;
	renamed = was.kernel_if_name && *was.kernel_if_name &&
		  strcmp(was.kernel_if_name, vf->if_name) != 0 &&
		  str_equal(was.driver, vf->driver);
	rec_fini(&rec_vf_state, &was);
	return renamed;
}

static void see_vf(struct sriov *s, const struct pci_vf *vf, struct seen_vf *ret)
{
	const struct seen_vf *before = find_seen(s, vf->addr);

	*ret = (struct seen_vf){.had_link = before && before->had_link};
	(void)snprintf(ret->addr, sizeof(ret->addr), "%s", vf->addr);
	if (before ? !*before->if_name && *vf->if_name : was_renamed(s, vf))
		link_appears(s, ret, vf->if_name);
	set_seen(ret, vf->if_name);
}

static void see_vfs(struct sriov *s)
{
	const size_t n = s->scan.n_vfs + s->scan.n_skipped;
	struct seen_vf *vfs = xcalloc(n, sizeof(*vfs));

	for (size_t i = 0; i < s->scan.n_vfs; i++)
		see_vf(s, &s->scan.vfs[i], &vfs[i]);
	for (size_t i = s->scan.n_vfs; i < n; i++)
		see_vf(s, &s->scan.skipped[i - s->scan.n_vfs].vf, &vfs[i]);
	if (n)
		qsort(vfs, n, sizeof(*vfs), compare_seen);
	free(s->vfs);
	s->vfs = vfs;
	s->n_vfs = n;
}

/* --- one function ------------------------------------------------------------------------- */

/* What is known of a function, from all sides. */
struct function {
	struct pci_vf vf; /* filled up with what it was */
	const struct link_info *link; /* NULL: it has none on the host */
	struct vf_state was; /* if it is prepared */
	bool is_prepared;
	const struct seen_pf *pf; /* NULL: it is not known which one it is */
	struct err why;           /* it cannot be offered, or only since it is prepared */
};

static void function_fini(struct function *f)
{
	rec_fini(&rec_vf_state, &f->was);
}
#define cleanup_function __attribute__((cleanup(function_fini)))

/* Its link is in a pod, or comes from one: it is called by then what it was. */
static bool keeps_name(const struct function *f)
{
	return f->is_prepared && f->was.kernel_if_name && *f->was.kernel_if_name &&
	       str_equal(f->was.driver, f->vf.driver);
}

static void say_why_not(struct function *f)
{
	const struct pci_vf *vf = &f->vf;
	char shown[IFNAMSIZ];

	if (f->why.kind != ERR_NONE)
		return;
	if (!*vf->pf_name) {
		(void)err_set(&f->why, ERR_UNAVAILABLE,
			"physical function %s: has no link on the host", vf->pf_addr);
	} else if (keeps_name(f) || pci_driver_has_no_link(vf->driver)) {
		return;
	} else if (!*vf->if_name) {
		(void)err_set(&f->why, ERR_BUSY,
			"it has no link on the host: its driver %s has not made one yet, or the "
			"link is in another network namespace",
			vf->driver);
	} else if (!is_fit_name(vf->if_name)) {
		(void)snprintf(shown, sizeof(shown), "%s", vf->if_name);
		str_sanitize(shown);
		(void)err_set(&f->why, ERR_INVALID,
			"its link is called \"%s\", which is not a name that can be published: "
			"rename it",
			shown);
	}
}

static void fill(char *text, size_t size, const char *was)
{
	if (!*text && was)
		(void)snprintf(text, size, "%s", was);
}

/* What cannot be seen is as it was. */
static void fill_up(struct function *f)
{
	struct pci_vf *vf = &f->vf;

	if (f->pf) {
		fill(vf->pf_name, sizeof(vf->pf_name), f->pf->name);
		vf->link_speed = f->pf->link_speed;
		vf->pf_mtu = f->pf->mtu;
	}
	if (!f->is_prepared)
		return;
	fill(vf->pf_name, sizeof(vf->pf_name), f->was.pf_name);
	fill(vf->driver, sizeof(vf->driver), f->was.driver);
	fill(vf->vendor, sizeof(vf->vendor), f->was.vendor);
	fill(vf->device_id, sizeof(vf->device_id), f->was.device_id);
	if (keeps_name(f))
		(void)snprintf(
			vf->if_name, sizeof(vf->if_name), "%s", f->was.kernel_if_name);
}

static void open_function(struct sriov *s, const struct link_table *links,
	const struct pci_vf *vf, const struct err *why, struct function *ret)
{
	*ret = (struct function){.vf = *vf,
		.link = link_table_find(links, vf->if_name),
		.pf = find_pf(s->pfs, s->n_pfs, vf->pf_addr)};
	if (why)
		ret->why = *why;
	ret->is_prepared = open_prepared(s, vf->addr, &ret->was);
	say_why_not(ret);
	fill_up(ret);
}

static void put_names(json_t *alternatives, const char *attribute, const struct strlist *names)
{
	struct strlist readable = {0};
	json_t *list;

	copy_names(&readable, names);
	if (readable.n) {
		list = json_array();
		for (size_t i = 0; i < readable.n; i++)
			(void)json_array_append_new(list, json_string(readable.v[i]));
		(void)json_object_set_new(alternatives, attribute, list);
	}
	strlist_fini(&readable);
}

/* NULL: its links have no alternative names. */
static struct packed *alternatives_of(const struct function *f)
{
	json_t *alternatives = json_object();

	if (f->pf)
		put_names(alternatives, "pfName", &f->pf->altnames);
	if (f->was.link)
		put_names(alternatives, "kernelIfName", &f->was.link->altnames);
	else if (f->link)
		put_names(alternatives, "kernelIfName", &f->link->altnames);
	if (json_object_size(alternatives) > 0)
		return packed_take(alternatives);
	json_decref(alternatives);
	return NULL;
}

static void make_device(const struct function *f, struct device *ret)
{
	const uint32_t max_mtu =
		f->link && f->link->max_mtu ? f->link->max_mtu : (uint32_t)f->was.max_mtu.v;
	struct vf_state state;

	vf_state_of(&f->vf, &state);
	if (!is_readable(state.pf_name))
		*state.pf_name = '\0';
	if (f->is_prepared && !*f->vf.pf_addr)
		state.vf_id = f->was.vf_id;
	vf_make_device(&state, &f->vf, max_mtu, ret);
	ret->alternatives = alternatives_of(f);
	/* its port's VLAN is noted nowhere else: a mark needs a link */
	if (pci_driver_has_no_link(f->vf.driver))
		ret->observe = (struct rec_bool){true, true};
	rec_fini(&rec_vf_state, &state);
}

/* --- all of them -------------------------------------------------------------------------- */

struct offering {
	struct sriov *s;
	struct link_table links; /* of all functions that have one on the host */
	struct device_list *to;
	struct strlist problems, waiting; /* those that pass by themselves are no warnings */
};

static void note_why(struct offering *o, const struct function *f)
{
	cleanup_free char *text = xasprintf("virtual function %s is %s: %s", f->vf.addr,
		f->is_prepared ? "prepared, and offered as it was" : "not offered",
		f->why.message);

	strlist_add(f->why.kind == ERR_BUSY ? &o->waiting : &o->problems, text);
}

static void offer(struct offering *o, const struct pci_vf *vf, const struct err *why)
{
	cleanup_function struct function f;

	open_function(o->s, &o->links, vf, why, &f);
	if (f.why.kind != ERR_NONE)
		note_why(o, &f);
	if (f.why.kind == ERR_NONE || f.is_prepared)
		make_device(&f, &o->to->devices.v[o->to->devices.n++]);
}

static void note_unreadable_pfs(const struct sriov *s, struct strlist *problems)
{
	for (size_t i = 0; i < s->n_pfs; i++) {
		cleanup_free char *text = NULL;

		if (is_readable(s->pfs[i].name))
			continue;
		text = xasprintf("the link of physical function %s is called \"%s\": its "
				 "virtual functions are offered without pfName; rename it",
			s->pfs[i].addr, s->pfs[i].name);
		str_sanitize(text);
		strlist_add(problems, text);
	}
}

static void log_new(struct sriov *s, enum log_level level, const struct strlist *notes)
{
	for (size_t i = 0; i < notes->n; i++)
		if (!strlist_has(&s->noted, notes->v[i]))
			log_record(level, NO_FIELDS, "%s", notes->v[i]);
}

static void move_notes(struct strlist *notes, struct strlist *to, struct strlist *noted)
{
	for (size_t i = 0; i < notes->n; i++) {
		strlist_add(to, notes->v[i]);
		strlist_add(noted, notes->v[i]);
	}
	strlist_fini(notes);
}

static void add_notes(struct offering *o)
{
	struct strlist noted = {0};

	log_new(o->s, LOG_WARN, &o->problems);
	log_new(o->s, LOG_INFO, &o->waiting);
	move_notes(&o->problems, &o->to->notes, &noted);
	move_notes(&o->waiting, &o->to->notes, &noted);
	strlist_fini(&o->s->noted);
	o->s->noted = noted;
}

static void read_links(struct sriov *s, struct link_table *ret)
{
	const struct pci_scan *scan = &s->scan;
	cleanup_free const char **names =
		xcalloc(scan->n_vfs + scan->n_skipped, sizeof(*names));
	size_t n = 0;

	for (size_t i = 0; i < scan->n_vfs; i++)
		if (*scan->vfs[i].if_name)
			names[n++] = scan->vfs[i].if_name;
	for (size_t i = 0; i < scan->n_skipped; i++)
		if (*scan->skipped[i].vf.if_name)
			names[n++] = scan->skipped[i].vf.if_name;
	link_table_read(&s->host, names, n, ret);
}

static void offer_all(struct sriov *s, struct device_list *to)
{
	struct offering o = {.s = s, .to = to};

	read_links(s, &o.links);
	to->devices.v =
		xcalloc(s->scan.n_vfs + s->scan.n_skipped, sizeof(*to->devices.v));
	for (size_t i = 0; i < s->scan.n_vfs; i++)
		offer(&o, &s->scan.vfs[i], NULL);
	for (size_t i = 0; i < s->scan.n_skipped; i++)
		offer(&o, &s->scan.skipped[i].vf, &s->scan.skipped[i].why);
	note_unreadable_pfs(s, &o.problems);
	add_notes(&o);
	link_table_fini(&o.links);
}

static bool has_altname(const void *altname, const struct link_info *link)
{
	return strlist_has(&link->altnames, altname);
}

/* The kernel finds a link by any of its names, but for those that only an alternative one can
 * be, as long as they are. */
static int find_link(struct sriov *s, const char *name, struct link_info *ret, struct err *err)
{
	if (strlen(name) < IFNAMSIZ)
		return nl_link_get(&s->host, name, ret, err);
	return nl_link_find(&s->host, has_altname, name, ret, err);
}

/* A configured name may be an alternative one, which sysfs does not show. */
static void find_links(struct sriov *s)
{
	for (size_t i = 0; i < s->n_ifaces; i++) {
		struct provision_iface *iface = &s->ifaces[i];
		cleanup_link_info struct link_info link = {0};
		struct err err;

		*iface->link = '\0';
		if (find_link(s, iface->if_name, &link, &err) == 0)
			memcpy(iface->link, link.name, sizeof(iface->link));
	}
}

static int make_functions(struct sriov *s, struct strlist *notes)
{
	const unsigned wait_ms = s->has_waited ? AGAIN_WAIT_MS : PROVISION_WAIT_MS;

	find_links(s);
	s->has_waited = true;
	return provision(
		s->provisioner, s->sys_fd, s->ifaces, s->n_ifaces, wait_ms, notes);
}

int sriov_discover(void *ctx, struct device_list *ret, struct err *err)
{
	struct sriov *s = ctx;
	const int left = make_functions(s, &ret->notes);

	if (begin_look(s, err) < 0)
		return -1;
	see_pfs(s);
	see_vfs(s);
	offer_all(s, ret);
	end_look(s);
	return left;
}

/* Many are restored at once, before the inventory: one look serves all of them. */
int sriov_restore(void *ctx, const struct device_alloc *a, struct device *ret, struct err *err)
{
	struct sriov *s = ctx;
	struct vf_state state = {0};
	struct err later;

	if (vf_state_open(a->device, &state, err) < 0)
		return -1;
	if (!s->has_scan && begin_look(s, &later) < 0)
		LOG(WARN, FIELDS(F("err", later.message)), "restoring without a look at sysfs");
	vf_make_device(&state, pci_scan_find(&s->scan, state.addr), 0, ret);
	rec_fini(&rec_vf_state, &state);
	return 0;
}
