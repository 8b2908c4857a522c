/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The filter of a pool is eight lists of texts, and what each means depends on the kind of
 * device: it is compared with something of the device, or has no bearing on it, or asks for
 * something that such a device does not have, so that it never matches. That is one table,
 * `meanings`, which is the seed's "Pool filters".
 *
 * All that is compared is among the device's attributes, and so users see in a ResourceSlice
 * what a filter sees; but for alternative names of interfaces, which an attribute has no place
 * for. What is not there, or empty, is in no list, since no list has an empty text.
 */
#include "statd/pool.h"

#include <string.h>

#include "common/check.h"
#include "common/mp.h"

#define POOL_MAX_TEXTS       4096 /* of one list: as many as a manager may have devices */
#define ATTRIBUTE_PCI_BUS_ID "resource.kubernetes.io/pciBusID"

static bool hex_span(const char **at, size_t min, size_t max, char end)
{
	size_t n = strspn(*at, "0123456789abcdef");

	if (n < min || n > max || (*at)[n] != end)
		return false;
	*at += n + 1;
	return true;
}

/* As sysfs names them: domain, bus, device, function. A domain has four digits, and more below
 * host bridges that make domains of their own. */
static int check_pci_addr(const char *text, struct err *err)
{
	const char *at = text;

	if (hex_span(&at, 4, 8, ':') && hex_span(&at, 2, 2, ':') && hex_span(&at, 2, 2, '.') &&
		at[0] >= '0' && at[0] <= '7' && at[1] == '\0')
		return 0;
	return err_set(err, ERR_INVALID,
		"\"%.64s\" is not a PCI address as sysfs has it, like 0000:03:00.1", text);
}

static int check_not_empty(const char *text, struct err *err)
{
	return *text ? 0 : err_set(err, ERR_INVALID, "must not be empty");
}

enum {
	DEVICE_MANAGERS,
	IF_NAMES,
	PF_NAMES,
	PARENT_IF_NAMES,
	PCI_ADDRS,
	VENDOR_IDS,
	DEVICE_IDS,
	DRIVERS,
	N_FIELDS
};

#define FILTER_FIELD(member_, name_, check_, doc_)                                             \
	REC_STRLIST(struct pool_filter, member_, name_, REC_OPTIONAL, POOL_MAX_TEXTS, check_,  \
		doc_)

static const struct rec_field pool_filter_fields[N_FIELDS] = {
	[DEVICE_MANAGERS] = FILTER_FIELD(
		device_managers, "deviceManagers", check_manager_type, "types of managers"),
	[IF_NAMES] = FILTER_FIELD(
		if_names, "ifNames", check_any_if_name, "interface names on the host"),
	[PF_NAMES] = FILTER_FIELD(
		pf_names, "pfNames", check_any_if_name, "names of physical functions"),
	[PARENT_IF_NAMES] = FILTER_FIELD(parent_if_names, "parentIfNames", check_kernel_if_name,
		"names of parent interfaces"),
	[PCI_ADDRS] = FILTER_FIELD(pci_addrs, "pciAddrs", check_pci_addr, "PCI addresses"),
	[VENDOR_IDS] = FILTER_FIELD(
		vendor_ids, "vendorIDs", check_not_empty, "PCI vendor IDs, like 0x15b3"),
	[DEVICE_IDS] = FILTER_FIELD(
		device_ids, "deviceIDs", check_not_empty, "PCI device IDs, like 0x1018"),
	[DRIVERS] = FILTER_FIELD(drivers, "drivers", check_not_empty, "kernel drivers"),
};
REC_DESC(rec_pool_filter, struct pool_filter, "a filter", pool_filter_fields, NULL,
	"which devices are in a pool: those that every list takes");

static const struct rec_field pool_fields[] = {
	REC_STR(struct pool, name, "name", REC_REQUIRED, 0, check_pool_name, "unique name"),
	REC_SUB(struct pool, filter, "filter", REC_OPTIONAL, struct pool_filter,
		&rec_pool_filter, "which devices are in it; absent: none; empty: all"),
};
REC_DESC(rec_pool, struct pool, "a pool", pool_fields, NULL, "a logical pool");

/* --- matching ----------------------------------------------------------------------------- */

enum bearing {
	COMPARED,
	IGNORED,
	NEVER, /* if the list has anything in it */
};

struct meaning {
	const char *attribute; /* what is compared; NULL: the manager's type */
	enum bearing bearing[MANAGER_TYPE_MAX];
};

static const struct meaning meanings[N_FIELDS] = {
	/* clang-format off */
	/*                                          dummy     sr-iov    rxQueue */
	[DEVICE_MANAGERS] = {NULL,                 {COMPARED, COMPARED, COMPARED}},
	[IF_NAMES] =        {"kernelIfName",       {COMPARED, COMPARED, COMPARED}},
	[PF_NAMES] =        {"pfName",             {IGNORED,  COMPARED, NEVER}},
	[PARENT_IF_NAMES] = {NULL,                 {NEVER,    IGNORED,  NEVER}},
	[PCI_ADDRS] =       {ATTRIBUTE_PCI_BUS_ID, {NEVER,    COMPARED, NEVER}},
	[VENDOR_IDS] =      {"vendor",             {NEVER,    COMPARED, NEVER}},
	[DEVICE_IDS] =      {"deviceID",           {NEVER,    COMPARED, NEVER}},
	[DRIVERS] =         {"driver",             {NEVER,    COMPARED, NEVER}},
	/* clang-format on */
};

