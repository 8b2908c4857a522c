/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Releases of containerd that are not to be told that a sandbox failed.
 *
 * From 2.0 on the sandbox's process runs already when plugins are asked, and the first releases
 * of each line do not stop it when one of them refuses. What stays is a process and a record of
 * the sandbox. After the kubelet's next try, which makes a second record of that name, containerd
 * cannot start any more: "failed to reserve sandbox name" (containerd issues 13355 and 13609,
 * corrected by pull request 13399).
 *
 * A version is read as far as it can be: distributions and builders add to it what they like
 * (1.7.24~ds1, 2.1.9+unknown, v2.1.5-k3s1). A containerd that does not tell its version may be
 * any. The lines of 2.0 and 2.1 ended before the correction: what their next release would do is
 * not known, so the last that was made is the last that is meant here.
 */
#include "nrihookd/release.h"

#include <stddef.h>
#include <strings.h>

#include "common/util.h"

#define MAX_DIGITS 5 /* of a number in a version */

struct version {
	unsigned major, minor, patch;
};

/* Lines of containerd, and how many patch releases of each leak. */
static const struct version leak_before[] = {
	{2, 0, 12},
	{2, 1, 10},
	{2, 2, 6},
	{2, 3, 3},
};

static bool take(const char **at, char c)
{
	if (**at != c)
		return false;
	(*at)++;
	return true;
}

static bool take_number(const char **at, unsigned *ret)
{
	const char *start = *at;

	*ret = 0;
	for (; **at >= '0' && **at <= '9' && *at - start < MAX_DIGITS; (*at)++)
		*ret = *ret * 10 + (unsigned)(**at - '0');
	return *at > start;
}

/* False: not even a line can be made out. */
static bool version_parse(const char *at, struct version *ret)
{
	*ret = (struct version){0};
	(void)take(&at, 'v');
	if (!take_number(&at, &ret->major) || !take(&at, '.') || !take_number(&at, &ret->minor))
		return false;
	if (take(&at, '.'))
		(void)take_number(&at, &ret->patch);
	return true;
}

bool release_leaks_refused(const char *runtime, const char *text)
{
	struct version version;

	if (strcasecmp(runtime, "containerd") != 0)
		return false;
	if (!version_parse(text, &version) || version.major == 0)
		return true;
	for (size_t i = 0; i < ARRAY_SIZE(leak_before); i++)
		if (version.major == leak_before[i].major &&
			version.minor == leak_before[i].minor)
			return version.patch < leak_before[i].patch;
	return false;
}
