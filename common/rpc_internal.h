/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Between rpc.c (what is said on a connection) and rpc_socket.c (how connections come
 * about). */

#include "common/rpc.h"

/* Takes *fd, connected. owner is told of the end by on_end(), after on_close of the events. */
struct rpc_conn *rpc_conn_new(uv_loop_t *loop, int *fd, const struct rpc_listen *def, void *ctx,
	void (*on_end)(void *owner, struct rpc_conn *conn), void *owner);
/* Ends it now and for good, without telling the events or the owner. */
void rpc_conn_free(struct rpc_conn *conn);
/* Reads SO_PEERCRED. */
int rpc_peer_of(int fd, struct rpc_peer *ret, struct err *err);
/* Whether def lets this peer in: our own uid, root, the listed ones. */
bool rpc_peer_allowed(const struct rpc_listen *def, const struct rpc_peer *peer);
