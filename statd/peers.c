/* SPDX-License-Identifier: Apache-2.0 */
#include "statd/peers.h"

#include <string.h>

#include "common/log.h"
#include "common/util.h"

static const char *const role_names[PEER_ROLE_MAX] = {
	[PEER_DUMMY] = "dmgr-dummy",
	[PEER_SRIOV] = "dmgr-sriov",
	[PEER_RXQUEUE] = "dmgr-rxqueue",
	[PEER_NETNSD] = "netnsd",
	[PEER_DRAPLUGIND] = "draplugind",
	[PEER_NRIHOOKD] = "nrihookd",
};

const char *peer_role_name(enum peer_role role)
{
	return role_names[role];
}

enum peer_role peer_role_of_manager(const char *type)
{
	enum manager_type manager = manager_type_parse(type);

	if (manager != MANAGER_INVALID)
		return (enum peer_role)manager;
	return strcmp(type, "netns") == 0 ? PEER_NETNSD : PEER_NONE;
}

enum peer_role peer_role_of_front(const char *role)
{
	for (int r = PEER_DRAPLUGIND; r < PEER_ROLE_MAX; r++)
		if (strcmp(role_names[r], role) == 0)
			return (enum peer_role)r;
	return PEER_NONE;
}

void peer_set_state(
	struct peers *peers, enum peer_role role, const char *state, const char *detail)
{
	struct peer *p = &peers->peer[role];

	if (strcmp(p->state, state) != 0)
		p->since_ms = wall_ms();
	(void)snprintf(p->state, sizeof(p->state), "%s", state);
	free(p->detail);
	p->detail = xstrdup_opt(detail);
}

void peers_init(struct peers *peers)
{
	*peers = (struct peers){0};
	for (int r = 0; r < PEER_ROLE_MAX; r++)
		peer_set_state(peers, (enum peer_role)r, "missing", "it has not connected yet");
}

static void peer_fini(struct peer *p)
{
	free(p->detail);
	strlist_fini(&p->notes);
}

void peers_fini(struct peers *peers)
{
	for (int r = 0; r < PEER_ROLE_MAX; r++)
		peer_fini(&peers->peer[r]);
	*peers = (struct peers){0};
}

void peer_expect(struct peers *peers, enum peer_role role)
{
	peers->peer[role].expected = true;
}

void peer_connected(struct peers *peers, enum peer_role role, struct rpc_conn *conn)
{
	struct peer *p = &peers->peer[role];
	struct rpc_conn *old = p->conn;

	rpc_conn_set_name(conn, role_names[role]);
	p->conn = conn;
	strlist_fini(&p->notes);
	peer_set_state(peers, role, "connected", NULL);
	LOG(INFO, FIELDS(F("peer", role_names[role])), "connected");
	if (old && old != conn)
		rpc_conn_close(old, "another process took its role");
}

void peer_set_notes(struct peers *peers, enum peer_role role, const struct strlist *notes)
{
	struct strlist *to = &peers->peer[role].notes;

	strlist_fini(to);
	for (size_t i = 0; i < notes->n; i++)
		strlist_add(to, notes->v[i]);
}

enum peer_role peer_role_of_conn(const struct peers *peers, const struct rpc_conn *conn)
{
	for (int r = 0; conn && r < PEER_ROLE_MAX; r++)
		if (peers->peer[r].conn == conn)
			return (enum peer_role)r;
	return PEER_NONE;
}

enum peer_role peer_disconnected(
	struct peers *peers, const struct rpc_conn *conn, const char *reason)
{
	enum peer_role role = peer_role_of_conn(peers, conn);

	if (role == PEER_NONE)
		return PEER_NONE;
	peers->peer[role].conn = NULL;
	strlist_fini(&peers->peer[role].notes);
	peer_set_state(peers, role, "missing", reason);
	LOG(WARN, FIELDS(F("peer", role_names[role]), F("err", reason)), "disconnected");
	return role;
}

struct rpc_conn *peer_conn(const struct peers *peers, enum peer_role role)
{
	return peers->peer[role].conn;
}
