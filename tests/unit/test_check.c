/* SPDX-License-Identifier: Apache-2.0 */
/* Grammars, by table: what each check says of each text. */
#include "common/check.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "common/util.h"
#include "tests/unit/unit.h"

#define X10  "xxxxxxxxxx"
#define X60  X10 X10 X10 X10 X10 X10
#define X240 X60 X60 X60 X60

static int check_sysctl_of_net1(const char *text, struct err *err)
{
	return check_sysctl_short(text, "net1", err);
}

static const struct row {
	int (*check)(const char *text, struct err *err);
	const char *text;
	const char *message; /* what the error must contain; NULL: the text is fine */
} rows[] = {
	{check_if_name, "", "is empty"},
	{check_if_name, "eth0", NULL},
	{check_if_name, "net1.100", NULL},
	{check_if_name, "a_b-c", NULL},
	{check_if_name, "abcdefghijklmno", NULL},
	{check_if_name, "abcdefghijklmnop",
		"interface name too long: \"abcdefghijklmnop\" (16 bytes, at most 15)"},
	{check_if_name, "lo", "\"lo\" is reserved"},
	{check_if_name, "lo0", NULL},
	{check_if_name, "cilium_host", "\"cilium_host\" is reserved"},
	{check_if_name, "cilium", NULL},
	{check_if_name, ".", "\".\" is reserved"},
	{check_if_name, "..", "\"..\" is reserved"},
	{check_if_name, "...", NULL},
	{check_if_name, "all", "\"all\" is reserved"},
	{check_if_name, "default", "\"default\" is reserved"},
	{check_if_name, "eth 0", "invalid characters: \"eth 0\""},
	{check_if_name, "eth/0", "invalid characters: \"eth/0\""},
	{check_if_name, "eth0:1", "invalid characters: \"eth0:1\""},
	{check_if_name, "\xc3\xa9", "invalid characters: \"\xc3\xa9\""},
	{check_if_name, "eth%d", "invalid characters: \"eth%d\""},
	{check_if_name, "eth\n", "invalid characters: \"eth?\""},

	{check_kernel_if_name, "", "is empty"},
	{check_kernel_if_name, "lo", NULL},
	{check_kernel_if_name, "cilium_host", NULL},
	{check_kernel_if_name, "eth@0!", NULL},
	{check_kernel_if_name, "\xc3\xa9", NULL},
	{check_kernel_if_name, "abcdefghijklmno", NULL},
	{check_kernel_if_name, "abcdefghijklmnop", "16 bytes"},
	{check_kernel_if_name, ".", "\".\" cannot be"},
	{check_any_if_name, "", "is empty"},
	{check_any_if_name, "abcdefghijklmnop", NULL},
	{check_any_if_name, X60 X60 "xxxxxxx", NULL},
	{check_any_if_name, X60 X60 "xxxxxxxx", "128 bytes"},
	{check_any_if_name, "an alternative", "cannot be"},
	{check_kernel_if_name, "..", "\"..\" cannot be"},
	{check_kernel_if_name, "all", "\"all\" cannot be"},
	{check_kernel_if_name, "default", "\"default\" cannot be"},
	{check_kernel_if_name, "all0", NULL},
	{check_kernel_if_name, "a/b", "\"a/b\" cannot be"},
	{check_kernel_if_name, "a:b", "\"a:b\" cannot be"},
	{check_kernel_if_name, "a b", "\"a b\" cannot be"},
	{check_kernel_if_name, "a\tb", "\"a?b\" cannot be"},
	{check_kernel_if_name, "a\xa0", "cannot be"},

	{check_sysctl_leaf, "arp_filter", NULL},
	{check_sysctl_leaf, "a.b", NULL},
	{check_sysctl_leaf, "A-1.b_2.C", NULL},
	{check_sysctl_leaf, "arp filter", "invalid sysctl leaf: \"arp filter\""},
	{check_sysctl_leaf, "", "invalid sysctl leaf: \"\""},
	{check_sysctl_leaf, "../x", "invalid sysctl leaf: \"../x\""},
	{check_sysctl_leaf, "a/b", "invalid sysctl leaf: \"a/b\" (only the part behind the interface"},
	{check_sysctl_leaf, "a..b", "invalid sysctl leaf"},
	{check_sysctl_leaf, ".a", "invalid sysctl leaf"},
	{check_sysctl_leaf, "a.", "invalid sysctl leaf"},
	{check_sysctl_leaf, ".", "invalid sysctl leaf"},

	{check_sysctl_of_net1, "arp_filter", NULL},
	{check_sysctl_of_net1, "a.net", NULL},
	{check_sysctl_of_net1, "net", NULL},
	{check_sysctl_of_net1, "net10.a", NULL},
	{check_sysctl_of_net1, "net.ipv4.conf.net1.arp_filter",
		"\"net.ipv4.conf.net1.arp_filter\" is more than a sysctl of the interface: only the "
		"part behind the interface: arp_filter"},
	{check_sysctl_of_net1, "ipv6.conf.net1.accept_ra", "interface: accept_ra"},
	{check_sysctl_of_net1, "conf.net1.accept_ra", "interface: accept_ra"},
	{check_sysctl_of_net1, "net1.accept_ra", "interface: accept_ra"},
	{check_sysctl_of_net1, "net.", "only the part behind the interface: "},
	{check_sysctl_of_net1, X240 X10 "xxxxx", NULL},
	{check_sysctl_of_net1, X240 X10 "xxxxxx", "256 bytes, at most 255"},

	{check_dns_label, "dummy0", NULL},
	{check_dns_label, "0", NULL},
	{check_dns_label, "0000-03-00-1", NULL},
	{check_dns_label, X60 "xxx", NULL},
	{check_dns_label, X60 "xxxx", "64 bytes, at most 63"},
	{check_dns_label, "", "is empty"},
	{check_dns_label, "-a", "no DNS label: \"-a\""},
	{check_dns_label, "a-", "no DNS label: \"a-\""},
	{check_dns_label, "A", "no DNS label: \"A\""},
	{check_dns_label, "a.b", "no DNS label: \"a.b\""},
	{check_dns_label, "a_b", "no DNS label"},

	{check_dns_subdomain, "a", NULL},
	{check_dns_subdomain, "node-1.example.com", NULL},
	{check_dns_subdomain, X240 X10 "xxx", NULL},
	{check_dns_subdomain, X240 X10 "xxxx", "254 bytes, at most 253"},
	{check_dns_subdomain, "", "is empty"},
	{check_dns_subdomain, "a..b", "no DNS subdomain: \"a..b\""},
	{check_dns_subdomain, "a.", "no DNS subdomain"},
	{check_dns_subdomain, ".a", "no DNS subdomain"},
	{check_dns_subdomain, "a-.b", "no DNS subdomain"},
	{check_dns_subdomain, "a/b", "no DNS subdomain"},
	{check_dns_subdomain, "a/../b", "no DNS subdomain"},
	{check_dns_subdomain, "Node", "no DNS subdomain"},

	{check_driver_name, "networkdriver.cilium.io", NULL},
	{check_driver_name, X60 "xxx", NULL},
	{check_driver_name, X60 "xxxx", "driver name too long"},
	{check_driver_name, "0driver.example", "does not start with a letter"},
	{check_driver_name, "Driver", "no DNS subdomain"},
	{check_driver_name, "", "is empty"},

	{check_uid, "1f0c9dc2-5d5c-4b0c-9e1c-0123456789ab", NULL},
	{check_uid, "STATIC", NULL},
	{check_uid, X60 "xxx", NULL},
	{check_uid, X60 "xxxx", "UID too long"},
	{check_uid, "", "is empty"},
	{check_uid, "..", "UID contains invalid characters: \"..\""},
	{check_uid, "a/b", "invalid characters"},
	{check_uid, "a_b", "invalid characters"},

	{check_claim_dir, "default_c1", NULL},
	{check_claim_dir, "default_a.b", NULL},
	{check_claim_dir, "1f0c9dc2-5d5c-4b0c-9e1c-0123456789ab", NULL},
	{check_claim_dir, "", "is empty"},
	{check_claim_dir, "..", "UID contains invalid characters"},
	{check_claim_dir, "default/c1", "UID contains invalid characters"},
	{check_claim_dir, "_c1", "is empty"},
	{check_claim_dir, "default_", "is empty"},
	{check_claim_dir, "default_a_b", "no DNS"},
	{check_claim_dir, "a.b_c1", "no DNS label"},

	{check_request_ref, "req", NULL},
	{check_request_ref, "req/sub", NULL},
	{check_request_ref, X60 "xxx/" X60 "xxx", NULL},
	{check_request_ref, X60 "xxxx", "\"" X60 "xxxx\""},
	{check_request_ref, "a/" X60 "xxxx", "no DNS label"},
	{check_request_ref, X60 X60 X10, "130 bytes"},
	{check_request_ref, "", "is empty"},
	{check_request_ref, "/", "no DNS label"},
	{check_request_ref, "a/", "no DNS label"},
	{check_request_ref, "/b", "no DNS label"},
	{check_request_ref, "a/b/c", "no DNS label: \"a/b/c\""},
	{check_request_ref, "a.b", "no DNS label"},
	{check_request_ref, "a/B", "no DNS label"},

	{check_sandbox_id, "0123456789abcdef", NULL},
	{check_sandbox_id, "Sandbox_1.a-b", NULL},
	{check_sandbox_id, X60 X60 "xxxxxxxx", NULL},
	{check_sandbox_id, X60 X60 "xxxxxxxxx", "129 bytes, at most 128"},
	{check_sandbox_id, "", "is empty"},
	{check_sandbox_id, "a/b", "invalid characters"},
	{check_sandbox_id, "a b", "invalid characters"},

	{check_pool_name, "dummy-pool", NULL},
	{check_pool_name, "Pool 1", NULL},
	{check_pool_name, X60 "xxxx", NULL},
	{check_pool_name, X60 "xxxxx", "65 bytes, at most 64"},
	{check_pool_name, "", "is empty"},
	{check_pool_name, "a/b", "slash: \"a/b\""},

	{check_manager_type, "dummy", NULL},
	{check_manager_type, "sr-iov", NULL},
	{check_manager_type, "SR-IOV", NULL},
	{check_manager_type, "rxqueue", NULL},
	{check_manager_type, "rxQueue", NULL},
	{check_manager_type, "foo",
		"unknown device manager type: \"foo\" (known: dummy, sr-iov, rxQueue)"},
	{check_manager_type, "", "unknown device manager type"},
};

