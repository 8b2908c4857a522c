/* SPDX-License-Identifier: Apache-2.0 */
/* Messages and envelopes of ttrpc. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "nrihookd/bytes.h"
#include "nrihookd/ttrpc.h"
#include "tests/unit/unit.h"

static void put_raw(struct buf *out, uint32_t len, uint32_t stream, uint8_t type,
	const void *data, size_t n)
{
	uint8_t header[TTRPC_HEADER_SIZE] = {0};

	be32_put(header, len);
	be32_put(header + 4, stream);
	header[8] = type;
	buf_put(out, header, sizeof(header));
	buf_put(out, data, n);
}

/* The one message that these bytes are; data stays the reader's. */
static struct ttrpc_message only_message(struct ttrpc_reader *r, const struct buf *wire)
{
	struct ttrpc_message message;
	struct err err = ERR_INIT;

	ttrpc_feed(r, wire->data, wire->len);
	ck_assert_int_eq(ttrpc_take(r, &message, &err), 1);
	ck_assert_uint_eq(message.len + TTRPC_HEADER_SIZE, wire->len);
	return message;
}

/* --- messages ----------------------------------------------------------------------------- */

START_TEST(test_messages_are_the_same_at_any_cut)
{
	cleanup_buf struct buf wire = BUF_INIT;

	put_raw(&wire, 3, 1, TTRPC_REQUEST, "one", 3);
	put_raw(&wire, 0, 3, TTRPC_RESPONSE, "", 0);
	put_raw(&wire, 5, 0xfffffffd, 9, "three", 5);
	for (size_t step = 1; step <= wire.len; step++) {
		struct ttrpc_reader r = {.in = BUF_INIT};
		cleanup_buf struct buf seen = BUF_INIT;
		struct ttrpc_message m;
		struct err err = ERR_INIT;

		for (size_t at = 0; at < wire.len; at += step) {
			ttrpc_feed(&r, wire.data + at, MIN(step, wire.len - at));
			while (ttrpc_take(&r, &m, &err) > 0)
				buf_printf(&seen, "%u/%u/%.*s ", m.stream, m.type, (int)m.len,
					(const char *)m.data);
		}
		ck_assert_str_eq(seen.data, "1/1/one 3/2/ 4294967293/9/three ");
		ttrpc_reader_fini(&r);
	}
}
END_TEST

/* What containerd up to 1.7.25 sends is beyond the 4 MiB that its own receivers allow. */
START_TEST(test_long_message_is_taken_and_its_memory_given_back)
{
	const size_t size = 6008357;
	cleanup_free char *data = xcalloc(size, 1);
	cleanup_buf struct buf wire = BUF_INIT;
	struct ttrpc_reader r = {.in = BUF_INIT};
	struct ttrpc_message m;
	struct err err = ERR_INIT;

	data[size - 1] = 'z';
	put_raw(&wire, (uint32_t)size, 1, TTRPC_REQUEST, data, size);
	m = only_message(&r, &wire);
	ck_assert_uint_eq(m.data[size - 1], 'z');
	ck_assert_int_eq(ttrpc_take(&r, &m, &err), 0);
	ck_assert_uint_eq(r.in.cap, 0);
	ttrpc_reader_fini(&r);
}
END_TEST

START_TEST(test_length_is_bounded)
{
	cleanup_buf struct buf longest = BUF_INIT, too_long = BUF_INIT;
	struct ttrpc_reader r = {.in = BUF_INIT};
	struct ttrpc_message m;
	struct err err = ERR_INIT;

	put_raw(&longest, 0x00ffffff, 1, TTRPC_REQUEST, "", 0);
	ttrpc_feed(&r, longest.data, longest.len);
	ck_assert_int_eq(ttrpc_take(&r, &m, &err), 0);
	ttrpc_reader_fini(&r);

	put_raw(&too_long, 0x01000000, 1, TTRPC_REQUEST, "", 0);
	ttrpc_feed(&r, too_long.data, too_long.len);
	ck_assert_int_eq(ttrpc_take(&r, &m, &err), -1);
	ck_assert_int_eq(err.kind, ERR_INVALID);
	ttrpc_reader_fini(&r);
}
END_TEST

