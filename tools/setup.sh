#!/bin/sh
# Install what building, the demo and the tests need, by Debian package name:
# only what is missing, after saying so.  With PG_CONFIG given, nothing is
# installed: the tools are expected beside that server.  What a single goal
# needs beside that is given as arguments, and installed alone.  GOALS are those of make.
set -eu

die() { echo "setup: $*" >&2; exit 1; }

major=${PG_MAJOR:-15}
packages="gcc make libc6-dev perl libipc-run-perl patch pg-bsd-indent spin pgbouncer
    postgresql-$major postgresql-server-dev-$major postgresql-$major-cron postgresql-$major-partman"
packages=${*:-$packages}

if [ -n "${PG_CONFIG:-}" ] && [ $# = 0 ]; then
    pgxs=$("$PG_CONFIG" --pgxs) || die "PG_CONFIG=$PG_CONFIG does not run"
    [ -f "$pgxs" ] || die "$("$PG_CONFIG" --version) has no $pgxs: its development package is missing"
    command -v "${CC:-cc}" >/dev/null || command -v gcc >/dev/null || die "no C compiler"
    perl -MIPC::Run -MTest::More -e 1 2>/dev/null || echo "setup: no Perl module IPC::Run: TAP tests will fail" >&2
    [ -x /usr/sbin/pgbouncer ] || command -v pgbouncer >/dev/null || echo "setup: no pgbouncer: its test will be skipped" >&2
    exit 0
fi

# shellcheck disable=SC2086  # a list
command -v dpkg-query >/dev/null ||
    die "this is no Debian system: give PG_CONFIG, and install the equivalents of" $packages

lacking() {
    for package; do
        case $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) in
            installed) ;;
            *) printf ' %s' "$package" ;;
        esac
    done
}
# Debian's driver needs Debian's Node.js; another one has its npm, and what that installs.
node_has_pg() {
    NODE_PATH=/usr/share/nodejs:/usr/lib/nodejs:$(npm root -g 2>/dev/null || true) node -e 'require("pg")' 2>/dev/null
}

# shellcheck disable=SC2086  # a list
missing=$(lacking $packages)
# What examples of the documents need, for their tests, where the machine can have it.
clients=
case " ${GOALS:-} " in *" check "* | *" check-tap "* | *" setup "*)
    clients=$(lacking python3-psycopg2 python3-django python3-alembic default-jdk-headless libpostgresql-jdbc-java)
    node_has_pg || clients="$clients node-pg"
    ;;
esac
[ -n "$missing$clients" ] || exit 0

[ -z "$missing" ] || echo "Installing from Debian:$missing"
if [ "$(id -u)" = 0 ]; then
    as_root=
elif [ -n "$missing" ]; then
    command -v sudo >/dev/null || die "need root, or sudo, to install$missing"
    as_root=sudo
else
    # nobody is asked for a password for what is tested or not
    sudo -n true 2>/dev/null || { echo "setup: no$clients: examples of the documents are not all tested"; exit 0; }
    as_root=sudo
fi

# The server packages would create and start a cluster that nobody asked for, and pgbouncer itself.
dropin=/etc/postgresql-common/createcluster.d/session_sweeper-setup.conf
policy=/usr/sbin/policy-rc.d
[ ! -e "$policy" ] || policy= # somebody has one, which is left alone
log=$(mktemp)
trap 'rm -f "$log"; $as_root rm -f "$dropin" ${policy:+"$policy"}' EXIT
trap 'exit 1' HUP INT TERM
$as_root mkdir -p "${dropin%/*}"
echo 'create_main_cluster = false' | $as_root tee "$dropin" >/dev/null
if [ -n "$policy" ]; then
    printf '#!/bin/sh\nexit 101\n' | $as_root tee "$policy" >/dev/null
    $as_root chmod 755 "$policy"
fi

apt() {
    $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get -q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" </dev/null >"$log" 2>&1
}
# shellcheck disable=SC2086  # lists
{ [ -z "$missing" ] && apt-cache show $clients >/dev/null 2>&1; } || apt update || { tail -n 5 "$log"; echo "setup: the package lists could not be refreshed; trying with the old ones" >&2; }
# shellcheck disable=SC2086  # a list
[ -z "$missing" ] || apt install --no-install-recommends $missing || {
    tail -n 30 "$log" >&2
    die "apt could not install$missing (another PostgreSQL: PG_MAJOR=17, or PG_CONFIG=…)"
}

[ -z "$clients" ] || echo "Installing, for examples of the documents:$clients"
for client in $clients; do
    apt install --no-install-recommends "$client" ||
        { [ "$client" = node-pg ] && $as_root npm install --global pg >"$log" 2>&1 && node_has_pg; } ||
        echo "setup: no $client: its example in the documents is not tested"
done
