/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Before statd can do anything in a cluster it must know three things, asked for in this order:
 *
 *	VERSION ─▶ NODE ─▶ CONFIG ─▶ statd_configured()
 *
 * the server's version, since before 1.34 it has no resource.k8s.io/v1; the Node's UID, which the
 * slices name as their owner, so that they go when the node goes; and the node's
 * CiliumNetworkDriverNodeConfig, unless a file has it. Each is waited for: a server that is down,
 * a node that has not registered and a configuration that is not there yet are all ordinary while
 * a cluster comes up. What is waited for is in the status.
 *
 * A configuration is used once, the first that is valid. One that is invalid is refused in its
 * field's words and the next version of the object is tried. Later changes are only told: devices
 * in pods' hands cannot follow a new configuration, so it takes a restart, which somebody should
 * decide on.
 */
#include "statd/cluster.h"

#include <string.h>

#include "common/log.h"
#include "statd/statd.h"

#define NEEDS_MAJOR      1
#define NEEDS_MINOR      34
/* A server is not upgraded faster than that. */
#define VERSION_RETRY_MS 300000

#define CONFIG_RESOURCE "ciliumnetworkdrivernodeconfigs"

static void ask_version(struct statd *s);
static void ask_node(struct statd *s);

/* --- waiting ------------------------------------------------------------------------------ */

static void on_retry(uv_timer_t *timer)
{
	struct statd *s = timer->data;

	if (s->cluster.version)
		ask_node(s);
	else
		ask_version(s);
}

static void retry_in(struct statd *s, uint64_t delay_ms)
{
	if (!s->stopping)
		(void)uv_timer_start(&s->cluster.retry, on_retry, delay_ms, 0);
}

static void failed(struct statd *s, const char *what, const struct kube_error *error)
{
	LOG(WARN, FIELDS(F("err", error->err.message)), "cannot read %s; trying again", what);
	statd_wait_for(s, "%s: %s", what, error->err.message);
	retry_in(s, kube_backoff_ms(s->cluster.attempts++, error->retry_after_ms));
}

/* --- VERSION ------------------------------------------------------------------------------ */

/* "34" or, of some providers, "34+". */
static long version_part(const json_t *version, const char *name)
{
	const char *text = json_string_value(json_object_get(version, name));

	return text ? strtol(text, NULL, 10) : 0;
}

static bool is_new_enough(const json_t *version)
{
	long major = version_part(version, "major"), minor = version_part(version, "minor");

	return major > NEEDS_MAJOR || (major == NEEDS_MAJOR && minor >= NEEDS_MINOR);
}

static void on_version(void *ctx, const struct kube_error *error, const json_t *object)
{
	struct statd *s = ctx;
	const char *text;

	if (error) {
		failed(s, "the API server's version", error);
		return;
	}
	text = json_string_value(json_object_get(object, "gitVersion"));
	if (!text)
		text = "of no known version";
	if (!is_new_enough(object)) {
		LOG(WARN, FIELDS(F("version", text)),
			"Kubernetes v%d.%d or later is required; not starting", NEEDS_MAJOR,
			NEEDS_MINOR);
		statd_wait_for(s, "Kubernetes v%d.%d or later; this server is %s", NEEDS_MAJOR,
			NEEDS_MINOR, text);
		retry_in(s, VERSION_RETRY_MS);
		return;
	}
	s->cluster.attempts = 0;
	s->cluster.version = xstrdup(text);
	LOG(INFO, FIELDS(F("server", s->cluster.access.description), F("version", text)),
		"connected to the API server");
	ask_node(s);
}

static void ask_version(struct statd *s)
{
	(void)kube_get(s->cluster.kube, "/version", on_version, s);
}

/* --- CONFIG ------------------------------------------------------------------------------- */

static char *spec_text(const json_t *object)
{
	char *text = json_dumps(json_object_get(object, "spec"), JSON_COMPACT | JSON_SORT_KEYS);

	return text ? text : xstrdup("");
}

