#!/bin/bash
# A PostgreSQL that checks itself, for the checks of memory: the source of
# Debian's package, built with assertions and with Valgrind's requests.
#
#   tools/assert-build.sh       prints its pg_config
#
# ASSERT_DIR (by default a folder below TMPDIR) keeps it, so that only the first
# run takes minutes; remove it to have it made afresh.
set -euo pipefail
keep=${ASSERT_DIR:-${TMPDIR:-/tmp}/session_sweeper-assert}
major=${PG_MAJOR:-15}

die() { echo "assert-build: $*" >&2; exit 1; }

mkdir -p "$keep"
[ -O "$keep" ] || die "$keep belongs to another user: give ASSERT_DIR"
chmod 755 "$keep" # the tests run as another user
exec {lock}>"$keep/lock"
flock "$lock"

# Where this machine's apt gets packages from, it gets their source from; its own lists stay as they are.
fetch_source() {
    local version
    local -a apt=(-q -o Dir::Etc::sourcelist="$keep/sources.list" -o Dir::Etc::sourceparts=- -o Dir::State::lists="$keep/lists")
    apt-get indextargets --format \
        'deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(REPO_URI) $(RELEASE) $(COMPONENT)' \
        'Created-By: Packages' 'Origin: Debian' | sort -u >"$keep/sources.list"
    [ -s "$keep/sources.list" ] || { echo "apt is not configured with a mirror of Debian"; return 1; }
    mkdir -p "$keep/lists/partial"
    apt-get "${apt[@]}" update && cd "$keep" || return
    # A mirror may list a version whose source it does not have: then the one before.
    for version in $(apt-cache "${apt[@]}" madison "postgresql-$major" | awk '/Sources/ {print $3}'); do
        ! apt-get "${apt[@]}" --download-only source "postgresql-$major=$version" || return 0
    done
    return 1
}

# As upstream has it: Debian's patches put every server's library into one place of
# the system.  An installation has another name until it is complete.
build() {
    rm -rf "$keep"/postgresql-* "$keep/source" "$keep/root" "$keep/built"
    fetch_source && mkdir "$keep/source" && cd "$keep/source" && tar --strip-components=1 -xf "$keep"/postgresql-*.orig.tar.* || return
    ./configure --prefix="$keep/built" --without-readline --with-icu --enable-cassert --enable-debug --enable-tap-tests \
        CFLAGS='-Og -g -DUSE_VALGRIND' || return
    make -s -j"$(nproc)" && make -s -C src/test/isolation -j"$(nproc)" || return
    make -s install DESTDIR="$keep/root" && make -s -C src/test/isolation install DESTDIR="$keep/root" || return
    cp src/tools/valgrind.supp "$keep/root$keep/built/" && mv "$keep/root$keep/built" "$keep/built" || return
    rm -rf "$keep"/postgresql-* "$keep/source" "$keep/root" "$keep/lists"
}

if [ ! -d "$keep/built" ]; then
    echo "Building PostgreSQL $major with assertions in $keep, once" >&2
    "$(dirname "$0")/setup.sh" bison flex pkg-config libicu-dev zlib1g-dev valgrind >&2
    (set +e; build) </dev/null >"$keep/build.log" 2>&1 || {
        tail -n 20 "$keep/build.log" >&2
        die "PostgreSQL $major could not be built"
    }
fi
echo "$keep/built/bin/pg_config"
