/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of pod sandboxes.
 *
 * A sandbox is remembered from when it starts or is listed until it is removed, or a list lacks
 * it, and all that was to be done for it is done. One that stops without having been heard of
 * is here for the time of its operation only. Losing this memory loses nothing for good: the
 * runtime lists its sandboxes to whoever connects.
 */
#include "nrihookd/pods.h"

#include <assert.h>
#include <limits.h>
#include <string.h>
#include <utlist.h>

#include "common/check.h"
#include "common/util.h"

bool pods_is_kubernetes(const struct nri_pod *told)
{
	struct err ignored;

	return check_uid(told->uid, &ignored) == 0 &&
	       (!*told->name || check_dns_subdomain(told->name, &ignored) == 0) &&
	       (!*told->namespace || check_dns_subdomain(told->namespace, &ignored) == 0);
}

static void pod_free(struct pods *pods, struct pod *pod)
{
	HASH_DEL(pods->by_id, pod);
	free(pod->sandbox_id);
	free(pod->uid);
	free(pod->name);
	free(pod->namespace);
	free(pod->netns_path);
	strlist_fini(&pod->claims);
	free(pod);
}

void pods_fini(struct pods *pods)
{
	struct pod *pod, *tmp;

	assert(pods->n_ops == 0);
	HASH_ITER (hh, pods->by_id, pod, tmp) {
		pod_free(pods, pod);
	}
}

struct pod *pods_get(const struct pods *pods, const char *sandbox_id)
{
	struct pod *pod;

	HASH_FIND_STR(pods->by_id, sandbox_id, pod);
	return pod;
}

static struct pod *pod_new(struct pods *pods, const char *sandbox_id, struct err *err)
{
	struct pod *pod;

	if (HASH_COUNT(pods->by_id) >= PODS_MAX) {
		(void)err_set(err, ERR_BUSY, "%d sandboxes are known already", PODS_MAX);
		return NULL;
	}
	pod = xcalloc(1, sizeof(*pod));
	pod->sandbox_id = xstrdup(sandbox_id);
	HASH_ADD_KEYPTR(hh, pods->by_id, pod->sandbox_id, strlen(pod->sandbox_id), pod);
	return pod;
}

static int check_path(const char *path, struct err *err)
{
	if (path && strlen(path) >= PATH_MAX)
		return err_set(err, ERR_INVALID, "a path of %zu bytes", strlen(path));
	return 0;
}

static void update(char **field, const char *told)
{
	if (!told || !*told || str_equal(*field, told))
		return;
	free(*field);
	*field = xstrdup(told);
}

struct pod *pods_put(struct pods *pods, const struct nri_pod *told, struct err *err)
{
	struct pod *pod;

	if (check_sandbox_id(told->id, err) < 0 || check_path(told->netns_path, err) < 0)
		return NULL;
	pod = pods_get(pods, told->id);
	if (!pod)
		pod = pod_new(pods, told->id, err);
	if (!pod)
		return NULL;
	update(&pod->uid, told->uid);
	update(&pod->name, told->name);
	update(&pod->namespace, told->namespace);
	update(&pod->netns_path, told->netns_path);
	return pod;
}

void pods_drop(struct pods *pods, struct pod *pod)
{
	if (!pod->known && !pod->ops)
		pod_free(pods, pod);
}

/* --- the runtime's list ------------------------------------------------------------------- */

void pods_list_begin(struct pods *pods)
{
	pods->list++;
}

void pods_listed(struct pods *pods, struct pod *pod, bool live)
{
	pod->list = pods->list;
	pod->known = true;
	if (!pod->ops)
		pod->live = live;
}

void pods_list_end(struct pods *pods)
{
	struct pod *pod, *tmp;

	HASH_ITER (hh, pods->by_id, pod, tmp) {
		if (pod->list == pods->list || pod->ops)
			continue;
		pod->known = pod->live = false;
		pods_drop(pods, pod);
	}
}

/* --- operations --------------------------------------------------------------------------- */

struct pod_op *pods_op_add(
	struct pods *pods, struct pod *pod, enum pod_op_kind kind, struct err *err)
{
	struct pod_op *op;

	if (pods->n_ops >= PODS_MAX) {
		(void)err_set(err, ERR_BUSY, "%d operations are under way already", PODS_MAX);
		return NULL;
	}
	op = xcalloc(1, sizeof(*op));
	op->pod = pod;
	op->kind = kind;
	pod->asked = false;
	op->begun = pod->begun = ++pods->begun;
	if (kind == POD_OP_RUN)
		pod->started = op->begun;
	if (!pod->ops)
		DL_APPEND(pods->busy, pod);
	DL_APPEND(pod->ops, op);
	pods->n_ops++;
	return op;
}

struct pod_op *pods_op_done(struct pods *pods, struct pod_op *op)
{
	struct pod *pod = op->pod;

	assert(op == pod->ops && !op->call);
	DL_DELETE(pod->ops, op);
	strlist_fini(&op->claims);
	free(op);
	pods->n_ops--;
	if (pod->ops)
		return pod->ops;
	DL_DELETE(pods->busy, pod);
	pods_drop(pods, pod);
	return NULL;
}
