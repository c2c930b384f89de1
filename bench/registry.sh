#!/bin/bash
# Seats: acquire and release against a plain insert and update, a pass over
# sessions with a few dead ones, and a session that waits for a seat.
set -eu
. "$(dirname "$0")/lib.sh"
seconds=${REGISTRY_SECONDS:-20}
cluster "${steady[@]}"
sql <<'SQL'
SELECT FROM sweeper.pause_all('bench'); -- nobody sweeps while pairs are timed
SELECT count(sweeper.create_pool('p' || i, 100)) FROM generate_series(1, 1000) AS i \g /dev/null
CREATE TABLE plain (session uuid PRIMARY KEY DEFAULT gen_random_uuid(), pool text NOT NULL, owner text NOT NULL DEFAULT session_user,
    status text NOT NULL DEFAULT 'active', acquired_at timestamptz NOT NULL DEFAULT now(), expires_at timestamptz NOT NULL, released_at timestamptz);
CREATE INDEX ON plain (expires_at) WHERE status = 'active';
CREATE INDEX ON plain (pool) WHERE status = 'active';
SQL
cat >registry.sql <<'SQL'
\set p random(1, 1000)
SELECT session AS s FROM sweeper.acquire('p' || :p::text) \gset
SELECT sweeper.release(:s);
SQL
cat >plain.sql <<'SQL'
\set p random(1, 1000)
INSERT INTO plain (pool, expires_at) VALUES ('p' || :p::text, now() + interval '6 min') RETURNING session AS s \gset
UPDATE plain SET status = 'released', released_at = now() WHERE session = :s;
SQL
# Pairs a second of one side, from an empty table.
pairs() {
    sql -c "TRUNCATE sweeper.session, sweeper.usage_event, sweeper.cleanup_event, plain" -c "VACUUM FULL sweeper.pool" -c CHECKPOINT
    "$pg_bin/pgbench" -n -M prepared -c 8 -j 2 -T "$seconds" -f "$1.sql" postgres >"$1.log" 2>&1 || die "$(tail -n 3 "$1.log")"
    sed -n 's/^tps = \([0-9.]*\) .*/\1/p' "$1.log"
}
for side in registry plain; do pairs "$side" >/dev/null; done
for run in $(seq "$runs"); do
    for side in $(rotated "$run" registry plain); do pairs "$side" >>"$side"; done
    [ "$(sql -c "SELECT count(*) FROM sweeper.live_session")" = 0 ] || die "sessions were left"
done

# 1,000 sessions in 50 pools; ten of them have died.
sql <<'SQL'
SELECT FROM sweeper.resume('sweeper.session');
SELECT FROM sweeper.alter_policy('sweeper.session', check_every => '0');
TRUNCATE sweeper.session;
SELECT count(*) FROM generate_series(1, 1000) AS i, sweeper.acquire('p' || 1 + i % 50, 'o' || i) \g /dev/null
VACUUM ANALYZE sweeper.session;
SQL
for _ in $(seq $((10 * runs + 1))); do
    sql -c "UPDATE sweeper.session SET expires_at = now() - interval '1 min', acquired_at = now() - interval '1 h', last_seen_at = now() - interval '7 min'
        WHERE session IN (SELECT session FROM sweeper.session WHERE status = 'active' ORDER BY pool, fence LIMIT 10)"
    echo "CALL sweeper.sweep('sweeper.session');" | times >>passes
    [ "$(sql -c "SELECT expired FROM sweeper.pass WHERE policy = 'sweeper.session' ORDER BY pass DESC LIMIT 1")" = 10 ] || die "not all of the dead went"
    sql -c "SELECT count(*) FROM generate_series(1, 10) AS i, sweeper.acquire('p' || i)" >/dev/null
done
tail -n +2 passes >warm

# A seat that is released goes to the first that waits for it.
sql -c "SELECT sweeper.create_pool('one', 1)" >/dev/null
for i in $(seq $((10 * runs))); do
    sql -c "SELECT FROM sweeper.acquire('one', 'holder')" >/dev/null
    sql -c "CALL sweeper.acquire_wait('one', 'waiter$i', '60 s')" >/dev/null &
    wait_for "SELECT waiting = 1 FROM sweeper.pool_status WHERE pool = 'one'"
    sql -c "SELECT sweeper.release(session) FROM sweeper.session WHERE pool = 'one' AND status = 'active'" >/dev/null
    wait "$!"
    sql -c "SELECT 1000 * extract(epoch FROM w.acquired_at - h.released_at) FROM sweeper.session AS w, sweeper.session AS h
        WHERE w.owner = 'waiter$i' AND h.pool = 'one' AND h.owner = 'holder' ORDER BY h.fence DESC LIMIT 1" >>waits
    sql -c "SELECT sweeper.release(session) FROM sweeper.session WHERE pool = 'one' AND status = 'active'" >/dev/null
done

cat <<TXT
| seats: 1,000 pools of 100, 8 clients, a commit each for acquire and release | target | measured |
| --- | --- | --- |
| pairs of acquire and release a second | | $(rounded "$(median <registry)") |
| pairs of a plain INSERT and UPDATE a second, without seats, events or usage | | $(rounded "$(median <plain)") |
| the first against the second | 0.6 x | $(against registry plain) |

| one pass over 1,000 sessions in 50 pools, 10 of them dead, medians of $(wc -l <warm) | target | measured |
| --- | --- | --- |
| CALL sweep | 10 ms | $(rounded "$(median <warm)" 2) ms (at most $(rounded "$(maximum <warm)" 2)) |

| waiting for a seat, medians of $(wc -l <waits) | target | measured |
| --- | --- | --- |
| from the release to the acquire of the first that waits | 25 ms | $(rounded "$(median <waits)" 2) ms (at most $(rounded "$(maximum <waits)" 2)) |
TXT
