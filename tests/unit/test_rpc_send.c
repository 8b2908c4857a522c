/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a peer would drop the connection for is not sent: one process is both ends of a socket, and
 * texts are as the kernel and files may have them.
 */
#include <check.h>
#include <string.h>
#include <unistd.h>

#include "common/rpc.h"
#include "tests/unit/unit.h"

#define BAD "eth\xe9"

static struct {
	uv_loop_t loop;
	struct rpc_server *server;
	struct rpc_client *client;
	struct rpc_listen served, called;
	char path[64];
	bool is_open, is_answered;
	int n_closed, n_appeared;
	struct err err; /* of the last answer */
} t;

/* --- both ends ---------------------------------------------------------------------------- */

static char name[] = "eth0", bad[] = BAD;

static void on_devices(
	void *ctx UNUSED, struct rpc_call *call, const void *request UNUSED, int *fds UNUSED)
{
	rpc_reply(call, &(const struct empty){0}, NULL);
}

/* Its answer has what is no text. */
static void on_setup(
	void *ctx UNUSED, struct rpc_call *call, const void *request, int *fds UNUSED)
{
	const struct device_alloc *a = request;
	struct device device = *a->device;
	const struct device_result result = {.device = &device};

	device.if_name = bad;
	rpc_reply(call, &result, NULL);
}

static void on_appeared(void *ctx UNUSED, struct rpc_call *call UNUSED,
	const void *request UNUSED, int *fds UNUSED)
{
	t.n_appeared++;
}

static const struct rpc_service services[] = {
	{API_MANAGER_DEVICES, on_devices},
	{API_DEVICE_SETUP, on_setup},
	{API_MANAGER_APPEARED, on_appeared},
};

static void on_open(void *ctx UNUSED, struct rpc_conn *conn UNUSED)
{
	t.is_open = true;
}

static void on_close(void *ctx UNUSED, struct rpc_conn *conn UNUSED, const char *reason UNUSED)
{
	t.n_closed++;
}

static void set_up(void)
{
	int fd;

	memset(&t, 0, sizeof(t));
	t.served = (struct rpc_listen){.name = "manager.sock",
		.services = services,
		.n_services = ARRAY_SIZE(services),
		.max_conns = 1};
	t.called = (struct rpc_listen){
		.name = "statd", .events = {.on_open = on_open, .on_close = on_close}};
	(void)snprintf(t.path, sizeof(t.path), "/tmp/netclaim-send-%d.sock", (int)getpid());
	ck_assert_int_eq(uv_loop_init(&t.loop), 0);
	fd = rpc_bind(t.path, getgid(), &t.err);
	ck_assert_msg(fd >= 0, "%s", t.err.message);
	t.server = rpc_server_new(&t.loop, &fd, &t.served, NULL);
	t.client = rpc_client_new(&t.loop, t.path, &t.called, NULL);
	while (!t.is_open)
		(void)uv_run(&t.loop, UV_RUN_ONCE);
}

static void tear_down(void)
{
	ck_assert_int_eq(t.n_closed, 0); /* whatever was to be sent */
	rpc_client_free(t.client);
	rpc_server_free(t.server);
	(void)uv_run(&t.loop, UV_RUN_DEFAULT);
	ck_assert_int_eq(uv_loop_close(&t.loop), 0);
	(void)unlink(t.path);
}

static void on_answer(
	void *ctx UNUSED, const struct err *err, const void *result UNUSED, int *fds UNUSED)
{
	t.is_answered = true;
	if (err)
		t.err = *err;
	else
		err_clear(&t.err);
}

static void call(enum api_method method, const void *request)
{
	t.is_answered = false;
	(void)rpc_start(&t.loop, rpc_client_conn(t.client), method, request, NULL, 0, on_answer,
		NULL);
	ck_assert(!t.is_answered); /* callbacks are never called from inside */
	while (!t.is_answered)
		(void)uv_run(&t.loop, UV_RUN_ONCE);
}

static struct device device_of(char *if_name)
{
	return (struct device){.name = name,
		.if_name = if_name,
		.state = packed_take(json_pack("{ss}", "Name", "eth0"))};
}

static void assert_works(void)
{
	const struct device_list none = {0};

	call(API_MANAGER_DEVICES, &none);
	ck_assert_msg(t.err.kind == ERR_NONE, "%s", t.err.message);
}

/* ------------------------------------------------------------------------------------------ */

START_TEST(request_fails_and_names_the_field)
{
	struct device devices[] = {device_of(name), device_of(name), device_of(bad)};
	const struct device_list list = {.devices = {.v = devices, .n = ARRAY_SIZE(devices)}};

	call(API_MANAGER_DEVICES, &list);
	ck_assert_int_eq(t.err.kind, ERR_INVALID);
	ck_assert_str_eq(t.err.message,
		"manager.devices cannot be sent: devices[2].ifName: a text is not UTF-8");
	assert_works();
	for (size_t i = 0; i < ARRAY_SIZE(devices); i++)
		free(devices[i].state);
}
END_TEST

START_TEST(answer_is_an_error_that_names_the_field)
{
	struct device device = device_of(name);
	static char uid[] = "1f0c-uid";
	const struct device_alloc a = {.device = &device, .claim_uid = uid};

	call(API_DEVICE_SETUP, &a);
	ck_assert_int_eq(t.err.kind, ERR_INTERNAL);
	ck_assert_str_eq(t.err.message,
		"the answer to device.setup cannot be sent: device.ifName: a text is not "
		"UTF-8");
	assert_works();
	free(device.state);
}
END_TEST

START_TEST(notification_is_left_out)
{
	const struct device_appeared wrong = {.name = bad}, right = {.name = name};

	rpc_notify(rpc_client_conn(t.client), API_MANAGER_APPEARED, &wrong);
	assert_works();
	ck_assert_int_eq(t.n_appeared, 0);
	rpc_notify(rpc_client_conn(t.client), API_MANAGER_APPEARED, &right);
	assert_works();
	ck_assert_int_eq(t.n_appeared, 1);
}
END_TEST

/* The peer's bound, too. */
START_TEST(request_that_is_too_long_fails)
{
	struct device device = device_of(name);
	struct device_list list = {.devices = {.v = &device, .n = 1}};
	char *long_text = xcalloc(1, 9 << 20);

	memset(long_text, 'x', (9 << 20) - 1);
	strlist_add(&list.notes, long_text);
	strlist_add(&list.notes, long_text);
	call(API_MANAGER_DEVICES, &list);
	ck_assert_int_eq(t.err.kind, ERR_INVALID);
	ck_assert_msg(strstr(t.err.message,
			      "manager.devices cannot be sent: a message may have at most"),
		"%s", t.err.message);
	assert_works();
	strlist_fini(&list.notes);
	free(long_text);
	free(device.state);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("rpc_send");
	TCase *c = tcase_create("sending");

	tcase_add_checked_fixture(c, set_up, tear_down);
	tcase_add_test(c, request_fails_and_names_the_field);
	tcase_add_test(c, answer_is_an_error_that_names_the_field);
	tcase_add_test(c, notification_is_left_out);
	tcase_add_test(c, request_that_is_too_long_fails);
	suite_add_tcase(s, c);
	return s;
}

int main(void)
{
	return unit_run(suite());
}
