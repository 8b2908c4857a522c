/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration goes through three steps. Decoding checks each field by itself and refuses
 * what it does not know, so that a misspelt field is not a setting silently lost; only
 * metadata, which is Kubernetes' own, may hold anything. Then what is unset gets its default.
 * Then come the relations between fields, most of which are that some text must not occur
 * twice.
 *
 * These last name a place by its path, like spec.pools[1].name. From the path follows the node,
 * and from the node its line, if the configuration came from a text.
 */
#include "statd/config.h"

#include <string.h>

#include "common/check.h"

#define MAX_DUMMIES 4096  /* as many as dmgr-dummy makes, and an inventory has */
#define MAX_VFS     65535 /* TotalVFs of the SR-IOV capability has 16 bits */
#define MAX_IFACES  1024
#define MAX_QUEUES  4095 /* one stays of the 4096 that rtnl_create_link() allows a link */
#define MAX_POOLS   1024 /* they are named by people */
#define MAX_WAIT_S  86400
#define MAX_TRIES   1000000 /* at one a second, eleven days */

/* --- the records -------------------------------------------------------------------------- */

static const struct rec_field dummy_config_fields[] = {
	REC_BOOL(struct dummy_config, enabled, "enabled", REC_OPTIONAL, "default false"),
	REC_INT(struct dummy_config, count, "count", REC_OPTIONAL, 0, MAX_DUMMIES,
		"links to offer: dummy0, dummy1, ...; default 0"),
};
REC_DESC(rec_dummy_config, struct dummy_config, "dummy", dummy_config_fields, NULL,
	"the manager of dummy links");

static int check_absolute(const char *text, struct err *err)
{
	if (*text == '/' || *text == '\0')
		return 0;
	return err_set(err, ERR_INVALID, "\"%.64s\" is not an absolute path", text);
}

static const struct rec_field sriov_iface_fields[] = {
	REC_STR(struct sriov_iface, if_name, "ifName", REC_REQUIRED, 0, check_any_if_name,
		"physical function"),
	REC_INT(struct sriov_iface, vf_count, "vfCount", REC_OPTIONAL, 0, MAX_VFS,
		"virtual functions to make if it has none; default 0"),
};
static REC_DESC(rec_sriov_iface, struct sriov_iface, "an interface", sriov_iface_fields, NULL,
	"a physical function whose virtual functions are made at start");

static const struct rec_field sriov_config_fields[] = {
	REC_BOOL(struct sriov_config, enabled, "enabled", REC_OPTIONAL, "default false"),
	REC_STR(struct sriov_config, sysfs_root, "sysBusPCIDevPath", REC_OPTIONAL, 0,
		check_absolute, "root of sysfs; default: as the manager was started"),
	REC_RECS(struct sriov_config, ifaces, "ifaces", REC_OPTIONAL, MAX_IFACES,
		struct sriov_iface, &rec_sriov_iface, "where to make virtual functions"),
};
REC_DESC(rec_sriov_config, struct sriov_config, "sriov", sriov_config_fields, NULL,
	"the manager of SR-IOV virtual functions");

static const struct rec_field rxqueue_iface_fields[] = {
	REC_STR(struct rxqueue_iface, if_name, "ifName", REC_REQUIRED, 0, check_if_name,
		"physical interface"),
	REC_INT(struct rxqueue_iface, count, "count", REC_OPTIONAL, 1, MAX_QUEUES,
		"receive queues to reserve; default 1"),
};
static REC_DESC(rec_rxqueue_iface, struct rxqueue_iface, "an interface", rxqueue_iface_fields,
	NULL, "an interface whose receive queues are offered");

static int check_rxqueue_config(const void *rec, struct err *err)
{
	const struct rxqueue_config *c = rec;

	if (!c->enabled.v || c->ifaces.n > 0)
		return 0;
	return err_set(err, ERR_INVALID, "no RX queue interfaces configured: ifaces is empty");
}

