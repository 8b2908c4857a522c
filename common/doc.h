/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Text documents: YAML or JSON text into a json_t tree that remembers its lines.
 *
 * YAML is read with libyaml's event parser by the rules of the Kubernetes world: the core
 * schema's plain scalars become null, booleans (true/false only), integers and floats; quoted
 * ones stay text. Plain ones that YAML 1.1 and 1.2 read differently (yes, off, 0123, 1_000) are
 * refused, as are numbers that JSON cannot hold. Anchors, aliases, tags and merge keys are
 * refused: an alias can blow up a small file, and no manifest needs one. Duplicate keys are
 * refused. Keys are texts, as they stand. Sizes and nesting are bounded.
 */

#include <jansson.h>

#include "common/err.h"
#include "common/rec.h"

#define DOC_MAX_BYTES (4u << 20) /* a Kubernetes object is at most 1.5 MiB in etcd */
#define DOC_MAX_DEPTH 64

struct doc;

/* text need not be NUL-terminated. name is what errors call it, usually the file's path. A text
 * whose first character but white space is '{' is taken for JSON. Exactly one document must be
 * there, and not null. ERR_INVALID names line and column: "NAME:LINE:COLUMN: what is wrong". */
int doc_parse(
	const char *name, const char *text, size_t len, struct doc **ret, struct err *err);
/* Reads and parses a regular file; ERR_NOT_FOUND when there is none. */
int doc_read(const char *path, struct doc **ret, struct err *err);
/* The same with a mask and an owner (json_mask.h): the document is what stays. What would be
 * refused of a value or a key is refused only there, a text without syntax everywhere. */
struct json_mask;
int doc_parse_masked(const char *name, const char *text, size_t len,
	const struct json_mask *mask, const char *owner, struct doc **ret, struct err *err);
int doc_read_masked(const char *path, const struct json_mask *mask, const char *owner,
	struct doc **ret, struct err *err);
void doc_free(struct doc *doc);

json_t *doc_root(const struct doc *doc); /* borrowed */
const char *doc_name(const struct doc *doc);
/* For rec_decode(); NULL for NULL. Borrowed. */
const struct rec_source *doc_source(const struct doc *doc);
/* The line (from 1) where this node of the document starts; 0 for true, false and null, which
 * Jansson has once only, for all nodes of JSON, and for what is no node of this document. */
unsigned doc_line(const struct doc *doc, const json_t *node);
