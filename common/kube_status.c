/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What went wrong, in the server's words where it has any.
 *
 * An API server answers with a Status object. What stands between it and us may answer too, in
 * HTML or plain text, and an old path of the server itself says "404 page not found": of such
 * only the beginning of the first line is told. All of it comes from outside: control
 * characters do not get into a log.
 */
#include "common/kube_internal.h"

#include <string.h>

#include "common/hash.h"
#include "common/log.h"
#include "common/rec.h"

#define MAX_PATH_TOLD 200
#define MAX_TEXT_TOLD 200
#define MAX_CAUSES    256
#define MAX_MESSAGE   (256u << 10) /* each invalid field is told with its value */
#define MAX_RETRY_S   86400
/* Of a server's warnings: each is told once, and only so many. */
#define MAX_WARNINGS  64

/* --- the Status object -------------------------------------------------------------------- */

struct cause {
	char *message, *field;
};

struct details {
	struct REC_LIST(struct cause) causes;
	struct rec_int retry_after_s;
};

struct status {
	char *message, *reason;
	struct rec_int code;
	struct details *details;
};

static const struct rec_field cause_fields[] = {
	REC_STR(struct cause, message, "message", REC_OPTIONAL, MAX_MESSAGE, NULL,
		"for people"),
	REC_STR(struct cause, field, "field", REC_OPTIONAL, MAX_MESSAGE, NULL, "its path"),
};
static REC_DESC(rec_cause, struct cause, "cause", cause_fields, NULL, "one thing wrong");

static const struct rec_field details_fields[] = {
	REC_RECS(struct details, causes, "causes", REC_OPTIONAL, MAX_CAUSES, struct cause,
		&rec_cause, "of an object that is invalid"),
	REC_INT(struct details, retry_after_s, "retryAfterSeconds", REC_OPTIONAL, 0,
		MAX_RETRY_S, "when to ask again"),
};
static REC_DESC(rec_details, struct details, "details", details_fields, NULL, "more about it");

static const struct rec_field status_fields[] = {
	REC_STR(struct status, message, "message", REC_OPTIONAL, MAX_MESSAGE, NULL,
		"for people"),
	REC_STR(struct status, reason, "reason", REC_OPTIONAL, 0, NULL, "for programs"),
	REC_INT(struct status, code, "code", REC_OPTIONAL, 0, 999, "HTTP status"),
	REC_SUB(struct status, details, "details", REC_OPTIONAL, struct details, &rec_details,
		"more about it"),
};
static REC_DESC(rec_status, struct status, "Status", status_fields, NULL, "what went wrong");

static bool is_status(const json_t *tree)
{
	return str_equal(json_string_value(json_object_get(tree, "kind")), "Status");
}

/* Whether text is one; *ret is to be freed if so. */
static bool decode(const char *text, size_t len, struct status *ret)
{
	json_t *tree = json_loadb(text, len, JSON_DECODE_ANY, NULL);
	struct err err = ERR_INIT;
	bool ok = is_status(tree) &&
		  rec_decode(&rec_status, tree, REC_LENIENT, "", NULL, ret, &err) == 0;

	json_decref(tree);
	return ok;
}

/* --- as an error -------------------------------------------------------------------------- */

static enum err_kind kind_of(int status)
{
	switch (status) {
	case 404: return ERR_NOT_FOUND;
	case 409:
	case 412: return ERR_CONFLICT;
	case 400:
	case 401:
	case 403:
	case 413:
	case 422: return ERR_INVALID;
	case 429:
	case 503: return ERR_BUSY;
	case 504: return ERR_DEADLINE;
	default: return ERR_INTERNAL;
	}
}

void kube_error_set(struct kube_error *ret, enum err_kind kind, const char *fmt, ...)
{
	va_list ap;

	*ret = (struct kube_error){0};
	va_start(ap, fmt);
	(void)err_vset(&ret->err, kind, fmt, ap);
	va_end(ap);
}

/* The message of an object that is invalid has its causes already, as the server writes it; one
 * that a webhook wrote need not. */
static void add_causes(struct buf *message, const struct details *details)
{
	for (size_t i = 0; i < details->causes.n; i++) {
		const struct cause *c = &details->causes.v[i];

		if (!c->message || (message->data && strstr(message->data, c->message)))
			continue;
		buf_printf(message, "%s%s%s%s", message->len ? "; " : "",
			c->field ? c->field : "", c->field ? ": " : "", c->message);
	}
}

static void from_object(int http_status, const struct status *s, struct kube_error *ret)
{
	cleanup_buf struct buf message = BUF_INIT;

	ret->status = s->code.set && s->code.v >= 400 ? (int)s->code.v : http_status;
	if (s->message)
		buf_puts(&message, s->message);
	if (s->details) {
		add_causes(&message, s->details);
		if (s->details->retry_after_s.set && ret->retry_after_ms == 0)
			ret->retry_after_ms = (unsigned)s->details->retry_after_s.v * 1000;
	}
	(void)snprintf(ret->reason, sizeof(ret->reason), "%s", s->reason ? s->reason : "");
	str_sanitize(ret->reason);
	if (message.len > 0)
		str_sanitize(message.data);
	(void)err_set(&ret->err, kind_of(ret->status), "%d%s%s: %s", ret->status,
		*ret->reason ? " " : "", ret->reason,
		message.len ? message.data : "the server does not say why");
}

