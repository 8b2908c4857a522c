/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The limits as tables and small checks of one value each. A value that is wrong is left out and
 * the device stays; only a wrong name, or too many entries, of which nobody could say which ones
 * to leave out, hide the device itself.
 *
 * A policy for requests is checked with its capacity, and goes with it: without the policy every
 * claim that does not name the capacity would consume all of it.
 *
 * Together they bound the size of a slice: 64 devices of 32 entries, each at most a name of 96
 * bytes and 14 quantities of 32 bytes with what is around them, are less than the 1.5 MiB that
 * etcd takes.
 */
#include "statd/slice_limits.h"

#include <string.h>

#include "common/check.h"
#include "common/util.h"
#include "statd/quantity.h"

#define MAX_ID           32 /* bytes of an attribute's name behind its domain */
#define MAX_DOMAIN       63
#define MAX_VALUE        64 /* bytes of a string or version */
#define MAX_VALID_VALUES 10

#define LETTER "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGIT  "0123456789"

/* --- names -------------------------------------------------------------------------------- */

static int check_identifier(const char *text, struct err *err)
{
	size_t len = strlen(text);

	if (len == 0 || len > MAX_ID)
		return err_set(err, ERR_INVALID,
			"the name has %zu bytes without its domain, 1 to %d are allowed", len,
			MAX_ID);
	if (strspn(text, LETTER DIGIT "_") != len || strchr(DIGIT, text[0]))
		return err_set(err, ERR_INVALID,
			"the name is not made of letters, digits and '_', beginning with no "
			"digit");
	return 0;
}

/* Upper case is tolerated by the API. */
static int check_domain(const char *text, size_t len, struct err *err)
{
	char domain[MAX_DOMAIN + 1];

	if (len > MAX_DOMAIN)
		return err_set(err, ERR_INVALID,
			"the name's domain has %zu bytes, at most %d are allowed", len,
			MAX_DOMAIN);
	for (size_t i = 0; i < len; i++)
		domain[i] = text[i] >= 'A' && text[i] <= 'Z' ? (char)(text[i] - 'A' + 'a')
							     : text[i];
	domain[len] = '\0';
	return check_dns_subdomain(domain, err);
}

static int check_key(const char *key, struct err *err)
{
	const char *slash = strchr(key, '/');

	if (!slash)
		return check_identifier(key, err);
	if (check_domain(key, (size_t)(slash - key), err) < 0)
		return -1;
	return check_identifier(slash + 1, err);
}

/* --- attributes --------------------------------------------------------------------------- */

/* A number without a leading zero that ends at a dot or at the end of the core. */
static const char *skip_number(const char *at)
{
	size_t len = strspn(at, DIGIT);

	return len == 0 || (len > 1 && at[0] == '0') ? NULL : at + len;
}

/* Identifiers joined by dots, up to end; those of numbers only have no leading zero in the
 * pre-release. */
static bool are_identifiers(const char *at, size_t len, bool pre_release)
{
	const char *const end = at + len;

	for (;; at++) {
		size_t n = strspn(at, LETTER DIGIT "-");

		n = MIN(n, (size_t)(end - at));
		if (n == 0)
			return false;
		if (pre_release && n > 1 && at[0] == '0' && strspn(at, DIGIT) >= n)
			return false;
		at += n;
		if (at == end)
			return true;
		if (*at != '.')
			return false;
	}
}

/* Semantic versioning 2.0.0, without the usual liberties. */
static bool is_version(const char *text)
{
	const char *at = text, *build;

	for (int i = 0; i < 3; i++) {
		at = i > 0 && *at != '.' ? NULL : skip_number(at + (i > 0));
		if (!at)
			return false;
	}
	build = strchr(at, '+');
	if (*at == '-') {
		at++;
		if (!are_identifiers(at, build ? (size_t)(build - at) : strlen(at), true))
			return false;
	} else if (*at != '\0' && *at != '+') {
		return false;
	}
	return !build || are_identifiers(build + 1, strlen(build + 1), false);
}

static int check_text(const json_t *value, bool version, struct err *err)
{
	const char *text = json_string_value(value);

	if (!text)
		return err_set(err, ERR_INVALID, "the value is no text");
	if (json_string_length(value) > MAX_VALUE)
		return err_set(err, ERR_INVALID,
			"the value has %zu bytes, at most %d are "
			"allowed",
			json_string_length(value), MAX_VALUE);
	if (version && (strlen(text) != json_string_length(value) || !is_version(text)))
		return err_set(err, ERR_INVALID,
			"the value is no semantic version (MAJOR.MINOR.PATCH)");
	return 0;
}

