#!/bin/bash
# Run the suites named (regress, isolation, tap), against private servers and
# the installed extension, in a copy of the tree; what they leave is then in
# test-output/.  The suites run at the same time: most tests wait most of the time.
# Lists in REGRESS, ISOLATION and PROVE_TESTS choose tests; PROVE_JOBS TAP tests run
# at once (twice the number of processors), the slowest ones first.
# ORDER=shuffle runs those of the first two in an order by chance, or that of SEED.
# Ends with what failed, and a line "N passed, N failed".
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
export PG_CONFIG
. "$root/tools/private-cluster.sh"

limit=${SUITE_TIMEOUT:-3000} # seconds a suite; a hang must not eat the day
slowest=(grace_refused work_commands sweep_throttle process_turns monitor_late process_hangs work_roles work_append_crash load_fuzz)
output=$root/test-output
passed=0 failed=0 failures=()

# Tests in the output of pg_regress (15; 16 and later speak TAP) or prove.
count_passed() { grep -cE '^(test  *| {5})[^ ]+ +\.\.\. ok |^ok [0-9]+ |^(\[[0-9:]+\] )?test/[^ ]+ \.+ ok( |$)' "$1" || true; }
count_failed() { grep -cE '^(test  *| {5})[^ ]+ +\.\.\. FAILED|^not ok [0-9]+ |^test/[^ ]+ +\(Wstat: [^0]' "$1" || true; }

failed_tests() { sed -nE 's|^test/t/([^ ]+)\.pl +\(Wstat: [^0].*|\1|p' "$output/tap/log.txt"; }