/* The list of a filter that a field is; the record's table says where. */
static const struct strlist *field_list(const struct pool_filter *filter, int field)
{
	return (const void *)((const char *)filter + pool_filter_fields[field].offset);
}

/* "" if the device has none. The caller's. */
static char *attribute_text(const struct device *device, const char *name)
{
	char *text = packed_text(device->attributes, name, "string");

	return text ? text : xstrdup("");
}

/* Whether one of the device's alternatives to this attribute's value is in the list. */
static bool has_alternative(
	const struct strlist *list, const struct device *device, const char *attribute)
{
	struct mp_cursor c;
	struct mp_value texts;
	bool found = false;

	if (!device->alternatives)
		return false;
	c = mp_cursor(device->alternatives->bytes);
	if (!mp_find(&c, attribute))
		return false;
	texts = mp_next(&c);
	for (uint32_t i = 0; !found && texts.type == MP_LIST && i < texts.count; i++) {
		const struct mp_cursor here = c;
		const struct mp_value v = mp_next(&c);
		cleanup_free char *text = NULL;

		if (v.type == MP_TEXT) {
			text = xmemdup0(v.text.v, v.text.len);
			found = strlist_has(list, text);
		} else {
			c = here;
			mp_skip(&c);
		}
	}
	return found;
}

static bool has_manager(const struct strlist *names, enum manager_type manager)
{
	for (size_t i = 0; i < names->n; i++)
		if (manager_type_parse(names->v[i]) == manager)
			return true;
	return false;
}

static bool field_takes(const struct pool_filter *filter, int field, enum manager_type manager,
	const struct device *device)
{
	const struct strlist *list = field_list(filter, field);
	const struct meaning *meaning = &meanings[field];
	cleanup_free char *text = NULL;

	if (list->n == 0 || meaning->bearing[manager] == IGNORED)
		return true;
	if (meaning->bearing[manager] == NEVER)
		return false;
	if (!meaning->attribute)
		return has_manager(list, manager);
	text = attribute_text(device, meaning->attribute);
	return strlist_has(list, text) || has_alternative(list, device, meaning->attribute);
}

/* The first field that does not take the device; N_FIELDS if all do. */
static int refusing_field(const struct pool_filter *filter, enum manager_type manager,
	const struct device *device)
{
	int field = 0;

	while (field < N_FIELDS && field_takes(filter, field, manager, device))
		field++;
	return field;
}

bool pool_match(const struct pool *pool, enum manager_type manager, const struct device *device)
{
	return pool->filter && refusing_field(pool->filter, manager, device) == N_FIELDS;
}

static int compare_names(const void *a, const void *b)
{
	const char *const *na = a, *const *nb = b;

	return strcmp(*na, *nb);
}

const struct pool *pool_resolve(const struct pool_list *pools, enum manager_type manager,
	const struct device *device, struct strlist *ret_matches)
{
	const struct pool *first = NULL;

	for (size_t i = 0; i < pools->pools.n; i++) {
		const struct pool *pool = &pools->pools.v[i];

		if (!pool_match(pool, manager, device))
			continue;
		if (!first || strcmp(pool->name, first->name) < 0)
			first = pool;
		if (ret_matches)
			strlist_add(ret_matches, pool->name);
	}
	if (ret_matches && ret_matches->n > 1)
		qsort(ret_matches->v, ret_matches->n, sizeof(*ret_matches->v), compare_names);
	return first;
}

const struct pool *pool_find(const struct pool_list *pools, const char *name)
{
	for (size_t i = 0; i < pools->pools.n; i++)
		if (strcmp(pools->pools.v[i].name, name) == 0)
			return &pools->pools.v[i];
	return NULL;
}

char *pool_explain(
	const struct pool *pool, enum manager_type manager, const struct device *device)
{
	const char *type = manager_type_name(manager), *name;
	cleanup_free char *text = NULL;
	int field;

	if (!pool->filter)
		return xasprintf("pool %s: has no filter and takes nothing", pool->name);
	field = refusing_field(pool->filter, manager, device);
	if (field == N_FIELDS)
		return xasprintf("pool %s: takes it", pool->name);
	name = pool_filter_fields[field].name;
	if (meanings[field].bearing[manager] == NEVER)
		return xasprintf("pool %s: %s is set, which no %s device matches", pool->name,
			name, type);
	text = meanings[field].attribute ? attribute_text(device, meanings[field].attribute)
					 : xstrdup(type);
	if (!*text)
		return xasprintf("pool %s: %s is set, and the device has no %s", pool->name,
			name, meanings[field].attribute);
	return xasprintf("pool %s: %s does not contain %s", pool->name, name, text);
}
