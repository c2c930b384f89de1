#!/bin/bash
# Build and test with other PostgreSQL versions: each in a root folder of the
# Debian release that has it, made once.  Needs root and mmdebstrap.
#
#   tools/versions.sh [17] [18]      both by default
#
# VERSIONS_DIR (a folder under TMPDIR by default) keeps the root folders, SUITES
# ("regress isolation tap") chooses.  Without root, or a mirror: SKIP, said aloud.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
keep=${VERSIONS_DIR:-${TMPDIR:-/tmp}/session_sweeper-versions}
suites=${SUITES:-regress isolation tap}
[ $# -gt 0 ] || set -- 17 18

if [ "$(id -u)" != 0 ]; then
    echo "SKIP: testing versions $* needs root, for chroot"
    exit 0
fi
command -v mmdebstrap >/dev/null ||
    DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends mmdebstrap </dev/null >/dev/null

# The mirror that this machine's apt uses.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 2>/dev/null | grep '/debian/*$' | head -n 1)
mirror=${mirror:-http://deb.debian.org/debian}

suite_of() {
    case $1 in
        17) echo trixie ;;
        18) echo forky ;;
        *) echo "no Debian release is known to have PostgreSQL $1" >&2; exit 2 ;;
    esac
}

# The root folder of a version; it has a name of its own until it is complete.
make_root() {
    local version=$1 folder=$keep/$1
    [ ! -d "$folder" ] || return 0
    mkdir -p "$keep"
    chmod 755 "$keep"
    rm -rf "$folder.new"
    mmdebstrap --variant=minbase --aptopt='Acquire::Check-Valid-Until "false"' --dpkgopt='force-unsafe-io' \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        --dpkgopt='path-exclude=/usr/lib/llvm*' \
        --include="postgresql-$version,postgresql-server-dev-$version,postgresql-$version-cron,gcc,make,libc6-dev,libipc-run-perl" \
        "$(suite_of "$version")" "$folder.new" "$mirror" >"$keep/$version.log" 2>&1 || return 1
    mv "$folder.new" "$folder"
}

run() {
    local version=$1 folder=$keep/$1 status=0
    rm -rf "$folder/src"
    mkdir "$folder/src"
    tar -C "$root" --exclude=./.git --exclude=./test-output --exclude='*.o' -cf - . | tar -C "$folder/src" --no-same-owner -xf -
    mountpoint -q "$folder/proc" || mount -t proc proc "$folder/proc" # bash's <(…) needs it
    # shellcheck disable=SC2016  # expanded inside
    chroot "$folder" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 SUITES="$suites" \
        PG_CONFIG="/usr/lib/postgresql/$version/bin/pg_config" bash -c 'cd /src &&
        make -s -j"$(nproc)" all PG_CONFIG="$PG_CONFIG" && make -s install PG_CONFIG="$PG_CONFIG" >/dev/null &&
        test/run-suites.sh $SUITES' || status=$?
    umount "$folder/proc"
    return $status
}

failed=
for version; do
    suite_of "$version" >/dev/null
    echo "PostgreSQL $version"
    if ! make_root "$version"; then
        tail -n 3 "$keep/$version.log" >&2
        echo "SKIP: no root folder for PostgreSQL $version could be made from $mirror"
        continue
    fi
    run "$version" || failed="$failed $version"
done
[ -z "$failed" ] || { echo "failed with PostgreSQL$failed" >&2; exit 1; }
