#!/bin/bash
# A Citus cluster of a coordinator and three workers on this machine: a pass, its
# cost by number of nodes, idle cost, heartbeats and views.
set -eu
. "$(dirname "$0")/lib.sh"
seconds=${SECONDS_A_RUN:-5}
[ -f "$("${PG_CONFIG:-pg_config}" --sharedir)/extension/citus.control" ] || die "this PostgreSQL has no Citus: give PG_CONFIG of one that has it"

# Nodes reach each other by TCP; each has a folder and a socket of its own.
private_folder
all=$private
free_port() { perl -MIO::Socket::INET -e 'print IO::Socket::INET->new(LocalAddr => "127.0.0.1", Listen => 1)->sockport'; }
at() { export PGHOST=$all/$1 PGPORT=${port[$1]}; }
declare -A port
start_node() {
    private=$all/$1 port[$1]=$(free_port)
    "${as_server_user[@]}" mkdir "$private"
    private_start "${steady[@]}" "shared_preload_libraries = 'citus,session_sweeper'" "listen_addresses = '127.0.0.1'" "port = ${port[$1]}" \
        "shared_buffers = '512MB'" "max_prepared_transactions = 50" "citus.node_conninfo = 'sslmode=prefer'" "citus.shard_count = 32"
    at "$1"
    private=$all
    sql -c 'CREATE EXTENSION citus'
}
nodes=(c w1 w2 w3)
for node in "${nodes[@]}"; do start_node "$node"; done
at c
export PGOPTIONS='-c client_min_messages=error'
quiet -c "SELECT citus_set_coordinator_host('127.0.0.1', ${port[c]})"
for node in w1 w2 w3; do quiet -c "SELECT citus_add_node('127.0.0.1', ${port[$node]})"; done
sql -c 'CREATE EXTENSION session_sweeper'
. "$(dirname "$0")/sides.sh"
audit_tables
everywhere() { for node in "${nodes[@]}"; do at "$node"; quiet -c "$1"; done; at c; }

# Table b, every second row dead, in 32 shards; clean.
fill_shards() {
    sql <<SQL
DROP TABLE IF EXISTS b;
CREATE TABLE b (id bigint PRIMARY KEY, d timestamptz NOT NULL, pad text DEFAULT 'xxxxxxxxxxxxxxxx');
CREATE INDEX ON b (d);
SELECT create_distributed_table('b', 'id') \g /dev/null
INSERT INTO b (id, d) SELECT i, now() + (i % 2 * 2 - 1) * (3600 + i % 864000) * interval '1 s' FROM generate_series(1, $rows) AS i;
VACUUM ANALYZE b;
SQL
    everywhere CHECKPOINT
}
on_nodes() { # policy, nodes: until all of them have the policy
    wait_for "SELECT count(*) = $2 FROM sweeper.policy_status_all WHERE policy = '$1' AND state IS DISTINCT FROM 'no answer'"
}
pass() {
    sql -c "SELECT FROM sweeper.register('b', deadline => 'd', check_every => '0', start => 'now', max_workers => 2, fuse_fraction => 1)"
    on_nodes b 4
    before_pass=$(cpu)
    times <<<"CALL sweeper.sweep('b');"
    echo "$(cpu) $before_pass" | awk -v n="$((rows / 2))" '{print ($1 - $2) / n}' >cpu_of_pass
    quiet -c "SELECT sweeper.unregister('b')"
}
check_pass() {
    [ "$(sql -c 'SELECT count(*) FROM b WHERE d <= now()')" = 0 ] || die "$1 left dead rows"
}

# Microseconds of CPU that all processes of all nodes have used.
cpu() {
    local node postmaster pid
    for node in "${nodes[@]}"; do
        postmaster=$(head -n 1 "$all/$node/data/postmaster.pid")
        sed 's/.*) //' "/proc/$postmaster/stat" | awk '{print $12 + $13 + $14 + $15}'
        for pid in $(ps -o pid= --ppid "$postmaster"); do sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null | awk '{print $12 + $13}'; done
    done | awk '{n += $1} END {printf "%.0f\n", n * 10000}'
}

