/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The contract between the daemons as documentation, for people who debug one or write a peer.
 */

#include "statctl/output.h"

/* A row a method; as JSON with the fields of params and result. Needs no statd. Returns the exit
 * status. */
int methods_show(enum output_format format);
