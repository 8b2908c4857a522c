/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dummy manager's domain.
 *
 * A device is a name, dummy0 to dummy<count - 1>, until a claim is prepared: then the link of
 * that name is made on the host and marked with the claim. From there it goes into the pod and
 * dies there, with the claim's detach or with the namespace; it never comes back.
 *
 * The kernel cannot set an alias at a link's creation, so there is an instant in which the link
 * is there without a mark. Until it has one, it is in a group of its own kind (IFLA_GROUP, which
 * can be set at creation), and the mark takes it out of that in one request: so a link that a
 * crash left in between is known for ours. The next setup adopts it, or the next audit deletes
 * it. Setup also adopts the dummy0 that loading the kernel's module makes on some systems.
 *
 * The mark decides in every other place on the host. A link with another claim's mark is neither
 * adopted nor deleted, so an old claim's late clean-up never takes a new claim's link, and a
 * dummy link that an administrator made after a reboot is not deleted for a claim that had the
 * name before. A link of another kind, be it called dummy0, is another owner's and is never
 * touched.
 *
 * In a pod the mark proves nothing, and may be missing: root there can overwrite the alias. A
 * link keeps its number when it moves into the pod (unless one there has it), and nobody can
 * change that, so the number is part of the prepared device's state.
 */
#include "dmgr-dummy/dummy.h"

#include <string.h>

#include "common/link_move.h"
#include "common/log.h"
#include "common/netns.h"

#define KIND        "dummy"
#define NAME_PREFIX "dummy"

/* "nclm": of links that are not marked yet. Somebody else's would have to have our names, too. */
#define GROUP_UNMARKED 0x6e636c6d

/* --- records ------------------------------------------------------------------------------ */

struct dummy_config {
	struct rec_int count;
};

static const struct rec_field config_fields[] = {
	REC_INT(struct dummy_config, count, "count", REC_OPTIONAL, INT32_MIN, INT32_MAX,
		"dummy links to offer"),
};

static int check_config(const void *rec, struct err *err)
{
	const struct dummy_config *c = rec;

	if (c->count.v < 0)
		return err_set(err, ERR_INVALID,
			"dummy device count must not be negative: %lld", (long long)c->count.v);
	if (c->count.v > DUMMY_MAX_COUNT)
		return err_set(err, ERR_INVALID, "dummy device count must be at most %d: %lld",
			DUMMY_MAX_COUNT, (long long)c->count.v);
	return 0;
}

static REC_DESC(rec_dummy_config, struct dummy_config, "dummy", config_fields, check_config,
	"deviceManagerConfigs.dummy, without `enabled`, which is statd's");

/* As the seed's driver writes it, zero values included. */
struct dummy_state {
	char *name, *hw_addr;
	struct rec_int mtu, flags;
	struct rec_int ifindex; /* ours: of the link of a prepared device */
};

static const struct rec_field state_fields[] = {
	REC_STR(struct dummy_state, name, "Name", REC_REQUIRED, IFNAMSIZ - 1, NULL, "link"),
	REC_STR(struct dummy_state, hw_addr, "HWAddr", REC_ALWAYS, LINK_MAC_SIZE, NULL,
		"unused"),
	REC_INT(struct dummy_state, mtu, "MTU", REC_ALWAYS, 0, INT32_MAX, "unused"),
	REC_INT(struct dummy_state, flags, "Flags", REC_ALWAYS, 0, UINT32_MAX, "unused"),
	REC_INT(struct dummy_state, ifindex, "IfIndex", REC_OPTIONAL, 1, INT32_MAX,
		"number of the link of a prepared device"),
};
static REC_DESC(rec_dummy_state, struct dummy_state, "dummy device", state_fields, NULL,
	"state of a dummy device");

static struct packed *encode_state(char *name, int ifindex)
{
	const struct dummy_state state = {
		.name = name,
		.mtu = {.set = true},
		.flags = {.set = true},
		.ifindex = {.v = ifindex, .set = ifindex > 0},
	};

	return packed_take(rec_encode(&rec_dummy_state, &state));
}

