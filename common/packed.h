/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Objects at rest: an object of any shape in the fewest bytes, for what is kept for long and
 * looked at seldom. A tree of Jansson's takes a kilobyte for what is sixty bytes here.
 *
 * What is packed does not change any more and has one owner, who may free() it. It keeps the
 * order of the members. NULL stands for no object and is taken everywhere.
 */

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/util.h"

struct packed {
	uint32_t len;
	uint8_t bytes[]; /* MessagePack, a map */
};

/* The object's; NULL for NULL. */
struct packed *packed_new(const json_t *object) __attribute__((malloc));
/* The same, and the caller's reference to the object is gone. */
struct packed *packed_take(json_t *object) __attribute__((malloc));
/* Of MessagePack that mp_check() passed, a map. */
struct packed *packed_of_bytes(const void *bytes, size_t len) __attribute__((malloc));
struct packed *packed_copy(const struct packed *p) __attribute__((malloc));
/* A new tree, the caller's; NULL for NULL. */
json_t *packed_open(const struct packed *p);

/* Whether both say the same; the order of members has no meaning. One that a peer wrote with
 * longer heads than it needs equals no other. */
bool packed_equal(const struct packed *a, const struct packed *b);
/* The text that is the member `inner` of the member `outer`, a copy; NULL if there is none. */
char *packed_text(const struct packed *p, const char *outer, const char *inner);
/* How many members the object has; 0 for NULL. */
size_t packed_size(const struct packed *p);
/* How many levels it has: 1 for one without objects or lists in it, 0 for NULL. */
unsigned packed_depth(const struct packed *p);
