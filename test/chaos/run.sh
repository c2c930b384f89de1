#!/bin/bash
# The load of README.md for as long as one likes, by make chaos:
# SEED, STEPS and ROUNDS of the load; BREAK=name: with a build that lacks what
# break/name.patch takes away, and that must fail.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
export PG_CONFIG
export CHAOS_SEED=${SEED:-$((RANDOM * 32768 + RANDOM))} CHAOS_STEPS=${STEPS:-10000} CHAOS_ROUNDS=${ROUNDS:-10}
export SUITE_TIMEOUT=${SUITE_TIMEOUT:-86400} PROVE_TESTS="${PROVE_TESTS:-test/t/load_chaos.pl test/t/load_outage.pl}"
# CITUS=1: shards of a Citus cluster instead, with ROWS rows, for SECONDS
if [ -n "${CITUS:-}" ]; then
    export CHAOS_ROWS=${ROWS:-60000} CHAOS_SECONDS=${SECONDS_OF_LOAD:-120} PROVE_TESTS=test/chaos/cluster.pl
fi

if [ -z "${BREAK:-}" ]; then
    exec "$root/test/run-suites.sh" tap
fi

# A server tree of its own, so that the installed library stays whole.
patch=$here/break/$BREAK.patch
[ -f "$patch" ] || { echo "chaos: no such patch; there are:" "$(basename -s .patch "$here"/break/*.patch | paste -sd' ')" >&2; exit 2; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
trap 'exit 1' HUP INT TERM
chmod 755 "$dir"
for folder in bindir pkglibdir sharedir; do
    path=$("$PG_CONFIG" --$folder)
    mkdir -p "$dir/server$(dirname "$path")"
    [ -d "$dir/server$path" ] || cp -a "$path" "$dir/server$path"
done
for folder in includedir includedir-server; do
    path=$("$PG_CONFIG" --$folder)
    mkdir -p "$dir/server$(dirname "$path")"
    [ -e "$dir/server$path" ] || ln -s "$path" "$dir/server$path"
done
mkdir "$dir/tree"
tar -C "$root" --exclude=./.git --exclude=./test-output --exclude='*.o' -cf - . | tar -C "$dir/tree" --no-same-owner -xf -
patch -s -d "$dir/tree" -p1 <"$patch"
PG_CONFIG=$dir/server$("$PG_CONFIG" --bindir)/pg_config
case $("$PG_CONFIG" --pkglibdir) in
    "$dir"/*) ;;
    *) echo "chaos: this server cannot be copied" >&2; exit 2 ;;
esac
make -s -C "$dir/tree" all install PG_CONFIG="$PG_CONFIG" >"$dir/make.log" 2>&1 || { cat "$dir/make.log" >&2; exit 2; }
if "$dir/tree/test/run-suites.sh" tap >"$dir/log" 2>&1; then
    cat "$dir/log"
    echo "chaos: the build without it ($BREAK) was not found out" >&2
    exit 1
fi
sed -n '/^# \(chaos\|outages\|shards\):/,$p' "$dir/log" | head -n "${LINES_OF_LOG:-60}"
grep -q 'Failed test' "$dir/log" || { cat "$dir/log"; exit 1; }
echo "chaos: the build without it ($BREAK) was found out"
