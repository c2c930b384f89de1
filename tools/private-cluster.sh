# shellcheck shell=bash
# Sourced.  A folder of one's own and private servers in it, as a user that
# PostgreSQL accepts; everything is gone when the script ends.
#
#   private_folder          makes $private, and the prefix "${as_server_user[@]}"
#   private_tree            copies the source tree to $private/tree
#   private_server          copies the server of PG_CONFIG to $private/server, where
#                           things can be installed that others must not meet;
#                           from then on PG_CONFIG is that copy's
#   private_install OPTION  builds $private/tree with this option of the compiler
#                           and of the linker, and installs it for PG_CONFIG
#   private_wrap COMMAND…   has that copy run its servers, and only them, under a command
#   private_start [line…]   starts a cluster with these lines in its
#                           configuration; exports PGHOST, PGPORT and PGUSER
#   private_stop            stops it
#
# A server listens on a socket inside the folder only, so every port is free
# there and other servers of the machine are not disturbed.

# libpq settings of the caller would lead tests and demo to another server;
# jobs and variables of an outer make do not concern them.
unset PGHOST PGHOSTADDR PGPORT PGUSER PGDATABASE PGPASSWORD PGSERVICE PGOPTIONS PGDATA \
    PGTZ PGDATESTYLE PGAPPNAME MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES
# Messages and sort order do not depend on the user's locale.
unset LC_ALL LANGUAGE LC_MESSAGES LC_COLLATE LC_CTYPE
export LANG=C.UTF-8

pg_bin=$("${PG_CONFIG:-pg_config}" --bindir)
private=

private_folder() {
    # A socket's path has at most 107 bytes, so the folder's must be short.
    local base=${TMPDIR:-/tmp}
    [ ${#base} -le 60 ] || base=/tmp
    private=$(mktemp -d "$base/sweeper.XXXXXXXX")
    trap private_cleanup EXIT
    trap 'exit 129' HUP
    trap 'exit 130' INT
    trap 'exit 143' TERM
    as_server_user=(env HOME="$private" TMPDIR=/tmp)
    if [ "$(id -u)" = 0 ]; then
        id postgres >/dev/null # the user that Debian's server package makes
        as_server_user=(setpriv --reuid=postgres --regid=postgres --init-groups "${as_server_user[@]}")
        chown postgres: "$private"
    fi
    cd "$private" || return # the caller's may be unreadable for the server's user
}

private_tree() {
    "${as_server_user[@]}" mkdir "$private/tree"
    tar -C "$1" --exclude=./.git --exclude=./test-output --exclude='*.o' -cf - . |
        "${as_server_user[@]}" tar -C "$private/tree" --no-same-owner -xf -
}

# A server finds its files from where it is itself, so all keep their places below the new root.
private_server() {
    local include
    "${as_server_user[@]}" mkdir "$private/server"
    for include in bindir pkglibdir sharedir; do
        "${as_server_user[@]}" cp -R --parents "$("$PG_CONFIG" --$include)" "$private/server"
    done
    include=$("$PG_CONFIG" --includedir)
    "${as_server_user[@]}" mkdir -p "$private/server${include%/*}"
    "${as_server_user[@]}" ln -s "$include" "$private/server$include"
    PG_CONFIG=$private/server$("$PG_CONFIG" --bindir)/pg_config
    pg_bin=${PG_CONFIG%/*}
    case $("$PG_CONFIG" --pkglibdir) in
        "$private"/*) ;;
        *) echo "a copy of this server would still load libraries of the original" >&2; return 1 ;;
    esac
}

# initdb starts servers of its own, which are not what is tested.
private_wrap() {
    mv "$pg_bin/postgres" "$pg_bin/postgres.real"
    {
        echo '#!/bin/bash'
        echo 'case " $* " in'
        # shellcheck disable=SC2016  # expanded by that script
        printf '    *" --boot "* | *" --single "* | *" --check "* | *" -V "*) exec "%s" "$@" ;;\n' "$pg_bin/postgres.real"
        echo 'esac'
        printf 'exec'
        printf ' %q' "$@" "$pg_bin/postgres.real"
        # shellcheck disable=SC2016
        echo ' "$@"'
    } | "${as_server_user[@]}" tee "$pg_bin/postgres" >/dev/null
    chmod 755 "$pg_bin/postgres"
}

private_install() {
    "${as_server_user[@]}" make -s -j"$(nproc)" -C "$private/tree" all PG_CONFIG="$PG_CONFIG" COPT="$1"
    "${as_server_user[@]}" make -s -C "$private/tree" install PG_CONFIG="$PG_CONFIG" COPT="$1" >/dev/null
}

private_start() {
    "${as_server_user[@]}" "$pg_bin/initdb" -D "$private/data" -U postgres -A trust -E UTF8 --locale=C.UTF-8 -N \
        >"$private/initdb.log" 2>&1 </dev/null || { cat "$private/initdb.log" >&2; return 1; }
    {
        echo "listen_addresses = ''"
        echo "unix_socket_directories = '$private'"
        echo "shared_preload_libraries = 'session_sweeper'"
        [ $# = 0 ] || printf '%s\n' "$@"
    } | "${as_server_user[@]}" tee -a "$private/data/postgresql.conf" >/dev/null
    export PGHOST=$private PGPORT=5432 PGUSER=postgres
    private_start_again
}

private_start_again() {
    # A server that inherits our output would keep a pipe behind us open.
    "${as_server_user[@]}" timeout 90 "$pg_bin/pg_ctl" -D "$private/data" -l "$private/server.log" -w start \
        </dev/null >/dev/null 2>&1 || { tail -n 30 "$private/server.log" >&2; return 1; }
}

private_stop() {
    "${as_server_user[@]}" timeout 60 "$pg_bin/pg_ctl" -D "$private/data" -m "${1:-fast}" -w stop </dev/null >/dev/null 2>&1
}

# Also servers that an interrupted test left: each has its pid in our folder.
private_cleanup() {
    trap '' HUP INT TERM
    cd /
    local file pid
    for file in "$private"/data/postmaster.pid $(find "$private" -name postmaster.pid 2>/dev/null); do
        [ -f "$file" ] || continue
        pid=$(head -n 1 "$file")
        "${as_server_user[@]}" timeout 20 "$pg_bin/pg_ctl" -D "${file%/*}" -m fast -w stop </dev/null >/dev/null 2>&1 ||
            kill -QUIT "$pid" 2>/dev/null || true
    done
    rm -rf "$private"
}
