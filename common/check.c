/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Grammars of single texts.
 *
 * Most are a word: a length and a set of characters, told in one row of data. The others are
 * built from the DNS label. The sets are spelt out, since isalnum() and its kin answer by
 * locale. Texts come from outside: a message quotes at most QUOTE_MAX bytes of one, made fit to
 * print, so that what is wrong with it is still in the message behind it.
 */
#include "common/check.h"

#include <stdio.h>
#include <string.h>

#include "common/api.h"
#include "common/util.h"

#define LOWER "abcdefghijklmnopqrstuvwxyz"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
#define DIGIT "0123456789"

#define IF_NAME_MAX       15  /* IFNAMSIZ - 1: linux/if.h */
#define ALT_IF_NAME_MAX   127 /* ALTIFNAMSIZ - 1: linux/if.h */
#define DNS_LABEL_MAX     63  /* RFC 1123, section 2.1 */
#define DNS_SUBDOMAIN_MAX 253 /* k8s.io/apimachinery, util/validation */
#define DRIVER_NAME_MAX   63  /* ResourceSlice spec.driver */
#define POOL_NAME_MAX     64  /* string value of a device attribute */
#define UID_MAX           63
#define SANDBOX_ID_MAX    128
#define SYSCTL_MAX        255 /* NAME_MAX: it is a file's name */

#define QUOTE_MAX 64

struct quote {
	char text[QUOTE_MAX + sizeof("...")];
};

static const char *quote(const char *text, struct quote *q)
{
	size_t len = strnlen(text, QUOTE_MAX + 1);

	(void)snprintf(q->text, sizeof(q->text), "%.*s%s", QUOTE_MAX, text,
		len > QUOTE_MAX ? "..." : "");
	str_sanitize(q->text);
	return q->text;
}

/* A word of 1 to max bytes, all out of chars. */
struct word {
	const char *what;
	size_t max;
	const char *chars;
	const char *chars_told;
};

static const struct word if_name = {
	.what = "interface name",
	.max = IF_NAME_MAX,
	.chars = LOWER UPPER DIGIT "._-",
	.chars_told = "letters, digits, '.', '_' and '-'",
};
static const struct word uid = {
	.what = "UID",
	.max = UID_MAX,
	.chars = LOWER UPPER DIGIT "-",
	.chars_told = "letters, digits and '-'",
};
static const struct word sandbox_id = {
	.what = "sandbox id",
	.max = SANDBOX_ID_MAX,
	.chars = LOWER UPPER DIGIT "_.-",
	.chars_told = "letters, digits, '_', '.' and '-'",
};

static int check_length(const char *what, const char *text, size_t max, struct err *err)
{
	size_t len = strlen(text);
	struct quote q;

	if (len == 0)
		return err_set(err, ERR_INVALID, "%s is empty: \"\"", what);
	if (len > max)
		return err_set(err, ERR_INVALID, "%s too long: \"%s\" (%zu bytes, at most %zu)",
			what, quote(text, &q), len, max);
	return 0;
}

static int check_word(const struct word *w, const char *text, struct err *err)
{
	struct quote q;

	if (check_length(w->what, text, w->max, err) < 0)
		return -1;
	if (text[strspn(text, w->chars)] != '\0')
		return err_set(err, ERR_INVALID,
			"%s contains invalid characters: \"%s\" (only %s)", w->what,
			quote(text, &q), w->chars_told);
	return 0;
}

static bool is_one_of(const char *text, const char *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(text, list[i]) == 0)
			return true;
	return false;
}

int check_if_name(const char *text, struct err *err)
{
	/* "all" and "default" are directories beside the interfaces' in net.ipv4.conf */
	static const char *const reserved[] = {"lo", ".", "..", "all", "default"};
	struct quote q;

	if (check_word(&if_name, text, err) < 0)
		return -1;
	if (is_one_of(text, reserved, ARRAY_SIZE(reserved)))
		return err_set(err, ERR_INVALID, "interface name \"%s\" is reserved", text);
	if (str_has_prefix(text, "cilium_"))
		return err_set(err, ERR_INVALID,
			"interface name \"%s\" is reserved: it starts with \"cilium_\"",
			quote(text, &q));
	return 0;
}

static int check_existing_name(const char *text, size_t max, struct err *err)
{
	struct quote q;

	if (check_length("interface name", text, max, err) < 0)
		return -1;
	/* 0xa0 is white space to the kernel: lib/ctype.c */
	if (text[strcspn(text, "/: \t\n\v\f\r\xa0")] != '\0' || strcmp(text, ".") == 0 ||
		strcmp(text, "..") == 0 || strcmp(text, "all") == 0 ||
		strcmp(text, "default") == 0)
		return err_set(err, ERR_INVALID, "\"%s\" cannot be an interface's name",
			quote(text, &q));
	return 0;
}

int check_kernel_if_name(const char *text, struct err *err)
{
	return check_existing_name(text, IF_NAME_MAX, err);
}

int check_any_if_name(const char *text, struct err *err)
{
	return check_existing_name(text, ALT_IF_NAME_MAX, err);
}

int check_sysctl_leaf(const char *text, struct err *err)
{
	const char *element = text;
	struct quote q;

	for (;;) {
		size_t len = strspn(element, LOWER UPPER DIGIT "_-");

		if (len == 0 || (element[len] != '\0' && element[len] != '.'))
			return err_set(err, ERR_INVALID,
				"invalid sysctl leaf: \"%s\" (only the part behind the "
				"interface: words of letters, digits, '_' and '-', joined by "
				"dots)",
				quote(text, &q));
		if (element[len] == '\0')
			return 0;
		element += len + 1;
	}
}

