/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The client of the API server, driven by a test: commands come on standard input, a JSON
 * object a line, and what the client tells goes to standard output likewise.
 *
 *	{"id": 1, "do": "get", "path": "/api/v1/nodes/n1"}
 *	{"id": 1, "object": {…}}
 *	{"id": 2, "do": "watch", "path": "/api/v1/nodes", "pageSize": 2}
 *	{"id": 2, "told": "begin"} {"id": 2, "told": "added", "object": {…}} …
 *	{"id": 2, "do": "stop"}
 *	{"id": 3, "do": "list", "path": "/api/v1/nodes", "pageSize": 2, "close": true}
 *
 * It ends when standard input does.
 */
#include <assert.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "common/cli.h"
#include "common/kube.h"
#include "common/log.h"
#include "common/privileges.h"
#include "common/util.h"

#define MAX_COMMAND (16u << 20)

struct options {
	const char *kubeconfig, *context, *service_account;
	bool confine;
};

struct tool {
	uv_loop_t loop;
	uv_poll_t input;
	struct buf bytes;
	struct kube *kube;
	struct job *jobs;
};

/* One command under way. */
struct job {
	struct tool *tool;
	json_int_t id;
	struct kube_call *call;
	struct kube_list *list;
	struct kube_watch *watch;
	bool closes; /* the client is closed from within what is told next */
	struct job *next;
};

/* --- what is told ------------------------------------------------------------------------- */

/* Takes line. */
static void say(struct job *job, json_t *line)
{
	struct tool *tool = job->tool;
	bool closes = job->closes;

	(void)json_object_set_new(line, "id", json_integer(job->id));
	(void)json_dumpf(line, stdout, JSON_COMPACT);
	(void)putchar('\n');
	(void)fflush(stdout);
	json_decref(line);
	if (!closes)
		return;
	job->closes = false;
	kube_free(take_ptr(tool->kube));
}

static json_t *error_json(const struct kube_error *error)
{
	return json_pack("{s:s, s:s, s:i, s:s, s:I}", "kind",
		err_kind_info(error->err.kind)->name, "message", error->err.message, "status",
		error->status, "reason", error->reason, "retryAfterMs",
		(json_int_t)error->retry_after_ms);
}

static void job_free(struct job *job)
{
	struct job **at = &job->tool->jobs;

	while (*at != job)
		at = &(*at)->next;
	*at = job->next;
	free(job);
}

static void on_answer(void *ctx, const struct kube_error *error, const json_t *object)
{
	struct job *job = ctx;

	say(job, error ? json_pack("{s:o}", "error", error_json(error))
		       : json_pack("{s:O}", "object", object));
	job_free(job);
}

static void on_each(void *ctx, const json_t *object)
{
	say(ctx, json_pack("{s:s, s:O}", "told", "each", "object", object));
}

static void on_listed(void *ctx, const struct kube_error *error, const char *resource_version)
{
	struct job *job = ctx;

	say(job, error ? json_pack("{s:o}", "error", error_json(error))
		       : json_pack("{s:s}", "listed", resource_version));
	job_free(job);
}

static void on_begin(void *ctx)
{
	say(ctx, json_pack("{s:s}", "told", "begin"));
}

static void on_event(void *ctx, enum kube_event event, const json_t *object)
{
	static const char *const names[] = {"added", "modified", "deleted"};

	say(ctx, json_pack("{s:s, s:O}", "told", names[event], "object", object));
}

static void on_synced(void *ctx)
{
	say(ctx, json_pack("{s:s}", "told", "synced"));
}

static void on_failed(void *ctx, const struct kube_error *error, uint64_t retry_ms)
{
	say(ctx, json_pack("{s:s, s:o, s:I}", "told", "failed", "error", error_json(error),
			 "retryMs", (json_int_t)retry_ms));
}

static const struct kube_watch_ops watch_ops = {
	.begin = on_begin, .event = on_event, .synced = on_synced, .failed = on_failed};

/* --- what is done ------------------------------------------------------------------------- */

static const char *text(const json_t *command, const char *key)
{
	return json_string_value(json_object_get(command, key));
}

static unsigned number(const json_t *command, const char *key)
{
	return (unsigned)json_integer_value(json_object_get(command, key));
}

static void do_request(struct job *job, const json_t *command)
{
	const struct kube_request request = {
		.method = text(command, "method"),
		.path = text(command, "path"),
		.query = text(command, "query"),
		.content_type = text(command, "contentType"),
		.body = json_object_get(command, "body"),
		.max_bytes = number(command, "maxBytes"),
		.timeout_ms = number(command, "timeoutMs"),
	};

	job->call = kube_start(job->tool->kube, &request, on_answer, job);
}

static void do_get(struct job *job, const json_t *command)
{
	job->call = kube_get(job->tool->kube, text(command, "path"), on_answer, job);
}

static void do_create(struct job *job, const json_t *command)
{
	job->call = kube_create(job->tool->kube, text(command, "path"),
		json_object_get(command, "body"), on_answer, job);
}

static void do_replace(struct job *job, const json_t *command)
{
	job->call = kube_replace(job->tool->kube, text(command, "path"),
		json_object_get(command, "body"), on_answer, job);
}

static void do_delete(struct job *job, const json_t *command)
{
	job->call = kube_delete(job->tool->kube, text(command, "path"), text(command, "uid"),
		text(command, "resourceVersion"), on_answer, job);
}

static void do_apply(struct job *job, const json_t *command)
{
	job->call = kube_apply(job->tool->kube, text(command, "path"), text(command, "manager"),
		json_object_get(command, "body"), on_answer, job);
}

