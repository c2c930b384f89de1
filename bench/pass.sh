#!/bin/bash
# A full pass against one backend's statement that does the same.
set -eu
. "$(dirname "$0")/sides.sh"
. "$(dirname "$0")/lib.sh"
cluster "${steady[@]}"
audit_tables

for run in $(seq 0 "$runs"); do
    for order in ordered shuffled; do
        for side in $(rotated "$run" bare same usual ours none group); do
            run_side "$run" "$order" "$side"
        done
    done
done

shapes="hours single clustered wide text composite indexes partitions"
for run in $(seq 0 "$runs"); do
    for shape in $shapes; do
        for side in $(rotated "$run" bare none group); do
            if [ "$shape" = wide ]; then few=$((rows / 10)); else few=$rows; fi
            run_side "$run" "$shape" "$side" "$few"
        done
    done
done

row() { # side, name, target
    echo "| $2 | $3 | $(against ordered.ours "ordered.$1") | $(against shuffled.ours "shuffled.$1") |"
}
cat <<TXT
| full pass of $rows rows, half dead, an event each, 2 workers, against | target | deadlines in order of the table | in random order |
| --- | --- | --- | --- |
$(row bare "a bare DELETE, no audit" "2.0 x")
$(row same "WITH d AS (DELETE ...) INSERT into the same audit table" "0.6 x")
$(row usual "the same into a table with identity key and two btree indexes" "0.35 x")
| (milliseconds here: the pass; bare, same, usual) | | $(milliseconds ordered.ours); $(milliseconds ordered.bare), $(milliseconds ordered.same), $(milliseconds ordered.usual) | $(milliseconds shuffled.ours); $(milliseconds shuffled.bare), $(milliseconds shuffled.same), $(milliseconds shuffled.usual) |

| shape of the table and its deadlines; audited with group_by, and without audit, 2 workers, against | target 1.6 x, 1.0 x: a bare DELETE | milliseconds here |
| --- | --- | --- |
$(for shape in ordered shuffled $shapes; do
    echo "| $shape | $(against "$shape.group" "$shape.bare"); $(against "$shape.none" "$shape.bare") | $(milliseconds "$shape.group"), $(milliseconds "$shape.none"); $(milliseconds "$shape.bare") |"
done)
TXT
