/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of a claim is decoded: whatever another driver's part of it holds it is read, what is ours
 * in it is read as it would be without the mask, and what is wrong with ours is said with its line.
 */
#include <check.h>
#include <stdlib.h>

#include "common/doc.h"
#include "common/json_text.h"
#include "statd/claim.h"
#include "statd/claim_mask.h"
#include "tests/unit/records.h"
#include "tests/unit/unit.h"

#define DRIVER "networkdriver.cilium.io"

/* The text with ' for ". */
static char *quoted(const char *text)
{
	char *json = xstrdup(text);

	for (char *p = json; *p; p++)
		if (*p == '\'')
			*p = '"';
	return json;
}

static char *masked(const char *text)
{
	cleanup_free char *json = quoted(text);
	struct err err = ERR_INIT;
	struct buf out = BUF_INIT;

	if (json_mask_text(&claim_mask, DRIVER, json, strlen(json), &out, &err) < 0) {
		ck_assert_int_eq(err.kind, ERR_INVALID);
		return NULL;
	}
	return buf_take(&out);
}

/* --- which texts are JSON ----------------------------------------------------------------- */

static const char *const well_formed[] = {"{}", "[]", " [ ] ", "0", "-0", "1e400", "-1.5E+3",
	"18446744073709551615", "'\\u0000'", "'\\ud800'", "'\xff'", "true", "null",
	"[1,[2,{'a':[]}],{}]", "{'a':1,'a':2}", "{'':''}", "\n{ 'a' : [ 1 , 2 ] }\r\n"};

static const char *const not_json[] = {"", " ", "{", "}", "[", "[}", "{]", "[1 2]", "[1,]", "[,1]",
	"{'a'}", "{'a':}", "{'a':1,}", "{,}", "{1:2}", "{'a' 1}", "tru", "nul", "truefalse", "01",
	"1.", ".5", "1e", "+1", "-", "'", "'\\'", "'\\x'", "'\\u12g4'", "'\\u12", "'\t'", "1 2",
	"{} {}", "[[[[[]]]]"};

START_TEST(test_well_formed)
{
	cleanup_free char *text = masked(well_formed[_i]);

	ck_assert_ptr_nonnull(text);
}
END_TEST

START_TEST(test_not_json)
{
	cleanup_free char *text = masked(not_json[_i]);

	ck_assert_ptr_null(text);
}
END_TEST

START_TEST(test_no_depth_is_too_much)
{
	const size_t depth = 1000000;
	cleanup_free char *text = xcalloc(2 * depth + 1, 1);
	struct json_text left = {text, 2 * depth}, value;

	memset(text, '[', depth);
	memset(text + depth, ']', depth);
	ck_assert_int_eq(json_text_value(&left, &value), 0);
	ck_assert_uint_eq(value.len, 2 * depth);
	text[2 * depth - 1] = '}';
	left = (struct json_text){text, 2 * depth};
	ck_assert_int_eq(json_text_value(&left, &value), -1);
}
END_TEST

/* --- what stays --------------------------------------------------------------------------- */

