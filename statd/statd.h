/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The root of the process: everything that statd holds hangs off this struct.
 */

#include <uv.h>

#include "common/daemon.h"
#include "common/privileges.h"
#include "common/rpc.h"
#include "statd/cluster.h"
#include "statd/config.h"
#include "statd/event.h"
#include "statd/lock.h"
#include "statd/peers.h"
#include "statd/publisher.h"
#include "statd/record.h"
#include "statd/sandbox_table.h"
#include "statd/schema.h"
#include "statd/slice_sink.h"
#include "statd/status_queue.h"
#include "statd/store.h"

/* sandbox.c: with files only, and with an API server */
extern const struct privileges statd_privileges, statd_cluster_privileges;

struct statd_options {
	struct daemon_options base;
	const char *config;     /* NULL: the API server's object */
	const char *node_name;
	const char *claims_dir; /* NULL: the API server's claims */
	const char *kubeconfig, *kube_context, *service_account_dir;
	const char *unknown_parameters; /* refuse or warn */
	const char *runtime_dir;
	const char *state_dir; /* NULL: "state" below the runtime directory */
	const char *user;
	bool wait_for_status; /* a prepare is answered when the claim's status is written */
	const char *manager_group, *front_group, *query_group;
};

enum statd_socket { SOCKET_MANAGER, SOCKET_FRONT, SOCKET_QUERY, SOCKET_MAX };

struct release;

struct statd {
	uv_loop_t *loop;
	struct daemon daemon;
	const struct statd_options *options;
	struct node_config config;
	bool configured; /* config is valid, store and sink are there */
	char *waiting;   /* what is waited for before serving, for people; NULL: nothing */
	struct cluster cluster;
	struct events events;
	struct tables tables;
	struct table_watch *watches[2];
	struct store *store;
	struct slice_sink *sink;
	struct lockset *locks;
	struct records records;
	struct strlist broken; /* claims, by UID, whose records cannot be read */
	struct strmap broken_devices; /* that those records name -> UID of the claim */
	struct status_queue status;
	struct release *releases;
	struct sandbox *sandboxes;
	struct strlist late; /* sandboxes that run without their devices since the last sync */
	struct strlist live; /* that the runtime has, as far as rows name them; see has_synced */
	struct peers peers;
	int socket_fds[SOCKET_MAX]; /* until they are served */
	struct rpc_server *servers[SOCKET_MAX];
	struct query_watch *query_watches;
	int64_t started_ms; /* wall clock */
	size_t n_jobs;      /* flows under way: a stop waits for them */
	bool ready;         /* both tables are initialised: the fronts were told */
	bool has_synced;    /* the runtime has told since our start which sandboxes it has */
	bool stopping;

	/* restoring */
	uv_timer_t restore_retry;
	unsigned restore_attempts;
	struct strlist from_status; /* claims that are not recorded yet */
	struct strmap unprepared; /* UID -> namespace/name: allocated to a pod, not prepared */
	/* The store has a claim that cannot be read: what a mark in the kernel belongs to may not be
	 * known, so leftovers are kept. */
	bool has_unreadable;
	bool audited[MANAGER_TYPE_MAX];

	struct publisher publisher;
};

/* The privileged part: configuration, store, records, sockets. loop is only remembered: it is made
 * when the process is confined. who: the user that the process becomes, if it is root. */
int statd_open(struct statd *s, uv_loop_t *loop, const struct statd_options *options,
	const struct identity *who, struct err *err);
/* Starts to work: finds its configuration, restores, then serves. query.sock is served from the
 * start, so that people can see what is waited for. */
void statd_start(struct statd *s);
void statd_stop(void *ctx);
void statd_fini(struct statd *s);

/* Around each flow, so that a stop can wait for it. */
void statd_job_begin(struct statd *s);
void statd_job_end(struct statd *s);

/* The configuration is there: restore. */
void statd_configured(struct statd *s);
/* What the start waits for, for people. */
void statd_wait_for(struct statd *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* The allocations are known: serve. */
void statd_restored(struct statd *s);
/* Tells the fronts, once both tables are initialised. */
void statd_check_ready(struct statd *s);

/* The connection to the manager of this type, or NULL; for rpc_start(), which then fails. */
struct rpc_conn *statd_manager(const struct statd *s, enum manager_type manager);

/* rpc.c: what each socket serves. */
extern const struct rpc_listen statd_listen[SOCKET_MAX];
