# More databases than coordinators: each gets its turn, whatever the others have to do.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main', 'session_sweeper.max_workers = 2', 'session_sweeper.max_policies = 310', 'session_sweeper.max_hard_time_limit = 10min', 'max_prepared_transactions = 2');
$node->safe_psql('postgres', "CREATE DATABASE $_") for qw(first second third);
$node->safe_psql($_, 'CREATE EXTENSION session_sweeper') for qw(postgres first second third);
load_table($node, 'quick', 10, 10, 'third');
$node->safe_psql('third', "SELECT sweeper.register('quick', deadline => 'd', start => 'now', fuse_fraction => 1)");
wait_for($node, 'SELECT count(*) = 10 FROM quick', 'swept', 'third');

# two databases with policies that always have work, for a long time
for my $db (qw(first second)) {
    $node->safe_psql($db, "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.02); RETURN OLD; END'");
    for my $table (qw(slow_1 slow_2 slow_3)) {
        load_table($node, $table, 50000, 0, $db);
        $node->safe_psql($db, "CREATE TRIGGER slow BEFORE DELETE ON $table FOR EACH ROW EXECUTE FUNCTION slow();
            SELECT sweeper.register('$table', deadline => 'd', start => 'now', backlog_rate => 0, batch_size => 20)");
    }
}
wait_for($node, 'SELECT count(*) < 50000 FROM slow_1', "$_ is busy", $_) for qw(first second);
# one that looks only when asked, for longer than a turn: the next coordinator goes on with it
load_table($node, 'asked', 300, 0, 'first');
$node->safe_psql('first', "CREATE TRIGGER slow BEFORE DELETE ON asked FOR EACH ROW EXECUTE FUNCTION slow();
    SELECT sweeper.register('asked', deadline => 'd', check_every => '0', start => 'now', fuse_fraction => 1, backlog_rate => 0, batch_size => 10, soft_time_limit => '500 ms', hard_time_limit => '10 s')");
$node->safe_psql('first', "CALL sweeper.sweep('asked', wait => false)");
for my $turn (1 .. 3) {
    $node->safe_psql('third', "INSERT INTO quick VALUES (100 + $turn, now())");
    wait_for($node, 'SELECT count(*) = 10 FROM quick', 'a third database gets its turn', 'third');
    my %left = map { $_ => $node->safe_psql($_, 'SELECT (SELECT count(*) FROM slow_1) + (SELECT count(*) FROM slow_2) + (SELECT count(*) FROM slow_3)') } qw(first second);
    wait_for($node, "SELECT (SELECT count(*) FROM slow_1) + (SELECT count(*) FROM slow_2) + (SELECT count(*) FROM slow_3) < $left{$_}", "$_ too", $_)
        for qw(first second);
}
wait_for($node, 'SELECT count(*) = 0 FROM asked', 'what was asked for is finished', 'first');
is($node->safe_psql($_, "SELECT count(*) FROM sweeper.pass WHERE status NOT IN ('running', 'done')"), 0, "passes of $_ that ended with their turn are done")
    for qw(first second);
$node->safe_psql($_, "SELECT sweeper.unregister('slow_1'), sweeper.unregister('slow_2'), sweeper.unregister('slow_3')") for qw(first second);

# both have a worker that hangs, for longer than a turn
$node->append_conf('postgresql.conf', 'session_sweeper.max_workers = 3');
$node->reload;
my %holder;
for my $db (qw(first second)) {
    $holder{$db} = $node->background_psql($db);
    $holder{$db}->query_safe('SELECT pg_advisory_lock(4711)');
    $node->safe_psql($db, "CREATE TABLE stuck (id int PRIMARY KEY, d timestamptz);
        CREATE FUNCTION stuck() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS 'BEGIN PERFORM pg_advisory_lock(4711); RETURN OLD; END';
        CREATE TRIGGER stuck BEFORE DELETE ON stuck FOR EACH ROW EXECUTE FUNCTION stuck();
        INSERT INTO stuck VALUES (1, now());
        SELECT sweeper.register('stuck', deadline => 'd', start => 'now', soft_time_limit => '599 s', hard_time_limit => '600 s')");
    wait_for($node, "SELECT count(*) = 1 FROM pg_locks AS l JOIN pg_database AS d ON d.oid = l.database
        WHERE l.locktype = 'advisory' AND NOT l.granted AND d.datname = '$db'", "a worker hangs in $db");
}
$node->safe_psql('third', "INSERT INTO quick VALUES (200, now())");
wait_for($node, 'SELECT count(*) = 10 FROM quick', 'a third database gets its turn', 'third');
wait_for($node, "SELECT count(*) = 2 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", 'while both hang');
# off ends them; their passes are closed by the next coordinator, also of a policy that is gone by then
$node->append_conf('postgresql.conf', 'session_sweeper.enabled = off');
$node->reload;
wait_for($node, "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'session_sweeper coordinator')", 'the coordinators leave');
for my $db (qw(first second)) {
    $holder{$db}->query_safe('SELECT pg_advisory_unlock(4711)');
    $holder{$db}->quit;
    is($node->safe_psql($db, 'SELECT count(*) FROM stuck'), 1, "off: nothing goes in $db");
}
$node->safe_psql('first', "SELECT sweeper.unregister('stuck')");
$node->append_conf('postgresql.conf', 'session_sweeper.enabled = on');
$node->reload;
wait_for($node, 'SELECT count(*) = 0 FROM stuck', 'on: it goes', 'second');
wait_for($node, "SELECT sum(expired) = $$_[1] AND bool_and(status = 'done') AND NOT EXISTS (SELECT FROM sweeper._progress()) FROM sweeper.pass WHERE policy = 'stuck'",
    'written down', $$_[0]) for [ 'first', 0 ], [ 'second', 1 ];

# passes under a rate limit, cut off by turns and by their own limit: they end well,
# and what they did is on record although there is no audit
my $throttled = "SELECT sweeper.register('throttled', deadline => 'd', start => 'now', backlog_rate => 0, rate_limit => 200, audit => 'none',
    check_every => '100 ms', fuse_fraction => 1, soft_time_limit => '1 s')";
for my $db (qw(first second third)) {
    load_table($node, 'throttled', 1500, 10, $db);
    $node->safe_psql($db, $throttled);
}
for my $db (qw(first second third)) {
    wait_for($node, 'SELECT count(*) = 10 FROM throttled', "swept in $db", $db);
    wait_for($node, "SELECT sum(passes) > 1 AND bool_and(status = 'done') AND sum(expired) = 1500 FROM sweeper.pass WHERE policy = 'throttled'",
        "all of it in passes that are done, in $db", $db);
    $node->safe_psql($db, "SELECT sweeper.unregister('throttled')");
}

# nor does a default that is read-only meanwhile take from it
$node->safe_psql('third', 'DROP TABLE throttled; DELETE FROM sweeper.pass');
load_table($node, 'dozy', 5000, 10, 'third');
$node->safe_psql('third', "CREATE FUNCTION doze() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.01); RETURN OLD; END';
    CREATE TRIGGER doze BEFORE DELETE ON dozy FOR EACH ROW EXECUTE FUNCTION doze();
    SELECT sweeper.register('dozy', deadline => 'd', start => 'now', backlog_rate => 0, audit => 'none', batch_size => 10, fuse_fraction => 1,
        soft_time_limit => '1 s', hard_time_limit => '5 s')");
wait_for($node, "SELECT EXISTS (SELECT FROM sweeper.stat_progress WHERE policy = 'dozy' AND workers > 0 AND expired > 0)", 'a pass is at work', 'third');
$node->safe_psql('third', 'ALTER SYSTEM SET default_transaction_read_only = on');
$node->reload;
wait_for($node, "SELECT NOT EXISTS (SELECT FROM sweeper.stat_progress WHERE policy = 'dozy' AND workers > 0)", 'its workers leave', 'third');
# processes hear of it one after the other: none is blamed for what it cannot write
for (1 .. 25) {
    $node->safe_psql('third', "ALTER SYSTEM $_"), $node->reload
        for 'RESET default_transaction_read_only', 'SET default_transaction_read_only = on';
}
$node->safe_psql('third', 'ALTER SYSTEM RESET default_transaction_read_only');
$node->reload;
wait_for($node, "SELECT status = 'done' FROM sweeper.pass WHERE policy = 'dozy' ORDER BY pass LIMIT 1", 'it is written down', 'third');
unlike(slurp_file($node->logfile), qr/in a read-only transaction/, 'when it can be');
$node->safe_psql('third', "SELECT sweeper.unregister('dozy')");

# a crash: the row of the pass that ran is closed by its events
load_table($node, 'dozy', 5000, 10, 'first');
$node->safe_psql('first', "CREATE FUNCTION doze() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.01); RETURN OLD; END';
    CREATE TRIGGER doze BEFORE DELETE ON dozy FOR EACH ROW EXECUTE FUNCTION doze();
    SELECT sweeper.register('dozy', deadline => 'd', start => 'now', backlog_rate => 0, batch_size => 10, fuse_fraction => 1)");
wait_for($node, "SELECT EXISTS (SELECT FROM sweeper.stat_progress WHERE policy = 'dozy' AND expired > 0)", 'a pass is at work', 'first');
my ($pass, $expired) = split /\|/, $node->safe_psql('first', "SELECT pass, expired FROM sweeper.stat_progress WHERE policy = 'dozy'");
ok(crash($node, 'launcher'), 'a crash');
wait_for($node, "SELECT status = 'abandoned' FROM sweeper.pass WHERE pass = $pass", 'its row is closed', 'first');
cmp_ok($node->safe_psql('first', "SELECT expired FROM sweeper.pass WHERE pass = $pass"), '>=', $expired, 'with no less than was written');
$node->safe_psql('first', "SELECT sweeper.unregister('dozy')");

$node->append_conf('postgresql.conf', 'session_sweeper.max_coordinators = 2');
$node->reload;

# who has databases of his own may keep their rows locked: by a transaction that
# renamed them, in a session or prepared, or updates the extension in them
load_table($node, 'login', 10, 10);
$node->safe_psql('postgres', "SELECT sweeper.register('login', deadline => 'd', start => 'now', fuse_fraction => 1)");
wait_for($node, 'SELECT count(*) = 10 FROM login', 'swept');
for my $how ('open', 'prepared', 'updating') {
    for my $db (qw(first second)) {
        $holder{$db} = $node->background_psql($how eq 'updating' ? $db : 'postgres');
        $holder{$db}->query_safe($how eq 'updating' ? 'SET client_min_messages = warning; BEGIN; ALTER EXTENSION session_sweeper UPDATE' : "BEGIN; ALTER DATABASE $db RENAME TO ${db}_renamed");
        $holder{$db}->query_safe("PREPARE TRANSACTION '$db'") if $how eq 'prepared';
    }
    # what they want now, and each database is due once a minute at least
    $node->safe_psql('postgres', 'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = \'session_sweeper launcher\'');
    for my $row (1 .. 3) {
        $node->safe_psql('postgres', "INSERT INTO login VALUES (100 + $row, now())");
        wait_for($node, 'SELECT count(*) = 10 FROM login', "a database is swept beside two that somebody changes in a transaction: $how");
    }
    is($node->safe_psql('postgres', "SELECT count(*) FROM pg_locks WHERE locktype = 'object' AND NOT granted AND classid = 'pg_database'::regclass"), 0,
        'nobody waits for them') if $how eq 'open';
    for my $db (qw(first second)) {
        $holder{$db}->query_safe($how eq 'prepared' ? "ROLLBACK PREPARED '$db'" : 'ROLLBACK');
        $holder{$db}->quit;
    }
}
load_table($node, 'login', 10, 10, 'first');
$node->safe_psql('first', "SELECT sweeper.register('login', deadline => 'd', start => 'now', fuse_fraction => 1)");
wait_for($node, 'SELECT count(*) = 10 FROM login', 'then it is swept', 'first');

# many policies of one table that somebody locks: the coordinator does not wait for each
$node->safe_psql('postgres', "CREATE TABLE locked (id int PRIMARY KEY, d timestamptz); CREATE INDEX ON locked (d);
    SELECT count(sweeper.register('locked', policy => 'locked_' || i, deadline => 'd')) FROM generate_series(1, 300) AS i");
wait_for($node, "SELECT count(*) = 300 FROM sweeper.policy_status WHERE policy LIKE 'locked%' AND state = 'waiting'", 'all are judged');
my $locker = $node->background_psql('postgres');
$locker->query_safe('BEGIN; LOCK TABLE locked');
$node->safe_psql('postgres', "SELECT sweeper.alter_policy('locked_1', batch_size => 20)");
wait_for($node, "SELECT count(*) = 300 FROM sweeper.policy_status WHERE policy LIKE 'locked%' AND state = 'locked'", 'all are locked');
$node->safe_psql('postgres', q{CREATE FUNCTION samples(n int) RETURNS int LANGUAGE plpgsql AS $$ DECLARE met int := 0; BEGIN
    FOR i IN 1 .. n LOOP
        met := met + (SELECT count(*) FROM pg_locks WHERE relation = 'locked'::regclass AND NOT granted);
        PERFORM pg_sleep(0.01);
    END LOOP; RETURN met; END $$});
cmp_ok($node->safe_psql('postgres', 'SELECT samples(400)'), '<', 100, 'it is seldom found waiting');
$node->safe_psql('postgres', "INSERT INTO login VALUES (200, now())");
wait_for($node, 'SELECT count(*) = 10 FROM login', 'others are swept');
$locker->query_safe('ROLLBACK');
$locker->quit;
wait_for($node, "SELECT count(*) = 300 FROM sweeper.policy_status WHERE policy LIKE 'locked%' AND state = 'waiting'", 'and they when it is free');

# there are as many places as max_policies says, for policies of users: the built-in ones of four databases take none
my $more = "SELECT count(sweeper.register('locked', policy => 'more_' || i, deadline => 'd', check_every => '1 d')) FROM generate_series(1, 30) AS i";
my ($ret, $out, $err) = $node->psql('postgres', $more);
like($err, qr/all 310 slots for policies in shared memory are in use/, 'more are refused, also by one statement');
is($node->safe_psql('postgres', "SELECT count(*) FROM sweeper.policy WHERE policy LIKE 'more%'"), 0, 'none is there');
$node->append_conf('postgresql.conf', 'session_sweeper.max_policies = 340');
$node->restart;
$node->safe_psql('postgres', $more);
$node->append_conf('postgresql.conf', 'session_sweeper.max_policies = 310');
$node->restart;
wait_for($node, "SELECT EXISTS (SELECT FROM sweeper.problem WHERE problem = 'policy slots short')", 'more are a problem');
like($node->safe_psql('postgres', "SELECT next_step FROM sweeper.problem WHERE problem = 'policy slots short'"), qr/max_policies = 400;/, 'it names the number that is needed');
($ret, $out, $err) = $node->psql('postgres', "CALL sweeper.sweep('more_30')");
like($err, qr/all 310 slots for policies in shared memory are in use/, 'sweep refuses one that has none');
is($node->safe_psql($_, "SELECT count(*) FROM sweeper.stat_policy WHERE policy LIKE 'sweeper.%' AND looks >= 0"), 7, "$_ has those of built-in policies") for qw(postgres first second third);
$node->safe_psql('postgres', "SELECT count(sweeper.unregister('more_' || i)) FROM generate_series(1, 29) AS i");
wait_for($node, "SELECT NOT EXISTS (SELECT FROM sweeper.problem WHERE problem = 'policy slots short')", 'until some are unregistered');
$node->safe_psql('postgres', "CALL sweeper.sweep('more_30')");

$node->stop;
done_testing();
