/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Both ends of a pair of sockets that keep their messages apart: a number to the child, an errno
 * and perhaps a descriptor back.
 */
#include "common/kube_reader.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/child.h"
#include "common/log.h"
#include "common/privileges.h"
#include "common/util.h"

struct kube_reader {
	int fd;
	bool ended; /* the child */
};

/* --- the child ---------------------------------------------------------------------------- */

static const char *const syscalls[] = {"close_range"};

static const struct privileges privileges = {
	.program = "the reader of certificates",
	.syscalls = syscalls,
	.n_syscalls = ARRAY_SIZE(syscalls),
	.reads_files = true,
	.max_fds = 16,
};

static int send_answer(int fd, int sys, int file)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec iov = {&sys, sizeof(sys)};
	struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};

	if (file >= 0) {
		message.msg_control = control.space;
		message.msg_controllen = sizeof(control.space);
		control.head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)),
			.cmsg_level = SOL_SOCKET,
			.cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(&control.head), &file, sizeof(file));
	}
	return sendmsg(fd, &message, MSG_NOSIGNAL) < 0 ? -1 : 0;
}

static int serve(int fd, const char *const *paths, size_t n_paths)
{
	for (;;) {
		cleanup_close int file = -1;
		unsigned number;
		ssize_t n;
		int sys;

		do
			n = recv(fd, &number, sizeof(number), 0);
		while (n < 0 && errno == EINTR);
		if (n != sizeof(number) || number >= n_paths || !paths[number])
			return 0;
		/* opening a FIFO must not wait for its writer */
		file = open(paths[number], O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
		sys = file < 0 ? errno : 0;
		if (send_answer(fd, sys, file) < 0)
			return 0;
	}
}

struct files {
	const char *const *paths;
	size_t n_paths;
};

static int run_child(int fd, void *ctx)
{
	const struct files *files = ctx;
	struct err err = ERR_INIT;

	if (privileges_drop(&privileges, NULL, &err) < 0 ||
		privileges_confine(&privileges, &err) < 0) {
		LOG(ERROR, FIELDS(F("err", err.message)),
			"certificates cannot be read again when they are replaced");
		return 1;
	}
	/* what the parent had open is none of its business */
	if (dup2(fd, STDERR_FILENO + 1) < 0 || close_range(STDERR_FILENO + 2, ~0U, 0) < 0)
		return 1;
	return serve(STDERR_FILENO + 1, files->paths, files->n_paths);
}

struct kube_reader *kube_reader_start(
	const char *const *paths, size_t n_paths, struct err *err)
{
	const int fd = child_start(run_child, &(struct files){paths, n_paths}, err);
	struct kube_reader *reader;

	if (fd < 0)
		return NULL;
	reader = xcalloc(1, sizeof(*reader));
	reader->fd = fd;
	return reader;
}

/* --- asking it ---------------------------------------------------------------------------- */

void kube_reader_free(struct kube_reader *reader)
{
	if (!reader)
		return;
	close_fd(&reader->fd);
	free(reader);
}

int kube_reader_fd(const struct kube_reader *reader)
{
	return reader->ended ? -1 : reader->fd;
}

static int no_child(struct kube_reader *reader, struct err *err)
{
	reader->ended = true;
	return err_set(err, ERR_UNAVAILABLE, "the process that reads it has ended");
}

int kube_reader_ask(struct kube_reader *reader, unsigned path, struct err *err)
{
	if (reader->ended || send(reader->fd, &path, sizeof(path), MSG_NOSIGNAL) < 0)
		return no_child(reader, err);
	return 0;
}

int kube_reader_take(struct kube_reader *reader, int *ret_fd, struct err *err)
{
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} control = {0};
	int sys = 0, file = -1;
	struct iovec iov = {&sys, sizeof(sys)};
	struct msghdr message = {.msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control.space,
		.msg_controllen = sizeof(control.space)};
	ssize_t n;

	if (reader->ended)
		return no_child(reader, err);
	do
		n = recvmsg(reader->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0 && errno == EAGAIN)
		return 1;
	if (n == sizeof(sys) && message.msg_controllen >= CMSG_LEN(sizeof(int)) &&
		control.head.cmsg_type == SCM_RIGHTS)
		memcpy(&file, CMSG_DATA(&control.head), sizeof(file));
	if (n != sizeof(sys) || (sys == 0 && file < 0)) {
		close_fd(&file);
		return no_child(reader, err);
	}
	if (sys)
		return err_errno(err, sys, "opening it");
	*ret_fd = file;
	return 0;
}
