#!/bin/bash
# CPU of an idle cluster: 1,000 policies whose rows fall due in a month, in one
# database and spread over ten.  Everything has its default.
set -eu
. "$(dirname "$0")/lib.sh"
policies=${POLICIES:-1000} seconds=${IDLE_SECONDS:-60} rest=${IDLE_REST:-60}
cluster "max_locks_per_transaction = 1000"

spent() {
    local before
    before=$(cpu)
    sleep "$seconds"
    echo $(($(cpu) - before))
}
enabled() {
    sql -c "ALTER SYSTEM SET session_sweeper.enabled = $1" -c "SELECT pg_reload_conf()" >/dev/null
    wait_for "SELECT (count(*) > 1) = (current_setting('session_sweeper.enabled') = 'on') FROM pg_stat_activity WHERE backend_type LIKE 'session_sweeper%'"
}

# Per cent of a core, beyond what the cluster takes while the extension rests, with so many policies in each of so many databases.
idle() { # databases
    local i on off
    for i in $(seq "$1"); do
        sql -c "CREATE DATABASE d$1_$i"
        sql -d "d$1_$i" <<SQL
SET client_min_messages = error;
CREATE EXTENSION session_sweeper;
SELECT format('CREATE TABLE t%1\$s (id int PRIMARY KEY, d timestamptz NOT NULL);
    INSERT INTO t%1\$s SELECT i, now() + interval ''30 days'' + i * interval ''1 s'' FROM generate_series(1, 100) AS i; CREATE INDEX ON t%1\$s (d);
    SELECT FROM sweeper.register(''t%1\$s'', deadline => ''d'', start => ''now'')', n) FROM generate_series(1, $policies / $1) AS n \gexec
VACUUM ANALYZE;
SQL
    done
    sleep "$rest" # an idle policy looks less and less often, and how far service has judged is noted ever more rarely
    on=$(spent)
    enabled off
    off=$(spent)
    enabled on
    awk -v ns=$((on - off)) -v s="$seconds" 'BEGIN {printf "%.2f", ns / 1e7 / s}'
    for i in $(seq "$1"); do sql -c "DROP DATABASE d$1_$i"; done
}
cat <<TXT
| CPU of $policies policies, nothing due, over $seconds s, $rest s after their registration | target | measured |
| --- | --- | --- |
| in one database | 0.3 % of a core | $(idle 1) % |
| in 10 databases | 0.3 % of a core | $(idle 10) % |
TXT
