/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pod names its claims in two places. spec.resourceClaims has an entry for each, with either
 * the name of a claim or that of a template; what was made from a template is told by the
 * status entry of the same name, which is not there before the claim is, and has no claim name
 * when none is needed.
 */
#include "statd/podclaims.h"

#include "common/check.h"

/* The entry of status.resourceClaimStatuses for this name, or NULL. */
static const json_t *claim_status(const json_t *pod, const char *name)
{
	const json_t *entry, *status = json_object_get(pod, "status");
	size_t i;

	json_array_foreach (json_object_get(status, "resourceClaimStatuses"), i, entry) {
		if (str_equal(json_string_value(json_object_get(entry, "name")), name))
			return entry;
	}
	return NULL;
}

/* value: a claim's name, or NULL or null where there is none. */
static int add_claim(const json_t *value, struct strlist *ret, struct err *err)
{
	const char *name = json_string_value(value);

	if (!value || json_is_null(value))
		return 0;
	if (!name)
		return err_set(err, ERR_INVALID, "the claim's name is not a text");
	if (check_dns_subdomain(name, err) < 0)
		return -1;
	if (!strlist_has(ret, name))
		strlist_add(ret, name);
	return 0;
}

static int add_entry(
	const json_t *pod, const json_t *entry, struct strlist *ret, struct err *err)
{
	const json_t *direct = json_object_get(entry, "resourceClaimName");
	const json_t *template = json_object_get(entry, "resourceClaimTemplateName");
	const char *name = json_string_value(json_object_get(entry, "name"));

	if (!name)
		return err_set(err, ERR_INVALID, "has no name");
	if (direct && !json_is_null(direct))
		return add_claim(direct, ret, err);
	if (!template || json_is_null(template))
		return err_set(err, ERR_INVALID, "names neither a claim nor a template");
	return add_claim(
		json_object_get(claim_status(pod, name), "resourceClaimName"), ret, err);
}

/* Of all that goes wrong the first is kept. */
static int keep_first(int so_far, struct err *err, const struct err *latest)
{
	if (so_far == 0)
		*err = *latest;
	return -1;
}

int podclaims_names(const json_t *pod, struct strlist *ret, struct err *err)
{
	const json_t *spec = json_object_get(pod, "spec"),
		     *status = json_object_get(pod, "status");
	const json_t *extended = json_object_get(status, "extendedResourceClaimStatus"), *entry;
	struct err here = ERR_INIT;
	int outcome = 0;
	size_t i;

	json_array_foreach (json_object_get(spec, "resourceClaims"), i, entry) {
		if (add_entry(pod, entry, ret, &here) < 0) {
			(void)err_wrap(&here, "spec.resourceClaims[%zu]", i);
			outcome = keep_first(outcome, err, &here);
		}
	}
	if (add_claim(json_object_get(extended, "resourceClaimName"), ret, &here) < 0) {
		(void)err_wrap(&here, "status.extendedResourceClaimStatus");
		outcome = keep_first(outcome, err, &here);
	}
	return outcome;
}
