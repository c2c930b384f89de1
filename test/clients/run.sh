#!/bin/bash
# Real session stores against a private server that sweeps (README.md), and the tests of
# clients/, each against a server of its own: all, or those named.  One line a client; ends
# with a line "N passed, N failed".  What they and the server said is then in test-output/clients/.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tools/private-cluster.sh
. "$root/tools/private-cluster.sh"

limit=240 # seconds a client; some 45 on a quiet machine
output=$root/test-output/clients
[ $# -gt 0 ] || set -- connect_pg_simple django django_local symfony laravel flask_session python node queues logout
passed=0 failed=0
stores=() own=()
for client; do
    case $client in
        python | node | queues | logout) own+=("$client") ;;
        *) stores+=("$client") ;;
    esac
done

# What package.json names, once for each of its versions.
node_modules() {
    local modules=$output/node wanted=$root/test/clients/package.json
    if ! cmp -s "$wanted" "$modules/installed"; then
        echo "Installing from npm:" "$(sed -nE 's/^ +"([a-z-]+)": "([0-9.]+)",?$/\1 \2/p' "$wanted" | paste -sd, -)"
        rm -rf "$modules" && mkdir "$modules" && cp "$wanted" "$modules/" &&
            (cd "$modules" && npm install --ignore-scripts --no-package-lock --no-audit --no-fund --loglevel=error </dev/null >/dev/null) &&
            cp "$wanted" "$modules/installed" || return
    fi
}

# The libraries of queues want Node.js 22, which Debian 12 does not have: a package of npm that is only the program.
newer_node() {
    local folder=$output/node22 arch
    case $(uname -m) in aarch64) arch=arm64 ;; *) arch=x64 ;; esac
    if node -e 'process.exit(parseInt(process.versions.node) < 22)' 2>/dev/null; then
        command -v node
        return
    fi
    [ -x "$folder/node_modules/node-linux-$arch/bin/node" ] || {
        echo "Installing from npm: node-linux-$arch 22" >&2
        mkdir -p "$folder" && (cd "$folder" && npm install --ignore-scripts --no-package-lock --no-audit --no-fund --loglevel=error \
            "node-linux-$arch@22" </dev/null >/dev/null)
    } || return
    echo "$folder/node_modules/node-linux-$arch/bin/node"
}

mkdir -p "$output"
private_folder
declare -A children=()
# shellcheck disable=SC2154  # child is set in it
trap 'for child in "${children[@]}"; do kill "$child" 2>/dev/null || true; wait "$child" || true; done; private_cleanup' EXIT
cp -R "$root/test/clients" "$private/clients"
case " $* " in
    *' connect_pg_simple '* | *' node '* | *' queues '* | *' logout '*)
        node_modules || echo "clients: no packages from npm" >&2 # which fails these clients alone
        cp -R "$output/node/node_modules" "$private/clients/"
        ;;
esac
if [ "$(id -u)" = 0 ]; then chown -R postgres: "$private/clients"; fi
# Neither the time zone of a database nor UTC, so that it is noticed who takes it for theirs.
# Six databases at a time need more processes than the server's default.
private_start "timezone = 'Asia/Tokyo'" "max_worker_processes = 16"
"$pg_bin/psql" -X -q -d postgres -c 'CREATE ROLE application LOGIN'

cd "$private/clients"
for client in "${stores[@]}"; do
    "${as_server_user[@]}" timeout -k 5 "$limit" /usr/bin/python3 -B check.py "$client" >"$client.result" 2>&1 </dev/null &
    children[$client]=$!
done
judge() {
    local status=0
    wait "${children[$1]}" || status=$?
    unset "children[$1]"
    if [ "$status" = 0 ]; then
        passed=$((passed + 1))
        echo "$1: ok"
    else
        failed=$((failed + 1))
        echo "$1: FAILED: $(cat "$1.result")"
        tail -n 20 "$1.log" || true
    fi
    cp "$1.result" "$1.log" "$output/" 2>/dev/null || true
}
for client in "${stores[@]}"; do judge "$client"; done
cp "$private/server.log" "$output/"
private_stop
export NODE NODE_MODULES=$private/clients/node_modules
for client in "${own[@]}"; do
    NODE=
    [ "$client" != queues ] || NODE=$(newer_node) || echo "clients: no newer Node.js" >&2
    "$root/clients/test.sh" "$client" >"$client.result" 2>"$client.log" </dev/null &
    children[$client]=$!
done
for client in "${own[@]}"; do judge "$client"; done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