/* ifindex 0: there is no link, or its number is not known. */
static void make_device(const char *name, int ifindex, struct device *ret)
{
	*ret = (struct device){
		.name = xstrdup(name),
		.if_name = xstrdup(name),
		.kernel_if_name = xstrdup(name),
	};
	ret->state = encode_state(ret->name, ifindex);
	ret->attributes = packed_take(json_pack(
		"{s{ss}s{ss}}", "ifName", "string", name, "kernelIfName", "string", name));
}

static void format_name(unsigned n, char out[static IFNAMSIZ])
{
	(void)snprintf(out, IFNAMSIZ, NAME_PREFIX "%u", n);
}

/* Whether it is the name of one of ours, of this configuration or an earlier one. */
static bool is_name(const char *name)
{
	char canonical[IFNAMSIZ];
	int64_t n;

	if (!str_has_prefix(name, NAME_PREFIX) ||
		parse_i64(name + strlen(NAME_PREFIX), 0, DUMMY_MAX_COUNT - 1, &n) < 0)
		return false;
	format_name((unsigned)n, canonical);
	return strcmp(name, canonical) == 0;
}

/* Checks the name that is both a device's and its link's. *ret_ifindex as in make_device(). */
static int open_device(const struct device *device, int *ret_ifindex, struct err *err)
{
	struct dummy_state state = {0};
	json_t *tree;
	bool same;
	int r;

	if (!is_name(device->name))
		return err_set(err, ERR_INVALID, "'%s' is not a dummy device", device->name);
	tree = packed_open(device->state);
	r = rec_decode(&rec_dummy_state, tree, REC_LENIENT, "state", NULL, &state, err);
	json_decref(tree);
	if (r < 0)
		return -1;
	same = strcmp(state.name, device->name) == 0;
	*ret_ifindex = state.ifindex.set ? (int)state.ifindex.v : 0;
	rec_fini(&rec_dummy_state, &state);
	if (!same)
		return err_set(err, ERR_INVALID, "state.Name is not '%s'", device->name);
	return 0;
}

static int check_device(const struct device *device, struct err *err)
{
	int ifindex;

	return open_device(device, &ifindex, err);
}

/* --- configuration and inventory ---------------------------------------------------------- */

int dummy_open(void *ctx, const char *sysfs_root UNUSED, struct err *err)
{
	struct dummy *d = ctx;

	d->host_netns_fd = netns_open_own(err);
	if (d->host_netns_fd < 0)
		return -1;
	return nl_init(&d->host, -1, err);
}

void dummy_close(struct dummy *d)
{
	nl_fini(&d->host);
	close_fd(&d->host_netns_fd);
}

int dummy_configure(void *ctx, const json_t *config, struct err *err)
{
	struct dummy_config c = {0};
	struct dummy *d = ctx;

	if (rec_decode(&rec_dummy_config, config, REC_LENIENT, "dummy", NULL, &c, err) < 0)
		return -1;
	d->count = (unsigned)c.count.v;
	return 0;
}

int dummy_discover(void *ctx, struct device_list *ret, struct err *err UNUSED)
{
	const struct dummy *d = ctx;
	char name[IFNAMSIZ];

	ret->devices.v = xcalloc(d->count, sizeof(*ret->devices.v));
	ret->devices.n = d->count;
	for (unsigned i = 0; i < d->count; i++) {
		format_name(i, name);
		make_device(name, 0, &ret->devices.v[i]);
	}
	return 0;
}

int dummy_restore(
	void *ctx UNUSED, const struct device_alloc *a, struct device *ret, struct err *err)
{
	int ifindex;

	if (open_device(a->device, &ifindex, err) < 0)
		return -1;
	make_device(a->device->name, ifindex, ret);
	return 0;
}

/* --- setup -------------------------------------------------------------------------------- */

static bool is_dummy(const struct link_info *link)
{
	return strcmp(link->kind, KIND) == 0;
}

