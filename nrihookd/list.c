/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of sandboxes.
 *
 * It is the way back after every kind of absence. A runtime sends it to whoever connects, so it
 * brings up what started while nobody listened, and what ended. statd is told of it then, and
 * again whenever statd was restarted; it takes back the devices of sandboxes that are no more,
 * and says which of the others lack devices. Those are attached late. All others that it was
 * told of are known to be in order from then on, and their containers can be created whether
 * statd is there or not.
 *
 * What statd answers is true of when it was asked. A sandbox that something was begun for in the
 * meantime goes by what comes of that.
 */
#include "nrihookd/list.h"

#include "common/log.h"
#include "common/util.h"

/* --- what the runtime lists --------------------------------------------------------------- */

void list_begin(void *ctx)
{
	struct hooks *h = ctx;

	pods_list_begin(&h->pods);
}

/* The list has sandboxes that have stopped and are not removed yet. Such a one has no process,
 * and where none ever has, no namespace. */
static bool lives(const struct hooks *h, const struct nri_pod *told)
{
	struct err ignored;
	cleanup_close int fd = -1;

	if (told->pid != 0 || runtime_tells_pids(h->runtime))
		return told->pid != 0;
	if (told->netns_path)
		fd = pod_netns_open(h->netns, told->netns_path, &ignored);
	return !told->netns_path || fd >= 0;
}

void list_pod(void *ctx, const struct nri_pod *told)
{
	struct hooks *h = ctx;
	struct err err = ERR_INIT;
	struct pod *pod;

	if (!pods_is_kubernetes(told))
		return;
	pod = pods_put(&h->pods, told, &err);
	if (!pod) {
		LOG(WARN, FIELDS(F("pod", told->uid), F("err", err.message)),
			"a sandbox of the runtime's list is left out");
		return;
	}
	if (!pod->ops)
		pod->host_network = !pod->netns_path;
	pods_listed(&h->pods, pod, lives(h, told));
}

void list_end(void *ctx)
{
	struct hooks *h = ctx;

	pods_list_end(&h->pods);
	h->listed = true;
	list_sync(h);
}

/* --- what statd makes of it --------------------------------------------------------------- */

/* Whether something was begun for another sandbox of its pod before this answer came, and was
 * not done when it was asked for: that one is newer, and a late attach would take the devices
 * from it. */
static bool is_replaced(const struct hooks *h, const struct pod *pod, uint64_t begun)
{
	const struct pod *other;

	for (other = h->pods.by_id; other; other = other->hh.next)
		if (other != pod && other->live && str_equal(other->uid, pod->uid) &&
			other->begun <= begun && (other->ops || other->begun > h->synced))
			return true;
	return false;
}

/* begun: the last operation that is not of this answer. */
static void attach_missing(struct hooks *h, const char *sandbox_id, uint64_t begun)
{
	struct pod *pod = pods_get(&h->pods, sandbox_id);

	if (!pod || !pod->asked)
		return;
	if (is_replaced(h, pod, begun))
		hooks_resync(h);
	else
		hooks_attach_late(h, pod);
}

static void on_missing(void *ctx, const struct err *err, const void *result, int *fds UNUSED)
{
	const struct pod_sync_result *missing = result;
	struct hooks *h = ctx;
	const uint64_t begun = h->pods.begun;
	struct pod *pod;

	h->sync = NULL;
	if (err) {
		/* when statd is back it is told again */
		LOG(WARN, FIELDS(F("err", err->message)), "cannot tell statd which pods live");
		hooks_resync(h);
		return;
	}
	for (pod = h->pods.by_id; pod; pod = pod->hh.next)
		if (pod->asked)
			pod->devices = DEVICES_IN_PLACE;
	for (size_t i = 0; i < missing->sandbox_ids.n; i++)
		attach_missing(h, missing->sandbox_ids.v[i], begun);
}

/* A runtime forgets to tell of sandboxes that ended while it was away, but their namespaces end
 * with them. One that cannot be opened for another reason is there. */
static bool is_gone(const struct hooks *h, const struct pod *pod)
{
	struct err err = ERR_INIT;
	cleanup_close int fd = pod_netns_open(h->netns, pod->netns_path, &err);

	return fd < 0 && err.kind == ERR_NOT_FOUND;
}

void list_sync(struct hooks *h)
{
	struct pod_ref *refs;
	struct pod_sync request = {0};

	if (!h->listed || !hook_rpc_conn(h->rpc))
		return;
	if (h->sync)
		rpc_cancel(h->sync);
	h->synced = h->pods.begun;
	refs = request.pods.v = xcalloc(HASH_COUNT(h->pods.by_id), sizeof(*refs));
	for (struct pod *pod = h->pods.by_id; pod; pod = pod->hh.next) {
		bool told = pod->live && !pod->host_network && !is_gone(h, pod);

		pod->asked = told && !pod->ops;
		if (told)
			refs[request.pods.n++] = (struct pod_ref){
				.pod_uid = pod->uid,
				.sandbox_id = pod->sandbox_id,
			};
	}
	h->sync = rpc_start(
		h->loop, hook_rpc_conn(h->rpc), API_POD_SYNC, &request, NULL, 0, on_missing, h);
	free(refs);
}