static void do_list(struct job *job, const json_t *command)
{
	job->list = kube_list_start(job->tool->kube, text(command, "path"),
		text(command, "query"), number(command, "pageSize"), on_each, on_listed, job);
}

static void do_watch(struct job *job, const json_t *command)
{
	job->watch = kube_watch_new(job->tool->kube, text(command, "path"),
		text(command, "query"), number(command, "pageSize"), &watch_ops, job);
}

static const struct {
	const char *name;
	void (*run)(struct job *job, const json_t *command);
} actions[] = {
	{"request", do_request},
	{"get", do_get},
	{"create", do_create},
	{"replace", do_replace},
	{"delete", do_delete},
	{"apply", do_apply},
	{"list", do_list},
	{"watch", do_watch},
};

static void stop(struct job *job)
{
	kube_cancel(job->call);
	kube_list_cancel(job->list);
	kube_watch_free(job->watch);
	job_free(job);
}

static void stop_id(const struct tool *tool, json_int_t id)
{
	for (struct job *job = tool->jobs; job; job = job->next)
		if (job->id == id) {
			stop(job);
			return;
		}
}

static void run(struct tool *tool, const json_t *command)
{
	json_int_t id = json_integer_value(json_object_get(command, "id"));
	const char *name = text(command, "do");
	struct job *job;

	assert(name);
	if (strcmp(name, "stop") == 0) {
		stop_id(tool, id);
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(actions); i++)
		if (strcmp(name, actions[i].name) == 0) {
			job = xcalloc(1, sizeof(*job));
			*job = (struct job){
				.tool = tool,
				.id = id,
				.closes = json_is_true(json_object_get(command, "close")),
				.next = tool->jobs,
			};
			tool->jobs = job;
			actions[i].run(job, command);
			return;
		}
	abort(); /* a test that asks for what there is not */
}

/* --- input -------------------------------------------------------------------------------- */

static void finish(struct tool *tool)
{
	struct job *job;

	uv_close((uv_handle_t *)&tool->input, NULL);
	kube_free(tool->kube);
	while ((job = tool->jobs))
		stop(job);
}

static void on_input(uv_poll_t *poll, int status, int events)
{
	struct tool *tool = poll->data;
	char *newline;
	ssize_t n;

	(void)status;
	(void)events;
	buf_reserve(&tool->bytes, 65536);
	n = read(STDIN_FILENO, tool->bytes.data + tool->bytes.len, 65536);
	if (n <= 0) {
		finish(tool);
		return;
	}
	tool->bytes.len += (size_t)n;
	assert(tool->bytes.len < MAX_COMMAND);
	while ((newline = memchr(tool->bytes.data, '\n', tool->bytes.len))) {
		size_t len = (size_t)(newline - tool->bytes.data);
		json_t *command = json_loadb(tool->bytes.data, len, 0, NULL);

		buf_shift(&tool->bytes, len + 1);
		run(tool, command);
		json_decref(command);
	}
}

/* --- the whole ---------------------------------------------------------------------------- */

static const struct cli_option options_table[] = {
	{.name = "kubeconfig",
		.type = CLI_PATH,
		.offset = offsetof(struct options, kubeconfig),
		.arg = "FILE",
		.doc = "how to reach the server"},
	{.name = "context",
		.type = CLI_TEXT,
		.offset = offsetof(struct options, context),
		.arg = "NAME",
		.doc = "of the kubeconfig"},
	{.name = "service-account",
		.type = CLI_PATH,
		.offset = offsetof(struct options, service_account),
		.arg = "DIR",
		.doc = "without a kubeconfig: where the kubelet puts token and authority"},
	{.name = "confine",
		.type = CLI_FLAG,
		.offset = offsetof(struct options, confine),
		.doc = "only the system calls that the client is said to need"},
};

static const struct cli cli = {
	.program = "kubetool",
	.summary = "drive the client of the API server",
	.options = options_table,
	.n_options = ARRAY_SIZE(options_table),
};

static const char *const syscalls[] = {KUBE_SYSCALLS};
static const struct privileges privileges = {
	.program = "kubetool", .syscalls = syscalls, .n_syscalls = ARRAY_SIZE(syscalls)};

static int open_access(const struct options *options, struct kube_access *ret, struct err *err)
{
	if (options->kubeconfig)
		return kube_access_file(options->kubeconfig, options->context, ret, err);
	return kube_access_in_cluster(options->service_account, ret, err);
}

static int start(struct tool *tool, const struct options *options, struct err *err)
{
	struct kube_access access;

	if (open_access(options, &access, err) < 0)
		return -1;
	if (kube_global_init(err) == 0 &&
		(!options->confine || privileges_confine(&privileges, err) == 0)) {
		(void)uv_loop_init(&tool->loop);
		tool->kube = kube_new(&tool->loop, &access, err);
	}
	kube_access_fini(&access);
	return tool->kube ? 0 : -1;
}

int main(int argc, char **argv)
{
	struct options options = {0};
	struct err err = ERR_INIT;
	struct tool tool = {0};
	int first;

	cli_parse(&cli, argc, argv, &options, &first);
	log_init("kubetool", LOG_DEBUG);
	json_object_seed(0);
	(void)signal(SIGPIPE, SIG_IGN);
	if (start(&tool, &options, &err) < 0) {
		(void)fprintf(stderr, "%s\n", err.message);
		return 1;
	}
	tool.input.data = &tool;
	(void)uv_poll_init(&tool.loop, &tool.input, STDIN_FILENO);
	(void)uv_poll_start(&tool.input, UV_READABLE, on_input);
	(void)uv_run(&tool.loop, UV_RUN_DEFAULT);
	buf_fini(&tool.bytes);
	return uv_loop_close(&tool.loop) == 0 ? 0 : 1;
}