# 1. A pass against statements through the coordinator.
for run in $(seq 0 "$runs"); do
    for side in $(rotated "$run" bare same ours); do
        fill_shards
        sql -c 'TRUNCATE audit_same'
        everywhere 'TRUNCATE sweeper.cleanup_event'
        if [ "$side" = ours ]; then ms=$(pass); else ms=$("side_$side"); fi
        check_pass "$side"
        case $side in
            same) [ "$(sql -c 'SELECT count(*) FROM audit_same')" = $((rows / 2)) ] || die "$side lacks audit rows" ;;
            ours)
                n=0
                for node in "${nodes[@]}"; do at "$node"; n=$((n + $(sql -c 'SELECT count(*) FROM sweeper.cleanup_event'))); done
                at c
                [ "$n" = $((rows / 2)) ] || die "$n events" ;;
        esac
        [ "$run" = 0 ] || echo "$ms" >>"side.$side"
    done
done

# 2. The same rows on one, two and three nodes.
shards_on() { # how many workers have shards
    local i=0 node
    for node in w1 w2 w3; do
        i=$((i + 1))
        quiet -c "SELECT citus_set_node_property('127.0.0.1', ${port[$node]}, 'shouldhaveshards', $i <= $1)"
    done
}
for run in $(seq "$runs"); do
    for n in $(rotated "$run" 1 2 3); do
        shards_on "$n"
        fill_shards
        pass >/dev/null
        check_pass "$n nodes"
        cat cpu_of_pass >>"cpu.$n"
    done
done
shards_on 3
sql -c 'DROP TABLE b'

# 3. A worker's coordinator process with nothing due, in ten seconds.
idle() {
    local pid
    at w1
    pid=$(sql -c "SELECT pid FROM pg_stat_activity WHERE backend_type = 'session_sweeper coordinator' AND datname = 'postgres'")
    at c
    sleep 5
    read -r before_idle _ <"/proc/$pid/schedstat"
    sleep 10
    read -r after_idle _ <"/proc/$pid/schedstat"
    awk -v ns="$((after_idle - before_idle))" 'BEGIN {printf "%.1f\n", ns / 1e6}'
}
idle_of=$(idle)
for shards in 96 288 960; do
    sql <<SQL
CREATE TABLE quiet_$shards (id bigint PRIMARY KEY, d timestamptz NOT NULL);
CREATE INDEX ON quiet_$shards (d);
SELECT create_distributed_table('quiet_$shards', 'id', shard_count => $shards, colocate_with => 'none') \g /dev/null
INSERT INTO quiet_$shards SELECT i, now() + interval '1 day' FROM generate_series(1, 10000) AS i;
SELECT FROM sweeper.register('quiet_$shards', deadline => 'd', start => 'now');
SQL
    on_nodes "quiet_$shards" 4
    idle_of="$idle_of, $(idle)"
    quiet -c "SELECT sweeper.unregister('quiet_$shards')"
    sql -c "DROP TABLE quiet_$shards"
done

