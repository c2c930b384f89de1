#!/bin/bash
# What heartbeats cost later: row writes per ttl, a pass that writes the rows of living sessions, a stop.
set -eu
. "$(dirname "$0")/lib.sh"
sessions=${SESSIONS:-1000000} near=$((${SESSIONS:-1000000} / 20)) ttl=18 periods=${PERIODS:-5}
cluster "${steady[@]}" "session_sweeper.heartbeat_memory = '128MB'"

# Many sessions with heartbeats; one in 20 is near the deadline of its row.
sql <<SQL
SELECT FROM sweeper.alter_policy('sweeper.session', check_every => '0');
SELECT FROM sweeper.create_pool('bench', ttl => '1 day');
INSERT INTO sweeper.session (session, pool, owner, acquired_by, ttl, status, acquired_at, last_seen_at, expires_at, ends_at, fence, metadata)
    SELECT (lpad(to_hex(i), 8, '0') || '-0000-4000-8000-000000000000')::uuid, 'bench', NULL, 'bench', '1 day', 'active', now(), now(),
           now() + interval '1 day', 'infinity', i, '{}'
    FROM generate_series(1, $sessions) AS i;
VACUUM ANALYZE sweeper.session;
SQL
for run in $(seq "$runs"); do
    # in the last quarter of a ttl, not so near that heartbeats write; a pass sees that rows were changed, heartbeats then read them
    sql -c "UPDATE sweeper.session SET expires_at = now() + interval '5 h' WHERE fence % 20 = $run % 20" -c "CALL sweeper.sweep('sweeper.session')" \
        -c "SELECT FROM sweeper.heartbeat_many(ARRAY(SELECT session FROM sweeper.session))" -c CHECKPOINT >/dev/null
    echo "CALL sweeper.sweep('sweeper.session');" | times >>pass
    [ "$(sql -c "SELECT count(*) FROM sweeper.session WHERE expires_at > now() + interval '23 h'")" = "$sessions" ] || die "not all rows say that they live"
    [ "$(sql -c "SELECT count(*) FROM sweeper.cleanup_event WHERE relation = 'sweeper.session'")" = 0 ] || die "living sessions went"
done

# A fast stop when all rows are older than their heartbeats.
for _ in $(seq "$runs"); do
    sql -c "SELECT FROM sweeper.heartbeat_many(ARRAY(SELECT session FROM sweeper.session))"
    start=$(date +%s%N)
    private_stop
    echo $((($(date +%s%N) - start) / 1000000)) >>stop
    sed -n 's/.*session_sweeper kept \([0-9]*\) heartbeats in \([0-9]*\) ms.*/\1 \2/p' server.log | tail -n 1 >kept
    [ "$(cut -d' ' -f1 kept)" = "$sessions" ] || die "kept $(cat kept), of $sessions heartbeats"
    cut -d' ' -f2 kept >>keep
    private_start_again
    # until the launcher has read what was kept, heartbeats write their rows
    wait_for "SELECT EXISTS (SELECT FROM sweeper.stat_process WHERE backend_type = 'session_sweeper coordinator')"
done

# 1,000 sessions, a heartbeat every ttl/36 for some times to live.
sql <<SQL
TRUNCATE sweeper.session;
SELECT FROM sweeper.alter_policy('sweeper.session', reset => ARRAY['check_every']);
SELECT FROM sweeper.create_pool('often', ttl => '$ttl s', seats => 1000);
SELECT count(*) FROM generate_series(1, 1000) AS i, sweeper.acquire('often', 'o' || i) \g /dev/null
CREATE TABLE often AS SELECT array_agg(session) AS sessions FROM sweeper.session;
SQL
# a refreshed row is a new version; statistics come a second late
writes() { sql -c "SELECT pg_stat_get_tuples_updated('sweeper.session'::regclass)"; }
before=$(writes)
for _ in $(seq $((36 * periods))); do
    echo "SELECT count(*) FROM often, sweeper.heartbeat_many(sessions);"
    echo "SELECT pg_sleep($ttl / 36.0) \g /dev/null"
done | sql | sort -u >gone
[ "$(cat gone)" = 0 ] || die "living sessions went: $(tr '\n' ' ' <gone)"
quiet -c "SELECT pg_sleep(2)" # statistics are reported once a second
written=$(awk -v n="$(($(writes) - before))" -v p="$periods" 'BEGIN {printf "%.2f", n / 1000 / p}')

cat <<TXT
| what heartbeats cost later | target | measured |
| --- | --- | --- |
| row writes a session and ttl, with a heartbeat every ttl/36 ($periods ttls of 1,000 sessions) | 1.5 | $written |
| a pass that writes $near rows of $sessions living sessions and ends none | | $(rounded "$(median <pass)") ms (at most $(rounded "$(maximum <pass)")) |
| keeping $sessions heartbeats newer than their rows over a fast stop | \`shutdown_timeout\` (3 s) | $(rounded "$(median <keep)") ms (at most $(rounded "$(maximum <keep)")); the whole stop $(rounded "$(median <stop)") ms |
TXT