static const struct rec_field rxqueue_config_fields[] = {
	REC_BOOL(struct rxqueue_config, enabled, "enabled", REC_OPTIONAL, "default false"),
	REC_RECS(struct rxqueue_config, ifaces, "ifaces", REC_OPTIONAL, MAX_IFACES,
		struct rxqueue_iface, &rec_rxqueue_iface, "at least one"),
};
REC_DESC(rec_rxqueue_config, struct rxqueue_config, "rxQueue", rxqueue_config_fields,
	check_rxqueue_config, "the manager of receive queues");

static const struct rec_field manager_configs_fields[] = {
	REC_SUB(struct manager_configs, dummy, "dummy", REC_OPTIONAL, struct dummy_config,
		&rec_dummy_config, "dummy links"),
	REC_SUB(struct manager_configs, sriov, "sriov", REC_OPTIONAL, struct sriov_config,
		&rec_sriov_config, "SR-IOV virtual functions"),
	REC_SUB(struct manager_configs, rx_queue, "rxQueue", REC_OPTIONAL,
		struct rxqueue_config, &rec_rxqueue_config, "receive queues"),
};
/* the name makes the message about an unknown one read "macvlan: is not a field of ..." */
REC_DESC(rec_manager_configs, struct manager_configs, "this driver's device managers",
	manager_configs_fields, NULL, "a section for each device manager");

static const struct rec_field spec_fields[] = {
	REC_STR(struct node_config_spec, driver_name, "driverName", REC_OPTIONAL, 0,
		check_driver_name, "DRA driver and NRI plugin; default " CONFIG_DEFAULT_DRIVER),
	REC_INT(struct node_config_spec, retry_interval_s, "draRegistrationRetryInterval",
		REC_OPTIONAL, 1, MAX_WAIT_S, "seconds between attempts; default 1"),
	REC_INT(struct node_config_spec, registration_timeout_s, "draRegistrationTimeout",
		REC_OPTIONAL, 1, MAX_WAIT_S, "seconds for one attempt; default 5"),
	REC_INT(struct node_config_spec, max_attempts, "draRegistrationMaxAttempts",
		REC_OPTIONAL, 1, MAX_TRIES, "attempts before giving up; default 10"),
	REC_SUB(struct node_config_spec, managers, "deviceManagerConfigs", REC_OPTIONAL,
		struct manager_configs, &rec_manager_configs, "the device managers"),
	REC_RECS(struct node_config_spec, pools.pools, "pools", REC_OPTIONAL, MAX_POOLS,
		struct pool, &rec_pool, "logical pools"),
};
REC_DESC(rec_node_config_spec, struct node_config_spec, "spec", spec_fields, NULL,
	"how the node's devices are managed and grouped");

struct object {
	char *api_version, *kind;
	json_t *metadata;
	struct node_config_spec *spec;
};

static int check_api_version(const char *text, struct err *err)
{
	if (strcmp(text, CONFIG_API_VERSION) == 0)
		return 0;
	return err_set(err, ERR_INVALID, "must be %s", CONFIG_API_VERSION);
}

static int check_kind(const char *text, struct err *err)
{
	if (strcmp(text, CONFIG_KIND) == 0)
		return 0;
	return err_set(err, ERR_INVALID, "must be %s", CONFIG_KIND);
}

static const struct rec_field object_fields[] = {
	REC_STR(struct object, api_version, "apiVersion", REC_REQUIRED, 0, check_api_version,
		CONFIG_API_VERSION),
	REC_STR(struct object, kind, "kind", REC_REQUIRED, 0, check_kind, CONFIG_KIND),
	REC_OBJECT(struct object, metadata, "metadata", REC_REQUIRED, "with the node's name"),
	REC_SUB(struct object, spec, "spec", REC_REQUIRED, struct node_config_spec,
		&rec_node_config_spec, "the configuration"),
};
static REC_DESC(rec_object, struct object, CONFIG_KIND, object_fields, NULL,
	"configuration of one node");

struct metadata {
	char *name;
};

static const struct rec_field metadata_fields[] = {
	REC_STR(struct metadata, name, "name", REC_REQUIRED, 0, check_dns_subdomain,
		"name of the node"),
};
static REC_DESC(rec_metadata, struct metadata, "metadata", metadata_fields, NULL,
	"what Kubernetes keeps about it");

