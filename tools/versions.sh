#!/bin/bash
# Build and test with later PostgreSQL versions, each in a root folder of the
# Debian release that has it.  Needs root.
#
#   tools/versions.sh [17] [18]      both by default
#
# VERSIONS_DIR (by default a folder below TMPDIR) keeps the root folders, so that
# only the first run takes minutes; remove one to have it made afresh.  SUITES
# (regress isolation tap) and the lists of test/run-suites.sh choose tests.  A
# version that could not be tested is a failure; of status 3, when no test failed.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/tools/root-folder.sh"

die() { echo "versions: $*" >&2; exit 1; }

suite_of() {
    case $1 in
        17) echo trixie ;;
        18) echo forky ;;
        *) die "no Debian release is known to have PostgreSQL $1" ;;
    esac
}

make_root() {
    root_make "$1" "$(suite_of "$1")" --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/lib/llvm*' \
        --include="postgresql-$1,postgresql-server-dev-$1,postgresql-$1-cron,gcc,make,libc6-dev,libipc-run-perl,pgbouncer"
}

run() {
    local folder=$keep/$1 name
    local -a chosen=()
    for name in SUITES REGRESS ISOLATION PROVE_TESTS PROVE_JOBS SUITE_TIMEOUT; do
        chosen+=("$name=${!name:-}")
    done
    rm -rf "$folder/src" "$folder"/tmp/* && mkdir "$folder/src" || return
    tar -C "$root" --exclude=./.git --exclude=./test-output --exclude='*.o' --exclude='*.so' --exclude='*.d' -cf - . |
        tar -C "$folder/src" --no-same-owner -xf - || return
    # shellcheck disable=SC2016  # expanded inside
    root_enter "$1" /src "${chosen[@]}" PG_CONFIG="/usr/lib/postgresql/$1/bin/pg_config" bash -c '
            make -s -j"$(nproc)" all PG_CONFIG="$PG_CONFIG" && make -s install PG_CONFIG="$PG_CONFIG" >/dev/null &&
            test/run-suites.sh ${SUITES:-regress isolation tap}' || {
        [ ! -d "$folder/src/test-output" ] || echo "versions: what the tests left is in $folder/src/test-output" >&2
        return 1
    }
}

[ $# -gt 0 ] || set -- 17 18
for version; do suite_of "$version" >/dev/null; done
root_keep "${TMPDIR:-/tmp}/session_sweeper-versions"

# At the same time: most tests wait most of the time.
failed='' untested=''
declare -A tests=()
set -m # a process group each
trap 'for pid in "${tests[@]}"; do kill -- "-$pid" 2>/dev/null; done; wait' EXIT
for version; do
    if make_root "$version"; then
        (run "$version") >"$keep/$version.tests" 2>&1 &
        tests[$version]=$!
    else
        untested="$untested $version"
    fi
done
for version; do
    [ -n "${tests[$version]:-}" ] || continue
    if wait "${tests[$version]}"; then
        echo "PostgreSQL $version: $(tail -n 1 "$keep/$version.tests")"
    else
        failed="$failed $version"
    fi
    unset "tests[$version]"
done
for version in $failed; do
    echo "PostgreSQL $version"
    cat "$keep/$version.tests"
done
[ -z "$failed" ] || die "failed with PostgreSQL$failed"
[ -z "$untested" ] || { echo "versions: not tested with PostgreSQL$untested" >&2; exit 3; }
echo "passed with PostgreSQL $*"
