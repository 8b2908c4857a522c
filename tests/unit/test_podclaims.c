/* SPDX-License-Identifier: Apache-2.0 */
/* Which claims a pod uses, by table. */
#include <check.h>
#include <stdlib.h>

#include "statd/podclaims.h"
#include "tests/unit/records.h"
#include "tests/unit/unit.h"

static const struct row {
	const char *pod, *names;
	const char *message; /* NULL: nothing is wrong */
} rows[] = {
	{"{}", "", NULL},
	{"{'spec': {'resourceClaims': []}}", "", NULL},
	{"{'spec': {'resourceClaims': null}, 'status': null}", "", NULL},
	/* direct */
	{"{'spec': {'resourceClaims': [{'name': 'net', 'resourceClaimName': 'c1'}]}}", "c1",
		NULL},
	/* from a template, with what was made from it */
	{"{'spec': {'resourceClaims': [{'name': 'net', 'resourceClaimTemplateName': 't'}]},"
	 " 'status': {'resourceClaimStatuses': [{'name': 'other', 'resourceClaimName': 'x'},"
	 " {'name': 'net', 'resourceClaimName': 'pod-net-abc12'}]}}",
		"pod-net-abc12", NULL},
	/* not made yet */
	{"{'spec': {'resourceClaims': [{'name': 'net', 'resourceClaimTemplateName': 't'},"
	 " {'name': 'b', 'resourceClaimName': 'c2'}]}}",
		"c2", NULL},
	/* never made */
	{"{'spec': {'resourceClaims': [{'name': 'net', 'resourceClaimTemplateName': 't'}]},"
	 " 'status': {'resourceClaimStatuses': [{'name': 'net'}]}}",
		"", NULL},
	{"{'spec': {'resourceClaims': [{'name': 'net', 'resourceClaimTemplateName': 't'}]},"
	 " 'status': {'resourceClaimStatuses': [{'name': 'net', 'resourceClaimName': null}]}}",
		"", NULL},
	/* neither: the others are returned all the same */
	{"{'spec': {'resourceClaims': [{'name': 'a', 'resourceClaimName': 'c1'},"
	 " {'name': 'b'}, {'name': 'c'}, {'name': 'd', 'resourceClaimName': 'c4'}]}}",
		"c1 c4", "spec.resourceClaims[1]: names neither a claim nor a template"},
	{"{'spec': {'resourceClaims': [{'resourceClaimName': 'c1'},"
	 " {'name': 'd', 'resourceClaimName': 'c4'}]}}",
		"c4", "spec.resourceClaims[0]: has no name"},
	/* each once */
	{"{'spec': {'resourceClaims': [{'name': 'a', 'resourceClaimName': 'c1'},"
	 " {'name': 'b', 'resourceClaimName': 'c1'}]}}",
		"c1", NULL},
	/* for extended resources */
	{"{'spec': {'resourceClaims': [{'name': 'a', 'resourceClaimName': 'c1'}]},"
	 " 'status': {'extendedResourceClaimStatus': {'resourceClaimName': 'ext-7'}}}",
		"c1 ext-7", NULL},
	/* what is no name */
	{"{'spec': {'resourceClaims': [{'name': 'a', 'resourceClaimName': '../x'}]}}", "",
		"spec.resourceClaims[0]: "},
	{"{'spec': {'resourceClaims': [{'name': 'a', 'resourceClaimName': 7}]}}", "",
		"spec.resourceClaims[0]: the claim's name is not a text"},
	{"{'spec': {'resourceClaims': [7, {'name': 'd', 'resourceClaimName': 'c4'}]}}", "c4",
		"spec.resourceClaims[0]: has no name"},
	{"{'spec': {'resourceClaims': [{'name': 'a', 'resourceClaimTemplateName': 't'}]},"
	 " 'status': {'resourceClaimStatuses': [{'name': 'a', 'resourceClaimName': 'A/B'}],"
	 " 'extendedResourceClaimStatus': {'resourceClaimName': 'C/D'}}}",
		"", "spec.resourceClaims[0]: "},
	{"{'status': {'extendedResourceClaimStatus': {'resourceClaimName': 'C/D'}}}", "",
		"status.extendedResourceClaimStatus: "},
};

START_TEST(names)
{
	const struct row *row = &rows[_i];
	json_t *pod = tree_of(row->pod);
	cleanup_buf struct buf is = BUF_INIT;
	struct strlist claims = {0};
	struct err err = ERR_INIT;
	int outcome = podclaims_names(pod, &claims, &err);

	buf_puts(&is, "");
	for (size_t i = 0; i < claims.n; i++)
		buf_printf(&is, "%s%s", i ? " " : "", claims.v[i]);
	ck_assert_str_eq(is.data, row->names);
	ck_assert_int_eq(outcome, row->message ? -1 : 0);
	if (row->message) {
		ck_assert_int_eq(err.kind, ERR_INVALID);
		ck_assert_msg(str_has_prefix(err.message, row->message), "%s", err.message);
	}
	strlist_fini(&claims);
	json_decref(pod);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("podclaims");
	TCase *tcase = tcase_create("podclaims");

	tcase_add_loop_test(tcase, names, 0, ARRAY_SIZE(rows));
	suite_add_tcase(suite, tcase);
	return unit_run(suite);
}
