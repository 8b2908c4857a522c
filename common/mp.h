/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * MessagePack to and from trees, with a guard in front of the unpacker.
 *
 * msgpack-c allocates what a header claims: five bytes can ask for gigabytes. So every message
 * is first walked by a scanner of our own that knows limits and keeps its place between reads;
 * only a complete message that passed is unpacked, and then no more is allocated than a
 * constant times its length.
 *
 * Source: the MessagePack specification (github.com/msgpack/msgpack, spec.md).
 */

#include <jansson.h>

#include "common/err.h"
#include "common/util.h"

#define MP_MAX_DEPTH    16
/* Elements in one message. A tree node takes about 100 bytes, so that one message can cost 100
 * MB at most; the largest honest one, 16384 allocations, is within it. */
#define MP_MAX_ELEMENTS (1u << 20)

/* Where a scan stands. Zero it before each message. */
struct mp_scan {
	size_t at;       /* offset of the next header; may lie beyond what has arrived */
	size_t elements; /* seen so far */
	unsigned depth;
	struct mp_level {
		uint32_t left; /* elements still to come at this level */
		bool map, key; /* in a map; and the next one is a key */
	} level[MP_MAX_DEPTH];
	bool started;
};

/* Goes on with a message of which len bytes are there. 1: complete, and scan->at is its length.
 * 0: more is needed. -1: it is malformed or over a limit. */
int mp_scan(
	struct mp_scan *scan, const void *data, size_t len, size_t max_bytes, struct err *err);

/* Unpacks one whole message that mp_scan() passed. Fails on what no tree can hold: text that is
 * not UTF-8, a map's key twice. */
int mp_decode(const void *data, size_t len, json_t **ret, struct err *err);

/* Appends the tree to out. */
void mp_encode(const json_t *tree, struct buf *out);
