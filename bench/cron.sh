#!/bin/bash
# The practice that the extension replaces, a job of pg_cron that deletes what is
# dead, each minute: both in one cluster, one table for the README.
set -eu
. "$(dirname "$0")/sides.sh"
. "$(dirname "$0")/lib.sh"
window=${TRICKLE_SECONDS:-180} run_seconds=${SECONDS_A_RUN:-5} sessions=100000

[ -f "$("${PG_CONFIG:-pg_config}" --sharedir)/extension/pg_cron.control" ] || die "pg_cron is not installed (package postgresql-NN-cron)"
# A job remembers where it was scheduled to connect to: here, or to the promoted standby, as "localhost" would.
private_folder
cluster "${steady[@]}" "shared_preload_libraries = 'session_sweeper,pg_cron'" "cron.host = '$private,$private/standby'" "track_commit_timestamp = on"
sql -c "CREATE EXTENSION pg_cron"
audit_tables

note() { echo "$2" >>"$1"; }                                                          # a figure of this run
figure() { rounded "$(median <"$1")" "${2:-0}"; }                                     # its median over the runs
quotient() { awk -v a="$1" -v b="$2" -v f="%.${3:-0}f" 'BEGIN {printf f, a / b}'; }
epoch() { sql -c "SELECT extract(epoch FROM clock_timestamp())"; }
at_second() { sleep $((1 + (59 + $1 - 10#$(date +%S)) % 60)); }
# What pg_cron runs, with the same audit table as elsewhere.
statement() { echo "WITH d AS (DELETE FROM $1 WHERE d <= now() RETURNING id, d) ${into_same//\'b\'/\'$1\'}"; }
events_of() { case $1 in cron*) echo audit_same ;; *) echo sweeper.cleanup_event ;; esac; }
runs_of() { echo "cron.job_run_details JOIN cron.job USING (jobid) WHERE jobname = '$1'"; }

# A big backlog, while a session updates living and dead rows, one each 5 ms.  That an
# update is late because the one before it waited counts as its wait.
backlog() { # side
    local events from to longest count client
    events=$(events_of "$1")
    fill shuffled
    sql -c "TRUNCATE audit_same, sweeper.cleanup_event"
    rm -f updates.*
    "$pg_bin/pgbench" -n -M prepared -R 200 -T 3600 -l --log-prefix=updates -f update.sql >pgbench.log 2>&1 &
    client=$!
    wait_for "SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'pgbench' AND query LIKE 'UPDATE%'"
    if [ "$1" = cron ]; then
        quiet -c "SELECT cron.schedule('b', '* * * * *', \$\$$(statement b)\$\$)"
        wait_for "SELECT bool_or(status = 'succeeded') FROM $(runs_of b)"
        from=$(sql -c "SELECT extract(epoch FROM min(cleaned_at)) FROM $events")
        quiet -c "SELECT cron.unschedule('b')"
    else
        from=$(epoch)
        quiet -c "SELECT FROM sweeper.register('b', deadline => 'd', start => 'now'$([ "$1" = paced ] || echo ', backlog_rate => 0, max_workers => 2'))"
        wait_for "SELECT expired = $((rows / 2)) FROM sweeper.stat_policy WHERE policy = 'b'" 1800
        quiet -c "SELECT sweeper.unregister('b')"
    fi
    quiet -c "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'pgbench'"
    wait "$client" || true # its client was ended
    IFS='|' read -r count to longest < <(sql -c "SELECT count(*), extract(epoch FROM max(c)), extract(epoch FROM max(c - cleaned_at))
        FROM (SELECT cleaned_at, pg_xact_commit_timestamp(xmin) AS c FROM $events WHERE policy = 'b') AS e")
    [ "$count" = $((rows / 2)) ] || die "$1 removed $count rows of the backlog"
    note "gone.$1" "$(awk -v a="$from" -v b="$to" 'BEGIN {print b - a}')"
    note "longest.$1" "$longest"
    awk -v a="$from" -v b="$to" '{end = $5 + $6 / 1e6} end > a && end - $3 / 1e6 < b {print $3 / 1000}' updates.* >waits
    [ -s waits ] || die "nobody updated rows meanwhile"
    note "wait99.$1" "$(quantile 0.99 <waits)"
    note "wait.$1" "$(maximum <waits)"
}

# Moving a deadline: the UPDATE that one does without us, and a heartbeat.
heartbeat() { # side
    local before after cost="SELECT pg_current_wal_insert_lsn() - '0/0', n_tup_upd FROM pg_stat_user_tables WHERE relname = 'app'" calls
    quiet -c CHECKPOINT
    before=$(sql -c "$cost")
    "$pg_bin/pgbench" -n -M prepared -c 8 -j 2 -T "$run_seconds" -f "$1.sql" >"$1.log" 2>&1 || die "$(tail -n 3 "$1.log")"
    after=$(sql -c "$cost")
    calls=$(sed -n 's/^number of transactions actually processed: \([0-9]*\).*/\1/p' "$1.log")
    note "rate.$1" "$(sed -n 's/^tps = \([0-9.]*\) .*/\1/p' "$1.log")"
    note "wal.$1" "$(quotient $((${after%|*} - ${before%|*})) "$calls" 3)"
    note "dead.$1" "$(quotient $((${after#*|} - ${before#*|})) "$calls" 3)"
}
heartbeats() { # run
    local side
    sql <<SQL
CREATE TABLE app (id bigint PRIMARY KEY, expires_at timestamptz NOT NULL);
INSERT INTO app SELECT i, now() + interval '1 day' FROM generate_series(1, $sessions) AS i;
CREATE INDEX ON app (expires_at);
VACUUM ANALYZE app;
SELECT FROM sweeper.register('app', deadline => 'expires_at', ttl => '1 day', heartbeats => true);
SELECT count(*) FROM sweeper.touch_many('app', ARRAY(SELECT id::text FROM app)) \g /dev/null
SQL
    for side in $(rotated "$1" touch move); do heartbeat "$side"; done
    quiet -c "SELECT sweeper.unregister('app')" -c "DROP TABLE app"
}

# A table for each of the two, alike, and what sweeps it.
pair() { # name, deadline of row i, rows, more SQL with a % for the side
    local side
    for side in ours cron; do
        sql <<SQL
CREATE TABLE ${side}_$1 (id int PRIMARY KEY, d timestamptz NOT NULL);
INSERT INTO ${side}_$1 SELECT i, $2 FROM generate_series(1, $3) AS i;
CREATE INDEX ON ${side}_$1 (d);
VACUUM ANALYZE ${side}_$1;
${4//%/$side}
SQL
    done
    quiet -c "SELECT FROM sweeper.register('ours_$1', deadline => 'd', start => 'now')" \
        -c "SELECT cron.schedule('$1', '* * * * *', \$\$$(statement "cron_$1")\$\$)"
}

# A row falls due each 10 ms.  Further tables: one without due rows, one that loses its
# column, and two with 1,000 due rows each, where one row is referred to, or locked.
pairs() {
    local some="now() + CASE WHEN i <= 1000 THEN interval '30 s' ELSE interval '1 day' END"
    pair trickle "now() + i * interval '10 ms'" $(((window + 900) * 100)) ''
    pair empty "now() + interval '1 day'" 10000 ''
    pair broken "now() + interval '1 day'" 10000 ''
    pair bad "$some" 10000 'CREATE TABLE %_child (id int REFERENCES %_bad); INSERT INTO %_child VALUES (500);'
    pair locked "$some" 10000 ''
    mkfifo holder
    "$pg_bin/psql" -X -q -At <holder >/dev/null &
    exec 9>holder
    printf '%s\n' 'BEGIN;' 'SELECT FROM ours_locked WHERE id = 500 FOR UPDATE;' 'SELECT FROM cron_locked WHERE id = 500 FOR UPDATE;' >&9
    wait_for "SELECT count(*) = 1 FROM pg_stat_activity WHERE state = 'idle in transaction' AND query LIKE '%cron_locked%'"
}
no_pairs() {
    local name
    quiet -c "DROP TABLE ours_child, cron_child"
    for name in trickle empty broken bad locked; do
        quiet -c "SELECT sweeper.unregister('ours_$name'), cron.unschedule('$name')" -c "DROP TABLE ours_$name, cron_$name"
    done
    quiet -c "TRUNCATE cron.job_run_details, audit_same, sweeper.cleanup_event, sweeper.pass"
}

# Rows of a history that the window made, as rows and megabytes a day, without indexes.
a_day() { # name, FROM and WHERE
    local of
    of=$(sql -c "SELECT count(*) * 86400 / $window, coalesce(avg(pg_column_size(h.*)), 0) + 4 $2")
    note "rows.$1" "${of%|*}"
    note "bytes.$1" "$(awk -v n="${of%|*}" -v b="${of#*|}" 'BEGIN {print n * b / 1e6}')"
}

trickle() {
    local from to side broken
    pairs
    from=$(sql -c "SELECT now() + interval '1 s'")
    to="'$from'::timestamptz + interval '$window s'"
    at_second 30
    broken=$(sql -c "ALTER TABLE ours_broken DROP COLUMN d" -c "ALTER TABLE cron_broken DROP COLUMN d" -c "SELECT clock_timestamp()")
    wait_for "SELECT now() > $to AND NOT EXISTS (SELECT FROM ours_trickle WHERE d < $to) AND NOT EXISTS (SELECT FROM cron_trickle WHERE d < $to)" $((window + 180))
    for side in ours cron; do
        sql -c "SELECT extract(epoch FROM pg_xact_commit_timestamp(xmin) - deadline) FROM $(events_of "$side")
            WHERE policy = '${side}_trickle' AND deadline >= '$from' AND deadline < $to" >lags
        [ "$(wc -l <lags)" -ge $((window * 100 - 1)) ] || die "$side removed $(wc -l <lags) rows of the trickle"
        note "lag50.$side" "$(median <lags)"
        note "lag99.$side" "$(quantile 0.99 <lags)"
        note "lag.$side" "$(maximum <lags)"
    done
    # two intervals of the job after the row was bad
    wait_for "SELECT count(*) >= 2 FROM $(runs_of bad) AND status = 'failed'"
    for side in ours cron; do
        [ "$(sql -c "SELECT count(*) FROM ${side}_bad, ${side}_locked AS l WHERE ${side}_bad.id = 500 AND l.id = 500")" = 1 ] || die "$side removed what it could not"
        note "bad.$side" "$(sql -c "SELECT 10000 - count(*) FROM ${side}_bad")"
        note "locked.$side" "$(sql -c "SELECT 10000 - count(*) FROM ${side}_locked")"
    done
    exec 9>&-
    wait
    rm holder
    note reported.ours "$(sql -c "SELECT extract(epoch FROM since - '$broken') FROM sweeper.problem WHERE policy = 'ours_broken'")"
    note reported.cron "$(sql -c "SELECT extract(epoch FROM min(end_time) - '$broken') FROM $(runs_of broken) AND status = 'failed'")"
    a_day cron "FROM (SELECT r.* FROM cron.job_run_details AS r JOIN cron.job USING (jobid) WHERE jobname = 'empty' AND start_time >= '$from' AND start_time < $to) AS h"
    a_day empty "FROM sweeper.pass AS h WHERE policy = 'ours_empty' AND started_at >= '$from' AND started_at < $to"
    a_day ours "FROM sweeper.pass AS h WHERE policy = 'ours_trickle' AND started_at >= '$from' AND started_at < $to"
}

# The process that starts the work hangs: seconds until a query says so.
hangs() {
    local pids since ours='' cron=''
    pids=$(sql -c "SELECT pid FROM sweeper.stat_process WHERE backend_type = 'session_sweeper coordinator' UNION SELECT pid FROM pg_stat_activity WHERE backend_type = 'pg_cron launcher'")
    [ "$(wc -w <<<"$pids")" = 2 ] || die "no coordinator, or no launcher"
    # shellcheck disable=SC2086 # two words
    kill -STOP $pids
    since=$SECONDS
    until [ -n "$ours" ] && [ -n "$cron" ]; do
        [ $((SECONDS - since)) -lt 300 ] || die "no view reports that they hang"
        sleep 0.5
        [ -n "$ours" ] || [ "$(sql -c "SELECT EXISTS (SELECT FROM sweeper.problem WHERE policy = 'ours_trickle')")" = f ] || ours=$((SECONDS - since))
        [ -n "$cron" ] || [ "$(sql -c "SELECT max(start_time) < now() - interval '2 min' FROM $(runs_of trickle)")" = f ] || cron=$((SECONDS - since))
    done
    # shellcheck disable=SC2086
    kill -CONT $pids
    note hang.ours "$ours"
    note hang.cron "$cron"
}

# Seconds from a moment to the first commit after it that removed rows.
first_gone() { # name, epoch
    local side first
    for side in ours cron; do
        first="FROM (SELECT pg_xact_commit_timestamp(xmin) AS c FROM $(events_of "$side") WHERE policy = '${side}_trickle') AS e WHERE c >= to_timestamp($2)"
        wait_for "SELECT count(*) > 0 $first"
        note "$1.$side" "$(sql -c "SELECT extract(epoch FROM min(c)) - $2 $first")"
    done
}

# At the 30th second, so that a job waits half a minute as it does on average.
restart() {
    local since
    at_second 30
    private_stop immediate
    since=$EPOCHREALTIME
    private_start_again
    first_gone restart "$since"
}
fail_over() {
    local since standby=("${as_server_user[@]}" timeout 90 "$pg_bin/pg_ctl" -D "$private/standby" -l "$private/standby.log")
    "${as_server_user[@]}" "$pg_bin/pg_basebackup" -D "$private/standby" -R -c fast
    echo "unix_socket_directories = '$private/standby'" >>"$private/standby/postgresql.conf"
    "${standby[@]}" -w start </dev/null >/dev/null 2>&1 || die "the standby did not start"
    wait_for "SELECT count(*) = 1 FROM pg_stat_replication WHERE state = 'streaming'"
    at_second 30
    private_stop immediate
    since=$EPOCHREALTIME
    "${standby[@]}" -w promote </dev/null >/dev/null
    PGHOST=$private/standby first_gone promote "$since"
    "${standby[@]}" -m immediate -w stop >/dev/null
    rm -rf "$private/standby"
    private_start_again
}

printf '%s\n' "\\set n random(1, $rows)" "UPDATE b SET pad = 'y' WHERE id = md5((:n)::text)::uuid;" >update.sql
printf '%s\n' "\\set n random(1, $sessions)" "SELECT sweeper.touch('app', :n);" >touch.sql
printf '%s\n' "\\set n random(1, $sessions)" "UPDATE app SET expires_at = now() + interval '1 day' WHERE id = :n;" >move.sql
for run in $(seq 0 "$runs"); do
    for side in $(rotated "$run" ours none same bare); do run_side "$run" shuffled "$side"; done
done
for run in $(seq "$runs"); do
    for side in $(rotated "$run" cron ours paced); do backlog "$side"; done
    heartbeats "$run"
done
sql -c "DROP TABLE b" -c "TRUNCATE audit_same, sweeper.cleanup_event" -c CHECKPOINT -c "ALTER SYSTEM SET autovacuum = on" -c "SELECT FROM pg_reload_conf()"
for _ in $(seq "$runs"); do
    trickle
    hangs
    restart
    fail_over
    no_pairs
done

each_second() { quotient $((rows * 500)) "$(median <"shuffled.$1")"; }
seconds_of() { echo "$(figure "$1.$2" "${3:-0}") s"; }
cat <<TXT
| measured, medians of $runs | session_sweeper | pg_cron $(sql -c "SELECT extversion FROM pg_extension WHERE extname = 'pg_cron'"), DELETE each minute |
| --- | --- | --- |
| time to expire, from deadline to commit, 100 rows/s due for $window s: p50; p99; longest | $(seconds_of lag50 ours 2); $(seconds_of lag99 ours 2); $(seconds_of lag ours 2) | $(seconds_of lag50 cron 1); $(seconds_of lag99 cron 1); $(seconds_of lag cron 1) |
| backlog of $((rows / 2)) dead among $rows rows, with audit: until all have expired | $(seconds_of gone ours 1) without limit; $(seconds_of gone paced) at the default 5,000 rows/s | $(seconds_of gone cron 1), from the minute on |
| its longest transaction | $(seconds_of longest ours 2); $(seconds_of longest paced 2) | $(seconds_of longest cron 2) |
| wait of other sessions' UPDATEs meanwhile: p99; longest | $(figure wait99.ours) ms; $(figure wait.ours) ms. By default: $(figure wait99.paced) ms; $(figure wait.paced) ms | $(figure wait99.cron) ms; $(figure wait.cron) ms |
| one row of 1,000 dead is refused by a foreign key: of the other 999 have expired after two intervals of the job | $(figure bad.ours) | $(figure bad.cron) |
| one is locked by a transaction that stays open | $(figure locked.ours) | $(figure locked.cron) |
| rows/s removed with audit, without, their quotient | $(each_second ours), $(each_second none), $(against shuffled.none shuffled.ours) | $(each_second same), $(each_second bare), $(against shuffled.bare shuffled.same) |
| moving a deadline, 8 clients: calls/s | touch(): $(figure rate.touch) | UPDATE: $(figure rate.move) |
| WAL bytes, dead row versions a call | $(figure wal.touch 1), $(figure dead.touch 2), and a row write once a ttl | $(figure wal.move), $(figure dead.move 2) |
| first dead row expired after the start of a crashed server, begun at second 30 | $(seconds_of restart ours 1) | $(seconds_of restart cron 1) |
| after the promotion of a standby, at second 30 | $(seconds_of promote ours 1) | $(seconds_of promote cron 1) |
| its column is dropped, so that each run fails: until that is recorded | $(seconds_of reported ours 1), view \`problem\` | $(seconds_of reported cron 1), \`cron.job_run_details\`, if it is read |
| the scheduler's process hangs: until a query shows it | $(seconds_of hang ours), view \`problem\` | $(seconds_of hang cron), your own query for jobs that have not run for two minutes |
| history a day of a table in which nothing falls due | $(figure rows.empty) rows | $(figure rows.cron) rows, $(figure bytes.cron 1) MB, kept forever |
| where rows fall due all the time | $(figure rows.ours) rows, $(figure bytes.ours 1) MB, kept 30 days | $(figure rows.cron) rows, $(figure bytes.cron 1) MB, kept forever |
TXT
