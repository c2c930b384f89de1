#!/bin/bash
# make demo: dead rows of three well-known session tables go, while you watch.
# Here in a private cluster; with --own-server where PGHOST and the like lead,
# in a database of its own.  Fails if a live row is missing or a dead one left.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
last_second=50 # of the whole demo, for a dead row to go
database=session_sweeper_demo

terminal=
if [ -t 0 ] && [ -t 1 ]; then terminal=yes; fi

if [ "${1:-}" = --own-server ]; then
    pg_bin=$("${PG_CONFIG:-pg_config}" --bindir)
    database=${database}_$$
    unset PGOPTIONS PGTZ
else
    . "$root/tools/private-cluster.sh"
    private_folder
    echo "Starting a private cluster in $private"
    private_start "timezone = 'UTC'" "max_worker_processes = 16" "session_sweeper.max_workers = 3"
fi
maintenance=${PGDATABASE:-postgres}
export PGDATABASE=$database

psql() { "$pg_bin/psql" -X -q -v ON_ERROR_STOP=1 "$@"; }
value() { psql -A -t -c "$1"; }
table() { psql -P pager=off -P border=2 -P footer=off -c "$1"; }

case $(PGDATABASE=$maintenance value 'SHOW shared_preload_libraries') in
    *session_sweeper*) ;;
    *)
        echo "demo: this server does not preload the library; put into its postgresql.conf, and restart it:" >&2
        echo "    shared_preload_libraries = 'session_sweeper'" >&2
        exit 1 ;;
esac
if [ -z "${private:-}" ]; then
    # Open connections do not keep the database.
    trap '"$pg_bin/dropdb" --if-exists --force --maintenance-db="$maintenance" "$database"' EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
fi
PGDATABASE=$maintenance psql -c "CREATE DATABASE $database"

echo "Creating the session tables of connect-pg-simple, Django and Spring Session,"
echo "100,000 rows each, 40 % of them past their deadline"
psql -f "$root/tools/demo.sql"

# Two at a pace that can be watched; the third as fast as it goes, in parallel.
while read -r call; do
    echo "SELECT sweeper.adopt($call);"
    psql -o /dev/null -c 'SET client_min_messages = warning' -c "SELECT sweeper.adopt($call)"
done <<'END'
'"session"', start => 'now', backlog_rate => 7000, check_every => '250 ms'
'django_session', start => 'now', backlog_rate => 5000, check_every => '250 ms'
'spring_session', start => 'now', backlog_rate => 0, max_workers => 2
END
echo

picture() {
    table 'TABLE demo_progress'
    value "SELECT string_agg(n || ' ' || backend_type, ', ' ORDER BY backend_type)
           FROM (SELECT backend_type, count(*) AS n FROM sweeper.stat_process GROUP BY 1) AS p"
}
plain() {
    value "SELECT format('%2s s | ', $SECONDS) || string_agg(format('%s: %s live, %s expired, %s rows/s, lag %s, workers %s',
               policy, live, expired, \"rows/s\", lag, workers), ' | ') FROM demo_progress"
}
lines=0
redraw() {
    local now
    now=$(picture)
    [ "$lines" = 0 ] || printf '\033[%dA' "$lines" # to where the last one began
    printf '%s\n' "${now//$'\n'/$'\033[K\n'}"
    lines=$(wc -l <<<"$now")
}
while [ "$(value 'SELECT count(*) FROM demo_row WHERE deadline <= now()')" != 0 ] && [ $SECONDS -lt $last_second ]; do
    if [ -n "$terminal" ]; then redraw; sleep 0.2; else plain; sleep 1; fi
done
if [ -n "$terminal" ]; then redraw; else picture; fi

echo
echo "What was done (sweeper.pass), and three of the events (sweeper.cleanup_event):"
table "SELECT policy, count(*) AS passes, sum(batches) AS batches, max(workers) AS workers, sum(expired) AS expired,
              round(extract(epoch FROM max(coalesce(finished_at, clock_timestamp())) - min(started_at)), 1) AS seconds
       FROM sweeper.pass GROUP BY policy ORDER BY policy"
table "SELECT cleaned_at::time(3), policy, left(key, 12) || '…' AS key, cleanup_type, deadline::timestamptz(0)
       FROM sweeper.cleanup_event ORDER BY cleaned_at DESC LIMIT 3"

if [ "$(value 'SELECT count(*) FROM demo_fault')" != 0 ]; then
    { echo "demo: FAILED"; table 'TABLE demo_fault'; } >&2
    [ -z "${private:-}" ] || tail -n 30 "$private/server.log" >&2
    exit 1
fi
echo "All 120,000 dead rows are gone, each with one event; all 180,000 live rows are there."
echo "sweeper.problem is empty."
connect="$pg_bin/psql"
[ -z "${PGHOST:-}" ] || connect="$connect -h $PGHOST"
[ -z "${PGPORT:-}" ] || connect="$connect -p $PGPORT"
[ -z "${PGUSER:-}" ] || connect="$connect -U $PGUSER"
echo "To connect: $connect $database"
if [ -n "$terminal" ]; then
    read -r -p "Enter ends the demo and removes everything: " _ || true
else
    echo "(On a terminal the demo waits here; now it removes everything.)"
fi
