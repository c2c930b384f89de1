#!/bin/bash
# make check-monitoring: a private server with an application that is busy, in one
# database of two; Debian's exporter and Prometheus with what monitoring/ has; then
# check.pl, and pictures.pl.  Ends with a line "N passed, N failed".
# PICTURES=folder keeps the pictures there (doc/pictures has them), of a longer load.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
. "$root/tools/private-cluster.sh"

missing=
for program in prometheus promtool prometheus-postgres-exporter chromium-headless-shell; do
    command -v $program >/dev/null || missing="$missing $program"
done
[ -z "$missing" ] || { echo "check-monitoring: not installed:$missing" >&2; exit 1; }

children=()
private_folder
trap '[ ${#children[@]} = 0 ] || kill "${children[@]}" 2>/dev/null || true; wait; private_cleanup' EXIT

# Free ports, each another one, because the sockets are closed together.
ports() {
    perl -MIO::Socket::INET -e 'print join(" ", map { $_->sockport }
        map { IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1") || die "no port: $!\n" } 1 .. 2), "\n"'
}
read -r exporter prometheus < <(ports)

private_start "max_worker_processes = 16" "session_sweeper.max_workers = 3"
psql() { "$pg_bin/psql" -X -q -v ON_ERROR_STOP=1 "$@"; }
psql -d postgres -c 'CREATE DATABASE app' -c 'CREATE DATABASE plain' \
    -c "CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"
psql -d app -f "$root/tools/load.sql"
# A name that XML, JSON and the exposition would each spell otherwise, in another encoding.
PGCLIENTENCODING=UTF8 psql -d latin -o "$private/out" <<'END'
CREATE EXTENSION session_sweeper;
CREATE TABLE odd (id int PRIMARY KEY, d timestamptz);
CREATE INDEX ON odd (d);
SELECT FROM sweeper.register('odd', policy => '<größe> & "a\b"', deadline => 'd');
END
# What README.md says; the role is there then.
# shellcheck disable=SC2016  # back quotes of Markdown
sed -n '/^ *```sql$/,/^ *```$/{/```/d;p}' "$root/monitoring/README.md" | psql -d app -o "$private/out"
sed -n '/^ *SELECT sweeper.grant_access/p' "$root/monitoring/README.md" | psql -d latin -o "$private/out"

# The files of the folder, with a shorter interval and the ports of this run.
"${as_server_user[@]}" mkdir "$private/monitoring"
install -m 644 "$root"/monitoring/*.* "$private/monitoring"
sed -i "s/^#pool //" "$private/monitoring/queries.yaml"
sed -i "s/\b15s\b/1s/; s/localhost:9187/127.0.0.1:$exporter/" "$private/monitoring/prometheus.yml"

# A child of its own process, so that its number is what kill is given.
start() {
    local log=$1
    shift
    "${as_server_user[@]}" "$@" </dev/null >"$private/$log" 2>&1 &
    children+=($!)
}
start exporter.log env DATA_SOURCE_NAME="user=prometheus host=$PGHOST dbname=postgres sslmode=disable" \
    prometheus-postgres-exporter --extend.query-path="$private/monitoring/queries.yaml" --auto-discover-databases \
    --web.listen-address="127.0.0.1:$exporter"
start prometheus.log prometheus --config.file="$private/monitoring/prometheus.yml" \
    --storage.tsdb.path="$private/tsdb" --web.listen-address="127.0.0.1:$prometheus"
pictures=$private/pictures
seconds=15
if [ -n "${PICTURES:-}" ]; then
    pictures=$(cd "$root" && realpath "$PICTURES")
    seconds=50
fi
mkdir -p "$pictures"
from=$(date +%s)
start load.log "$pg_bin/psql" -X -q -v ON_ERROR_STOP=1 -d app -c "CALL load($seconds)"
# As make demo DEMO=watch.
{ cat "$root/monitoring/watch.sql"; echo '\watch 2'; } |
    timeout $((seconds - 3)) "$pg_bin/psql" -XqAt -U prometheus -d app >"$private/watch.txt" &
children+=($!)

"$root/test/monitoring/check.pl" "$root" "$private" "$pg_bin" "$exporter" "$prometheus" "${children[2]}" "$from" $((from + seconds)) "$pictures"