static const struct {
	const char *text, *stays;
} stays[] = {
	{"{'kind':'ResourceClaim','x':1}", "{'kind':'ResourceClaim'}"},
	{"{'x':1,'kind':'ResourceClaim'}", "{'kind':'ResourceClaim'}"},
	{"{'x':1,'y':[],'kind':'a','z':{},'apiVersion':'b','w':0}", "{'kind':'a','apiVersion':'b'}"},
	{"{'x':{'kind':1}}", "{}"},
	{"{'metadata':{'managedFields':[1e400],'name':'a','annotations':{'b':'\\u0000',"
	 "'resource.kubernetes.io/pod-claim-name':'net'}}}",
		"{'metadata':{'name':'a','annotations':"
		"{'resource.kubernetes.io/pod-claim-name':'net'}}}"},
	/* keys are texts, however they are written */
	{"{'k\\u0069nd':'a','\\u0000':1}", "{'kind':'a'}"},
	/* entries of ours stay whole, of others there is one left for each */
	{"{'status':{'devices':[{'data':1e400,'driver':'o','pool':'p','device':'d'},"
	 "{'driver':'" DRIVER "','data':{'a':1},'b':2}]}}",
		"{'status':{'devices':[{'driver':'o','pool':'p','device':'d'},"
		"{'driver':'" DRIVER "','data':{'a':1},'b':2}]}}"},
	{"{'status':{'devices':[{'device':'\\u0000','pool':7,'driver':'','driver':'o\\u0001'}]}}",
		"{'status':{'devices':[{'driver':'-','pool':'-','device':'-'}]}}"},
	{"{'status':{'devices':[{'driver':'networkdriver.c\\u0069lium.io','data':1}]}}",
		"{'status':{'devices':[{'driver':'" DRIVER "','data':1}]}}"},
	/* nothing says whose it is: a decoder is to say so */
	{"{'status':{'devices':[{'data':1},{'driver':5},{}]}}",
		"{'status':{'devices':[{'data':1},{'driver':5},{}]}}"},
	{"{'status':{'devices':[null,7,[{'driver':'o','x':1}]]}}",
		"{'status':{'devices':[null,7,[{'driver':'o','x':1}]]}}"},
	{"{'status':{'devices':{'driver':'o'},'reservedFor':3}}",
		"{'status':{'devices':{'driver':'o'},'reservedFor':3}}"},
	{"{'status':{'allocation':{'nodeSelector':{},'devices':{'results':["
	 "{'driver':'o','request':'gpu','pool':'p','device':'d','consumedCapacity':{'a':1e400}},"
	 "{'driver':'" DRIVER "','request':'net','adminAccess':true}],'config':["
	 "{'source':'FromClaim','opaque':{'parameters':1e400,'driver':'o'}},{'newer':1e400},"
	 "{'opaque':null},{'opaque':{'parameters':1}},"
	 "{'requests':['net'],'opaque':{'parameters':{'vlan':7},'driver':'" DRIVER "'}}]}}}}",
		"{'status':{'allocation':{'devices':{'results':["
		"{'request':'gpu','driver':'o','pool':'p','device':'d'},"
		"{'driver':'" DRIVER "','request':'net','adminAccess':true}],'config':["
		"{},{},{},{'opaque':{'parameters':1}},"
		"{'requests':['net'],'opaque':{'parameters':{'vlan':7},'driver':'" DRIVER
		"'}}]}}}}"},
	/* a pod */
	{"{'kind':'Pod','spec':{'containers':[{'args':['\\u0000']}],'resourceClaims':["
	 "{'name':'a','resourceClaimName':'c','x':1e400}]},'status':{'resourceClaimStatuses':["
	 "{'name':'b','resourceClaimName':'d'}],'phase':'Running'}}",
		"{'kind':'Pod','spec':{'resourceClaims':[{'name':'a','resourceClaimName':'c'}]},"
		"'status':{'resourceClaimStatuses':[{'name':'b','resourceClaimName':'d'}]}}"},
};

START_TEST(test_what_stays)
{
	cleanup_free char *text = masked(stays[_i].text), *again = NULL;
	json_t *is, *should = tree_of(stays[_i].stays);
	json_error_t why;

	ck_assert_ptr_nonnull(text);
	is = json_loads(text, JSON_REJECT_DUPLICATES, &why);
	ck_assert_msg(is != NULL, "%s: %s", text, why.text);
	ck_assert_msg(json_equal(is, should), "is %s", text);
	again = masked(text);
	ck_assert_str_eq(again, text);
	json_decref(is);
	json_decref(should);
}
END_TEST

/* The same of YAML, which has none of the texts that only JSON can hold. */
START_TEST(test_what_stays_of_a_tree)
{
	cleanup_free char *json = quoted(stays[_i].text);
	json_t *tree = json_loads(json, JSON_REJECT_DUPLICATES, NULL), *should;

	if (!tree)
		return;
	should = tree_of(stays[_i].stays);
	json_mask_tree(&claim_mask, DRIVER, tree);
	ck_assert(json_equal(tree, should));
	json_decref(tree);
	json_decref(should);
}
END_TEST