/* --- envelopes ---------------------------------------------------------------------------- */

START_TEST(test_request_comes_back)
{
	/* beyond nanopb's own 64 KiB of a bytes field */
	static const size_t sizes[] = {0, 1, 65536, 3000000};

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct ttrpc_request out = {
			.service = "a.Service",
			.method = "Method",
			.timeout_ns = 1999816841,
		};
		struct ttrpc_reader r = {.in = BUF_INIT};
		cleanup_buf struct buf wire = BUF_INIT;
		struct ttrpc_request in;
		struct ttrpc_message m;
		struct err err = ERR_INIT;

		for (size_t k = 0; k < sizes[i]; k++)
			buf_put(&out.payload, &(uint8_t){(uint8_t)k}, 1);
		ttrpc_put_request(&wire, 7, &out);
		m = only_message(&r, &wire);
		ck_assert_uint_eq(m.stream, 7);
		ck_assert_uint_eq(m.type, TTRPC_REQUEST);
		ck_assert_int_eq(ttrpc_request_decode(&m, &in, &err), 0);
		ck_assert_str_eq(in.service, "a.Service");
		ck_assert_str_eq(in.method, "Method");
		ck_assert_int_eq(in.timeout_ns, 1999816841);
		ck_assert_uint_eq(in.payload.len, sizes[i]);
		if (sizes[i])
			ck_assert_mem_eq(in.payload.data, out.payload.data, sizes[i]);
		ttrpc_request_fini(&in);
		ttrpc_request_fini(&out);
		ttrpc_reader_fini(&r);
	}
}
END_TEST

/* Order is free, a field may come twice, and unknown ones may come in between: metadata (5)
 * does. */
START_TEST(test_request_in_any_order)
{
	static const char data[] = "\x20\x01"
				   "\x2a\x04\x0a\x02kv"
				   "\x1a\x03old"
				   "\x12\x01m"
				   "\x1a\x02ok"
				   "\x0a\x01s";
	struct ttrpc_message m = {.data = (const uint8_t *)data, .len = sizeof(data) - 1};
	struct ttrpc_request request;
	struct err err = ERR_INIT;

	ck_assert_int_eq(ttrpc_request_decode(&m, &request, &err), 0);
	ck_assert_str_eq(request.service, "s");
	ck_assert_str_eq(request.method, "m");
	ck_assert_str_eq(request.payload.data, "ok");
	ck_assert_int_eq(request.timeout_ns, 1);
	ttrpc_request_fini(&request);
}
END_TEST

START_TEST(test_request_cut_anywhere_is_refused_or_shorter)
{
	struct ttrpc_request out = {
		.service = "a.Service", .method = "Method", .timeout_ns = 1};
	struct ttrpc_reader r = {.in = BUF_INIT};
	cleanup_buf struct buf wire = BUF_INIT;
	struct ttrpc_message m;
	size_t refused = 0;

	buf_puts(&out.payload, "payload");
	ttrpc_put_request(&wire, 1, &out);
	m = only_message(&r, &wire);
	for (size_t len = 0; len < m.len; len++) {
		struct ttrpc_message cut = {.data = m.data, .len = len};
		struct ttrpc_request in;
		struct err err = ERR_INIT;

		if (ttrpc_request_decode(&cut, &in, &err) == 0) {
			ck_assert(in.method[0] == '\0' || in.timeout_ns == 0);
			ttrpc_request_fini(&in);
			continue;
		}
		ck_assert_int_eq(err.kind, ERR_INVALID);
		refused++;
	}
	/* only the ends of the three fields before the last are whole requests, and nothing at
	 * all */
	ck_assert_uint_eq(refused, m.len - 4);
	ttrpc_request_fini(&out);
	ttrpc_reader_fini(&r);
}
END_TEST

