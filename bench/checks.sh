#!/bin/bash
# Slow checks, side by side.
set -eu
. "$(dirname "$0")/lib.sh"
cluster "${steady[@]}" "session_sweeper.max_workers = 20"
sql <<SQL
CREATE TABLE c (id int PRIMARY KEY, d timestamptz);
CREATE FUNCTION slow(text) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.05); RETURN true; END';
CREATE INDEX ON c (d);
INSERT INTO c SELECT i, now() - interval '1 min' FROM generate_series(1, 100) AS i;
SELECT FROM sweeper.register('c', deadline => 'd', ttl => '1 h', is_alive => 'slow(text)', check_every => '0', start => 'now', max_workers => 20, fuse_fraction => 1);
SQL
due() { sql -c "UPDATE c SET d = now() - interval '1 min'"; }
warm="SELECT count(*) = 20 FROM sweeper.stat_process WHERE backend_type = 'session_sweeper worker' AND state = 'idle'"
end=$((SECONDS + 120))
until [ "$(sql -c "$warm")" = t ]; do
    [ "$SECONDS" -lt "$end" ] || die "20 workers never came"
    due
    sql -c "CALL sweeper.sweep('c')" >/dev/null
done
for _ in $(seq "$runs"); do
    due
    times <<<"CALL sweeper.sweep('c');" >>checks
    [ "$(sql -c "SELECT count(*) FROM c WHERE d > now()")" = 100 ] || die "not all rows were checked"
done
cat <<TXT
| 100 rows, is_alive of 50 ms, 20 warm workers | target | measured |
| --- | --- | --- |
| CALL sweep (one after the other: 5,000 ms) | 300 ms | $(rounded "$(median <checks)") ms (at most $(rounded "$(maximum <checks)")) |
TXT
