/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The multiplexer's frames.
 *
 * Receiving keeps nothing but the current frame's header: payload bytes are passed on as they
 * come, because frames and messages need not align and a frame's length is the peer's word.
 * Sending cuts at 4096 bytes, the one size that no reader at the other end chokes on.
 */
#include "nrihookd/mux.h"

#include <string.h>

#include "nrihookd/bytes.h"

static size_t take_header(struct mux *mux, const uint8_t *data, size_t len)
{
	size_t n = MIN(len, sizeof(mux->header) - mux->header_len);

	memcpy(mux->header + mux->header_len, data, n);
	mux->header_len += n;
	return n;
}

static int start_frame(struct mux *mux, struct err *err)
{
	mux->channel = be32_get(mux->header);
	mux->left = be32_get(mux->header + 4);
	mux->header_len = 0;
	if (mux->left > MUX_MAX_RECEIVE)
		return err_set(err, ERR_INVALID,
			"a frame of %zu bytes on channel %u: at most %u can be", mux->left,
			mux->channel, MUX_MAX_RECEIVE);
	return 0;
}

int mux_take(struct mux *mux, const uint8_t **data, size_t *len, struct mux_piece *ret,
	struct err *err)
{
	size_t n;

	while (mux->left == 0) {
		if (*len == 0)
			return 0;
		n = take_header(mux, *data, *len);
		*data += n;
		*len -= n;
		if (mux->header_len == sizeof(mux->header) && start_frame(mux, err) < 0)
			return -1;
	}
	if (*len == 0)
		return 0;
	n = MIN(*len, mux->left);
	*ret = (struct mux_piece){.channel = mux->channel, .data = *data, .len = n};
	*data += n;
	*len -= n;
	mux->left -= n;
	return 1;
}

void mux_put(struct buf *out, uint32_t channel, const void *data, size_t len)
{
	const uint8_t *at = data;

	while (len > 0) {
		uint8_t header[MUX_HEADER_SIZE];
		size_t n = MIN(len, MUX_MAX_SEND);

		be32_put(header, channel);
		be32_put(header + 4, (uint32_t)n);
		buf_put(out, header, sizeof(header));
		buf_put(out, at, n);
		at += n;
		len -= n;
	}
}
