/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One exchange with the server, as libcurl is told to make it.
 *
 * What this process trusts and says is all here, and nothing of it comes from the environment:
 * https only, the given certificate authorities and no others, no proxy, no redirects, no
 * cookies, no .netrc. Answers are not compressed, so that a small one cannot become a large
 * one.
 *
 * A body is read by curl through a function that cannot be rewound. When a connection ends
 * before the answer, curl makes a request again by itself if it was not the first on it; with
 * the body gone it cannot, and who asked is told. So no write is ever made twice without
 * somebody having decided it. What has no body is no write, or one that may be repeated.
 */
#include "common/kube_internal.h"

#include <arpa/inet.h>
#include <assert.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "common/log.h"

#define CONNECT_TIMEOUT_MS   5000L
/* Of curl's buffer, one for each transfer: objects are some kilobytes. */
#define BUFFER_BYTES         8192L
/* A connection on which nothing comes is asked for life after this, then each ... */
#define KEEPALIVE_IDLE_S     30
#define KEEPALIVE_INTERVAL_S 10
/* ... and given up when what was sent, a question for life included, is not acknowledged. */
#define UNACKNOWLEDGED_MS    30000

/* A wrong option is a slip of ours. */
#define SET(easy_, option_, value_)                                                            \
	do {                                                                                   \
		CURLcode code_ = curl_easy_setopt(easy_, option_, value_);                     \
		assert(code_ == CURLE_OK);                                                     \
		(void)code_;                                                                   \
	} while (0)

/* --- curl's callbacks: nothing of ours is called from here -------------------------------- */

/* "HTTP/2 200", "HTTP/1.1 200 OK"; 0 when it is none */
static int parse_status(const char *line, size_t len)
{
	const char *space = memchr(line, ' ', len);
	int status = 0;

	if (!space)
		return 0;
	for (const char *at = space + 1; at < line + len && *at >= '0' && *at <= '9'; at++)
		if (status < 1000)
			status = 10 * status + (*at - '0');
	return status < 1000 ? status : 0;
}

/* The value of a header field, without the spaces around it. */
static bool header_is(
	const char *line, size_t len, const char *name, const char **ret_value, size_t *ret_len)
{
	size_t n = strlen(name);

	if (len <= n || line[n] != ':' || strncasecmp(line, name, n) != 0)
		return false;
	line += n + 1;
	len -= n + 1;
	while (len > 0 && (*line == ' ' || *line == '\t')) {
		line++;
		len--;
	}
	while (len > 0 && strchr(" \t\r\n", line[len - 1]))
		len--;
	*ret_value = line;
	*ret_len = len;
	return true;
}

/* Seconds. The other form of it, a date, is nothing that an API server sends. */
static unsigned parse_retry_after(const char *value, size_t len)
{
	cleanup_free char *text = xmemdup0(value, len);
	int64_t seconds;

	if (parse_i64(text, 0, 86400, &seconds) < 0)
		return 0;
	return (unsigned)seconds * 1000;
}

static void forget_answer(struct kube_transfer *t)
{
	t->status = 0;
	t->retry_after_ms = 0;
	t->too_long = false;
	buf_fini(&t->answer);
	if (t->lines)
		kube_lines_reset(t->lines);
}

static size_t on_header(char *line, size_t size, size_t n, void *ctx)
{
	struct kube_transfer *t = ctx;
	size_t len = size * n, value_len;
	const char *value;

	t->link->heard++;
	if (len > 5 && memcmp(line, "HTTP/", 5) == 0)
		t->status = parse_status(line, len);
	else if (header_is(line, len, "retry-after", &value, &value_len))
		t->retry_after_ms = parse_retry_after(value, value_len);
	else if (header_is(line, len, "warning", &value, &value_len))
		kube_warning(value, value_len);
	else if (len <= 2 && t->lines && t->status == 200)
		/* none yet, but it has begun */
		t->has_lines = t->link->has_lines = true;
	return len;
}

/* A stream is made of lines only if it is the one that was asked for. */
static bool put_answer(struct kube_transfer *t, const char *data, size_t len)
{
	if (t->lines && t->status == 200) {
		t->has_lines = t->link->has_lines = true;
		return kube_lines_put(t->lines, data, len) == 0;
	}
	if (len > t->max_bytes - t->answer.len)
		return false;
	buf_put(&t->answer, data, len);
	return true;
}

static size_t on_body(char *data, size_t size, size_t n, void *ctx)
{
	struct kube_transfer *t = ctx;

	t->link->heard++;
	if (put_answer(t, data, size * n))
		return size * n;
	t->too_long = true;
	return CURL_WRITEFUNC_ERROR;
}

static size_t on_read(char *data, size_t size, size_t n, void *ctx)
{
	struct kube_transfer *t = ctx;
	size_t len = MIN(size * n, t->body_len - t->body_at);

	memcpy(data, t->body + t->body_at, len);
	t->body_at += len;
	return len;
}

