/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ttrpc's messages and envelopes.
 *
 * A channel's bytes are gathered until a message is whole, and the memory that a long one took
 * is given back as soon as it has been read: a node sends one long message at a start and small
 * ones from then on.
 *
 * A payload is copied by callbacks because nanopb's own bytes end at 64 KiB. Service and method
 * are arrays: a name too long to be one of ours makes the request unreadable, which is as good
 * an answer as an unknown method.
 */
#include "nrihookd/ttrpc.h"

#include <assert.h>
#include <pb_decode.h>
#include <pb_encode.h>
#include <string.h>

#include "nrihookd/bytes.h"
#include "proto/ttrpc.pb.h"

#define KEEP_BYTES (64u << 10) /* memory that an empty reader may hold */

/* --- messages ----------------------------------------------------------------------------- */

void ttrpc_reader_fini(struct ttrpc_reader *r)
{
	buf_fini(&r->in);
	r->taken = 0;
}

static void drop_taken(struct ttrpc_reader *r)
{
	buf_shift(&r->in, r->taken);
	r->taken = 0;
	if (r->in.len == 0 && r->in.cap > KEEP_BYTES)
		buf_fini(&r->in);
}

void ttrpc_feed(struct ttrpc_reader *r, const void *data, size_t len)
{
	drop_taken(r);
	buf_put(&r->in, data, len);
}

int ttrpc_take(struct ttrpc_reader *r, struct ttrpc_message *ret, struct err *err)
{
	const uint8_t *header;
	size_t len;

	drop_taken(r);
	if (r->in.len < TTRPC_HEADER_SIZE)
		return 0;
	header = (const uint8_t *)r->in.data;
	len = be32_get(header);
	if (len > TTRPC_MAX_DATA)
		return err_set(err, ERR_INVALID, "a message of %zu bytes: at most %u can be",
			len, TTRPC_MAX_DATA);
	if (r->in.len < TTRPC_HEADER_SIZE + len)
		return 0;
	*ret = (struct ttrpc_message){
		.stream = be32_get(header + 4),
		.type = header[8],
		.data = header + TTRPC_HEADER_SIZE,
		.len = len,
	};
	r->taken = TTRPC_HEADER_SIZE + len;
	return 1;
}

static void put_message(struct buf *out, uint32_t stream, enum ttrpc_type type,
	const pb_msgdesc_t *desc, const void *envelope)
{
	size_t start = out->len;
	uint8_t header[TTRPC_HEADER_SIZE] = {0};

	buf_put(out, header, sizeof(header));
	ttrpc_put_pb(out, desc, envelope);
	be32_put(header, (uint32_t)(out->len - start - sizeof(header)));
	be32_put(header + 4, stream);
	header[8] = (uint8_t)type;
	memcpy(out->data + start, header, sizeof(header));
}

/* --- protobuf ----------------------------------------------------------------------------- */

static bool write_to_buf(pb_ostream_t *stream, const pb_byte_t *data, size_t len)
{
	buf_put(stream->state, data, len);
	return true;
}

void ttrpc_put_pb(struct buf *out, const pb_msgdesc_t *desc, const void *message)
{
	pb_ostream_t stream = {.callback = write_to_buf, .state = out, .max_size = SIZE_MAX};
	bool ok = pb_encode(&stream, desc, message);

	assert(ok);
	(void)ok;
}

static bool decode_payload(pb_istream_t *stream, const pb_field_t *field UNUSED, void **arg)
{
	struct buf *payload = *arg;

	/* a field that comes twice: the last one counts */
	payload->len = 0;
	buf_reserve(payload, stream->bytes_left);
	payload->len = stream->bytes_left;
	payload->data[payload->len] = '\0';
	return pb_read(stream, (pb_byte_t *)payload->data, stream->bytes_left);
}