static void set_note(struct cluster *c, const char *note)
{
	free(c->note);
	c->note = xstrdup_opt(note);
}

/* Once the object as it is now is known. */
static void use_candidate(struct statd *s)
{
	struct cluster *c = &s->cluster;
	struct err err;

	if (!c->candidate) {
		statd_wait_for(s, "a " CONFIG_KIND " named %s", s->options->node_name);
		LOG(INFO, NO_FIELDS, "waiting for a " CONFIG_KIND " named %s",
			s->options->node_name);
		return;
	}
	if (config_decode(c->candidate, NULL, s->options->node_name, &s->config, &err) < 0) {
		LOG(ERROR, FIELDS(F("err", err.message)), "invalid configuration");
		statd_wait_for(s, "a valid " CONFIG_KIND ": %s", err.message);
		return;
	}
	c->used = spec_text(c->candidate);
	json_decref(c->candidate);
	c->candidate = NULL;
	LOG(INFO, NO_FIELDS, "network driver configuration found");
	statd_configured(s);
}

static void compare_with_used(struct cluster *c, const json_t *object)
{
	cleanup_free char *text = spec_text(object);
	bool same = strcmp(text, c->used) == 0;

	if (!same && !c->note)
		LOG(WARN, NO_FIELDS,
			"config received, but we already have one: restart statd to use the "
			"new "
			"one");
	set_note(c, same ? NULL
			 : "the node's " CONFIG_KIND
			   " has changed: it is used when statd is restarted");
}

static void on_config_begin(void *ctx)
{
	struct statd *s = ctx;

	json_decref(s->cluster.candidate);
	s->cluster.candidate = NULL;
	s->cluster.listed = false;
}

static void config_deleted(struct statd *s)
{
	struct cluster *c = &s->cluster;

	json_decref(c->candidate);
	c->candidate = NULL;
	if (!c->used) {
		use_candidate(s);
		return;
	}
	LOG(WARN, NO_FIELDS, "the node's configuration was deleted; going on with it");
	set_note(c, "the node's " CONFIG_KIND " was deleted: statd goes on with it and will "
		    "wait for one when it is restarted");
}

static void on_config_event(void *ctx, enum kube_event event, const json_t *object)
{
	struct statd *s = ctx;
	struct cluster *c = &s->cluster;

	if (event == KUBE_DELETED) {
		config_deleted(s);
	} else if (c->used) {
		compare_with_used(c, object);
	} else {
		json_decref(c->candidate);
		c->candidate = json_deep_copy(object);
		if (c->listed)
			use_candidate(s);
	}
}

static void on_config_synced(void *ctx)
{
	struct statd *s = ctx;

	s->cluster.listed = true;
	if (!s->cluster.used)
		use_candidate(s);
}

static void on_config_failed(
	void *ctx, const struct kube_error *error, uint64_t retry_ms UNUSED)
{
	struct statd *s = ctx;

	LOG(WARN, FIELDS(F("err", error->err.message)),
		"cannot watch the node's configuration; trying again");
	if (s->cluster.used)
		return;
	if (error->status == 404)
		statd_wait_for(s, "the kind " CONFIG_KIND
				  ", which the API server does not know: apply netclaim's "
				  "CustomResourceDefinitions");
	else
		statd_wait_for(s, "the node's " CONFIG_KIND ": %s", error->err.message);
}

static const struct kube_watch_ops config_ops = {
	.begin = on_config_begin,
	.event = on_config_event,
	.synced = on_config_synced,
	.failed = on_config_failed,
};

static void watch_config(struct statd *s)
{
	cleanup_free char *path =
		kube_path(CONFIG_API_VERSION, NULL, CONFIG_RESOURCE, NULL, NULL);
	cleanup_free char *selector = xasprintf("metadata.name=%s", s->options->node_name);
	cleanup_buf struct buf query = BUF_INIT;

	kube_query(&query, "fieldSelector", selector);
	s->cluster.watch = kube_watch_new(s->cluster.kube, path, query.data, 1, &config_ops, s);
}

/* --- NODE --------------------------------------------------------------------------------- */