START_TEST(test_name_is_bounded)
{
	cleanup_buf struct buf data = BUF_INIT;
	struct ttrpc_request request;
	struct ttrpc_message m;
	struct err err = ERR_INIT;

	buf_puts(&data, "\x12\x7f");
	for (int i = 0; i < 127; i++)
		buf_puts(&data, "x");
	m = (struct ttrpc_message){.data = (const uint8_t *)data.data, .len = data.len};
	ck_assert_int_eq(ttrpc_request_decode(&m, &request, &err), 0);
	ck_assert_uint_eq(strlen(request.method), 127);
	ttrpc_request_fini(&request);

	data.len = 0;
	buf_puts(&data, "\x12\x80\x01");
	for (int i = 0; i < 128; i++)
		buf_puts(&data, "x");
	m = (struct ttrpc_message){.data = (const uint8_t *)data.data, .len = data.len};
	ck_assert_int_eq(ttrpc_request_decode(&m, &request, &err), -1);
	ck_assert_int_eq(err.kind, ERR_INVALID);
}
END_TEST

START_TEST(test_response)
{
	static const struct {
		const char *data;
		size_t len;
		const char *error; /* NULL: success */
	} rows[] = {
		{"", 0, NULL},
		{"\x0a\x00", 2, NULL},
		{"\x12\x03"
		 "any",
			5, NULL},
		{"\x0a\x02\x08\x00\x12\x02ok", 8, NULL},
		{"\x0a\x06\x08\x0d\x12\x02no", 8, "refused with code 13: no"},
		{"\x0a\x02\x08\x02", 4, "refused with code 2: no reason given"},
		{"\x0a\x07", 2, "a response that cannot be read: "},
	};

	for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
		struct ttrpc_message m = {
			.data = (const uint8_t *)rows[i].data,
			.len = rows[i].len,
		};
		struct err err = ERR_INIT;

		ck_assert_int_eq(ttrpc_response_check(&m, &err), rows[i].error ? -1 : 0);
		ck_assert_msg(str_has_prefix(err.message, rows[i].error ? rows[i].error : ""),
			"row %zu: %s", i, err.message);
	}
}
END_TEST

/* Byte for byte what was seen of real peers. */
START_TEST(test_bytes_of_answers)
{
	static const char ok[] = "\0\0\0\4\0\0\0\1\2\0\x12\2\x10\7";
	static const char empty[] = "\0\0\0\0\0\0\0\5\2\0";
	static const char error[] = "\0\0\0\x8\0\0\0\5\2\0\x0a\6\x08\x0d\x12\2no";
	cleanup_buf struct buf payload = BUF_INIT, wire = BUF_INIT;

	ttrpc_put_response(&wire, 5, &payload);
	ck_assert_uint_eq(wire.len, sizeof(empty) - 1);
	ck_assert_mem_eq(wire.data, empty, wire.len);

	wire.len = 0;
	buf_puts(&payload, "\x10\x07");
	ttrpc_put_response(&wire, 1, &payload);
	ck_assert_uint_eq(wire.len, sizeof(ok) - 1);
	ck_assert_mem_eq(wire.data, ok, wire.len);

	wire.len = 0;
	ttrpc_put_status(&wire, 5, TTRPC_INTERNAL, "no");
	ck_assert_uint_eq(wire.len, sizeof(error) - 1);
	ck_assert_mem_eq(wire.data, error, wire.len);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ttrpc");
	TCase *messages = tcase_create("messages"), *envelopes = tcase_create("envelopes");

	tcase_add_test(messages, test_messages_are_the_same_at_any_cut);
	tcase_add_test(messages, test_long_message_is_taken_and_its_memory_given_back);
	tcase_add_test(messages, test_length_is_bounded);
	suite_add_tcase(suite, messages);
	tcase_add_test(envelopes, test_request_comes_back);
	tcase_add_test(envelopes, test_request_in_any_order);
	tcase_add_test(envelopes, test_request_cut_anywhere_is_refused_or_shorter);
	tcase_add_test(envelopes, test_name_is_bounded);
	tcase_add_test(envelopes, test_response);
	tcase_add_test(envelopes, test_bytes_of_answers);
	suite_add_tcase(suite, envelopes);
	return unit_run(suite);
}
