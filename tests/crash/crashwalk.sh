#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# crashwalk.sh [ARGS of crash_walk.py]: the crash walk where there are dummy links, on this machine or
# else in the test VM; with --manager sriov in VMs, whose adapters have virtual functions: a VM has one set of them
# and much to wait for, so several share the walks (NETCLAIM_VMS=3). NETCLAIM_BUILD says which build. All of it takes
# the better part of an hour in a VM without KVM, and more with virtual functions; --every and --offset take a part,
# --containerd another runtime.
set -euo pipefail
tests=$(dirname "$(dirname "$(realpath "$0")")")
# an absolute path stays one
build=$(cd "$tests/.." && realpath "${NETCLAIM_BUILD:-build/release}")
jobs=3
sriov=false
if [[ " $*" = *" --manager"*sriov* ]]; then
	sriov=true
	jobs=1 # there is one set of functions
fi
if [[ " $*" = *" --containerd"* ]]; then
	jobs=2                           # a runtime gives up plugins that get no time to answer
	"$tests/containerd/lab.sh" fetch # there is no network in the VM
fi
walk=(env PYTHONDONTWRITEBYTECODE=1 "NETCLAIM_BUILD=$build" /usr/bin/python3 "$tests/crash/crash_walk.py" --jobs "$jobs" "$@")

if ! $sriov && unshare --net ip link add type dummy 2>/dev/null; then
	exec "${walk[@]}"
fi
# in_vm COMMAND...
in_vm() {
	local command status=0
	command=$(mktemp)
	printf 'exec %s\n' "${*@Q}" >"$command"
	"$tests/vm/vmtest.sh" "$command" -t 21600 || status=$?
	rm -f "$command"
	return $status
}

if ! $sriov || [[ " $*" = *" --every"* ]]; then
	in_vm "${walk[@]}"
	exit
fi
vms=${NETCLAIM_VMS:-3}
started=()
for ((n = 0; n < vms; n++)); do
	in_vm "${walk[@]}" --every "$vms" --offset "$n" > >(sed -u "s/^/vm $n: /") 2>&1 &
	started+=($!)
done
trap 'kill "${started[@]}" 2>/dev/null || true' EXIT
status=0
for pid in "${started[@]}"; do
	wait "$pid" || status=$?
done
exit $status
