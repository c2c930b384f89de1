#!/bin/bash
# A part of make check-monitoring: a private server with databases in several states,
# monitoring/page/server.py on them, and page.pl, which looks at the page in a browser.
# PICTURES=folder keeps its pictures there.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tools/private-cluster.sh"
command -v chromium-headless-shell >/dev/null || { echo "check-monitoring: not installed: chromium-headless-shell" >&2; exit 1; }

private_folder
private_start "max_worker_processes = 32" "session_sweeper.max_workers = 3"
psql() { "$pg_bin/psql" -X -q -v ON_ERROR_STOP=1 -o "$private/out" "$@"; }
psql -d postgres -c 'CREATE DATABASE app' -c 'CREATE DATABASE plain' -c 'CREATE DATABASE empty' \
    -c "CREATE DATABASE hostile ENCODING 'UTF8'" -c 'CREATE ROLE page LOGIN' -c 'CREATE ROLE "no ""right" LOGIN'
# What monitoring/README.md says about the page, which gives role page its level.
for database in app hostile empty; do
    [ $database = app ] && psql -d app -f "$root/tools/load.sql" || psql -d $database -c 'CREATE EXTENSION session_sweeper'
    sed -n "/^ *SELECT sweeper.grant_access('page'/p" "$root/monitoring/README.md" | psql -d $database
done
psql -d hostile -f "$root/test/monitoring/hostile.sql"
# A standby that nobody promotes.
"${as_server_user[@]}" "$pg_bin/pg_basebackup" -D "$private/standby" -R -c fast
echo "port = 5433" | "${as_server_user[@]}" tee -a "$private/standby/postgresql.conf" >/dev/null
"${as_server_user[@]}" timeout 90 "$pg_bin/pg_ctl" -D "$private/standby" -l "$private/standby.log" -w start </dev/null >/dev/null 2>&1

pictures=$private
[ -z "${PICTURES:-}" ] || pictures=$(cd "$root" && realpath "$PICTURES")
export PATH="$pg_bin:$PATH"
AS_SERVER_USER="${as_server_user[*]}" perl -I "$root/test/perl" "$root/test/monitoring/page.pl" "$root" "$private" "$pictures"
