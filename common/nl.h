/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * rtnetlink as the device managers need it: links, one request at a time, each answered before
 * the function returns. Everything here blocks for as long as the kernel holds the RTNL lock.
 *
 * Errors carry what the kernel said: err->sys is the errno of its answer, untranslated, and its
 * extended-ack text is part of the message. A link that is not there is ERR_NOT_FOUND.
 */

#include <linux/if_ether.h>
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

/* The numbers of a link that can be set, in the order in which they are: the kernel changes
 * those for IPv4 with the general ones (netif_set_gso_max_size(), net/core/dev.c). */
enum link_number {
	LINK_MTU,
	LINK_TX_QUEUE_LEN,
	LINK_GROUP,
	LINK_GSO_MAX_SIZE,
	LINK_GSO_MAX_SEGS,
	LINK_GRO_MAX_SIZE,
	LINK_GSO_IPV4_MAX_SIZE,
	LINK_GRO_IPV4_MAX_SIZE,
	LINK_NUMBER_MAX
};
/* As in what `ip -d link` calls it: "mtu", "gso_max_size". */
const char *link_number_name(enum link_number which);

/* The flags that a user can set, but IFF_UP: __dev_change_flags(), net/core/dev.c. */
#define LINK_FLAGS                                                                             \
	(IFF_DEBUG | IFF_NOTRAILERS | IFF_NOARP | IFF_DYNAMIC | IFF_MULTICAST | IFF_PORTSEL |  \
		IFF_AUTOMEDIA | IFF_PROMISC | IFF_ALLMULTI)

struct link_info {
	int ifindex;
	char name[IFNAMSIZ];
	char kind[LINK_KIND_SIZE]; /* "dummy", "veth", ...; "" for a device of a bus */
	char mac[LINK_MAC_SIZE];   /* "02:00:00:00:00:01"; "" if it has none */
	uint32_t numbers[LINK_NUMBER_MAX];
	unsigned known;    /* 1 << LINK_*: an older kernel does not tell all */
	uint32_t max_mtu;  /* 0: not told */
	unsigned flags;    /* IFF_* */
	bool up;           /* administratively */
	int addr_gen_mode; /* IN6_ADDR_GEN_MODE_* (linux/if_link.h); -1: no IPv6 */
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
/* The link of this number. *ret as above. */
int nl_link_get_by_index(struct nl *nl, int ifindex, struct link_info *ret, struct err *err);
/* The first link that match says yes to; it may be asked twice for one. *ret as above. */
int nl_link_find(struct nl *nl, bool (*match)(const void *ctx, const struct link_info *link),
	const void *ctx, struct link_info *ret, struct err *err);

/* All of them, maybe none, into *ret (zeroed). */
int nl_link_find_all(struct nl *nl,
	bool (*match)(const void *ctx, const struct link_info *link), const void *ctx,
	struct link_list *ret, struct err *err);

/* group is IFLA_GROUP, usually 0. The kernel loads the kind's module if it must. ERR_CONFLICT: the
 * name is taken. */
int nl_link_add(
	struct nl *nl, const char *name, const char *kind, uint32_t group, struct err *err);
int nl_link_del(struct nl *nl, int ifindex, struct err *err);

int nl_link_set_name(struct nl *nl, int ifindex, const char *name, struct err *err);
/* "" removes it. A link gets none at its creation: net/core/rtnetlink.c, rtnl_create_link(). */
int nl_link_set_alias(struct nl *nl, int ifindex, const char *alias, struct err *err);
/* Both in one request: whoever dies meanwhile has set none of them or both. */
int nl_link_set_alias_and_group(
	struct nl *nl, int ifindex, const char *alias, uint32_t group, struct err *err);
int nl_link_set_number(
	struct nl *nl, int ifindex, enum link_number which, uint32_t value, struct err *err);
/* LINK_FLAGS, all of them. */
int nl_link_set_flags(struct nl *nl, int ifindex, unsigned flags, struct err *err);
int nl_link_set_addr_gen_mode(struct nl *nl, int ifindex, int mode, struct err *err);
/* mac as in struct link_info. */
int nl_link_set_mac(struct nl *nl, int ifindex, const char *mac, struct err *err);
int nl_link_set_up(struct nl *nl, int ifindex, bool up, struct err *err);
int nl_link_add_altname(struct nl *nl, int ifindex, const char *altname, struct err *err);
int nl_link_del_altname(struct nl *nl, int ifindex, const char *altname, struct err *err);

/* Moves a link into another namespace, where it arrives down, without addresses, maybe with
 * another ifindex, and called name. want_ifindex, if not 0, is the one it is to have there: EBUSY
 * if another link has it, and then nothing was done. Kernels before 5.13 ignore it. Otherwise not
 * atomic: on failure it may have moved, under its old or its new name. */
int nl_link_move(struct nl *nl, int ifindex, int netns_fd, const char *name, int want_ifindex,
	struct err *err);
/* As nl_link_move(), and then brings it up there. One request: whoever dies meanwhile leaves it
 * undone or done. name must not be one of its alternative names, which the kernel does not check. */
int nl_link_move_up(
	struct nl *nl, int ifindex, int netns_fd, const char *name, struct err *err);

/* --- addresses ---------------------------------------------------------------------------- */

#define ADDRESS_SIZE       64 /* a text of inet_ntop(3), a slash and a prefix length */
#define ADDRESS_LABEL_SIZE IFNAMSIZ

/* One that somebody has given to a link, of IPv4 or IPv6. */
struct link_address {
	char local[ADDRESS_SIZE];       /* "10.1.2.3/24", "fd00::1/64" */
	char peer[ADDRESS_SIZE];        /* "10.1.2.4/32"; "": none */
	char broadcast[ADDRESS_SIZE];   /* "10.1.2.255"; "": none */
	char label[ADDRESS_LABEL_SIZE]; /* of IPv4; "": none */
	uint32_t flags;                 /* IFA_F_*, those that a user gives */
	uint32_t metric;                /* of its route; 0: the kernel's */
	uint8_t scope;                  /* RT_SCOPE_* */
	uint8_t proto;                  /* IFAPROT_*; 0: not told */
};

struct address_list {
	struct link_address *v;
	size_t n;
};
void address_list_fini(struct address_list *list);
#define cleanup_address_list __attribute__((cleanup(address_list_fini)))

/* The permanent addresses of a link in the kernel's order, without those that the kernel gives
 * it by itself, into *ret (zeroed). */
int nl_address_list(struct nl *nl, int ifindex, struct address_list *ret, struct err *err);
/* ERR_CONFLICT: it is there. ERR_INVALID: a text is not what it should be. */
int nl_address_add(
	struct nl *nl, int ifindex, const struct link_address *address, struct err *err);

/* --- virtual functions, through their physical function ----------------------------------- */

/* The VLAN that the adapter puts a virtual function into. */
struct vf_vlan {
	uint16_t id;    /* 0: none */
	uint8_t qos;    /* 0 to 7 */
	uint16_t proto; /* ETH_P_8021Q or ETH_P_8021AD */
};

/* ERR_NOT_FOUND: the link has no virtual function of that index. 1: it has one, and the kernel's
 * answer is cut before it; err says so. */
int nl_vf_get_vlan(
	struct nl *nl, const char *pf_name, unsigned vf, struct vf_vlan *ret, struct err *err);
int nl_vf_set_vlan(struct nl *nl, const char *pf_name, unsigned vf, const struct vf_vlan *vlan,
	struct err *err);
