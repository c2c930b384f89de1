#!/bin/bash
# make bench: the extension against its peers, on a private cluster.  Prints a
# table of medians; RUNS (5) interleaved runs of each.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/tools/private-cluster.sh"
runs=${RUNS:-5} rows=${ROWS:-1000000}

private_folder
trap private_cleanup EXIT
private_start "shared_buffers = '1GB'" "max_wal_size = '16GB'" "checkpoint_timeout = '1h'" "max_worker_processes = 40" \
    "max_connections = 60" "autovacuum = off" "session_sweeper.max_workers = 2"
sql() { "$pg_bin/psql" -X -q -At -v ON_ERROR_STOP=1 "$@"; }
sql -c "CREATE EXTENSION session_sweeper"
median() { sort -n | awk '{v[NR] = $1} END {print (NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2)}'; }
# Milliseconds that the last statement of the input took, seen by the client.
timed() { { echo '\timing on'; cat; } | "$pg_bin/psql" -X -q -v ON_ERROR_STOP=1 | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p' | tail -n 1; }
fill() {
    sql <<SQL
SET client_min_messages = error;
DROP TABLE IF EXISTS b;
CREATE TABLE b (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), d timestamptz NOT NULL, pad text DEFAULT 'xxxxxxxxxxxxxxxx');
INSERT INTO b (d) SELECT now() + (i % 2 * 2 - 1) * (60 + i % 864000) * interval '1 s' FROM generate_series(1, $rows) AS i;
CREATE INDEX ON b (d);
VACUUM ANALYZE b;
CHECKPOINT;
SQL
}
sql <<SQL
CREATE TABLE audit_same (LIKE sweeper.cleanup_event);
CREATE INDEX ON audit_same USING brin (cleaned_at) WITH (autosummarize = on);
CREATE TABLE audit_usual (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, cleaned_at timestamptz, key text, deadline timestamptz, policy text);
CREATE INDEX ON audit_usual (cleaned_at);
CREATE INDEX ON audit_usual (policy, cleaned_at);
SQL
same="WITH d AS (DELETE FROM b WHERE d <= now() RETURNING id, d) INSERT INTO audit_same (id, cleaned_at, deadline, pass, policy_id, count, policy, relation, key, cleanup_type)
    SELECT row_number() OVER (), now(), d, 1, 1, 1, 'b', 'public.b', id::text, 'expired' FROM d;"
usual="WITH d AS (DELETE FROM b WHERE d <= now() RETURNING id, d) INSERT INTO audit_usual (cleaned_at, key, deadline, policy) SELECT now(), id::text, d, 'b' FROM d;"
for run in $(seq "$runs"); do
    fill; echo "DELETE FROM b WHERE d <= now();" | timed >>bare
    fill; sql -c 'TRUNCATE audit_same'; echo "$same" | timed >>same
    fill; sql -c 'TRUNCATE audit_usual'; echo "$usual" | timed >>usual
    fill
    sql -c 'TRUNCATE sweeper.cleanup_event' -c "SELECT FROM sweeper.register('b', deadline => 'd', check_every => '0', start => 'now', max_workers => 2)"
    echo "CALL sweeper.sweep('b');" | timed >>ours
    if [ "$run" = "$runs" ]; then
        for pid in $(sql -c "SELECT pid FROM sweeper.stat_process"); do
            echo "private memory of $(sql -c "SELECT backend_type FROM sweeper.stat_process WHERE pid = $pid"), kB: $(awk '/^Private/ {s += $2} END {print s}' /proc/"$pid"/smaps_rollup)"
        done >memory
    fi
    sql -c "SELECT sweeper.unregister('b')" >/dev/null
done
m_bare=$(median <bare) m_same=$(median <same) m_usual=$(median <usual) m_ours=$(median <ours)

# empty passes
empty() { # rows
    sql <<SQL >/dev/null
SET client_min_messages = error;
DROP TABLE IF EXISTS e;
CREATE UNLOGGED TABLE e (id int PRIMARY KEY, d timestamptz NOT NULL);
INSERT INTO e SELECT i, now() + interval '1 day' + i * interval '1 ms' FROM generate_series(1, $1) AS i;
CREATE INDEX ON e (d);
VACUUM ANALYZE e;
SELECT FROM sweeper.register('e', deadline => 'd', check_every => '0', start => 'now');
CALL sweeper.sweep('e');
SQL
    before=$(sql -c 'SELECT pg_snapshot_xmax(pg_current_snapshot())')
    { echo '\timing on'; for _ in $(seq 101); do echo "CALL sweeper.sweep('e');"; done; } | "$pg_bin/psql" -X -q | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p' | median
    after=$(sql -c 'SELECT pg_snapshot_xmax(pg_current_snapshot())')
    [ "$before" = "$after" ] || echo "(took $((after - before)) transaction ids)"
    sql -c "SELECT sweeper.unregister('e')" >/dev/null
}
e_small=$(empty 100000)
e_large=$(empty "${LARGE:-10000000}")

