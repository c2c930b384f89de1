#!/bin/bash
# make demo DEMO=page: a private server with an application that is busy, seen in a
# browser by monitoring/page: until Enter, or without a terminal for SECONDS_SHOWN.
# PORT is where the page is.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
seconds=${SECONDS_SHOWN:-60}
command -v python3 >/dev/null || "$root/tools/setup.sh" python3
. "$root/tools/private-cluster.sh"
private_folder
children=()
trap '[ ${#children[@]} = 0 ] || kill "${children[@]}" 2>/dev/null || true; wait; private_cleanup' EXIT
echo "Starting a private cluster in $private"
private_start "max_worker_processes = 16" "session_sweeper.max_workers = 3"
psql() { "$pg_bin/psql" -X -q -v ON_ERROR_STOP=1 "$@"; }
psql -d postgres -c 'CREATE DATABASE app' -c 'CREATE ROLE page LOGIN'
psql -d app -f "$root/tools/load.sql"
psql -d app -o "$private/out" -c "SELECT sweeper.grant_access('page', 'monitor')"
"$pg_bin/psql" -X -q -d app -c "CALL load(86400)" </dev/null >"$private/load.log" 2>&1 &
children+=($!)
PATH="$pg_bin:$PATH" PGUSER=page "$root/monitoring/page/server.py" --port "${PORT:-8432}" app &
children+=($!)

if [ -t 0 ] && [ -t 1 ]; then
    read -r -p "Enter ends the demo and removes everything." _ || true
else
    # in the background, so that signals are obeyed at once
    timeout "$seconds" tail --pid="${children[1]}" -f /dev/null &
    children+=($!)
    wait "${children[2]}" || [ $? = 124 ]
fi
kill -0 "${children[1]}" # the page is still there
echo "In a database of your own: monitoring/page/server.py DATABASE"