/* ERR_CONFLICT unless the link is a dummy that is nobody's or this mark's. */
static int check_owner(const struct link_info *link, const char *mark, struct err *err)
{
	if (!is_dummy(link))
		return err_set(err, ERR_CONFLICT,
			"the name '%s' is taken by a link of kind '%s', not '" KIND "'",
			link->name, *link->kind ? link->kind : "physical");
	if (!str_has_prefix(link->alias, LINK_MARK_PREFIX) || strcmp(link->alias, mark) == 0)
		return 0;
	return err_set(err, ERR_CONFLICT,
		"link '%s' belongs to another claim: its alias is \"%s\"", link->name,
		link->alias);
}

/* The link on the host whose own name it is. ERR_NOT_FOUND also when it is but another one's
 * alternative name: *ret is then that one. */
static int find(struct dummy *d, const char *name, struct link_info *ret, struct err *err)
{
	if (nl_link_get(&d->host, name, ret, err) < 0)
		return -1;
	if (strcmp(ret->name, name) != 0)
		return err_set(err, ERR_NOT_FOUND, "'%s' is an alternative name of link '%s'",
			name, ret->name);
	return 0;
}

static int set_mark(
	struct dummy *d, const char *name, const char *mark, int *ret_ifindex, struct err *err)
{
	cleanup_link_info struct link_info link = {0};

	if (find(d, name, &link, err) < 0 || check_owner(&link, mark, err) < 0)
		return -1;
	*ret_ifindex = link.ifindex;
	if (strcmp(link.alias, mark) == 0)
		return 0;
	return nl_link_set_alias_and_group(&d->host, link.ifindex, mark, 0, err);
}

/* Whether the link that has the name already can be the claim's. */
static int check_adoption(struct dummy *d, const char *name, const char *mark, struct err *err)
{
	cleanup_link_info struct link_info link = {0};

	if (find(d, name, &link, err) < 0) {
		if (*link.name)
			err->kind = ERR_CONFLICT;
		return err_wrap(err, "dummy interface %s exists but could not be read", name);
	}
	return check_owner(&link, mark, err);
}

static int create(struct dummy *d, const char *name, const char *mark, struct err *err)
{
	if (nl_link_add(&d->host, name, KIND, GROUP_UNMARKED, err) == 0)
		return 0;
	if (err->kind != ERR_CONFLICT)
		return err_wrap(err, "failed to create dummy interface %s", name);
	return check_adoption(d, name, mark, err);
}

int dummy_setup(void *ctx, const struct device_alloc *a, struct device *ret, struct err *err)
{
	const char *name = a->device->name;
	char mark[LINK_MARK_SIZE];
	struct dummy *d = ctx;
	int ifindex;

	if (check_device(a->device, err) < 0)
		return -1;
	if (a->config && a->config->vlan.set)
		return err_set(err, ERR_INVALID,
			"vlan: a dummy device has no VLAN support; only SR-IOV virtual "
			"functions do");
	link_mark_format(a, mark);
	if (create(d, name, mark, err) < 0)
		return -1;
	if (set_mark(d, name, mark, &ifindex, err) < 0)
		return err_wrap(err, "failed to mark dummy interface %s", name);
	make_device(name, ifindex, ret);
	return 0;
}

/* --- free --------------------------------------------------------------------------------- */

int dummy_free(void *ctx, const struct device_alloc *a, struct err *err)
{
	cleanup_link_info struct link_info link = {0};
	char mark[LINK_MARK_SIZE];
	struct dummy *d = ctx;

	if (check_device(a->device, err) < 0)
		return -1;
	link_mark_format(a, mark);
	if (find(d, a->device->name, &link, err) < 0)
		return err->kind == ERR_NOT_FOUND ? 0 : -1;
	if (!is_dummy(&link) || strcmp(link.alias, mark) != 0) {
		LOG(WARN, FIELDS(F("device", link.name), F("claim", a->claim_uid)),
			"left alone: this link is not the claim's, its kind is '%s' and its "
			"alias is \"%s\"",
			link.kind, link.alias);
		return 0;
	}
	if (nl_link_del(&d->host, link.ifindex, err) < 0 && err->kind != ERR_NOT_FOUND)
		return -1;
	return 0;
}

