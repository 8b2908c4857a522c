/* SPDX-License-Identifier: Apache-2.0 */
#include "dmgr-sriov/state.h"

#include <stdio.h>
#include <string.h>

#include "common/check.h"

static const struct rec_field port_vlan_fields[] = {
	REC_INT(struct port_vlan, id, "ID", REC_REQUIRED, 0, 4095, "0: none"),
	REC_INT(struct port_vlan, qos, "QoS", REC_OPTIONAL, 0, 7, "priority"),
	REC_INT(struct port_vlan, proto, "Proto", REC_OPTIONAL, 0, UINT16_MAX,
		"ETH_P_* (linux/if_ether.h); unset: 802.1Q"),
};
static REC_DESC(rec_port_vlan, struct port_vlan, "port", port_vlan_fields, NULL,
	"the VLAN of a virtual function's port");

static int check_addr(const char *text, struct err *err)
{
	if (!pci_addr_ok(text))
		return err_set(err, ERR_INVALID, "'%s' is not a PCI address", text);
	return 0;
}

static const struct rec_field state_fields[] = {
	REC_STR(struct vf_state, addr, "Addr", REC_REQUIRED, PCI_ADDR_SIZE - 1, check_addr,
		"PCI address"),
	REC_STR(struct vf_state, driver, "Driver", REC_ALWAYS, PCI_TEXT_SIZE - 1, NULL,
		"kernel driver"),
	REC_STR(struct vf_state, vendor, "Vendor", REC_ALWAYS, PCI_TEXT_SIZE - 1, NULL,
		"PCI vendor"),
	REC_STR(struct vf_state, device_id, "DeviceID", REC_ALWAYS, PCI_TEXT_SIZE - 1, NULL,
		"PCI device"),
	REC_STR(struct vf_state, pf_name, "PFName", REC_ALWAYS, IFNAMSIZ - 1, NULL,
		"link of the physical function"),
	REC_INT(struct vf_state, vf_id, "VFID", REC_ALWAYS, 0, UINT16_MAX,
		"index in the physical function"),
	REC_STR(struct vf_state, kernel_if_name, "KernelIfaceName", REC_ALWAYS, IFNAMSIZ - 1,
		NULL, "its link on the host"),
	REC_STR(struct vf_state, pf_addr, "PFAddr", REC_OPTIONAL, PCI_ADDR_SIZE - 1, check_addr,
		"PCI address of the physical function"),
	REC_SUB(struct vf_state, link, "Link", REC_OPTIONAL, struct link_origin,
		&rec_link_origin, "the link as it was before the claim"),
	REC_SUB(struct vf_state, port_vlan, "PortVLAN", REC_OPTIONAL, struct port_vlan,
		&rec_port_vlan, "the port as it was before the claim"),
	REC_INT(struct vf_state, max_mtu, "MaxMTU", REC_OPTIONAL, 1, UINT32_MAX,
		"largest MTU of its link, whatever its physical function's"),
};
REC_DESC(rec_vf_state, struct vf_state, "virtual function", state_fields, NULL,
	"state of a virtual function");

int vf_state_open(const struct device *device, struct vf_state *ret, struct err *err)
{
	char name[PCI_ADDR_SIZE];
	json_t *tree = packed_open(device->state);
	int rc = rec_decode(&rec_vf_state, tree, REC_LENIENT, "state", NULL, ret, err);

	json_decref(tree);
	if (rc < 0)
		return -1;
	pci_device_name(ret->addr, name);
	if (strcmp(name, device->name) == 0)
		return 0;
	(void)err_set(err, ERR_INVALID, "state.Addr is %s, which is not '%s'", ret->addr,
		device->name);
	rec_fini(&rec_vf_state, ret);
	return -1;
}

void vf_state_of(const struct pci_vf *vf, struct vf_state *ret)
{
	*ret = (struct vf_state){
		.addr = xstrdup(vf->addr),
		.driver = xstrdup(vf->driver),
		.vendor = xstrdup(vf->vendor),
		.device_id = xstrdup(vf->device_id),
		.pf_name = xstrdup(vf->pf_name),
		.vf_id = {.v = vf->id, .set = true},
		.kernel_if_name = xstrdup(vf->if_name),
		.pf_addr = xstrdup(vf->pf_addr),
	};
}

/* --- devices ------------------------------------------------------------------------------ */

/* A text that is no UTF-8 has no place in an attribute. */
static void put_text(json_t *attributes, const char *name, const char *value)
{
	if (value && *value && utf8_valid(value, strlen(value)))
		(void)json_object_set_new(attributes, name, json_pack("{ss}", "string", value));
}

static void put_int(json_t *attributes, const char *name, int64_t value)
{
	(void)json_object_set_new(
		attributes, name, json_pack("{sI}", "int", (json_int_t)value));
}

static void put_what_is_seen(json_t *attributes, const struct pci_vf *vf)
{
	put_text(attributes, "resource.kubernetes.io/pcieRoot", vf->pcie_root);
	if (vf->numa_node >= 0)
		put_int(attributes, "numaNode", vf->numa_node);
	if (vf->link_speed > 0)
		put_int(attributes, "linkSpeed", vf->link_speed);
	(void)json_object_set_new(attributes, "rdma", json_pack("{sb}", "bool", (int)vf->rdma));
}

