/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * NRI's multiplexer: frames on one socket <-> byte streams of numbered channels.
 *
 * A frame is a channel (32-bit, big-endian), a length (likewise) and as many bytes of that
 * channel's stream. There is no handshake and no frame that opens or closes a channel
 * (containerd/nri pkg/net/multiplex). Pure computation on bytes: no I/O.
 */

#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "common/util.h"

enum mux_channel {
	MUX_PLUGIN = 1,  /* the runtime calls us */
	MUX_RUNTIME = 2, /* we call the runtime */
};

#define MUX_HEADER_SIZE 8
/* The peer hands a frame over whole into a reader of 4096 bytes and closes the socket when it
 * does not fit. */
#define MUX_MAX_SEND    4096
/* Up to NRI 0.6 a sender may put 1 << 24 bytes and a message's header of 10 into one frame. */
#define MUX_MAX_RECEIVE ((1u << 24) + 10)

/* The receiving side; zeroed at the start of a connection. */
struct mux {
	uint8_t header[MUX_HEADER_SIZE];
	size_t header_len;
	uint32_t channel;
	size_t left; /* bytes of the current frame's payload that are to come */
};

/* Bytes of one channel's stream, borrowed from the input. */
struct mux_piece {
	uint32_t channel;
	const uint8_t *data;
	size_t len;
};

/* Takes the next piece from *data, moving *data and *len on: 1 and *ret, or 0 when the input is
 * used up, or ERR_INVALID when a frame is too long, after which the connection is of no use. A
 * frame may yield several pieces, since none waits for the rest of its frame. */
int mux_take(struct mux *mux, const uint8_t **data, size_t *len, struct mux_piece *ret,
	struct err *err);

/* Appends these bytes of the channel's stream in frames that every runtime can read. */
void mux_put(struct buf *out, uint32_t channel, const void *data, size_t len);
