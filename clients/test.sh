#!/bin/bash
# test.sh NAME: the tests of one client (README.md) against a private server of its own, which they stop and start.
# Folder NODE_MODULES has the packages from npm, NODE is another node than that of the path.  make check-clients calls it.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=tools/private-cluster.sh
. "$root/tools/private-cluster.sh"

private_folder
cp -R "$root/clients" "$private/clients"
cp "$root/doc/clients.md" "$private/clients/" # its examples run, too
[ ! -d "${NODE_MODULES:-}" ] || cp -R "$NODE_MODULES" "$private/clients/"
[ -z "${NODE:-}" ] || cp "$NODE" "$private/node"
if [ "$(id -u)" = 0 ]; then chown -R postgres: "$private/clients"; fi
private_start "max_worker_processes = 16" "log_min_messages = log"
"$pg_bin/psql" -X -q -d postgres -c 'CREATE EXTENSION session_sweeper'
export PGDATABASE=postgres PGDATA=$private/data PG_BIN=$pg_bin SERVER_LOG=$private/server.log PYTHONDONTWRITEBYTECODE=1
# What a client says, beside what its test says.
export CLIENT_LOG=$private/client.log

run() { "${as_server_user[@]}" timeout -k 5 $((400 + 2 * ${LONG:-0})) "$@" </dev/null; }
status=0
case ${1:?a name} in
    python)
        cd "$private/clients/python"
        for DRIVER in ${DRIVERS:-psycopg2 psycopg}; do
            export DRIVER
            echo "$DRIVER"
            for file in ${FILES:-test_session_sweeper.py test_mistakes.py}; do
                run /usr/bin/python3 "$file" ${TESTS:-} || status=$?
            done
        done
        ;;
    node)
        cd "$private/clients/node"
        for file in ${FILES:-test_session_sweeper.js test_mistakes.js}; do
            run node --test-reporter=spec --test-name-pattern="${TESTS:-.}" "$file" || status=$?
        done
        ;;
    queues)
        cd "$private/clients/node"
        run "$([ -x "$private/node" ] && echo "$private/node" || echo node)" --test-reporter=spec test_queues.js || status=$?
        ;;
    logout)
        cd "$private/clients/logout"
        run /usr/bin/python3 test_logout.py || status=$?
        ;;
    *) echo "test.sh: no client $1" >&2; exit 2 ;;
esac
if [ "$status" != 0 ]; then tail -n 60 "$CLIENT_LOG" "$private/server.log" >&2 || true; fi
exit "$status"
