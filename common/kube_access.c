/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kubeconfigs, and what the kubelet puts into a container.
 *
 * Of a kubeconfig only three entries count: the context, and the cluster and the user that it
 * names. So only those three are decoded: what is wrong with another is nobody's concern here.
 *
 * What we do not do is refused and not passed over, because each of it changes who we are, whom
 * we trust or by which way we go. Running a program for a token is not for a process that may
 * start none; a file with a token does the same.
 */
#include "common/kube_access.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/doc.h"
#include "common/kube_reader.h"
#include "common/rec.h"
#include "common/util.h"

#define MAX_PEM    (1u << 20) /* a bundle of authorities; the system's has 220 KiB */
#define MAX_BASE64 (MAX_PEM / 3 * 4 + 4)
#define MAX_TOKEN  (16u << 10)

/* --- the file's records ------------------------------------------------------------------- */

struct context {
	char *cluster, *user;
};

struct cluster {
	char *server, *ca_file, *ca_data, *tls_server_name, *proxy_url;
	struct rec_bool insecure;
};

struct user {
	char *token, *token_file, *cert_file, *cert_data, *key_file, *key_data;
	char *username, *password, *as, *as_uid;
	json_t *as_groups, *as_extra, *exec, *auth_provider;
};

struct kubeconfig {
	char *kind, *current_context;
};

static const struct rec_field context_fields[] = {
	REC_STR(struct context, cluster, "cluster", REC_REQUIRED, 0, NULL, "its name"),
	REC_STR(struct context, user, "user", REC_OPTIONAL, 0, NULL, "its name"),
};
static REC_DESC(rec_context, struct context, "context", context_fields, NULL, "which and who");

static const struct rec_field cluster_fields[] = {
	REC_STR(struct cluster, server, "server", REC_REQUIRED, 0, NULL, "its URL"),
	REC_STR(struct cluster, ca_file, "certificate-authority", REC_OPTIONAL, 0, NULL,
		"file of PEM certificates"),
	REC_STR(struct cluster, ca_data, "certificate-authority-data", REC_OPTIONAL, MAX_BASE64,
		NULL, "the same, in base64"),
	REC_STR(struct cluster, tls_server_name, "tls-server-name", REC_OPTIONAL, 253, NULL,
		"what the server's certificate has to name"),
	REC_STR(struct cluster, proxy_url, "proxy-url", REC_OPTIONAL, 0, NULL, "refused"),
	REC_BOOL(struct cluster, insecure, "insecure-skip-tls-verify", REC_OPTIONAL, "refused"),
};
static REC_DESC(rec_cluster, struct cluster, "cluster", cluster_fields, NULL, "a server");

static const struct rec_field user_fields[] = {
	REC_STR(struct user, token, "token", REC_OPTIONAL, MAX_TOKEN, NULL, "bearer token"),
	REC_STR(struct user, token_file, "tokenFile", REC_OPTIONAL, 0, NULL, "file of one"),
	REC_STR(struct user, cert_file, "client-certificate", REC_OPTIONAL, 0, NULL,
		"file of PEM certificates"),
	REC_STR(struct user, cert_data, "client-certificate-data", REC_OPTIONAL, MAX_BASE64,
		NULL, "the same, in base64"),
	REC_STR(struct user, key_file, "client-key", REC_OPTIONAL, 0, NULL, "its key, in PEM"),
	REC_STR(struct user, key_data, "client-key-data", REC_OPTIONAL, MAX_BASE64, NULL,
		"the same, in base64"),
	REC_STR(struct user, username, "username", REC_OPTIONAL, 0, NULL, "refused"),
	REC_STR(struct user, password, "password", REC_OPTIONAL, 0, NULL, "refused"),
	REC_STR(struct user, as, "as", REC_OPTIONAL, 0, NULL, "refused"),
	REC_STR(struct user, as_uid, "as-uid", REC_OPTIONAL, 0, NULL, "refused"),
	REC_TREE(struct user, as_groups, "as-groups", REC_OPTIONAL, "refused"),
	REC_TREE(struct user, as_extra, "as-user-extra", REC_OPTIONAL, "refused"),
	REC_TREE(struct user, exec, "exec", REC_OPTIONAL, "refused"),
	REC_TREE(struct user, auth_provider, "auth-provider", REC_OPTIONAL, "refused"),
};
static REC_DESC(rec_user, struct user, "user", user_fields, NULL, "who we are");

