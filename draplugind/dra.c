/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call of the kubelet's is a batch of claims, each a piece of work of its own: statd is asked, then
 * files are written or removed, and the batch is answered when its last claim is through. One
 * claim's failure is that claim's entry in the answer and touches no other.
 *
 *	prepare:    statd, then metadata file, CDI specification, answer
 *	unprepare:  statd, then CDI specification, metadata file, answer
 *
 * So a specification never names a file that is not there, and the kubelet never hears of a device
 * whose specification is not in place. A claim whose files cannot be written is not prepared: its
 * containers would start without them. statd keeps what it prepared; the kubelet asks again.
 *
 * Work on one claim is done one after the other in the order in which it came. The kubelet gives up
 * on a slow prepare and may then unprepare; without an order the prepare's files could be written
 * last, and stay.
 *
 * The kubelet checks that the answer names exactly the UIDs of its request. A UID that is named
 * twice is one claim and gets one entry.
 */
#include "draplugind/dra.h"

#include <string.h>
#include <utlist.h>

#include "common/check.h"
#include "common/log.h"
#include "proto/dra.pb.h"

/* With 32 results a claim and what names may be long, the answer stays below the 4 MiB that the
 * kubelet takes. */
#define MAX_CLAIMS 128
/* What is left of the kubelet's deadline when statd's time is up, so that the kubelet hears our
 * reason and not only its own "deadline exceeded". */
#define ANSWER_MS  500

struct batch;

/* What the kubelet is told of a device beyond what statd said. */
struct answer {
	char *request; /* without subrequest */
	char *cdi_id;  /* NULL: the request's first device has it */
};

/* One claim of a batch. */
struct work {
	struct work *prev, *next;
	struct batch *batch;
	struct claim_ref claim; /* of the request, copied */
	char *error;            /* NULL: all is well */
	struct claim_prepare_result prepared;
	struct answer *answers; /* one for each prepared device */
};

/* What is different between preparing and unpreparing. */
struct task {
	enum api_method method;
	const char *done, *failed; /* in logs */
	int (*files)(struct dra *dra, struct work *work, struct err *err);
	void (*reply)(const struct batch *batch);
};

struct batch {
	struct dra *dra;
	struct grpc_call *call;
	const struct task *task;
	bool share_ids; /* v1beta1 knows none */
	struct work *works;
	size_t n_works, n_open;
};

static const struct rec_desc *prepared_desc(void)
{
	return api_method_info(API_CLAIM_PREPARE)->result;
}

/* --- files ----------------------------------------------------------------------------------- */

static int write_request(
	struct dra *dra, struct work *work, const char *request, struct err *err)
{
	const char *uid = work->claim.uid;
	cleanup_free char *host = metadata_host_path(&dra->metadata, &work->claim, request);
	cleanup_free char *container = metadata_container_path(
		&dra->metadata, &work->claim, work->prepared.pod_claim_name, request);

	if (metadata_write(&dra->metadata, &work->claim, &work->prepared, request, err) < 0)
		return -1;
	return cdi_write(&dra->cdi, uid, request, host, container, err);
}

static bool is_first_of_request(const struct work *work, size_t index)
{
	for (size_t i = 0; i < index; i++)
		if (strcmp(work->answers[i].request, work->answers[index].request) == 0)
			return false;
	return true;
}

static int write_files(struct dra *dra, struct work *work, struct err *err)
{
	size_t n = work->prepared.devices.n;

	work->answers = xcalloc(n, sizeof(*work->answers));
	for (size_t i = 0; i < n; i++)
		work->answers[i].request =
			metadata_request(work->prepared.devices.v[i].request);
	for (size_t i = 0; i < n; i++) {
		struct answer *a = &work->answers[i];

		if (!is_first_of_request(work, i))
			continue;
		if (write_request(dra, work, a->request, err) < 0)
			return -1;
		a->cdi_id = cdi_device_id(&dra->cdi, work->claim.uid, a->request);
	}
	return 0;
}

