# A policy of a distributed table has one definition on all nodes of a Citus cluster: the coordinator's.
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
my ($one, $two, $late) = @workers;
my @frozen;
sub sql { return $coordinator->safe_psql('postgres', $_[0]) }
sub everywhere { my ($sql) = @_; return map { $_->safe_psql('postgres', $sql) } @node }
sub add { my ($n) = @_; sql("SELECT citus_add_node('127.0.0.1', " . $n->port . ')') }
sub fails { my ($node, $sql, $pattern, $what) = @_; my ($rc, $out, $err) = $node->psql('postgres', $sql); like($err, $pattern, $what) }
sub all_have { my ($what, $sql, @nodes) = @_; ok(wait_for($_, $sql), $_->name . ": $what") for @nodes }
sub processes { my ($node) = @_; my ($postmaster) = split /\n/, slurp_file($node->data_dir . '/postmaster.pid'); return ($postmaster, split /\n/, `pgrep -P $postmaster`) }
sub field { my ($expression) = @_; return "SELECT $expression FROM sweeper.policy WHERE policy = 't'" }

add($_) for $one, $two;
sql(q{CREATE EXTENSION session_sweeper; CREATE ROLE keeper LOGIN; CREATE TABLE t (id bigint PRIMARY KEY, d timestamptz NOT NULL, gone int); ALTER TABLE t DROP COLUMN gone;
    ALTER TABLE t OWNER TO keeper; CREATE INDEX ON t (d); SELECT create_distributed_table('t', 'id', shard_count => 6)});

