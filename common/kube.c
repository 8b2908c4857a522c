/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client: which transfers there are, when each goes on the wire, and when it is over.
 *
 * A transfer waits for its turn, goes on the wire, and is over by an answer, by its deadline,
 * or because whoever wanted it does not any more. Nothing of ours is ever called from within
 * curl: its callbacks fill buffers, and when it has returned, progress() looks through what
 * came. So whoever is called may start and cancel whatever it wants, the client included.
 *
 * All transfers share one connection, that of the current link. A connection can be dead
 * without anybody saying so, and every new transfer would be put on it. When a deadline passes
 * and not one byte has come by the link since that transfer was sent, the link is given up: new
 * transfers get a new one, with a new connection; watches on the old one, of which nothing
 * would be heard, begin again there; calls on the old one are left to their own deadlines. A
 * link without transfers is closed.
 *
 * Each link begins by reading certificates again that come from files, and transfers wait for that.
 * A call that gets 401 with a certificate has them read again as well; if they are others it is
 * sent again, by a new link. A connection that could not be made may be one for which they are too
 * old: it ends the link.
 *
 * When the server has a name, each link begins by asking for its address, and transfers wait
 * for that. One that failed ends the link as well: the next asks again, as the server may be
 * elsewhere by now. An address in the place of a name is used as it is.
 *
 * There is one timer, for the nearest of all deadlines. While nothing is under way but watches
 * it is set to the end of the first of them, and curl sets none: an idle client is not woken.
 */
#include "common/kube_internal.h"

#include <ares.h>
#include <assert.h>
#include <malloc.h>
#include <string.h>
#include <utlist.h>

#include "common/log.h"

/* When the server speaks only HTTP/1.1 each transfer under way has a connection of its own. */
#define MAX_CONNECTIONS 16L

/* What less leaves behind in the heap is not worth the walk through it. */
#define LARGE_ANSWER (64u << 10)
/* Likewise of calls that were there at once. */
#define MANY_CALLS   128

static void pump(struct kube *kube);
static void on_progress(void *ctx);
static void on_files_read(void *ctx);
static void on_address(void *ctx, const char *addresses, const struct err *err);

static uv_handle_t *as_handle(void *handle)
{
	return handle;
}

/* --- links -------------------------------------------------------------------------------- */

static struct kube_link *link_get(struct kube *kube)
{
	struct kube_link *link = kube->link;
	CURLMcode code;

	if (link)
		return link;
	link = xcalloc(1, sizeof(*link));
	link->kube = kube;
	link->curl = curl_uv_new(kube->loop, on_progress, link);
	code = curl_multi_setopt(
		curl_uv_multi(link->curl), CURLMOPT_MAX_HOST_CONNECTIONS, MAX_CONNECTIONS);
	assert(code == CURLM_OK);
	(void)code;
	if (kube->host_name)
		link->name = kube_name_new(kube->loop, kube->host_name, on_address, link);
	DL_APPEND(kube->links, link);
	kube->link = link;
	(void)kube_files_refresh(kube->files);
	return link;
}

static void link_free(struct kube_link *link)
{
	DL_DELETE(link->kube->links, link);
	kube_name_free(link->name);
	curl_uv_free(link->curl);
	curl_slist_free_all(link->resolve);
	kube_credentials_unref(link->credentials);
	free(link);
}

/* Closes it when nothing will go by it any more and nobody looks at it. */
static void link_settle(struct kube_link *link)
{
	if (link->holds == 0 && link->n_transfers == 0 && link->kube->link != link)
		link_free(link);
}

/* New transfers get a new one. */
static void link_retire(struct kube_link *link)
{
	if (link->kube->link == link)
		link->kube->link = NULL;
}

/* Between these it stays, whatever is called. */
static void link_hold(struct kube_link *link)
{
	link->holds++;
}

static void link_release(struct kube_link *link)
{
	link->holds--;
	link_settle(link);
}

/* --- transfers ---------------------------------------------------------------------------- */

void kube_transfer_init(struct kube_transfer *t, struct kube *kube,
	const struct kube_transfer_ops *ops, const struct kube_request *request,
	struct kube_lines *lines)
{
	const char *content_type =
		request->content_type ? request->content_type : "application/json";
	unsigned timeout_ms = request->timeout_ms ? request->timeout_ms : KUBE_TIMEOUT_MS;

