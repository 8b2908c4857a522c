/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What the modules of the client share: a transfer is one exchange with the server, of which
 * calls, the pages of a list and watches are made.
 */

#include <stdbool.h>
#include <stdint.h>

#include "common/curl_uv.h"
#include "common/kube.h"
#include "common/kube_files.h"
#include "common/kube_lines.h"
#include "common/kube_name.h"
#include "common/kube_token.h"
#include "common/util.h"

struct kube_transfer;
struct kube_link;

struct kube_transfer_ops {
	/* More lines have come, of an answer that is a stream of them. May fini the transfer.
	 */
	void (*lines)(struct kube_transfer *t);
	/* It is over, and forgotten here: all that is left to do is to fini it. error NULL: the
	 * status was 2xx. */
	void (*done)(struct kube_transfer *t, const struct kube_error *error);
};

enum kube_transfer_state {
	TRANSFER_NEW,
	TRANSFER_WAITING, /* for its turn, the server's address, or certificates */
	TRANSFER_ON_WIRE,
	TRANSFER_DENIED, /* refusal is the server's 401; waits for certificates that are newer */
	TRANSFER_REFUSED, /* refusal says why; done() is to be called */
	TRANSFER_OVER,
};

struct kube_transfer {
	struct kube *kube;
	const struct kube_transfer_ops *ops;
	enum kube_transfer_state state;
	uint64_t deadline_ms;              /* now_ms(); done() comes with ERR_DEADLINE then */
	struct kube_transfer *prev, *next; /* of the kube */

	/* what is asked */
	char *method, *path, *query, *content_type, *accept;
	char *body;
	size_t body_len, body_at;
	uint64_t begun_ms;

	/* on the wire */
	struct kube_link *link;
	CURL *easy;
	struct curl_slist *headers;
	uint64_t heard_before; /* of the link, when this was sent */
	unsigned token_generation;
	unsigned credentials_generation;
	bool repeated;   /* after a 401 */
	char *curl_says; /* CURL_ERROR_SIZE */

	/* what is answered */
	int status;
	unsigned retry_after_ms;
	struct buf answer;
	size_t max_bytes;
	const struct json_mask *mask;
	bool too_long;
	/* NULL: the answer is collected; else it goes here, if it is 200 */
	struct kube_lines *lines;
	bool has_lines;

	struct kube_error *refusal; /* of one that is TRANSFER_REFUSED or TRANSFER_DENIED */
};

/* request is copied. lines NULL: a call. */
void kube_transfer_init(struct kube_transfer *t, struct kube *kube,
	const struct kube_transfer_ops *ops, const struct kube_request *request,
	struct kube_lines *lines);
/* done() will come, later. */
void kube_transfer_start(struct kube_transfer *t);
void kube_transfer_set_deadline(struct kube_transfer *t, uint64_t deadline_ms);
/* Nothing is called any more. Of one that was never initialised, or is zeroed: nothing. */
void kube_transfer_fini(struct kube_transfer *t);
/* The answer as a tree, the caller's; NULL and *ret is filled when it is none. */
json_t *kube_transfer_json(const struct kube_transfer *t, struct kube_error *ret);

/* --- kube_wire.c: a transfer and its easy handle ------------------------------------------ */

/* Puts it on the link's multi handle. ERR_UNAVAILABLE when there is no token. */
int kube_wire_attach(struct kube_transfer *t, struct kube_link *link, struct err *err);
void kube_wire_detach(struct kube_transfer *t);

/* --- kube_status.c: what went wrong ------------------------------------------------------- */

/* "GET /api/v1/…: " in front of the message. */
void kube_error_wrap(const struct kube_transfer *t, struct kube_error *error);
/* Of an answer that is not 2xx, or of a Status object of a watch: text is the body. */
void kube_error_from_status(int status, unsigned retry_after_ms, const char *text, size_t len,
	struct kube_error *ret);
void kube_error_from_curl(const struct kube_transfer *t, CURLcode code, struct kube_error *ret);
/* What an operator does about a 401. */
void kube_error_explain_401(const struct kube_access *access, struct kube_error *error);
/* As the server itself would have it. */
void kube_error_set(struct kube_error *ret, enum err_kind kind, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* A header field "Warning" (RFC 7234, 5.5) as the server sends them: logged, each text once. */
void kube_warning(const char *value, size_t len);

/* --- kube.c ------------------------------------------------------------------------------- */

/* One multi handle, and on it normally one connection. */
struct kube_link {
	struct kube *kube;
	struct curl_uv *curl;
	struct kube_name *name;     /* while the server's address is asked for */
	struct curl_slist *resolve; /* what it is, for curl; NULL: it is in the URL */
	/* Of its connection; NULL: nothing was sent yet. */
	struct kube_credentials *credentials;
	size_t n_transfers;
	uint64_t heard; /* how often something came from the server */
	bool has_lines; /* some transfer has */
	unsigned holds;
	struct kube_link *prev, *next;
};

struct kube {
	uv_loop_t *loop;
	struct kube_access access;
	struct kube_token token;
	struct kube_files *files;
	char *denied; /* the last 401's message, until something is answered; NULL: none */
	struct kube_link *link; /* NULL: the next transfer makes one */
	struct kube_link *links;
	struct kube_transfer *transfers; /* in the order of their starts */
	struct kube_watch *watches;
	struct kube_list *telling; /* whose objects are told just now, if any are */
	size_t n_calls, n_on_wire;
	size_t most_calls; /* at once, since there were none */
	struct kube_counts counts;
	uv_timer_t timer;  /* the next deadline */
	uint64_t timer_ms; /* that it is set to, 0: none */
	bool closing;

	/* how the server is reached; see kube_wire.c */
	char *base; /* what paths are put behind */
	char *host; /* the field "Host", NULL: as in base */
	struct curl_slist *connect_to;
	/* of the server, to be resolved; NULL: it has an address */
	char *host_name, *port;
};

int kube_wire_init(struct kube *kube, struct err *err);
void kube_wire_fini(struct kube *kube);

/* An answer of this size was parsed, and the tree is freed: what it took goes back to the system
 * if it was much. A tree takes several times its text, and the process may never need as much
 * again. */
void kube_give_back(size_t answer_bytes);

void kube_watch_abandon(struct kube_watch *watch);

/* Evenly from 0 to n - 1. */
uint64_t kube_random_below(uint64_t n);

/* Called when the list's first page is there, before `each`. */
void kube_list_on_begin(struct kube_list *list, void (*begin)(void *ctx));
/* Ends the one that is telling its objects: done is called, and no other object is told. */
void kube_list_close(struct kube_list *list);
