/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A gRPC server for unary methods, on a Unix socket.
 *
 * A method is a row: its path, the protobuf types of its request and response, its handler. A
 * handler may answer at once or much later, and need not care whether the caller is still there.
 * Everything runs on one libuv loop.
 */

#include <pb.h>
#include <uv.h>

#include "draplugind/grpc_wire.h"

struct grpc_server;
struct grpc_call;

/* Serves one method. request is of the method's type, and borrowed until the handler returns. The
 * call must be answered exactly once, now or later, by grpc_reply() or grpc_reply_error(). */
typedef void grpc_handler(void *ctx, struct grpc_call *call, const void *request);

struct grpc_method {
	const char *path; /* "/package.Service/Method" */
	const pb_msgdesc_t *request;
	size_t request_size;
	const pb_msgdesc_t *response;
	grpc_handler *handle;
};
/* request_ and response_ are nanopb's struct names. */
#define GRPC_METHOD(path_, request_, response_, handle_)                                       \
	{                                                                                      \
		.path = path_, .request = &request_##_msg, .request_size = sizeof(request_),   \
		.response = &response_##_msg, .handle = handle_                                \
	}

struct grpc_service {
	const char *name; /* for logs */
	const struct grpc_method *methods;
	size_t n_methods;
};

/* Takes fd, a listening Unix socket. service is borrowed and must stay; ctx is the handlers', and
 * must stay until the loop is empty. Aborts only when libuv cannot make a handle of fd. */
struct grpc_server *grpc_server_new(
	uv_loop_t *loop, int *fd, const struct grpc_service *service, void *ctx);
/* Stops listening at once and tells clients to go (GOAWAY). Calls that a handler has are still
 * answered; then, or after 30 s whatever happens, the connections are closed. */
void grpc_server_free(struct grpc_server *server);

/* Milliseconds until the caller stops waiting; UINT64_MAX when it named no deadline. */
uint64_t grpc_call_left_ms(const struct grpc_call *call);

/* Each ends the call. response is of the method's type, borrowed. A text may hold anything. */
void grpc_reply(struct grpc_call *call, const void *response);
void grpc_reply_error(struct grpc_call *call, enum grpc_status status, const char *text);
