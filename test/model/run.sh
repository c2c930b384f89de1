#!/bin/bash
# Check the protocol model exhaustively: every configuration must hold, and
# every broken variant must be refused for the property that it breaks.
#
#     test/model/run.sh [--wide] [name ...]
#
# Names choose configurations and variants; --wide adds configurations that
# together take half an hour and 14 GB.  The shortest trace of a surprise is
# left in test-output/model/.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
output=$here/../../test-output/model
wide=
[ "${1-}" != --wide ] || { wide=1; shift; }
wanted=" $* "
memory=3500 # MB
compress=
[ -z "$wide" ] || memory=14000 compress=-DCOLLAPSE

command -v spin >/dev/null || { echo 'model: spin is missing (Debian package spin, or "make setup")' >&2; exit 1; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
cd "$dir"

# A checker of the model with these macros.
build() { # options of gcc ...
    # shellcheck disable=SC2086  # a list
    spin -a $macros "$here/heartbeat.pml" >spin.log &&
        gcc -w -DSAFETY -DNOFAIR -DNOBOUNDCHECK -DMEMLIM="$memory" $compress "$@" -o pan pan.c >>spin.log 2>&1
}

# The property that an assertion stands for, as in README.md.
property() {
    case $(sed -n 's/^pan:1: assertion violated \(.*\) (at depth .*/\1/p' pan.log) in
        *expired_at* | *holds*) echo 1 ;;
        *ended* | *row*) echo 2 ;;
        *late*) echo 3 ;;
        *marker*) echo 4 ;;
        *shortened*) echo 5 ;;
        *) echo '?' ;;
    esac
}

trace() {
    build -O1 -DBFS && { ./pan -E >/dev/null 2>&1 || true; }
    [ -f heartbeat.pml.trail ] || return 0
    mkdir -p "$output"
    # shellcheck disable=SC2086  # a list
    spin -t -p -g -l -k heartbeat.pml.trail $macros "$here/heartbeat.pml" >"$output/$name.trace"
    echo "    trace: test-output/model/$name.trace"
}