static json_t *attributes_of(
	const struct vf_state *s, const struct pci_vf *vf, uint32_t max_mtu)
{
	json_t *a = json_object();

	put_text(a, "kernelIfName", s->kernel_if_name);
	put_text(a, "resource.kubernetes.io/pciBusID", s->addr);
	put_text(a, "pfName", s->pf_name);
	put_text(a, "vendor", s->vendor);
	put_text(a, "deviceID", s->device_id);
	put_text(a, "driver", s->driver);
	put_int(a, "vfID", s->vf_id.v);
	if (vf)
		put_what_is_seen(a, vf);
	if (max_mtu > 0)
		put_int(a, "maxMTU", max_mtu);
	return a;
}

/* No adapter carries more than its physical function's, and some carry none of a function that
 * is set to more (ixgbe_set_vf_lpe(), drivers/net/ethernet/intel/ixgbe/ixgbe_sriov.c). */
static uint32_t usable_mtu(uint32_t max_mtu, const struct pci_vf *vf)
{
	if (!vf || vf->pf_mtu <= 0)
		return max_mtu;
	return (uint32_t)MIN((int64_t)max_mtu, vf->pf_mtu);
}

/* A prepared one keeps what cannot be read while its link is in a pod. */
static struct packed *encode_state(const struct vf_state *s, uint32_t max_mtu)
{
	struct vf_state kept = *s;

	if (s->link && max_mtu)
		kept.max_mtu = (struct rec_int){.v = max_mtu, .set = true};
	return packed_take(rec_encode(&rec_vf_state, &kept));
}

void vf_make_device(
	const struct vf_state *s, const struct pci_vf *vf, uint32_t max_mtu, struct device *ret)
{
	const bool has_link = s->kernel_if_name && *s->kernel_if_name;
	const uint32_t own_mtu = max_mtu ? max_mtu : (uint32_t)s->max_mtu.v;
	char name[PCI_ADDR_SIZE];

	pci_device_name(s->addr, name);
	*ret = (struct device){
		.name = xstrdup(name),
		.if_name = has_link ? xstrdup(s->kernel_if_name) : NULL,
		.kernel_if_name = has_link ? xstrdup(s->kernel_if_name) : NULL,
		.state = encode_state(s, max_mtu),
		.attributes = packed_take(attributes_of(s, vf, usable_mtu(own_mtu, vf))),
	};
}

/* --- the port's VLAN ---------------------------------------------------------------------- */

struct vf_vlan vf_vlan_of(const struct port_vlan *p)
{
	return (struct vf_vlan){
		.id = (uint16_t)p->id.v,
		.qos = (uint8_t)p->qos.v,
		.proto = p->proto.set ? (uint16_t)p->proto.v : ETH_P_8021Q,
	};
}

struct port_vlan *port_vlan_of(const struct vf_vlan *v)
{
	struct port_vlan *p = xcalloc(1, sizeof(*p));

	*p = (struct port_vlan){
		.id = {.v = v->id, .set = true},
		.qos = {.v = v->qos, .set = v->qos != 0},
		.proto = {.v = v->proto, .set = v->proto != ETH_P_8021Q},
	};
	return p;
}

/* --- notes -------------------------------------------------------------------------------- */

/* "100.3.33024 the alias"; "- the alias" when the claim asks for no VLAN. */
void vf_note_format(const struct port_vlan *p, const char *alias, char out[static VF_NOTE_SIZE])
{
	const struct vf_vlan v = p ? vf_vlan_of(p) : (struct vf_vlan){0};

	if (p)
		(void)snprintf(out, VF_NOTE_SIZE, "%u.%u.%u%s%s", v.id, v.qos, v.proto,
			alias && *alias ? " " : "", alias ? alias : "");
	else
		(void)snprintf(out, VF_NOTE_SIZE, "-%s%s", alias && *alias ? " " : "",
			alias ? alias : "");
}

static const char *parse_number(const char *at, char end, int64_t max, int64_t *ret)
{
	char digits[8];
	const size_t len = strspn(at, "0123456789");

	if (len == 0 || len >= sizeof(digits) || (at[len] != end && !(end == ' ' && !at[len])))
		return NULL;
	memcpy(digits, at, len);
	digits[len] = '\0';
	if (parse_i64(digits, 0, max, ret) < 0)
		return NULL;
	return at[len] ? at + len + 1 : at + len;
}

bool vf_note_parse(const char *note, struct vf_vlan *ret, const char **alias)
{
	int64_t id, qos, proto;
	const char *at = note;

	*ret = (struct vf_vlan){0};
	if (note[0] == '-' && (note[1] == '\0' || note[1] == ' ')) {
		*alias = note[1] ? note + 2 : note + 1;
		return true;
	}
	if (!(at = parse_number(at, '.', 4095, &id)) ||
		!(at = parse_number(at, '.', 7, &qos)) ||
		!(at = parse_number(at, ' ', UINT16_MAX, &proto)) || proto == 0)
		return false;
	*ret = (struct vf_vlan){
		.id = (uint16_t)id, .qos = (uint8_t)qos, .proto = (uint16_t)proto};
	*alias = at;
	return true;
}
