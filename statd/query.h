/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What statctl asks: rows, changes of rows, pools, and how everything fares. Read only. */

#include "common/rpc.h"
#include "statd/statd.h"

struct query_watch;

void query_list(struct statd *s, struct rpc_call *call, const struct table_list *request);
void query_watch(struct statd *s, struct rpc_call *call, const struct table_list *request);
void query_status(struct statd *s, struct rpc_call *call);
void query_pools(struct statd *s, struct rpc_call *call);
/* A watcher's connection is gone; of others, nothing. */
void query_forget(struct statd *s, const struct rpc_conn *conn);
void query_forget_all(struct statd *s);
/* Tells watchers what a transaction did. */
void query_tell(struct statd *s, const struct table_commit *commit);
