/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection of the container runtime's: frames, messages, envelopes and payloads. The first
 * byte says in pieces of which size the bytes come (0: whole), the second how a pod's events are
 * answered. What we say is always whole frames of whole messages, and each event is answered.
 */
#include <assert.h>
#include <string.h>

#include "nrihookd/claims.h"
#include "nrihookd/nri.h"
#include "tests/fuzz/fuzz.h"

enum answer { ANSWER_YES, ANSWER_NO, ANSWER_LATER, ANSWER_MAX };

struct plugin {
	struct nri nri;
	enum answer answer;
	uint32_t held[NRI_MAX_PENDING];
	size_t n_held;
	bool syncing;
};

static void use_pod(const struct nri_pod *pod)
{
	assert(pod->id && pod->uid && pod->name && pod->namespace);
	assert(!pod->netns_path || *pod->netns_path);
}

static char *claim_of(void *ctx UNUSED, const char *source)
{
	return claims_of_mount("/var/lib/kubelet", "fuzz.example", source);
}

static void use_claims(enum nri_event event, const struct strlist *claims)
{
	struct strlist all = {0};

	assert(event == NRI_CREATE || claims->n == 0);
	assert(claims->n <= CLAIMS_MAX);
	claims_add(&all, claims);
	claims_add(&all, claims);
	assert(all.n == claims->n && claims_has(&all, claims));
	for (size_t i = 0; i < claims->n; i++)
		assert(*claims->v[i] && !strchr(claims->v[i], '/'));
	strlist_fini(&all);
	free(claims_format(claims));
}

static void configured(void *ctx UNUSED, const char *runtime, const char *version)
{
	assert(runtime && version);
}

static void sync_begin(void *ctx)
{
	struct plugin *p = ctx;

	assert(!p->syncing);
	p->syncing = true;
}

static void sync_pod(void *ctx, const struct nri_pod *pod)
{
	const struct plugin *p = ctx;

	assert(p->syncing);
	use_pod(pod);
}

static void sync_end(void *ctx)
{
	struct plugin *p = ctx;

	assert(p->syncing);
	p->syncing = false;
}

static void answer_event(struct plugin *p, uint32_t stream, enum answer answer)
{
	struct err err;

	(void)err_set(&err, ERR_BUSY, "not \xff now");
	nri_reply(&p->nri, stream, answer == ANSWER_NO ? &err : NULL);
}

static void pod_event(void *ctx, enum nri_event event, const struct nri_pod *pod,
	uint32_t stream, uint64_t budget_ms UNUSED)
{
	struct plugin *p = ctx;

	assert(event >= NRI_RUN && event <= NRI_CREATE);
	use_pod(pod);
	use_claims(event, &pod->claims);
	if (p->answer == ANSWER_LATER)
		p->held[p->n_held++] = stream;
	else
		answer_event(p, stream, p->answer);
}

static const struct nri_ops ops = {
	.configured = configured,
	.sync_begin = sync_begin,
	.sync_pod = sync_pod,
	.sync_end = sync_end,
	.claim_of = claim_of,
	.pod_event = pod_event,
};

/* How many messages there are; no byte is left over. */
static size_t count_messages(struct ttrpc_reader *reader)
{
	struct ttrpc_message message;
	struct err err;
	size_t n = 0;

	while (ttrpc_take(reader, &message, &err) > 0)
		n++;
	assert(reader->in.len == 0);
	return n;
}

static void check_said(const struct buf *out)
{
	struct ttrpc_reader calls = {0}, replies = {0};
	const uint8_t *at = (const uint8_t *)out->data;
	struct mux mux = {0};
	struct mux_piece piece;
	size_t len = out->len;
	struct err err;
	int r;

	while ((r = mux_take(&mux, &at, &len, &piece, &err)) > 0)
		ttrpc_feed(piece.channel == MUX_RUNTIME ? &calls : &replies, piece.data,
			piece.len);
	assert(r == 0 && mux.left == 0 && mux.header_len == 0);
	assert(count_messages(&calls) == 1); /* RegisterPlugin */
	(void)count_messages(&replies);
	ttrpc_reader_fini(&calls);
	ttrpc_reader_fini(&replies);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct plugin p;
	struct input in = {data, size};
	const size_t step = input_byte(&in);
	struct err err = ERR_INIT;
	int r = 0;

	p = (struct plugin){.answer = (enum answer)(input_byte(&in) % ANSWER_MAX)};
	nri_start(&p.nri, &ops, &p, "fuzz", "10");
	while (r == 0 && in.size > 0) {
		struct input piece = input_piece(&in, step ? step : in.size);

		r = nri_feed(&p.nri, piece.data, piece.size, &err);
	}
	assert(r == 0 || err.kind != ERR_NONE);
	for (size_t i = 0; i < p.n_held; i++)
		answer_event(&p, p.held[i], ANSWER_NO);
	assert(p.nri.pending == 0);
	check_said(&p.nri.out);
	nri_fini(&p.nri);
	return 0;
}