static int check_attribute(const json_t *attribute, struct err *err)
{
	void *entry = json_object_iter((json_t *)(uintptr_t)attribute);
	const char *type = entry ? json_object_iter_key(entry) : "";
	const json_t *value = entry ? json_object_iter_value(entry) : NULL;

	if (json_object_size(attribute) != 1)
		return err_set(err, ERR_INVALID, "it is not exactly one value");
	if (strcmp(type, "string") == 0 || strcmp(type, "version") == 0)
		return check_text(value, type[0] == 'v', err);
	if (strcmp(type, "int") == 0 && !json_is_integer(value))
		return err_set(err, ERR_INVALID, "the value is no whole number");
	if (strcmp(type, "bool") == 0 && !json_is_boolean(value))
		return err_set(err, ERR_INVALID, "the value is neither true nor false");
	if (strcmp(type, "int") != 0 && strcmp(type, "bool") != 0)
		return err_set(
			err, ERR_INVALID, "a value is a string, an int, a bool or a version");
	return 0;
}

/* --- capacities --------------------------------------------------------------------------- */

/* Fills *ret from the quantity that parent has under this name; 1 if it has none. */
static int read_quantity(
	const json_t *parent, const char *name, struct quantity *ret, struct err *err)
{
	const json_t *node = json_object_get(parent, name);

	if (!node)
		return 1;
	if (!json_is_string(node))
		return err_set(err, ERR_INVALID, "%s is no quantity", name);
	return quantity_parse(json_string_value(node), ret, err) < 0 ? err_wrap(err, "%s", name)
								     : 0;
}

static int check_valid_values(const json_t *values, struct quantity capacity, int no_preset,
	struct quantity preset, struct err *err)
{
	struct quantity value, before = {0};
	bool has_preset = false;
	const json_t *node;
	size_t i;

	if (json_array_size(values) > MAX_VALID_VALUES)
		return err_set(err, ERR_INVALID,
			"there are %zu valid values, at most %d are "
			"allowed",
			json_array_size(values), MAX_VALID_VALUES);
	json_array_foreach (values, i, node) {
		if (!json_is_string(node))
			return err_set(err, ERR_INVALID, "a valid value is no quantity");
		if (quantity_parse(json_string_value(node), &value, err) < 0)
			return err_wrap(err, "valid value");
		if (i > 0 && quantity_compare(before, value) >= 0)
			return err_set(err, ERR_INVALID, "the valid values do not ascend");
		if (quantity_compare(value, capacity) > 0)
			return err_set(
				err, ERR_INVALID, "a valid value is more than the capacity");
		has_preset |= quantity_compare(value, preset) == 0;
		before = value;
	}
	if (no_preset || !has_preset)
		return err_set(err, ERR_INVALID, "the default is not one of the valid values");
	return 0;
}

/* Ranges are of whole numbers. */
struct range {
	struct quantity min, max, step, preset;
	bool has_max, has_step;
};

static int read_range(
	const json_t *node, struct quantity preset, struct range *ret, struct err *err)
{
	int has_min, has_max, has_step;

	*ret = (struct range){.preset = preset};
	has_min = read_quantity(node, "min", &ret->min, err);
	if (has_min < 0 || (has_max = read_quantity(node, "max", &ret->max, err)) < 0 ||
		(has_step = read_quantity(node, "step", &ret->step, err)) < 0)
		return -1;
	if (has_min != 0)
		return err_set(err, ERR_INVALID, "the range of valid values has no min");
	ret->has_max = has_max == 0;
	ret->has_step = has_step == 0;
	if (ret->min.nanos || ret->max.nanos || ret->step.nanos || preset.nanos)
		return err_set(err, ERR_INVALID, "a range is made of whole numbers");
	return 0;
}

static int check_range(const struct range *r, struct quantity capacity, struct err *err)
{
	if (quantity_compare(r->min, capacity) > 0 || quantity_compare(r->preset, r->min) < 0)
		return err_set(err, ERR_INVALID,
			"the range's min is more than the capacity or the default");
	if (r->has_max && (quantity_compare(r->max, capacity) > 0 ||
				  quantity_compare(r->preset, r->max) > 0))
		return err_set(err, ERR_INVALID,
			"the range's max is more than the capacity or less than the default");
	if (!r->has_step)
		return 0;
	if (r->step.whole == 0 || r->step.whole > INT64_MAX - r->min.whole ||
		r->min.whole + r->step.whole > capacity.whole)
		return err_set(err, ERR_INVALID,
			"the range's step is 0, or more than what is between min and the "
			"capacity");
	if ((r->preset.whole - r->min.whole) % r->step.whole ||
		(r->has_max && (r->max.whole - r->min.whole) % r->step.whole))
		return err_set(err, ERR_INVALID,
			"the range's max or the default is not reached in steps from min");
	return 0;
}