/* --- places ------------------------------------------------------------------------------- */

struct source {
	const json_t *root;
	const struct doc *doc; /* or NULL */
};

/* The node at a path of field names and [indexes], or NULL. */
static const json_t *node_at(const json_t *node, const char *path)
{
	while (*path) {
		size_t len = strcspn(path, ".[");

		if (*path == '[')
			node = json_array_get(node, strtoul(path + 1, NULL, 10));
		else if (len > 0)
			node = json_object_getn(node, path, len);
		path += *path == '[' ? strcspn(path, "]") + 1 : MAX(len, 1u);
	}
	return node;
}

/* 0: there was no text, or not one whose lines are known. */
static unsigned line_at(const struct source *src, const char *path)
{
	return src->doc ? doc_line(src->doc, node_at(src->root, path)) : 0;
}

/* "line 9", or else the path itself. */
static char *place_name(const struct source *src, const char *path)
{
	unsigned line = line_at(src, path);

	return line ? xasprintf("line %u", line) : xstrdup(path);
}

__attribute__((format(printf, 4, 5))) static int refuse(
	const struct source *src, const char *path, struct err *err, const char *fmt, ...)
{
	unsigned line = line_at(src, path);
	va_list ap;

	va_start(ap, fmt);
	(void)err_vset(err, ERR_INVALID, fmt, ap);
	va_end(ap);
	(void)err_wrap(err, "%s", path);
	if (line)
		return err_wrap(err, "%s:%u", doc_name(src->doc), line);
	if (src->doc)
		return err_wrap(err, "%s", doc_name(src->doc));
	return -1;
}

/* --- texts that must not occur twice ------------------------------------------------------ */

/* A text of the configuration, where it stands, and whose it is: an element of a list, or a
 * pool that may have it several times. */
struct mention {
	const char *text;
	size_t owner, order;
	char *path;
};

struct mentions {
	struct mention *v;
	size_t n;
};

static void mentions_add(struct mentions *m, const char *text, size_t owner, char *path)
{
	m->v = xrealloc(m->v, m->n + 1, sizeof(*m->v));
	m->v[m->n] =
		(struct mention){.text = text, .owner = owner, .order = m->n, .path = path};
	m->n++;
}

static void mentions_fini(struct mentions *m)
{
	for (size_t i = 0; i < m->n; i++)
		free(m->v[i].path);
	free(m->v);
}

static int compare_mentions(const void *a, const void *b)
{
	const struct mention *ma = a, *mb = b;
	int order = strcmp(ma->text, mb->text);

	return order ? order : (ma->order > mb->order) - (ma->order < mb->order);
}

/* The first mention of a text that another owner has already, and that one's; NULL if none. */
static const struct mention *find_repeated(struct mentions *m, const struct mention **ret_first)
{
	const struct mention *first = m->v, *again = NULL;

	if (m->n > 0)
		qsort(m->v, m->n, sizeof(*m->v), compare_mentions);
	for (size_t i = 0; i < m->n; i++) {
		const struct mention *here = &m->v[i];

		if (strcmp(here->text, first->text) != 0)
			first = here;
		if (here->owner == first->owner || (again && here->order > again->order))
			continue;
		again = here;
		*ret_first = first;
	}
	return again;
}

/* pools: whose mentions they are, to be named; or NULL. */
static int refuse_repeated(const struct source *src, struct mentions *m, const char *what,
	const struct pool_list *pools, struct err *err)
{
	const struct mention *first, *again = find_repeated(m, &first);
	cleanup_buf struct buf text = BUF_INIT;
	cleanup_free char *place = NULL;

	if (!again)
		return 0;
	place = place_name(src, first->path);
	buf_printf(&text, "%s: %s", what, again->text);
	if (pools)
		buf_printf(&text, " on pools %s and %s", pools->pools.v[first->owner].name,
			pools->pools.v[again->owner].name);
	return refuse(src, again->path, err, "%s (first at %s)", text.data, place);
}

