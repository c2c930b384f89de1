# Each command, from the coordinator of a Citus cluster, on each kind of table that can be swept.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;
use CitusCluster;
use Shadows;

needs_citus();
my @node = map { citus_node("node$_") } 0 .. 2;
my ($coordinator, @workers) = @node;
sub sql { return $coordinator->safe_psql('postgres', $_[0]) }
sql("SELECT citus_set_coordinator_host('127.0.0.1', " . $coordinator->port . ')');
sql("SELECT citus_add_node('127.0.0.1', " . $_->port . ')') for @workers;
sql('CREATE EXTENSION session_sweeper');

my %make = (
    hash => q{CREATE TABLE hash (id int PRIMARY KEY, d timestamptz, g text); CREATE INDEX ON hash (d); SELECT create_distributed_table('hash', 'id', shard_count => 32)},
    composite => q{CREATE TABLE composite (tenant int, id int, d timestamptz, g text, PRIMARY KEY (tenant, id)); CREATE INDEX ON composite (d);
        SELECT create_distributed_table('composite', 'tenant', shard_count => 32)},
    parted => q{CREATE TABLE parted (id int, at timestamptz, d timestamptz, g text, PRIMARY KEY (id, at)) PARTITION BY RANGE (at); CREATE INDEX ON parted (d);
        CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM ('2020-01-01') TO ('2030-01-01'); CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM ('2030-01-01') TO ('2040-01-01');
        SELECT create_distributed_table('parted', 'id', shard_count => 4)},
    here => q{CREATE TABLE here (id int PRIMARY KEY, d timestamptz, g text); CREATE INDEX ON here (d); SELECT citus_add_local_table_to_metadata('here')},
    tenant => q{SET citus.enable_schema_based_sharding = on; CREATE SCHEMA one; CREATE TABLE one.tenant (id int PRIMARY KEY, d timestamptz, g text); CREATE INDEX ON one.tenant (d)});
