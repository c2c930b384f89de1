#!/bin/bash
# A full pass against what is done today: the statement in pg_cron, and clients
# that delete row by row.
set -eu
. "$(dirname "$0")/sides.sh"
. "$(dirname "$0")/lib.sh"
clients=20

peers="clients ours"
preload=session_sweeper
if [ -f "$("${PG_CONFIG:-pg_config}" --sharedir)/extension/pg_cron.control" ]; then
    peers="cron $peers" preload=$preload,pg_cron
fi
private_folder # pg_cron connects by the socket in it
cluster "${steady[@]}" "shared_preload_libraries = '$preload'" "cron.host = '$private'"
[ "$preload" = session_sweeper ] || sql -c "CREATE EXTENSION pg_cron"
audit_tables

# The time that pg_cron itself records for its job.
side_cron() {
    quiet -c "TRUNCATE cron.job_run_details" -c "SELECT cron.schedule('expire', '* * * * *', \$\$$same\$\$)"
    wait_for "SELECT bool_or(status IN ('succeeded', 'failed')) FROM cron.job_run_details"
    quiet -c "SELECT cron.unschedule('expire')"
    [ "$(sql -c "SELECT string_agg(status, ',') FROM cron.job_run_details")" = succeeded ] ||
        die "pg_cron: $(sql -c "SELECT string_agg(return_message, ', ') FROM cron.job_run_details")"
    sql -c "SELECT 1000 * extract(epoch FROM end_time - start_time) FROM cron.job_run_details"
}

# What a task queue does with a list of dead keys, at its best: the keys are known,
# a row takes one prepared statement, one round trip and one commit.
each=$(((rows / 2 + clients - 1) / clients))
side_clients() {
    local begin
    cat >one_row.sql <<SQL
\\set i :i + 1
\\set n 2 * (:client_id * $each + :i)
WITH d AS (DELETE FROM b WHERE id = md5((:n)::text)::uuid AND d <= now() RETURNING id, d) $into_same
SQL
    begin=${EPOCHREALTIME/./}
    "$pg_bin/pgbench" -n -M prepared -c "$clients" -j 2 -t "$each" -D i=0 -f one_row.sql >pgbench.log 2>&1 || { cat pgbench.log >&2; return 1; }
    echo $(((${EPOCHREALTIME/./} - begin) / 1000))
}

for run in $(seq 0 "$runs"); do
    for side in $(rotated "$run" $peers); do
        [ "$run $side" = "0 clients" ] || run_side "$run" ordered "$side"
    done
done

cron="| (not installed) | |"
[ "$preload" = session_sweeper ] || cron="| $(against ordered.cron ordered.ours) | $(milliseconds ordered.cron); dead rows wait for the minute besides |"
cat <<TXT
| time of others for $rows rows, half dead, as a multiple of the pass's | measured | milliseconds here |
| --- | --- | --- |
| session_sweeper, an event each, 2 workers | 1 | $(milliseconds ordered.ours) |
| pg_cron, WITH d AS (DELETE ...) INSERT into the same audit table $cron
| $clients clients, row by row: that statement by key, prepared, a commit each | $(against ordered.clients ordered.ours 0) | $(milliseconds ordered.clients) |
TXT
