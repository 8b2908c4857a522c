/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * ttrpc: messages in one channel's byte stream, and the envelope of a call.
 *
 * A message is a header of 10 bytes (data length, stream id, type, flags) and its data, a
 * protobuf envelope (containerd/ttrpc PROTOCOL.md). Only unary calls are known here; NRI has no
 * others. Pure computation on bytes: no I/O.
 */

#include <pb.h>
#include <stddef.h>
#include <stdint.h>

#include "common/err.h"
#include "common/util.h"

enum ttrpc_type {
	TTRPC_REQUEST = 1,
	TTRPC_RESPONSE = 2,
};

#define TTRPC_HEADER_SIZE 10
/* The length's first byte is always zero. Senders keep to 4 MiB, except that containerd up to
 * 1.7.25 does not look and does send a longer Synchronize. */
#define TTRPC_MAX_DATA    ((1u << 24) - 1)
#define TTRPC_MAX_NAME    128 /* of a service or method, with the NUL: proto/ttrpc.options */

/* google.rpc.Code, as far as answers need it */
enum ttrpc_code {
	TTRPC_OK = 0,
	TTRPC_INVALID_ARGUMENT = 3,
	TTRPC_RESOURCE_EXHAUSTED = 8,
	TTRPC_FAILED_PRECONDITION = 9,
	TTRPC_UNIMPLEMENTED = 12,
	TTRPC_INTERNAL = 13,
	TTRPC_UNAVAILABLE = 14,
};

/* --- messages ----------------------------------------------------------------------------- */

/* One direction of a channel, received; zeroed at the start of a connection. */
struct ttrpc_reader {
	struct buf in;
	size_t taken; /* bytes at the front that the last message occupied */
};

struct ttrpc_message {
	uint32_t stream;
	uint8_t type; /* enum ttrpc_type, or one to be ignored */
	const uint8_t *data;
	size_t len;
};

void ttrpc_reader_fini(struct ttrpc_reader *r);
void ttrpc_feed(struct ttrpc_reader *r, const void *data, size_t len);
/* The next whole message: 1 and *ret, borrowed until the reader is used again; 0 when more
 * bytes are needed; ERR_INVALID when it is longer than can be, after which the channel is of no
 * use. */
int ttrpc_take(struct ttrpc_reader *r, struct ttrpc_message *ret, struct err *err);

/* --- envelopes ---------------------------------------------------------------------------- */

struct ttrpc_request {
	char service[TTRPC_MAX_NAME], method[TTRPC_MAX_NAME];
	struct buf payload;
	int64_t timeout_ns; /* 0: none was told */
};

int ttrpc_request_decode(
	const struct ttrpc_message *message, struct ttrpc_request *ret, struct err *err);
void ttrpc_request_fini(struct ttrpc_request *request);

/* 0 when the call succeeded; otherwise the error is what the peer's status says, or that the
 * response cannot be read. A result is not looked at. */
int ttrpc_response_check(const struct ttrpc_message *message, struct err *err);

/* Each appends one message. */
void ttrpc_put_request(struct buf *out, uint32_t stream, const struct ttrpc_request *request);
void ttrpc_put_response(struct buf *out, uint32_t stream, const struct buf *payload);
void ttrpc_put_status(struct buf *out, uint32_t stream, enum ttrpc_code code, const char *text);

/* Appends a protobuf message. Ours always can be encoded. */
void ttrpc_put_pb(struct buf *out, const pb_msgdesc_t *desc, const void *message);