# the owner is who reads the rows of other nodes
sql('ALTER ROLE keeper NOLOGIN');
fails($coordinator, "SELECT sweeper.register('t', deadline => 'd')", qr/role "keeper" is not permitted to log in\nHINT:  Rows of other nodes are read as the table's owner: role "keeper" must be able to log in on every node\./, 'an owner who may not log in');
sql('ALTER ROLE keeper LOGIN');

# a transaction that is rolled back leaves nothing; one that is committed reaches all nodes
sql("BEGIN; SELECT sweeper.register('t', 'not', deadline => 'd'); ROLLBACK");
sql("SELECT sweeper.register('t', deadline => 'd', start => 'now', fuse_fraction => 1, batch_size => 11, rate_limit => 100000)");
# the nodes must know the coordinator: else what is shared would have to be read from one of them, which may freeze
ok(wait_for($coordinator, q{SELECT next_step ~ 'citus_set_coordinator_host' FROM sweeper.problem WHERE problem = 'definitions not shared'}), 'the coordinator is not a node yet');
sql("SELECT citus_set_coordinator_host('127.0.0.1', " . $coordinator->port . ')');
all_have('has the policy', field("batch_size = 11 AND owner = 'keeper'::regrole AND relid = 't'::regclass AND columns = sweeper._columns('t'::regclass)"), @node[ 0 .. 2 ]);
sql("INSERT INTO t SELECT i, now() FROM generate_series(1, 500) AS i");
ok(wait_for($coordinator, 'SELECT count(*) = 0 FROM t'), 'the dead rows are gone');

# changes on the coordinator
sql("SELECT sweeper.alter_policy('t', batch_size => 12); SELECT sweeper.pause('t', 'a reason')");
all_have('is altered and paused', field("batch_size = 12 AND paused_reason = 'a reason'"), $one, $two);
sql("INSERT INTO t SELECT i, now() FROM generate_series(1, 50) AS i; SELECT sweeper.resume('t')");
ok(wait_for($coordinator, 'SELECT count(*) = 0 FROM t'), 'resumed on all nodes');
# what a node alone found is lifted by resume() on the coordinator, although nothing is to be lifted there
$one->safe_psql('postgres', "UPDATE sweeper.policy SET broken = true, failures = 8, retry_at = 'infinity', held_reason = 'long gap', held_at = now() WHERE policy = 't'");
sql("SELECT sweeper.resume('t')");
all_have('brakes of one node are lifted', field('NOT broken AND failures = 0 AND held_reason IS NULL'), $one);

# elsewhere than on the coordinator
fails($one, "SELECT sweeper.register('t', $_ deadline => 'd')", qr/cannot sweep "t"\nDETAIL:  It is distributed, and this node is not the cluster's coordinator\.\nHINT:  Call the function on the coordinator/, 'register') for "'other',", '';
fails($one, "SELECT sweeper.alter_policy('t', batch_size => 5)", qr/policy "t" is defined on the coordinator of the cluster\nHINT:  Call the function there/, 'alter_policy');
fails($one, "SELECT sweeper.unregister('t')", qr/policy "t" is defined on the coordinator of the cluster/, 'unregister');
$one->safe_psql('postgres', "SELECT sweeper.pause('t', 'here')");
sql("INSERT INTO t SELECT i, now() FROM generate_series(1, 500) AS i");
is($two->safe_psql('postgres', field('paused_at IS NULL')), 't', 'a pause on one node is of that node');
$one->safe_psql('postgres', "SELECT sweeper.resume('t')");
ok(wait_for($coordinator, 'SELECT count(*) = 0 FROM t'), 'and so is its end');

# a node that is added later, and one that was down
add($late);
all_have('added later', field('batch_size = 12'), $late);
$two->stop('immediate');
sql("SELECT sweeper.pause('t', 'one is down')");
ok(wait_for($coordinator, "SELECT count(*) = 1 FROM sweeper.problem WHERE problem = 'definitions not shared'"), 'a node is down: a problem says that nothing is shared');
is($one->safe_psql('postgres', field('paused_at IS NULL')), 't', 'and the other nodes keep what they have');
ok(wait_for($coordinator, "SELECT since < now() - interval '16 s' FROM sweeper.problem WHERE problem = 'definitions not shared'"), 'it is down for a while');
$two->start;
my $back = time;
all_have('follows when the node is back', field("paused_reason = 'one is down'"), @workers);
cmp_ok(time - $back, '<', 12, 'soon after it is back');
ok(wait_for($coordinator, 'SELECT count(*) = 0 FROM sweeper.problem WHERE severity = $$critical$$'), 'no problem is left');
sql("SELECT sweeper.resume('t')");
all_have('resumed', field('paused_at IS NULL'), @workers);

# a node that is frozen: the coordinator sweeps its own rows meanwhile, and nothing waits for that node
@frozen = processes($two);
kill 'STOP', @frozen;
END { kill 'CONT', @frozen }
sql("SELECT sweeper.pause('t', 'one is frozen'); SELECT sweeper.create_pool('p', 3, ttl => '1 s'); SELECT sweeper.acquire('p', 'x')");
ok(wait_for($coordinator, "SELECT count(*) = 1 FROM sweeper.problem WHERE problem = 'definitions not shared' AND detail ~ 'does not answer'"), 'a node is frozen: the problem names it');
ok(wait_for($coordinator, 'SELECT count(*) = 0 FROM sweeper.session WHERE ended_at IS NULL'), 'sessions of the coordinator are swept');
kill 'CONT', @frozen;
all_have('follows when the node is back', field("paused_reason = 'one is frozen'"), @workers);
sql("SELECT sweeper.resume('t')");

# a definition that a node cannot apply
sql("CREATE FUNCTION keep(text) RETURNS boolean LANGUAGE sql AS 'SELECT false'; ALTER FUNCTION keep(text) OWNER TO keeper");
$one->safe_psql('postgres', "CREATE TABLE own (id int PRIMARY KEY, d timestamptz NOT NULL); CREATE INDEX ON own (d); SELECT sweeper.register('own', 'u', deadline => 'd')");
sql("CREATE TABLE u (id bigint PRIMARY KEY, d timestamptz NOT NULL); CREATE INDEX ON u (d); SELECT create_distributed_table('u', 'id'); SELECT sweeper.register('u', deadline => 'd')");
ok(wait_for($one, "SELECT count(*) = 1 FROM sweeper.problem WHERE problem = 'definition not applied' AND policy = 'u' AND detail ~ 'a policy of table public.own has its name on this node'"), 'a name that is taken on one node is a problem there');
my $next_step = $one->safe_psql('postgres', "SELECT next_step FROM sweeper.problem WHERE problem = 'definition not applied'");
is($next_step, "SELECT sweeper.alter_policy('u', new_name => 'u here');", 'its next step renames the other policy');
is(sql("SELECT next_step FROM sweeper.problem_all WHERE problem = 'definition not applied'"), "$next_step -- on node 127.0.0.1:" . $one->port, 'the coordinator says where');
$one->safe_psql('postgres', $next_step);
ok(wait_for($one, "SELECT count(*) = 0 FROM sweeper.problem"), 'until it is free');
is($one->safe_psql('postgres', "SELECT string_agg(policy || ' ' || relation, ', ' ORDER BY policy) FROM sweeper.policy WHERE policy IN ('u', 'u here')"), 'u public.u, u here public.own', 'then it is applied');

# a node comes back with a definition that is gone, and whose name another has got
my $shard = sql("SELECT shardid FROM pg_dist_shard WHERE logicalrelid = 'sweeper.shared_policy'::regclass");
$one->safe_psql('postgres', "SET citus.override_table_visibility = off; SET citus.enable_manual_changes_to_shards = on; INSERT INTO sweeper.shared_policy_$shard (policy_id, policy, changed_at, definition)
    SELECT 9999, policy, now() - interval '1 day', definition FROM sweeper.shared_policy_$shard WHERE policy = 'u'");
ok(wait_for($one, "SELECT count(*) = 2 FROM sweeper.policy WHERE relation = 'public.u' AND shared_as IS NOT NULL"), 'it has both');
sql("SELECT sweeper.alter_policy('u', batch_size => 13)");
all_have('a change leaves one', "SELECT count(*) = 1 AND bool_and(policy = 'u' AND batch_size = 13) FROM sweeper.policy WHERE relation = 'public.u' AND shared_as IS NOT NULL", $one);

# a function that is made again
my $hook = q{CREATE FUNCTION hook(text[]) RETURNS void LANGUAGE plpgsql AS 'BEGIN END'};
my $bound = "SELECT on_expire = 'hook(text[])'::regprocedure::oid AND NOT broken AND failures = 0 FROM sweeper.policy WHERE policy = 'u'";
sql("$hook; SELECT sweeper.alter_policy('u', on_expire => 'hook(text[])')");
all_have('has the function', $bound, @node);
sql('DROP FUNCTION hook(text[])');
all_have('misses it', "SELECT count(*) = 1 FROM sweeper.problem WHERE policy = 'u'", @node);
unlike($one->safe_psql('postgres', "SELECT next_step FROM sweeper.problem WHERE policy = 'u'"), qr/alter_policy|unregister/, 'the next step of a node that follows is none that it refuses');
sql("$hook; SELECT sweeper.alter_policy('u', on_expire => 'hook(text[])')");
all_have('has the new one', $bound, @node);
sql('INSERT INTO u SELECT i, now() FROM generate_series(1, 50) AS i');
ok(wait_for($coordinator, 'SELECT count(*) = 0 FROM u'), 'and calls it');

# names that change places
sql("BEGIN; SELECT sweeper.alter_policy('t', new_name => 'between'), sweeper.alter_policy('u', new_name => 't'), sweeper.alter_policy('between', new_name => 'u'); COMMIT");
all_have('two policies have swapped their names', "SELECT string_agg(policy || ' ' || relation, ', ' ORDER BY policy) = 't public.u, u public.t' FROM sweeper.policy WHERE shared_as IS NOT NULL OR policy IN ('t', 'u')", @node);
sql("BEGIN; SELECT sweeper.alter_policy('t', new_name => 'between'), sweeper.alter_policy('u', new_name => 't'), sweeper.alter_policy('between', new_name => 'u'); COMMIT");
all_have('and back', "SELECT string_agg(policy || ' ' || relation, ', ' ORDER BY policy) = 't public.t, u public.u' FROM sweeper.policy WHERE shared_as IS NOT NULL OR policy IN ('t', 'u')", @node);

# the table is made again by Citus
sql("SELECT undistribute_table('t')");
all_have('undistributed: not there any more', "SELECT count(*) = 0 FROM sweeper.policy WHERE policy = 't'", @workers);
sql('INSERT INTO t SELECT i, now() FROM generate_series(1, 50) AS i');
ok(wait_for($coordinator, 'SELECT count(*) = 0 FROM t'), 'undistributed: swept on the coordinator');
sql("SELECT create_distributed_table('t', 'id', shard_count => 4)");
all_have('distributed again', field("relid = 't'::regclass"), @node);
sql("SELECT alter_distributed_table('t', shard_count => 8, cascade_to_colocated => false)");
all_have('re-sharded', field("relid = 't'::regclass AND held_reason IS NULL"), @node);
sql('INSERT INTO t SELECT i, now() FROM generate_series(1, 50) AS i');
ok(wait_for($coordinator, 'SELECT count(*) = 0 FROM t'), 're-sharded: swept');
sql("SELECT sweeper.alter_policy('t', new_name => 'new')");
all_have('renamed', "SELECT count(*) = 1 FROM sweeper.policy WHERE policy = 'new'", @workers);
sql("SELECT sweeper.unregister('new')");
all_have('unregistered', "SELECT count(*) = 0 FROM sweeper.policy WHERE policy IN ('t', 'new')", @node);
is(join('', everywhere('SELECT problem FROM sweeper.problem')), '', 'no problem on any node');

# nothing is left behind, so the extension can be made again
sql('DROP EXTENSION session_sweeper; CREATE EXTENSION session_sweeper');
is(join(' ', everywhere("SELECT count(*) FROM pg_extension WHERE extname = 'session_sweeper'")), '1 1 1 1', 'dropped and made again');
sql("SELECT sweeper.register('t', deadline => 'd')");
all_have('has the policy of the new extension', "SELECT count(*) = 1 FROM sweeper.policy WHERE policy = 't'", @node);
done_testing();