# 4. Heartbeats: of a table of one node, at the right worker, through the coordinator; and the update.
sql <<SQL
CREATE TABLE s (id bigint PRIMARY KEY, seen timestamptz NOT NULL DEFAULT now());
CREATE INDEX ON s (seen);
SELECT create_distributed_table('s', 'id') \g /dev/null
INSERT INTO s SELECT generate_series(1, 20000);
SELECT FROM sweeper.register('s', last_seen => 'seen', ttl => '1 day', heartbeats => true);
CREATE TABLE l (id bigint PRIMARY KEY, seen timestamptz NOT NULL DEFAULT now());
CREATE INDEX ON l (seen);
INSERT INTO l SELECT generate_series(1, 20000);
SELECT FROM sweeper.register('l', last_seen => 'seen', ttl => '1 day', heartbeats => true);
SQL
on_nodes s 4
sql -c "SELECT id FROM generate_series(1, 20000) AS id WHERE get_shard_id_for_distribution_column('s', id) IN (SELECT shardid FROM citus_shards WHERE nodeport = ${port[w1]}) LIMIT 1000" >here.ids
seq 1 1000 >all.ids
script() { while read -r id; do printf "$2\n" "$id"; done <"$1"; }
script all.ids "SELECT sweeper.touch('l', '%s');" >local.sql
script here.ids "SELECT sweeper.touch('s', '%s');" >right.sql
script all.ids "SELECT sweeper.touch('s', '%s');" >routed.sql
script all.ids "UPDATE s SET seen = now() WHERE id = %s;" >update.sql
rate() { "$pg_bin/pgbench" -n -c 8 -j 2 -T "$seconds" -f "$1.sql" postgres 2>/dev/null | awk '/^tps/ {print $3 * 1000}'; }
for run in $(seq 0 "$runs"); do
    for side in $(rotated "$run" local right routed update); do
        [ "$side" != right ] || at w1
        per_second=$(rate "$side")
        at c
        [ "$run" = 0 ] || echo "$per_second" >>"rate.$side"
    done
done
for _ in $(seq 21); do echo "SELECT count(*) FROM sweeper.touch_many('s', ARRAY(SELECT i::text FROM generate_series(1, 1000) AS i));"; done | times >many
[ "$(sql -c "SELECT count(*) FROM sweeper.touch_many('s', ARRAY(SELECT i::text FROM generate_series(1, 1000) AS i))")" = 0 ] || die 'touch_many did not confirm all keys'

# 5. The views, with what the last pass left in them.
for view in policy_status_all problem_all cleanup_event_all; do
    for _ in $(seq 21); do echo "SELECT count(*) FROM sweeper.$view;"; done | times >"view.$view"
done
view() { rounded "$(median <"view.$1")"; }

cat <<TXT
| $rows rows, half dead, 32 shards on 3 nodes, an event each, against | target | measured | milliseconds here |
| --- | --- | --- | --- |
| WITH d AS (DELETE ...) INSERT into an audit table, through the coordinator | 0.5 x | $(against side.ours side.same) | $(milliseconds side.ours) of $(milliseconds side.same) |
| a bare DELETE through the coordinator, no audit | | $(against side.ours side.bare) | $(milliseconds side.bare) |

| CPU of all processes, an expired row | target | measured |
| --- | --- | --- |
| 1 node: microseconds | | $(rounded "$(median <cpu.1)" 1) |
| 2 nodes, against 1 | 1.15 x | $(against cpu.2 cpu.1) |
| 3 nodes, against 1 | 1.15 x | $(against cpu.3 cpu.1) |

| CPU in 10 s of a node's coordinator process, nothing due | target | measured |
| --- | --- | --- |
| without a policy; with 32, 96 and 320 shards on the node: milliseconds | 20 at 32 | $idle_of |

| heartbeats, 8 clients | target | measured | a second here |
| --- | --- | --- | --- |
| client at the right worker, against a table that is not distributed | 0.8 x | $(against rate.right rate.local) | $(milliseconds rate.right) of $(milliseconds rate.local) |
| client at the coordinator, against UPDATE of the row there | 0.9 x | $(against rate.routed rate.update) | $(milliseconds rate.routed) of $(milliseconds rate.update) |
| touch_many of 1,000 keys over 3 nodes | | | $(rounded "$(median <many)" 1) ms a call |

| view over 4 nodes | target | measured |
| --- | --- | --- |
| policy_status_all, problem_all | 50 ms | $(view policy_status_all), $(view problem_all) ms |
| cleanup_event_all: 10,000 rows of each other node | | $(view cleanup_event_all) ms |
TXT
