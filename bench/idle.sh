#!/bin/bash
# CPU of an idle cluster: 1,000 policies whose rows fall due in a month, in one
# database and spread over ten; and in one database with a time to live in each row, and
# with a filter that keeps a row of each table.
# Everything has its default, but autovacuum and checkpoints are off: what they happen to
# do in one of two minutes is more than what is measured.
set -eu
. "$(dirname "$0")/lib.sh"
policies=${POLICIES:-1000} seconds=${IDLE_SECONDS:-60} rest=${IDLE_REST:-60}
cluster "max_locks_per_transaction = 1000" "autovacuum = off" "checkpoint_timeout = '1h'" "max_wal_size = '16GB'"

# Nanoseconds of CPU a second.
spent() { # seconds
    local before
    before=$(cpu)
    sleep "$1"
    echo $((($(cpu) - before) / $1))
}
enabled() {
    sql -c "ALTER SYSTEM SET session_sweeper.enabled = $1" -c "SELECT pg_reload_conf()" >/dev/null
    wait_for "SELECT (count(*) > 1) = (current_setting('session_sweeper.enabled') = 'on') FROM pg_stat_activity WHERE backend_type LIKE 'session_sweeper%'"
}

fixed="deadline => 'd'"
filter="deadline => 'd', filter => 'ttl_s > 0'"
by_row="last_seen => 'd', ttl_column => 'ttl_s', ttl => '1 h'"

# Per cent of a core, beyond what the cluster takes while the extension rests, with so many policies in each of so many databases.
idle() { # databases, seconds, what is dead, days from now
    local i on off
    for i in $(seq "$1"); do
        sql -c "CREATE DATABASE d$1_$i"
        sql -d "d$1_$i" <<SQL
SET client_min_messages = error;
CREATE EXTENSION session_sweeper;
SELECT format('CREATE TABLE t%1\$s (id int PRIMARY KEY, d timestamptz NOT NULL, ttl_s int NOT NULL);
    INSERT INTO t%1\$s SELECT i, now() + interval ''%2\$s days'' + i * interval ''1 s'', 30 * 86400 FROM generate_series(1, 100) AS i; CREATE INDEX ON t%1\$s (d);
    CREATE INDEX ON t%1\$s (d) WHERE ttl_s > 0; INSERT INTO t%1\$s SELECT 101, now() - interval ''1 day'', 0 WHERE %3\$L ~ ''filter'';
    CREATE INDEX ON t%1\$s (((d AT TIME ZONE ''UTC'') + coalesce(make_interval(secs => ttl_s), ''1 h'')));
    SELECT FROM sweeper.register(''t%1\$s'', %3\$s, start => ''now'')', n, $4, \$\$$3\$\$) FROM generate_series(1, $policies / $1) AS n \gexec
VACUUM ANALYZE;
SQL
    done
    sql -c CHECKPOINT
    sleep "$rest" # an idle policy looks less and less often, and how far service has judged is noted ever more rarely
    on=$(spent "$2")
    enabled off
    off=$(spent "$seconds")
    enabled on
    awk -v ns=$((on - off)) 'BEGIN {printf "%.2f", ns / 1e7}'
    for i in $(seq "$1"); do sql -c "DROP DATABASE d$1_$i"; done
}
cat <<TXT
| CPU of $policies policies, nothing due, $rest s after their registration | target | measured |
| --- | --- | --- |
| in one database, over $seconds s | 0.3 % of a core | $(idle 1 "$seconds" "$fixed" 30) % |
| in 10 databases, over 300 s: each takes a turn every 5 minutes | 0.3 % of a core | $(idle 10 300 "$fixed" 30) % |
| a filter, an index of its rows, in one database, over $seconds s | | $(idle 1 "$seconds" "$filter" 30) % |
| a time to live in each row, in one database, over $seconds s | | $(idle 1 "$seconds" "$by_row" 0) % |
TXT
