#!/bin/bash
# Heartbeats against a bare SELECT, a row write, and Redis; many at once; what they cost.
set -eu
. "$(dirname "$0")/lib.sh"
sessions=${SESSIONS:-1000000} seconds=${SECONDS_A_RUN:-5} distinct=2000
cluster "${steady[@]}" "session_sweeper.heartbeat_memory = '128MB'" "listen_addresses = '127.0.0.1'"

id() { printf '%08x-0000-4000-8000-000000000000' "$1"; }
sql <<SQL
SELECT FROM sweeper.create_pool('bench', ttl => '1 day');
INSERT INTO sweeper.session (session, pool, owner, acquired_by, ttl, status, acquired_at, last_seen_at, expires_at, ends_at, fence, metadata)
    SELECT (lpad(to_hex(i), 8, '0') || '-0000-4000-8000-000000000000')::uuid, 'bench', NULL, 'bench', '1 day', 'active',
           now(), now(), now() + interval '1 day', 'infinity', i, '{}'
    FROM generate_series(1, $sessions) AS i;
CREATE TABLE app (id uuid PRIMARY KEY, last_seen timestamptz NOT NULL, expires_at timestamptz NOT NULL);
INSERT INTO app SELECT session, last_seen_at, expires_at FROM sweeper.session;
CREATE INDEX ON app (expires_at);
VACUUM ANALYZE app;
VACUUM ANALYZE sweeper.session;
SQL
# each session's first heartbeat looks at its row
part=$((sessions / 8))
for k in 0 1 2 3 4 5 6 7; do
    sql -c "SELECT FROM sweeper.heartbeat_many(ARRAY(SELECT session FROM sweeper.session WHERE fence > $k * $part AND fence <= ($k + 1) * $part))" &
done
wait
memory=$(sql -c "SELECT size FROM pg_shmem_allocations WHERE name = 'session_sweeper heartbeats'")
quiet -c CHECKPOINT

# Scripts of pgbench: as many statements, each with a parameter of its own.
variables=()
for n in $(seq "$distinct"); do
    i=$(((n * 499979) % sessions + 1))
    variables+=(-D "s$n=$(id $i)")
    echo "SELECT :s$n::uuid;" >>select.sql
    echo "SELECT sweeper.heartbeat(:s$n);" >>heartbeat.sql
    echo "UPDATE app SET last_seen = now(), expires_at = now() + interval '1 day' WHERE id = :s$n;" >>update.sql
done
rate() { # script, further arguments of pgbench
    "$pg_bin/pgbench" -n -M prepared -c 8 -j 2 -T "$seconds" -f "$1.sql" "${variables[@]}" "${@:2}" 2>/dev/null |
        awk -v n="$distinct" '/^tps/ {print $3 * n}'
}

redis=
if command -v redis-server >/dev/null; then
    redis-server --port 0 --unixsocket "$PWD/redis.sock" --save '' --appendonly no --daemonize no >/dev/null &
    redis=$!
    trap 'kill $redis 2>/dev/null; private_cleanup' EXIT
    redis-server --port "$((PGPORT + 1))" --bind 127.0.0.1 --save '' --appendonly no >/dev/null &
    redis="$redis $!"
    trap 'kill $redis 2>/dev/null; private_cleanup' EXIT
    until redis-cli -s "$PWD/redis.sock" ping 2>/dev/null | grep -q PONG && redis-cli -p "$((PGPORT + 1))" ping 2>/dev/null | grep -q PONG; do sleep 0.1; done
    redis-benchmark -s "$PWD/redis.sock" -q -P 100 -n "$sessions" -r "$sessions" SET session:__rand_int__ x >/dev/null
    redis-benchmark -p "$((PGPORT + 1))" -q -P 100 -n "$sessions" -r "$sessions" SET session:__rand_int__ x >/dev/null
fi
expire() { # arguments that say where
    redis-benchmark "$@" -q --csv -c 8 -n $((seconds * 60000)) -r "$sessions" EXPIRE session:__rand_int__ 86400 | tr -d '"' | awk -F, 'END {print $(NF > 2 ? NF - 6 : 2)}'
}

for run in $(seq "$runs"); do
    for side in $(rotated "$run" select heartbeat update); do rate "$side" >>"$side.rate"; done
    if [ -n "$redis" ]; then
        expire -s "$PWD/redis.sock" >>redis.rate
        rate heartbeat -h 127.0.0.1 >>tcp.rate
        expire -p "$((PGPORT + 1))" >>redis_tcp.rate
    fi
done

# Many in one call, by one client.
sql -c "CREATE TABLE batch AS SELECT array_agg(session) AS sessions FROM (SELECT session FROM sweeper.session WHERE fence % 97 = 1 LIMIT 10000) AS s"
for _ in $(seq $((runs * 20))); do echo 'SELECT count(*) FROM batch, sweeper.heartbeat_many(sessions);'; done |
    { echo '\timing on'; cat; } | "$pg_bin/psql" -X -q -v ON_ERROR_STOP=1 | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p' >many

# What a heartbeat writes: nothing.
cost="SELECT pg_current_wal_insert_lsn() - '0/0', pg_snapshot_xmax(pg_current_snapshot())::text, (SELECT n_tup_upd + n_dead_tup FROM pg_stat_user_tables WHERE relname = 'session')"
sql -c "SELECT sweeper.pause_all('bench')" >/dev/null
before=$(sql -c "$cost")
sent=$(rate heartbeat -T 2 | awk '{printf "%d", $1 * 2}')
after=$(sql -c "$cost")
cost_of() { echo "$before|$after" | awk -F'|' -v a="$1" '{print $(a + 3) - $a}'; }

cat <<TXT
| heartbeat of 1 in $sessions live sessions, 8 clients, prepared, against | target | measured | a second here |
| --- | --- | --- | --- |
| SELECT \$1::uuid | 0.85 x | $(against heartbeat.rate select.rate) | $(rounded "$(median <heartbeat.rate)") of $(rounded "$(median <select.rate)") |
| UPDATE of the row, its deadline indexed, durable | 4 x | $(against heartbeat.rate update.rate 1) | $(rounded "$(median <update.rate)") |
TXT
[ -z "$redis" ] || cat <<TXT
| Redis EXPIRE, both over TCP loopback, no pipeline | 1.5 x | $(against tcp.rate redis_tcp.rate) | $(rounded "$(median <tcp.rate)") of $(rounded "$(median <redis_tcp.rate)") |
| Redis EXPIRE, both over a Unix socket | | $(against heartbeat.rate redis.rate) | $(rounded "$(median <redis.rate)") |
TXT
cat <<TXT
| heartbeat_many of 10,000 sessions, one client | 3 M sessions/s | $(awk -v ms="$(median <many)" 'BEGIN {printf "%.1f", 10 / ms}') M sessions/s | |
| WAL bytes, transaction ids, row versions of $sent heartbeats | 0 | $(cost_of 1), $(cost_of 2), $(cost_of 3) | |
| shared memory, a session | 100 bytes | $(awk -v m="$memory" 'BEGIN {printf "%.0f", m / int(m / 68)}') bytes; $(awk -v m="$memory" 'BEGIN {printf "%.2f", m / 68 / 1e6}') M sessions in 128 MB | |
TXT