static void from_text(int status, const char *text, size_t len, struct kube_error *ret)
{
	cleanup_free char *line = NULL;

	while (len > 0 && strchr(" \t\r\n", *text)) {
		text++;
		len--;
	}
	line = xmemdup0(text, MIN(len, MAX_TEXT_TOLD));
	line[strcspn(line, "\r\n")] = '\0';
	str_sanitize(line);
	(void)err_set(&ret->err, kind_of(status), "%d: %s", status,
		*line ? line : "the server does not say why");
}

void kube_error_from_status(int status, unsigned retry_after_ms, const char *text, size_t len,
	struct kube_error *ret)
{
	struct status s = {0};

	*ret = (struct kube_error){.status = status, .retry_after_ms = retry_after_ms};
	/* the binary form, where it was asked for: its code must do */
	if (len >= sizeof("k8s") && memcmp(text, "k8s", sizeof("k8s")) == 0)
		len = 0;
	if (len > 0 && decode(text, len, &s)) {
		from_object(status, &s, ret);
		rec_fini(&rec_status, &s);
	} else {
		from_text(status, text, len, ret);
	}
}

void kube_error_explain_401(const struct kube_access *access, struct kube_error *error)
{
	const char *cert = access->files[KUBE_FILE_CERT];
	const struct err said = error->err;

	if (access->token_file)
		(void)err_set(&error->err, said.kind,
			"%s: the token in %s is not accepted: is it expired, or its account "
			"deleted? It is read again at each attempt",
			said.message, access->token_file);
	else if (access->token)
		(void)err_set(&error->err, said.kind,
			"%s: the token in the kubeconfig is not accepted: is it expired? After "
			"it was replaced a restart is needed, which a tokenFile makes needless",
			said.message);
	else if (cert)
		(void)err_set(&error->err, said.kind,
			"%s: the certificate in %s is not accepted: is it expired? It is read "
			"again at each attempt",
			said.message, cert);
	else if (access->cert)
		(void)err_set(&error->err, said.kind,
			"%s: the certificate in the kubeconfig is not accepted: is it expired? "
			"After it was replaced a restart is needed, which a client-certificate "
			"that names a file makes needless",
			said.message);
	else
		(void)err_set(&error->err, said.kind,
			"%s: the kubeconfig's user has neither a token nor a client "
			"certificate",
			said.message);
}

void kube_error_wrap(const struct kube_transfer *t, struct kube_error *error)
{
	size_t len = strlen(t->path);

	(void)err_wrap(&error->err, "%s %.*s%s", t->method, MAX_PATH_TOLD, t->path,
		len > MAX_PATH_TOLD ? "..." : "");
}

/* --- no answer ---------------------------------------------------------------------------- */

static enum err_kind kind_of_curl(CURLcode code)
{
	switch ((int)code) {
	/* what a restart with another configuration alone can mend */
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
	case CURLE_SSL_CERTPROBLEM:
	case CURLE_URL_MALFORMAT: return ERR_INVALID;
	case CURLE_OPERATION_TIMEDOUT: return ERR_DEADLINE;
	case CURLE_OUT_OF_MEMORY:
	case CURLE_FAILED_INIT:
	case CURLE_BAD_FUNCTION_ARGUMENT: return ERR_INTERNAL;
	default: return ERR_UNAVAILABLE;
	}
}

void kube_error_from_curl(const struct kube_transfer *t, CURLcode code, struct kube_error *ret)
{
	if (t->too_long)
		kube_error_set(ret, ERR_INTERNAL, "the answer is longer than %zu bytes",
			t->lines ? t->lines->max_line : t->max_bytes);
	else if (code == CURLE_SEND_FAIL_REWIND)
		kube_error_set(ret, ERR_UNAVAILABLE,
			"the connection to %s ended before the answer", t->kube->access.server);
	else
		kube_error_set(ret, kind_of_curl(code), "no answer of %s: %s",
			t->kube->access.server,
			*t->curl_says ? t->curl_says : curl_easy_strerror(code));
	ret->status = t->too_long ? t->status : 0;
	str_sanitize(ret->err.message);
}

/* --- warnings ----------------------------------------------------------------------------- */

/* 299 - "a text, in which \" and \\ are escaped" */
static char *warning_text(const char *value, size_t len)
{
	const char *at = memchr(value, '"', len), *end = value + len;
	struct buf text = BUF_INIT;

	if (!str_has_prefix(value, "299 ") || !at)
		return NULL;
	for (at++; at < end && *at != '"'; at++) {
		if (*at == '\\' && at + 1 < end)
			at++;
		buf_put(&text, at, 1);
	}
	return buf_take(&text);
}

/* Whether it is to be told: 1 yes, 2 the last one. */
static int is_new_warning(const char *text)
{
	static unsigned known[MAX_WARNINGS];
	static size_t n_known;
	unsigned hash = hash_bytes(text, strlen(text));

	for (size_t i = 0; i < n_known; i++)
		if (known[i] == hash)
			return 0;
	if (n_known == MAX_WARNINGS)
		return 0;
	known[n_known++] = hash;
	return n_known == MAX_WARNINGS ? 2 : 1;
}

void kube_warning(const char *value, size_t len)
{
	cleanup_free char *copy = xmemdup0(value, len), *text = warning_text(copy, len);
	int is_new;

	if (!text)
		return;
	is_new = is_new_warning(text);
	if (!is_new)
		return;
	str_sanitize(text);
	LOG(WARN, NO_FIELDS, "the API server warns: %.400s", text);
	if (is_new == 2)
		LOG(WARN, NO_FIELDS, "further warnings of the API server are not told");
}
