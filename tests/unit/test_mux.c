/* SPDX-License-Identifier: Apache-2.0 */
/* The multiplexer's frames: whatever way the bytes arrive, the channels' streams are the same.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "nrihookd/bytes.h"
#include "nrihookd/mux.h"
#include "tests/unit/unit.h"

struct streams {
	struct buf plugin, runtime, other;
};

static struct buf *stream_of(struct streams *s, uint32_t channel)
{
	switch (channel) {
	case MUX_PLUGIN: return &s->plugin;
	case MUX_RUNTIME: return &s->runtime;
	default: return &s->other;
	}
}

static void feed(struct mux *mux, struct streams *s, const void *data, size_t len)
{
	const uint8_t *at = data;
	struct mux_piece piece;
	struct err err = ERR_INIT;
	int r;

	while ((r = mux_take(mux, &at, &len, &piece, &err)) > 0) {
		ck_assert_uint_gt(piece.len, 0);
		buf_put(stream_of(s, piece.channel), piece.data, piece.len);
	}
	ck_assert_msg(r == 0, "%s", err.message);
}

static void streams_fini(struct streams *s)
{
	buf_fini(&s->plugin);
	buf_fini(&s->runtime);
	buf_fini(&s->other);
}

static void put_raw_frame(struct buf *out, uint32_t channel, const void *data, size_t len)
{
	uint8_t header[MUX_HEADER_SIZE];

	be32_put(header, channel);
	be32_put(header + 4, (uint32_t)len);
	buf_put(out, header, sizeof(header));
	buf_put(out, data, len);
}

START_TEST(test_streams_are_the_same_at_any_cut)
{
	cleanup_buf struct buf wire = BUF_INIT;

	put_raw_frame(&wire, MUX_PLUGIN, "he", 2);
	put_raw_frame(&wire, 77, "noise", 5);
	put_raw_frame(&wire, MUX_RUNTIME, "answer", 6);
	put_raw_frame(&wire, MUX_PLUGIN, "", 0);
	put_raw_frame(&wire, 0, "reserved", 8);
	put_raw_frame(&wire, MUX_PLUGIN, "llo", 3);
	put_raw_frame(&wire, MUX_RUNTIME, "", 0);
	for (size_t step = 1; step <= wire.len; step++) {
		struct streams s = {.plugin = BUF_INIT};
		struct mux mux = {0};

		for (size_t at = 0; at < wire.len; at += step)
			feed(&mux, &s, wire.data + at, MIN(step, wire.len - at));
		ck_assert_str_eq(s.plugin.data, "hello");
		ck_assert_str_eq(s.runtime.data, "answer");
		ck_assert_str_eq(s.other.data, "noisereserved");
		streams_fini(&s);
	}
}
END_TEST

START_TEST(test_frames_sent_hold_at_most_4096_bytes)
{
	static const size_t sizes[] = {1, 4095, 4096, 4097, 8192, 200001};

	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		cleanup_free uint8_t *data = xcalloc(sizes[i], 1);
		cleanup_buf struct buf wire = BUF_INIT;
		struct streams s = {.plugin = BUF_INIT};
		struct mux mux = {0};
		size_t at = 0;

		for (size_t k = 0; k < sizes[i]; k++)
			data[k] = (uint8_t)(k * 7);
		mux_put(&wire, MUX_RUNTIME, data, sizes[i]);
		while (at < wire.len) {
			uint32_t n = be32_get((const uint8_t *)wire.data + at + 4);

			ck_assert_uint_eq(
				be32_get((const uint8_t *)wire.data + at), MUX_RUNTIME);
			ck_assert_uint_ge(n, 1);
			ck_assert_uint_le(n, 4096);
			at += MUX_HEADER_SIZE + n;
		}
		ck_assert_uint_eq(at, wire.len);
		feed(&mux, &s, wire.data, wire.len);
		ck_assert_uint_eq(s.runtime.len, sizes[i]);
		ck_assert_mem_eq(s.runtime.data, data, sizes[i]);
		streams_fini(&s);
	}
}
END_TEST

START_TEST(test_nothing_sent_is_no_frame)
{
	cleanup_buf struct buf wire = BUF_INIT;

	mux_put(&wire, MUX_PLUGIN, "", 0);
	ck_assert_uint_eq(wire.len, 0);
}
END_TEST

/* The longest frame of an old runtime is taken; a byte more is refused before any of it came.
 */
START_TEST(test_length_is_bounded)
{
	uint8_t header[MUX_HEADER_SIZE];
	const uint8_t *at = header;
	size_t len = sizeof(header);
	struct err err = ERR_INIT;
	struct mux mux = {0};
	struct mux_piece piece;

	be32_put(header, MUX_PLUGIN);
	be32_put(header + 4, (16u << 20) + 10);
	ck_assert_int_eq(mux_take(&mux, &at, &len, &piece, &err), 0);
	ck_assert_uint_eq(mux.left, (16u << 20) + 10);

	mux = (struct mux){0};
	be32_put(header + 4, (16u << 20) + 11);
	at = header;
	len = sizeof(header);
	ck_assert_int_eq(mux_take(&mux, &at, &len, &piece, &err), -1);
	ck_assert_int_eq(err.kind, ERR_INVALID);
	ck_assert_ptr_nonnull(strstr(err.message, "16777227 bytes"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("mux");
	TCase *tc = tcase_create("frames");

	tcase_add_test(tc, test_streams_are_the_same_at_any_cut);
	tcase_add_test(tc, test_frames_sent_hold_at_most_4096_bytes);
	tcase_add_test(tc, test_nothing_sent_is_no_frame);
	tcase_add_test(tc, test_length_is_bounded);
	suite_add_tcase(suite, tc);
	return unit_run(suite);
}