static int check_pool_names(
	const struct source *src, const struct pool_list *pools, struct err *err)
{
	struct mentions m = {0};
	int outcome;

	for (size_t i = 0; i < pools->pools.n; i++)
		mentions_add(
			&m, pools->pools.v[i].name, i, xasprintf("spec.pools[%zu].name", i));
	outcome = refuse_repeated(src, &m, "duplicated pool name", NULL, err);
	mentions_fini(&m);
	return outcome;
}

static void mention_texts(
	struct mentions *m, const struct strlist *texts, size_t owner, const char *field)
{
	for (size_t i = 0; i < texts->n; i++)
		mentions_add(m, texts->v[i], owner,
			xasprintf("spec.pools[%zu].filter.%s[%zu]", owner, field, i));
}

/* What names one device cannot be in two pools. Every other overlap is settled when it comes up
 * (pool_resolve()). */
static int check_pool_overlaps(
	const struct source *src, const struct pool_list *pools, struct err *err)
{
	struct mentions if_names = {0}, pci_addrs = {0};
	int outcome;

	for (size_t i = 0; i < pools->pools.n; i++) {
		const struct pool_filter *filter = pools->pools.v[i].filter;

		if (!filter)
			continue;
		mention_texts(&if_names, &filter->if_names, i, "ifNames");
		mention_texts(&pci_addrs, &filter->pci_addrs, i, "pciAddrs");
	}
	outcome = refuse_repeated(
		src, &if_names, "ifname contained in multiple pools", pools, err);
	if (outcome == 0)
		outcome = refuse_repeated(
			src, &pci_addrs, "pci addr contained in multiple pools", pools, err);
	mentions_fini(&if_names);
	mentions_fini(&pci_addrs);
	return outcome;
}

static int check_sriov_ifaces(
	const struct source *src, const struct sriov_config *c, struct err *err)
{
	struct mentions m = {0};
	int outcome;

	for (size_t i = 0; i < c->ifaces.n; i++)
		mentions_add(&m, c->ifaces.v[i].if_name, i,
			xasprintf("spec.deviceManagerConfigs.sriov.ifaces[%zu].ifName", i));
	outcome = refuse_repeated(src, &m, "duplicate SR-IOV interface", NULL, err);
	mentions_fini(&m);
	return outcome;
}

static int check_rxqueue_ifaces(
	const struct source *src, const struct rxqueue_config *c, struct err *err)
{
	struct mentions m = {0};
	int outcome;

	for (size_t i = 0; i < c->ifaces.n; i++)
		mentions_add(&m, c->ifaces.v[i].if_name, i,
			xasprintf("spec.deviceManagerConfigs.rxQueue.ifaces[%zu].ifName", i));
	outcome = refuse_repeated(src, &m, "duplicate RX queue interface", NULL, err);
	mentions_fini(&m);
	return outcome;
}

static int check_relations(
	const struct source *src, const struct node_config_spec *spec, struct err *err)
{
	const struct manager_configs *managers = spec->managers;

	if (managers->sriov && check_sriov_ifaces(src, managers->sriov, err) < 0)
		return -1;
	if (managers->rx_queue && check_rxqueue_ifaces(src, managers->rx_queue, err) < 0)
		return -1;
	if (check_pool_names(src, &spec->pools, err) < 0)
		return -1;
	return check_pool_overlaps(src, &spec->pools, err);
}

/* --- defaults ----------------------------------------------------------------------------- */

static void default_int(struct rec_int *field, int64_t v)
{
	if (!field->set)
		*field = (struct rec_int){.v = v, .set = true};
}

static void default_bool(struct rec_bool *field, bool v)
{
	if (!field->set)
		*field = (struct rec_bool){.v = v, .set = true};
}

static void default_sriov(struct sriov_config *c)
{
	default_bool(&c->enabled, false);
	if (c->sysfs_root && !*c->sysfs_root) {
		free(c->sysfs_root);
		c->sysfs_root = NULL;
	}
	for (size_t i = 0; i < c->ifaces.n; i++)
		default_int(&c->ifaces.v[i].vf_count, 0);
}