static bool encode_payload(pb_ostream_t *stream, const pb_field_t *field, void *const *arg)
{
	const struct buf *payload = *arg;

	if (payload->len == 0)
		return true;
	return pb_encode_tag_for_field(stream, field) &&
	       pb_encode_string(stream, (const pb_byte_t *)payload->data, payload->len);
}

/* --- envelopes ---------------------------------------------------------------------------- */

int ttrpc_request_decode(
	const struct ttrpc_message *message, struct ttrpc_request *ret, struct err *err)
{
	pb_istream_t stream = pb_istream_from_buffer(message->data, message->len);
	ttrpc_pb_request_t envelope = TTRPC_PB_REQUEST_INIT_ZERO;
	cleanup_buf struct buf payload = BUF_INIT;

	envelope.payload.funcs.decode = decode_payload;
	envelope.payload.arg = &payload;
	if (!pb_decode(&stream, TTRPC_PB_REQUEST_FIELDS, &envelope))
		return err_set(err, ERR_INVALID, "a request that cannot be read: %s",
			PB_GET_ERROR(&stream));
	*ret = (struct ttrpc_request){
		.payload = payload,
		.timeout_ns = envelope.timeout_nano,
	};
	payload = (struct buf)BUF_INIT;
	memcpy(ret->service, envelope.service, sizeof(ret->service));
	memcpy(ret->method, envelope.method, sizeof(ret->method));
	return 0;
}

void ttrpc_request_fini(struct ttrpc_request *request)
{
	buf_fini(&request->payload);
}

int ttrpc_response_check(const struct ttrpc_message *message, struct err *err)
{
	pb_istream_t stream = pb_istream_from_buffer(message->data, message->len);
	ttrpc_pb_response_t envelope = TTRPC_PB_RESPONSE_INIT_ZERO;
	int r = 0;

	if (!pb_decode(&stream, TTRPC_PB_RESPONSE_FIELDS, &envelope))
		return err_set(err, ERR_INVALID, "a response that cannot be read: %s",
			PB_GET_ERROR(&stream));
	if (envelope.status.code != TTRPC_OK)
		r = err_set(err, ERR_INTERNAL, "refused with code %d: %s",
			(int)envelope.status.code,
			envelope.status.message ? envelope.status.message : "no reason given");
	pb_release(TTRPC_PB_RESPONSE_FIELDS, &envelope);
	return r;
}

void ttrpc_put_request(struct buf *out, uint32_t stream, const struct ttrpc_request *request)
{
	struct buf payload = request->payload;
	ttrpc_pb_request_t envelope = TTRPC_PB_REQUEST_INIT_ZERO;

	memcpy(envelope.service, request->service, sizeof(envelope.service));
	memcpy(envelope.method, request->method, sizeof(envelope.method));
	envelope.payload.funcs.encode = encode_payload;
	envelope.payload.arg = &payload;
	envelope.timeout_nano = request->timeout_ns;
	put_message(out, stream, TTRPC_REQUEST, TTRPC_PB_REQUEST_FIELDS, &envelope);
}

void ttrpc_put_response(struct buf *out, uint32_t stream, const struct buf *payload)
{
	struct buf result = *payload;
	ttrpc_pb_response_t envelope = TTRPC_PB_RESPONSE_INIT_ZERO;

	envelope.payload.funcs.encode = encode_payload;
	envelope.payload.arg = &result;
	put_message(out, stream, TTRPC_RESPONSE, TTRPC_PB_RESPONSE_FIELDS, &envelope);
}

void ttrpc_put_status(struct buf *out, uint32_t stream, enum ttrpc_code code, const char *text)
{
	cleanup_free char *message = xstrdup(text);
	ttrpc_pb_response_t envelope = TTRPC_PB_RESPONSE_INIT_ZERO;

	envelope.has_status = true;
	envelope.status.code = (int32_t)code;
	envelope.status.message = message;
	put_message(out, stream, TTRPC_RESPONSE, TTRPC_PB_RESPONSE_FIELDS, &envelope);
}
