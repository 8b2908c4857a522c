#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fetch-kernel.sh DIR: Debian's newest backported kernel, unpacked into DIR/{vmlinuz,version,modules}.
# The full amd64 flavour: the cloud one lacks 9p, igb and igbvf and boots no faster.
set -euo pipefail
# shellcheck source=../debian.sh
. "$(dirname "$(realpath "$0")")/../debian.sh"

dir=$(realpath -m "$1")
suite=trixie-backports

apt_open kernel "$suite" || cannot "no kernel: the package lists of $suite cannot be had"
version=$("${apt_cache[@]}" depends linux-image-amd64 |
	sed -n 's/^ *Depends: linux-image-\([0-9].*\)/\1/p' | sort -V | tail -1)
[ -n "$version" ] || cannot "no kernel: $suite has no linux-image-amd64"
[ "$(cat "$dir/version" 2>/dev/null)" != "$version" ] || exit 0

say "fetching kernel $version (120 MB) ..."
tree=$dir/unpacking
rm -rf "$tree"
# since 6.19 the files are in linux-binary-V and linux-modules-V, before in linux-image-V
if "${apt_cache[@]}" show "linux-modules-$version" >/dev/null 2>&1; then
	packages=("linux-binary-$version" "linux-modules-$version")
else
	packages=("linux-image-$version")
fi
unpack_packages "$tree" "${packages[@]}" || cannot "no kernel: ${packages[*]} cannot be fetched"
rm -rf "$dir/modules" "$dir/version"
cp "$(find "$tree" -name 'vmlinuz*' -print -quit)" "$dir/vmlinuz"
mv "$(find "$tree" -type d -path "*/modules/$version" -print -quit)/kernel" "$dir/modules"
rm -rf "$tree"
echo "$version" >"$dir/version"
