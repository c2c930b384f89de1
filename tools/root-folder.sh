# shellcheck shell=bash
# Sourced.  Root folders of Debian releases, below $keep.  Needs root.
#
#   root_keep DEFAULT             makes $keep, which is VERSIONS_DIR or DEFAULT, and
#                                 waits until no other run uses it
#   root_make NAME SUITE [option…]   $keep/NAME by mmdebstrap with these options, once
#   root_enter NAME FOLDER command…  runs a command in FOLDER of that root folder

# The mirror that this machine's apt uses.
mirror() {
    apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Label: Debian' 'Component: main' | sed -n 1p
}

root_keep() {
    [ "$(id -u)" = 0 ] || die "needs root, to make and to enter root folders"
    keep=${VERSIONS_DIR:-$1}
    mkdir -p "$keep"
    [ -O "$keep" ] || die "$keep belongs to another user: give VERSIONS_DIR"
    chmod 755 "$keep" # the tests run as another user
    exec {lock}>"$keep/lock"
    flock -n "$lock" || { echo "Waiting for another run in $keep"; flock "$lock"; }
}

need_mmdebstrap() {
    if [ -n "$(mirror)" ] && command -v mmdebstrap >/dev/null; then return; fi
    {
        apt-get -q -y update &&
            DEBIAN_FRONTEND=noninteractive apt-get -q -y install --no-install-recommends mmdebstrap
    } </dev/null >"$keep/apt.log" 2>&1 || { tail -n 5 "$keep/apt.log" >&2; echo "mmdebstrap could not be installed" >&2; return 1; }
    [ -n "$(mirror)" ] || { echo "apt is not configured with a mirror of Debian" >&2; return 1; }
}

# The root folder has another name until it is complete.
root_make() {
    local name=$1 suite=$2 folder=$keep/$1
    shift 2
    [ ! -d "$folder" ] || return 0
    need_mmdebstrap || return
    echo "Making $folder, once"
    rm -rf "$folder.new"
    # forky's lists outlive their date on a mirror that is a snapshot.
    mmdebstrap --variant=minbase --aptopt='Acquire::Check-Valid-Until "false"' --dpkgopt='force-unsafe-io' \
        --dpkgopt='path-exclude=/usr/share/locale/*' "$@" \
        "$suite" "$folder.new" "$(mirror)" </dev/null >"$keep/$name.log" 2>&1 || {
        tail -n 5 "$keep/$name.log" >&2
        echo "no root folder could be made from $(mirror)" >&2
        return 1
    }
    mv "$folder.new" "$folder"
}

# Servers and mounts of the root folder end with its process namespace.
root_enter() {
    local name=$1 directory=$2
    shift 2
    unshare --pid --fork --kill-child --mount-proc --root="$keep/$name" --wd="$directory" \
        env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 "$@" </dev/null
}
