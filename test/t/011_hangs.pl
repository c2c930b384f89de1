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
