# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034 # what is set here is for those who source it
# debian.sh (sourced): packages of any Debian suite, from the mirror that this machine uses already,
# without touching its apt set-up. What is fetched is kept in $cache.

cache=${NETCLAIM_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/netclaim}
codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")

# Tests that end with this status are told as skipped.
SKIP=77

say() { printf '%s: [%3d s] %s\n' "${0##*/}" "$SECONDS" "$*" >&2; }

# cannot REASON: what a test needs is not to be had here
cannot() {
	say "$*"
	exit $SKIP
}

# repository CODENAME: the address of the one in this machine's sources that carries it
repository() {
	# shellcheck disable=SC2016 # the placeholders are apt's
	apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' 2>/dev/null |
		awk -v want="$1" '$2 == want { sub(/\/$/, "", $1); print $1; exit }'
}

# apt_open NAME SUITE...: sets the arrays apt and apt_cache to commands that see these suites
# alone, their lists up to date. Fails if they cannot be had.
apt_open() {
	local dir=$cache/apt/$1 archive security suite from
	shift
	command -v apt-get >/dev/null || return 1
	archive=$(repository "$codename")
	if [ -z "$archive" ]; then # the lists were never fetched
		apt-get -qq update >&2 || return 1
		archive=$(repository "$codename")
	fi
	security=$(repository "$codename-security")
	[ -n "$archive" ] || return 1

	mkdir -p "$dir"/lists/partial "$dir"/cache/archives/partial
	for suite in "$@"; do
		from=$archive
		[[ $suite = *-security ]] && from=$security
		[ -z "$from" ] || echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $from $suite main"
	done >"$dir/sources.list"
	# a mirror that is some weeks behind is as good for tests: the signature still counts
	local options=(-o Dir::Etc::sourcelist="$dir/sources.list" -o Dir::Etc::sourceparts=-
		-o Dir::State::Lists="$dir/lists" -o Dir::Cache="$dir/cache" -o APT::Sandbox::User=root
		-o Acquire::Check-Valid-Until=false -o Acquire::Languages=none
		-o APT::Update::Error-Mode=any)
	apt=(apt-get -qq "${options[@]}")
	apt_cache=(apt-cache "${options[@]}")
	"${apt[@]}" update >&2
}

# unpack_packages DIR PACKAGE...: their files into DIR; apt_open first. Nothing is installed.
unpack_packages() {
	local into debs deb
	into=$(realpath -m "$1")
	shift
	debs=$(mktemp -d)
	if ! (cd "$debs" && "${apt[@]}" download "$@" >&2); then
		rm -r "$debs"
		return 1
	fi
	mkdir -p "$into"
	for deb in "$debs"/*.deb; do dpkg -x "$deb" "$into"; done
	rm -r "$debs"
}