/* --- in the pod --------------------------------------------------------------------------- */

/* What a dummy link was before: nothing but its name. Borrows the name. */
static struct link_origin origin_of(const struct device_alloc *a)
{
	static char kind[] = KIND;

	return (struct link_origin){.name = a->device->name, .kind = kind};
}

/* Whether a dummy link in the pod can be the claim's although it has not its mark. One that bears
 * another claim's mark is that claim's, unless the pod has written it: a device is one claim's, so
 * no other claim's mark names it, and no other link has both its number and the name that it was
 * given. */
static bool can_be_of(
	const struct link_info *link, const struct device_attach *a, int ifindex)
{
	struct link_mark mark;

	if (!is_dummy(link))
		return false;
	return !link_mark_parse(link->alias, &mark, NULL) ||
	       strcmp(mark.device, a->allocation->device->name) == 0 ||
	       (link->ifindex == ifindex && strcmp(link->name, a->if_name) == 0);
}

/* ret is kept if rc says that there is a link and it can be the claim's. */
static int keep_if_can_be(int rc, const struct device_attach *a, int ifindex,
	struct link_info *ret, struct err *err)
{
	if (rc == 0 && can_be_of(ret, a, ifindex))
		return 0;
	if (rc == 0)
		(void)err_set(err, ERR_NOT_FOUND, "link '%s' is not the claim's", ret->name);
	link_info_fini(ret);
	*ret = (struct link_info){0};
	return -1;
}

/* By its mark; where the pod has overwritten that, by its number, and if it had to take another
 * one in the pod, by the name that it was given there. */
static int find_in_pod(struct nl *pod, const struct device_attach *a, int ifindex,
	struct link_info *ret, struct err *err)
{
	const struct link_origin origin = origin_of(a->allocation);
	char mark[LINK_MARK_SIZE];

	link_mark_format(a->allocation, mark);
	if (link_find(pod, mark, &origin, ret, err) == 0)
		return 0;
	if (err->kind == ERR_NOT_FOUND && ifindex > 0 &&
		keep_if_can_be(nl_link_get_by_index(pod, ifindex, ret, err), a, ifindex, ret,
			err) == 0)
		return 0;
	if (err->kind == ERR_NOT_FOUND &&
		keep_if_can_be(nl_link_get(pod, a->if_name, ret, err), a, ifindex, ret,
			err) == 0)
		return 0;
	return -1;
}

/* One that was in this pod before and has lost its mark there has it again, so that it is found. */
static int mark_again(
	struct nl *pod, const struct device_attach *a, int ifindex, struct err *err)
{
	cleanup_link_info struct link_info link = {0};
	char mark[LINK_MARK_SIZE];

	if (find_in_pod(pod, a, ifindex, &link, err) < 0)
		return -1;
	link_mark_format(a->allocation, mark);
	return nl_link_set_alias(pod, link.ifindex, mark, err);
}

int dummy_attach(void *ctx, const struct device_attach *a, int netns_fd, int rtnl_fd,
	struct device_attach_result *ret, struct err *err)
{
	const struct link_origin origin = origin_of(a->allocation);
	cleanup_nl struct nl pod = {0};
	char mark[LINK_MARK_SIZE];
	struct dummy *d = ctx;
	const struct link_ends ends = {
		.host = &d->host,
		.host_netns_fd = d->host_netns_fd,
		.pod = &pod,
		.pod_netns_fd = netns_fd,
	};
	int ifindex;

	if (open_device(a->allocation->device, &ifindex, err) < 0 ||
		nl_init(&pod, rtnl_fd, err) < 0)
		return -1;
	link_mark_format(a->allocation, mark);
	if (link_give(&ends, mark, &origin, a, ret, err) == 0)
		return 0;
	if (err->kind != ERR_NOT_FOUND || !a->may_be_there.v ||
		mark_again(&pod, a, ifindex, err) < 0)
		return -1;
	return link_give(&ends, mark, &origin, a, ret, err);
}