static const char *node_name(const struct statd *s)
{
	return s->options->node_name ? s->options->node_name : s->config.node_name;
}

static void on_node(void *ctx, const struct kube_error *error, const json_t *object)
{
	const json_t *meta = json_object_get(object, "metadata");
	const char *uid = json_string_value(json_object_get(meta, "uid"));
	struct statd *s = ctx;

	if (error && error->status == 404) {
		LOG(WARN, NO_FIELDS, "the cluster has no Node named %s; trying again",
			node_name(s));
		statd_wait_for(s, "a Node named %s: is this the node's name?", node_name(s));
		retry_in(s, kube_backoff_ms(s->cluster.attempts++, error->retry_after_ms));
		return;
	}
	if (error) {
		failed(s, "this Node", error);
		return;
	}
	s->cluster.attempts = 0;
	s->cluster.node_uid = xstrdup(uid ? uid : "");
	if (s->options->config)
		statd_configured(s);
	else
		watch_config(s);
}

/* Any program of the node may annotate it. */
static const struct json_mask_member node_metadata_members[] = {{"uid", NULL}};
static const struct json_mask node_metadata_mask = {.members = node_metadata_members,
	.n_members = ARRAY_SIZE(node_metadata_members)};
static const struct json_mask_member node_members[] = {{"metadata", &node_metadata_mask}};
static const struct json_mask node_mask = {
	.members = node_members, .n_members = ARRAY_SIZE(node_members)};

static void ask_node(struct statd *s)
{
	cleanup_free char *path = kube_path("v1", NULL, "nodes", node_name(s), NULL);

	(void)kube_start(s->cluster.kube,
		&(struct kube_request){.method = "GET", .path = path, .mask = &node_mask},
		on_node, s);
}

/* --- the whole ---------------------------------------------------------------------------- */

int cluster_open(struct statd *s, struct err *err)
{
	const struct statd_options *o = s->options;
	struct kube_access *access = &s->cluster.access;
	int outcome;

	if (o->config && o->claims_dir)
		return 0;
	if (!o->config && !o->node_name)
		return err_set(err, ERR_INVALID,
			"whose configuration? Name the node with --node-name, or a file with "
			"--config");
	if (o->kubeconfig)
		outcome = kube_access_file(o->kubeconfig, o->kube_context, access, err);
	else
		outcome = kube_access_in_cluster(o->service_account_dir, access, err);
	if (outcome < 0 && !o->kubeconfig && err->kind == ERR_NOT_FOUND)
		return err_set(err, ERR_INVALID,
			"no API server: this is no container of a cluster, and no kubeconfig "
			"file "
			"is named with --kubeconfig. Without a cluster, name a "
			"configuration file with --config and a directory of claims with "
			"--claims-dir");
	if (outcome < 0 || kube_access_start_reader(access, err) < 0)
		return err_wrap(err, "API server");
	return kube_global_init(err);
}

void cluster_begin(struct statd *s)
{
	struct cluster *c = &s->cluster;
	struct err err;

	(void)uv_timer_init(s->loop, &c->retry);
	c->retry.data = s;
	if (!c->access.server) {
		statd_configured(s);
		return;
	}
	c->kube = kube_new(s->loop, &c->access, &err);
	if (!c->kube) {
		LOG(ERROR, FIELDS(F("err", err.message)), "cannot talk to the API server");
		daemon_fail(&s->daemon);
		return;
	}
	statd_wait_for(s, "the API server %s", c->access.description);
	ask_version(s);
}

void cluster_close(struct statd *s)
{
	uv_close((uv_handle_t *)&s->cluster.retry, NULL);
	kube_watch_free(s->cluster.watch);
	s->cluster.watch = NULL;
	kube_free(s->cluster.kube);
	s->cluster.kube = NULL;
}

void cluster_fini(struct cluster *c)
{
	json_decref(c->candidate);
	free(c->version);
	free(c->node_uid);
	free(c->used);
	free(c->note);
	kube_access_fini(&c->access);
	*c = (struct cluster){0};
}
