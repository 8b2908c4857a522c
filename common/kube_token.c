/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kubelet writes a new token into a new directory and swaps a symbolic link on the path, so
 * that the file is another one: device and inode tell. Somebody else may write into the same
 * file: size and time tell. Time has a resolution, though: so once a minute it is read whatever
 * it looks like.
 *
 * The file is on this machine, and small: reading it blocks for no time.
 */
#include "common/kube_token.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "common/log.h"
#include "common/util.h"

#define TOKEN_MAX_BYTES  (16u << 10) /* a service account's has 1 to 2 KiB */
#define TOKEN_MAX_AGE_MS 60000

static void wipe(char *text)
{
	if (text)
		explicit_bzero(text, strlen(text));
	free(text);
}

void kube_token_fini(struct kube_token *token)
{
	free(token->path);
	wipe(token->value);
	*token = (struct kube_token){0};
}

static bool is_same_file(const struct kube_token *token, const struct stat *st)
{
	return token->dev == st->st_dev && token->ino == st->st_ino &&
	       token->size == st->st_size && token->mtime.tv_sec == st->st_mtim.tv_sec &&
	       token->mtime.tv_nsec == st->st_mtim.tv_nsec;
}

/* What goes into a header field as it stands: printable, without spaces. */
static int check_text(const char *text, size_t len, struct err *err)
{
	if (len == 0)
		return err_set(err, ERR_UNAVAILABLE, "is empty");
	for (size_t i = 0; i < len; i++)
		if (text[i] <= ' ' || text[i] > '~')
			return err_set(err, ERR_UNAVAILABLE,
				"is no token: byte %zu of it is "
				"no printable character",
				i + 1);
	return 0;
}

/* A token is read by one read(): it is written whole, and this is no pipe. */
static int read_text(int fd, char **ret, struct err *err)
{
	cleanup_free char *text = xcalloc(1, TOKEN_MAX_BYTES + 1);
	ssize_t n = read(fd, text, TOKEN_MAX_BYTES + 1);
	size_t len;

	if (n < 0)
		return err_errno(err, errno, "reading it");
	if (n > TOKEN_MAX_BYTES)
		return err_set(err, ERR_UNAVAILABLE, "is no token: it is longer than %u bytes",
			TOKEN_MAX_BYTES);
	len = (size_t)n;
	while (len > 0 && strchr(" \t\r\n", text[len - 1]) && text[len - 1])
		len--;
	if (check_text(text, len, err) == 0)
		*ret = xmemdup0(text, len);
	explicit_bzero(text, TOKEN_MAX_BYTES);
	return *ret ? 0 : -1;
}

static int read_file(struct kube_token *token, char **ret, struct err *err)
{
	cleanup_close int fd = open(token->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return err_errno(err, errno, "%s", token->path);
	if (!S_ISREG(st.st_mode))
		return err_set(err, ERR_UNAVAILABLE, "%s: is not a regular file", token->path);
	if (read_text(fd, ret, err) < 0)
		return err_wrap(err, "%s", token->path);
	token->dev = st.st_dev;
	token->ino = st.st_ino;
	token->size = st.st_size;
	token->mtime = st.st_mtim;
	token->read_ms = now_ms();
	return 0;
}

static bool is_fresh(const struct kube_token *token)
{
	struct stat st;

	return token->value && now_ms() - token->read_ms < TOKEN_MAX_AGE_MS &&
	       stat(token->path, &st) == 0 && is_same_file(token, &st);
}

static void replace(struct kube_token *token, char *value)
{
	if (!str_equal(token->value, value)) {
		token->generation++;
		wipe(token->value);
		token->value = value;
	} else {
		wipe(value);
	}
	token->complained = false;
}

int kube_token_refresh(struct kube_token *token, bool force, struct err *err)
{
	char *value = NULL;

	if (!token->path || (!force && is_fresh(token)))
		return 0;
	if (read_file(token, &value, err) == 0) {
		replace(token, value);
		return 0;
	}
	(void)err_wrap(err, "the token");
	err->kind = ERR_UNAVAILABLE;
	if (!token->value)
		return -1;
	if (!token->complained)
		LOG(WARN, FIELDS(F("err", err->message)),
			"the token of the API server cannot be read again, the old one is "
			"used");
	token->complained = true;
	return 0;
}