/* Whether the text is a path of sysctls that begins with this element. */
static bool begins_with_element(const char *text, const char *element)
{
	size_t len = strlen(element);

	return strncmp(text, element, len) == 0 && text[len] == '.';
}

int check_sysctl_short(const char *text, const char *interface, struct err *err)
{
	static const char *const above[] = {"net", "ipv4", "ipv6", "conf"};
	bool whole = interface && begins_with_element(text, interface);
	struct quote q;

	if (strlen(text) > SYSCTL_MAX)
		return err_set(err, ERR_INVALID,
			"sysctl leaf too long: \"%s\" (%zu bytes, at most %d)", quote(text, &q),
			strlen(text), SYSCTL_MAX);
	for (size_t i = 0; i < ARRAY_SIZE(above); i++)
		whole = whole || begins_with_element(text, above[i]);
	if (!whole)
		return 0;
	return err_set(err, ERR_INVALID,
		"\"%s\" is more than a sysctl of the interface: only the part behind the "
		"interface: %.64s",
		quote(text, &q), strrchr(text, '.') + 1);
}

/* Length of the label that text starts with, 0 if it starts with none:
 * [a-z0-9]([-a-z0-9]*[a-z0-9])? */
static size_t label_span(const char *text)
{
	size_t len = strspn(text, LOWER DIGIT "-");

	if (len == 0 || text[0] == '-' || text[len - 1] == '-')
		return 0;
	return len;
}

static int refuse_label(const char *what, const char *text, struct err *err)
{
	struct quote q;

	return err_set(err, ERR_INVALID,
		"%s is no DNS label: \"%s\" (lower-case letters, digits and '-', which neither "
		"starts "
		"nor ends it)",
		what, quote(text, &q));
}

int check_dns_label(const char *text, struct err *err)
{
	if (check_length("name", text, DNS_LABEL_MAX, err) < 0)
		return -1;
	if (text[label_span(text)] != '\0')
		return refuse_label("name", text, err);
	return 0;
}

/* As Kubernetes has it: the labels of a subdomain have no bound of their own. */
static int check_subdomain(const char *what, const char *text, size_t max, struct err *err)
{
	const char *label = text;
	struct quote q;

	if (check_length(what, text, max, err) < 0)
		return -1;
	for (;;) {
		size_t len = label_span(label);

		if (len == 0 || (label[len] != '\0' && label[len] != '.'))
			return err_set(err, ERR_INVALID,
				"%s is no DNS subdomain: \"%s\" (lower-case letters, digits "
				"and "
				"'-', joined by dots)",
				what, quote(text, &q));
		if (label[len] == '\0')
			return 0;
		label += len + 1;
	}
}

int check_dns_subdomain(const char *text, struct err *err)
{
	return check_subdomain("name", text, DNS_SUBDOMAIN_MAX, err);
}

int check_driver_name(const char *text, struct err *err)
{
	if (check_subdomain("driver name", text, DRIVER_NAME_MAX, err) < 0)
		return -1;
	if (!strchr(LOWER, text[0]))
		return err_set(err, ERR_INVALID,
			"driver name \"%s\" does not start with a letter", text);
	return 0;
}

int check_uid(const char *text, struct err *err)
{
	return check_word(&uid, text, err);
}

/* A namespace has no underscore, nor has a UID. */
int check_claim_dir(const char *text, struct err *err)
{
	const char *name = strchr(text, '_');
	cleanup_free char *namespace = NULL;

	if (!name)
		return check_uid(text, err);
	namespace = xmemdup0(text, (size_t)(name - text));
	if (check_dns_label(namespace, err) < 0)
		return -1;
	return check_dns_subdomain(name + 1, err);
}

int check_request_ref(const char *text, struct err *err)
{
	size_t len = label_span(text), sub_len;

	if (check_length("request", text, 2 * DNS_LABEL_MAX + 1, err) < 0)
		return -1;
	if (len == 0 || len > DNS_LABEL_MAX)
		return refuse_label("request", text, err);
	if (text[len] == '\0')
		return 0;
	sub_len = label_span(text + len + 1);
	if (text[len] != '/' || sub_len == 0 || sub_len > DNS_LABEL_MAX ||
		text[len + 1 + sub_len] != '\0')
		return refuse_label("request", text, err);
	return 0;
}

int check_sandbox_id(const char *text, struct err *err)
{
	return check_word(&sandbox_id, text, err);
}

int check_pool_name(const char *text, struct err *err)
{
	struct quote q;

	if (check_length("pool name", text, POOL_NAME_MAX, err) < 0)
		return -1;
	if (strchr(text, '/'))
		return err_set(err, ERR_INVALID, "pool name contains a slash: \"%s\"",
			quote(text, &q));
	return 0;
}

int check_manager_type(const char *text, struct err *err)
{
	cleanup_buf struct buf known = BUF_INIT;
	struct quote q;

	if (manager_type_parse(text) != MANAGER_INVALID)
		return 0;
	for (int t = 0; t < MANAGER_TYPE_MAX; t++)
		buf_printf(
			&known, "%s%s", t ? ", " : "", manager_type_name((enum manager_type)t));
	return err_set(err, ERR_INVALID, "unknown device manager type: \"%s\" (known: %s)",
		quote(text, &q), known.data);
}
