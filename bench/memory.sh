#!/bin/bash
# Private memory of our processes while a million rows go.
set -eu
. "$(dirname "$0")/lib.sh"
cluster "${steady[@]}"
postmaster=$(head -n 1 "$private/data/postmaster.pid")

# kB of private pages in mappings that are not shared.  smaps_rollup would count
# shared buffers that happen to be mapped by one process only.
private_kb() { awk '/^[0-9a-f]+-[0-9a-f]+ / {shared = $2 ~ /s$/} /^Private_(Clean|Dirty):/ && !shared {kb += $2} END {print kb + 0}' "/proc/$1/smaps" 2>/dev/null; }

# A line for each of our processes: moment, kind and pid, kB.
sample() {
    local now=${EPOCHREALTIME/./} pid title kb
    for pid in $(cat "/proc/$postmaster/task/$postmaster/children"); do
        IFS= read -r -d '' title 2>/dev/null <"/proc/$pid/cmdline" || continue
        case $title in
            *'session_sweeper '*)
                title=${title#*session_sweeper }
                kb=$(private_kb "$pid") && echo "$now ${title%% *}-$pid $kb"
                ;;
        esac
    done
}

sql -c "SELECT sweeper.pause_all('bench')" >/dev/null
for run in $(seq "$runs"); do
    fill ordered $((2 * rows))
    sql -c "TRUNCATE sweeper.cleanup_event" \
        -c "SELECT FROM sweeper.register('b', deadline => 'd', check_every => '0', start => 'now', max_workers => 2)"
    sql -c "CALL sweeper.sweep('b')" >/dev/null &
    call=$!
    while kill -0 "$call" 2>/dev/null; do sample; done >"samples.$run"
    wait "$call"
    [ "$(sql -c "SELECT count(*) FROM sweeper.cleanup_event")" = "$rows" ] || die "dead rows were left"
    quiet -c "SELECT sweeper.unregister('b')"
done

# Peaks of each process in each pass: kind-pid, run, all, first and last quarter.
for run in $(seq "$runs"); do
    awk -v run="$run" '
        NR == 1 {begin = $1}
        {moment[NR] = $1; who[NR] = $2; kb[NR] = $3; seen[$2]++; if ($3 > peak[$2]) peak[$2] = $3}
        END {
            quarter = (moment[NR] - begin) / 4
            for (i = 1; i <= NR; i++) {
                if (moment[i] <= begin + quarter && kb[i] > first[who[i]]) first[who[i]] = kb[i]
                if (moment[i] >= begin + 3 * quarter && kb[i] > last[who[i]]) last[who[i]] = kb[i]
            }
            for (p in peak) if (first[p] && last[p]) print p, run, peak[p], first[p], last[p], seen[p]
        }' "samples.$run"
done | sort -k 1,1 -k 2,2n >peaks

mb() { awk '{mb = sprintf("%.1f", $1 / 1024); print mb == 0 ? "0.0" : mb}'; }
row() { # kind-pid, name
    grep "^$1 " peaks >of_one
    echo "| $2 | 20 MB | $(cut -d ' ' -f 3 of_one | maximum | mb) MB | $(awk '{print $5 - $4}' of_one | median | mb) MB | $(awk 'NR == 1 {f = $4} {l = $5} END {print l - f}' of_one | mb) MB |"
}
rows_of() { # kind
    local n=0 process
    for process in $(grep "^$1-" peaks | cut -d ' ' -f 1 | uniq); do
        n=$((n + 1))
        row "$process" "$([ "$1" = worker ] && echo "worker $n" || echo "$1")"
    done
}
cat <<TXT
| private memory during passes over $rows dead rows, about $(awk '{n += $6} END {printf "%d", n / NR}' peaks) samples a pass | target | peak | first to last quarter of a pass | first quarter of pass 1 to last of pass $runs |
| --- | --- | --- | --- | --- |
$(rows_of launcher)
$(rows_of coordinator)
$(rows_of worker)
TXT
