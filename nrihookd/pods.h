/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What is remembered of the node's pod sandboxes, and what is to be done for each, in order.
 *
 * Runtimes tell little when a sandbox stops, and after a restart of theirs nothing at all; so
 * what they said when it started is kept here. And they may stop a sandbox while its start is
 * still being worked on: so each sandbox has a queue of operations, of which the first is under
 * way.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "common/hash.h"
#include "nrihookd/nri.h"
#include "nrihookd/runtime.h"

/* Sandboxes at a time, dead ones included, and operations at a time: a node has some hundreds
 * of pods, and pod.sync takes no more than these. */
#define PODS_MAX 8192

enum pod_op_kind {
	POD_OP_RUN,    /* attach, and let the runtime go on */
	POD_OP_STOP,   /* detach */
	POD_OP_REMOVE, /* detach what may be left */
	POD_OP_LATE,   /* attach a sandbox that runs already */
	POD_OP_CREATE, /* attach what is not there yet, and let a container be created */
};

/* What is known of a sandbox's devices. */
enum pod_devices {
	DEVICES_UNKNOWN,  /* statd has not said anything about them */
	DEVICES_IN_PLACE, /* it has all that it is to have, perhaps none */
	DEVICES_MISSING,  /* an attach failed, or has yet to be made */
};

struct hooks;
struct pod;
struct rpc_pending;

struct pod_op {
	struct pod_op *prev, *next; /* in its sandbox's queue */
	struct pod *pod;
	enum pod_op_kind kind;
	struct hooks *hooks;   /* who carries it out */
	struct strlist claims; /* POD_OP_CREATE: that the container was given */
	uint64_t begun;       /* its number */
	/* towards the runtime */
	struct runtime_ticket ticket;
	uint64_t answer_by_ms; /* 0: there is nobody to answer, or no more */
	/* towards statd */
	uint64_t give_up_ms;      /* 0 until the work begins */
	uint64_t retry_ms;        /* when to try again, while no call is under way */
	struct rpc_pending *call; /* NULL: none is */
	bool handed_over;         /* POD_OP_STOP: its namespace, to this statd */
	struct err err;           /* why the last try failed */
};

struct pod {
	char *sandbox_id; /* key */
	char *uid, *name, *namespace;
	char *netns_path;  /* NULL: not told */
	bool known;        /* started or listed, and not removed */
	bool live;         /* and not stopped */
	bool host_network; /* it is known to have no network namespace of its own */
	bool involved;     /* statd was asked to attach to it, or named it: it is asked again */
	enum pod_devices devices;
	struct strlist claims; /* whose devices are in place, by statd's word */
	bool asked;    /* statd is about to tell of its devices, and nothing was begun since */
	unsigned list; /* the number of the last list that named it */
	uint64_t begun;   /* the number of the last operation that was begun for it */
	uint64_t started; /* of its start; 0: it was listed, or has none yet */
	struct pod_op *ops;
	struct pod *prev, *next; /* in pods.busy, while there are ops */
	UT_hash_handle hh;
};

/* Whether the names that are told are such as Kubernetes gives. All others have no claims,
 * whatever they are called. */
bool pods_is_kubernetes(const struct nri_pod *told);

struct pods {
	struct pod *by_id;
	struct pod *busy;
	size_t n_ops;
	unsigned list;  /* counts the lists that runtimes sent */
	uint64_t begun; /* counts operations */
};

void pods_fini(struct pods *pods);
/* The sandbox, or NULL. */
struct pod *pods_get(const struct pods *pods, const char *sandbox_id);
/* The sandbox, new or brought up to date with what is told, which is Kubernetes'; what that
 * leaves out is kept. NULL: ERR_INVALID for an id or path that is none,
 * ERR_BUSY when there are too many. */
struct pod *pods_put(struct pods *pods, const struct nri_pod *told, struct err *err);
/* Forgets it unless the runtime has it or something is to be done. */
void pods_drop(struct pods *pods, struct pod *pod);

/* A runtime's list of its sandboxes: between begin and end each is put, and listed with whether
 * it lives. Those that the list lacks are no more. What is to be done for a sandbox goes before
 * what the list says of it. */
void pods_list_begin(struct pods *pods);
void pods_listed(struct pods *pods, struct pod *pod, bool live);
void pods_list_end(struct pods *pods);

/* Puts an operation at the end of its sandbox's queue. NULL: ERR_BUSY. */
struct pod_op *pods_op_add(
	struct pods *pods, struct pod *pod, enum pod_op_kind kind, struct err *err);
/* Frees the first operation of its sandbox's queue. The next one, or NULL, and then the sandbox
 * may have been forgotten. */
struct pod_op *pods_op_done(struct pods *pods, struct pod_op *op);