	*t = (struct kube_transfer){
		.kube = kube,
		.ops = ops,
		.method = xstrdup(request->method),
		.path = xstrdup(request->path),
		.query = xstrdup_opt(request->query),
		.content_type = xstrdup(content_type),
		.accept = xstrdup(request->accept ? request->accept : "application/json"),
		.begun_ms = now_ms(),
		.deadline_ms = now_ms() + timeout_ms,
		.max_bytes = request->max_bytes ? request->max_bytes : KUBE_MAX_ANSWER,
		.mask = request->mask,
		.lines = lines,
	};
	if (request->bytes) {
		t->body = xmemdup0(request->bytes, request->n_bytes);
		t->body_len = request->n_bytes;
	}
	if (!request->body)
		return;
	t->body = json_dumps(request->body, JSON_COMPACT);
	if (!t->body)
		abort(); /* out of memory */
	t->body_len = strlen(t->body);
}

static void off_the_wire(struct kube_transfer *t)
{
	struct kube_link *link = t->link;

	if (t->state != TRANSFER_ON_WIRE)
		return;
	kube_wire_detach(t);
	link_settle(link);
	if (!t->lines)
		t->kube->n_on_wire--;
}

/* Nobody but its owner knows it afterwards. */
static void forget(struct kube_transfer *t)
{
	struct kube *kube = t->kube;

	if (t->state == TRANSFER_NEW || t->state == TRANSFER_OVER)
		return;
	off_the_wire(t);
	t->state = TRANSFER_OVER;
	DL_DELETE(kube->transfers, t);
	if (!t->lines)
		kube->n_calls--;
}

void kube_give_back(size_t answer_bytes)
{
	if (answer_bytes >= LARGE_ANSWER)
		(void)malloc_trim(0);
}

void kube_transfer_fini(struct kube_transfer *t)
{
	struct kube *kube = t->kube;
	bool was_under_way = t->state != TRANSFER_NEW && t->state != TRANSFER_OVER;

	forget(t);
	free(t->method);
	free(t->path);
	free(t->query);
	free(t->content_type);
	free(t->accept);
	free(t->body);
	free(t->refusal);
	buf_fini(&t->answer);
	*t = (struct kube_transfer){0};
	if (was_under_way && !kube->closing)
		pump(kube);
}

json_t *kube_transfer_json(const struct kube_transfer *t, struct kube_error *ret)
{
	cleanup_buf struct buf masked = BUF_INIT;
	const struct buf *text = &t->answer;
	json_error_t why;
	struct err err;
	json_t *tree;

	if (t->answer.len == 0)
		return json_null();
	/* what is no JSON is refused by the decoder, which says where */
	if (t->mask &&
		json_mask_text(t->mask, "", t->answer.data, t->answer.len, &masked, &err) == 0)
		text = &masked;
	tree = json_loadb(text->data, text->len, JSON_DECODE_ANY, &why);
	if (tree)
		return tree;
	kube_error_set(ret, ERR_INTERNAL, "the answer is no JSON: %s at byte %d", why.text,
		why.position);
	ret->status = t->status;
	kube_error_wrap(t, ret);
	return NULL;
}

/* --- the timer ---------------------------------------------------------------------------- */

static void on_timer(uv_timer_t *timer);

static void set_timer(struct kube *kube, uint64_t deadline_ms)
{
	uint64_t now = now_ms();

	if (kube->timer_ms && kube->timer_ms <= deadline_ms)
		return;
	kube->timer_ms = deadline_ms;
	uv_update_time(kube->loop);
	/* a millisecond begun is a millisecond */
	(void)uv_timer_start(
		&kube->timer, on_timer, deadline_ms > now ? deadline_ms - now + 1 : 0, 0);
}

void kube_transfer_set_deadline(struct kube_transfer *t, uint64_t deadline_ms)
{
	t->deadline_ms = deadline_ms;
	set_timer(t->kube, deadline_ms);
}

/* done() comes with the next turn of the loop. */
static void refuse(struct kube_transfer *t, const struct err *err)
{
	t->refusal = xcalloc(1, sizeof(*t->refusal));
	t->refusal->err = *err;
	t->state = TRANSFER_REFUSED;
	kube_transfer_set_deadline(t, 0);
}

/* --- the end of a transfer ---------------------------------------------------------------- */

/* Why a connection ends may be that the server does not know us: it ends those of who is not
 * authenticated. */
static void add_denial(const struct kube *kube, struct kube_error *error)
{
	const struct err said = error->err;

	(void)err_set(&error->err, said.kind, "%s; before that the server has said: %s",
		said.message, kube->denied);
}

