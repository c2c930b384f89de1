# A wall clock that is set forward gives nobody less time.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $dir = PostgreSQL::Test::Utils::tempdir();
my $set_clock = sub { append_to_file("$dir/new", "$_[0]\n"); rename "$dir/new", "$dir/offset" or die $! };
system_or_bail('cc', '-shared', '-fPIC', '-o', "$dir/clock.so", 'test/clock.c', '-ldl');
$set_clock->(0);
my $node;
{
    local $ENV{LD_PRELOAD} = "$dir/clock.so";
    local $ENV{CLOCK_OFFSET} = "$dir/offset";
    $node = sweeper_node('main');
}
$node->safe_psql('postgres', "CREATE EXTENSION session_sweeper;
    CREATE TABLE lease (id int PRIMARY KEY, seen timestamptz, ttl interval DEFAULT '2 min', d timestamptz DEFAULT now() + interval '30 min');
    INSERT INTO lease SELECT i, now() FROM generate_series(1, 50) AS i;
    CREATE TABLE own AS TABLE lease;
    ALTER TABLE own ADD PRIMARY KEY (id);
    CREATE TABLE fixed AS TABLE lease;
    ALTER TABLE fixed ADD PRIMARY KEY (id);
    SELECT sweeper.register('lease', last_seen => 'seen', ttl => '2 min', check_every => '100 ms', fuse_fraction => 1),
        sweeper.register('own', last_seen => 'seen', ttl_column => 'ttl', check_every => '100 ms', fuse_fraction => 1),
        sweeper.register('fixed', deadline => 'd', check_every => '100 ms', fuse_fraction => 1)");
# Sessions that live by heartbeats.
$node->safe_psql('postgres', "CREATE TABLE beat (id int PRIMARY KEY, d timestamptz);
    SELECT sweeper.register('beat', deadline => 'd', ttl => '2 min', heartbeats => true, check_every => '100 ms', fuse_fraction => 1);
    INSERT INTO beat SELECT i, now() + interval '100 s' FROM generate_series(1, 3) AS i; SELECT sweeper.touch('beat', 1), sweeper.touch('beat', 2)");
# The same with a time to live in each row; what is dead is kept for an hour.
$node->safe_psql('postgres', "CREATE TABLE kept (id int PRIMARY KEY, d timestamptz, ttl interval);
    SELECT sweeper.register('kept', deadline => 'd', ttl_column => 'ttl', heartbeats => true, keep_for => '1 h', check_every => '100 ms', fuse_fraction => 1);
    INSERT INTO kept VALUES (1, now() + interval '100 s', '2 min')");
my $look = sub {
    my $looks = $node->safe_psql('postgres', "SELECT coalesce(max(looks), 0) FROM sweeper.stat_policy WHERE policy = 'own'");
    wait_for($node, "SELECT looks > $looks + 5 FROM sweeper.stat_policy WHERE policy = 'own'", 'it is looked at');
};
$node->safe_psql('postgres', "SELECT sweeper.create_pool('p', ttl => '5 h'); SELECT count(*) FROM sweeper.acquire('p', 'x')");
# A task that its worker makes progress with.
my $worker = $node->safe_psql('postgres', "SELECT sweeper.register_worker('w', ttl => '5 h')");
$node->safe_psql('postgres', "SELECT sweeper.create_job('r', 'c', 'n', timeout => '5 min'), sweeper.register_job('$worker', 'r', 'c', 'n'), sweeper.submit('r', 'c', 'n')");
is($node->safe_psql('postgres', "SELECT count(*) FROM sweeper.claim('$worker', 1, true)"), 1, 'a task runs');
$look->();
# before a process of the extension has seen it
my @asleep = map { pids($node, $_) } qw(launcher coordinator);
freeze($node, $_) for @asleep;
$set_clock->(3600);
is($node->safe_psql('postgres', "SELECT sweeper.is_live('beat', '2'), sweeper.is_live('own', '2')"), 't|t', 'a session that asks first is told that they live');
kill 'CONT', @asleep;
wait_for($node, 'SELECT count(*) = 0 FROM fixed', 'a deadline is a deadline');
$look->();
is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM lease), (SELECT count(*) FROM own)'), '50|50', 'nobody dies of the clock');
is($node->safe_psql('postgres', 'SELECT array_agg(id ORDER BY id) FROM beat'), '{1,2,3}', 'nor who lives by heartbeats');
is($node->safe_psql('postgres', "SELECT sweeper.touch('beat', 1), sweeper.is_live('beat', '2'), sweeper.touch('kept', 1)"), 't|t|t', 'and it is known');
is($node->safe_psql('postgres', 'SELECT status, attempt FROM sweeper.task'), 'running|1', 'nor is a task without progress for the timeout of its job');
like(slurp_file($node->logfile), qr/the system clock went forward by 3(599|600) s/, 'it is told');
# whoever is dead by the new clock goes
$node->safe_psql('postgres', "UPDATE lease SET seen = now() - interval '2 h' WHERE id <= 10; UPDATE own SET seen = now() - interval '2 h' WHERE id <= 10");
wait_for($node, 'SELECT (SELECT count(*) FROM lease) = 40 AND (SELECT count(*) FROM own) = 40', 'the dead go');
is($node->safe_psql('postgres', "SELECT sweeper.heartbeat(session), sweeper._last_heartbeat(session) > acquired_at FROM sweeper.session WHERE owner = 'x'"), 't|t', 'a heartbeat while it is fast');
$set_clock->(0);
$look->();
is($node->safe_psql('postgres', 'SELECT (SELECT count(*) FROM lease), (SELECT count(*) FROM own)'), '40|40', 'nor when it is set back');
is($node->safe_psql('postgres', "SELECT count(*) FROM beat WHERE id <= 2 AND sweeper.touch('beat', id)"), 2, 'nor who lives by heartbeats');
# and what was credited for the jump is taken back
$node->safe_psql('postgres', "UPDATE lease SET seen = now() - interval '5 min'; UPDATE own SET seen = now() - interval '5 min'");
wait_for($node, 'SELECT (SELECT count(*) FROM lease) = 0 AND (SELECT count(*) FROM own) = 0', 'the dead go');
# what rests since it was fast does so until resume() when it is set right; rows that somebody held do not
$node->safe_psql('postgres', "CREATE TABLE many AS SELECT i AS id, now() + interval '30 min' AS d FROM generate_series(1, 300) AS i; ALTER TABLE many ADD PRIMARY KEY (id);
    CREATE TABLE failing AS SELECT * FROM many WHERE id = 1; ALTER TABLE failing ADD PRIMARY KEY (id);
    CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN INSERT INTO not_there VALUES (1); END \$\$;
    CREATE TRIGGER fail BEFORE DELETE ON failing FOR EACH ROW EXECUTE FUNCTION fail();
    CREATE TABLE busy AS SELECT i AS id, now() - interval '1 min' AS d FROM generate_series(1, 3) AS i; ALTER TABLE busy ADD PRIMARY KEY (id)");
my $holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN; SELECT FROM busy FOR UPDATE');
$node->safe_psql('postgres', "SELECT sweeper.register(t, deadline => 'd', start => 'now', check_every => '100 ms') FROM unnest('{many,failing,busy}'::regclass[]) AS t");
$set_clock->(3600);
wait_for($node, "SELECT string_agg(state, ' ' ORDER BY policy) = 'failing fuse' FROM sweeper.policy_status WHERE policy IN ('many', 'failing')", 'they rest');
wait_for($node, "SELECT count(*) = 3 FROM sweeper.failed_row WHERE policy = 'busy' AND last_at > (SELECT min(d) FROM busy) + interval '30 min'", 'and rows that somebody holds');
$set_clock->(0);
$holder->query_safe('COMMIT');
$holder->quit;
$node->safe_psql('postgres', "SELECT sweeper.resume(t) FROM unnest('{many,failing}'::text[]) AS t");
wait_for($node, "SELECT string_agg(state, ' ') !~ 'failing|fuse' FROM sweeper.policy_status WHERE policy IN ('many', 'failing')", 'they go on');
wait_for($node, 'SELECT count(*) = 0 FROM busy', 'the rows go');
is($node->safe_psql('postgres', 'SELECT count(*) FROM many'), 300, 'nobody else');

# a pass during which it is set back ends, and the next goes on; a rate stays one
$node->safe_psql('postgres', "CREATE TABLE slow AS SELECT i AS id, now() - interval '3 h' + i * interval '1 s' AS d FROM generate_series(1, 50) AS i;
    ALTER TABLE slow ADD PRIMARY KEY (id);
    CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN
        WHILE OLD.id = 20 AND NOT pg_try_advisory_xact_lock(1) LOOP PERFORM count(*) FROM generate_series(1, 1000); END LOOP; RETURN OLD; END \$\$;
    CREATE TRIGGER wait BEFORE DELETE ON slow FOR EACH ROW EXECUTE FUNCTION wait();
    CREATE TABLE rated AS SELECT i AS id, now() - interval '3 h' AS d FROM generate_series(1, 5000) AS i;
    ALTER TABLE rated ADD PRIMARY KEY (id)");
$holder = $node->background_psql('postgres');
$holder->query_safe('SELECT pg_advisory_lock(1)');
$node->safe_psql('postgres', "SELECT sweeper.register('slow', deadline => 'd', batch_size => 10, start => 'now', check_every => '100 ms'),
    sweeper.register('rated', deadline => 'd', rate_limit => 5, start => 'now', check_every => '100 ms')");
wait_for($node, "SELECT count(*) = 40 FROM slow", 'a pass is under way');
wait_for($node, "SELECT count(*) < 5000 FROM rated", 'and another that waits for its rate');
$set_clock->(-3600);
$holder->quit;
wait_for($node, 'SELECT count(*) = 0 FROM slow', 'the dead go');
$look->();
cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM rated'), '>', 3000, 'no more of a rate than is due');
my $left = $node->safe_psql('postgres', 'SELECT count(*) FROM rated');
wait_for($node, "SELECT count(*) < $left FROM rated", 'and that');

# a clock that was fast when the server was stopped, and is right when it starts: dead sessions do not wait until it is as late again
$set_clock->(3600);
$look->();
$node->stop;
$set_clock->(0);
{
    local $ENV{LD_PRELOAD} = "$dir/clock.so";
    local $ENV{CLOCK_OFFSET} = "$dir/offset";
    $node->start;
}
$node->safe_psql('postgres', "INSERT INTO lease VALUES (100, now() - interval '5 min'); INSERT INTO own VALUES (100, now() - interval '5 min', '2 min')");
wait_for($node, 'SELECT count(*) = 0 FROM lease', 'the dead go after the restart');
ok(wait_for($node, 'SELECT count(*) = 0 FROM own'), 'those with a time to live of their own, too');
$node->stop;
done_testing();
