#!/bin/bash
# is_alive: slow checks side by side, and many keys in one call.
set -eu
. "$(dirname "$0")/lib.sh"
cluster "${steady[@]}"
sql <<SQL
CREATE TABLE c (id int PRIMARY KEY, d timestamptz);
CREATE FUNCTION slow(text) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.05); RETURN true; END';
CREATE INDEX ON c (d);
INSERT INTO c SELECT i, now() - interval '1 min' FROM generate_series(1, 100) AS i;
SELECT FROM sweeper.register('c', deadline => 'd', ttl => '1 h', is_alive => 'slow(text)', check_every => '0', start => 'now');
SQL
due() { sql -c "UPDATE c SET d = now() - interval '1 min'"; }
slow_checks() { # workers
    sql -c "ALTER SYSTEM SET session_sweeper.max_workers = $1" -c "SELECT pg_reload_conf()" >/dev/null
    local warm="SELECT count(*) = $1 FROM sweeper.stat_process WHERE backend_type = 'session_sweeper worker' AND state = 'idle'" end=$((SECONDS + 120))
    until [ "$(sql -c "$warm")" = t ]; do
        [ "$SECONDS" -lt "$end" ] || die "$1 workers never came"
        due
        sql -c "CALL sweeper.sweep('c')" >/dev/null
    done
    for _ in $(seq "$runs"); do
        due
        times <<<"CALL sweeper.sweep('c');" >>"checks.$1"
        [ "$(sql -c "SELECT count(*) FROM c WHERE d > now()")" = 100 ] || die "not all rows were checked"
    done
}
slow_checks 2
slow_checks 20

# 100,000 sessions. A table says that one half of them lives.
many=100000
sql <<SQL
ALTER SYSTEM RESET session_sweeper.max_workers;
SELECT pg_reload_conf() \g /dev/null
CREATE TABLE said (id int PRIMARY KEY, lives boolean);
INSERT INTO said SELECT i, i % 2 = 0 FROM generate_series(1, $many) AS i;
CREATE FUNCTION said(keys text[]) RETURNS boolean[] LANGUAGE sql AS \$\$
    SELECT array_agg(s.lives ORDER BY k.n) FROM unnest(keys) WITH ORDINALITY AS k (key, n) LEFT JOIN public.said AS s ON s.id = k.key::int \$\$;
SQL
refill() {
    sql <<SQL
SET client_min_messages = error;
DROP TABLE IF EXISTS m;
CREATE TABLE m (id int PRIMARY KEY, d timestamptz);
INSERT INTO m SELECT i, now() - interval '1 min' - i * interval '1 ms' FROM generate_series(1, $many) AS i;
CREATE INDEX ON m (d);
VACUUM ANALYZE m;
CHECKPOINT;
SQL
}
for run in $(seq 0 "$runs"); do
    for side in $(rotated "$run" join ours); do
        refill
        if [ "$side" = join ]; then
            ms=$(times <<<"WITH a AS (UPDATE m SET d = now() + interval '1 h' FROM said AS s WHERE s.id = m.id AND s.lives AND m.d <= now()) DELETE FROM m USING said AS s WHERE s.id = m.id AND NOT s.lives AND m.d <= now();")
        else
            sql -c "SELECT FROM sweeper.register('m', deadline => 'd', ttl => '1 h', is_alive => 'said(text[])', check_every => '0', start => 'now', audit => 'none')"
            ms=$(times <<<"CALL sweeper.sweep('m');")
            quiet -c "SELECT sweeper.unregister('m')"
        fi
        [ "$(sql -c "SELECT count(*) FILTER (WHERE d > now()) || ' ' || count(*) FROM m")" = "$((many / 2)) $((many / 2))" ] || die "$side did not do all"
        [ "$run" = 0 ] || echo "$ms" >>"many.$side"
    done
done
milliseconds_of() { rounded "$(median <"$1")"; }
row() { echo "| $1 | $2 | $(rounded "$(median <"$3")") ms (at most $(rounded "$(maximum <"$3")")) |"; }
cat <<TXT
| 100 rows, is_alive of 50 ms (one after the other: 5,000 ms), defaults otherwise | target | measured |
| --- | --- | --- |
$(row "CALL sweep, 2 warm workers" "2,800 ms" checks.2)
$(row "CALL sweep, session_sweeper.max_workers = 20, warm" "300 ms" checks.20)

| $many rows, half of them alive, is_alive of text[] | target | measured |
| --- | --- | --- |
| against UPDATE and DELETE with a join, in one statement | 1.5 x | $(against many.ours many.join) |
| (milliseconds here) | | $(milliseconds_of many.ours); $(milliseconds_of many.join) |
TXT
