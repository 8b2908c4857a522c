/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A quantity is digits with at most one point, and a scale: a power of ten (n u m k M G T P E, or
 * an exponent) or of 1024 (Ki Mi Gi Ti Pi Ei). It is brought to billionths in one integer of 128
 * bits, multiplications first, so that only the last division can lose anything.
 */
#include "statd/quantity.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "common/util.h"

__extension__ typedef unsigned __int128 wide;

#define NANO_DIGITS  9
#define NANOS        1000000000u
#define MAX_EXPONENT 18 /* 10^18 is the largest power of ten in an int64 */

struct scale {
	int ten;      /* power of ten */
	unsigned two; /* power of two */
};

static const struct {
	const char *suffix;
	struct scale scale;
} suffixes[] = {
	{"", {0, 0}},
	{"n", {-9, 0}},
	{"u", {-6, 0}},
	{"m", {-3, 0}},
	{"k", {3, 0}},
	{"M", {6, 0}},
	{"G", {9, 0}},
	{"T", {12, 0}},
	{"P", {15, 0}},
	{"E", {18, 0}},
	{"Ki", {0, 10}},
	{"Mi", {0, 20}},
	{"Gi", {0, 30}},
	{"Ti", {0, 40}},
	{"Pi", {0, 50}},
	{"Ei", {0, 60}},
};

static int refuse(const char *text, const char *why, struct err *err)
{
	char shown[QUANTITY_MAX_TEXT + 1];

	(void)snprintf(shown, sizeof(shown), "%.*s", QUANTITY_MAX_TEXT, text);
	str_sanitize(shown);
	return err_set(err, ERR_INVALID, "\"%s\" %s", shown, why);
}

static bool parse_scale(const char *text, struct scale *ret)
{
	int64_t exponent;

	for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
		if (strcmp(text, suffixes[i].suffix) == 0) {
			*ret = suffixes[i].scale;
			return true;
		}
	}
	if (text[0] != 'e' && text[0] != 'E')
		return false;
	text += text[1] == '+' && text[2] != '-' ? 2 : 1;
	if (parse_i64(text, -MAX_EXPONENT - NANO_DIGITS, MAX_EXPONENT, &exponent) < 0)
		return false;
	*ret = (struct scale){.ten = (int)exponent};
	return true;
}

/* Digits with at most one point: the digits as a number, the scale that the point means. Returns
 * what is behind them, NULL if they are none. A text of QUANTITY_MAX_TEXT digits fits. */
static const char *parse_digits(const char *text, wide *ret, int *ret_ten)
{
	size_t n = 0;
	bool point = false;

	*ret = 0;
	*ret_ten = 0;
	for (;; text++) {
		if (*text == '.' && !point) {
			point = true;
		} else if (*text >= '0' && *text <= '9') {
			*ret = *ret * 10 + (unsigned)(*text - '0');
			*ret_ten -= point;
			n++;
		} else {
			return n > 0 ? text : NULL;
		}
	}
}

static bool scale_up(wide *value, struct scale scale)
{
	wide factor = (wide)1 << scale.two;

	for (int i = 0; i < scale.ten; i++)
		factor *= 10; /* at most 10^27 or 2^60 * 10^9 */
	return !__builtin_mul_overflow(*value, factor, value);
}

static void scale_down(wide *value, int digits)
{
	bool rest = false;

	for (int i = 0; i < digits; i++) {
		rest |= *value % 10 > 0;
		*value /= 10;
	}
	*value += rest;
}

int quantity_parse(const char *text, struct quantity *ret, struct err *err)
{
	const char *suffix;
	struct scale scale;
	wide value;
	int ten;

	if (strlen(text) > QUANTITY_MAX_TEXT)
		return refuse(text, "is too long for a quantity", err);
	if (text[0] == '-')
		return refuse(text, "is a negative quantity", err);
	suffix = parse_digits(text + (text[0] == '+'), &value, &ten);
	if (!suffix || !parse_scale(suffix, &scale))
		return refuse(text, "is no quantity", err);
	scale.ten += ten + NANO_DIGITS;
	if (!scale_up(&value, scale))
		return refuse(text, "is too large for a quantity", err);
	scale_down(&value, -scale.ten);
	if (value / NANOS > INT64_MAX)
		return refuse(text, "is too large for a quantity", err);
	*ret = (struct quantity){
		.whole = (uint64_t)(value / NANOS), .nanos = (uint32_t)(value % NANOS)};
	return 0;
}

int quantity_compare(struct quantity a, struct quantity b)
{
	if (a.whole != b.whole)
		return a.whole < b.whole ? -1 : 1;
	return (a.nanos > b.nanos) - (a.nanos < b.nanos);
}
