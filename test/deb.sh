#!/bin/bash
# make check-deb: the package that "make deb" made, on a clean Debian 12 in a
# root folder of its own (see deb-inside.sh).  VERSIONS_DIR keeps that folder as
# it is before.  Needs root.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
. "$root/tools/root-folder.sh"

die() { echo "deb: $*" >&2; exit 1; }

deb=$(find "$root/deb" -name 'postgresql-15-session-sweeper_*.deb' 2>/dev/null)
[ -f "$deb" ] || die "not one package in deb/: make deb"
root_keep "${TMPDIR:-/tmp}/session_sweeper-versions"
root_make clean-12 bookworm
rm -rf "$keep/deb"
trap 'rm -rf "$keep/deb"' EXIT
cp -a "$keep/clean-12" "$keep/deb"
# All that this machine's apt is configured with: the server that the package
# was built for may be one of the security archive.
apt-get indextargets --format \
    'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $(REPO_URI) $(RELEASE) $(COMPONENT)' \
    'Created-By: Packages' 'Origin: Debian' | sort -u >"$keep/deb/etc/apt/sources.list"
mkdir -p "$keep/deb/src/tools"
cp "$deb" "$root/test/deb-inside.sh" "$keep/deb/src/"
cp "$root"/tools/demo.* "$keep/deb/src/tools/"
root_enter deb /src DEBIAN_FRONTEND=noninteractive ./deb-inside.sh "/src/${deb##*/}"