show_failure() {
    local suite=$1 test log
    case $suite in
        tap)
            failed_tests | while read -r test; do
                for log in "$output/tap/log/regress_log_$test" "$output/tap/log/${test}_"*.log; do
                    [ -f "$log" ] || continue
                    echo "--- last lines of ${log#"$root/"}"
                    grep -v 'LOG:  statement: SELECT' "$log" | tail -n 60
                done
            done ;;
        *)
            for log in "$output/$suite"/*.diffs; do
                [ -f "$log" ] || continue
                echo "--- ${log#"$root/"}"
                head -n 400 "$log"
            done
            log=$output/$suite/log/postmaster.log
            if [ -f "$log" ]; then
                echo "--- last lines of ${log#"$root/"}"
                tail -n 30 "$log"
            fi ;;
    esac
}

# The same in a few lines: a long output may be cut.
digest() {
    local suite=$1 test
    case $suite in
        tap)
            failed_tests | while read -r test; do
                echo "--- $test"
                grep -h -E -A 6 '#   Failed test|timed out|^error running' "$output/tap/log/regress_log_$test" | head -n 12
            done ;;
        *)
            for test in "$output/$suite"/*.diffs; do
                [ -f "$test" ] || continue
                grep -E '^([-+]|diff )' "$test" | grep -vE '^(---|\+\+\+) ' | cut -c 1-200 | head -n 20
            done ;;
    esac
}

# Start a suite.  Its output goes to the terminal and to log.txt.
start_suite() {
    local suite=$1 tests= out
    rm -rf "${output:?}/$suite"
    mkdir -p "$output/$suite"
    case $suite in
        regress) tests=${regress:+REGRESS=$regress} ;;
        isolation) tests=${isolation:+ISOLATION=$isolation} ;;
        tap) tests=PROVE_TESTS=$tap ;;
    esac
    exec {out}> >(exec tee "$output/$suite/log.txt")
    printer[$suite]=$!
    # In the background, so that a signal reaches this shell at once; timeout
    # passes it on to everything that the suite started.
    "${as_server_user[@]}" timeout -k 30 "$limit" \
        make -s -C "$private/tree" installcheck SUITES="$suite" PG_CONFIG="$PG_CONFIG" ${tests:+"$tests"} \
        PROVE_FLAGS="--timer -I test/perl -j${PROVE_JOBS:-$((2 * $(nproc)))}" ENCODING=UTF8 \
        EXTRA_REGRESS_OPTS="--temp-instance=$private/$suite --temp-config=$private/tree/test/regress.conf" \
        </dev/null >&"$out" 2>&1 &
    child[$suite]=$!
    exec {out}>&-
}

finish_suite() {
    local suite=$1 status=0 ok bad kept tree=$private/tree
    wait "${child[$suite]}" || status=$?
    unset "child[$suite]"
    wait "${printer[$suite]}"
    [ "$status" != 124 ] || echo "$suite: stopped after $limit s"

    # What a developer wants to look at, or to take over as expected output.
    case $suite in
        regress) kept="regression.diffs results log" ;;
        isolation) kept="output_iso/regression.diffs output_iso/results output_iso/log" ;;
        tap) kept="tmp_check/log" ;;
    esac
    for kept in $kept; do
        [ ! -e "$tree/$kept" ] || cp -R "$tree/$kept" "$output/$suite/"
    done

    if [ "$status" != 0 ] && [ -z "${repeated[$suite]:-}" ] && grep -qs 'the system clock went forward' "$output/$suite/log/postmaster.log"; then
        echo "--- $suite: the clock of this machine went forward meanwhile, so rows got grace; the suite runs again"
        repeated[$suite]=1
        start_suite "$suite"
        finish_suite "$suite"
        return
    fi
    ok=$(count_passed "$output/$suite/log.txt")
    bad=$(count_failed "$output/$suite/log.txt")
    if [ "$status" != 0 ]; then
        [ "$bad" != 0 ] || bad=1
        failures+=("$suite")
    fi
    passed=$((passed + ok)) failed=$((failed + bad))
}

declare -A child=() printer=() repeated=()
private_folder
trap 'for pid in "${child[@]}"; do kill "$pid" 2>/dev/null; wait "$pid"; done; private_cleanup' EXIT
private_tree "$root"
# A new test fails with its output as the difference; without the file
# pg_isolation_regress would stop there.
cd "$root"
for test in sql/*.sql test/isolation/specs/*.spec; do
    case $test in
        sql/*) test=expected/$(basename "$test" .sql).out ;;
        *) test=test/isolation/expected/$(basename "$test" .spec).out ;;
    esac
    case $test in *'*'*) continue ;; esac # no such tests
    [ -f "$test" ] || (cd "$private" && "${as_server_user[@]}" touch "tree/$test")
done
cd "$private"
# A list of another suite in make's environment would have it run that one, too.
regress=${REGRESS:-} isolation=${ISOLATION:-} tap=${PROVE_TESTS:-}
unset REGRESS ISOLATION PROVE_TESTS
if [ -z "$tap" ]; then
    tap=$(cd "$root" && printf '%s\n' $(printf 'test/t/%s.pl ' "${slowest[@]}") test/t/*.pl | awk '!seen[$0]++' | tr '\n' ' ')
fi
if [ "${ORDER:-}" = shuffle ]; then
    SEED=${SEED:-$RANDOM}
    echo "ORDER=shuffle SEED=$SEED"
    # shellcheck disable=SC2086,SC2048  # lists
    shuffled() { shuf -e $* --random-source=<(yes "$SEED") | tr '\n' ' '; }
    regress=$(shuffled "${regress:-$(cd "$root/sql" && printf '%s\n' *.sql | sed 's/\.sql$//')}")
    isolation=$(shuffled "${isolation:-$(cd "$root/test/isolation/specs" && printf '%s\n' *.spec | sed 's/\.spec$//')}")
fi
for suite in "$@"; do
    case $suite in
        regress) tests="$root/sql/*.sql" ;;
        isolation) tests="$root/test/isolation/specs/*.spec" ;;
        tap) tests="$root/test/t/*.pl" ;;
        *) echo "no such suite: $suite" >&2; exit 2 ;;
    esac
    if compgen -G "$tests" >/dev/null; then start_suite "$suite"; fi
done
for suite in "$@"; do
    [ -z "${child[$suite]:-}" ] || finish_suite "$suite"
done
# At the end, where they are found
for suite in "${failures[@]}"; do show_failure "$suite"; done
for suite in "${failures[@]}"; do digest "$suite"; done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