static int remove_files(struct dra *dra, struct work *work, struct err *err)
{
	struct strlist requests = {0};
	int r = metadata_requests(&dra->metadata, &work->claim, &requests, err);

	if (r == 0)
		r = cdi_remove(&dra->cdi, work->claim.uid, &requests, err);
	if (r == 0)
		r = metadata_remove(&dra->metadata, &work->claim, &requests, err);
	strlist_fini(&requests);
	return r;
}

/* --- answers --------------------------------------------------------------------------------- */

static void fill_device(const struct batch *batch, const struct prepared_device *device,
	struct answer *answer, dra_device_t *to)
{
	*to = (dra_device_t){
		.request_names_count = 1,
		.request_names = &answer->request,
		.pool_name = device->pool,
		.device_name = device->device,
		.cdi_device_ids_count = answer->cdi_id ? 1 : 0,
		.cdi_device_ids = &answer->cdi_id,
		.share_id = batch->share_ids ? device->share_id : NULL,
	};
}

static void fill_devices(const struct batch *batch, const struct work *work,
	dra_node_prepare_resource_response_t *to)
{
	size_t n = work->prepared.devices.n;

	to->devices = xcalloc(n, sizeof(*to->devices));
	to->devices_count = (pb_size_t)n;
	for (size_t i = 0; i < n; i++)
		fill_device(batch, &work->prepared.devices.v[i], &work->answers[i],
			&to->devices[i]);
}

static void reply_prepared(const struct batch *batch)
{
	dra_node_prepare_resources_response_t response =
		DRA_NODE_PREPARE_RESOURCES_RESPONSE_INIT_ZERO;

	response.claims = xcalloc(batch->n_works, sizeof(*response.claims));
	response.claims_count = (pb_size_t)batch->n_works;
	for (size_t i = 0; i < batch->n_works; i++) {
		const struct work *work = &batch->works[i];

		response.claims[i].key = work->claim.uid;
		response.claims[i].has_value = true;
		response.claims[i].value.error = work->error;
		if (!work->error)
			fill_devices(batch, work, &response.claims[i].value);
	}
	grpc_reply(batch->call, &response);
	for (size_t i = 0; i < batch->n_works; i++)
		free(response.claims[i].value.devices);
	free(response.claims);
}

static void reply_unprepared(const struct batch *batch)
{
	dra_node_unprepare_resources_response_t response =
		DRA_NODE_UNPREPARE_RESOURCES_RESPONSE_INIT_ZERO;

	response.claims = xcalloc(batch->n_works, sizeof(*response.claims));
	response.claims_count = (pb_size_t)batch->n_works;
	for (size_t i = 0; i < batch->n_works; i++) {
		response.claims[i].key = batch->works[i].claim.uid;
		response.claims[i].has_value = true;
		response.claims[i].value.error = batch->works[i].error;
	}
	grpc_reply(batch->call, &response);
	free(response.claims);
}

/* --- work ------------------------------------------------------------------------------------ */

static void work_start(struct work *work);

static void work_fini(struct work *work)
{
	for (size_t i = 0; work->answers && i < work->prepared.devices.n; i++) {
		free(work->answers[i].request);
		free(work->answers[i].cdi_id);
	}
	free(work->answers);
	rec_fini(prepared_desc(), &work->prepared);
	rec_fini(api_method_info(API_CLAIM_PREPARE)->request, &work->claim);
	free(work->error);
}

static void work_fail(struct work *work, const struct err *err)
{
	work->error = xstrdup(err->message);
	/* the kubelet refuses an answer as a whole that is not UTF-8 */
	str_sanitize(work->error);
}

static void log_work(const struct work *work)
{
	const struct task *task = work->batch->task;
	cleanup_free char *name = xasprintf("%s/%s", work->claim.namespace, work->claim.name);

	if (work->error)
		LOG(WARN,
			FIELDS(F("claim", work->claim.uid), F("name", name),
				F("err", work->error)),
			"%s", task->failed);
	else
		LOG(INFO, FIELDS(F("claim", work->claim.uid), F("name", name)), "%s",
			task->done);
}

/* The kubelet does not wait for the log. */
static void batch_answer(struct batch *batch)
{
	batch->task->reply(batch);
	for (size_t i = 0; i < batch->n_works; i++) {
		log_work(&batch->works[i]);
		work_fini(&batch->works[i]);
	}
	free(batch->works);
	free(batch);
}

