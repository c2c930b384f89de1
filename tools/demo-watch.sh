#!/bin/bash
# make demo DEMO=watch: a private server with an application that is busy, seen
# through monitoring/watch.sql, for so many SECONDS_SHOWN.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
seconds=${SECONDS_SHOWN:-60}
. "$root/tools/private-cluster.sh"
private_folder
load=
trap '[ -z "$load" ] || kill "$load" 2>/dev/null || true; wait; private_cleanup' EXIT
echo "Starting a private cluster in $private"
private_start "max_worker_processes = 16" "session_sweeper.max_workers = 3"
export PGDATABASE=app
"$pg_bin/psql" -X -q -d postgres -c 'CREATE DATABASE app'
"$pg_bin/psql" -X -q -f "$root/tools/load.sql"
"$pg_bin/psql" -X -q -c "CALL load($seconds)" </dev/null &
load=$!

# On a terminal each picture begins where the last one did; elsewhere it follows it.
if [ -t 1 ]; then
    every=1 draw=$'s/^session_sweeper in /\033[H\033[J&/'
else
    every=5 draw=
fi
status=0
{ cat "$root/monitoring/watch.sql"; echo "\\watch $every"; } |
    timeout --foreground "$seconds" "$pg_bin/psql" -X -q -A -t -v ON_ERROR_STOP=1 | sed -u "$draw" || status=$?
[ "$status" = 124 ] || exit "$status" # the time is over
echo
echo "In a database of your own: { cat monitoring/watch.sql; echo '\\watch 1'; } | psql -XqAt DATABASE"