/* Every field that claims are decoded from, and fields of others between them. */
#define NOISE "'zz':18446744073709551615,"
static const char whole_claim[] =
	"{" NOISE "'apiVersion':'resource.k8s.io/v1','spec':{" NOISE "'devices':{'requests':[]}},"
	"'metadata':{" NOISE "'name':'c','namespace':'n','uid':'u-1','resourceVersion':'7',"
	"'generation':3,'annotations':{'resource.kubernetes.io/pod-claim-name':'net'}},"
	"'status':{" NOISE "'allocation':{" NOISE "'devices':{" NOISE "'results':[{'request':'net',"
	"'driver':'" DRIVER "','pool':'p','device':'dummy0','shareID':'s-1',"
	"'consumedCapacity':{'a':'1'}}],'config':[{'requests':['net'],'opaque':{'driver':'" DRIVER
	"','parameters':{'vlan':7}}}]}},'reservedFor':[{" NOISE
	"'apiGroup':'g','resource':'pods','name':'p','uid':'u-2'}],'devices':[{'driver':'" DRIVER
	"','pool':'p','device':'dummy0','shareID':'s-1','conditions':[],'data':{'a':1},"
	"'networkData':{'interfaceName':'net1'}}]}}";

/* Whether each field of the description has a value somewhere below. */
static void assert_complete(const struct rec_desc *desc, const json_t *tree)
{
	for (size_t i = 0; i < desc->n_fields; i++) {
		const struct rec_field *f = &desc->fields[i];
		const json_t *value = json_object_get(tree, f->name);

		ck_assert_msg(value != NULL, "%s: %s is not there", desc->name, f->name);
		if (json_is_array(value) && f->sub)
			value = json_array_get(value, 0);
		if (f->sub && json_is_object(value))
			assert_complete(f->sub, value);
	}
}

START_TEST(test_nothing_that_is_read_goes)
{
	cleanup_free char *json = quoted(whole_claim);
	struct err err = ERR_INIT;
	struct claim claim = {0};
	json_t *tree, *is;

	ck_assert_msg(claim_parse("c", json, strlen(json), DRIVER, &tree, &err) == 0, "%s",
		err.message);
	ck_assert_int_eq(claim_decode(tree, &claim, &err), 0);
	is = rec_encode(&rec_claim, &claim);
	assert_complete(&rec_claim, is);
	json_decref(is);
	json_decref(tree);
	rec_fini(&rec_claim, &claim);
}
END_TEST

/* --- documents ---------------------------------------------------------------------------- */

static const struct {
	const char *text;
	const char *message; /* NULL: it is read */
} documents[] = {
	/* ours is refused, with its line */
	{"{\n'status':{'devices':[\n{'driver':'" DRIVER "',\n'data':1e400}]}}",
		"f:4:12: real number overflow"},
	{"{\n'status':{'devices':[{'driver':'other','data':\n\n[\n1e400\n]},\n{'driver':'" DRIVER
	 "',\n'data':18446744073709551616}]}}",
		"f:8:27: too big integer"},
	{"{'metadata':{'name':'a',\n'name':'b'}}", "f:2:6: duplicate object key"},
	{"{'status':{'devices':[{'driver':'other','driver':'" DRIVER "'}]}}",
		"duplicate object key"},
	{"{'metadata':{'managedFields':[}}", "f:1:"},
	/* others' is not */
	{"kind: ResourceClaim\nmetadata:\n  managedFields: [18446744073709551615, .inf, 1e400]\n"
	 "  annotations: {yes: no, a: *b, a: 0123, <<: 1}\n",
		NULL},
	{"status:\n  devices:\n  - driver: other\n    data: &anchor {guid: 0x10000000000000000,\n"
	 "      x: \"\\0\", x: !!binary aaaa}\n  - driver: " DRIVER "\n    data: {a: 1}\n",
		NULL},
	{"status:\n  devices:\n  - data: {a: 18446744073709551615}\n    driver: " DRIVER "\n",
		"f:3:15: 18446744073709551615 does not fit in 64 bits"},
	{"metadata:\n  name: a\n  name: b\n", "f:3:3: \"name\" is there twice"},
	{"metadata:\n  name: yes\n", "f:2:9: yes is a boolean"},
	{"metadata: &a\n  name: b\n", "anchors (&a)"},
	{"spec:\n  other: [1\n", "f:3:1:"},
	{"spec: {? [a] : 1}\n", "a key must be a text"},
};