static void default_rxqueue(struct rxqueue_config *c)
{
	default_bool(&c->enabled, false);
	for (size_t i = 0; i < c->ifaces.n; i++)
		default_int(&c->ifaces.v[i].count, 1);
}

static void apply_defaults(struct node_config_spec *spec)
{
	if (!spec->driver_name)
		spec->driver_name = xstrdup(CONFIG_DEFAULT_DRIVER);
	default_int(&spec->retry_interval_s, 1);
	default_int(&spec->registration_timeout_s, 5);
	default_int(&spec->max_attempts, 10);
	if (!spec->managers)
		spec->managers = xcalloc(1, sizeof(*spec->managers));
	if (spec->managers->dummy) {
		default_bool(&spec->managers->dummy->enabled, false);
		default_int(&spec->managers->dummy->count, 0);
	}
	if (spec->managers->sriov)
		default_sriov(spec->managers->sriov);
	if (spec->managers->rx_queue)
		default_rxqueue(spec->managers->rx_queue);
}

static void fill_sections(struct node_config *config)
{
	const struct manager_configs *m = config->spec.managers;

	if (m->dummy && m->dummy->enabled.v)
		config->sections[MANAGER_DUMMY] = rec_encode(&rec_dummy_config, m->dummy);
	if (m->sriov && m->sriov->enabled.v)
		config->sections[MANAGER_SRIOV] = rec_encode(&rec_sriov_config, m->sriov);
	if (m->rx_queue && m->rx_queue->enabled.v)
		config->sections[MANAGER_RXQUEUE] =
			rec_encode(&rec_rxqueue_config, m->rx_queue);
}

/* --- the whole ---------------------------------------------------------------------------- */

static int decode_object(const struct source *src, struct node_config *ret, struct err *err)
{
	struct metadata metadata = {0};
	struct object object = {0};

	if (rec_decode(&rec_object, src->root, REC_STRICT, "", doc_source(src->doc), &object,
		    err) < 0)
		return -1;
	if (rec_decode(&rec_metadata, object.metadata, REC_LENIENT, "metadata",
		    doc_source(src->doc), &metadata, err) < 0) {
		rec_fini(&rec_object, &object);
		return -1;
	}
	ret->node_name = take_ptr(metadata.name);
	ret->spec = *object.spec;
	*object.spec = (struct node_config_spec){0};
	rec_fini(&rec_object, &object);
	return 0;
}

static int decode_and_check(const struct source *src, const char *node_name,
	struct node_config *ret, struct err *err)
{
	if (decode_object(src, ret, err) < 0)
		return -1;
	if (node_name && strcmp(ret->node_name, node_name) != 0)
		return refuse(src, "metadata.name", err,
			"this is the configuration of node %s, and here is node %s",
			ret->node_name, node_name);
	apply_defaults(&ret->spec);
	return check_relations(src, &ret->spec, err);
}

int config_decode(const json_t *root, const struct doc *doc, const char *node_name,
	struct node_config *ret, struct err *err)
{
	const struct source src = {.root = root, .doc = doc};

	*ret = (struct node_config){0};
	if (decode_and_check(&src, node_name, ret, err) < 0) {
		config_fini(ret);
		return -1;
	}
	fill_sections(ret);
	return 0;
}

int config_load(
	const char *path, const char *node_name, struct node_config *ret, struct err *err)
{
	struct doc *doc;
	int outcome;

	*ret = (struct node_config){0};
	if (doc_read(path, &doc, err) < 0)
		return -1;
	outcome = config_decode(doc_root(doc), doc, node_name, ret, err);
	doc_free(doc);
	return outcome;
}

void config_fini(struct node_config *config)
{
	for (int m = 0; m < MANAGER_TYPE_MAX; m++)
		json_decref(config->sections[m]);
	free(config->node_name);
	rec_fini(&rec_node_config_spec, &config->spec);
	*config = (struct node_config){0};
}

bool config_enabled(const struct node_config *config, enum manager_type manager)
{
	return config->sections[manager] != NULL;
}