static void complete(struct kube_transfer *t, struct kube_error *error)
{
	struct kube *kube = t->kube;

	forget(t);
	if (error && error->status == 0 && kube->denied)
		add_denial(kube, error);
	if (error)
		kube_error_wrap(t, error);
	t->ops->done(t, error);
	if (!kube->closing)
		pump(kube);
	if (kube->n_calls > 0)
		return;
	if (kube->most_calls >= MANY_CALLS)
		(void)malloc_trim(0);
	kube->most_calls = 0;
}

static struct kube_transfer *stream_on(const struct kube_link *link)
{
	struct kube_transfer *t;

	for (t = link->kube->transfers; t; t = t->next)
		if (t->link == link && t->lines)
			return t;
	return NULL;
}

/* For watches this is an end like any other: they go on where they were. */
static void link_give_up(struct kube_link *link)
{
	struct kube *kube = link->kube;
	struct kube_transfer *t;

	link_retire(link);
	while (!kube->closing && (t = stream_on(link)))
		complete(t, NULL);
}

static void expire(struct kube_transfer *t)
{
	const struct kube *kube = t->kube;
	struct kube_link *link = t->link;
	struct kube_error error;
	bool is_dead = link && link->heard == t->heard_before;

	if (t->refusal)
		error = *t->refusal;
	else
		kube_error_set(&error, ERR_DEADLINE, "no answer of %s within %.1f s%s",
			kube->access.server, (double)(now_ms() - t->begun_ms) / 1000,
			link                             ? ""
			: kube->link && kube->link->name ? ", its address is not known yet"
							 : ", still waiting for its turn");
	if (!is_dead) {
		complete(t, &error);
		return;
	}
	link_hold(link);
	complete(t, &error);
	link_give_up(link);
	link_release(link);
}

static struct kube_transfer *find_expired(const struct kube *kube, uint64_t now)
{
	struct kube_transfer *t;

	for (t = kube->transfers; t; t = t->next)
		if (t->deadline_ms <= now)
			return t;
	return NULL;
}

static void on_timer(uv_timer_t *timer)
{
	struct kube *kube = timer->data;
	uint64_t now = now_ms(), next = UINT64_MAX;
	struct kube_transfer *t;

	kube->timer_ms = 0;
	while (!kube->closing && (t = find_expired(kube, now)))
		expire(t);
	for (t = kube->transfers; t; t = t->next)
		next = MIN(next, t->deadline_ms);
	if (!kube->closing && next != UINT64_MAX)
		set_timer(kube, next);
}

/* --- the wire ----------------------------------------------------------------------------- */

static void send_transfer(struct kube_transfer *t, struct kube_link *link)
{
	struct err err = ERR_INIT;

	if (kube_wire_attach(t, link, &err) < 0) {
		refuse(t, &err);
		return;
	}
	t->state = TRANSFER_ON_WIRE;
	kube_count(&t->kube->counts, t->method, t->path, t->query);
	if (!t->lines)
		t->kube->n_on_wire++;
}

/* One that is about to be given up is not sent any more. */
static struct kube_transfer *next_waiting(const struct kube *kube)
{
	uint64_t now = now_ms();
	struct kube_transfer *t;

	for (t = kube->transfers; t; t = t->next)
		if (t->state == TRANSFER_WAITING && t->deadline_ms > now &&
			(t->lines || kube->n_on_wire < KUBE_MAX_PARALLEL))
			return t;
	return NULL;
}

static void pump(struct kube *kube)
{
	struct kube_transfer *t;

	while ((t = next_waiting(kube))) {
		struct kube_link *link = link_get(kube);

		/* on_address() or on_files_read() goes on */
		if (link->name || (!link->credentials && kube_files_is_busy(kube->files)))
			return;
		send_transfer(t, link);
	}
}

/* --- the server's address ----------------------------------------------------------------- */

static void fail_waiting(struct kube *kube, const struct err *err)
{
	struct kube_transfer *t;

	for (t = kube->transfers; t; t = t->next)
		if (t->state == TRANSFER_WAITING)
			refuse(t, err);
}

static void on_address(void *ctx, const char *addresses, const struct err *err)
{
	struct kube_link *link = ctx;
	struct kube *kube = link->kube;
	cleanup_free char *entry = NULL;

	if (addresses) {
		entry = xasprintf("%s:%s:%s", kube->host_name, kube->port, addresses);
		link->resolve = curl_slist_append(NULL, entry);
	} else {
		fail_waiting(kube, err);
		link_retire(link);
	}
	kube_name_free(link->name);
	link->name = NULL;
	link_settle(link);
	pump(kube);
}

