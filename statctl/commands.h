/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The commands: one table, from which come dispatch, --help and suggestions; and one function each.
 */

#include "common/err.h"
#include "common/util.h"
#include "statctl/output.h"
#include "statctl/statctl.h"

#define EXIT_USAGE     2
#define EXIT_NOT_READY 3

/* Prints what statd says. operand is NULL where there is none. Returns an exit status, or -1 with
 * err. */
typedef int command_run(
	struct statctl *s, enum output_format format, const char *operand, struct err *err);

struct command {
	const char *name;
	const char *operand; /* NULL: takes none; it never has to be there */
	bool json_only;
	const char *help;
	command_run *run;
};

/* NULL and err, with the nearest there is, if there is no such command. */
const struct command *command_find(const char *name, struct err *err);
/* The part of --help that tells them. */
void commands_help(struct buf *out);

command_run run_status, run_devices, run_allocations, run_pools, run_watch, run_statedb;

/* A table's name from what may be short for it: "devices", "allocations". Anything else, NULL too, is
 * returned as it is: statd knows its tables. */
const char *table_name_of(const char *operand);

/* --- how rows are told, in the table and to watchers ------------------------------------------ */

enum alloc_state {
	ALLOC_PREPARING, /* or held because it could not be freed yet */
	ALLOC_RELEASING,
	ALLOC_PREPARED,
	ALLOC_ATTACHING,
	ALLOC_ATTACHED,
	ALLOC_STATE_MAX
};
enum alloc_state alloc_state(const struct alloc_row *a);
const char *alloc_state_name(enum alloc_state state);
/* Its last failure; NULL: there is none. */
const char *alloc_problem(const struct alloc_row *a);
enum tint alloc_tint(const struct alloc_row *a);
/* These are the caller's. "device", or "device/share" as in the row's key. */
char *alloc_device(const struct alloc_row *a);
/* "namespace/name", or the UID if that is all there is. */
char *alloc_claim(const struct alloc_row *a);
