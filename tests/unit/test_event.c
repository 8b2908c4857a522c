/* SPDX-License-Identifier: Apache-2.0 */
/* How many Events are sent. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/util.h"
#include "statd/event.h"
#include "tests/unit/unit.h"

#define START 1000000

/* Admitted of n events about different objects, told at once. */
static int burst(struct events *e, int n, uint64_t now, const char *prefix)
{
	int admitted = 0;

	for (int i = 0; i < n; i++) {
		char uid[64];

		(void)snprintf(uid, sizeof(uid), "%s-%d", prefix, i);
		admitted += event_admit(e, uid, EVENT_PREPARE_FAILED, now);
	}
	return admitted;
}

START_TEST(same_thing_is_told_once)
{
	struct events e = {0};

	ck_assert(event_admit(&e, "uid", EVENT_PREPARE_FAILED, START));
	ck_assert(!event_admit(&e, "uid", EVENT_PREPARE_FAILED, START));
	ck_assert(!event_admit(&e, "uid", EVENT_PREPARE_FAILED, START + EVENT_REPEAT_MS - 1));
	ck_assert(event_admit(&e, "uid", EVENT_PREPARE_FAILED, START + EVENT_REPEAT_MS));
	/* another reason, another object */
	ck_assert(event_admit(&e, "uid", EVENT_ATTACH_FAILED, START + EVENT_REPEAT_MS));
	ck_assert(event_admit(&e, "uid2", EVENT_PREPARE_FAILED, START + EVENT_REPEAT_MS));
}
END_TEST

START_TEST(burst_is_bounded_and_fills_again)
{
	struct events e = {0};

	ck_assert_int_eq(burst(&e, 100, START, "a"), EVENT_BURST);
	ck_assert_int_eq(burst(&e, 100, START + EVENT_REFILL_MS - 1, "b"), 0);
	ck_assert_int_eq(burst(&e, 100, START + EVENT_REFILL_MS, "c"), 1);
	ck_assert_int_eq(burst(&e, 100, START + 4 * EVENT_REFILL_MS, "d"), 3);
	/* never more than a full bucket, however long nothing was told */
	ck_assert_int_eq(
		burst(&e, 100, START + 1000 * (uint64_t)EVENT_REFILL_MS, "e"), EVENT_BURST);
}
END_TEST

/* What is refused for one of the two reasons costs nothing of the other. */
START_TEST(refused_ones_do_not_count)
{
	struct events e = {0};

	ck_assert(event_admit(&e, "uid", EVENT_ATTACH_FAILED, START));
	for (int i = 0; i < 1000; i++)
		ck_assert(!event_admit(&e, "uid", EVENT_ATTACH_FAILED, START + 1));
	ck_assert_int_eq(burst(&e, 100, START + 1, "a"), EVENT_BURST - 1);
	ck_assert(!event_admit(&e, "late", EVENT_ATTACH_FAILED, START + 1));
	ck_assert(event_admit(&e, "late", EVENT_ATTACH_FAILED, START + EVENT_REFILL_MS));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("event");
	TCase *tcase = tcase_create("event");

	tcase_add_test(tcase, same_thing_is_told_once);
	tcase_add_test(tcase, burst_is_bounded_and_fills_again);
	tcase_add_test(tcase, refused_ones_do_not_count);
	suite_add_tcase(suite, tcase);
	return unit_run(suite);
}
