#!/bin/bash
# Build and test with later PostgreSQL versions, each in a root folder of the
# Debian release that has it.  Needs root.
#
#   tools/versions.sh [17] [18]      both by default
#
# VERSIONS_DIR (by default a folder below TMPDIR) keeps the root folders, so that
# only the first run takes minutes; remove one to have it made afresh.  SUITES
# (regress isolation tap) and the lists of test/run-suites.sh choose tests.  A
# version that could not be tested is a failure.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
keep=${VERSIONS_DIR:-${TMPDIR:-/tmp}/session_sweeper-versions}

die() { echo "versions: $*" >&2; exit 1; }

suite_of() {
    case $1 in
        17) echo trixie ;;
        18) echo forky ;;
        *) die "no Debian release is known to have PostgreSQL $1" ;;
    esac
}

# The mirror that this machine's apt uses.
mirror() {
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' 'Component: main' | sed -n 1p
}

need_mmdebstrap() {
    if [ -n "$(mirror)" ] && command -v mmdebstrap >/dev/null; then return; fi
    {
        apt-get -q -y update &&
            DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends mmdebstrap
    } </dev/null >"$keep/apt.log" 2>&1 || { tail -n 5 "$keep/apt.log" >&2; die "mmdebstrap could not be installed"; }
    [ -n "$(mirror)" ] || die "apt is not configured with a mirror of Debian"
}

# The root folder has another name until it is complete.
make_root() {
    local version=$1 folder=$keep/$1
    [ ! -d "$folder" ] || return 0
    need_mmdebstrap
    echo "Making $folder, once"
    rm -rf "$folder.new"
    # forky's lists outlive their date on a mirror that is a snapshot.
    mmdebstrap --variant=minbase --aptopt='Acquire::Check-Valid-Until "false"' --dpkgopt='force-unsafe-io' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        --dpkgopt='path-exclude=/usr/lib/llvm*' \
        --include="postgresql-$version,postgresql-server-dev-$version,postgresql-$version-cron,gcc,make,libc6-dev,libipc-run-perl,pgbouncer" \
        "$(suite_of "$version")" "$folder.new" "$(mirror)" </dev/null >"$keep/$version.log" 2>&1 || {
        tail -n 5 "$keep/$version.log" >&2
        echo "versions: no root folder could be made from $(mirror)" >&2
        return 1
    }
    mv "$folder.new" "$folder"
}

# Servers and mounts of the root folder end with its process namespace.
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
    unshare --pid --fork --kill-child --mount-proc --root="$folder" --wd=/src \
        env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "${chosen[@]}" \
        PG_CONFIG="/usr/lib/postgresql/$1/bin/pg_config" bash -c '
            make -s -j"$(nproc)" all PG_CONFIG="$PG_CONFIG" && make -s install PG_CONFIG="$PG_CONFIG" >/dev/null &&
            test/run-suites.sh ${SUITES:-regress isolation tap}' </dev/null || {
        [ ! -d "$folder/src/test-output" ] || echo "versions: what the tests left is in $folder/src/test-output" >&2
        return 1
    }
}

[ $# -gt 0 ] || set -- 17 18
for version; do suite_of "$version" >/dev/null; done
[ "$(id -u)" = 0 ] || die "needs root, to make and to enter root folders"
mkdir -p "$keep"
[ -O "$keep" ] || die "$keep belongs to somebody else: give VERSIONS_DIR"
chmod 755 "$keep" # the tests run as another user
exec {lock}>"$keep/lock"
flock -n "$lock" || { echo "Waiting for another run in $keep"; flock "$lock"; }

failed=
for version; do
    echo "PostgreSQL $version"
    if ! { make_root "$version" && run "$version"; }; then failed="$failed $version"; fi
done
[ -z "$failed" ] || die "failed with PostgreSQL$failed"
echo "passed with PostgreSQL $*"