static int check_policy(const json_t *policy, struct quantity capacity, struct err *err)
{
	const json_t *values = json_object_get(policy, "validValues"),
		     *node = json_object_get(policy, "validRange");
	struct quantity preset = {0};
	int no_preset = read_quantity(policy, "default", &preset, err);
	struct range range;

	if (no_preset < 0)
		return -1;
	if ((values && !json_is_array(values)) || (node && !json_is_object(node)))
		return err_set(
			err, ERR_INVALID, "validValues is a list, validRange is an object");
	if (json_array_size(values) > 0 && node)
		return err_set(err, ERR_INVALID, "it has both valid values and a range");
	if (!no_preset && quantity_compare(preset, capacity) > 0)
		return err_set(err, ERR_INVALID, "the default is more than the capacity");
	if (json_array_size(values) > 0)
		return check_valid_values(values, capacity, no_preset, preset, err);
	if (!node)
		return 0;
	if (no_preset)
		return err_set(err, ERR_INVALID, "a range needs a default");
	return read_range(node, preset, &range, err) < 0 ? -1
							 : check_range(&range, capacity, err);
}

static int check_capacity(const json_t *entry, struct err *err)
{
	const json_t *policy = json_object_get(entry, "requestPolicy");
	struct quantity capacity;

	switch (read_quantity(entry, "value", &capacity, err)) {
	case 0: break;
	case 1: return err_set(err, ERR_INVALID, "it has no value");
	default: return -1;
	}
	if (!policy)
		return 0;
	if (!json_is_object(policy))
		return err_set(err, ERR_INVALID, "requestPolicy is no object");
	if (check_policy(policy, capacity, err) < 0)
		return err_wrap(err, "requestPolicy");
	return 0;
}

/* --- devices ------------------------------------------------------------------------------ */

#define MAX_TOLD  3 /* of what is left out */
#define MAX_QUOTE 64

struct notes {
	struct buf text;
	size_t n;
};

static void note(struct notes *notes, const char *what, const char *name, const struct err *err)
{
	cleanup_free char *shown = xasprintf("%.*s", MAX_QUOTE, name);

	if (notes->n++ >= MAX_TOLD)
		return;
	str_sanitize(shown);
	buf_printf(&notes->text, "%s%s '%s' is left out: %.160s", notes->n > 1 ? "; " : "",
		what, shown, err->message);
}

static void filter(json_t *device, const char *member, const char *what,
	int (*check)(const json_t *value, struct err *err), struct notes *notes)
{
	json_t *entries = json_object_get(device, member), *value;
	const char *name;
	void *next;

	json_object_foreach_safe (entries, next, name, value) {
		struct err err = ERR_INIT;

		if (check_key(name, &err) == 0 && check(value, &err) == 0)
			continue;
		note(notes, what, name, &err);
		(void)json_object_del(entries, name);
	}
	if (json_object_size(entries) == 0)
		(void)json_object_del(device, member);
}

/* A device that is had whole needs no policy, and the API refuses one. */
static void drop_policies(json_t *device)
{
	json_t *entry;
	const char *name;

	if (json_is_true(json_object_get(device, "allowMultipleAllocations")))
		return;
	json_object_foreach (json_object_get(device, "capacity"), name, entry)
		(void)json_object_del(entry, "requestPolicy");
}

static int refuse(struct buf *text, char **ret_note)
{
	*ret_note = buf_take(text);
	return -1;
}

int slice_limits_apply(json_t *device, char **ret_note)
{
	const char *name = json_string_value(json_object_get(device, "name"));
	struct notes notes = {.text = BUF_INIT};
	struct err err = ERR_INIT;
	size_t n;

	if (check_dns_label(name ? name : "", &err) < 0) {
		buf_printf(&notes.text, "device cannot be published: %s", err.message);
		return refuse(&notes.text, ret_note);
	}
	drop_policies(device);
	filter(device, "attributes", "attribute", check_attribute, &notes);
	filter(device, "capacity", "capacity", check_capacity, &notes);
	n = json_object_size(json_object_get(device, "attributes")) +
	    json_object_size(json_object_get(device, "capacity"));
	if (n > SLICE_MAX_ENTRIES) {
		buf_fini(&notes.text);
		buf_printf(&notes.text,
			"device has %zu attributes and capacities, at most %d can be published",
			n, SLICE_MAX_ENTRIES);
		return refuse(&notes.text, ret_note);
	}
	if (notes.n == 0)
		return 0;
	if (notes.n > MAX_TOLD)
		buf_printf(&notes.text, "; and %zu more", notes.n - MAX_TOLD);
	*ret_note = buf_take(&notes.text);
	return 1;
}