static int on_seek(void *ctx, curl_off_t offset, int origin)
{
	const struct kube_transfer *t = ctx;

	/* nothing of it has been sent: it may as well go by another connection */
	if (t->body_at == 0 && offset == 0 && origin == SEEK_SET)
		return CURL_SEEKFUNC_OK;
	return CURL_SEEKFUNC_FAIL;
}

/* So that a network that is gone is noticed within a minute, and by the kernel alone: it costs
 * nobody a wake-up. */
static int on_socket(void *ctx, curl_socket_t fd, curlsocktype purpose)
{
	static const struct {
		int level, name, value;
	} options[] = {
		{SOL_SOCKET, SO_KEEPALIVE, 1},
		{IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S},
		{IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S},
		{IPPROTO_TCP, TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS},
	};

	(void)ctx;
	(void)purpose;
	/* one that the kernel does not have makes no connection worse than it would be */
	for (size_t i = 0; i < ARRAY_SIZE(options); i++)
		(void)setsockopt(fd, options[i].level, options[i].name, &options[i].value,
			sizeof(options[i].value));
	return CURL_SOCKOPT_OK;
}

/* --- an easy handle ----------------------------------------------------------------------- */

static void set_blob(CURL *easy, CURLoption option, char *text)
{
	struct curl_blob blob = {
		.data = text, .len = text ? strlen(text) : 0, .flags = CURL_BLOB_NOCOPY};

	if (text)
		SET(easy, option, &blob);
}

static void set_tls(CURL *easy, const struct kube_credentials *credentials)
{
	SET(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
	/* a directory of authorities would be asked beside the text that is given */
	SET(easy, CURLOPT_CAPATH, NULL);
	SET(easy, CURLOPT_CA_CACHE_TIMEOUT, 0L);
	set_blob(easy, CURLOPT_CAINFO_BLOB, credentials->ca);
	set_blob(easy, CURLOPT_SSLCERT_BLOB, credentials->cert);
	set_blob(easy, CURLOPT_SSLKEY_BLOB, credentials->key);
	/* connections are few and last: a cache of sessions would only be kept */
	SET(easy, CURLOPT_SSL_SESSIONID_CACHE, 0L);
}

static void set_connection(CURL *easy, const struct kube_link *link)
{
	const struct kube *kube = link->kube;

	SET(easy, CURLOPT_PROTOCOLS_STR, "https");
	SET(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_2TLS);
	SET(easy, CURLOPT_PIPEWAIT, 1L);
	SET(easy, CURLOPT_NOSIGNAL, 1L);
	SET(easy, CURLOPT_PROXY, "");
	SET(easy, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_TIMEOUT_MS);
	SET(easy, CURLOPT_BUFFERSIZE, BUFFER_BYTES);
	SET(easy, CURLOPT_SOCKOPTFUNCTION, on_socket);
	if (kube->connect_to)
		SET(easy, CURLOPT_CONNECT_TO, kube->connect_to);
	if (link->resolve)
		SET(easy, CURLOPT_RESOLVE, link->resolve);
	set_tls(easy, link->credentials);
}

static void set_body(CURL *easy, struct kube_transfer *t)
{
	if (!t->body) {
		SET(easy, CURLOPT_HTTPGET, 1L);
		SET(easy, CURLOPT_CUSTOMREQUEST, t->method);
		return;
	}
	t->body_at = 0;
	SET(easy, CURLOPT_POST, 1L);
	SET(easy, CURLOPT_CUSTOMREQUEST, t->method);
	SET(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)t->body_len);
	SET(easy, CURLOPT_READFUNCTION, on_read);
	SET(easy, CURLOPT_READDATA, t);
	SET(easy, CURLOPT_SEEKFUNCTION, on_seek);
	SET(easy, CURLOPT_SEEKDATA, t);
}

static void add_header(struct curl_slist **list, const char *name, const char *value)
{
	cleanup_free char *line = xasprintf("%s: %s", name, value);
	struct curl_slist *longer = curl_slist_append(*list, line);

	if (!longer)
		abort(); /* out of memory */
	*list = longer;
	explicit_bzero(line, strlen(line));
}

static void set_headers(CURL *easy, struct kube_transfer *t)
{
	const struct kube_token *token = &t->kube->token;

	add_header(&t->headers, "Accept", t->accept);
	if (t->kube->host)
		add_header(&t->headers, "Host", t->kube->host);
	if (t->body) {
		add_header(&t->headers, "Content-Type", t->content_type);
		/* we send it without being asked to */
		add_header(&t->headers, "Expect", "");
	}
	if (token->value) {
		cleanup_free char *bearer = xasprintf("Bearer %s", token->value);

		add_header(&t->headers, "Authorization", bearer);
		explicit_bzero(bearer, strlen(bearer));
	}
	t->token_generation = token->generation;
	SET(easy, CURLOPT_HTTPHEADER, t->headers);
	SET(easy, CURLOPT_USERAGENT, "netclaim/" NETCLAIM_VERSION);
}

static void set_url(CURL *easy, const struct kube_transfer *t)
{
	cleanup_free char *url = xasprintf("%s%s%s%s", t->kube->base, t->path,
		t->query ? "?" : "", t->query ? t->query : "");

	SET(easy, CURLOPT_URL, url);
	/* "." and ".." are names like others */
	SET(easy, CURLOPT_PATH_AS_IS, 1L);
}

