/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A virtual function as statd keeps it: the state of an inventory device, and what a prepared
 * one has besides, which is in the claim's status and outlives every process.
 */

#include "common/api.h"
#include "common/link_move.h"
#include "common/nl.h"
#include "dmgr-sriov/pci.h"

/* The VLAN policy of a virtual function's port, as it was before a claim's. */
struct port_vlan {
	struct rec_int id, qos, proto;
};

struct vf_state {
	/* the seed's driver's */
	char *addr, *driver, *vendor, *device_id, *pf_name;
	struct rec_int vf_id;
	char *kernel_if_name; /* "": no netdev */
	/* ours */
	char *pf_addr;
	struct link_origin *link;    /* of a prepared device that has a netdev */
	struct port_vlan *port_vlan; /* of one whose claim asks for a VLAN */
	struct rec_int max_mtu;      /* of a prepared device's link, by its driver */
};
extern const struct rec_desc rec_vf_state;

/* Decodes a device's state and checks that it is what the device's name says. *ret is for
 * rec_fini(). */
int vf_state_open(const struct device *device, struct vf_state *ret, struct err *err);

/* The state of one that is not prepared. *ret is for rec_fini(). */
void vf_state_of(const struct pci_vf *vf, struct vf_state *ret);

/* The device. max_mtu is what the link's driver takes, 0 if the link cannot be asked: then what
 * the state has, which a prepared one keeps. The attribute is what can be used, at most the
 * physical function's MTU. vf is NULL for one that can not be seen (any more): then the
 * attributes are those that the state has. */
void vf_make_device(const struct vf_state *state, const struct pci_vf *vf, uint32_t max_mtu,
	struct device *ret);

struct vf_vlan vf_vlan_of(const struct port_vlan *p);
struct port_vlan *port_vlan_of(const struct vf_vlan *v);

/* What setup notes behind the mark until the link is in a pod: how the port was, and the alias
 * of before, as far as there is room. An audit that finds the mark alone undoes it by that. */
#define VF_NOTE_SIZE (LINK_ALIAS_SIZE)
void vf_note_format(
	const struct port_vlan *p, const char *alias, char out[static VF_NOTE_SIZE]);
/* False: there is none. *alias is borrowed. */
bool vf_note_parse(const char *note, struct vf_vlan *ret, const char **alias);
