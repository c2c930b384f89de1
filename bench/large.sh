#!/bin/bash
# A full pass over a table larger than shared buffers, against a bare DELETE.
set -eu
. "$(dirname "$0")/sides.sh"
. "$(dirname "$0")/lib.sh"
rows=${LARGE:-10000000}
cluster "${steady[@]}" "shared_buffers = '256MB'"
audit_tables
for run in $(seq "$runs"); do
    for side in $(rotated "$run" bare none ours group); do run_side "$run" shuffled "$side"; done
done
cat <<TXT
| full pass of $rows rows in random order, half dead, 2 workers; shared buffers 256 MB, table and indexes $(sql -c "SELECT pg_size_pretty(pg_total_relation_size('b'))"), against a bare DELETE | target | measured | seconds here |
| --- | --- | --- | --- |
$(while IFS='|' read -r side name; do
    echo "| $name | 1.6 x | $(against "shuffled.$side" shuffled.bare) | $(median <"shuffled.$side" | awk '{printf "%.1f", $1 / 1000}'); $(median <shuffled.bare | awk '{printf "%.1f", $1 / 1000}') |"
done <<'SIDES'
none|no audit
ours|an event each
group|an event each, with group_by
SIDES
)
TXT