/* The oldest work in hand on a claim, NULL if there is none. */
static struct work *first_work(struct dra *dra, const char *uid)
{
	for (struct work *work = dra->works; work; work = work->next)
		if (strcmp(work->claim.uid, uid) == 0)
			return work;
	return NULL;
}

/* Ends a piece of work that was started; what waited for it begins. */
static void work_done(struct work *work)
{
	struct batch *batch = work->batch;
	struct dra *dra = batch->dra;
	struct work *next;

	DL_DELETE(dra->works, work);
	next = first_work(dra, work->claim.uid);
	if (--batch->n_open == 0)
		batch_answer(batch);
	if (next)
		work_start(next);
}

static void on_statd(void *ctx, const struct err *failure, const void *result, int *fds)
{
	struct work *work = ctx;
	struct batch *batch = work->batch;
	struct err err;

	(void)fds;
	if (failure) {
		work_fail(work, failure);
	} else {
		if (batch->task->method == API_CLAIM_PREPARE)
			rec_copy(prepared_desc(), &work->prepared, result);
		if (batch->task->files(batch->dra, work, &err) < 0)
			work_fail(work, &err);
	}
	work_done(work);
}

static void work_start(struct work *work)
{
	const struct batch *batch = work->batch;
	uint64_t left_ms = grpc_call_left_ms(batch->call);

	dra_rpc_start(batch->dra->rpc, batch->task->method, &work->claim,
		left_ms - MIN(left_ms / 2, (uint64_t)ANSWER_MS), on_statd, work);
}

/* --- requests -------------------------------------------------------------------------------- */

/* protobuf does not send empty texts */
static char *text_of(const char *text)
{
	return xstrdup(text ? text : "");
}

static struct work *find_in_batch(const struct batch *batch, const char *uid)
{
	for (size_t i = 0; i < batch->n_works; i++)
		if (strcmp(batch->works[i].claim.uid, uid) == 0)
			return &batch->works[i];
	return NULL;
}

/* Names become names of files. */
static int check_names(const struct claim_ref *claim, struct err *err)
{
	if (check_dns_label(claim->namespace, err) < 0)
		return err_wrap(err, "namespace");
	if (check_dns_subdomain(claim->name, err) < 0)
		return err_wrap(err, "name");
	return 0;
}

static void batch_add(struct batch *batch, const dra_claim_t *wanted)
{
	struct claim_ref claim = {
		text_of(wanted->namespace), text_of(wanted->name), text_of(wanted->uid)};
	struct work *work = find_in_batch(batch, claim.uid);
	struct err err;

	if (work) {
		if (!work->error &&
			(strcmp(work->claim.name, claim.name) != 0 ||
				strcmp(work->claim.namespace, claim.namespace) != 0)) {
			(void)err_set(
				&err, ERR_INVALID, "the request names two claims of this UID");
			work_fail(work, &err);
		}
		rec_fini(api_method_info(API_CLAIM_PREPARE)->request, &claim);
		return;
	}
	work = &batch->works[batch->n_works++];
	work->batch = batch;
	work->claim = claim;
	if (check_names(&claim, &err) < 0)
		work_fail(work, &err);
}

/* What cannot be answered by an entry a claim fails the call. */
static int check_claims(const dra_claim_t *claims, size_t n, struct err *err)
{
	if (n > MAX_CLAIMS)
		return err_set(err, ERR_INVALID, "%zu claims in one call, at most %d are taken",
			n, MAX_CLAIMS);
	for (size_t i = 0; i < n; i++)
		if (check_uid(claims[i].uid ? claims[i].uid : "", err) < 0)
			return err_wrap(err, "UID of a claim");
	return 0;
}

static void batch_start(struct batch *batch)
{
	struct dra *dra = batch->dra;
	size_t n = batch->n_works;

	/* one more, so that the batch is not answered before all its work has begun */
	batch->n_open = 1;
	for (size_t i = 0; i < n; i++) {
		struct work *work = &batch->works[i];
		bool busy;

		if (work->error)
			continue;
		busy = first_work(dra, work->claim.uid) != NULL;
		DL_APPEND(dra->works, work);
		batch->n_open++;
		if (!busy)
			work_start(work);
	}
	if (--batch->n_open == 0)
		batch_answer(batch);
}

