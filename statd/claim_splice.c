/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server stores opaque parameters as the bytes that the claim's author sent, and compares them
 * as bytes when somebody writes the claim's status: the allocation, which has them, must not
 * change. But whoever reads the claim as JSON gets them without the white space that they had, and
 * '<' as "\u003c"; what is written back then is another text, and refused as a change of the
 * allocation, whoever asks and whatever else the request is about. An author that prints its JSON
 * with spaces is enough, and some client libraries do. In the binary form the parameters are what
 * is stored.
 *
 * So the object is taken apart only as far as it must be: down to the list of status.devices. All
 * fields but that are copied with their heads, known or not.
 */
#include "statd/claim_splice.h"

#include <pb_decode.h>
#include <pb_encode.h>
#include <string.h>
#include <time.h>

#include "proto/claim.pb.h"

static const char magic[] = {'k', '8', 's', '\0'};

/* Of k8s.io/apimachinery/pkg/runtime.Unknown, resource/v1.ResourceClaim and its status, and
 * meta/v1.ObjectMeta. */
enum {
	UNKNOWN_RAW = 2,
	CLAIM_METADATA = 1,
	CLAIM_STATUS = 3,
	META_UID = 5,
	STATUS_DEVICES = 4,
	DEVICE_DRIVER = 1,
};

/* --- taking apart ------------------------------------------------------------------------- */

struct bytes {
	const uint8_t *data;
	size_t len;
};

/* One field of a message: all of it with its head, and what a text or message has inside. */
struct field {
	uint32_t tag;
	struct bytes whole, inside;
};

/* Takes the next field off the front of *message. 1: there it is; 0: there is none; -1: broken. */
static int next_field(struct bytes *message, struct field *ret)
{
	pb_istream_t in = pb_istream_from_buffer(message->data, message->len);
	pb_wire_type_t type;
	uint32_t len;
	bool eof;

	*ret = (struct field){.whole = *message};
	if (!pb_decode_tag(&in, &type, &ret->tag, &eof))
		return eof ? 0 : -1;
	if (type == PB_WT_STRING) {
		if (!pb_decode_varint32(&in, &len) || len > in.bytes_left)
			return -1;
		ret->inside =
			(struct bytes){message->data + (message->len - in.bytes_left), len};
		if (!pb_read(&in, NULL, len))
			return -1;
	} else if (!pb_skip_field(&in, type)) {
		return -1;
	}
	ret->whole.len = message->len - in.bytes_left;
	*message = (struct bytes){message->data + ret->whole.len, in.bytes_left};
	return 1;
}

/* The last field of this tag, as protobuf has it, or an empty one. */
static struct bytes find_field(struct bytes message, uint32_t tag)
{
	struct bytes found = {0};
	struct field f;

	while (next_field(&message, &f) > 0)
		if (f.tag == tag)
			found = f.inside;
	return found;
}

static bool is_text(struct bytes b, const char *text)
{
	return b.data && b.len == strlen(text) && memcmp(b.data, text, b.len) == 0;
}

/* --- putting together --------------------------------------------------------------------- */

static bool put_bytes(pb_ostream_t *stream, const pb_byte_t *data, size_t len)
{
	buf_put(stream->state, data, len);
	return true;
}

static void put_field(struct buf *to, uint32_t tag, const void *data, size_t len)
{
	pb_ostream_t out = {.callback = put_bytes, .state = to, .max_size = SIZE_MAX};

	(void)pb_encode_tag(&out, PB_WT_STRING, tag);
	(void)pb_encode_string(&out, data, len);
}

static char *text_of(const json_t *object, const char *name)
{
	return (char *)(uintptr_t)json_string_value(json_object_get(object, name));
}

static int64_t seconds_of(const char *rfc3339)
{
	struct tm tm = {0};

	if (!rfc3339 || !strptime(rfc3339, "%Y-%m-%dT%H:%M:%S", &tm))
		return 0;
	return timegm(&tm);
}

static void fill_condition(claim_pb_condition_t *to, const json_t *from)
{
	to->type = text_of(from, "type");
	to->status = text_of(from, "status");
	to->reason = text_of(from, "reason");
	to->message = text_of(from, "message");
	to->observed_generation =
		json_integer_value(json_object_get(from, "observedGeneration"));
	to->has_last_transition_time = true;
	to->last_transition_time.seconds = seconds_of(text_of(from, "lastTransitionTime"));
}

