# A slow or hanging policy delays nobody else; cancelled statements lose nothing.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main', 'session_sweeper.max_workers = 2');
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
cmp_ok($cancelled, '>', 20, 'statements were cancelled');
is(exactly_once($node, 'cancelled', $dead, $live), '0|0|0|0', 'exactly once, however often cancelled');
is($node->safe_psql('postgres', "SELECT count(*) FROM sweeper.failed_row WHERE state = 'quarantined'"), 0, 'nothing is quarantined for it');

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
done_testing();
