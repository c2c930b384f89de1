#!/bin/bash
# make coverage: which lines of C the suites named run (all by default), against
# a copy of the server; the pages are then in test-output/coverage/.  Fails when
# less than COVERAGE_MIN percent of the lines are run.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
export PG_CONFIG
. "$root/tools/private-cluster.sh"

"$root/tools/setup.sh" gcovr
private_folder
private_tree "$root"
private_server
private_install '--coverage -O0'
# A process writes its counts when it exits; one that quits at once does not.
cluster=$(dirname "$("$PG_CONFIG" --pgxs)")/../test/perl/PostgreSQL/Test/Cluster.pm
"${as_server_user[@]}" sed -i "s/stop('immediate'/stop('fast'/" "$cluster"

failed=0
[ $# -gt 0 ] || set -- regress isolation tap
"$root/test/run-suites.sh" "$@" || failed=$?
rm -rf "$root/test-output/coverage"
mkdir -p "$root/test-output/coverage"
cd "$private/tree"
gcovr --html-details "$root/test-output/coverage/index.html" --csv "$private/lines.csv" \
    --print-summary --fail-under-line "${COVERAGE_MIN:-95}" >"$private/summary" || failed=$?
awk -F, 'NR > 1 { printf "%3d %%  %s\n", 100 * $4, $1 }' "$private/lines.csv" | sort -n
cat "$private/summary"
exit "$failed"