static const struct rec_field kubeconfig_fields[] = {
	REC_STR(struct kubeconfig, kind, "kind", REC_OPTIONAL, 0, NULL, "Config"),
	REC_STR(struct kubeconfig, current_context, "current-context", REC_OPTIONAL, 0, NULL,
		"the context's name"),
};
static REC_DESC(rec_kubeconfig, struct kubeconfig, "kubeconfig", kubeconfig_fields, NULL,
	"clusters, users, and which go together");

/* --- places in the file ------------------------------------------------------------------- */

/* Where an entry is: "clusters[1].cluster" */
struct place {
	const struct doc *doc;
	const json_t *node;
	char path[64];
};

/* "FILE:LINE: clusters[1].cluster.server: what is wrong" */
static int refuse(const struct place *at, const char *field, struct err *err, const char *fmt,
	...) __attribute__((format(printf, 4, 5), cold));

static int refuse(
	const struct place *at, const char *field, struct err *err, const char *fmt, ...)
{
	const json_t *node = json_object_get(at->node, field);
	unsigned line = node ? doc_line(at->doc, node) : 0;
	va_list ap;

	if (line == 0)
		line = doc_line(at->doc, at->node);
	va_start(ap, fmt);
	(void)err_vset(err, ERR_INVALID, fmt, ap);
	va_end(ap);
	(void)err_wrap(err, "%s%s%s", at->path, *at->path ? "." : "", field);
	if (line == 0)
		return err_wrap(err, "%s", doc_name(at->doc));
	return err_wrap(err, "%s:%u", doc_name(at->doc), line);
}

/* --- texts -------------------------------------------------------------------------------- */

static void wipe(char *text)
{
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
}