int dummy_detach(void *ctx UNUSED, const struct device_attach *a, int netns_fd UNUSED,
	int rtnl_fd, struct err *err)
{
	cleanup_link_info struct link_info link = {0};
	cleanup_nl struct nl pod = {0};
	int ifindex;

	if (open_device(a->allocation->device, &ifindex, err) < 0 ||
		nl_init(&pod, rtnl_fd, err) < 0)
		return -1;
	if (find_in_pod(&pod, a, ifindex, &link, err) == 0 &&
		nl_link_del(&pod, link.ifindex, err) == 0)
		return 0;
	return err->kind == ERR_NOT_FOUND ? 1 : -1;
}

/* The claim's link has been in no other namespace if it is on the host, and stays as it is. */
int dummy_reclaim(void *ctx, const struct device_alloc *a, struct err *err)
{
	cleanup_link_info struct link_info link = {0};
	char mark[LINK_MARK_SIZE];
	struct dummy *d = ctx;

	if (check_device(a->device, err) < 0)
		return -1;
	link_mark_format(a, mark);
	if (find(d, a->device->name, &link, err) == 0)
		return is_dummy(&link) && strcmp(link.alias, mark) == 0 ? 0 : 1;
	return err->kind == ERR_NOT_FOUND ? 1 : -1;
}

/* --- audit -------------------------------------------------------------------------------- */

/* The allocation that the link was made for, as far as its mark tells. */
static void add_leftover(struct device_audit_result *to, const struct link_mark *mark)
{
	const size_t n = to->leftovers.n++;
	struct device_alloc *a;

	to->leftovers.v = xrealloc(to->leftovers.v, n + 1, sizeof(*to->leftovers.v));
	a = &to->leftovers.v[n];
	*a = (struct device_alloc){
		.device = xcalloc(1, sizeof(*a->device)),
		.claim_uid = xstrdup(mark->claim_uid),
		.share_id = *mark->share_id ? xstrdup(mark->share_id) : NULL,
	};
	make_device(mark->device, 0, a->device);
}

/* Nobody sets a link up meanwhile: that is our own work, one at a time. */
static bool is_unmarked(const void *ctx UNUSED, const struct link_info *link)
{
	return link->numbers[LINK_GROUP] == GROUP_UNMARKED && !*link->alias &&
	       is_dummy(link) && is_name(link->name);
}

static int delete_unmarked(struct dummy *d, struct err *err)
{
	cleanup_link_list struct link_list found = {0};

	if (nl_link_find_all(&d->host, is_unmarked, NULL, &found, err) < 0)
		return -1;
	for (size_t i = 0; i < found.n; i++) {
		if (nl_link_del(&d->host, found.v[i].ifindex, err) < 0 &&
			err->kind != ERR_NOT_FOUND)
			return -1;
		LOG(INFO, FIELDS(F("device", found.v[i].name)),
			"deleted: it was made for a claim, and a crash kept it from being "
			"marked");
	}
	return 0;
}

int dummy_audit(void *ctx, const struct strlist *claim_uids, struct device_audit_result *ret,
	struct err *err)
{
	cleanup_link_list struct link_list found = {0};
	struct dummy *d = ctx;

	if (delete_unmarked(d, err) < 0 ||
		link_find_leftovers(&d->host, claim_uids, &found, err) < 0)
		return -1;
	for (size_t i = 0; i < found.n; i++) {
		const struct link_info *link = &found.v[i];
		struct link_mark mark;

		/* another one would be another manager's, or somebody's joke */
		if (link_mark_parse(link->alias, &mark, NULL) && is_name(mark.device) &&
			strcmp(link->name, mark.device) == 0 && is_dummy(link))
			add_leftover(ret, &mark);
	}
	return 0;
}

const struct manager_ops dummy_ops = {
	.type = MANAGER_DUMMY,
	.open = dummy_open,
	.configure = dummy_configure,
	.discover = dummy_discover,
	.restore = dummy_restore,
	.setup = dummy_setup,
	.recover = dummy_setup, /* adopting makes it repeatable */
	.free = dummy_free,
	.attach = dummy_attach,
	.detach = dummy_detach,
	.reclaim = dummy_reclaim,
	.audit = dummy_audit,
};