/* Borrows all texts of the entry. */
static void put_device(struct buf *to, const json_t *entry)
{
	const json_t *conditions = json_object_get(entry, "conditions");
	const json_t *data = json_object_get(entry, "data");
	const json_t *network = json_object_get(entry, "networkData");
	cleanup_free char *text = data ? json_dumps(data, JSON_COMPACT) : NULL;
	cleanup_free claim_pb_condition_t *list =
		xcalloc(json_array_size(conditions), sizeof(*list));
	claim_pb_allocated_device_status_t status = {
		.driver = text_of(entry, "driver"),
		.pool = text_of(entry, "pool"),
		.device = text_of(entry, "device"),
		.share_id = text_of(entry, "shareID"),
		.conditions = list,
		.conditions_count = (pb_size_t)json_array_size(conditions),
		.has_data = text != NULL,
		.has_network_data = network != NULL,
	};
	cleanup_buf struct buf encoded = BUF_INIT;
	pb_ostream_t out = {.callback = put_bytes, .state = &encoded, .max_size = SIZE_MAX};

	status.data.raw = text;
	status.network_data.interface_name = text_of(network, "interfaceName");
	for (size_t i = 0; i < status.conditions_count; i++)
		fill_condition(&list[i], json_array_get(conditions, i));
	(void)pb_encode(&out, CLAIM_PB_ALLOCATED_DEVICE_STATUS_FIELDS, &status);
	put_field(to, STATUS_DEVICES, encoded.data, encoded.len);
}

/* --- the claim ---------------------------------------------------------------------------- */

static int broken(struct err *err)
{
	return err_set(err, ERR_INVALID,
		"the API server's answer is no ResourceClaim in its binary form");
}

static int splice_status(struct bytes status, const char *driver_name, const json_t *devices,
	struct buf *ret, struct err *err)
{
	const json_t *entry;
	struct field f;
	int outcome;
	size_t i;

	while ((outcome = next_field(&status, &f)) > 0)
		if (f.tag != STATUS_DEVICES ||
			!is_text(find_field(f.inside, DEVICE_DRIVER), driver_name))
			buf_put(ret, f.whole.data, f.whole.len);
	if (outcome < 0)
		return broken(err);
	json_array_foreach (devices, i, entry)
		put_device(ret, entry);
	return 0;
}

static int splice_claim(struct bytes claim, const char *uid, const char *driver_name,
	const json_t *devices, struct buf *ret, struct err *err)
{
	cleanup_buf struct buf status = BUF_INIT;
	struct field f;
	int outcome;

	if (!is_text(find_field(find_field(claim, CLAIM_METADATA), META_UID), uid))
		return err_set(err, ERR_CONFLICT, "it got replaced meanwhile");
	if (splice_status(find_field(claim, CLAIM_STATUS), driver_name, devices, &status, err) <
		0)
		return -1;
	while ((outcome = next_field(&claim, &f)) > 0)
		if (f.tag != CLAIM_STATUS)
			buf_put(ret, f.whole.data, f.whole.len);
	if (outcome < 0)
		return broken(err);
	put_field(ret, CLAIM_STATUS, status.data, status.len);
	return 0;
}

int claim_splice(const void *object, size_t len, const char *uid, const char *driver_name,
	const json_t *devices, struct buf *ret, struct err *err)
{
	struct bytes envelope = {(const uint8_t *)object + sizeof(magic), len - sizeof(magic)};
	cleanup_buf struct buf claim = BUF_INIT;
	struct field f;
	int outcome;

	if (len < sizeof(magic) || memcmp(object, magic, sizeof(magic)) != 0)
		return broken(err);
	if (splice_claim(find_field(envelope, UNKNOWN_RAW), uid, driver_name, devices, &claim,
		    err) < 0)
		return -1;
	buf_put(ret, magic, sizeof(magic));
	while ((outcome = next_field(&envelope, &f)) > 0)
		if (f.tag != UNKNOWN_RAW)
			buf_put(ret, f.whole.data, f.whole.len);
	if (outcome < 0)
		return broken(err);
	put_field(ret, UNKNOWN_RAW, claim.data, claim.len);
	return 0;
}
