#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# get-qemu.sh: installs a QEMU for x86 that emulates SR-IOV (igb: 8.0 and later). Debian 12's own is
# older, but its backports have one.
set -euo pipefail
# shellcheck source=../debian.sh
. "$(dirname "$(realpath "$0")")/../debian.sh"

new_enough() { qemu-system-x86_64 -device help 2>/dev/null | grep -q '"igb"'; }

new_enough && exit 0
[ "$(id -u)" = 0 ] || cannot "QEMU 8.0 or later is missing, and installing it needs root"
say "installing QEMU (about 30 s) ..."
suites=("$codename" "$codename-updates" "$codename-security")
target=$codename
if [ "$codename" = bookworm ]; then
	target=bookworm-backports
	suites+=("$target")
fi
apt_open qemu "${suites[@]}" || cannot "QEMU cannot be had: no package lists for ${suites[*]}"
DEBIAN_FRONTEND=noninteractive "${apt[@]}" -y --no-install-recommends -t "$target" \
	install qemu-system-x86 >/dev/null || cannot "QEMU cannot be installed from $target"
new_enough || cannot "the QEMU that $target has is older than 8.0"
say "$(qemu-system-x86_64 --version | head -1)"
