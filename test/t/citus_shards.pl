# Policies of distributed tables on a Citus cluster: shards are leaves on the node that has them, also while they move.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;
use CitusCluster;

needs_citus();
my @node = map { citus_node("node$_") } 0 .. 3;
my ($coordinator, @workers) = @node;
sub sql { return $coordinator->safe_psql('postgres', $_[0]) }
sub everywhere { my ($sql) = @_; return map { $_->safe_psql('postgres', $sql) } @node }
sub add { my ($n) = @_; sql("SELECT citus_add_node('127.0.0.1', " . $n->port . ')') }
sub fails { my ($sql, $pattern, $what) = @_; my ($rc, $out, $err) = $coordinator->psql('postgres', $sql); like($err, $pattern, $what) }

# the extension reaches the nodes that are there, and one that comes later
sql("SELECT citus_set_coordinator_host('127.0.0.1', " . $coordinator->port . ')');
add($_) for @workers[ 0, 1 ];
sql('CREATE EXTENSION session_sweeper');
add($workers[2]);
is(join(' ', everywhere("SELECT count(*) FROM pg_extension WHERE extname = 'session_sweeper'")), '1 1 1 1', 'CREATE EXTENSION reaches all nodes');

# what cannot be swept exactly once is refused
sql('CREATE TABLE ref (id int PRIMARY KEY, d timestamptz); SELECT create_reference_table(\'ref\');
    CREATE TABLE copy (id int, tenant int, d timestamptz, PRIMARY KEY (id, tenant), UNIQUE (tenant, id)); INSERT INTO copy VALUES (1, 1, now());
    SELECT create_distributed_table(\'copy\', \'tenant\')');
fails("SELECT sweeper.register('ref', deadline => 'd')", qr/cannot sweep "ref"\nDETAIL:  It is a reference table/, 'a reference table');
fails("SELECT sweeper.register('copy', deadline => 'd')", qr/rows from before it was distributed.*\nHINT:  SELECT truncate_local_data/, 'rows that were there before');
sql("SELECT truncate_local_data_after_distributing_table('copy')");
fails("SELECT sweeper.register('copy', deadline => 'd', action => 'update', set_clause => 'd = NULL, tenant = tenant + 1')", qr/would change distribution column "tenant"/,
    'an update of the distribution column');
sql("CREATE TABLE ranged (id int PRIMARY KEY, d timestamptz); SELECT create_distributed_table('ranged', 'id', 'range')");
fails("SELECT sweeper.register('ranged', deadline => 'd')", qr/cannot sweep "ranged"\nDETAIL:  It is distributed by range/, 'a table distributed by range');
my ($shard, $port) = split /\|/, sql("SELECT shard_name, nodeport FROM citus_shards WHERE table_name = 'copy'::regclass ORDER BY 1 LIMIT 1");
my ($home) = grep { $_->port == $port } @workers;
like(($home->psql('postgres', "SELECT sweeper.register('$shard', deadline => 'd')"))[2], qr/cannot sweep "$shard"\nDETAIL:  It is a shard of table "copy"/, 'a shard');

# rows fall due while shards move: each expires once, and no living one does
my $rows = 4000;
sql("CREATE TABLE moving (id int PRIMARY KEY, d timestamptz); CREATE INDEX ON moving (d);
    SELECT create_distributed_table('moving', 'id', shard_count => 6)");
my $register = "SELECT sweeper.register('moving', deadline => 'd', start => 'now', fuse_fraction => 1, batch_size => 20)";
sql($register);
sql("INSERT INTO moving SELECT i, now() + CASE WHEN i % 2 = 0 THEN i * interval '2 ms' ELSE interval '1 day' END FROM generate_series(1, $rows) AS i");
for my $n (0 .. 5)
{
    my ($shard, $from) = split /\|/, sql("SELECT shardid, nodeport FROM citus_shards WHERE table_name = 'moving'::regclass ORDER BY shardid OFFSET $n LIMIT 1");
    my ($to) = grep { $_ != $from } map { $_->port } @workers;
    my $mode = $n % 2 ? 'block_writes' : 'force_logical';
    sql("SELECT citus_move_shard_placement($shard, '127.0.0.1', $from, '127.0.0.1', $to, '$mode')");
}
ok(wait_for($coordinator, 'SELECT count(*) = 0 FROM moving WHERE id % 2 = 0'), 'all dead rows are gone');
is(sql('SELECT count(*) FROM moving'), $rows / 2, 'no living row is');
my @keys = map { split /\n/ } everywhere("SELECT key FROM sweeper.cleanup_event WHERE policy = 'moving'");
my %seen;
$seen{$_}++ for @keys;
is(scalar(@keys) . ' ' . scalar(keys %seen), join(' ', $rows / 2, $rows / 2), 'one event for each, on all nodes together');
is(join('', everywhere('SELECT problem FROM sweeper.problem')), '', 'no problem on any node');

# partitioned by time as well, local to one node, and a schema that is a shard
sql("CREATE TABLE parts (id int, at timestamptz, d timestamptz, PRIMARY KEY (id, at)) PARTITION BY RANGE (at); CREATE INDEX ON parts (d);
    CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM ('2020-01-01') TO ('2030-01-01');
    CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM ('2030-01-01') TO ('2040-01-01');
    SELECT create_distributed_table('parts', 'id', shard_count => 4);
    INSERT INTO parts SELECT i, '2029-12-31'::timestamptz + (i % 3) * interval '1 day', now() FROM generate_series(1, 300) AS i;
    CREATE TABLE here (id int PRIMARY KEY, d timestamptz); CREATE INDEX ON here (d);
    SELECT citus_add_local_table_to_metadata('here'); INSERT INTO here VALUES (1, now()), (2, now() + interval '1 hour');
    SET citus.enable_schema_based_sharding = on; CREATE SCHEMA tenant;
    CREATE TABLE tenant.t (id int PRIMARY KEY, d timestamptz); CREATE INDEX ON tenant.t (d); INSERT INTO tenant.t VALUES (1, now())");
sql("SELECT sweeper.register(t, deadline => 'd', start => 'now', fuse_fraction => 1) FROM unnest('{parts,here,tenant.t}'::regclass[]) AS t");
ok(wait_for($coordinator, "SELECT (SELECT count(*) FROM $_->[0]) = $_->[1]"), "$_->[0]: the dead rows are gone") for [ 'parts', 0 ], [ 'here', 1 ], [ 'tenant.t', 0 ];

# distributed after registration: the rows are followed to their nodes
sql("CREATE TABLE late (id int PRIMARY KEY, d timestamptz); CREATE INDEX ON late (d); SELECT sweeper.register('late', deadline => 'd', start => 'now');
    SELECT create_distributed_table('late', 'id', shard_count => 4)");
sql("INSERT INTO late SELECT i, now() FROM generate_series(1, 40) AS i");
ok(wait_for($coordinator, 'SELECT count(*) = 0 FROM late'), 'a table that was distributed after its registration');

# a local table that is named like a shard of somebody else's, which is on another node: that role cannot stop its sweeping
sql("CREATE ROLE mallory LOGIN; GRANT CREATE ON SCHEMA public TO mallory; SET ROLE mallory; CREATE TABLE goo (id int); SELECT create_distributed_table('goo', 'id', shard_count => 1)");
my $number = sql("SELECT shardid FROM pg_dist_shard WHERE logicalrelid = 'goo'::regclass");
sql("CREATE TABLE victim (id int, d timestamptz) PARTITION BY RANGE (id); CREATE TABLE goo_$number PARTITION OF victim FOR VALUES FROM (0) TO (100); CREATE INDEX ON victim (d);
    INSERT INTO victim VALUES (1, now())");
my $holder = $coordinator->background_psql('postgres', on_error_stop => 1, extra_params => [ '-U', 'mallory' ]);
$holder->query_safe("BEGIN; SELECT lock_shard_metadata(7, ARRAY[$number])");
sql("SELECT sweeper.register('victim', deadline => 'd', start => 'now', fuse_fraction => 1)");
ok(wait_for($coordinator, 'SELECT count(*) = 0 FROM victim'), 'a partition that is named like a shard of another role is swept while that role locks its shard');
$holder->quit;
sql('DROP TABLE victim');

# the examples of the page
sql('DROP EXTENSION session_sweeper');
for my $example (slurp_file('doc/citus.md') =~ /^```citus\n(.*?)^```$/msg)
{
    sql($example);
    my $policies = sql("SELECT count(*) FROM sweeper.policy AS p JOIN pg_dist_partition AS d ON d.logicalrelid = p.relid");
    wait_for($_, "SELECT count(*) = $policies FROM sweeper.policy WHERE shared_as IS NOT NULL") for @workers;
}
ok(wait_for($_, "SELECT count(*) = 1 FROM sweeper.policy WHERE policy = 'lease'"), 'the examples of doc/citus.md: ' . $_->name . ' has the policy') for @node;

sql('DROP EXTENSION session_sweeper');
is(join(' ', everywhere("SELECT count(*) FROM pg_extension WHERE extname = 'session_sweeper'")), '0 0 0 0', 'DROP EXTENSION reaches all nodes');
done_testing();
