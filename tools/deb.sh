#!/bin/bash
# make deb: the Debian package for each PostgreSQL version that this release of
# Debian supports and debian/pgversions allows, built in a copy of the tree;
# what was made is then in deb/.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
log=$root/deb/build.log

"$root/tools/setup.sh" gcc make dpkg-dev debhelper postgresql-server-dev-all lintian
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
rm -rf "$root/deb"
mkdir "$root/deb" "$copy/tree"
tar -C "$root" --exclude=./.git --exclude=./test-output --exclude=./deb --exclude='*.o' --exclude='*.so' --exclude='*.d' -cf - . |
    tar -C "$copy/tree" --no-same-owner -xf -
cd "$copy/tree"
# Variables of an outer make are for this tree only.
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES PG_CONFIG COPT
pg_buildext updatecontrol
dpkg-buildpackage --build=binary --no-sign --jobs=auto >"$log" 2>&1 </dev/null || { tail -n 30 "$log" >&2; exit 1; }
mv "$copy"/*.deb "$root/deb/"
# There is no mailing list yet, nor a report in Debian that asks for the package.
lintian --allow-root --fail-on error,warning \
    --suppress-tags bogus-mail-host,bogus-mail-host-in-debian-changelog,initial-upload-closes-no-bugs "$root"/deb/*.deb
(cd "$root/deb" && ls -- *.deb)