void kube_transfer_start(struct kube_transfer *t)
{
	struct kube *kube = t->kube;
	struct err err;

	assert(!kube->closing);
	DL_APPEND(kube->transfers, t);
	t->state = TRANSFER_WAITING;
	set_timer(kube, t->deadline_ms);
	if (!t->lines && kube->n_calls++ >= KUBE_MAX_CALLS) {
		(void)err_set(&err, ERR_BUSY, "%d calls are waiting or under way already",
			KUBE_MAX_CALLS);
		refuse(t, &err);
		return;
	}
	kube->most_calls = MAX(kube->most_calls, kube->n_calls);
	pump(kube);
}

/* --- what came ---------------------------------------------------------------------------- */

static void send_once_more(struct kube_transfer *t)
{
	off_the_wire(t);
	free(take_ptr(t->refusal));
	t->repeated = true;
	t->state = TRANSFER_WAITING;
}

/* The token's file, which is read at once, has another one by now. */
static bool has_newer_token(const struct kube_transfer *t)
{
	struct kube *kube = t->kube;
	struct err err = ERR_INIT;

	return kube->token.path && kube_token_refresh(&kube->token, true, &err) == 0 &&
	       kube->token.generation != t->token_generation;
}

static unsigned newest_credentials(const struct kube *kube)
{
	return kube_files_credentials(kube->files)->generation;
}

/* What comes from files was replaced since it was sent. */
static bool has_newer_certificate(const struct kube_transfer *t)
{
	return t->credentials_generation != newest_credentials(t->kube);
}

/* The next transfer is to go by a connection that is made with the newest. */
static void renew_link(struct kube *kube)
{
	struct kube_link *link = kube->link;

	if (!link || !link->credentials ||
		link->credentials->generation == newest_credentials(kube))
		return;
	link_retire(link);
	link_settle(link);
}

static void on_files_read(void *ctx)
{
	struct kube *kube = ctx;
	struct kube_transfer *t;

	renew_link(kube);
	for (t = kube->transfers; t; t = t->next) {
		if (t->state != TRANSFER_DENIED)
			continue;
		if (has_newer_certificate(t)) {
			send_once_more(t);
			continue;
		}
		t->state = TRANSFER_REFUSED;
		kube_transfer_set_deadline(t, 0);
	}
	pump(kube);
}

static void remember_denial(struct kube *kube, const struct kube_error *error)
{
	free(kube->denied);
	kube->denied = xstrdup(error->err.message);
}

/* A 401. Whether something is left to be tried: then it is not over yet. */
static bool try_as_newer(struct kube_transfer *t, const struct kube_error *error)
{
	struct kube *kube = t->kube;

	if (t->repeated)
		return false;
	if (has_newer_token(t)) {
		send_once_more(t);
		pump(kube);
		return true;
	}
	if (!kube->access.files[KUBE_FILE_CERT])
		return false;
	if (!has_newer_certificate(t) && kube_files_refresh(kube->files)) {
		off_the_wire(t);
		t->refusal = xcalloc(1, sizeof(*t->refusal));
		*t->refusal = *error;
		t->state = TRANSFER_DENIED;
		return true;
	}
	if (!has_newer_certificate(t))
		return false;
	renew_link(kube);
	send_once_more(t);
	pump(kube);
	return true;
}

static bool has_files(const struct kube *kube)
{
	for (size_t i = 0; i < KUBE_FILES; i++)
		if (kube->access.files[i])
			return true;
	return false;
}

static void answered(struct kube_transfer *t)
{
	free(take_ptr(t->kube->denied));
	complete(t, NULL);
}

/* A status that came counts even if the connection ended within the answer's body: with a 401 the
 * server ends it. */
static void finish(struct kube_transfer *t, CURLcode code)
{
	struct kube *kube = t->kube;
	struct kube_error error;

	/* the next one asks for the address and reads the files again */
	if (code != CURLE_OK && !t->too_long && (kube->host_name || has_files(kube)))
		link_retire(t->link);
	if (code != CURLE_OK && !(t->lines && t->status == 200 && !t->too_long) &&
		!(t->status >= 400 && !t->too_long)) {
		kube_error_from_curl(t, code, &error);
		complete(t, &error);
		return;
	}
	if (t->status >= 200 && t->status <= 299) {
		answered(t);
		return;
	}
	kube_error_from_status(
		t->status, t->retry_after_ms, t->answer.data, t->answer.len, &error);
	if (t->status == 401) {
		kube_error_explain_401(&kube->access, &error);
		remember_denial(kube, &error);
		if (try_as_newer(t, &error))
			return;
	}
	complete(t, &error);
}