static void set_answer(CURL *easy, struct kube_transfer *t)
{
	t->curl_says = xcalloc(1, CURL_ERROR_SIZE);
	SET(easy, CURLOPT_PRIVATE, t);
	SET(easy, CURLOPT_ERRORBUFFER, t->curl_says);
	SET(easy, CURLOPT_HEADERFUNCTION, on_header);
	SET(easy, CURLOPT_HEADERDATA, t);
	SET(easy, CURLOPT_WRITEFUNCTION, on_body);
	SET(easy, CURLOPT_WRITEDATA, t);
}

int kube_wire_attach(struct kube_transfer *t, struct kube_link *link, struct err *err)
{
	CURLMcode code;

	if (kube_token_refresh(&t->kube->token, false, err) < 0)
		return -1;
	forget_answer(t);
	t->easy = curl_easy_init();
	if (!t->easy)
		abort(); /* out of memory */
	t->link = link;
	if (!link->credentials)
		link->credentials =
			kube_credentials_ref(kube_files_credentials(t->kube->files));
	t->credentials_generation = link->credentials->generation;
	curl_uv_adopt(link->curl, t->easy);
	set_connection(t->easy, link);
	set_url(t->easy, t);
	set_body(t->easy, t);
	set_headers(t->easy, t);
	set_answer(t->easy, t);
	t->heard_before = link->heard;
	code = curl_multi_add_handle(curl_uv_multi(link->curl), t->easy);
	assert(code == CURLM_OK);
	(void)code;
	link->n_transfers++;
	return 0;
}

void kube_wire_detach(struct kube_transfer *t)
{
	(void)curl_multi_remove_handle(curl_uv_multi(t->link->curl), t->easy);
	curl_easy_cleanup(t->easy);
	t->easy = NULL;
	free(take_ptr(t->curl_says));
	for (struct curl_slist *h = t->headers; h; h = h->next)
		explicit_bzero(h->data, strlen(h->data));
	curl_slist_free_all(t->headers);
	t->headers = NULL;
	t->link->n_transfers--;
	t->link = NULL;
}

/* --- where the server is ------------------------------------------------------------------ */

/* The host as it stands in a URL: an IPv6 address in brackets. */
struct place {
	char *host, *port, *prefix;
};

static char *url_part(CURLU *url, CURLUPart what, unsigned flags)
{
	char *text = NULL, *copy;

	if (curl_url_get(url, what, &text, flags) != CURLUE_OK)
		return NULL;
	copy = xstrdup(text);
	curl_free(text);
	return copy;
}

static int place_parse(const char *server, struct place *ret, struct err *err)
{
	CURLU *url = curl_url();
	CURLUcode code;

	if (!url)
		abort(); /* out of memory */
	code = curl_url_set(url, CURLUPART_URL, server, CURLU_DISALLOW_USER);
	if (code == CURLUE_OK)
		*ret = (struct place){
			.host = url_part(url, CURLUPART_HOST, 0),
			.port = url_part(url, CURLUPART_PORT, CURLU_DEFAULT_PORT),
			.prefix = url_part(url, CURLUPART_PATH, 0),
		};
	curl_url_cleanup(url);
	if (code != CURLUE_OK || !ret->host || !ret->port || !ret->prefix)
		return err_set(err, ERR_INVALID, "%s: is no address of a server: %s", server,
			curl_url_strerror(code));
	return 0;
}

static void place_fini(struct place *p)
{
	free(p->host);
	free(p->port);
	free(p->prefix);
}

/* curl takes the name that the certificate has to have from the URL: so the URL has that name,
 * and where to connect to instead is said besides. */
static void use_tls_name(struct kube *kube, const struct place *at)
{
	cleanup_free char *connect_to = xasprintf("::%s:%s", at->host, at->port);

	kube->base = xasprintf("https://%s:%s%s", kube->access.tls_server_name, at->port,
		strcmp(at->prefix, "/") == 0 ? "" : at->prefix);
	kube->host = xasprintf("%s:%s", at->host, at->port);
	kube->connect_to = curl_slist_append(NULL, connect_to);
}

static bool is_address(const char *host)
{
	struct in_addr bytes;

	return *host == '[' || inet_pton(AF_INET, host, &bytes) == 1;
}

int kube_wire_init(struct kube *kube, struct err *err)
{
	struct place at = {0};
	int r = place_parse(kube->access.server, &at, err);

	if (r == 0 && kube->access.tls_server_name)
		use_tls_name(kube, &at);
	else if (r == 0)
		kube->base = xstrdup(kube->access.server);
	if (r == 0 && !is_address(at.host)) {
		kube->host_name = xstrdup(at.host);
		kube->port = xstrdup(at.port);
	}
	place_fini(&at);
	return r;
}

void kube_wire_fini(struct kube *kube)
{
	free(kube->base);
	free(kube->host);
	curl_slist_free_all(kube->connect_to);
	free(kube->host_name);
	free(kube->port);
}
