# Citus makes a table again while rows fall due: other shards, undistributed, distributed.  Its policy is paused meanwhile,
# because Citus copies rows of other nodes without stopping writes to them.  Each row expires once.
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

my $rows = 10000;
for my $table (qw(single composite parted)) {
    my $columns = $table eq 'single' ? 'id int PRIMARY KEY, d timestamptz' : $table eq 'composite' ? 'tenant int, id int, d timestamptz, PRIMARY KEY (tenant, id)' : 'id int, at int, d timestamptz, PRIMARY KEY (id, at)';
    my $by = $table eq 'composite' ? 'tenant' : 'id';
    sql("CREATE TABLE $table ($columns)" . ($table eq 'parted' ? ' PARTITION BY RANGE (at)' : '') . "; CREATE INDEX ON $table (d)");
    sql('CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (0) TO (1); CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (1) TO (2)') if $table eq 'parted';
    sql("SELECT create_distributed_table('$table', '$by', shard_count => 6, colocate_with => 'none')");
    sql("SELECT sweeper.register('$table', deadline => 'd', start => 'now', fuse_fraction => 1, batch_size => 20, check_every => '50 ms')");
    wait_for($_, "SELECT count(*) = 1 FROM sweeper.policy WHERE policy = '$table'") for @workers;
    # half of them fall due within 8 s, one after the other
    my $key = $table eq 'single' ? 'i' : $table eq 'composite' ? 'i % 50, i' : 'i, i % 2';
    sql("INSERT INTO $table SELECT $key, now() + CASE WHEN i > $rows THEN interval '1 day' ELSE i * interval '0.4 ms' END FROM generate_series(1, 2 * $rows) AS i");
    for my $change ("alter_distributed_table('$table', shard_count => 8, cascade_to_colocated => false)", "undistribute_table('$table')",
        "create_distributed_table('$table', '$by', shard_count => 4, colocate_with => 'none')") {
        sql("SELECT sweeper.pause('$table')");
        wait_for($coordinator, "SELECT NOT EXISTS (SELECT FROM sweeper.policy_status_all WHERE policy = '$table' AND (state <> 'paused' OR workers > 0))", "$table rests");
        sql("SELECT $change");
        sql("SELECT sweeper.resume('$table')");
    }
    sql("SELECT truncate_local_data_after_distributing_table('$_')") for $table eq 'parted' ? qw(parted_1 parted_2) : $table;
    ok(wait_for($coordinator, "SELECT count(*) = 0 FROM $table WHERE d < now() + interval '1 h'"), "$table: all dead rows are gone");
    is(sql("SELECT count(*) FROM $table"), $rows, "$table: no living row is");
    my @keys = map { split /\n/ } everywhere("SELECT key FROM sweeper.cleanup_event WHERE policy = '$table'");
    my %seen;
    $seen{$_}++ for @keys;
    is(@keys . ' ' . keys %seen, "$rows $rows", "$table: one event for each");
}
ok(wait_for($_, 'SELECT count(*) = 0 FROM sweeper.problem'), 'no problem is left on ' . $_->name) or diag $_->safe_psql('postgres', 'SELECT * FROM sweeper.problem') for @node;
done_testing();
