# Roles on a Citus cluster: nobody's code runs as another, or holds up the policies of others.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;
use CitusCluster;

needs_citus();
my ($coordinator, $one, $two) = map { citus_node("node$_") } 0 .. 2;
sub sql { return $coordinator->safe_psql('postgres', $_[0]) }
sub as { my ($role, $sql, $node) = @_; return ($node // $coordinator)->safe_psql('postgres', "SET SESSION AUTHORIZATION $role; $sql") }
sub both_have { my ($what, $sql) = @_; ok(wait_for($_, $sql), $_->name . ": $what") for $one, $two }
sub field { my ($policy, $expression) = @_; return "SELECT $expression FROM sweeper.policy WHERE policy = '$policy'" }
sub session { my ($node, $role, $sql) = @_; my $s = $node->background_psql('postgres', on_error_stop => 1); $s->query_safe("SET SESSION AUTHORIZATION $role"); $s->query_safe($sql); return $s }

sql("SELECT citus_set_coordinator_host('127.0.0.1', " . $coordinator->port . ')');
sql("SELECT citus_add_node('127.0.0.1', " . $_->port . ')') for $one, $two;
sql("CREATE EXTENSION session_sweeper; CREATE ROLE alice LOGIN; CREATE ROLE bob LOGIN; GRANT CREATE ON SCHEMA public TO alice, bob");
sql("SELECT run_command_on_all_nodes(\$\$SELECT sweeper.grant_access('$_', 'user')\$\$)") for 'alice', 'bob';

sub table {
    my ($name, $owner, $arguments) = @_;
    as($owner, "CREATE TABLE $name (id bigint PRIMARY KEY, due timestamptz NOT NULL); CREATE INDEX ON $name (due); SELECT create_distributed_table('$name', 'id', shard_count => 4)");
    as($owner, "SELECT sweeper.register('$name', $arguments)") if $arguments;
    return;
}
table($_, $_ =~ /^a/ ? 'alice' : 'bob', "deadline => 'due'") for 'a', 'b';

# the code of an old owner does not run as the new one: W1 is late, and applies what alice did when the table was hers
as('alice', "CREATE FUNCTION alice_f(id bigint) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN true; END'");
table('hand', 'alice', q{deadline => 'due', filter => 'public.alice_f(id)'});
both_have('has the policy', field('hand', 'true'));
my $late = session($one, 'alice', "BEGIN; SELECT sweeper.pause('hand')");
as('alice', "SELECT sweeper.resume('hand')");
ok(wait_for($two, field('hand', 'resumed_at IS NOT NULL')), 'one node has resumed');
ok(wait_for($one, "SELECT count(*) = 1 FROM sweeper.problem WHERE problem = 'definition not applied' AND policy = 'hand' AND detail ~ 'holds its lock' AND next_step ~ '^SELECT .*pg_locks'"),
    'the other cannot: its problem has a statement that finds the transaction');
sql('ALTER TABLE hand OWNER TO bob');
$late->query_safe('ROLLBACK');
$late->quit;
ok(wait_for($one, "SELECT count(*) = 1 FROM sweeper.problem WHERE problem = 'definition not applied' AND policy = 'hand' AND detail ~ 'belongs to role \"bob\"'"), 'nor when the table has another owner');
is($one->safe_psql('postgres', field('hand', 'owner_name || $$ $$ || owner::regrole')), 'alice alice', 'the policy stays with the old owner');
is($one->safe_psql('postgres', "SELECT state FROM sweeper.policy_status WHERE policy = 'hand'"), 'held', 'and is held');
as('bob', "SELECT sweeper.resume('hand')");
both_have('the new owner is confirmed on the coordinator', field('hand', "owner = 'bob'::regrole AND owner_name = 'bob'"));
ok(wait_for($one, 'SELECT count(*) = 0 FROM sweeper.problem'), 'no problem is left');

# a trigger that never ends: the process that applies definitions does not run it, and sessions that memory knows have their time
as('alice', "CREATE TABLE s (id bigint PRIMARY KEY, seen timestamptz NOT NULL); CREATE INDEX ON s (seen); SELECT create_distributed_table('s', 'id', shard_count => 4)");
as('alice', "SELECT sweeper.register('s', last_seen => 'seen', ttl => '20 s', heartbeats => true)");
both_have('has the policy with heartbeats', field('s', 'heartbeats'));
as('alice', "CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN LOOP BEGIN PERFORM pg_sleep(3600); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END'");
as('alice', "INSERT INTO s SELECT i, now() - interval '12 s' FROM generate_series(1, 20) AS i");
is(as('alice', "SELECT count(*) FROM generate_series(1, 20) AS i WHERE sweeper.touch('s', i::text)"), '20', 'sessions live');
my $touched = sql('SELECT clock_timestamp()');
as('alice', q{SET citus.override_table_visibility = off; SET citus.enable_manual_changes_to_shards = on;
    DO $$ DECLARE r regclass; BEGIN FOR r IN SELECT oid FROM pg_class WHERE relname ~ '^s_[0-9]+$' AND relkind = 'r' LOOP EXECUTE format('CREATE TRIGGER hang BEFORE UPDATE ON %s FOR EACH ROW EXECUTE FUNCTION hang()', r); END LOOP; END $$}, $_) for $one, $two;
as('alice', "SELECT sweeper.alter_policy('s', heartbeats => false)");
both_have('applies it without the trigger', field('s', 'NOT heartbeats'));
as('bob', "SELECT sweeper.pause('b', 'meanwhile')");
both_have('and other definitions', field('b', "paused_reason = 'meanwhile'"));
ok(wait_for($coordinator, 'SELECT count(*) = 0 FROM s'), 'the sessions end');
ok($_->safe_psql('postgres', "SELECT min(cleaned_at) >= '$touched'::timestamptz + interval '20 s' FROM sweeper.cleanup_event WHERE policy = 's'") =~ /^t$/, $_->name . ': not before their time') for $one, $two;
as('alice', "SELECT sweeper.alter_policy('s', heartbeats => true)");
both_have('heartbeats again', field('s', 'heartbeats'));
as('alice', "INSERT INTO s SELECT i, now() FROM generate_series(1, 20) AS i; SELECT sweeper.touch_many('s', ARRAY(SELECT i::text FROM generate_series(1, 20) AS i))");
as('alice', "SELECT sweeper.unregister('s')");
both_have('unregistered without the trigger', "SELECT count(*) = 0 FROM sweeper.policy WHERE policy = 's'");

# a transaction of one role, here or on another node, holds up its own policy only
$late = session($coordinator, 'alice', "BEGIN; SELECT sweeper.pause('a')");
sql("SELECT alter_distributed_table('a', shard_count => 6, cascade_to_colocated => false)");
ok(wait_for($coordinator, "SELECT count(*) = 1 FROM sweeper.problem WHERE problem = 'definitions not shared' AND policy = 'a' AND detail ~ 'holds its lock'"), 'a table was made again, and a transaction holds its policy: a problem says so');
sql('GRANT SELECT ON sweeper.sharing_error, sweeper.policy TO alice, bob');
is(as('alice', 'SELECT policy FROM sweeper.sharing_error') . '/' . as('bob', 'SELECT policy FROM sweeper.sharing_error'), 'a/', 'the owner of the policy sees it, and nobody else');
as('bob', "SELECT sweeper.resume('b')");
both_have('the policy of another role is resumed', field('b', 'paused_at IS NULL'));
$late->query_safe('COMMIT');
$late->quit;
both_have('and this one paused, when the transaction has ended', field('a', "paused_at IS NOT NULL AND relid = 'a'::regclass"));
ok(wait_for($coordinator, 'SELECT count(*) = 0 FROM sweeper.problem'), 'no problem is left');

as('alice', 'CREATE TABLE own (id bigint PRIMARY KEY, due timestamptz NOT NULL); CREATE INDEX ON own (due)', $one);
$late = session($one, 'alice', "BEGIN; SELECT sweeper.register('own', 'b2', deadline => 'due')");
table('b2', 'bob', "deadline => 'due'");
ok(wait_for($one, "SELECT count(*) = 1 FROM sweeper.problem WHERE problem = 'definition not applied' AND policy = 'b2'"), 'a name that a transaction on one node may take');
as('bob', "SELECT sweeper.pause('b', 'again')");
both_have('holds up no other policy', field('b', "paused_reason = 'again'"));
$late->query_safe('ROLLBACK');
$late->quit;
both_have('is free again', field('b2', 'true'));

# brakes of another node: where to lift them
$two->safe_psql('postgres', "SELECT sweeper.pause('b2', 'here')");
sql("INSERT INTO b2 SELECT i, now() FROM generate_series(1, 20) AS i");
is(sql("SELECT string_agg(DISTINCT hint, ' ') FROM generate_series(1, 20) AS i, sweeper.explain_row('b2', i::text) AS e WHERE e.state = 'paused'"),
    "SELECT sweeper.resume('b2'); -- on node 127.0.0.1:" . $two->port, 'explain_row: a hint of another node says so');
$two->safe_psql('postgres', "UPDATE sweeper.policy SET broken = true, failures = 8, retry_at = 'infinity', failing_since = now() WHERE policy = 'b2'");
like(sql("SELECT next_step FROM sweeper.problem_all WHERE problem = 'broken'"), qr/^SELECT sweeper\.resume\('b2'\);.* -- on node 127\.0\.0\.1:@{[$two->port]}$/, 'problem_all: a next step of another node says so');
as('bob', "SELECT sweeper.resume('b2')");
both_have('resume() on the coordinator lifts them', field('b2', 'NOT broken AND paused_at IS NULL'));

# a coordinator that does not sweep shares nothing, and says so
sql('ALTER SYSTEM SET session_sweeper.enabled = off');
sql('SELECT pg_reload_conf()');
ok(wait_for($coordinator, "SELECT count(*) = 1 FROM sweeper.problem WHERE problem = 'definitions not shared'"), 'enabled is off: a problem says that changes reach no other node');
as('bob', "SELECT sweeper.pause('b2')");
sql('ALTER SYSTEM RESET session_sweeper.enabled');
sql('SELECT pg_reload_conf()');
both_have('paused when it is on again', field('b2', 'paused_at IS NOT NULL'));
done_testing();