static int base64_digit(char c)
{
	static const char digits[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	const char *at = c ? strchr(digits, c) : NULL;

	return at ? (int)(at - digits) : -1;
}

/* RFC 4648, 4, with line breaks as Go's decoder has it; NULL when it is none, or has a NUL in
 * it, which PEM has not. */
static char *base64_decode(const char *text)
{
	char *out = xcalloc(strlen(text) / 4 + 1, 3), *at = out;
	unsigned bits = 0, n = 0, padding = 0;
	int digit;

	for (; *text; text++) {
		if (*text == '\r' || *text == '\n')
			continue;
		digit = *text == '=' ? 0 : base64_digit(*text);
		if (digit < 0 || (padding > 0 && *text != '='))
			goto wrong;
		padding += *text == '=';
		bits = bits << 6 | (unsigned)digit;
		if (++n % 4)
			continue;
		*at++ = (char)(bits >> 16);
		*at++ = (char)(bits >> 8);
		*at++ = (char)bits;
	}
	if (n % 4 || padding > 2)
		goto wrong;
	at -= padding;
	*at = '\0';
	if (memchr(out, '\0', (size_t)(at - out)))
		goto wrong;
	return out;
wrong:
	free(out);
	return NULL;
}

static bool is_pem(const char *text)
{
	return strstr(text, "-----BEGIN ") && strstr(text, "-----END ");
}

int kube_access_read_pem(int fd, char **ret, struct err *err)
{
	cleanup_free char *text = NULL;
	struct stat st;
	size_t len = 0;
	ssize_t n;

	if (fstat(fd, &st) < 0)
		return err_errno(err, errno, "fstat");
	if (!S_ISREG(st.st_mode))
		return err_set(err, ERR_INVALID, "is not a regular file");
	if (st.st_size > MAX_PEM)
		return err_set(err, ERR_INVALID, "is longer than %u bytes", MAX_PEM);
	text = xcalloc(1, MAX_PEM + 1);
	while ((n = read(fd, text + len, MAX_PEM - len)) > 0)
		len += (size_t)n;
	if (n < 0)
		return err_errno(err, errno, "reading it");
	if (!is_pem(text)) {
		explicit_bzero(text, len);
		return err_set(err, ERR_INVALID, "there is no PEM in it");
	}
	*ret = xmemdup0(text, len);
	explicit_bzero(text, len);
	return 0;
}

/* The caller wipes it. */
static int read_file(const char *path, char **ret, struct err *err)
{
	cleanup_close int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

	if (fd < 0)
		return err_errno(err, errno, "%s", path);
	if (kube_access_read_pem(fd, ret, err) < 0)
		return err_wrap(err, "%s", path);
	return 0;
}

/* Relative names are relative to the file that has them. */
static char *resolve(const struct doc *doc, const char *path)
{
	const char *slash = strrchr(doc_name(doc), '/');

	if (*path == '/' || !slash)
		return xstrdup(path);
	return xasprintf("%.*s/%s", (int)(slash - doc_name(doc)), doc_name(doc), path);
}

/* What the field "X" (a file) or "X-data" (base64, which wins) holds; NULL when there is
 * neither. An empty one counts as none. */
static int load_pem(const struct place *at, const char *field, const char *file,
	const char *data, char **ret, char **ret_path, struct err *err)
{
	cleanup_free char *data_field = xasprintf("%s-data", field), *path = NULL;

	if (data && *data) {
		*ret = base64_decode(data);
		if (!*ret)
			return refuse(at, data_field, err, "is not base64");
		if (!is_pem(*ret))
			return refuse(at, data_field, err, "there is no PEM in it");
		return 0;
	}
	if (!file || !*file)
		return 0;
	path = resolve(at->doc, file);
	if (read_file(path, ret, err) < 0) {
		struct err why = *err;

		return refuse(at, field, err, "%s", why.message);
	}
	*ret_path = take_ptr(path);
	return 0;
}

/* --- the server --------------------------------------------------------------------------- */

/* Characters of a URL but for what has no place in this one: user, query, fragment. */
static bool is_url_text(const char *text)
{
	for (; *text; text++)
		if (*text <= ' ' || *text > '~' || strchr("@?#\"<>\\^`{|}", *text))
			return false;
	return true;
}

/* The address without its trailing slashes; NULL and what is wrong with it. */
static char *parse_server(const char *text, const char **ret_wrong)
{
	size_t len = strlen(text);

	if (!str_has_prefix(text, "https://")) {
		*ret_wrong = "must begin with https://: whoever is on the way could read the "
			     "token and change every answer";
		return NULL;
	}
	while (len > 0 && text[len - 1] == '/')
		len--;
	if (len <= strlen("https://") || text[strlen("https://")] == '/' ||
		!is_url_text(text)) {
		*ret_wrong = "is not the address of a server: https://HOST:PORT";
		return NULL;
	}
	return xmemdup0(text, len);
}

static int take_cluster(const struct place *at, const struct cluster *c,
	struct kube_access *ret, struct err *err)
{
	const char *wrong = NULL;

	if (c->insecure.set && c->insecure.v)
		return refuse(at, "insecure-skip-tls-verify", err,
			"is not accepted: anybody could be the server. Give its "
			"certificate-authority");
	if (c->proxy_url && *c->proxy_url)
		return refuse(
			at, "proxy-url", err, "is not accepted: there is no way by a proxy");
	ret->server = parse_server(c->server, &wrong);
	if (!ret->server)
		return refuse(at, "server", err, "\"%.200s\" %s", c->server, wrong);
	if (c->tls_server_name && *c->tls_server_name) {
		if (!is_url_text(c->tls_server_name) || strpbrk(c->tls_server_name, "/:[]"))
			return refuse(at, "tls-server-name", err, "is no host name");
		ret->tls_server_name = xstrdup(c->tls_server_name);
	}
	return load_pem(at, "certificate-authority", c->ca_file, c->ca_data, &ret->ca,
		&ret->files[KUBE_FILE_CA], err);
}

/* --- the user ----------------------------------------------------------------------------- */

#define USE_FILE                                                                               \
	"use tokenFile, which is read again whenever it changes, or a client-certificate"

static int refuse_foreign(const struct place *at, const struct user *u, struct err *err)
{
	if (u->exec && !json_is_null(u->exec))
		return refuse(at, "exec", err,
			"is not accepted: no program is run to get a token; " USE_FILE);
	if (u->auth_provider && !json_is_null(u->auth_provider))
		return refuse(at, "auth-provider", err, "is not accepted; " USE_FILE);
	if (u->username || u->password)
		return refuse(at, u->username ? "username" : "password", err,
			"is not accepted: API servers take no passwords; " USE_FILE);
	if (u->as || u->as_uid || u->as_groups || u->as_extra)
		return refuse(at,
			u->as          ? "as"
			: u->as_uid    ? "as-uid"
			: u->as_groups ? "as-groups"
				       : "as-user-extra",
			err, "is not accepted: be the user that is meant");
	return 0;
}

static int check_token(const struct place *at, const char *token, struct err *err)
{
	for (; *token; token++)
		if (*token <= ' ' || *token > '~')
			return refuse(at, "token", err,
				"has a character that no token has: a space or a line break");
	return 0;
}

static int take_user(
	const struct place *at, const struct user *u, struct kube_access *ret, struct err *err)
{
	if (refuse_foreign(at, u, err) < 0)
		return -1;
	if (u->token && *u->token) {
		if (check_token(at, u->token, err) < 0)
			return -1;
		ret->token = xstrdup(u->token);
	}
	if (u->token_file && *u->token_file)
		ret->token_file = resolve(at->doc, u->token_file);
	if (load_pem(at, "client-certificate", u->cert_file, u->cert_data, &ret->cert,
		    &ret->files[KUBE_FILE_CERT], err) < 0 ||
		load_pem(at, "client-key", u->key_file, u->key_data, &ret->key,
			&ret->files[KUBE_FILE_KEY], err) < 0)
		return -1;
	if (ret->cert && !ret->key)
		return refuse(at, "client-certificate", err, "there is no client-key to it");
	if (ret->key && !ret->cert)
		return refuse(at, "client-key", err, "there is no client-certificate to it");
	return 0;
}

/* --- the file ----------------------------------------------------------------------------- */

/* The entry of that name in the list of that name, of which the field "context", ... is decoded
 * into rec. */
static int find_entry(const struct doc *doc, const char *list, const char *name,
	const char *field, const struct rec_desc *desc, struct place *ret_at, void *rec,
	struct err *err)
{
	const json_t *entries = json_object_get(doc_root(doc), list);
	const json_t *entry;
	size_t i;

	json_array_foreach (entries, i, entry) {
		const char *its = json_string_value(json_object_get(entry, "name"));

		if (!str_equal(its, name))
			continue;
		*ret_at = (struct place){.doc = doc, .node = entry};
		(void)snprintf(ret_at->path, sizeof(ret_at->path), "%s[%zu]", list, i);
		if (!json_object_get(entry, field))
			return refuse(ret_at, field, err, "is required");
		ret_at->node = json_object_get(entry, field);
		(void)snprintf(
			ret_at->path, sizeof(ret_at->path), "%s[%zu].%s", list, i, field);
		return rec_decode(desc, ret_at->node, REC_LENIENT, ret_at->path,
			doc_source(doc), rec, err);
	}
	return err_set(err, ERR_INVALID, "%s: %s: there is none with the name \"%.100s\"",
		doc_name(doc), list, name);
}

static int use_context(
	const struct doc *doc, const char *name, struct kube_access *ret, struct err *err)
{
	struct context context = {0};
	struct cluster cluster = {0};
	struct user user = {0};
	struct place at;
	int r;

	r = find_entry(doc, "contexts", name, "context", &rec_context, &at, &context, err);
	if (r == 0)
		r = find_entry(doc, "clusters", context.cluster, "cluster", &rec_cluster, &at,
			&cluster, err);
	if (r == 0)
		r = take_cluster(&at, &cluster, ret, err);
	if (r == 0 && context.user && *context.user) {
		r = find_entry(doc, "users", context.user, "user", &rec_user, &at, &user, err);
		if (r == 0)
			r = take_user(&at, &user, ret, err);
	}
	rec_fini(&rec_context, &context);
	rec_fini(&rec_cluster, &cluster);
	rec_fini(&rec_user, &user);
	return r;
}

static int choose_context(const struct doc *doc, const struct kubeconfig *config,
	const char *context, struct kube_access *ret, struct err *err)
{
	const struct place top = {.doc = doc, .node = doc_root(doc)};

	if (config->kind && strcmp(config->kind, "Config") != 0)
		return refuse(&top, "kind", err,
			"\"%.100s\" is not Config: is it a kubeconfig?", config->kind);
	if (!context)
		context = config->current_context;
	if (!context || !*context)
		return refuse(&top, "current-context", err,
			"is not set, so it is not known which cluster is meant");
	return use_context(doc, context, ret, err);
}

int kube_access_decode(
	const struct doc *doc, const char *context, struct kube_access *ret, struct err *err)
{
	struct kubeconfig config = {0};
	int r;

	*ret = (struct kube_access){0};
	r = rec_decode(
		&rec_kubeconfig, doc_root(doc), REC_LENIENT, "", doc_source(doc), &config, err);
	if (r == 0)
		r = choose_context(doc, &config, context, ret, err);
	rec_fini(&rec_kubeconfig, &config);
	if (r < 0) {
		kube_access_fini(ret);
		return -1;
	}
	ret->description = xasprintf("%s (kubeconfig %s)", ret->server, doc_name(doc));
	return 0;
}

int kube_access_file(
	const char *path, const char *context, struct kube_access *ret, struct err *err)
{
	struct doc *doc;
	int r;

	*ret = (struct kube_access){0};
	if (doc_read(path, &doc, err) < 0)
		return -1;
	r = kube_access_decode(doc, context, ret, err);
	doc_free(doc);
	return r;
}

/* --- in a container ----------------------------------------------------------------------- */

static char *in_cluster_server(const char *host, const char *port)
{
	return xasprintf(strchr(host, ':') ? "https://[%s]:%s" : "https://%s:%s", host, port);
}

int kube_access_in_cluster(const char *directory, struct kube_access *ret, struct err *err)
{
	const char *host = getenv("KUBERNETES_SERVICE_HOST");
	const char *port = getenv("KUBERNETES_SERVICE_PORT");
	cleanup_free char *ca_file = NULL, *server = NULL;
	const char *wrong = NULL;
	struct kube_access access = {0};

	*ret = access;
	if (!host || !*host || !port || !*port)
		return err_set(err, ERR_NOT_FOUND,
			"this is no container of a cluster: KUBERNETES_SERVICE_HOST and "
			"KUBERNETES_SERVICE_PORT are not set");
	if (!directory)
		directory = KUBE_SERVICE_ACCOUNT_DIR;
	ca_file = xasprintf("%s/ca.crt", directory);
	server = in_cluster_server(host, port);
	access.server = parse_server(server, &wrong);
	if (!access.server)
		return err_set(err, ERR_INVALID,
			"KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT: \"%.200s\" %s",
			server, wrong);
	access.token_file = xasprintf("%s/token", directory);
	access.description = xasprintf("%s (in-cluster)", access.server);
	if (read_file(ca_file, &access.ca, err) < 0) {
		kube_access_fini(&access);
		return err_wrap(err, "the service account");
	}
	access.files[KUBE_FILE_CA] = take_ptr(ca_file);
	access.in_cluster = true;
	*ret = access;
	return 0;
}

int kube_access_start_reader(struct kube_access *access, struct err *err)
{
	const char *const paths[KUBE_FILES] = {access->files[KUBE_FILE_CA],
		access->files[KUBE_FILE_CERT], access->files[KUBE_FILE_KEY]};
	bool any = false;

	for (size_t i = 0; i < KUBE_FILES; i++)
		any |= paths[i] != NULL;
	if (!any || access->in_cluster || geteuid() != 0)
		return 0;
	access->reader = kube_reader_start(paths, KUBE_FILES, err);
	return access->reader ? 0 : err_wrap(err, "reading certificates again");
}

void kube_access_fini(struct kube_access *access)
{
	for (size_t i = 0; i < KUBE_FILES; i++)
		free(access->files[i]);
	kube_reader_free(access->reader);
	free(access->server);
	free(access->description);
	free(access->ca);
	free(access->cert);
	wipe(access->key);
	free(access->tls_server_name);
	wipe(access->token);
	free(access->token_file);
	*access = (struct kube_access){0};
}
