/* SPDX-License-Identifier: Apache-2.0 */
#include "common/hello.h"

#include "common/daemon.h"
#include "common/log.h"
#include "common/util.h"

void hello_retry_init(struct hello_retry *h, uv_loop_t *loop)
{
	*h = (struct hello_retry){.pause_ms = HELLO_PAUSE_FIRST_MS};
	(void)uv_timer_init(loop, &h->timer);
	h->timer.data = h;
}

static void on_pause_over(uv_timer_t *timer)
{
	const struct hello_retry *h = timer->data;
	struct rpc_conn *conn = rpc_client_conn(h->client);

	if (conn)
		rpc_conn_close(conn, "trying again what failed");
}

void hello_retry_failed(struct hello_retry *h, struct rpc_client *client, const char *what,
	const struct err *err)
{
	if (!str_equal(h->problem.message, err->message))
		LOG(ERROR, FIELDS(F("err", err->message)), "%s; trying again", what);
	h->problem = *err;
	h->client = client;
	daemon_status("%s: %s", what, err->message);
	(void)uv_timer_start(&h->timer, on_pause_over, h->pause_ms, 0);
	h->pause_ms = MIN(h->pause_ms * 2, HELLO_PAUSE_LAST_MS);
}

void hello_retry_ended(struct hello_retry *h)
{
	(void)uv_timer_stop(&h->timer);
}

void hello_retry_succeeded(struct hello_retry *h)
{
	err_clear(&h->problem);
	h->pause_ms = HELLO_PAUSE_FIRST_MS;
}

void hello_retry_close(struct hello_retry *h)
{
	uv_close((uv_handle_t *)&h->timer, NULL);
}