# columns of the key, and the key, of row i
my %columns = (composite => 'tenant, id', parted => 'id, at');
my %values = (composite => 'i % 7, i', parted => q{i, timestamptz '2029-12-31 00:00+00' + (i % 3) * interval '1 day'});
# rows that on_expire was called with
sql("CREATE TABLE ended (id int, g text); SELECT create_distributed_table('ended', 'id', colocate_with => 'none')");
for my $table (sort keys %make)
{
    my $name = $table eq 'tenant' ? 'one.tenant' : $table;
    my ($columns, $values) = ($columns{$table} // 'id', $values{$table} // 'i');
    my $key = $columns =~ /,/ ? "ROW($columns)::text" : 'id::text';
    sql($make{$table});
    sql("INSERT INTO $name ($columns, d, g) SELECT $values, now() + CASE WHEN i > 200 THEN -1 ELSE 1 END * interval '1 h', 'g' || i % 10 FROM generate_series(1, 300) AS i");
    my %key = map { split /\|/ } split /\n/, sql("SET timezone = 'UTC'; SELECT id, $key FROM $name");
    my $is = sub { my ($sql, $result, $what) = @_; return is(sql("SET timezone = 'UTC'; $sql"), $result, "$table: $what") };
    # all nodes that follow have what the coordinator says
    my $follows = sub {
        my ($condition, $what) = @_;
        wait_for($_, "SELECT count(*) = 1 FROM sweeper.policy WHERE policy = '$table' AND $condition") for $table eq 'here' ? $coordinator : @node;
        return pass("$table: $what");
    };
    $is->("SELECT policy FROM sweeper.register('$name', '$table', deadline => 'd', key => '{" . ($columns =~ s/ //gr) . "}', group_by => 'g', fuse_fraction => 1, check_every => '0',
        notify_channel => 'ends')", $table, 'register');
    $follows->('true', 'on all nodes');
    my %shards = map { split /\|/ } split /\n/, sql("SELECT nodeport, count(*) FROM citus_shards WHERE table_name = '$name'::regclass GROUP BY 1");
    for my $n (@node)
    {
        my $leaves = ($shards{ $n->port } // 0) * ($table eq 'parted' ? 2 : 1);
        is($n->safe_psql('postgres', "SELECT count(*) FILTER (WHERE l LIKE '-- deadline: find%'), count(*) FILTER (WHERE l LIKE '-- and %'), count(*) FILTER (WHERE l LIKE '-- no table%')
            FROM sweeper.explain_sweep('$table') AS l"), join('|', $leaves > 8 ? (8, 1) : ($leaves, 0), $leaves ? 0 : 1), "$table: explain_sweep: " . $n->name)
            if $table ne 'here' || $n == $coordinator;
    }
    $is->("SELECT rows_estimate, dead_estimate, exact, cardinality(sample_keys) > 0 FROM sweeper.preview('$table')", '300|100|t|t', 'preview');
    $is->("SELECT found, verdict FROM sweeper.explain_row('$table', \$\$$key{7}\$\$)", 't|alive', 'explain_row of a living row');
    $is->("SELECT verdict FROM sweeper.explain_row('$table', \$\$$key{201}\$\$)", 'due', 'explain_row of a dead row');
    if ($table ne 'here') {
        for my $call ("expire('$table', ARRAY[\$\$$key{1}\$\$])", "expire_group('$table', 'g5')") {
            like(($workers[0]->psql('postgres', "SELECT sweeper.$call"))[2], qr/cannot expire rows of policy "$table" on this node.*Call the function on the coordinator/s, "$table: on a worker: $call");
        }
    }
    $is->("BEGIN; SELECT sweeper.expire('$table', ARRAY[\$\$$key{1}\$\$, \$\$$key{2}\$\$]); ROLLBACK; SELECT count(*) FROM $name", "2\n300", 'expire, undone');
    # a transaction that changes rows on all nodes is prepared there
    $is->("BEGIN; UPDATE $name SET d = d; SELECT sweeper.expire('$table', ARRAY[\$\$$key{1}\$\$, \$\$$key{2}\$\$], 'why'); COMMIT; SELECT count(*) FROM $name", "2\n298", 'expire');
    $is->("SELECT found, reason FROM sweeper.explain_row('$table', \$\$$key{1}\$\$)", 'f|why', 'explain_row of an expired row');
    $is->("SELECT sweeper.expire_group('$table', 'g5'); SELECT count(*) FROM $name WHERE g = 'g5'", "30\n0", 'expire_group');
    sql("SELECT sweeper.alter_policy('$table', batch_size => 7)");
    $follows->('batch_size = 7', 'alter_policy');
    sql("SELECT sweeper.pause('$table', 'a reason')");
    $follows->("paused_reason = 'a reason'", 'pause');
    like(($coordinator->psql('postgres', "CALL sweeper.sweep('$table')"))[2], qr/policy "$table" could not be swept|cannot sweep/, "$table: a paused policy is not swept");
    sql("SELECT sweeper.resume('$table')");
    $follows->('paused_at IS NULL', 'resume');
    sql("CREATE FUNCTION ended_$table($name\[]) RETURNS void LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.ended SELECT id, g FROM unnest(\$1); END';
        TRUNCATE ended; SELECT sweeper.alter_policy('$table', on_expire => 'ended_$table($name\[])')");
    $follows->('on_expire IS NOT NULL', 'on_expire');
    sql("CALL sweeper.sweep('$table')");
    $is->("SELECT count(DISTINCT id), count(*) FROM ended WHERE g = 'g' || id % 10", '90|90', 'on_expire has the rows');
    $is->("SELECT count(*), count(*) FILTER (WHERE d < now()) FROM $name", '178|0', 'sweep');
    $is->("SELECT count(*), count(DISTINCT key), count(*) FILTER (WHERE cleanup_type = 'manual') FROM sweeper.cleanup_event_all WHERE policy = '$table'", '122|122|32', 'one event each');
    sql("SELECT sweeper.unregister('$table')");
    ok(wait_for($_, "SELECT count(*) = 0 FROM sweeper.policy WHERE policy = '$table'"), "$table: unregister: " . $_->name) for @node;
}
# Citus sends a statement that reads a distributed table to a worker, where a row would be left alive
sql("SELECT sweeper.register('hash', deadline => 'd', check_every => '0'); INSERT INTO hash SELECT i, now() + interval '1 h' FROM generate_series(1, 20) AS i ON CONFLICT DO NOTHING");
wait_for($_, "SELECT count(*) = 1 FROM sweeper.policy WHERE policy = 'hash'") for @workers;
like(($coordinator->psql('postgres', "SELECT sweeper.expire('hash', ARRAY[id::text]) FROM hash WHERE id = 7"))[2], qr/cannot expire rows of policy "hash" on this node.*in a statement that reads no distributed table/s,
    'expire in a statement that reads a distributed table');
like(($coordinator->psql('postgres', "SELECT sweeper.expire_group('hash', 'g1')"))[2], qr/policy "hash" has no group/, 'no group');

# explain_row: all nodes were asked, or one does not answer
is(sql("SELECT found, verdict, reason FROM sweeper.explain_row('hash', '9999')"), 'f|not found|no row and no event has this key', 'no node has the row');
my $port = sql("SELECT nodeport FROM citus_shards WHERE shardid = get_shard_id_for_distribution_column('hash', 7)");
my ($down) = grep { $_->port == $port } @workers;
$down->stop('immediate');
is(sql("SELECT found, verdict, reason FROM sweeper.explain_row('hash', '7')"), "|unknown|node 127.0.0.1:$port does not answer", 'the node of the row is down');
$down->start;
ok(wait_for($coordinator, "SELECT verdict = 'alive' FROM sweeper.explain_row('hash', '7')"), 'it is back');
sql("SELECT sweeper.unregister('hash')");
wait_for($_, "SELECT count(*) = 0 FROM sweeper.policy WHERE policy = 'hash'") for @node;
# a seat is on the node where it was taken
my $seat = sql("SELECT sweeper.create_pool('seat'); SELECT session FROM sweeper.acquire('seat')");
$seat =~ s/^\s+//;
for my $call ("heartbeat('$seat')", "release('$seat')", "is_live('$seat')", "attach('$seat')") {
    like(($workers[0]->psql('postgres', "SELECT sweeper.$call"))[2], qr/this node of the cluster has never had a pool or a worker.*The session is not gone/s, "a node without pools: $call");
}
is($workers[0]->safe_psql('postgres', "SELECT state, message FROM sweeper.heartbeat_many('{$seat}')"), 'unknown|this node of the cluster has never had a pool or a worker', 'heartbeat_many');
is(sql("SELECT sweeper.heartbeat('$seat')"), 't', 'it lives on its own node');
# what is sent to other nodes does not use operators of the caller's
sql("SELECT sweeper.register(t, t::text, deadline => 'd', ttl => '1 min', heartbeats => t = 'hash'::regclass, group_by => 'g', check_every => '0') FROM unnest('{hash,here}'::regclass[]) AS t;
    SELECT sweeper.create_pool('hash'); SELECT sweeper.acquire('hash')");
is(make_shadows($coordinator, 'SET citus.enable_ddl_propagation = off;'), 't', 'twins of what pg_catalog has');
my ($calls, $errors) = shadowed($coordinator, 'hash', 'here');
is($errors, '', "are used by none of $calls statements");
is(sql("SELECT string_agg(problem, ' ') FROM sweeper.problem_all"), '', 'no problem on any node');
done_testing();
