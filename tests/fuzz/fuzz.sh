#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh BUILD [TARGET...]: lets each target (all, or those named, without "fuzz_") look for trouble for
# FUZZ_SECONDS, 60 by default. What it learns collects in BUILD/corpus, what it finds in BUILD/findings.
# Ends with status 1 if there was a finding.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
build=$1
shift
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
	for source in "$here"/fuzz_*.c; do
		name=${source##*/fuzz_}
		targets+=("${name%.c}")
	done
fi

failed=()
for target in "${targets[@]}"; do
	corpus=$build/corpus/$target findings=$build/findings/$target
	mkdir -p "$corpus" "$findings"
	echo "=== $target"
	# Inputs stay small: nanopb takes quadratic time for repeated fields where realloc() always moves, as it
	# does under the address sanitizer.
	UBSAN_OPTIONS=print_stacktrace=1 "$build/tests/fuzz/fuzz_$target" -max_total_time="${FUZZ_SECONDS:-60}" \
		-max_len=4096 -timeout=10 -rss_limit_mb=1024 -verbosity=0 -print_final_stats=1 \
		-artifact_prefix="$findings/" "$corpus" "$here/seeds/$target" || failed+=("$target")
done
echo "${#targets[@]} targets, ${#failed[@]} with findings${failed[*]:+: ${failed[*]}}"
[ ${#failed[@]} -eq 0 ]