passed=0 failed=0
check() { # expected (holds, or the number of a property) name macros ...
    local expected=$1 name=$2 macros states result optimize=-O0 # compiling takes longest
    shift 2
    macros=$*
    [ "$expected" != holds ] || optimize=-O1
    case $wanted in '  ') ;; *" $name "*) ;; *) return 0 ;; esac
    rm -f ./*
    result=
    if ! build $optimize; then
        result='does not compile'
        cat spin.log
    else
        ./pan -m2000000 -E >pan.log 2>&1 || result='checker failed'
        if grep -qE 'not completed|truncated|too small|MEMLIM bound' pan.log && ! grep -q 'assertion violated' pan.log; then
            result='incomplete'
        elif grep -q 'errors: 0$' pan.log; then
            result=holds
        elif grep -q 'assertion violated' pan.log; then
            result="violates property $(property)"
        fi
    fi
    states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' pan.log 2>/dev/null || true)
    case $expected:$result in
        holds:holds | "$expected:violates property $expected")
            passed=$((passed + 1))
            printf '%-24s %11s states  %s\n' "$name" "$states" "$result" ;;
        *)
            failed=$((failed + 1))
            [ "$expected" = holds ] || expected="violates property $expected"
            printf '%-24s %11s states  %s, expected: %s\n' "$name" "${states:-?}" "${result:-no result}" "$expected"
            case $result in
                violates*) trace ;;
                holds) ;;
                *) [ ! -f pan.log ] || tail -n 20 pan.log ;;
            esac ;;
    esac
}

# Configurations.  A clock that stops at 3 has room for an answer at 2, an expiry
# too early and all that leads to it; to 4 is wider.
long=-DTMAX=3
[ -z "$wide" ] || long=-DTMAX=4
small="-DTMAX=4 -DCLIENTS=1"
race="$small -DWORKERS=1"
application="$long -DCLIENTS=1 -DWORKERS=1 -DREFRESH -DAPP -DWRITES=1"
stop="$long -DCLIENTS=1 -DSTOP"
crash="$small -DCRASH -DREFRESH"
echo 'The protocol:'
check holds race -DTMAX=4 -DCLIENTS=2 -DWORKERS=1
check holds workers "$small" -DWORKERS=2 -DHOUSEKEEPING
check holds release "$race" -DRELEASE -DHOUSEKEEPING
check holds refresh "$race" -DREFRESH -DHOUSEKEEPING
check holds application "$application"
check holds application-release "$long" -DCLIENTS=1 -DWORKERS=1 -DRELEASE -DAPP -DWRITES=1
check holds block "$race" -DBLOCK -DNOROOM -DHOUSEKEEPING
check holds block-own-row "$long" -DCLIENTS=1 -DWORKERS=1 -DBLOCK -DOWN -DHOUSEKEEPING
check holds block-release "$race" -DBLOCK -DRELEASE
check holds stop "$long" -DCLIENTS=2 -DSTOP
check holds stop-block "$stop" -DBLOCK -DNOROOM
check holds stop-block-own-row "$stop" -DBLOCK -DOWN
check holds stop-release "$stop" -DRELEASE
check holds stop-refresh "$stop" -DREFRESH -DHOUSEKEEPING
check holds crash "$crash" -DBLOCK
check holds crash-in-stop "$long" -DCLIENTS=1 -DCRASH -DREFRESH -DSTOP

if [ -n "$wide" ]; then
    echo 'Wider:'
    check holds race-housekeeping -DTMAX=4 -DCLIENTS=2 -DWORKERS=1 -DHOUSEKEEPING
    check holds race-release -DTMAX=4 -DCLIENTS=2 -DWORKERS=1 -DRELEASE
    check holds race-refresh -DTMAX=4 -DCLIENTS=2 -DWORKERS=1 -DREFRESH
    check holds race-longer -DTMAX=5 -DCLIENTS=2 -DWORKERS=1
    check holds refresh-longer -DTMAX=5 -DCLIENTS=1 -DWORKERS=1 -DREFRESH -DHOUSEKEEPING
    check holds refresh-margin -DTMAX=5 -DTTL=3 -DMARGIN=1 -DCLIENTS=1 -DWORKERS=1 -DREFRESH
    check holds refresh-release "$race" -DREFRESH -DRELEASE
    check holds refresh-block "$race" -DREFRESH -DBLOCK
    check holds application-twice "$race" -DREFRESH -DAPP
    check holds stop-application "$stop" -DWORKERS=1 -DAPP -DWRITES=1
    check holds stop-application-refresh "$stop" -DREFRESH -DAPP -DWRITES=1
    check holds stop-worker-refresh "$stop" -DWORKERS=1 -DREFRESH
    check holds stop-worker-release "$stop" -DWORKERS=1 -DRELEASE
    check holds crash-race -DTMAX=4 -DCLIENTS=2 -DCRASH -DREFRESH
fi

echo 'Broken on purpose:'
check 1 no-mark "$race" -DBROKEN_NO_MARK
check 1 no-second-look "$race" -DBROKEN_NO_SECOND_LOOK
check 1 late-publish "$race" -DBROKEN_LATE_PUBLISH
check 1 no-reread "$stop" -DBROKEN_NO_REREAD
check 4 left-mark "$race" -DBROKEN_LEFT_MARK
check 2 no-predicate "$small" -DWORKERS=2 -DBROKEN_NO_PREDICATE
check 3 taken-unchanged "$race" -DRELEASE -DBROKEN_TAKEN_UNCHANGED
check 3 same-word "$race" -DRELEASE -DBROKEN_SAME_WORD
check 1 stale-deadline "$race" -DREFRESH -DBROKEN_STALE_DEADLINE
check 1 blind-deadline "$application" -DBROKEN_BLIND_DEADLINE
check 1 others-deadline "$long" -DCLIENTS=1 -DWORKERS=1 -DBLOCK -DOWN -DHOUSEKEEPING -DBROKEN_OTHERS_DEADLINE
check 5 refresh-any "$small" -DREFRESH -DAPP -DWRITES=1 -DBROKEN_REFRESH_ANY
check 1 deferred "$race" -DBLOCK -DOWN -DBROKEN_DEFERRED
check 1 write-in-block "$race" -DBLOCK -DNOROOM -DBROKEN_WRITE_IN_BLOCK
check 3 trusted-file "$stop" -DRELEASE -DBROKEN_TRUSTED_FILE
check 1 no-grace "$crash" -DBROKEN_NO_GRACE
check 1 clock-once "$crash" -DBROKEN_CLOCK_ONCE
check 1 note-overruled "$crash" -DBLOCK -DBROKEN_NOTE_OVERRULED
check 1 strict-block "$crash" -DBLOCK -DSTRICT

echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