static struct kube_transfer *find_with_lines(struct kube_link *link)
{
	struct kube_transfer *t;

	if (!link->has_lines)
		return NULL;
	for (t = link->kube->transfers; t; t = t->next)
		if (t->link == link && t->has_lines)
			return t;
	link->has_lines = false;
	return NULL;
}

static struct kube_transfer *find_finished(struct kube_link *link, CURLcode *ret_code)
{
	CURLMsg *message;
	int n_left;

	while ((message = curl_multi_info_read(curl_uv_multi(link->curl), &n_left))) {
		char *t = NULL;

		if (message->msg != CURLMSG_DONE)
			continue;
		*ret_code = message->data.result;
		(void)curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &t);
		return (struct kube_transfer *)(void *)t;
	}
	return NULL;
}

/* Lines first: they came before the end. */
static void on_progress(void *ctx)
{
	struct kube_link *link = ctx;
	struct kube *kube = link->kube;
	struct kube_transfer *t;
	CURLcode code;

	link_hold(link);
	while (!kube->closing) {
		if ((t = find_with_lines(link))) {
			t->has_lines = false;
			t->ops->lines(t);
		} else if ((t = find_finished(link, &code))) {
			finish(t, code);
		} else {
			break;
		}
	}
	link_release(link);
}

/* --- the whole ---------------------------------------------------------------------------- */

const char *kube_description(const struct kube *kube)
{
	return kube->access.description;
}

const struct kube_counts *kube_counts(const struct kube *kube)
{
	return &kube->counts;
}

static void access_copy(struct kube_access *to, const struct kube_access *from)
{
	*to = (struct kube_access){
		.in_cluster = from->in_cluster,
		.server = xstrdup(from->server),
		.description = xstrdup(from->description ? from->description : from->server),
		.ca = xstrdup_opt(from->ca),
		.cert = xstrdup_opt(from->cert),
		.key = xstrdup_opt(from->key),
		.tls_server_name = xstrdup_opt(from->tls_server_name),
		.token = xstrdup_opt(from->token),
		.token_file = xstrdup_opt(from->token_file),
		.reader = from->reader,
	};
	for (size_t i = 0; i < KUBE_FILES; i++)
		to->files[i] = xstrdup_opt(from->files[i]);
}

/* But for the reader, which is the caller's. */
static void access_fini(struct kube_access *access)
{
	access->reader = NULL;
	kube_access_fini(access);
}

int kube_global_init(struct err *err)
{
	CURLcode code = curl_global_init(CURL_GLOBAL_DEFAULT);

	if (code == CURLE_OK)
		return 0;
	return err_set(
		err, ERR_INTERNAL, "libcurl cannot be used: %s", curl_easy_strerror(code));
}

struct kube *kube_new(uv_loop_t *loop, const struct kube_access *access, struct err *err)
{
	struct kube *kube = xcalloc(1, sizeof(*kube));

	kube->loop = loop;
	access_copy(&kube->access, access);
	if (kube_wire_init(kube, err) < 0) {
		access_fini(&kube->access);
		free(kube);
		return NULL;
	}
	kube->files = kube_files_new(loop, &kube->access, on_files_read, kube);
	if (access->token_file)
		kube->token.path = xstrdup(access->token_file);
	else
		kube->token.value = xstrdup_opt(access->token);
	kube->timer.data = kube;
	(void)uv_timer_init(loop, &kube->timer);
	return kube;
}

static void kube_freed(uv_handle_t *handle)
{
	free(handle->data);
}

void kube_free(struct kube *kube)
{
	struct kube_link *link, *next;

	if (!kube)
		return;
	kube->closing = true;
	kube->link = NULL;
	while (kube->watches)
		kube_watch_abandon(kube->watches);
	if (kube->telling)
		kube_list_close(kube->telling);
	while (kube->transfers) {
		struct kube_error error;

		kube_error_set(&error, ERR_UNAVAILABLE, "the client was closed");
		complete(kube->transfers, &error);
	}
	/* one that is held is freed by whoever lets go of it */
	for (link = kube->links; link; link = next) {
		next = link->next;
		link_settle(link);
	}
	kube_files_free(kube->files);
	kube_token_fini(&kube->token);
	kube_wire_fini(kube);
	access_fini(&kube->access);
	free(kube->denied);
	uv_close(as_handle(&kube->timer), kube_freed);
}
