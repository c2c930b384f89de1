# Shards that are held by a move, a split or a transaction in doubt: others are swept, and each row expires once.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;
use CitusCluster;

needs_citus();
my @node = map { citus_node("node$_") } 0 .. 2;
my ($coordinator, @workers) = @node;
sub sql { return $coordinator->safe_psql('postgres', $_[0]) }
sub everywhere { my ($sql) = @_; return map { $_->safe_psql('postgres', $sql) } @node }
sql("SELECT citus_set_coordinator_host('127.0.0.1', " . $coordinator->port . ')');
sql("SELECT citus_add_node('127.0.0.1', " . $_->port . ')') for @workers;
sql('CREATE EXTENSION session_sweeper');

sub register { sql("SELECT sweeper.register('$_[0]', deadline => 'd', start => 'now', fuse_fraction => 1, batch_size => 50, check_every => '100 ms')") }
sub create {
    my ($table) = @_;
    sql("CREATE TABLE $table (id int PRIMARY KEY, d timestamptz); CREATE INDEX ON $table (d); SELECT create_distributed_table('$table', 'id', shard_count => 4, colocate_with => 'none')");
    register($table);
}
sub shards_of { my ($table, $node) = @_; return split /\n/, sql("SELECT shardid FROM citus_shards WHERE table_name = '$table'::regclass AND nodeport = " . $node->port . ' ORDER BY 1') }
# events, and keys that have one
sub events { my ($table) = @_; my @keys = map { split /\n/ } everywhere("SELECT key FROM sweeper.cleanup_event WHERE policy = '$table'"); my %seen; $seen{$_}++ for @keys; return @keys . ' ' . keys %seen }

