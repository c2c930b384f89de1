#!/bin/bash
# Lag: 1,000 rows fall due each second among a million.  Everything has its
# default, but that commits are time-stamped.
set -eu
. "$(dirname "$0")/lib.sh"
seconds=${LAG_SECONDS:-30}
cluster "track_commit_timestamp = on"
sql <<SQL
CREATE TABLE b (id int PRIMARY KEY, d timestamptz NOT NULL);
INSERT INTO b SELECT i, now() + interval '30 s' + i * interval '1 ms' FROM generate_series(1, $rows) AS i;
CREATE INDEX ON b (d);
VACUUM ANALYZE b;
SELECT FROM sweeper.register('b', policy => 'lag', deadline => 'd', start => 'now');
SQL
[ "$(sql -c "SELECT min(d) > now() + interval '1 s' FROM b")" = t ] || die "this machine takes too long to fill a table"
wait_for "SELECT coalesce(max(expired), 0) >= $((seconds * 1000)) FROM sweeper.stat_policy WHERE policy = 'lag'" $((seconds + 180))
quiet -c "SELECT sweeper.unregister('lag')"
# From the deadline to the commit that removed the row and wrote its event.
sql -F ' ' -c "SELECT 1000 * extract(epoch FROM pg_xact_commit_timestamp(xmin) - deadline) FROM sweeper.cleanup_event WHERE policy = 'lag'" >lags
cat <<TXT
| lag to the commit, 1,000 rows/s due among $rows, default settings, $(wc -l <lags) rows | target | measured |
| --- | --- | --- |
| p50 | | $(rounded "$(median <lags)") ms |
| p99 | 50 ms | $(rounded "$(quantile 0.99 <lags)") ms |
| longest | | $(rounded "$(maximum <lags)") ms |
TXT