START_TEST(test_document)
{
	cleanup_free char *text = quoted(documents[_i].text);
	struct err err = ERR_INIT;
	struct doc *doc = NULL;
	int r = doc_parse_masked("f", text, strlen(text), &claim_mask, DRIVER, &doc, &err);

	if (documents[_i].message)
		ck_assert_msg(r < 0 && strstr(err.message, documents[_i].message), "%s",
			r < 0 ? err.message : "it was read");
	else
		ck_assert_msg(r == 0, "%s", err.message);
	doc_free(doc);
}
END_TEST

/* 100 deep, at a place of another's and at one of ours. */
START_TEST(test_depth_of_documents)
{
	static const char *const bracket[] = {"{\"a\":[", "{\"a\":["};
	const char *const drivers[] = {"other", DRIVER};

	for (int yaml = 0; yaml < 2; yaml++) {
		for (int ours = 0; ours < 2; ours++) {
			cleanup_buf struct buf text = BUF_INIT;
			struct err err = ERR_INIT;
			struct doc *doc = NULL;
			int r;

			buf_printf(&text,
				"%s{\"status\":{\"devices\":[{\"driver\":\"%s\",\"data\":",
				yaml ? "# YAML\n" : "", drivers[ours]);
			for (int i = 0; i < 50; i++)
				buf_puts(&text, bracket[yaml]);
			for (int i = 0; i < 50; i++)
				buf_puts(&text, "]}");
			buf_puts(&text, "}]}}");
			r = doc_parse_masked(
				"f", text.data, text.len, &claim_mask, DRIVER, &doc, &err);
			ck_assert_int_eq(r, ours ? -1 : 0);
			if (ours)
				ck_assert_ptr_nonnull(strstr(err.message, "nested deeper"));
			doc_free(doc);
		}
	}
}
END_TEST

/* Each costs memory until the document is read. */
START_TEST(test_refused_values_are_counted)
{
	cleanup_buf struct buf text = BUF_INIT;
	struct err err = ERR_INIT;
	struct doc *doc;

	buf_puts(&text, "spec:\n");
	for (int i = 0; i < 1000; i++)
		buf_puts(&text, "- 0123\n");
	ck_assert_int_eq(
		doc_parse_masked("f", text.data, text.len, &claim_mask, DRIVER, &doc, &err), -1);
	ck_assert_ptr_nonnull(strstr(err.message, "more than 256 values are refused"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("claim_mask");
	TCase *tc = tcase_create("mask");

	suite_add_tcase(suite, tc);
	tcase_add_loop_test(tc, test_well_formed, 0, ARRAY_SIZE(well_formed));
	tcase_add_loop_test(tc, test_not_json, 0, ARRAY_SIZE(not_json));
	tcase_add_test(tc, test_no_depth_is_too_much);
	tcase_add_loop_test(tc, test_what_stays, 0, ARRAY_SIZE(stays));
	tcase_add_loop_test(tc, test_what_stays_of_a_tree, 0, ARRAY_SIZE(stays));
	tcase_add_test(tc, test_nothing_that_is_read_goes);
	tcase_add_loop_test(tc, test_document, 0, ARRAY_SIZE(documents));
	tcase_add_test(tc, test_depth_of_documents);
	tcase_add_test(tc, test_refused_values_are_counted);
	return unit_run(suite);
}
