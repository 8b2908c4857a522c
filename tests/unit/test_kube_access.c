/* SPDX-License-Identifier: Apache-2.0 */
/* Kubeconfigs, and what the kubelet puts into a container. */
#include "common/kube_access.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/doc.h"
#include "common/util.h"
#include "tests/unit/unit.h"

#define PEM(what) "-----BEGIN " what "-----\nMIIB\n-----END " what "-----\n"
#define CERT      PEM("CERTIFICATE")
#define KEY       PEM("PRIVATE KEY")
/* the same in base64 */
#define CERT_64                                                                                \
	"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUIKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo="
#define KEY_64                                                                                 \
	"LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tCk1JSUIKLS0tLS1FTkQgUFJJVkFURSBLRVktLS0tLQo="

/* line 1 to 4; the cluster follows */
#define HEAD                                                                                   \
	"apiVersion: v1\nkind: Config\ncurrent-context: a\n"                                   \
	"contexts: [{name: a, context: {cluster: c, user: u}}]\n"
#define CLUSTER                                                                                \
	"clusters: [{name: c, cluster: {server: \"https://192.0.2.1:6443\", "                  \
	"certificate-authority: ca.pem}}]\n"
#define WITH_CLUSTER(text)                                                                     \
	HEAD "clusters: [{name: c, cluster: {" text                                            \
	     "}}]\nusers: [{name: u, user: {token: t}}]\n"
#define WITH_USER(text) HEAD CLUSTER "users: [{name: u, user: {" text "}}]\n"

static char directory[64];

static void put_file(const char *name, const char *text)
{
	cleanup_free char *path = xasprintf("%s/%s", directory, name);
	FILE *f = fopen(path, "w");

	ck_assert_ptr_nonnull(f);
	ck_assert_int_ge(fputs(text, f), 0);
	ck_assert_int_eq(fclose(f), 0);
}

