# A Citus cluster and the extension's files: nodes without the package or with another release, transactions prepared over a
# crash, an upgrade node by node, a dump restored into a new cluster, and what DROP EXTENSION leaves.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;
use CitusCluster;
use Installation;

needs_citus();
my ($files, $bare_files) = (copy_of_server(), copy_of_server());
my $extension = output("$bare_files/bin/pg_config --sharedir") . '/extension';
unlink(glob "$extension/session_sweeper*") or die;
my @node = map { citus_node("node$_", { install_path => $files }) } 0 .. 2;
my ($coordinator, @workers) = @node;
my ($first) = @workers;
sub sql { return $coordinator->safe_psql('postgres', $_[0]) }
sub everywhere { my ($sql) = @_; return join ' ', map { $_->safe_psql('postgres', $sql) } @node }
sub all_have { my ($what, $sql) = @_; ok(wait_for($_, $sql), $_->name . ": $what") for @node }
sub add { my ($node) = @_; my @out = $coordinator->psql('postgres', "SELECT citus_add_node('127.0.0.1', " . $node->port . ')'); return $out[2] }
sub host { my ($node) = @_; return $node->safe_psql('postgres', "SELECT citus_set_coordinator_host('127.0.0.1', " . $node->port . ')') }

# a node without the package is refused, then it gets the package, and then the library
host($coordinator);
is(add($_), '', 'added: ' . $_->name) for @workers;
sql('CREATE EXTENSION session_sweeper');
my $bare = citus_node('bare', { install_path => $bare_files }, "shared_preload_libraries = 'citus'");
like(add($bare), qr/WARNING:  extension "session_sweeper" is not available/, 'a node without the package is not added');
is(sql('SELECT count(*) FROM pg_dist_node'), 3, 'nothing is left of it');
system_or_bail('cp', glob(output("$files/bin/pg_config --sharedir") . '/extension/session_sweeper*'), $extension);
is(add($bare), '', 'with the package it is added');
push @node, $bare;
my $problems = 'SELECT node, problem FROM sweeper.problem_all';
is(sql($problems), '127.0.0.1:' . $bare->port . '|library not preloaded', 'problem_all says that its library is not preloaded');
$bare->append_conf('postgresql.conf', "shared_preload_libraries = 'citus,session_sweeper'");
$bare->restart;
ok(wait_for($coordinator, 'SELECT count(*) = 0 FROM sweeper.problem_all'), 'until it is');

# transactions that change policies, prepared over a crash of their node
sub prepared {
    my ($node, $sql, $end) = @_;
    $node->safe_psql('postgres', "BEGIN; $sql; PREPARE TRANSACTION 'p'");
    $node->stop('immediate');
    $node->start;
    return $node->safe_psql('postgres', "$end PREPARED 'p'");
}
sub policy_is { my ($condition) = @_; return "SELECT count(*) = 1 FROM sweeper.policy WHERE policy = 't' AND $condition" }
sql("CREATE TABLE t (id int PRIMARY KEY, d timestamptz NOT NULL, g text); CREATE INDEX ON t (d); SELECT create_distributed_table('t', 'id', shard_count => 8)");
my $register = "SELECT sweeper.register('t', deadline => 'd', start => 'now', fuse_fraction => 1)";
sql($register);
all_have('registered', policy_is('true'));
prepared($coordinator, "SELECT sweeper.unregister('t')", 'ROLLBACK');
is(everywhere("SELECT count(*) FROM sweeper.policy WHERE policy = 't'"), '1 1 1 1', 'unregister: rolled back');
prepared($coordinator, "SELECT sweeper.unregister('t')", 'COMMIT');
ok(wait_for($_, "SELECT count(*) = 0 FROM sweeper.policy WHERE policy = 't'"), $_->name . ': unregister: committed') for @node;
like(($coordinator->psql('postgres', "BEGIN; $register; PREPARE TRANSACTION 'p'"))[2], qr/cannot use 2PC in transactions involving multiple servers/, 'register looks at other nodes, which Citus does not let a client prepare');
sql($register);
prepared($coordinator, "SELECT sweeper.alter_policy('t', batch_size => 50)", 'ROLLBACK');
prepared($coordinator, "SELECT sweeper.pause('t')", 'COMMIT');
all_have('pause on the coordinator: committed', policy_is('paused_at IS NOT NULL AND batch_size <> 50'));
prepared($first, "SELECT sweeper.resume('t')", 'ROLLBACK');
prepared($first, "SELECT sweeper.resume('t')", 'COMMIT');
is(everywhere("SELECT paused_at IS NULL FROM sweeper.policy WHERE policy = 't'"), 'f t f f', 'resume on one node: committed there');
sql("INSERT INTO t SELECT i, now() - interval '1 s' FROM generate_series(1, 800) AS i");
my $left = sql("SELECT count(*) FROM t WHERE get_shard_id_for_distribution_column('t', id) NOT IN (SELECT shardid FROM citus_shards WHERE nodeport = " . $first->port . ')');
ok(wait_for($coordinator, "SELECT count(*) = $left FROM t"), 'that node sweeps its rows');
sql("SELECT sweeper.resume('t')");
ok(wait_for($coordinator, 'SELECT count(*) = 0 FROM t'), 'and all do after resume on the coordinator');

