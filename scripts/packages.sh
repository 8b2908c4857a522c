#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# packages.sh build|demo|vm|test: install what building netclaim needs on Debian 12 or 13, or also showing
# it, or doing so in a VM, or testing it. Nothing is touched when everything is there already. Run as root.
set -euo pipefail

build=(gcc make pkg-config libc6-dev libuv1-dev libnghttp2-dev libnanopb-dev nanopb
	protobuf-compiler python3-protobuf libjansson-dev libyaml-dev libcurl4-openssl-dev libc-ares-dev libnl-3-dev
	libnl-genl-3-dev libnl-route-3-dev libcap-ng-dev libseccomp-dev uthash-dev
	libsmartcols-dev scdoc)
demo=(iproute2 util-linux python3-grpcio python3-msgpack)
vm=(busybox-static kmod xz-utils cpio)
tests=(clang clang-tidy cppcheck check libsubunit-dev jq procps strace shellcheck codespell mandoc
	python3-pytest python3-yaml bash-completion git curl openssl python3-h2 nghttp2-server)

missing() {
	local p
	for p in "$@"; do
		[ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || echo "$p"
	done
}

case ${1:-build} in
build) want=("${build[@]}") ;;
demo) want=("${build[@]}" "${demo[@]}") ;;
vm) want=("${vm[@]}") ;;
test) want=("${build[@]}" "${demo[@]}" "${vm[@]}" "${tests[@]}") ;;
*) echo "packages.sh: build, demo, vm or test?" >&2; exit 2 ;;
esac
# msgpack-c is libmsgpack-dev on Debian 12 and libmsgpack-c-dev from 13 on
mapfile -t need < <(missing "${want[@]}")
if ! pkg-config --exists msgpack 2>/dev/null && ! pkg-config --exists msgpack-c 2>/dev/null; then
	need+=(msgpack)
fi
# libclang_rt holds the sanitizers; its package carries clang's version
if [ "${1:-build}" = test ] && ! compgen -G '/usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-*.a' >/dev/null; then
	need+=(libclang-rt)
fi
[ ${#need[@]} -eq 0 ] && exit 0

[ "$(id -u)" = 0 ] || { echo "packages.sh: these are missing and need root to install: ${need[*]}" >&2; exit 1; }
echo "installing ${#need[@]} packages from this machine's own sources ..." >&2
export DEBIAN_FRONTEND=noninteractive
apt-get -qq update
for i in "${!need[@]}"; do
	case ${need[i]} in
	msgpack)
		if apt-cache show libmsgpack-c-dev >/dev/null 2>&1; then need[i]=libmsgpack-c-dev; else need[i]=libmsgpack-dev; fi ;;
	libclang-rt)
		v=$(apt-cache depends clang | sed -n 's/^ *Depends: clang-\([0-9]*\)$/\1/p')
		need[i]=libclang-rt-$v-dev ;;
	esac
done
apt-get -qq -y --no-install-recommends install "${need[@]}" >/dev/null