static void setup(void)
{
	(void)snprintf(directory, sizeof(directory), "/tmp/netclaim-access-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(directory));
	put_file("ca.pem", CERT);
	put_file("cert.pem", CERT);
	put_file("key.pem", KEY);
	put_file("empty", "");
	put_file("nonsense", "nothing\n");
}

static void teardown(void)
{
	static const char *const names[] = {"ca.pem", "cert.pem", "key.pem", "empty",
		"nonsense", "kubeconfig", "token", "ca.crt"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		cleanup_free char *path = xasprintf("%s/%s", directory, names[i]);

		ck_assert(unlink(path) == 0 || errno == ENOENT);
	}
	ck_assert_int_eq(rmdir(directory), 0);
}

static int load(const char *text, const char *context, struct kube_access *ret, struct err *err)
{
	cleanup_free char *path = xasprintf("%s/kubeconfig", directory);

	put_file("kubeconfig", text);
	return kube_access_file(path, context, ret, err);
}

/* --- good ones ---------------------------------------------------------------------------- */

/* NULL: is to be NULL. "/" at the begin of token_file: within the directory. */
static const struct good_row {
	const char *text, *context;
	const char *server, *ca, *cert, *key, *tls_server_name, *token, *token_file;
} good_rows[] = {
	{WITH_USER("token: t"), NULL, "https://192.0.2.1:6443", CERT, NULL, NULL, NULL, "t",
		NULL},
	{WITH_USER("tokenFile: sub/token"), NULL, "https://192.0.2.1:6443", CERT, NULL, NULL,
		NULL, NULL, "/sub/token"},
	/* both: the file has precedence, which is the client's to see to */
	{WITH_USER("token: t, tokenFile: tok"), NULL, "https://192.0.2.1:6443", CERT, NULL,
		NULL, NULL, "t", "/tok"},
	{WITH_USER("client-certificate: cert.pem, client-key: key.pem"), NULL,
		"https://192.0.2.1:6443", CERT, CERT, KEY, NULL, NULL, NULL},
	{WITH_USER("client-certificate-data: " CERT_64 ", client-key-data: " KEY_64), NULL,
		"https://192.0.2.1:6443", CERT, CERT, KEY, NULL, NULL, NULL},
	/* data wins: the file is not even looked at */
	{WITH_USER("client-certificate: none, client-certificate-data: " CERT_64
		   ", client-key: none, client-key-data: " KEY_64),
		NULL, "https://192.0.2.1:6443", CERT, CERT, KEY, NULL, NULL, NULL},
	/* empty ones count as none */
	{WITH_USER(
		 "token: '', tokenFile: '', client-certificate: '', client-key-data: '', exec: "
		 "null, auth-provider: null"),
		NULL, "https://192.0.2.1:6443", CERT, NULL, NULL, NULL, NULL, NULL},
	{WITH_CLUSTER("server: \"https://api.example/\""), NULL, "https://api.example", NULL,
		NULL, NULL, NULL, "t", NULL},
	{WITH_CLUSTER("server: \"https://[2001:db8::1]:6443/k8s/c-1///\", tls-server-name: "
		      "api.example, insecure-skip-tls-verify: false, proxy-url: ''"),
		NULL, "https://[2001:db8::1]:6443/k8s/c-1", NULL, NULL, NULL, "api.example",
		"t", NULL},
	{WITH_CLUSTER("server: \"https://h\", certificate-authority-data: " CERT_64), NULL,
		"https://h", CERT, NULL, NULL, NULL, "t", NULL},
	/* another context than the current one; what is wrong with others does not matter */
	{"current-context: x\ncontexts:\n- {name: x, context: {cluster: 7}}\n"
	 "- {name: b, context: {cluster: c2, user: u2, namespace: ns}}\n"
	 "clusters:\n- {name: c, cluster: {server: 'http://h'}}\n"
	 "- {name: c2, cluster: {server: 'https://h2'}}\n"
	 "users:\n- {name: u, user: {exec: {command: x}}}\n- {name: u2, user: {token: t2}}\n",
		"b", "https://h2", NULL, NULL, NULL, NULL, "t2", NULL},
	/* nobody in particular */
	{"current-context: a\ncontexts: [{name: a, context: {cluster: c}}]\n"
	 "clusters: [{name: c, cluster: {server: 'https://h'}}]\n",
		NULL, "https://h", NULL, NULL, NULL, NULL, NULL, NULL},
	/* JSON, with what kubectl adds */
	{"{\"apiVersion\":\"v1\",\"kind\":\"Config\",\"preferences\":{},\"current-context\":"
	 "\"a\","
	 "\"contexts\":[{\"name\":\"a\",\"context\":{\"cluster\":\"c\",\"user\":\"u\","
	 "\"extensions\":[]}}],\"clusters\":[{\"name\":\"c\",\"cluster\":{\"server\":\"https://"
	 "h\","
	 "\"disable-compression\":true}}],\"users\":[{\"name\":\"u\",\"user\":{\"token\":\"t\"}"
	 "}]}",
		NULL, "https://h", NULL, NULL, NULL, NULL, "t", NULL},
};

static void check_text(const char *what, const char *is, const char *should)
{
	ck_assert_msg(str_equal(is, should), "%s is %s, not %s", what, is ? is : "NULL",
		should ? should : "NULL");
}

START_TEST(a_good_file_is_read)
{
	const struct good_row *r = &good_rows[_i];
	cleanup_free char *token_file = NULL, *description = NULL;
	struct kube_access access;
	struct err err = ERR_INIT;

	ck_assert_msg(load(r->text, r->context, &access, &err) == 0, "%s", err.message);
	if (r->token_file)
		token_file = xasprintf("%s%s", directory, r->token_file);
	description = xasprintf("%s (kubeconfig %s/kubeconfig)", r->server, directory);
	check_text("server", access.server, r->server);
	check_text("description", access.description, description);
	check_text("ca", access.ca, r->ca);
	check_text("cert", access.cert, r->cert);
	check_text("key", access.key, r->key);
	check_text("tls_server_name", access.tls_server_name, r->tls_server_name);
	check_text("token", access.token, r->token);
	check_text("token_file", access.token_file, token_file);
	kube_access_fini(&access);
	ck_assert_ptr_null(access.server);
	kube_access_fini(&access);
}
END_TEST

/* --- bad ones ----------------------------------------------------------------------------- */

/* message: what follows the file's path; %s: the directory */
static const struct bad_row {
	const char *text, *message;
} bad_rows[] = {
	{"kind: Pod\n", ":1: kind: \"Pod\" is not Config: is it a kubeconfig?"},
	{"kind: Config\n",
		":1: current-context: is not set, so it is not known which cluster is "
		"meant"},
	{"current-context: a\n", ": contexts: there is none with the name \"a\""},
	{"current-context: a\ncontexts: [{name: a, context: {cluster: c}}]\n",
		": clusters: there is none with the name \"c\""},
	{HEAD CLUSTER, ": users: there is none with the name \"u\""},
	{"current-context: a\ncontexts: [{name: a, context: {user: u}}]\n",
		":2: contexts[0].context.cluster: is required"},
	{"current-context: a\ncontexts: [{name: a}]\n", ":2: contexts[0].context: is required"},
	{"current-context: a\ncontexts: [{name: a, context: null}]\n",
		": contexts[0].context: must be a map, not null"},
	/* the server */
	{WITH_CLUSTER("server: 7"),
		":5: clusters[0].cluster.server: must be a text, not a number"},
	{WITH_CLUSTER("proxy-url: x"), ":5: clusters[0].cluster.server: is required"},
	{WITH_CLUSTER("server: 'http://192.0.2.1'"),
		":5: clusters[0].cluster.server: \"http://192.0.2.1\" must begin with "
		"https://: "
		"whoever is on the way could read the token and change every answer"},
	{WITH_CLUSTER("server: '192.0.2.1:6443'"),
		":5: clusters[0].cluster.server: \"192.0.2.1:6443\" must begin with https://: "
		"whoever is on the way could read the token and change every answer"},
	{WITH_CLUSTER("server: 'https://'"),
		":5: clusters[0].cluster.server: \"https://\" is not the address of a server: "
		"https://HOST:PORT"},
	{WITH_CLUSTER("server: 'https:///x'"), ":5: clusters[0].cluster.server: \"https:///x\" "
					       "is not the address of a server: "
					       "https://HOST:PORT"},
	{WITH_CLUSTER("server: 'https://u:p@h'"),
		":5: clusters[0].cluster.server: \"https://u:p@h\" is not the address of a "
		"server: "
		"https://HOST:PORT"},
	{WITH_CLUSTER("server: 'https://h?a=b'"),
		":5: clusters[0].cluster.server: \"https://h?a=b\" is not the address of a "
		"server: "
		"https://HOST:PORT"},
	{WITH_CLUSTER("server: \"https://h\\nx\""),
		":5: clusters[0].cluster.server: \"https://h\nx\" is not the address of a "
		"server: "
		"https://HOST:PORT"},
	{WITH_CLUSTER("server: 'https://h', insecure-skip-tls-verify: true"),
		":5: clusters[0].cluster.insecure-skip-tls-verify: is not accepted: anybody "
		"could "
		"be the server. Give its certificate-authority"},
	{WITH_CLUSTER("server: 'https://h', proxy-url: 'http://p'"),
		":5: clusters[0].cluster.proxy-url: is not accepted: there is no way by a "
		"proxy"},
	{WITH_CLUSTER("server: 'https://h', tls-server-name: 'a:1'"),
		":5: clusters[0].cluster.tls-server-name: is no host name"},
	{WITH_CLUSTER("server: 'https://h', certificate-authority: none"),
		":5: clusters[0].cluster.certificate-authority: %s/none: No such file or "
		"directory"},
	{WITH_CLUSTER("server: 'https://h', certificate-authority: ."),
		":5: clusters[0].cluster.certificate-authority: %s/.: is not a regular file"},
	{WITH_CLUSTER("server: 'https://h', certificate-authority: nonsense"),
		":5: clusters[0].cluster.certificate-authority: %s/nonsense: there is no PEM "
		"in "
		"it"},
	{WITH_CLUSTER("server: 'https://h', certificate-authority: empty"),
		":5: clusters[0].cluster.certificate-authority: %s/empty: there is no PEM in "
		"it"},
	{WITH_CLUSTER("server: 'https://h', certificate-authority-data: '*'"),
		":5: clusters[0].cluster.certificate-authority-data: is not base64"},
	{WITH_CLUSTER("server: 'https://h', certificate-authority-data: YWJj"),
		":5: clusters[0].cluster.certificate-authority-data: there is no PEM in it"},
	/* the user */
	{WITH_USER("exec: {command: aws}"),
		":6: users[0].user.exec: is not accepted: no program is run to get a token; "
		"use "
		"tokenFile, which is read again whenever it changes, or a client-certificate"},
	{WITH_USER("auth-provider: {name: gcp}"),
		":6: users[0].user.auth-provider: is not accepted; use tokenFile, which is "
		"read "
		"again whenever it changes, or a client-certificate"},
	{WITH_USER("username: me, password: x"),
		":6: users[0].user.username: is not accepted: API servers take no passwords; "
		"use "
		"tokenFile, which is read again whenever it changes, or a client-certificate"},
	{WITH_USER("password: x"),
		":6: users[0].user.password: is not accepted: API servers take no passwords; "
		"use "
		"tokenFile, which is read again whenever it changes, or a client-certificate"},
	{WITH_USER("token: t, as: root"),
		":6: users[0].user.as: is not accepted: be the user that is meant"},
	{WITH_USER("token: t, as-groups: [g]"),
		":6: users[0].user.as-groups: is not accepted: be the user that is meant"},
	{WITH_USER("token: t, as-uid: '1'"),
		":6: users[0].user.as-uid: is not accepted: be the user that is meant"},
	{WITH_USER("token: t, as-user-extra: {a: [b]}"),
		":6: users[0].user.as-user-extra: is not accepted: be the user that is meant"},
	{WITH_USER("token: \"a\\nb\""),
		":6: users[0].user.token: has a character that no token "
		"has: a space or a line break"},
	{WITH_USER("client-certificate: cert.pem"),
		":6: users[0].user.client-certificate: there is no client-key to it"},
	{WITH_USER("client-key-data: " KEY_64), ":6: users[0].user.client-key: there is no "
						"client-certificate to it"},
	{WITH_USER("client-certificate: cert.pem, client-key: none"),
		":6: users[0].user.client-key: %s/none: No such file or directory"},
	{WITH_USER("client-certificate: cert.pem, client-key-data: YWJj=YWJj"),
		":6: users[0].user.client-key-data: is not base64"},
	/* the text */
	{"a: [", ":2:1: "},
	{"[]", ":1: must be a map, not a list"},
};

START_TEST(a_bad_file_is_refused_with_the_place)
{
	const struct bad_row *r = &bad_rows[_i];
	cleanup_free char *path = xasprintf("%s/kubeconfig", directory), *want = NULL;
	const char *in_message = strstr(r->message, "%s");
	struct kube_access access;
	struct err err = ERR_INIT;

	if (in_message)
		want = xasprintf("%s%.*s%s%s", path, (int)(in_message - r->message), r->message,
			directory, in_message + 2);
	else
		want = xasprintf("%s%s", path, r->message);
	ck_assert_int_lt(load(r->text, NULL, &access, &err), 0);
	ck_assert_int_eq(err.kind, ERR_INVALID);
	ck_assert_ptr_null(access.server);
	/* what YAML's parser says is its own */
	if (str_has_prefix(r->text, "a: ["))
		ck_assert_msg(str_has_prefix(err.message, want), "%s", err.message);
	else
		ck_assert_str_eq(err.message, want);
}
END_TEST

START_TEST(a_file_that_is_not_there)
{
	struct kube_access access;
	struct err err = ERR_INIT;

	ck_assert_int_lt(kube_access_file("/nonexistent/kubeconfig", NULL, &access, &err), 0);
	ck_assert_int_eq(err.kind, ERR_NOT_FOUND);
	ck_assert_str_eq(err.message, "/nonexistent/kubeconfig: No such file or directory");
}
END_TEST

START_TEST(a_context_that_is_not_there)
{
	struct kube_access access;
	struct err err = ERR_INIT;

	ck_assert_int_lt(load(WITH_USER("token: t"), "other", &access, &err), 0);
	ck_assert_msg(strstr(err.message, "contexts: there is none with the name \"other\""),
		"%s", err.message);
}
END_TEST

/* --- in a container ----------------------------------------------------------------------- */

static void in_cluster(const char *host, const char *port)
{
	(void)unsetenv("KUBERNETES_SERVICE_HOST");
	(void)unsetenv("KUBERNETES_SERVICE_PORT");
	if (host)
		(void)setenv("KUBERNETES_SERVICE_HOST", host, 1);
	if (port)
		(void)setenv("KUBERNETES_SERVICE_PORT", port, 1);
}

static const struct in_cluster_row {
	const char *host, *port, *server;
} in_cluster_rows[] = {
	{"10.96.0.1", "443", "https://10.96.0.1:443"},
	{"2001:db8::1", "6443", "https://[2001:db8::1]:6443"},
	{"api.example", "443", "https://api.example:443"},
};

START_TEST(a_container_of_a_cluster)
{
	const struct in_cluster_row *r = &in_cluster_rows[_i];
	cleanup_free char *token_file = xasprintf("%s/token", directory), *description = NULL;
	struct kube_access access;
	struct err err = ERR_INIT;

	in_cluster(r->host, r->port);
	put_file("ca.crt", CERT);
	ck_assert_msg(kube_access_in_cluster(directory, &access, &err) == 0, "%s", err.message);
	description = xasprintf("%s (in-cluster)", r->server);
	ck_assert_str_eq(access.server, r->server);
	ck_assert_str_eq(access.description, description);
	ck_assert_str_eq(access.ca, CERT);
	ck_assert_str_eq(access.token_file, token_file);
	ck_assert_ptr_null(access.token);
	kube_access_fini(&access);
}
END_TEST

START_TEST(no_container_of_a_cluster)
{
	static const char *const rows[][2] = {{NULL, NULL}, {"10.96.0.1", NULL}, {NULL, "443"},
		{"", "443"}, {"10.96.0.1", ""}};
	struct kube_access access;
	struct err err = ERR_INIT;

	in_cluster(rows[_i][0], rows[_i][1]);
	ck_assert_int_lt(kube_access_in_cluster(directory, &access, &err), 0);
	ck_assert_int_eq(err.kind, ERR_NOT_FOUND);
	ck_assert_ptr_null(access.server);
}
END_TEST

START_TEST(a_container_that_lacks_something)
{
	cleanup_free char *no_file = xasprintf(
		"the service account: %s/ca.crt: No such file or directory", directory);
	cleanup_free char *no_pem =
		xasprintf("the service account: %s/ca.crt: there is no PEM in it", directory);
	struct kube_access access;
	struct err err = ERR_INIT;

	in_cluster("10.96.0.1", "443");
	ck_assert_int_lt(kube_access_in_cluster(directory, &access, &err), 0);
	ck_assert_str_eq(err.message, no_file);
	put_file("ca.crt", "nothing");
	ck_assert_int_lt(kube_access_in_cluster(directory, &access, &err), 0);
	ck_assert_str_eq(err.message, no_pem);
	put_file("ca.crt", CERT);
	in_cluster("10.96.0.1/x?", "443");
	ck_assert_int_lt(kube_access_in_cluster(directory, &access, &err), 0);
	ck_assert_int_eq(err.kind, ERR_INVALID);
	ck_assert_ptr_null(access.server);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("kube_access");
	TCase *files = tcase_create("files");
	TCase *containers = tcase_create("containers");

	tcase_add_checked_fixture(files, setup, teardown);
	tcase_add_checked_fixture(containers, setup, teardown);
	tcase_add_loop_test(files, a_good_file_is_read, 0, ARRAY_SIZE(good_rows));
	tcase_add_loop_test(
		files, a_bad_file_is_refused_with_the_place, 0, ARRAY_SIZE(bad_rows));
	tcase_add_test(files, a_file_that_is_not_there);
	tcase_add_test(files, a_context_that_is_not_there);
	tcase_add_loop_test(
		containers, a_container_of_a_cluster, 0, ARRAY_SIZE(in_cluster_rows));
	tcase_add_loop_test(containers, no_container_of_a_cluster, 0, 5);
	tcase_add_test(containers, a_container_that_lacks_something);
	suite_add_tcase(suite, files);
	suite_add_tcase(suite, containers);

	return unit_run(suite);
}
