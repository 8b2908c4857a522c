#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# modelwalk.sh [ARGS of model_walk.py]: the model walk, ten minutes unless --seconds says otherwise. With dummy
# links it runs on this machine, a node a processor; with --manager sriov in the test VM, whose adapters have
# virtual functions. NETCLAIM_BUILD says which build; it has tests/bench/dmgr-standin for kernels without
# dummy links.
set -euo pipefail
tests=$(dirname "$(dirname "$(realpath "$0")")")
# an absolute path stays one
build=$(cd "$tests/.." && realpath "${NETCLAIM_BUILD:-build/release}")
walk=(env PYTHONDONTWRITEBYTECODE=1 "NETCLAIM_BUILD=$build" /usr/bin/python3 "$tests/model/model_walk.py")

if [[ " $*" != *" --manager"*sriov* ]]; then
	exec "${walk[@]}" --jobs "$(nproc)" "$@"
fi
command=$(mktemp)
trap 'rm -f "$command"' EXIT
walk+=("$@")
printf 'exec %s\n' "${walk[*]@Q}" >"$command"
"$tests/vm/vmtest.sh" "$command" -t 3600
