#!/bin/bash
# An application at work (pgbench TPC-B, 8 clients) alone and while dead rows go.
# Of pgbench's log only the transactions that ended meanwhile count.
set -eu
. "$(dirname "$0")/sides.sh"
. "$(dirname "$0")/lib.sh"
limit=5000
cluster "${steady[@]}" "shared_buffers = '2GB'"
audit_tables
"$pg_bin/pgbench" -i -q -s 20 postgres >/dev/null 2>&1

# While the command runs: files of the mode's transactions/s, their mean latency
# and its 99th percentile in milliseconds, and of dead rows/s that went.
measure() { # mode, command
    local mode=$1 begin end pgbench
    shift
    fill shuffled $((2 * rows))
    # every mode begins with pgbench's tables as they were, and warm
    sql -c "TRUNCATE audit_same, sweeper.cleanup_event, pgbench_history" -c "VACUUM pgbench_accounts, pgbench_tellers, pgbench_branches" -c CHECKPOINT
    rm -f transactions*
    "$pg_bin/pgbench" -n -c 8 -j 2 -T 600 -l --log-prefix=transactions postgres >pgbench.log 2>&1 &
    pgbench=$!
    sleep 3
    begin=${EPOCHREALTIME/./}
    "$@"
    end=${EPOCHREALTIME/./}
    sleep 0.5 # until what happened is in the log
    kill "$pgbench" 2>/dev/null || { cat pgbench.log >&2; die "pgbench ended early"; }
    wait "$pgbench" || true
    cat transactions.* | awk -v b="$begin" -v e="$end" '{t = $5 * 1000000 + $6} t > b && t <= e {print $3 / 1000}' >latencies
    awk -v us=$((end - begin)) 'END {print NR * 1000000 / us}' latencies >>"$mode.tps"
    awk '{ms += $1} END {print ms / NR}' latencies >>"$mode.mean"
    quantile 0.99 <latencies >>"$mode.p99"
    echo "$(gone) $((end - begin))" | awk '{print $1 * 1000000 / $2}' >>"$mode.rows"
}
gone() { sql -c "SELECT $((2 * rows)) - count(*) FROM b"; }
register() { sql -c "SELECT FROM sweeper.register('b', deadline => 'd', start => 'now', backlog_rate => 0, $1)"; }
unregister() { quiet -c "SELECT sweeper.unregister('b')"; }

none() { sleep 5; }
limited() { register "rate_limit => $limit"; sleep 5; unregister; }
pass() {
    register "check_every => '0', max_workers => $1"
    quiet -c "CALL sweeper.sweep('b')"
    unregister
}
statement() { sql -c "$same"; }

for run in $(seq "$runs"); do
    for mode in $(rotated "$run" none limited one two statement); do
        case $mode in
            one) measure one pass 1 ;;
            two) measure two pass 2 ;;
            *) measure "$mode" "$mode" ;;
        esac
        case $mode in one | two | statement) [ "$(gone)" = "$rows" ] || die "$mode removed $(gone) rows of $rows" ;; esac
    done
done

row() { # mode, name
    echo "| $2 | $(against "$1.tps" none.tps) | $(rounded "$(median <"$1.tps")") | $(rounded "$(median <"$1.mean")" 2) | $(rounded "$(median <"$1.p99")" 1) | $(rounded "$(median <"$1.rows")") |"
}
cat <<TXT
| pgbench TPC-B, 8 clients, scale 20, while of $((2 * rows)) rows in random order one half is dead | transactions/s, against alone | transactions/s here | mean latency, ms | p99, ms | dead rows/s |
| --- | --- | --- | --- | --- | --- |
$(row none "alone")
$(row limited "session_sweeper, rate_limit => $limit")
$(row one "session_sweeper without limit, 1 worker")
$(row two "session_sweeper without limit, 2 workers")
$(row statement "WITH d AS (DELETE ...) INSERT into the same audit table")
TXT
