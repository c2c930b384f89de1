#!/bin/bash
# Many databases: the lag of a row whose deadline was known, and of one that was
# written when its deadline had passed, and of rows that fall due all the time in ten of
# them.  Everything has its default, but that commits are time-stamped.
set -eu
. "$(dirname "$0")/lib.sh"
n=${DATABASES:-200} seconds=${LAG_SECONDS:-30}
cluster "track_commit_timestamp = on"
for i in $(seq "$n"); do echo "CREATE DATABASE d$i STRATEGY file_copy;"; done | quiet
for i in $(seq "$n"); do
    sql -d "d$i" -c "SET client_min_messages = error; CREATE EXTENSION session_sweeper; CREATE TABLE b (id serial PRIMARY KEY, d timestamptz NOT NULL);
        CREATE INDEX ON b (d); SELECT FROM sweeper.register('b', deadline => 'd', start => 'now')"
done
wait_for "SELECT count(*) > $n AND bool_and(next_due > now()) FROM sweeper._database() WHERE state = 'present'" 600

# One row in each database, $2 s apart, due in so many seconds from its insertion; the lags.
lags() { # due, pause
    for i in $(seq "$n"); do
        sql -d "d$i" -c "TRUNCATE sweeper.cleanup_event; INSERT INTO b (d) SELECT clock_timestamp() + $1 * interval '1 s'"
        sleep "$2"
    done
    for i in $(seq "$n"); do
        PGDATABASE="d$i" wait_for "SELECT EXISTS (SELECT FROM sweeper.cleanup_event)"
        sql -d "d$i" -c "SELECT 1000 * extract(epoch FROM cleaned_at - deadline) FROM sweeper.cleanup_event"
    done
}
lags 30 0.1 >known
lags 0 0.25 >written

# Ten of the databases have work: five rows a second each.
for i in $(seq 10); do
    sql -d "d$((i * n / 10))" -c "TRUNCATE sweeper.cleanup_event" \
        -c "INSERT INTO b (d) SELECT clock_timestamp() + interval '8 s' + i * interval '200 ms' FROM generate_series(1, 5 * $seconds) AS i"
done
for i in $(seq 10); do
    PGDATABASE="d$((i * n / 10))" wait_for "SELECT count(*) = 5 * $seconds FROM sweeper.cleanup_event"
    sql -d "d$((i * n / 10))" -c "SELECT 1000 * extract(epoch FROM pg_xact_commit_timestamp(xmin) - deadline) FROM sweeper.cleanup_event" >>ten
done
# nothing happens for a minute: how many looks are there?
turns() { for i in $(seq "$n"); do sql -d "d$i" -c "SELECT sum(looks) FROM sweeper.stat_policy WHERE policy = 'b'"; done | awk '{n += $1} END {print n}'; }
sleep 15
before=$(turns)
sleep 60
after=$(turns)
cat <<TXT
| lag in $n databases, default settings | target | p50 | p99 | longest |
| --- | --- | --- | --- | --- |
| deadline known, ten a second fall due | 1,000 ms | $(rounded "$(median <known)") ms | $(rounded "$(quantile 0.99 <known)") ms | $(rounded "$(maximum <known)") ms |
| written after its deadline, four a second | 3,000 ms | $(rounded "$(median <written)") ms | $(rounded "$(quantile 0.99 <written)") ms | $(rounded "$(maximum <written)") ms |
| ten have work, five rows a second each | 1,000 ms | $(rounded "$(median <ten)") ms | $(rounded "$(quantile 0.99 <ten)") ms | $(rounded "$(maximum <ten)") ms |
| looks at the $n idle policies in a minute: $((after - before)) | | | | |
TXT
