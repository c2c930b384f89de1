#!/bin/bash
# Heartbeats against a bare SELECT, a SELECT of the row, a row write, and Redis; keys of
# several types; many at once; what they cost.
set -eu
. "$(dirname "$0")/lib.sh"
sessions=${SESSIONS:-1000000} seconds=${SECONDS_A_RUN:-5} distinct=2000 arrays=40 others=100000
cluster "${steady[@]}" "session_sweeper.heartbeat_memory = '256MB'" "listen_addresses = '127.0.0.1'"

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
CREATE TABLE key_bigint AS SELECT fence AS id, expires_at FROM sweeper.session;
CREATE TABLE key_uuid AS SELECT session AS id, expires_at FROM sweeper.session
    WHERE fence IN (SELECT n * 499979 % $sessions + 1 FROM generate_series(1, $distinct::bigint) AS n);
CREATE TABLE key_text AS SELECT i::text AS id, now() + interval '1 day' AS expires_at FROM generate_series(1, $others) AS i;
CREATE TABLE key_composite AS SELECT 7 AS tenant, i AS id, now() + interval '1 day' AS expires_at FROM generate_series(1, $others::bigint) AS i;
ALTER TABLE key_bigint ADD PRIMARY KEY (id);
ALTER TABLE key_uuid ADD PRIMARY KEY (id);
ALTER TABLE key_text ADD PRIMARY KEY (id);
ALTER TABLE key_composite ADD PRIMARY KEY (tenant, id);
SELECT format('CREATE INDEX ON key_%1\$s (expires_at)', t),
       format('SELECT FROM sweeper.register(''key_%1\$s'', policy => ''%1\$s'', deadline => ''expires_at'', ttl => ''1 day'', heartbeats => true)', t),
       format('VACUUM ANALYZE key_%1\$s', t)
    FROM unnest('{bigint,uuid,text,composite}'::text[]) AS t \gexec
VACUUM ANALYZE app;
VACUUM ANALYZE sweeper.session;
SQL
# each session's first heartbeat looks at its row
part=$((sessions / 8))
for k in 0 1 2 3 4 5 6 7; do
    sql -c "SELECT FROM sweeper.heartbeat_many(ARRAY(SELECT session FROM sweeper.session WHERE fence > $k * $part AND fence <= ($k + 1) * $part))" &
    sql -c "SELECT FROM sweeper.touch_many('bigint', ARRAY(SELECT id::text FROM key_bigint WHERE id > $k * $part AND id <= ($k + 1) * $part))" &
done
sql -c "SELECT FROM sweeper.touch_many('uuid', ARRAY(SELECT id::text FROM key_uuid))" \
    -c "SELECT FROM sweeper.touch_many('text', ARRAY(SELECT id FROM key_text))" \
    -c "SELECT FROM sweeper.touch_many('composite', ARRAY(SELECT format('(%s,%s)', tenant, id) FROM key_composite))"
wait
quiet -c CHECKPOINT

# Scripts of pgbench: as many statements, each with a parameter of its own.
variables=()
for n in $(seq "$distinct"); do
    i=$(((n * 499979) % sessions + 1))
    variables+=(-D "s$n=$(id $i)")
    echo "SELECT :s$n::uuid;" >>select.sql
    echo "SELECT sweeper.heartbeat(:s$n);" >>heartbeat.sql
    echo "SELECT sweeper.touch('uuid', :s$n::uuid);" >>touch_uuid.sql
    echo "UPDATE app SET last_seen = now(), expires_at = now() + interval '1 day' WHERE id = :s$n;" >>update.sql
done
echo "SELECT :s1::uuid;" >select_one.sql
echo "SELECT sweeper.heartbeat(:s1);" >hot.sql
# Any of the rows, by a number that pgbench draws.
of_number() { printf '\\set k random(1, %s)\n%s;\n' "$1" "$2"; }
of_number "$sessions" "SELECT :k::bigint" >select_bigint.sql
of_number "$sessions" "SELECT expires_at FROM key_bigint WHERE id = :k::bigint" >row_bigint.sql
of_number "$sessions" "SELECT sweeper.touch('bigint', :k::bigint)" >touch_bigint.sql
of_number "$others" "SELECT sweeper.touch('text', :k::text)" >touch_text.sql
of_number "$others" "SELECT sweeper.touch('composite', '(7,' || :k || ')')" >touch_composite.sql
for p in $(seq $((distinct / 20))); do
    echo '\startpipeline'
    sed -n "$((p * 20 - 19)),$((p * 20))p" heartbeat.sql
    echo '\endpipeline'
done >pipeline.sql
depths=(1 10 100 1000)
for depth in "${depths[@]}"; do
    for a in $(seq "$arrays"); do
        list=''
        for n in $(seq "$depth"); do
            i=$(((a * depth + n) * 499979 % sessions + 1))
            printf -v list '%s,%08x-0000-4000-8000-000000000000' "$list" $i
        done
        variables+=(-D "a${depth}_$a={${list:1}}")
        echo "SELECT * FROM sweeper.heartbeat_many(:a${depth}_$a::uuid[]);"
    done >"many_$depth.sql"
