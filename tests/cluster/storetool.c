/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One call of the store of a cluster, for a test:
 *
 *	storetool KUBECONFIG NODE DRIVER write  NAMESPACE NAME UID DEVICES
 *	storetool KUBECONFIG NODE DRIVER remove NAMESPACE NAME UID
 *	storetool KUBECONFIG NODE DRIVER list
 *
 * The result is written to standard output, a JSON object a line: {"claim": {…}},
 * {"unreadable": "…"} and {"problem": "…"} of a list, and at the end {"done": true} or
 * {"error": {"kind": "conflict", "message": "…"}}.
 */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/kube.h"
#include "common/log.h"
#include "common/util.h"
#include "statd/store.h"
#include "statd/store_kube.h"

struct tool {
	uv_loop_t loop;
	struct kube_access access;
	struct kube *kube;
	struct store *store;
};

static void say(json_t *line)
{
	(void)json_dumpf(line, stdout, JSON_COMPACT);
	(void)putchar('\n');
	json_decref(line);
}

static void on_done(void *ctx, const struct err *err)
{
	struct tool *tool = ctx;

	say(err ? json_pack("{s:{s:s, s:s}}", "error", "kind", err_kind_info(err->kind)->name,
			  "message", err->message)
		: json_pack("{s:b}", "done", 1));
	store_free(take_ptr(tool->store));
	kube_free(take_ptr(tool->kube));
}

static void on_claim(void *ctx UNUSED, const json_t *claim)
{
	say(json_pack("{s:O}", "claim", claim));
}

static void on_unreadable(void *ctx UNUSED, const char *text)
{
	say(json_pack("{s:s}", "unreadable", text));
}

static void on_problem(void *ctx UNUSED, const char *text)
{
	say(json_pack("{s:s}", "problem", text));
}

static const struct store_listing listing = {
	.claim = on_claim,
	.unreadable = on_unreadable,
	.problem = on_problem,
	.done = on_done,
};

static int usage(void)
{
	(void)fputs("storetool KUBECONFIG NODE DRIVER write|remove|list ...\n", stderr);
	return 2;
}

static int begin(struct tool *tool, int argc, char **argv)
{
	const struct store_ops *ops = tool->store->ops;
	const char *what = argv[4], *driver = argv[3];
	json_t *devices;

	if (strcmp(what, "list") == 0 && argc == 5) {
		ops->list(tool->store, &listing, tool);
	} else if (strcmp(what, "remove") == 0 && argc == 8) {
		const struct claim_ref ref = {argv[5], argv[6], argv[7]};

		ops->remove_status(tool->store, &ref, driver, on_done, tool);
	} else if (strcmp(what, "write") == 0 && argc == 9) {
		const struct claim_ref ref = {argv[5], argv[6], argv[7]};

		devices = json_loads(argv[8], 0, NULL);
		ops->write_status(tool->store, &ref, NULL, driver, devices, on_done, tool);
		json_decref(devices);
	} else {
		return usage();
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct tool tool = {0};
	struct err err;
	int r;

	if (argc < 5)
		return usage();
	log_set_level(LOG_DEBUG);
	(void)signal(SIGPIPE, SIG_IGN);
	(void)uv_loop_init(&tool.loop);
	if (kube_global_init(&err) < 0 ||
		kube_access_file(argv[1], NULL, &tool.access, &err) < 0 ||
		!(tool.kube = kube_new(&tool.loop, &tool.access, &err))) {
		(void)fprintf(stderr, "%s\n", err.message);
		return 1;
	}
	tool.store = store_kube_new(&tool.loop, tool.kube, argv[2]);
	tool.store->driver_name = argv[3];
	r = begin(&tool, argc, argv);
	if (r == 0)
		(void)uv_run(&tool.loop, UV_RUN_DEFAULT);
	kube_access_fini(&tool.access);
	return r;
}
