/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Texts about a virtual function: the note behind its link's mark, the state that a claim's status
 * kept, as JSON, and the kernel's event of a device, with the ends of lines in the place of its
 * zero bytes. What was understood is the same when it was written again.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "common/check.h"
#include "dmgr-sriov/state.h"
#include "dmgr-sriov/uevent.h"
#include "tests/fuzz/fuzz.h"

/* --- notes -------------------------------------------------------------------------------- */

static void write_again(const struct vf_vlan *vlan, const char *alias)
{
	struct port_vlan *p = vlan->proto ? port_vlan_of(vlan) : NULL;
	char note[VF_NOTE_SIZE];
	struct vf_vlan back;
	const char *again;

	vf_note_format(p, alias, note);
	assert(vf_note_parse(note, &back, &again));
	assert(back.id == vlan->id && back.qos == vlan->qos && back.proto == vlan->proto);
	assert(strcmp(again, alias) == 0);
	free(p);
}

static void read_note(const char *text)
{
	struct vf_vlan vlan;
	const char *alias;

	if (!vf_note_parse(text, &vlan, &alias))
		return;
	assert(alias > text && alias <= text + strlen(text));
	assert(vlan.id <= 4095 && vlan.qos <= 7);
	if (strlen(text) < VF_NOTE_SIZE)
		write_again(&vlan, alias);
}

/* --- state -------------------------------------------------------------------------------- */

/* The device that says so. */
static void read_device(const struct device *device)
{
	struct vf_state state = {0}, back = {0};
	struct device again;
	struct err err = ERR_INIT;

	if (vf_state_open(device, &state, &err) < 0) {
		assert(err.kind == ERR_INVALID && !state.addr && !state.link);
		return;
	}
	assert(pci_addr_ok(state.addr));
	vf_make_device(&state, NULL, 0, &again);
	assert(strcmp(again.name, device->name) == 0);
	assert(vf_state_open(&again, &back, &err) == 0);
	assert(rec_equal(&rec_vf_state, &state, &back));
	rec_fini(&rec_device, &again);
	rec_fini(&rec_vf_state, &back);
	rec_fini(&rec_vf_state, &state);
}

static void read_state(const uint8_t *data, size_t size)
{
	json_t *tree = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
	const char *addr = json_string_value(json_object_get(tree, "Addr"));
	struct device device = {0};
	char name[PCI_ADDR_SIZE] = "0000-03-00-1";

	if (json_is_object(tree)) {
		if (addr && pci_addr_ok(addr))
			pci_device_name(addr, name);
		device = (struct device){.name = name, .state = packed_new(tree)};
		read_device(&device);
		free(device.state);
	}
	json_decref(tree);
}

/* --- events ------------------------------------------------------------------------------- */

static bool is_inside(const char *part, const char *text, size_t size)
{
	return !*part || (part > text && part + strlen(part) <= text + size);
}

static void read_event(char *text, size_t size)
{
	char addr[PCI_ADDR_SIZE];
	struct uevent e;

	for (size_t i = 0; i < size; i++)
		if (text[i] == '\n')
			text[i] = '\0';
	if (!uevent_parse(text, size, &e))
		return;
	assert(is_inside(e.action, text, size) && is_inside(e.subsystem, text, size) &&
		is_inside(e.devpath, text, size));
	if (uevent_function(&e, addr))
		assert(pci_addr_ok(addr) && strstr(e.devpath, addr) &&
			strcmp(e.subsystem, "net") == 0 && !uevent_is_of_pci(&e));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_free char *text = xmemdup0(data, size);

	read_note(text);
	read_state(data, size);
	read_event(text, size);
	return 0;
}