done
# Statements a second.
rate() { # script, further arguments of pgbench
    "$pg_bin/pgbench" -n -M prepared -c 8 -j 2 -T "$seconds" -f "$1.sql" "${variables[@]}" "${@:2}" 2>/dev/null |
        awk -v n="$(grep -cv '^\\' "$1.sql")" '/^tps/ {print $3 * n}'
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
expire() { # depth of the pipeline, arguments that say where
    redis-benchmark -P "$1" "${@:2}" -q --csv -c 8 -n $((seconds * ($1 > 1 ? 600000 : 60000))) -r "$sessions" EXPIRE session:__rand_int__ 86400 | tr -d '"' | awk -F, 'END {print $(NF > 2 ? NF - 6 : 2)}'
}

for run in $(seq "$runs"); do
    for side in $(rotated "$run" select heartbeat update); do rate "$side" >>"$side.rate"; done
    for side in $(rotated "$run" select_one hot); do rate "$side" >>"$side.rate"; done
    for side in $(rotated "$run" select_bigint row_bigint touch_bigint touch_uuid touch_text touch_composite); do rate "$side" >>"$side.rate"; done
    rate pipeline >>pipeline_prepared.rate
    rate pipeline -M extended >>pipeline_extended.rate
    for depth in "${depths[@]}"; do
        [ -z "$redis" ] || [ "$depth" = 1 ] || expire "$depth" -s "$PWD/redis.sock" >>"redis_of_$depth.rate"
        rate "many_$depth" | awk -v d="$depth" '{print $1 * d}' >>"many_$depth.rate"
    done
    if [ -n "$redis" ]; then
        expire 1 -s "$PWD/redis.sock" | tee -a redis_of_1.rate >>redis.rate
        expire 20 -s "$PWD/redis.sock" >>redis_20.rate
        rate heartbeat -h 127.0.0.1 >>tcp.rate
        expire 1 -p "$((PGPORT + 1))" >>redis_tcp.rate
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
cat <<TXT
| one hot session, by 8 clients, against SELECT \$1::uuid | 0.90 x | $(against hot.rate select_one.rate) | $(rounded "$(median <hot.rate)") of $(rounded "$(median <select_one.rate)") |
| touch() of 1 in $sessions bigint keys, against SELECT \$1::bigint | 0.85 x | $(against touch_bigint.rate select_bigint.rate) | $(rounded "$(median <touch_bigint.rate)") of $(rounded "$(median <select_bigint.rate)") |
| the same, against SELECT of the row by its primary key | 1.3 x | $(against touch_bigint.rate row_bigint.rate) | $(rounded "$(median <row_bigint.rate)") |
| touch() of 1 in $distinct uuid keys, against SELECT \$1::uuid | 0.85 x | $(against touch_uuid.rate select.rate) | $(rounded "$(median <touch_uuid.rate)") |
| touch() of 1 in $others text keys, against SELECT \$1::bigint | | $(against touch_text.rate select_bigint.rate) | $(rounded "$(median <touch_text.rate)") |
| touch() of 1 in $others composite keys, against SELECT \$1::bigint | | $(against touch_composite.rate select_bigint.rate) | $(rounded "$(median <touch_composite.rate)") |
TXT
against_redis() { # side, peer, target, what
    echo "| $4, against Redis EXPIRE of that depth, both over a Unix socket | $3 | $(against "$1.rate" "$2.rate") | $(rounded "$(median <"$1.rate")") of $(rounded "$(median <"$2.rate")") |"
}
if [ -n "$redis" ]; then
    against_redis pipeline_prepared redis_20 '' 'pipelines of 20 heartbeats, prepared'
    against_redis pipeline_extended redis_20 '' 'pipelines of 20 heartbeats, not prepared'
    for depth in "${depths[@]}"; do
        against_redis "many_$depth" "redis_of_$depth" "$([ "$depth" -lt 100 ] || echo '1.5 x')" "heartbeat_many of $depth, sessions a second"
    done
fi
[ -z "$redis" ] || cat <<TXT
| Redis EXPIRE, both over TCP loopback, no pipeline | 1.5 x | $(against tcp.rate redis_tcp.rate) | $(rounded "$(median <tcp.rate)") of $(rounded "$(median <redis_tcp.rate)") |
| Redis EXPIRE, both over a Unix socket | | $(against heartbeat.rate redis.rate) | $(rounded "$(median <redis.rate)") |
TXT
cat <<TXT
| heartbeat_many of 10,000 sessions, one client | 3 M sessions/s | $(awk -v ms="$(median <many)" 'BEGIN {printf "%.1f", 10 / ms}') M sessions/s | |
| WAL bytes, transaction ids, row versions of $sent heartbeats | 0 | $(cost_of 1), $(cost_of 2), $(cost_of 3) | |
TXT
