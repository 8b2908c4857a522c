/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The processes around statd: which are expected, which are connected, and how they fare.
 */

#include "common/api.h"
#include "common/rpc.h"

enum peer_role {
	/* managers first, in the order of enum manager_type */
	PEER_DUMMY = MANAGER_DUMMY,
	PEER_SRIOV = MANAGER_SRIOV,
	PEER_RXQUEUE = MANAGER_RXQUEUE,
	PEER_NETNSD,
	PEER_DRAPLUGIND,
	PEER_NRIHOOKD,
	PEER_ROLE_MAX,
	PEER_NONE = -1,
};

struct peer {
	bool expected; /* without it something is missing */
	struct rpc_conn *conn;
	char state[32];       /* one word */
	char *detail;         /* NULL: nothing to add */
	int64_t since_ms;     /* wall clock of the last change of state */
	struct strlist notes; /* of a manager's last inventory */
};

struct peers {
	struct peer peer[PEER_ROLE_MAX];
};

const char *peer_role_name(enum peer_role role);
/* By what a manager or netnsd calls itself in manager.hello. */
enum peer_role peer_role_of_manager(const char *type);
/* By what a front calls itself in front.hello. */
enum peer_role peer_role_of_front(const char *role);

void peers_init(struct peers *peers);
void peers_fini(struct peers *peers);
void peer_expect(struct peers *peers, enum peer_role role);
/* A peer has said who it is. One that was there in the same role is closed: a restarted process
 * may be back before the end of the old one is seen. */
void peer_connected(struct peers *peers, enum peer_role role, struct rpc_conn *conn);
/* detail may be NULL. */
void peer_set_state(
	struct peers *peers, enum peer_role role, const char *state, const char *detail);
/* Replaces those of before; they go with the connection. */
void peer_set_notes(struct peers *peers, enum peer_role role, const struct strlist *notes);
/* The role that it had, or PEER_NONE. */
enum peer_role peer_disconnected(
	struct peers *peers, const struct rpc_conn *conn, const char *reason);
/* NULL: not connected. */
struct rpc_conn *peer_conn(const struct peers *peers, enum peer_role role);
/* PEER_NONE if it has not said who it is, or was replaced. */
enum peer_role peer_role_of_conn(const struct peers *peers, const struct rpc_conn *conn);
