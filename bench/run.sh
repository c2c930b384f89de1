#!/bin/bash
# make bench: the extension against its peers, each subject on a private cluster
# of its own.  Prints tables for README.md.  BENCH chooses subjects, RUNS (5) says
# how often each side of a comparison runs.
set -eu
here=$(cd "$(dirname "$0")" && pwd)

read -r -a subjects <<<"${BENCH:-pass heartbeat peers checks empty lag tpcb memory refresh registry work databases held idle due}"
for subject in "${subjects[@]}"; do
    case $subject in
        pass | heartbeat | peers | checks | empty | lag | tpcb | memory | refresh | registry | work | databases | held | idle | due | large | linear | steady | cron | citus) ;;
        *) echo "bench: no subject \"$subject\"" >&2; exit 1 ;;
    esac
done
# What others do here: only a quiet machine gives figures that mean something.
others() {
    local before after
    read -r -a before </proc/stat
    sleep 2
    read -r -a after </proc/stat
    printf '%s\n' "${before[*]:1}" "${after[*]:1}" |
        awk '{all = 0; for (i = 1; i <= 8; i++) all += $i; idle = $4 + $5}
            NR == 1 {all0 = all; idle0 = idle}
            END {printf "%d %%", 100 * (1 - (idle - idle0) / (all - all0))}'
}

"${PG_CONFIG:-pg_config}" --version
for subject in "${subjects[@]}"; do
    printf '\n%s: %s processors; other processes use %s' "$subject" "$(nproc)" "$(others)"
    tables=$(bash "$here/$subject.sh") || { echo; exit 1; }
    printf ' before, %s after\n\n%s\n' "$(others)" "$tables"
done