# the next release, node by node, while rows fall due
next_release(q{CREATE FUNCTION sweeper.next_release() RETURNS int LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS 'SELECT 1';
COMMENT ON FUNCTION sweeper.next_release IS 'Is there in the next release.';
});
install_next($_, '-j2', 'all', 'install') for $files, $bare_files;
my $rows = 800;
sub due { my ($id) = @_; return sql("INSERT INTO t SELECT i, now() FROM generate_series($id, $id + 199) AS i") }
sub gone { my ($when) = @_; return ok(wait_for($coordinator, 'SELECT count(*) = 0 FROM t'), "all dead rows are gone $when") }
for my $node (@workers, $bare, $coordinator) {
    due($rows += 1000);
    $node->restart;
    ok(wait_for($node, "SELECT state = 'restart needed' FROM sweeper.policy_status WHERE policy = 't'"), $node->name . ' rests with the new library');
    my $name = '127.0.0.1:' . $node->port;
    is(sql("SELECT problem FROM sweeper.problem_all WHERE node = '$name'"), 'restart needed', 'problem_all says so');
}
sql('ALTER EXTENSION session_sweeper UPDATE');
is(everywhere("SELECT library || sql || restart_needed || sweeper.next_release() FROM sweeper.version()"), join(' ', ('9.99.9false1') x 4), 'ALTER EXTENSION UPDATE reaches all nodes');
gone('after it');
is(sql('SELECT count(*), count(DISTINCT key) FROM sweeper.cleanup_event_all'), '1600|1600', 'each has one event');
ok(wait_for($coordinator, 'SELECT count(*) = 0 FROM sweeper.problem_all'), 'no problem is left');
# a node that still has the older release
my $older = citus_node('older');
like(add($older), qr/WARNING:  extension "session_sweeper" has no installation script nor update path for version "9\.9"/, 'a node with an older package is not added');
is(sql('SELECT count(*) FROM pg_dist_node'), 4, 'nothing is left of it');

# a dump of the coordinator, restored into a new cluster by the steps of doc/citus.md
sql("INSERT INTO t SELECT i, now() + interval '1 day' FROM generate_series(1, 100) AS i; SELECT sweeper.alter_policy('t', batch_size => 77);
    SELECT sweeper.create_pool('seats', 3); SELECT sweeper.acquire('seats', 'ann')");
my $dump = $coordinator->basedir . '/dump.sql';
$coordinator->command_ok([ 'pg_dump', '-f', $dump, $coordinator->connstr('postgres') ], 'pg_dump');
my @new = map { citus_node("new$_", { install_path => $files }) } 0 .. 1;
$new[0]->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, $new[0]->connstr('postgres') ], 'restored');
ok(wait_for($new[0], policy_is("held_reason = 'restored'")), 'the policy is held');
host($new[0]);
$new[0]->safe_psql('postgres', "SELECT citus_add_node('127.0.0.1', " . $new[1]->port . ')');
$new[0]->safe_psql('postgres', "SELECT create_distributed_table('t', 'id'); SELECT truncate_local_data_after_distributing_table('t')");
$new[0]->safe_psql('postgres', "SELECT sweeper.resume_all()");
ok(wait_for($_, policy_is('batch_size = 77 AND held_reason IS NULL')), $_->name . ' has the policy') for @new;
is($new[0]->safe_psql('postgres', "SELECT count(*) FROM t; SELECT live FROM sweeper.pool_status WHERE pool = 'seats'"), "100\n1", 'with the rows and the seats');
$new[0]->safe_psql('postgres', 'UPDATE t SET d = now()');
ok(wait_for($new[0], 'SELECT count(*) = 0 FROM t'), 'the rows are swept');
$_->stop('immediate') for @new, $older;

# nothing is left after DROP EXTENSION
sql('DROP EXTENSION session_sweeper');
# as everywhere, the schema that CREATE EXTENSION made is left, and is empty
is(everywhere("SELECT (SELECT count(*) FROM pg_extension WHERE extname = 'session_sweeper') + (SELECT count(*) FROM pg_depend AS d JOIN pg_namespace AS n
    ON d.refclassid = 'pg_namespace'::regclass AND d.refobjid = n.oid WHERE n.nspname = 'sweeper')"), '0 0 0 0', 'no extension, and nothing in its schema');
is(everywhere('SELECT (SELECT count(*) FROM pg_dist_object AS o WHERE NOT EXISTS (SELECT FROM pg_identify_object_as_address(o.classid, o.objid, o.objsubid)))
    + (SELECT count(*) FROM pg_dist_partition WHERE logicalrelid <> $$t$$::regclass) + (SELECT count(*) FROM pg_prepared_xacts)'), '0 0 0 0', 'and nothing in the catalogs of Citus');
all_have('no coordinator process', "SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'session_sweeper coordinator'");
done_testing();
