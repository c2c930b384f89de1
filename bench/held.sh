#!/bin/bash
# Held: 100,000 rows that must stay cost others nothing.  500 rows of another
# group fall due each second while the fuse holds these, or while a grace covers
# them after a crash.  Everything has its default, but that commits are time-stamped.
set -eu
. "$(dirname "$0")/lib.sh"
seconds=${LAG_SECONDS:-30} held=${HELD:-100000}
cluster "track_commit_timestamp = on"

# Half of the rows will be held.  The others live for long, so that the fuse does not count them.
fill() {
    sql <<SQL
CREATE TABLE $1 (id int PRIMARY KEY, g text NOT NULL, d timestamptz NOT NULL, ttl interval NOT NULL DEFAULT '1 h');
CREATE INDEX ON $1 ($2);
INSERT INTO $1 SELECT i, CASE WHEN i <= $held THEN 'held' ELSE 'others' END, now() + '1 day' FROM generate_series(1, 2 * $held) AS i;
VACUUM ANALYZE $1;
SELECT FROM sweeper.register('$1', policy => '$1', start => 'now', $3);
SQL
}

# Others' lag from now on, from the deadline to the commit that removed the row and wrote its event.
lag() {
    sql -c "INSERT INTO $1 SELECT 1000000 + i, 'others', clock_timestamp() + i * interval '2 ms', '2 s' FROM generate_series(1, $(((seconds + 5) * 500))) AS i"
    wait_for "SELECT count(*) = 0 FROM $1 WHERE id > 1000000" $((seconds + 180))
    # not those of the first 5 s, before the sweeper has found out that so much is due
    sql -c "SELECT 1000 * extract(epoch FROM pg_xact_commit_timestamp(xmin) - deadline) FROM sweeper.cleanup_event WHERE policy = '$1' AND key::int > 1002500" >lags
    quiet -c "DELETE FROM sweeper.cleanup_event"
    printf ' | %s; %s; %s ms' "$(rounded "$(median <lags)")" "$(rounded "$(quantile 0.99 <lags)")" "$(rounded "$(maximum <lags)")"
}

# The same without and with rows that are held.
row() {
    printf '| %s' "$2"
    lag "$1"
    "$3" "$1"
    lag "$1"
    [ "$(sql -c "SELECT count(*) FROM $1 WHERE id <= $held")" = "$held" ] || die "held rows of $1 have gone"
    echo ' |'
    quiet -c "SELECT sweeper.unregister('$1')"
}

hold() {
    quiet -c "UPDATE $1 SET d = now() - random() * interval '5 min' WHERE g = 'held'"
    quiet -c "CALL sweeper.sweep('$1')" 2>/dev/null
    [ "$(sql -c "SELECT count(*) FROM sweeper.fuse_hold JOIN sweeper.policy USING (policy_id) WHERE policy = '$1'")" = 1 ] || die "the fuse does not hold rows of $1"
}

crash() {
    private_stop immediate
    private_start_again
    quiet -c "UPDATE $1 SET d = now() - ttl - random() * interval '5 min' WHERE g = 'held'"
}

cat <<TXT
| lag of 500 other rows/s: p50; p99; longest | nothing is held | $held rows are held (target: p99 below 1,000 ms) |
| --- | --- | --- |
TXT
fill fixed d "deadline => 'd', group_by => 'g'"
row fixed "by the fuse, fixed deadlines" hold
fill living d "deadline => 'd', group_by => 'g', ttl => '1 h', heartbeats => true"
row living "by the fuse, with heartbeats" hold
fill own "((d AT TIME ZONE 'UTC') + ttl)" "last_seen => 'd', ttl_column => 'ttl'"
row own "by grace after a crash, each row has its own time to live" crash
