#!/bin/bash
# make check-valgrind: regression tests under Valgrind, against a copy of a
# PostgreSQL that reports palloc and pfree to it (see
# tools/assert-build.sh).  Any error is a failure.  REGRESS chooses tests; by
# default some that no delay makes give other answers.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
PG_CONFIG=$("$root/tools/assert-build.sh")
export PG_CONFIG
export REGRESS=${REGRESS:-sweep_basics policy_forms sweep_actions heartbeat_basics heartbeat_keys}
. "$root/tools/private-cluster.sh"
suppressions=$("$PG_CONFIG" --bindir)/../valgrind.supp

private_folder
private_tree "$root"
private_server
# A false alarm of the compiler where it optimises less.
private_install -Wno-clobbered
"${as_server_user[@]}" mkdir "$private/reports"
private_wrap valgrind --quiet --leak-check=no --num-callers=30 --suppressions="$suppressions" \
    --error-markers=VALGRINDERROR-BEGIN,VALGRINDERROR-END --log-file="$private/reports/%p"

# Everything takes some 30 times as long.
export PGCTLTIMEOUT=600 PGISOLATIONTIMEOUT=3600 SUITE_TIMEOUT=${SUITE_TIMEOUT:-7200}
failed=0
"$root/test/run-suites.sh" regress || failed=1
for report in "$private"/reports/*; do
    grep -q VALGRINDERROR-BEGIN "$report" || continue
    cat "$report" >&2
    failed=1
done
exit "$failed"
