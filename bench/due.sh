#!/bin/bash
# What other clients notice when a million rows fall due at the same moment:
# pgbench TPC-B, 8 clients, the time before that deadline and the time after it.
# The sweeper has its defaults.
set -eu
. "$(dirname "$0")/lib.sh"
window=${DUE_SECONDS:-60}
cluster "shared_buffers = '2GB'" "max_wal_size = '16GB'" "checkpoint_timeout = '1h'"
"$pg_bin/pgbench" -i -q -s 20 postgres >/dev/null 2>&1

for run in $(seq "$runs"); do
    sql <<SQL
CREATE TABLE b (id uuid PRIMARY KEY, d timestamptz NOT NULL);
INSERT INTO b SELECT md5(i::text)::uuid, 'infinity' FROM generate_series(1, 5 * $rows / 2) AS i; -- the fuse holds the end of most rows
CREATE INDEX ON b (d);
SELECT FROM sweeper.register('b', deadline => 'd', start => 'now');
UPDATE b SET d = clock.due FROM (SELECT clock_timestamp() + ($window + 90) * interval '1 s' AS due) AS clock WHERE id < '66666666-6666-6666-6666-666666666666';
VACUUM ANALYZE b;
CHECKPOINT;
SQL
    due=$(sql -c "SELECT extract(epoch FROM d) FROM b WHERE d < 'infinity' LIMIT 1")
    dead=$(sql -c "SELECT count(*) FROM b WHERE d < 'infinity'")
    left=$(sql -c "SELECT floor($due - extract(epoch FROM clock_timestamp()))::int")
    [ "$left" -ge $((window + 2)) ] || die "this machine takes too long to fill a table"
    rm -f transactions*
    "$pg_bin/pgbench" -n -c 8 -j 2 -T $((left + window)) -l --log-prefix=transactions postgres >pgbench.log 2>&1 || die "$(tail -n 3 pgbench.log)"
    gone=$((dead - $(sql -c "SELECT count(*) FROM b WHERE d < 'infinity'")))
    [ "$gone" -gt 0 ] || die "no row has expired"
    for side in before after; do
        cat transactions.* | awk -v d="$due" -v w="$window" -v s="$side" '{t = $5 + $6 / 1e6 - d} (s == "before" && t > -w && t <= 0) || (s == "after" && t > 0 && t <= w) {print $3 / 1000}' >latencies
        quantile 0.99 <latencies >>"$side.p99"
        wc -l <latencies >>"$side.count"
    done
    echo "$gone" >>expired
    quiet -c "SELECT sweeper.unregister('b')" -c "DROP TABLE b"
done
cat <<TXT
| $rows of $((5 * rows / 2)) rows fall due at one moment beside pgbench TPC-B, 8 clients; $window s before it and after it, defaults | target | measured |
| --- | --- | --- |
| p99 of a transaction, after against before | 1.5 x | $(against after.p99 before.p99) |
| (milliseconds here: after; before) | | $(rounded "$(median <after.p99)" 2); $(rounded "$(median <before.p99)" 2) |
| transactions, after against before | | $(against after.count before.count) |
| rows that expired meanwhile | | $(rounded "$(median <expired)") |
TXT
