/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Single texts: the grammars, numbers, and gRPC's headers. A name that a grammar lets through is
 * one element of a path, or says where it may be cut into several.
 */
#include <assert.h>
#include <jansson.h>
#include <string.h>

#include "common/api.h"
#include "common/check.h"
#include "common/log.h"
#include "common/util.h"
#include "draplugind/grpc_wire.h"
#include "tests/fuzz/fuzz.h"

static bool is_element(const char *text, size_t max)
{
	return *text && strlen(text) <= max && !strchr(text, '/') && strcmp(text, ".") != 0 &&
	       strcmp(text, "..") != 0;
}

static void check_elements(const char *text)
{
	static const struct {
		int (*check)(const char *text, struct err *err);
		size_t max;
	} rows[] = {
		{check_if_name, 15},
		{check_kernel_if_name, 15},
		{check_dns_label, 63},
		{check_dns_subdomain, 253},
		{check_driver_name, 63},
		{check_uid, 63},
		{check_claim_dir, 63 + 1 + 253},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct err err = ERR_INIT;

		if (rows[i].check(text, &err) == 0)
			assert(is_element(text, rows[i].max));
		else
			assert(err.kind == ERR_INVALID && *err.message);
	}
}

static void check_others(const char *text)
{
	struct err err = ERR_INIT;
	enum log_level level;
	int64_t number;

	if (check_sysctl_leaf(text, &err) == 0)
		assert(*text && *text != '.' && !strchr(text, '/') && !strstr(text, ".."));
	if (check_request_ref(text, &err) == 0)
		assert(*text && strlen(text) <= 127 && !strchr(text, '.') && *text != '/');
	if (check_pool_name(text, &err) == 0)
		assert(*text && strlen(text) <= 64 && !strchr(text, '/'));
	if (check_manager_type(text, &err) == 0)
		assert(manager_type_parse(text) != MANAGER_INVALID);
	if (check_sandbox_id(text, &err) == 0)
		assert(strlen(text) <= 128 && !strchr(text, '/'));
	if (parse_i64(text, -100, 100, &number) == 0)
		assert(number >= -100 && number <= 100);
	(void)log_level_parse(text, &level);
	assert(err_kind_parse(text) < ERR_KIND_MAX);
	assert(api_method_parse(text, strlen(text)) <= API_METHOD_MAX);
}

static void check_sanitized(const char *text)
{
	cleanup_free char *copy = xstrdup(text);
	json_t *utf8;

	str_sanitize(copy);
	utf8 = json_string(copy);
	assert(utf8);
	json_decref(utf8);
	for (const char *c = copy; *c; c++)
		assert((unsigned char)*c >= 0x20 && *c != 0x7f);
}

static unsigned nibble(char c)
{
	return c <= '9' ? (unsigned)(c - '0') : (unsigned)(c - 'A' + 10);
}

/* What is escaped is fit for a header, and comes back. */
static void check_escaped(const char *text)
{
	cleanup_buf struct buf escaped = BUF_INIT;
	const char *c;

	grpc_message_escape(&escaped, text);
	c = escaped.len ? escaped.data : "";
	for (; *c; c++, text++) {
		unsigned char byte = (unsigned char)*c;

		assert(byte >= 0x20 && byte <= 0x7e);
		if (byte == '%') {
			byte = (unsigned char)(nibble(c[1]) << 4 | nibble(c[2]));
			c += 2;
		}
		assert(byte == (unsigned char)*text);
	}
	assert(*text == '\0');
}

static void check_grpc(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	uint8_t prefix[GRPC_PREFIX_LEN];
	uint64_t ms;

	(void)grpc_content_type(text, size);
	if (grpc_timeout_parse(text, size, &ms) == 0)
		assert(ms <= 99999999 * UINT64_C(3600000));
	if (size >= GRPC_PREFIX_LEN) {
		grpc_prefix_encode(grpc_prefix_decode(text).len, prefix);
		assert(memcmp(prefix + 1, data + 1, GRPC_PREFIX_LEN - 1) == 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	cleanup_free char *text = xmemdup0(data, size);

	check_elements(text);
	check_others(text);
	check_sanitized(text);
	check_escaped(text);
	check_grpc(data, size);
	return 0;
}
