/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * rtnetlink as the device managers need it: links, one request at a time, each answered before
 * the function returns. Everything here blocks for as long as the kernel holds the RTNL lock.
 *
 * Errors carry what the kernel said: err->sys is the errno of its answer, untranslated, and its
 * extended-ack text is part of the message. A link that is not there is ERR_NOT_FOUND.
 */

#include <net/if.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/err.h"
#include "common/util.h"

#define LINK_KIND_SIZE    32
#define LINK_MAC_SIZE     (32 * 3) /* MAX_ADDR_LEN bytes in hex (linux/netdevice.h) */
#define LINK_ALIAS_SIZE   256      /* IFALIASZ (linux/if.h) */
#define LINK_PARENT_SIZE  64
#define LINK_ALTNAME_SIZE 128 /* ALTIFNAMSIZ (linux/if.h) */

struct link_info {
	int ifindex;
	char name[IFNAMSIZ];
	char kind[LINK_KIND_SIZE]; /* "dummy", "veth", ...; "" for a device of a bus */
	char mac[LINK_MAC_SIZE];   /* "02:00:00:00:00:01"; "" if it has none */
	uint32_t mtu;
	bool up; /* administratively */
	char alias[LINK_ALIAS_SIZE];
	char parent[LINK_PARENT_SIZE]; /* its device on a bus: "0000:01:10.0"; "" if none */
	struct strlist altnames;
};

void link_info_fini(struct link_info *link);
#define cleanup_link_info __attribute__((cleanup(link_info_fini)))

struct link_list {
	struct link_info *v;
	size_t n;
};

void link_list_fini(struct link_list *list);
#define cleanup_link_list __attribute__((cleanup(link_list_fini)))

/* A rtnetlink socket. It acts in the namespace it was opened in, wherever its owner is. */
struct nl {
	struct nl_sock *sock;
};

/* Opens a socket in our own namespace (fd -1), or works on a duplicate of one that someone else
 * opened, perhaps inside another namespace; whether it is one: netns_check_socket(). A zeroed
 * struct may be given to nl_fini(). */
int nl_init(struct nl *nl, int fd, struct err *err);
void nl_fini(struct nl *nl);
#define cleanup_nl __attribute__((cleanup(nl_fini)))

/* The link that has this name, or has it as an alternative name: then ret->name differs. *ret
 * is for link_info_fini(), also after a failure. */
int nl_link_get(struct nl *nl, const char *name, struct link_info *ret, struct err *err);
/* The first link that match says yes to; it may be asked twice for one. *ret as above. */
int nl_link_find(struct nl *nl, bool (*match)(const void *ctx, const struct link_info *link),
	const void *ctx, struct link_info *ret, struct err *err);

/* All of them, maybe none, into *ret (zeroed). */
int nl_link_find_all(struct nl *nl,
	bool (*match)(const void *ctx, const struct link_info *link), const void *ctx,
	struct link_list *ret, struct err *err);

/* The kernel loads the kind's module if it must. ERR_CONFLICT: the name is taken. */
int nl_link_add(struct nl *nl, const char *name, const char *kind, struct err *err);
int nl_link_del(struct nl *nl, int ifindex, struct err *err);

int nl_link_set_name(struct nl *nl, int ifindex, const char *name, struct err *err);
/* "" removes it. A link gets none at its creation: net/core/rtnetlink.c, rtnl_create_link(). */
int nl_link_set_alias(struct nl *nl, int ifindex, const char *alias, struct err *err);
int nl_link_set_mtu(struct nl *nl, int ifindex, uint32_t mtu, struct err *err);
/* mac as in struct link_info. */
int nl_link_set_mac(struct nl *nl, int ifindex, const char *mac, struct err *err);
int nl_link_set_up(struct nl *nl, int ifindex, bool up, struct err *err);
int nl_link_add_altname(struct nl *nl, int ifindex, const char *altname, struct err *err);
int nl_link_del_altname(struct nl *nl, int ifindex, const char *altname, struct err *err);

/* Moves a link into another namespace, where it arrives down, without addresses, maybe with
 * another ifindex, and called name. Not atomic: on failure it may have moved, under its old or
 * its new name. */
int nl_link_move(struct nl *nl, int ifindex, int netns_fd, const char *name, struct err *err);
