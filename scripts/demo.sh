#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# demo.sh BUILD: shows the main job once with the programs in BUILD. On a kernel without the dummy
# driver it does so in a VM.
set -euo pipefail
root=$(dirname "$(dirname "$(realpath "$0")")")
build=$(realpath "${1:-$root/build/release}")

[ "$(id -u)" = 0 ] || { echo "demo.sh: the daemons start as root to drop what they do not need: run it as root" >&2; exit 1; }

if unshare --net ip link add type dummy 2>/dev/null; then
	exec /usr/bin/python3 "$root/scripts/demo.py" "$build"
fi

echo "This machine's kernel has no dummy driver, so the demo runs in a VM with Debian's current kernel"
echo "(emulated, so about ten times slower; the first time it is fetched, which takes a minute or two)."
"$root/scripts/packages.sh" vm
job=$(mktemp -d)
trap 'rm -rf "$job"' EXIT
printf 'exec env PYTHONDONTWRITEBYTECODE=1 NETCLAIM_VM=1 /usr/bin/python3 %q %q\n' "$root/scripts/demo.py" "$build" >"$job/demo"
status=0
NETCLAIM_BUILD=$build "$root/tests/vm/vmtest.sh" "$job/demo" -t 300 || status=$?
[ $status = 77 ] && echo "demo.sh: neither this kernel nor a VM can make a dummy link here" >&2
exit $status