# an old snapshot keeps 500 k dead index entries
fill
sql -c "SELECT FROM sweeper.register('b', deadline => 'd', check_every => '0', start => 'now')"
mkfifo holder
"$pg_bin/psql" -X -q -At <holder >/dev/null &
exec 9>holder
echo 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1;' >&9
until [ "$(sql -c "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction'")" = 1 ]; do :; done
sql -c "CALL sweeper.sweep('b')" >/dev/null
{ echo '\timing on'; for _ in $(seq 21); do echo "CALL sweeper.sweep('b');"; done; } | "$pg_bin/psql" -X -q | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p' >held
exec 9>&-
h_first=$(head -n 1 held) h_rest=$(tail -n +3 held | median)
sql -c "SELECT sweeper.unregister('b')" >/dev/null

# slow checks, side by side
sql -c "ALTER SYSTEM SET session_sweeper.max_workers = 20" -c "SELECT pg_reload_conf()" >/dev/null
sql <<SQL >/dev/null
CREATE TABLE c (id int PRIMARY KEY, d timestamptz);
CREATE FUNCTION slow(text) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.05); RETURN true; END';
INSERT INTO c SELECT i, now() - interval '1 min' FROM generate_series(1, 100) AS i;
SELECT FROM sweeper.register('c', deadline => 'd', ttl => '1 h', is_alive => 'slow(text)', check_every => '0', start => 'now', max_workers => 20, fuse_fraction => 1);
CALL sweeper.sweep('c');
SQL
for _ in $(seq "$runs"); do
    sql -c "UPDATE c SET d = now() - interval '1 min'"
    echo "CALL sweeper.sweep('c');" | timed >>checks
done
m_checks=$(median <checks)
sql -c "SELECT sweeper.unregister('c')" -c "ALTER SYSTEM SET session_sweeper.max_workers = 2" -c "SELECT pg_reload_conf()" >/dev/null

# lag: 1,000 rows fall due each second among a million
sql <<SQL >/dev/null
DROP TABLE b;
CREATE TABLE b (id int PRIMARY KEY, d timestamptz NOT NULL);
INSERT INTO b SELECT i, now() + interval '8 s' + i * interval '1 ms' FROM generate_series(1, $rows) AS i;
CREATE INDEX ON b (d);
VACUUM ANALYZE b;
SELECT FROM sweeper.register('b', policy => 'lag', deadline => 'd', start => 'now');
SQL
until [ "$(sql -c "SELECT coalesce(max(expired), 0) >= ${LAG_ROWS:-20000} FROM sweeper.stat_policy WHERE policy = 'lag'")" = t ]; do read -r -t 1 _ <> <(:) || true; done
lag=$(sql -c "SELECT pg_catalog.format('%s / %s / %s', round(1000 * percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM cleaned_at - deadline))),
    round(1000 * percentile_cont(0.99) WITHIN GROUP (ORDER BY extract(epoch FROM cleaned_at - deadline))), round(1000 * max(extract(epoch FROM cleaned_at - deadline))))
    FROM sweeper.cleanup_event WHERE policy = 'lag'")
lag_max=$(sql -c "SELECT max_lag FROM sweeper.stat_policy WHERE policy = 'lag'")
sql -c "SELECT sweeper.unregister('lag')" >/dev/null

# an application at work, without and during passes
"$pg_bin/pgbench" -i -q -s 10 postgres >/dev/null 2>&1
tps() { "$pg_bin/pgbench" -n -c 8 -j 2 -T 8 postgres 2>/dev/null | sed -n 's/^tps = \([0-9.]*\).*/\1/p'; }
t_none=$(tps)
fill; sql -c "SELECT FROM sweeper.register('b', deadline => 'd', start => 'now', backlog_rate => 0, max_workers => 2)"; t_full=$(tps); sql -c "SELECT sweeper.unregister('b')" >/dev/null
fill; sql -c "SELECT FROM sweeper.register('b', deadline => 'd', start => 'now', backlog_rate => 5000)"; t_rate=$(tps); sql -c "SELECT sweeper.unregister('b')" >/dev/null

ratio() { awk -v a="$1" -v b="$2" 'BEGIN {printf "%.2f", a / b}'; }
cat <<TXT

| what | measured |
| --- | --- |
| $rows rows, half dead: bare DELETE, no audit | $m_bare ms |
| the same, WITH d AS (DELETE ...) INSERT into the same audit table | $m_same ms |
| the same, audit table with identity key and two more btree indexes | $m_usual ms |
| the same, session_sweeper, an event each, 2 workers | $m_ours ms: $(ratio "$m_ours" "$m_bare") x bare, $(ratio "$m_ours" "$m_same") x same audit, $(ratio "$m_ours" "$m_usual") x usual audit |
| 100 rows, is_alive of 50 ms, 20 warm workers | $m_checks ms |
| CALL sweep of an empty pass, 100 k rows | $e_small ms |
| CALL sweep of an empty pass, ${LARGE:-10000000} rows | $e_large ms |
| CALL sweep of an empty pass under an old snapshot: first, then | $h_first ms, $h_rest ms |
| lag at 1,000 rows/s, p50 / p99 / max, to the start of the batch | $lag ms; to its commit at most $lag_max |
| pgbench TPC-B, 8 clients: alone, during a full pass, at 5,000 rows/s | $t_none, $t_full, $t_rate tps |
TXT
cat memory
