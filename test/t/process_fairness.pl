# A slow or hanging policy delays nobody else; cancelled statements lose nothing.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main', 'session_sweeper.max_workers = 2', "session_sweeper.worker_idle_timeout = '1h'", "session_sweeper.max_hard_time_limit = '5min'");
$node->safe_psql('postgres', 'CREATE EXTENSION session_sweeper; CREATE DATABASE second');
$node->safe_psql('second', 'CREATE EXTENSION session_sweeper');

# two policies that hang for as long as we hold a lock, and want every worker
my $holder = $node->background_psql('postgres');
$holder->query_safe('SELECT pg_advisory_lock(4711)');
$node->safe_psql('postgres', "
    CREATE FUNCTION hang(text) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_lock(4711); PERFORM pg_advisory_unlock(4711); RETURN false; END';
    CREATE TABLE slow_1 (id int PRIMARY KEY, seen timestamptz); CREATE TABLE slow_2 (LIKE slow_1 INCLUDING ALL);
    INSERT INTO slow_1 SELECT i, now() - interval '1 h' FROM generate_series(1, 50) AS i; INSERT INTO slow_2 SELECT * FROM slow_1;
    SELECT sweeper.register('slow_' || n, last_seen => 'seen', ttl => '1 s', is_alive => 'hang(text)', check_every => '100 ms', start => 'now',
        max_workers => 10, fuse_fraction => 1, lock_timeout => '0.9 s', soft_time_limit => '4 s', hard_time_limit => '5 s') FROM (VALUES ('1'), ('2')) AS v (n)");
wait_for($node, "SELECT count(*) >= 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", 'a worker hangs');
load_table($node, 'quick', 2000, 10);
load_table($node, 'quick', 2000, 10, 'second');
for my $db (qw(postgres second)) {
    $node->safe_psql($db, "SELECT sweeper.register('quick', deadline => 'd', start => 'now', check_every => '100 ms', backlog_rate => 0)");
    wait_for($node, 'SELECT NOT EXISTS (SELECT FROM quick WHERE id <= 2000)', "swept in $db beside hanging policies", $db);
    is(exactly_once($node, 'quick', 2000, 10, $db), '0|0|0|0', "exactly once, in $db");
}
cmp_ok($node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'session_sweeper worker'"), '<=', 2,
    'never more than max_workers');
$holder->query_safe('SELECT pg_advisory_unlock(4711)');
$holder->quit;
wait_for($node, 'SELECT NOT EXISTS (SELECT FROM slow_1) AND NOT EXISTS (SELECT FROM slow_2)', 'the slow ones go too');
is($node->safe_psql('postgres', "SELECT count(*), count(DISTINCT (policy, key)) FROM sweeper.cleanup_event WHERE policy LIKE 'slow%'"), '100|100',
    'once each');
$node->safe_psql('postgres', "SELECT sweeper.unregister('slow_1'), sweeper.unregister('slow_2')");

# pg_cancel_backend of whatever we run, again and again
my ($dead, $live) = (6000, 100);
load_table($node, 'cancelled', $dead, $live);
$node->safe_psql('postgres', "SELECT sweeper.register('cancelled', deadline => 'd', start => 'now', check_every => '100 ms', backlog_rate => 2000,
    batch_size => 50, max_workers => 2)");
my $cancelled = 0;
while ($node->safe_psql('postgres', "SELECT EXISTS (SELECT FROM cancelled WHERE id <= $dead)") eq 't') {
    $cancelled += $node->safe_psql('postgres', "SELECT count(*) FILTER (WHERE pg_cancel_backend(pid)) FROM pg_stat_activity
        WHERE backend_type LIKE 'session_sweeper%'");
}
cmp_ok($cancelled, '>', 5, 'statements were cancelled');
is(exactly_once($node, 'cancelled', $dead, $live), '0|0|0|0', 'exactly once, however often cancelled');
is($node->safe_psql('postgres', "SELECT count(*) FROM sweeper.failed_row WHERE state = 'quarantined'"), 0, 'nothing is quarantined for it');

# a warm worker of another database makes room for a policy beside one that hangs
$node->safe_psql('second', "CREATE TABLE other (id int PRIMARY KEY, d timestamptz); SELECT sweeper.register('other', deadline => 'd', check_every => '100 ms')");
$node->safe_psql('postgres', q{
    CREATE TABLE other (id int PRIMARY KEY, d timestamptz); CREATE TABLE stuck (LIKE other INCLUDING ALL);
    CREATE FUNCTION stuck() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_lock(4712); RETURN OLD; END $$;
    CREATE TRIGGER stuck BEFORE DELETE ON stuck FOR EACH ROW EXECUTE FUNCTION stuck();
    SELECT sweeper.register('other', deadline => 'd', check_every => '100 ms'),
        sweeper.register('stuck', deadline => 'd', check_every => '100 ms', lock_timeout => '0.9 s', soft_time_limit => '299 s', hard_time_limit => '300 s')});
$holder = $node->background_psql('postgres');
$holder->query_safe("SELECT pg_advisory_lock(4712)");
$node->safe_psql('second', 'INSERT INTO other VALUES (1, now())');
wait_for($node, 'SELECT count(*) = 0 FROM other', 'a worker is warm there', 'second');
# its lock_timeout is the session's; take it away so that it waits as long as the hard limit
$node->safe_psql('postgres', "ALTER FUNCTION stuck() SET lock_timeout = 0; INSERT INTO stuck VALUES (1, now())");
wait_for($node, "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", 'one hangs');
$node->safe_psql('second', 'INSERT INTO other VALUES (1, now())');
wait_for($node, 'SELECT count(*) = 0 FROM other', 'the other place is warm there again', 'second');
$node->safe_psql('postgres', 'INSERT INTO other VALUES (1, now())');
wait_for($node, 'SELECT count(*) = 0 FROM other', 'it makes room');
is($node->safe_psql('postgres', 'SELECT count(*) FROM stuck'), 1, 'while the other still hangs');
# a pass that no worker is free for waits on, beyond its own limit, and is seen to wait
$node->safe_psql('postgres', q{CREATE TABLE brief (LIKE other INCLUDING ALL); CREATE TABLE stuck2 (LIKE stuck INCLUDING ALL);
    CREATE TRIGGER stuck BEFORE DELETE ON stuck2 FOR EACH ROW EXECUTE FUNCTION stuck();
    SELECT sweeper.register('brief', deadline => 'd', check_every => '100 ms', soft_time_limit => '1 s', hard_time_limit => '1 s'),
        sweeper.register('stuck2', deadline => 'd', check_every => '100 ms', lock_timeout => '0.9 s', soft_time_limit => '299 s', hard_time_limit => '300 s');
    INSERT INTO stuck2 VALUES (1, now())});
wait_for($node, "SELECT count(*) = 2 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", 'two hang');
$node->safe_psql('postgres', 'INSERT INTO brief VALUES (1, now())');
wait_for($node, "SELECT clock_timestamp() - started_at > '3 s' FROM sweeper.stat_progress WHERE policy = 'brief' AND workers = 0", 'its pass waits');
$holder->query_safe('SELECT pg_advisory_unlock(4712)');
$holder->quit;
wait_for($node, 'SELECT count(*) = 0 FROM brief', 'and is served when one is free');
wait_for($node, 'SELECT (SELECT count(*) FROM stuck) + (SELECT count(*) FROM stuck2) = 0', 'who hung goes too');

# one row that hangs holds up its neighbours for one hard limit
$node->safe_psql('postgres', q{
    CREATE FUNCTION doze() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(600); RETURN OLD; END $$;
    CREATE TABLE dozy (id int PRIMARY KEY, d timestamptz);
    CREATE TRIGGER doze BEFORE DELETE ON dozy FOR EACH ROW WHEN (OLD.id = 1) EXECUTE FUNCTION doze();
    INSERT INTO dozy SELECT i, now() - interval '1 h' + i * interval '1 s' FROM generate_series(1, 1000) AS i;
    SELECT sweeper.register('dozy', deadline => 'd', start => 'now', check_every => '100 ms', soft_time_limit => '1 s', hard_time_limit => '2 s',
        fuse_fraction => 1)});
wait_for($node, 'SELECT count(*) = 1 FROM dozy', 'the neighbours go');
cmp_ok($node->safe_psql('postgres', "SELECT count(*) FILTER (WHERE expired = 0) FROM sweeper.pass WHERE policy = 'dozy' AND pass <
    (SELECT min(pass) FROM sweeper.pass WHERE policy = 'dozy' AND expired > 0)"), '<=', 2, 'after one try together and one alone');
$node->safe_psql('postgres', "SELECT sweeper.unregister('dozy'), sweeper.unregister('stuck'), sweeper.unregister('other')");

# rows that somebody holds do not use up a rate
$node->safe_psql('postgres', q{
    CREATE TABLE rated (id int PRIMARY KEY, d timestamptz); CREATE INDEX ON rated (d);
    INSERT INTO rated SELECT i, now() - interval '1 h' + i * interval '1 s' FROM generate_series(1, 3000) AS i});
$holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN; SELECT count(*) FROM (SELECT FROM rated WHERE id <= 2980 FOR UPDATE) AS r');
$node->safe_psql('postgres', q{SELECT sweeper.register('rated', deadline => 'd', start => 'now', check_every => '100 ms', rate_limit => 10, fuse_fraction => 1)});
wait_for($node, 'SELECT count(*) = 2980 FROM rated', 'others go');
$holder->quit;
$node->safe_psql('postgres', "SELECT sweeper.unregister('rated')");

# a worker that finds the rate used up leaves the others their rows: what is_alive said of them is not lost
$node->safe_psql('postgres', q{
    CREATE TABLE checked (id int PRIMARY KEY, seen timestamptz); CREATE INDEX ON checked (seen);
    INSERT INTO checked SELECT i, now() - interval '1 h' + i * interval '1 s' FROM generate_series(1, 100) AS i;
    CREATE SEQUENCE checks;
    CREATE FUNCTION check_slowly(text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM nextval('public.checks'), pg_sleep(0.02); RETURN false; END $$;
    SELECT sweeper.register('checked', last_seen => 'seen', ttl => '1 s', is_alive => 'check_slowly(text)', start => 'now', check_every => '100 ms',
        backlog_rate => 0, rate_limit => 20, max_workers => 2, fuse_fraction => 1)});
wait_for($node, 'SELECT count(*) = 0 FROM checked', 'all are checked');
# or a few, when another policy wanted the worker
cmp_ok($node->safe_psql('postgres', 'SELECT last_value FROM checks'), '<', 130, 'each row is checked once under a rate');
$node->safe_psql('postgres', "SELECT sweeper.unregister('checked')");

# code that catches the cancel of the hard limit is terminated
$node->safe_psql('postgres', q{
    CREATE TABLE stubborn (id int PRIMARY KEY, d timestamptz); INSERT INTO stubborn VALUES (1, now());
    CREATE FUNCTION stubborn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN LOOP
        BEGIN PERFORM pg_sleep(600); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END $$;
    CREATE TRIGGER stubborn BEFORE DELETE ON stubborn FOR EACH ROW EXECUTE FUNCTION stubborn();
    SELECT sweeper.register('stubborn', deadline => 'd', start => 'now', check_every => '100 ms', soft_time_limit => '1 s', hard_time_limit => '2 s')});
wait_for($node, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'session_sweeper worker' AND wait_event = 'PgSleep')");
my $pid = $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'session_sweeper worker' AND wait_event = 'PgSleep'");
wait_for($node, "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)", 'its process is gone');
$node->safe_psql('postgres', "SELECT sweeper.pause('stubborn')");
is($node->safe_psql('postgres', 'SELECT count(*) FROM stubborn'), 1, 'the row is still there');
$node->safe_psql('postgres', "INSERT INTO quick SELECT i, now() FROM generate_series(10001, 10050) AS i");
wait_for($node, 'SELECT NOT EXISTS (SELECT FROM quick WHERE id > 10000)', 'others are swept');

# a synchronous standby that is gone holds up nobody of ours
$node->safe_psql('postgres', "ALTER SYSTEM SET synchronous_standby_names = 'nobody'");
$node->reload;
$node->safe_psql('postgres', "SET synchronous_commit = local; INSERT INTO quick SELECT i, now() FROM generate_series(20001, 20050) AS i");
wait_for($node, 'SELECT NOT EXISTS (SELECT FROM quick WHERE id > 20000)', 'swept without the standby');
$node->stop('fast');
pass('and stopped');

# policies of one role that hang, more than there are slots for passes: another role's has one all the same
my $few = sweeper_node('few', 'max_worker_processes = 8', 'session_sweeper.max_workers = 2');
$few->safe_psql('postgres', q{
    CREATE EXTENSION session_sweeper; CREATE ROLE greedy; CREATE ROLE modest; GRANT CREATE ON SCHEMA public TO greedy, modest;
    SET ROLE greedy;
    CREATE FUNCTION hang(text[]) RETURNS void LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1000); END'});
$few->safe_psql('postgres', "SET ROLE greedy; CREATE TABLE greedy_$_ (id int PRIMARY KEY, d timestamptz); INSERT INTO greedy_$_ VALUES (1, now()); RESET ROLE;
    SELECT sweeper.register('greedy_$_', deadline => 'd', on_expire => 'hang(text[])', start => 'now', check_every => '100 ms', fuse_fraction => 1)") for 1 .. 12;
# the first attempts are cancelled after 2 s, the next have minutes
wait_for($few, q{SELECT count(*) = 2 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND xact_start < now() - interval '3 s'}, 'two hang, and all others wait');
$few->safe_psql('postgres', q{SET ROLE modest; CREATE TABLE modest (id int PRIMARY KEY, d timestamptz); RESET ROLE;
    SELECT sweeper.register('modest', deadline => 'd', start => 'now', check_every => '100 ms'); INSERT INTO modest VALUES (1, now())});
my $asked = time;
wait_for($few, 'SELECT count(*) = 0 FROM modest', 'another role is served');
cmp_ok(time - $asked, '<', 30, 'while the others hang');
$few->stop;
done_testing();