START_TEST(row_is_judged)
{
	const struct row *r = &rows[_i];
	struct err err = ERR_INIT;
	int got = r->check(r->text, &err);

	if (!r->message) {
		ck_assert_msg(got == 0, "\"%s\" was refused: %s", r->text, err.message);
		return;
	}
	ck_assert_msg(got == -1, "\"%s\" was accepted; expected: %s", r->text, r->message);
	ck_assert_int_eq(err.kind, ERR_INVALID);
	ck_assert_msg(strstr(err.message, r->message) != NULL, "\"%s\" does not contain \"%s\"",
		err.message, r->message);
}
END_TEST

/* However long the text, the reason behind it is still told. */
START_TEST(long_text_is_shortened)
{
	cleanup_free char *text = xcalloc(5000, 1);
	struct err err = ERR_INIT;

	memset(text, 'x', 4999);
	ck_assert_int_eq(check_uid(text, &err), -1);
	ck_assert_str_eq(
		err.message, "UID too long: \"" X60 "xxxx...\" (4999 bytes, at most 63)");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("check");
	TCase *tcase = tcase_create("check");

	tcase_add_loop_test(tcase, row_is_judged, 0, (int)ARRAY_SIZE(rows));
	tcase_add_test(tcase, long_text_is_shortened);
	suite_add_tcase(suite, tcase);
	return unit_run(suite);
}
