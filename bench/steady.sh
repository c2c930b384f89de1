#!/bin/bash
# A steady state: rows come and fall due at the same rate, among a million that
# live.  What their end costs, against a job of pg_cron each minute.
set -eu
. "$(dirname "$0")/sides.sh"
. "$(dirname "$0")/lib.sh"
seconds=${STEADY_SECONDS:-600} rate=5000 life=20

[ -f "$("${PG_CONFIG:-pg_config}" --sharedir)/extension/pg_cron.control" ] || die "pg_cron is not installed (package postgresql-NN-cron)"
private_folder
cluster "${steady[@]}" "autovacuum = on" "autovacuum_naptime = '15s'" "shared_preload_libraries = 'session_sweeper,pg_cron'" "cron.host = '$private'"
sql -c "CREATE EXTENSION pg_cron"
audit_tables
echo "INSERT INTO b (id, d) SELECT gen_random_uuid(), clock_timestamp() + interval '$life s' + i * interval '0.2 ms' FROM generate_series(1, 500) AS i;" >insert.sql

# Nanoseconds of CPU that the process which inserts has taken, until it ends.
inserter() {
    local pid
    wait_for "SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'pgbench' AND query ~ '^INSERT'"
    pid=$(sql -c "SELECT pid FROM pg_stat_activity WHERE application_name = 'pgbench' AND query ~ '^INSERT'")
    while cut -d ' ' -f 1 "/proc/$pid/schedstat" 2>/dev/null; do sleep 0.2; done | tail -n 1
}
state() { echo "$(cpu) $(sql -F ' ' -c "SELECT pg_current_wal_insert_lsn() - '0/0', pg_table_size('b'), pg_indexes_size('b')")"; }
job() { quiet -c "SELECT cron.schedule('b', '* * * * *', \$\$$1\$\$)"; }
policy() { # audit, min_interval
    quiet -c "ALTER SYSTEM SET session_sweeper.min_interval = ${2:-DEFAULT}" -c "SELECT pg_reload_conf()"
    sql -c "SELECT FROM sweeper.register('b', deadline => 'd', start => 'now', audit => '$1')"
}

measure() { # side
    local before after inserted left inserting
    fill ordered 0
    sql -c "INSERT INTO b (id, d) SELECT gen_random_uuid(), 'infinity' FROM generate_series(1, $rows)" -c "VACUUM ANALYZE b" \
        -c "TRUNCATE audit_same, sweeper.cleanup_event" -c CHECKPOINT
    case $1 in none) policy none ;; ours) policy row ;; rare) policy row "'1s'" ;; bare) job "$bare" ;; same) job "$same" ;; esac
    before=$(state)
    "$pg_bin/pgbench" -n -M prepared -R $((rate / 500)) -T "$seconds" -f insert.sql postgres >pgbench.log 2>&1 &
    inserting=$(inserter)
    wait $! || die "$(tail -n 3 pgbench.log)"
    after=$(state)
    inserted=$((500 * $(sed -n 's/^number of transactions actually processed: \([0-9]*\).*/\1/p' pgbench.log)))
    left=$(sql -c "SELECT count(*) - $rows FROM b")
    case $1 in none | ours | rare) quiet -c "SELECT sweeper.unregister('b')" ;; bare | same) quiet -c "SELECT cron.unschedule('b')" ;; esac
    echo "$before $after $inserted $left $inserting" >>"$1.raw"
}
for run in $(seq "$runs"); do
    for side in $(rotated "$run" alone none bare ours rare same); do measure "$side"; done
done

# Cost a row that ended: microseconds of CPU, without the process that inserts, and beyond what the server takes for insertions alone; bytes of
# WAL beyond these; growth of table and indexes in MB.
for side in none bare ours rare same; do
    paste -d ' ' "$side.raw" alone.raw | awk '{ended = $9 - $10
        print 1e-3 * (($5 - $1 - $11) / $9 - ($16 - $12 - $22) / $20) * $9 / ended, (($6 - $2) / $9 - ($17 - $13) / $20) * $9 / ended, ($7 - $3) / 1e6, ($8 - $4) / 1e6}' >"$side.costs"
    for i in 1 2 3 4; do cut -d ' ' -f $i "$side.costs" >"$side.$i"; done
done
row() { # number, name
    echo "| $2 | $(against "ours.$1" "same.$1") | $(rounded "$(median <"ours.$1")" 1); $(rounded "$(median <"same.$1")" 1) | $(against "rare.$1" "same.$1") | $(rounded "$(median <"rare.$1")" 1) | $(against "none.$1" "bare.$1") | $(rounded "$(median <"none.$1")" 1); $(rounded "$(median <"bare.$1")" 1) |"
}
cat <<TXT
| $rate rows/s come and fall due $life s later, among $rows, $seconds s; defaults against a job of pg_cron each minute (target: 1 x) | an event each, against a DELETE with the same audit | here | the same with min_interval of 1 s | here | no audit, against a bare DELETE | here |
| --- | --- | --- | --- | --- | --- | --- |
$(row 1 "CPU of all server processes a row that ended, microseconds")
$(row 2 "WAL a row that ended, bytes")
$(row 3 "growth of the table, MB")
$(row 4 "growth of its indexes, MB")
TXT
