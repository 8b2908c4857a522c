/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The plugin's side of NRI on one connection: bytes in, events and bytes out.
 *
 * No I/O and no clock: whoever owns the socket feeds what was read, sends what collects in
 * `out`, and answers the pods' events with nri_reply(). The order of a connection's life is:
 *
 *	nri_start()    RegisterPlugin goes out
 *	configured     the runtime says who it is and is told which events are wanted
 *	sync_*         it lists its sandboxes, once
 *	pod_event      from then on
 */

#include <stdint.h>

#include "common/err.h"
#include "common/util.h"
#include "nrihookd/mux.h"
#include "nrihookd/ttrpc.h"

/* Values are the protocol's. */
enum nri_event {
	NRI_RUN = 1,
	NRI_STOP = 2,
	NRI_REMOVE = 3,
	NRI_CREATE = 4, /* a container of the pod is about to be created */
};

/* A pod sandbox as the runtime tells it, unchecked; texts are never NULL but for netns_path. */
struct nri_pod {
	const char *id; /* of the sandbox */
	const char *uid, *name, *namespace;
	const char *netns_path; /* NULL: it has none of its own, or the event does not tell */
	uint32_t pid;           /* 0: dead, or a runtime without a process for the sandbox */
	/* NRI_CREATE: what claim_of() returned for the container's mounts, each once. A container
	 * with more than CLAIMS_MAX is refused. */
	struct strlist claims;
};

/* All arguments are borrowed for the call. */
struct nri_ops {
	void (*configured)(void *ctx, const char *runtime, const char *version);
	/* A Synchronize may come in parts, and a connection may end between them: only sync_end
	 * says that the list is complete. It has been answered by then. */
	void (*sync_begin)(void *ctx);
	void (*sync_pod)(void *ctx, const struct nri_pod *pod);
	void (*sync_end)(void *ctx);
	/* The claim that a container with a mount of this source was given; NULL: it shows none.
	 * The caller's. Called for each mount, before NRI_CREATE. */
	char *(*claim_of)(void *ctx, const char *source);
	/* To be answered by nri_reply(stream) within budget_ms from now, on pain of the
	 * runtime's closing the connection and going on nevertheless. */
	void (*pod_event)(void *ctx, enum nri_event event, const struct nri_pod *pod,
		uint32_t stream, uint64_t budget_ms);
};

/* Events of one connection that may be unanswered; a runtime has one at a time, and more only
 * when its clients give up and it goes on to the next. */
#define NRI_MAX_PENDING 1024

struct nri {
	const struct nri_ops *ops;
	void *ctx;
	struct buf out;
	/* private */
	struct mux mux;
	struct ttrpc_reader calls, replies; /* channels MUX_PLUGIN and MUX_RUNTIME */
	uint32_t last_stream;               /* of the runtime's requests */
	uint64_t request_timeout_ms;
	size_t pending;
	bool registered, configured, syncing;
};

/* A new connection: drops all of the previous one and puts RegisterPlugin into out. name is of
 * [A-Za-z0-9_.+-], index two digits. */
void nri_start(struct nri *n, const struct nri_ops *ops, void *ctx, const char *name,
	const char *index);
void nri_fini(struct nri *n);
/* Works on bytes received. On failure, which is the runtime's refusal or a break of the
 * protocol, `out` is still to be sent, and then the connection is to be closed. */
int nri_feed(struct nri *n, const void *data, size_t len, struct err *err);
/* Whether the runtime has taken the registration and configured us. */
bool nri_is_registered(const struct nri *n);
/* Answers a pod's event; err NULL is success. */
void nri_reply(struct nri *n, uint32_t stream, const struct err *err);
