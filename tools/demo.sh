#!/bin/bash
# make demo: dead rows of three well-known session tables go, in front of you.
# A private cluster in a temporary folder; with PGHOST, a server of your own.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
own_server=${PGHOST:-} own_port=${PGPORT:-} own_user=${PGUSER:-}
. "$root/tools/private-cluster.sh"
psql=("$pg_bin/psql" -X -q -v ON_ERROR_STOP=1)
seconds=60 # the demo ends by itself within this time
database=sweeper_demo_$$

cleanup() {
    if [ -n "$own_server" ]; then "$pg_bin/dropdb" --if-exists "$database" || true; else private_cleanup; fi
}

if [ -n "$own_server" ]; then
    export PGHOST=$own_server
    [ -z "$own_port" ] || export PGPORT=$own_port
    [ -z "$own_user" ] || export PGUSER=$own_user
    [ "$("${psql[@]}" -At -d postgres -c "SELECT current_setting('shared_preload_libraries') LIKE '%session_sweeper%'")" = t ] || {
        echo "demo: the server at $PGHOST does not preload the library: set shared_preload_libraries = 'session_sweeper' and restart it" >&2
        exit 1
    }
else
    private_folder
    echo "Starting a private cluster in $private"
    private_start "max_worker_processes = 16" "session_sweeper.max_workers = 3"
fi
trap cleanup EXIT

"$pg_bin/createdb" "$database"
export PGDATABASE=$database
echo "Three session tables of 100,000 rows each, 40 % of them past their deadline"
"${psql[@]}" -f "$root/tools/demo.sql"
expected=$("${psql[@]}" -At -c "SELECT string_agg(live::text, ' ' ORDER BY relation) FROM demo_expected")

state() {
    "${psql[@]}" -P pager=off -P footer=off -c "
        SELECT s.policy, e.live, s.expired, round(s.expired / extract(epoch FROM greatest(coalesce(p.last_pass_at, now()), p.registered_at + interval '0.1 s') - p.registered_at)) AS \"rows/s\",
               date_trunc('milliseconds', s.lag) AS lag, s.workers
        FROM sweeper.policy_status AS s JOIN demo_expected AS e ON e.policy = s.policy
        JOIN sweeper.policy AS p ON p.policy = s.policy ORDER BY s.policy"
}
left() {
    "${psql[@]}" -At -c "SELECT (SELECT count(*) FROM \"session\" WHERE expire <= now() AT TIME ZONE 'UTC')
        + (SELECT count(*) FROM django_session WHERE expire_date <= now())
        + (SELECT count(*) FROM spring_session WHERE expiry_time <= extract(epoch FROM now()) * 1000)"
}

deadline=$((SECONDS + seconds))
dead=$(left)
while [ "$dead" -gt 0 ] && [ $SECONDS -lt $deadline ]; do
    [ ! -t 1 ] || printf '\033[H\033[2J'
    state
    echo "dead rows left: $dead"
    read -r -t 0.5 _ <> <(:) || true # half a second between two pictures
    dead=$(left)
done
[ ! -t 1 ] || printf '\033[H\033[2J'
state
found=$("${psql[@]}" -At -c "SELECT concat_ws(' ', (SELECT count(*) FROM django_session), (SELECT count(*) FROM \"session\"), (SELECT count(*) FROM spring_session))")
events=$("${psql[@]}" -At -c "SELECT count(*) FROM sweeper.cleanup_event")
problems=$("${psql[@]}" -At -c "SELECT count(*) FROM sweeper.problem")
echo "Removed with one event each: $events rows.  Left: $found (expected: $expected).  Problems: $problems."
if [ "$dead" != 0 ] || [ "$found" != "$expected" ] || [ "$events" != 120000 ] || [ "$problems" != 0 ]; then
    "${psql[@]}" -c 'SELECT * FROM sweeper.problem' -c 'SELECT * FROM sweeper.policy_status'
    echo "demo: FAILED: a live row is missing, a dead one is left, or something is wrong" >&2
    exit 1
fi
echo "Nothing is wrong: sweeper.problem is empty."
echo "Connect: psql -h $PGHOST -p ${PGPORT:-5432} -U ${PGUSER:-$(id -un)} $database"
if [ -t 0 ] && [ -t 1 ]; then
    read -r -p "Press Enter to end the demo and remove everything. " _ || true
fi
