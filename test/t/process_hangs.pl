# Code of users that hangs: it costs its own policy, nobody else.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main', 'session_sweeper.max_workers = 2');
$node->safe_psql('postgres', q{
    CREATE EXTENSION session_sweeper;
    CREATE TABLE gate (name text PRIMARY KEY);
    -- hangs until somebody opens its gate
    CREATE FUNCTION hang(name text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
        WHILE NOT EXISTS (SELECT FROM public.gate AS g WHERE g.name = hang.name) LOOP PERFORM pg_sleep(0.02); END LOOP; END $$;
    CREATE FUNCTION hanging() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM public.hang(TG_TABLE_NAME); RETURN OLD; END $$});
my $hanging = "backend_type = 'session_sweeper worker' AND wait_event = 'PgSleep'";

# A worker that is ended in the middle of a chunk: what it had is no less due,
# although others found the end of the pass.
load_table($node, 'parted', 3000, 10);
$node->safe_psql('postgres', "CREATE TRIGGER hang BEFORE DELETE ON parted FOR EACH ROW WHEN (OLD.id = 2999) EXECUTE FUNCTION hanging();
    SELECT sweeper.register('parted', deadline => 'd', start => 'now', backlog_rate => 0, batch_size => 100, max_workers => 2)");
wait_for($node, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $hanging) AND count(*) < 1100 FROM parted", 'all but the chunk of one worker');
my $pid = $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE $hanging");
$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)") for 1 .. 2;
wait_for($node, "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $pid)", 'a second SIGTERM ends it');
wait_for($node, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $hanging)", 'another tries');
$node->safe_psql('postgres', "INSERT INTO gate VALUES ('parted')");
wait_for($node, 'SELECT count(*) = 10 FROM parted', 'the rest is found');
is(exactly_once($node, 'parted', 3000, 10), '0|0|0|0', 'exactly once');
is($node->safe_psql('postgres', "SELECT fuse_trips FROM sweeper.stat_policy WHERE policy = 'parted'"), 0, 'and still counted as the backlog it is');

# Code that hangs where only the coordinator would run it: it must not.
my $victims = 0;
for my $how (
    [ 'a domain in a filter', q{CREATE DOMAIN trap AS int CHECK (only_workers(VALUE))}, q{, filter => $f$'{1}'::public.trap[] IS NOT NULL$f$} ],
    [ 'a constant in the predicate of an index', q{CREATE INDEX ON evil (id) WHERE only_workers(1)}, '' ],
    [ 'a constant in extended statistics', q{CREATE STATISTICS trap_stat ON (CASE WHEN only_workers(1) THEN id END), d FROM evil}, '' ],
    [ 'a constant in what an updated table is partitioned by', q{ALTER TABLE evil RENAME TO part;
        CREATE TABLE evil (LIKE part INCLUDING DEFAULTS) PARTITION BY LIST ((only_workers(1) AND id > 0));
        ALTER TABLE evil ATTACH PARTITION part DEFAULT}, q{, action => 'update', set_clause => 'd = now() + interval ''1 day'''}, 'SELECT count(*) = 20 FROM evil WHERE d > now()' ]) {
    my ($what, $trap, $argument, $swept) = @$how;
    load_table($node, 'evil', 10, 10);
    $node->safe_psql('postgres', qq{
        CREATE OR REPLACE FUNCTION only_workers(int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS \$\$ BEGIN
            WHILE (SELECT backend_type = 'session_sweeper coordinator' FROM pg_stat_activity WHERE pid = pg_backend_pid()) LOOP
                BEGIN PERFORM pg_sleep(1000); EXCEPTION WHEN query_canceled THEN NULL; END;
            END LOOP; RETURN true; END \$\$;
        $trap;
        SELECT sweeper.register('evil', deadline => 'd', start => 'now'$argument)});
    $victims++;
    load_table($node, "victim$victims", 10, 10);
    $node->safe_psql('postgres', "SELECT sweeper.register('victim$victims', deadline => 'd', start => 'now')");
    wait_for($node, "SELECT count(*) = 10 FROM victim$victims", "$what does not run in the coordinator");
    wait_for($node, $swept // "SELECT count(*) = 10 FROM evil", 'a worker sweeps that table too');
    $node->safe_psql('postgres', "SELECT sweeper.unregister('evil'); DROP TABLE evil; DROP DOMAIN IF EXISTS trap");
    pass($what);
}

# A table to which there are 2 ** 40 ways: each is looked at once.
$node->safe_psql('postgres', q{
    CREATE TABLE way (id int PRIMARY KEY, d timestamptz NOT NULL);
    SELECT sweeper.register('way', last_seen => 'd', ttl => '4 s'); -- whether it is locked is seen each second
    CREATE TABLE way_0a () INHERITS (way); CREATE TABLE way_0b () INHERITS (way);
    DO $$ BEGIN FOR i IN 1 .. 39 LOOP
        EXECUTE format('CREATE TABLE way_%1$sa () INHERITS (way_%2$sa, way_%2$sb); CREATE TABLE way_%1$sb () INHERITS (way_%2$sa, way_%2$sb)', i, i - 1);
    END LOOP; END $$});
load_table($node, 'beside', 0, 10);
$node->safe_psql('postgres', "SELECT sweeper.register('beside', deadline => 'd', start => 'now'); INSERT INTO beside VALUES (0, now() + interval '3 s')");
wait_for($node, 'SELECT count(*) = 10 FROM beside', 'others are swept meanwhile');
$node->safe_psql('postgres', 'INSERT INTO way_39a VALUES (1, now() - interval \'2 h\')');
wait_for($node, 'SELECT count(*) = 0 FROM way', 'and so is that table');
$node->safe_psql('postgres', q{SELECT sweeper.unregister('way'); SET client_min_messages = error; DROP TABLE way CASCADE});
pass('very many ways to a table');

# What is_alive says of a row is set aside when it takes long, then it has all the time of the hard limit: so two policies
# of one role get both places. Another role gets one of them back.
sub seconds { my ($since) = @_; return $node->safe_psql('postgres', "SELECT extract(epoch FROM clock_timestamp() - '$since')::int") }
sub now_is { return $node->safe_psql('postgres', 'SELECT clock_timestamp()') }
$node->safe_psql('postgres', q{
    CREATE ROLE greedy; CREATE ROLE modest; GRANT CREATE ON SCHEMA public TO greedy, modest;
    SET ROLE greedy;
    CREATE SEQUENCE calls;
    CREATE FUNCTION sleepy(text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(1000); RETURN false; END $$;
    -- heeds the cancel of its first call
    CREATE FUNCTION deaf(text) RETURNS boolean LANGUAGE plpgsql AS $$ DECLARE n int = nextval('public.calls'); BEGIN
        LOOP BEGIN PERFORM pg_sleep(1000); EXCEPTION WHEN query_canceled THEN IF n = 1 THEN RAISE; END IF; END; END LOOP; END $$;
    CREATE TABLE greedy_1 (id int PRIMARY KEY, d timestamptz); CREATE TABLE greedy_2 (LIKE greedy_1 INCLUDING ALL);
    INSERT INTO greedy_1 VALUES (1, now()); INSERT INTO greedy_2 VALUES (1, now());
    SET ROLE modest;
    CREATE TABLE modest (id int PRIMARY KEY, d timestamptz); CREATE INDEX ON modest (d); -- no pass looks in vain
    RESET ROLE;
    SELECT sweeper.register('modest', deadline => 'd', check_every => '100 ms'),
        sweeper.register('greedy_1', deadline => 'd', ttl => '1 h', is_alive => 'sleepy(text)', start => 'now', check_every => '100 ms'),
        sweeper.register('greedy_2', deadline => 'd', ttl => '1 h', is_alive => 'sleepy(text)', start => 'now', check_every => '100 ms')});
my $two = "SELECT count(*) = 2 AND (SELECT count(*) = 2 FROM sweeper.failed_row WHERE class = 'slow') FROM pg_stat_activity
    WHERE $hanging AND xact_start < now() - interval '3 s'";
for my $try (1 .. 2) {
    wait_for($node, $two, 'one role has both places');
    my $t = now_is();
    $node->safe_psql('postgres', 'INSERT INTO modest VALUES (1, now())');
    wait_for($node, 'SELECT count(*) = 0 FROM modest', 'another role is served');
    cmp_ok(seconds($t), '<=', 10, 'soon');
}
is($node->safe_psql('postgres', "SELECT string_agg(DISTINCT concat_ws(' ', state, attempts, sqlstate, message), ', ') FROM sweeper.failed_row WHERE policy ~ 'greedy'"),
    'retrying 0 57014 is_alive took longer than 2 s', 'no row is blamed for that');

# pause() and unregister() do not wait for code that hangs: it is cancelled, and who ignores that is ended 2 s later.
wait_for($node, $two, 'both hang again');
my $t = now_is();
$node->safe_psql('postgres', "SET statement_timeout = '30 s'; SELECT sweeper.pause_all()");
cmp_ok(seconds($t), '<=', 5, 'paused at once');
wait_for($node, "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE $hanging)", 'it is over');
is($node->safe_psql('postgres', "SELECT (SELECT max(attempts) FROM sweeper.failed_row) + (SELECT sum(failures) FROM sweeper.policy)"), 0, 'neither rows nor policies are blamed');
$node->safe_psql('postgres', "SELECT sweeper.unregister('greedy_2'); SELECT sweeper.resume_all(); SELECT sweeper.alter_policy('greedy_1', is_alive => 'deaf(text)')");
wait_for($node, "SELECT last_value > 1 FROM calls", 'one that ignores a cancel');
$t = now_is();
$node->safe_psql('postgres', "SET statement_timeout = '30 s'; SELECT sweeper.pause('greedy_1')");
cmp_ok(seconds($t), '<=', 10, 'paused soon');
$node->safe_psql('postgres', "SELECT sweeper.resume('greedy_1')");
wait_for($node, "SELECT count(*) = 1 FROM sweeper.failed_row WHERE policy = 'greedy_1' AND state = 'quarantined' AND sqlstate = '57P01'", 'the row that ended its workers is quarantined');
$node->safe_psql('postgres', "SELECT sweeper.resume('greedy_1'); ALTER SEQUENCE calls RESTART");
wait_for($node, "SELECT last_value > 1 FROM calls", 'it hangs again');
$t = now_is();
$node->safe_psql('postgres', "SET statement_timeout = '30 s'; SELECT sweeper.unregister('greedy_1')");
cmp_ok(seconds($t), '<=', 10, 'unregistered soon');
$node->safe_psql('postgres', "SELECT sweeper.register('greedy_1', deadline => 'd', ttl => '1 h', is_alive => 'sleepy(text)', start => 'now', check_every => '100 ms')");
my $asleep = "SELECT count(*) = 1 FROM pg_stat_activity WHERE $hanging AND xact_start < now() - interval '3 s'";
wait_for($node, $asleep, 'another hangs');
$t = now_is();
$node->safe_psql('postgres', 'ALTER SYSTEM SET session_sweeper.enabled = off');
$node->reload;
wait_for($node, "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'session_sweeper worker')", 'off: no worker is left');
cmp_ok(seconds($t), '<=', 10, 'off: at once');
# a shorter limit holds for policies that have a longer one
$node->safe_psql('postgres', "ALTER SYSTEM SET session_sweeper.max_hard_time_limit = '3 s'");
$node->safe_psql('postgres', 'ALTER SYSTEM RESET session_sweeper.enabled');
$node->reload;
$t = now_is();
wait_for($node, "SELECT count(*) = 1 FROM sweeper.failed_row WHERE policy = 'greedy_1' AND attempts = 1 AND message = 'is_alive took longer than 3 s'", 'it has had its time');
cmp_ok(seconds($t), '<=', 30, 'the shorter limit');
$node->safe_psql('postgres', "SELECT sweeper.unregister('greedy_1')");
$node->safe_psql('postgres', 'ALTER SYSTEM RESET session_sweeper.max_hard_time_limit');
$node->reload;

# Slow rows are set aside: their neighbours go first.
$node->safe_psql('postgres', q{
    CREATE TABLE sluggish (id int PRIMARY KEY, d timestamptz);
    CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(CASE OLD.id WHEN 1 THEN 1000 ELSE 3 END); RETURN OLD; END $$;
    CREATE TRIGGER slow BEFORE DELETE ON sluggish FOR EACH ROW WHEN (OLD.id IN (1, 2, 50, 100)) EXECUTE FUNCTION slow();
    INSERT INTO sluggish SELECT i, now() - interval '1 h' + i * interval '1 s' FROM generate_series(1, 100) AS i;
    SELECT sweeper.register('sluggish', deadline => 'd', start => 'now', check_every => '100 ms', fuse_fraction => 1, max_retries => 0,
        soft_time_limit => '5 s', hard_time_limit => '5 s')});
wait_for($node, 'SELECT count(*) = 4 FROM sluggish', 'all others go');
is($node->safe_psql('postgres', "SELECT string_agg(DISTINCT concat_ws(' ', state, class, attempts, sqlstate, message), ', ') FROM sweeper.failed_row WHERE policy = 'sluggish' AND key <> '1'"),
    'retrying slow 0 57014 the row action took longer than 2 s', 'the slow ones are set aside');
wait_for($node, 'SELECT count(*) = 1 FROM sluggish', 'then they go, too');
wait_for($node, "SELECT count(*) = 1 AND bool_and(state = 'quarantined') FROM sweeper.failed_row WHERE policy = 'sluggish'", 'and one that is slower than its limit');
is($node->safe_psql('postgres', "SELECT concat_ws(' ', key, class, attempts, sqlstate, message) FROM sweeper.failed_row WHERE policy = 'sluggish'"),
    '1 slow 1 57014 the row action took longer than 5 s', 'is quarantined');
is($node->safe_psql('postgres', "SELECT count(*), count(DISTINCT key) FROM sweeper.cleanup_event WHERE policy = 'sluggish'"), '99|99', 'exactly once');
$node->safe_psql('postgres', "SELECT sweeper.unregister('sluggish')");

# One slow row among many costs four cancels: a batch of 8,000, its part of 250, of 7, the row.
$node->safe_psql('postgres', q{
    CREATE TABLE snail (id int PRIMARY KEY, d timestamptz);
    CREATE SEQUENCE tries;
    CREATE FUNCTION crawl() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM nextval('tries'), pg_sleep(1000); RETURN OLD; END $$;
    CREATE TRIGGER crawl BEFORE DELETE ON snail FOR EACH ROW WHEN (OLD.id = 15000) EXECUTE FUNCTION crawl();
    INSERT INTO snail SELECT i, now() - interval '1 h' + i * interval '1 ms' FROM generate_series(1, 20000) AS i;
    SELECT sweeper.register('snail', deadline => 'd', start => 'now', check_every => '100 ms', fuse_fraction => 1)});
wait_for($node, q{SELECT count(*) = 1 FROM snail}, 'the others go');
# the next try, with all the time of the hard limit, may have begun
cmp_ok($node->safe_psql('postgres', 'SELECT last_value FROM tries'), '<=', 5, 'and waited for few cancels');
$node->safe_psql('postgres', "SELECT sweeper.unregister('snail')");

# A database that is wanted by others does not wait for code that hangs.
$node->safe_psql('postgres', 'CREATE DATABASE slow');
$node->safe_psql('slow', q{
    CREATE EXTENSION session_sweeper;
    CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(1000); RETURN OLD; END $$});
load_table($node, 'login', 10, 10, 'slow');
$node->safe_psql('slow', "CREATE TRIGGER hang BEFORE DELETE ON login FOR EACH ROW EXECUTE FUNCTION hang();
    SELECT sweeper.register('login', deadline => 'd', start => 'now')");
wait_for($node, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $hanging AND datname = 'slow')", 'a batch hangs');
$node->safe_psql('postgres', 'CREATE DATABASE slow_copy TEMPLATE slow');
wait_for($node, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $hanging AND datname = 'slow')", 'again');
$node->safe_psql('postgres', 'ALTER DATABASE slow RENAME TO slower');
wait_for($node, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE $hanging AND datname = 'slower')", 'and again');
$node->safe_psql('postgres', 'DROP DATABASE slower');
pass('DROP DATABASE, TEMPLATE and RENAME while a batch hangs');

$node->stop;
done_testing();
