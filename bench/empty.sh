#!/bin/bash
# Passes that find nothing: small and large tables, and under an old snapshot.
set -eu
. "$(dirname "$0")/lib.sh"
large=${LARGE:-10000000}
cluster "${steady[@]}"
sql -c "SELECT FROM sweeper.pause_all('bench')" # retention of the evidence

looks() { sql -c "SELECT looks FROM sweeper.stat_policy WHERE policy = '$1'"; }
# Times of n calls; each must have looked at the table.
calls() { # n, policy, file
    local before
    before=$(looks "$2")
    for _ in $(seq "$1"); do echo "CALL sweeper.sweep('$2');"; done | times >"$3"
    [ $(($(looks "$2") - before)) -ge "$1" ] || die "calls without a look"
}

table() { # name, rows
    sql <<SQL
CREATE UNLOGGED TABLE $1 (id int PRIMARY KEY, d timestamptz NOT NULL);
INSERT INTO $1 SELECT i, now() + interval '1 day' + i * interval '1 ms' FROM generate_series(1, $2) AS i;
CREATE INDEX ON $1 (d);
VACUUM ANALYZE $1;
SELECT FROM sweeper.register('$1', deadline => 'd', check_every => '0', start => 'now');
CALL sweeper.sweep('$1');
SQL
}
xid() { sql -c 'SELECT pg_snapshot_xmax(pg_current_snapshot())'; }
quiet -c "SELECT 1"
table small 100000 >/dev/null
table large "$large" >/dev/null
before=$(xid)
for run in $(seq "$runs"); do
    for size in $(rotated "$run" small large); do
        calls 101 "$size" "$size.calls"
        median <"$size.calls" >>"$size"
    done
done
xids=$(($(xid) - before))
quiet -c "SELECT sweeper.unregister('small'), sweeper.unregister('large')" -c "DROP TABLE small, large"

# Milliseconds of CPU that the coordinator takes for a look of its own, while a living row is written each second.
own_looks() { # policy
    local pid spent before
    quiet -c "SELECT sweeper.alter_policy('$1', check_every => '200 ms')"
    pid=$(sql -c "SELECT pid FROM sweeper.stat_process WHERE backend_type = 'session_sweeper coordinator'")
    before=$(looks "$1")
    spent=$(cut -d ' ' -f 1 "/proc/$pid/schedstat")
    for _ in $(seq 60); do
        sql -c "INSERT INTO $1 (id, d) VALUES (gen_random_uuid(), now() + interval '1 day')"
        sleep 1
    done
    before=$(($(looks "$1") - before))
    [ "$before" -ge 30 ] || die "only $before looks"
    awk -v ns=$(($(cut -d ' ' -f 1 "/proc/$pid/schedstat") - spent)) -v n="$before" 'BEGIN { printf "%.3f\n", ns / 1e6 / n }'
    echo "$before" >>held.looks
}

# An old snapshot keeps the index entries of all rows that were deleted.
held() {
    fill ordered
    sql -c "SELECT FROM sweeper.register('b', deadline => 'd', check_every => '0', start => 'now')"
    mkfifo holder
    "$pg_bin/psql" -X -q -At <holder >/dev/null &
    exec 9>holder
    echo 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1;' >&9
    wait_for "SELECT count(*) = 1 FROM pg_stat_activity WHERE state = 'idle in transaction' AND backend_xmin IS NOT NULL"
    quiet -c "CALL sweeper.sweep('b')"
    [ "$(sql -c "SELECT expired FROM sweeper.stat_policy WHERE policy = 'b'")" = $((rows / 2)) ] || die "dead rows were left"
    calls 101 b held.calls
    own_looks b >>held.own
    exec 9>&-
    wait
    rm holder
    quiet -c "SELECT sweeper.unregister('b')"
    head -n 1 held.calls >>held.first
    tail -n +2 held.calls | median >>held.later
    tail -n +2 held.calls | maximum >>held.worst
}
for _ in $(seq "$runs"); do held; done

cat <<TXT
| CALL sweep that finds nothing, medians of 101 | target | measured |
| --- | --- | --- |
| 100,000 rows | 1 ms | $(rounded "$(median <small)" 3) ms |
| $large rows | 1 ms | $(rounded "$(median <large)" 3) ms |
| the second against the first | 1.5 x | $(against large small) |
| transaction ids taken by $((runs * 202)) calls | 0 | $xids |
| under a snapshot older than the deletion of $((rows / 2)) rows: the first call | | $(rounded "$(median <held.first)" 1) ms |
| CPU of a look of the coordinator, over a minute in which $(median <held.looks) come | 2 ms | $(rounded "$(median <held.own)" 2) ms |
| later calls | | $(rounded "$(median <held.later)" 3) ms (at most $(rounded "$(maximum <held.worst)" 3)) |
TXT