static void take_batch(struct dra *dra, struct grpc_call *call, const struct task *task,
	bool share_ids, const dra_claim_t *claims, size_t n)
{
	struct batch *batch;
	struct err err;

	if (check_claims(claims, n, &err) < 0) {
		LOG(WARN, FIELDS(F("err", err.message)), "refusing a call of the kubelet");
		grpc_reply_error(call, GRPC_INVALID_ARGUMENT, err.message);
		return;
	}
	batch = xcalloc(1, sizeof(*batch));
	batch->dra = dra;
	batch->call = call;
	batch->task = task;
	batch->share_ids = share_ids;
	batch->works = xcalloc(n, sizeof(*batch->works));
	for (size_t i = 0; i < n; i++)
		batch_add(batch, &claims[i]);
	batch_start(batch);
}

static const struct task preparing = {
	.method = API_CLAIM_PREPARE,
	.done = "claim prepared",
	.failed = "claim is not prepared",
	.files = write_files,
	.reply = reply_prepared,
};
static const struct task unpreparing = {
	.method = API_CLAIM_UNPREPARE,
	.done = "claim unprepared",
	.failed = "claim is not unprepared",
	.files = remove_files,
	.reply = reply_unprepared,
};

static void prepare_v1(void *ctx, struct grpc_call *call, const void *request)
{
	const dra_node_prepare_resources_request_t *r = request;

	take_batch(ctx, call, &preparing, true, r->claims, r->claims_count);
}

static void prepare_v1beta1(void *ctx, struct grpc_call *call, const void *request)
{
	const dra_node_prepare_resources_request_t *r = request;

	take_batch(ctx, call, &preparing, false, r->claims, r->claims_count);
}

static void unprepare(void *ctx, struct grpc_call *call, const void *request)
{
	const dra_node_unprepare_resources_request_t *r = request;

	take_batch(ctx, call, &unpreparing, false, r->claims, r->claims_count);
}

#define PREPARE_METHOD(version, handler)                                                       \
	GRPC_METHOD("/k8s.io.kubelet.pkg.apis.dra." version ".DRAPlugin/NodePrepareResources", \
		dra_node_prepare_resources_request_t, dra_node_prepare_resources_response_t,   \
		handler)
#define UNPREPARE_METHOD(version)                                                              \
	GRPC_METHOD("/k8s.io.kubelet.pkg.apis.dra." version                                    \
		    ".DRAPlugin/NodeUnprepareResources",                                       \
		dra_node_unprepare_resources_request_t,                                        \
		dra_node_unprepare_resources_response_t, unprepare)

static const struct grpc_method methods[] = {
	PREPARE_METHOD("v1", prepare_v1),
	PREPARE_METHOD("v1beta1", prepare_v1beta1),
	UNPREPARE_METHOD("v1"),
	UNPREPARE_METHOD("v1beta1"),
};
const struct grpc_service dra_service = {
	.name = "dra",
	.methods = methods,
	.n_methods = ARRAY_SIZE(methods),
};

/* --- life ------------------------------------------------------------------------------------ */

void dra_init(struct dra *dra, struct dra_rpc *rpc, const char *driver, const char *kubelet_dir,
	const char *cdi_dir)
{
	struct err err;

	*dra = (struct dra){
		.rpc = rpc,
		.driver = xstrdup(driver),
		.plugin_dir = xasprintf("%s/plugins/%s", kubelet_dir, driver),
	};
	dra->metadata = (struct metadata){.dir = dra->plugin_dir, .driver = dra->driver};
	dra->cdi = (struct cdi){.dir = cdi_dir, .driver = dra->driver};
	if (cdi_clean(&dra->cdi, &err) < 0)
		LOG(WARN, FIELDS(F("err", err.message)),
			"temporary files of an earlier run may be left");
}

void dra_fini(struct dra *dra)
{
	free(dra->driver);
	free(dra->plugin_dir);
}