# A move that is in doubt on a node holds its shard there, and no other.
create('moving');
my ($held, $free) = shards_of('moving', $workers[0]);
$workers[0]->safe_psql('postgres', "BEGIN; SELECT lock_shard_metadata(7, ARRAY[$held]); PREPARE TRANSACTION 'in_doubt'");
# not through the coordinator, which would wait for the move, too; the held shard has the oldest rows
my $fill = sub { my ($shard, $age) = @_; return "INSERT INTO moving_$shard SELECT i, now() - interval '$age' FROM generate_series(1, 2000) AS i
    WHERE get_shard_id_for_distribution_column('moving', i) = $shard" };
$workers[0]->safe_psql('postgres', $_) for $fill->($held, '2 min'), $fill->($free, '1 min');
my $left = sub { return "SELECT count(*) = 0 FROM moving_$_[0]" };
ok(wait_for($workers[0], $left->($free)), 'a shard that is not held is swept');
is($workers[0]->safe_psql('postgres', $left->($held)), 'f', 'one that is held is not');
ok(wait_for($workers[0], "SELECT state = 'locked' FROM sweeper.policy_status WHERE policy = 'moving'"), 'the policy is shown as locked');
$workers[0]->safe_psql('postgres', "ROLLBACK PREPARED 'in_doubt'");
ok(wait_for($workers[0], $left->($held)), 'after the end of the move its rows go');

# The move is committed on the old node first, or on the new one first: neither acts on the rows of the other.
for my $first (0, 1) {
    my $table = "first$first";
    create($table);
    my ($shard) = shards_of($table, $workers[0]);
    my ($from, $to) = split /\n/, sql("SELECT groupid FROM pg_dist_node WHERE nodeport IN (" . join(', ', map { $_->port } @workers) . ') ORDER BY nodeport = ' . $workers[1]->port);
    my $rows = sub { my ($key) = @_; return "INSERT INTO ${table}_$shard SELECT $key, now() - interval '1 min' WHERE get_shard_id_for_distribution_column('$table', $key) = $shard RETURNING 1" };
    my ($key) = grep { sql("SELECT get_shard_id_for_distribution_column('$table', $_)") eq $shard } 1 .. 100;
    $_->safe_psql('postgres', "SELECT sweeper.pause('$table')") for @workers;
    $workers[1]->safe_psql('postgres', "SET citus.enable_ddl_propagation = off; CREATE TABLE ${table}_$shard (LIKE $table INCLUDING ALL)");
    $_->safe_psql('postgres', $rows->($key)) for @workers;
    $_->safe_psql('postgres', "BEGIN; SELECT lock_shard_metadata(7, ARRAY[$shard]);
        UPDATE pg_dist_placement SET groupid = $to WHERE shardid = $shard; PREPARE TRANSACTION 'move'") for @workers;
    $_->safe_psql('postgres', "SELECT sweeper.resume('$table')") for @workers;
    $workers[$first]->safe_psql('postgres', "COMMIT PREPARED 'move'");
    my $look = "SELECT last_look > '" . $workers[$first]->safe_psql('postgres', 'SELECT clock_timestamp()') . "' FROM sweeper.policy_status WHERE policy = '$table'";
    wait_for($workers[$first], $look);
    $workers[ 1 - $first ]->safe_psql('postgres', "COMMIT PREPARED 'move'");
    wait_for($workers[1], "SELECT count(*) = 0 FROM ${table}_$shard");
    is(events($table), '1 1', 'one event, when the ' . ($first ? 'new' : 'old') . ' node learns of the move first');
    is($workers[0]->safe_psql('postgres', "SELECT count(*) FROM ${table}_$shard"), 1, 'the copy that is left behind is not swept');
}

# A row that a prepared transaction has changed waits alone.
create('doubt');
sql("INSERT INTO doubt SELECT i, now() + interval '1 h' FROM generate_series(1, 100) AS i");
my ($shard) = shards_of('doubt', $workers[0]);
my $row = $workers[0]->safe_psql('postgres', "SELECT min(id) FROM doubt_$shard");
$workers[0]->safe_psql('postgres', "BEGIN; UPDATE doubt_$shard SET d = now() WHERE id = $row; PREPARE TRANSACTION 'row'");
sql("UPDATE doubt SET d = now() - interval '1 min' WHERE id <> $row");
ok(wait_for($coordinator, "SELECT array_agg(id) = '{$row}' FROM doubt"), 'all but the row in doubt are gone');
$workers[0]->safe_psql('postgres', "COMMIT PREPARED 'row'");
ok(wait_for($coordinator, 'SELECT count(*) = 0 FROM doubt'), 'and this one after its commit');
is(events('doubt'), '100 100', 'one event for each');

# Splits, in both ways, of a table that is partitioned as well.
sql("CREATE TABLE parts (id int, at timestamptz, d timestamptz, PRIMARY KEY (id, at)) PARTITION BY RANGE (at); CREATE INDEX ON parts (d);
    CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM ('2020-01-01') TO ('2030-01-01');
    CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM ('2030-01-01') TO ('2040-01-01');
    SELECT create_distributed_table('parts', 'id', shard_count => 4, colocate_with => 'none')");
register('parts');
sql("INSERT INTO parts SELECT i, '2029-12-31'::timestamptz + (i % 3) * interval '1 day', now() + CASE WHEN i % 2 = 0 THEN i * interval '1 ms' ELSE interval '1 day' END
    FROM generate_series(1, 6000) AS i");
my ($one, $two) = split /\n/, sql("SELECT string_agg(nodeid::text, '\n' ORDER BY nodeid) FROM pg_dist_node WHERE groupid > 0");
# A DELETE at the wrong moment, of whomever, has the subscriber of a logical split fail for ever: then it is tried again.
for my $mode (qw(block_writes force_logical)) {
    my ($shard, $middle) = split /\|/, sql("SELECT shardid, (shardminvalue::bigint + shardmaxvalue::bigint) / 2 FROM pg_dist_shard
        WHERE logicalrelid = 'parts'::regclass ORDER BY shardmaxvalue::bigint - shardminvalue::bigint DESC, shardid LIMIT 1");
    wait_until(
        sub { $coordinator->psql('postgres', "SET statement_timeout = '15 s'; SELECT citus_split_shard_by_split_points($shard, ARRAY['$middle'], ARRAY[$one, $two], '$mode')") == 0 },
        "split with $mode");
}
ok(wait_for($coordinator, 'SELECT count(*) = 0 FROM parts WHERE id % 2 = 0'), 'all dead rows of split shards are gone');
is(sql('SELECT count(*) FROM parts'), 3000, 'no living row is');
is(events('parts'), '3000 3000', 'one event for each');

# TRUNCATE in the middle of a sweep, then new rows.
create('emptied');
sql("INSERT INTO emptied SELECT i, now() FROM generate_series(1, 5000) AS i; TRUNCATE emptied; INSERT INTO emptied SELECT i, now() FROM generate_series(10001, 10100) AS i");
ok(wait_for($coordinator, 'SELECT count(*) = 0 FROM emptied'), 'a table that was truncated is swept');
my ($n, $different) = split / /, events('emptied');
is($n, $different, 'no event twice');
is(join('', everywhere('SELECT policy, problem, detail FROM sweeper.problem')), '', 'no problem is left on any node');
done_testing();
