#!/bin/bash
# What a row of an audited pass with group_by costs in tables of growing size.
set -eu
. "$(dirname "$0")/sides.sh"
. "$(dirname "$0")/lib.sh"
sizes=${SIZES:-200000 2000000 10000000}
cluster "${steady[@]}" "shared_buffers = '8GB'"
audit_tables

# A small table gives a short time, which needs more runs.
many() { echo $(($1 < 2000000 ? 5 : $1 < 10000000 ? 2 : 1)); }

shapes=${SHAPES:-ordered shuffled hours single clustered wide text composite indexes partitions}
fill ordered "${sizes##* }" && side_group >/dev/null # WAL files and caches come to be
for shape in $shapes; do
    for round in $(seq "$runs"); do # all sizes in each, as a machine's speed drifts
        for size in $sizes; do
            if [ "$shape" = wide ]; then few=$((size / 10)); else few=$size; fi
            for run in $(seq "$(many "$size")"); do
                run_side "$round$run" "$shape" group "$few"
                tail -n 1 "$shape.group" | awk -v rows="$few" '{print 2000 * $1 / rows}' >>"$shape.$size"
            done
        done
    done
done

# shellcheck disable=SC2086
set -- $sizes
cat <<TXT
| shape; an audited pass with group_by, 2 workers | microseconds a dead row, of $(for size in "$@"; do printf '%s, ' $((size / 2)); done | sed 's/, $//') (wide: a tenth) | the last against the first: target 1.1 x |
| --- | --- | --- |
$(for shape in $shapes; do
    echo "| $shape | $(for size in "$@"; do rounded "$(median <"$shape.$size")" 2; printf ', '; done | sed 's/, $//') | $(awk -v a="$(median <"$shape.${*: -1}")" -v b="$(median <"$shape.$1")" 'BEGIN {printf "%.2f x", a / b}') |"
done)
TXT
