# shellcheck shell=bash
# Sourced by the subjects of make bench: their cluster, clock and statistics.
#
# Figures of a subject are kept in files of its private folder, one line a run,
# so that two of them can be set against each other run by run.

. "$(dirname "${BASH_SOURCE[0]}")/../tools/private-cluster.sh"
runs=${RUNS:-5} rows=${ROWS:-1000000}

# What is measured is the work, in memory and durable: no checkpoint, autovacuum
# or just-in-time compiler strikes one run and spares another.  fsync,
# synchronous_commit and full_page_writes are on, for the sweeper as for others.
steady=(
    "shared_buffers = '1GB'"
    "max_wal_size = '16GB'" "min_wal_size = '2GB'" "checkpoint_timeout = '1h'"
    "autovacuum = off" "jit = off"
    "max_worker_processes = 40" "max_connections = 60"
    "session_sweeper.max_workers = 2" "session_sweeper.synchronous_commit = on"
)

die() { echo "bench: $*" >&2; exit 1; }

# A cluster of the subject's own, with these lines in its configuration.
cluster() {
    [ -n "$private" ] || private_folder
    private_start "$@"
    sql -c "CREATE EXTENSION session_sweeper"
}

sql() { "$pg_bin/psql" -X -q -At -v ON_ERROR_STOP=1 "$@"; }
quiet() { sql "$@" >/dev/null; }

# Milliseconds of each statement of the input, as its client sees them.
times() { { echo '\timing on'; cat; } | "$pg_bin/psql" -X -q -v ON_ERROR_STOP=1 | sed -n 's/^Time: \([0-9.]*\) ms.*/\1/p'; }

# Nanoseconds of CPU that the whole cluster has taken: the processes that run, and
# those that the postmaster has seen the end of.  One that ends meanwhile would be
# in both or in none: then it is read again.
cpu() {
    local pid seen='' reaped running postmaster
    postmaster=$(head -n 1 "$private/data/postmaster.pid")
    while
        reaped=$seen
        seen=$(awk -v hz="$(getconf CLK_TCK)" '{printf "%.0f\n", ($16 + $17) * 1e9 / hz}' "/proc/$postmaster/stat")
        [ "$seen" != "$reaped" ]
    do
        running=$(for pid in "$postmaster" $(pgrep -P "$postmaster"); do cut -d ' ' -f 1 "/proc/$pid/schedstat" 2>/dev/null; done | awk '{n += $1} END {printf "%.0f\n", n}')
    done
    echo $((running + seen))
}

# Until a query says t.
wait_for() {
    local end=$((SECONDS + ${2:-180}))
    until [ "$(sql -c "$1")" = t ]; do
        [ "$SECONDS" -lt "$end" ] || die "still not true: $1"
        sleep 0.5
    done
}

# Statistics of the first column of the input.
quantile() { sort -n | awk -v q="$1" '{v[NR] = $1} END {i = 1 + q * (NR - 1); f = int(i); print v[f] + (i - f) * (v[f + (f < NR)] - v[f])}'; }
median() { quantile 0.5; }
maximum() { quantile 1; }

# One file against another, run by run: the median of the quotients and their range.
against() {
    paste "$1" "$2" | awk '{print $1 / $2}' >quotients
    printf "%.${3:-2}f x (%.${3:-2}f to %.${3:-2}f)" "$(median <quotients)" "$(quantile 0 <quotients)" "$(maximum <quotients)"
}
rounded() { printf "%.${2:-0}f" "$1"; }

# The words after the number, beginning with another one in each run: nobody
# always comes first, or always after the same neighbour's leftovers.
rotated() {
    local n=$1
    shift
    n=$((n % $#))
    echo "${@:n + 1}" "${@:1:n}"
}

# Table b, every second row dead.  All of it is then in shared buffers, and clean.
#   ordered     deadlines rise with the place in the table: rows that nobody touched
#   shuffled    they have nothing to do with it: rows that are refreshed all the time
#   hours       600 deadlines, each of many rows anywhere in the table
#   single      the dead have one deadline, and lie anywhere
#   clustered   the dead are the last half of the table
#   wide        rows of 1 kB, and 3 kB more in the TOAST table
#   text        the key is text
#   composite   the key has 3 columns
#   indexes     8 indexes
#   partitions  64 partitions
fill() {
    local rows=${2:-$rows} key='id uuid PRIMARY KEY' id='md5(i::text)::uuid' columns='id' extra='' more='' by='' parts=''
    local age='pg_catalog.abs(pg_catalog.hashint4(i)::bigint) % 864000' dead='i % 2 = 0'
    case $1 in
        ordered) age='i % 864000' ;;
        hours) age='pg_catalog.abs(pg_catalog.hashint4(i)::bigint) % 300 * 3600' ;;
        single) age=0 ;;
        clustered) dead="i > $rows / 2" ;;
        wide) extra=", repeat(md5(i::text), 30), (SELECT string_agg(md5(i::text || n), '') FROM generate_series(1, 96) AS n)" ;;
        text) key='id text PRIMARY KEY' id='md5(i::text)' ;;
        composite) key='tenant int, device int, id uuid, PRIMARY KEY (tenant, device, id)' id='i % 100, i % 1000, md5(i::text)::uuid' columns='tenant, device, id' ;;
        indexes) more='CREATE INDEX ON b (g); CREATE INDEX ON b (g, d); CREATE INDEX ON b (pad, id); CREATE INDEX ON b (g, id); CREATE INDEX ON b (pad, d); CREATE INDEX ON b (d, g);' ;;
        partitions) by='PARTITION BY HASH (id)' parts="SELECT format('CREATE TABLE b%1\$s PARTITION OF b FOR VALUES WITH (MODULUS 64, REMAINDER %1\$s)', i) FROM generate_series(0, 63) AS i \\gexec" ;;
    esac
    sql <<SQL
SET client_min_messages = error;
DROP TABLE IF EXISTS b;
CREATE TABLE b ($key, d timestamptz NOT NULL, g text NOT NULL DEFAULT 'tenant', pad text DEFAULT 'xxxxxxxxxxxxxxxx'${extra:+, more text}) $by;
$parts
INSERT INTO b ($columns, d, g${extra:+, pad, more})
    SELECT $id, now() + CASE WHEN $dead THEN -1 ELSE 1 END * (3600 + $age) * interval '1 s', 'tenant ' || i % 100$extra FROM generate_series(1, $rows) AS i;
CREATE INDEX ON b (d);
$more
VACUUM ANALYZE b;
SET enable_seqscan = off; -- reads the new index into shared buffers
SELECT count(*) FROM b WHERE d > '-infinity' \g /dev/null
CHECKPOINT;
SQL
}
