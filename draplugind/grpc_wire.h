/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The texts and numbers of gRPC over HTTP/2, without any connection: status codes, the timeout
 * header, the escaping of messages, the frame around a protobuf message.
 *
 * Source: "gRPC over HTTP2", grpc/grpc doc/PROTOCOL-HTTP2.md.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/util.h"

/* google/rpc/code.proto; only the codes that are sent from here. */
enum grpc_status {
	GRPC_OK = 0,
	GRPC_UNKNOWN = 2,
	GRPC_INVALID_ARGUMENT = 3,
	GRPC_RESOURCE_EXHAUSTED = 8,
	GRPC_UNIMPLEMENTED = 12,
	GRPC_INTERNAL = 13,
	GRPC_UNAVAILABLE = 14,
};

/* What every gRPC library accepts unless told otherwise, the kubelet's included. */
#define GRPC_MAX_MESSAGE (4u << 20)

/* A message's frame: one byte that is 1 when it is compressed, 4 bytes of length, big endian. */
#define GRPC_PREFIX_LEN 5
struct grpc_prefix {
	uint8_t flag;
	uint32_t len;
};
struct grpc_prefix grpc_prefix_decode(const char data[static GRPC_PREFIX_LEN]);
void grpc_prefix_encode(uint32_t len, uint8_t data[static GRPC_PREFIX_LEN]);

/* "45S", "4999000u": up to 8 digits and one of n u m S M H, in milliseconds rounded up. 0, or -1
 * when it is nothing of the kind. */
int grpc_timeout_parse(const char *text, size_t len, uint64_t *ret_ms);

/* Whether a content-type is gRPC's: application/grpc, alone or followed by + or ; and anything. */
bool grpc_content_type(const char *text, size_t len);

/* Percent-encodes what a grpc-message header may not hold: all outside 0x20..0x7e, and '%'. */
void grpc_message_escape(struct buf *to, const char *text);
