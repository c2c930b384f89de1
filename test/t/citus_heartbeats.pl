# Heartbeats for rows of distributed tables: from any node, in transactions, with composite keys, and while shards move.
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
sub fails { my ($node, $sql, $pattern, $what) = @_; my ($rc, $out, $err) = $node->psql('postgres', $sql); return like($err, $pattern, $what) }

# The worker that has the row, and the other one.
sub workers_of {
    my ($table, $id) = @_;
    my $port = sql("SELECT nodeport FROM citus_shards WHERE table_name = '$table'::regclass AND shardid = get_shard_id_for_distribution_column('$table', $id)");
    return sort { ($b->port == $port) <=> ($a->port == $port) } @workers;
}

sub register
{
    my ($arguments) = @_;
    sql("SELECT sweeper.register($arguments)");
    my $policies = sql("SELECT count(*) FROM sweeper.policy WHERE policy NOT LIKE 'sweeper.%'");
    wait_for($_, "SELECT count(*) = $policies FROM sweeper.policy WHERE shared_as IS NOT NULL") for @workers;
    return;
}

sql("SELECT citus_set_coordinator_host('127.0.0.1', " . $coordinator->port . ')');
sql("SELECT citus_add_node('127.0.0.1', " . $_->port . ')') for @workers;
sql('CREATE EXTENSION session_sweeper');

# every node answers for every row
my @types = ([ 'int', "'1'" ], [ 'bigint', "'1'" ], [ 'text', "'a b'" ], [ 'uuid', "'11111111-2222-3333-4444-555555555555'" ], [ 'char(5)', "'ab'" ], [ 'date', "'2030-01-01'" ]);
for my $t (@types)
{
    my ($type, $key) = @$t;
    my $name = 'of_' . ($type =~ s/\W.*//r);
    sql("CREATE TABLE $name (id $type PRIMARY KEY, seen timestamptz NOT NULL DEFAULT now()); CREATE INDEX ON $name (seen);
        SELECT create_distributed_table('$name', 'id'); INSERT INTO $name VALUES ($key)");
    register("'$name', last_seen => 'seen', ttl => '1 hour', heartbeats => true");
    is(join(' ', everywhere("SELECT sweeper.touch('$name', $key), sweeper.is_live('$name', $key)")), 't|t t|t t|t', "a key of type $type");
}
sql("CREATE TABLE s (tenant int, id int, seen timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (id, tenant)); CREATE INDEX ON s (seen);
    SELECT create_distributed_table('s', 'tenant', shard_count => 8); INSERT INTO s SELECT i, i FROM generate_series(1, 40) AS i");
register("'s', key => '{id,tenant}', last_seen => 'seen', ttl => '1 hour', heartbeats => true");
is(join(' ', everywhere("SELECT count(*) FILTER (WHERE sweeper.touch('s', format('(%s,%s)', i, i))) FROM generate_series(1, 41) AS i")), '40 40 40',
    'a composite key, and false for a row that is not there');
my ($right, $other) = workers_of('s', 1);
sub last_heartbeat { my ($node) = @_; return $node->safe_psql('postgres', "SELECT last_heartbeat FROM sweeper.explain_row('s', '(1,1)')") }
sql("UPDATE s SET seen = now() - interval '10 minutes'");
is(join(' ', map { $_->safe_psql('postgres', "SELECT sweeper.is_live('s', '(1,1)')") } @node), 't t t', 'memory is asked on the right node');

# transactions
is(sql("BEGIN; INSERT INTO s VALUES (1, 99); SELECT sweeper.touch('s', '(99,1)'); COMMIT; SELECT sweeper.is_live('s', '(99,1)')"), "t\nt", 'a row of this transaction');
is(sql("BEGIN; INSERT INTO s VALUES (1, 98); SELECT sweeper.touch('s', '(98,1)'); ROLLBACK; SELECT sweeper.touch('s', '(98,1)')"), "t\nf", 'one that was rolled back');
my $session = $coordinator->background_psql('postgres', on_error_stop => 1);
$session->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM s');
sql("INSERT INTO s VALUES (2, 97)");
is($session->query_safe("SELECT sweeper.touch('s', '(97,2)')"), 't', 'a row that is newer than the snapshot');
$session->query_safe('ROLLBACK; PREPARE touch(text) AS SELECT sweeper.touch(\'s\', $1)');
is(join('', map { $session->query_safe("EXECUTE touch('(2,2)')") } 1 .. 8), 't' x 8, 'prepared');
$session->quit;

# errors
fails($_, "SELECT sweeper.touch('s', '(1,x)')", qr/invalid input syntax for type integer/, 'no key') for $coordinator, $right;
fails($other, "SELECT sweeper._touch_here('s', '(1,1)')", qr/its shard is moving to another node/, 'not on this node');
fails($coordinator, "BEGIN READ ONLY; SELECT sweeper.touch('s', '(1,1)')", qr/read-only transaction/, 'read-only');

# rights
sql('CREATE ROLE client LOGIN; GRANT UPDATE ON s TO client');
everywhere("SET citus.enable_ddl_propagation = off; SELECT sweeper.grant_access('client', 'user')");
my @as_client = (extra_params => [ '-U', 'client' ]);
is($right->safe_psql('postgres', "SELECT sweeper.touch('s', '(1,1)')", @as_client), 't', 'UPDATE is enough on the node with the row');
my ($rc, $out, $err) = $coordinator->psql('postgres', "SELECT sweeper.touch('s', '(1,1)')", @as_client);
like($err, qr/permission denied for another node's rows of table "s"/, 'elsewhere SELECT on the key is needed');
sql('GRANT SELECT (tenant, id) ON s TO client');
is($coordinator->safe_psql('postgres', "SELECT sweeper.touch('s', '(1,1)')", @as_client), 't', 'it is enough');
sql('REVOKE UPDATE ON s FROM client');
(undef, undef, $err) = $right->psql('postgres', "SELECT sweeper._touch_here('s', '(1,1)')", @as_client);
like($err, qr/permission denied for table s/, 'the function for other nodes checks the same rights');

sql('DROP EXTENSION session_sweeper');
done_testing();
