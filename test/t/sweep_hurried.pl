# Workers that are hurried, and databases that go in the middle of a pass.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main', "max_worker_processes = 8", "session_sweeper.max_workers = 1");

# Two policies share a worker, which has to leave before a batch that failed is halved: the bad row is found all the same.
$node->safe_psql('postgres', q{
    CREATE EXTENSION session_sweeper;
    SET client_min_messages = warning;
    CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        PERFORM pg_sleep(0.005);
        IF OLD.id = 150 THEN RAISE 'not this one'; END IF;
        RETURN OLD; END $$;
    CREATE FUNCTION make(name text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
        EXECUTE format('CREATE TABLE %I (id int PRIMARY KEY, d timestamptz)', name);
        EXECUTE format('CREATE INDEX ON %I (d)', name);
        EXECUTE format('INSERT INTO %I SELECT i, now() - interval ''1 h'' + i * interval ''1 s'' FROM generate_series(1, 400) AS i', name);
        EXECUTE format('CREATE TRIGGER slow BEFORE DELETE ON %I FOR EACH ROW EXECUTE FUNCTION slow()', name);
        PERFORM sweeper.register(name::regclass, deadline => 'd', start => 'now', check_every => '100 ms', fuse_fraction => 1, batch_size => 400);
    END $$;
    BEGIN; SELECT make('a'), make('b'); COMMIT;});
ok(wait_for($node, "SELECT (SELECT count(*) FROM a) + (SELECT count(*) FROM b) = 2"), 'all rows go but the two that cannot');
ok(wait_for($node, "SELECT count(*) = 2 FROM sweeper.failed_row WHERE key = '150'"), 'which are on record');
$node->safe_psql('postgres', "SELECT sweeper.unregister(p) FROM unnest('{a,b}'::text[]) AS p");

# A database is dropped in the middle of a pass, more often than there are places for passes.
$node->safe_psql('postgres', 'CREATE DATABASE model1');
$node->safe_psql('model1', q{
    CREATE EXTENSION session_sweeper;
    CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.02); RETURN OLD; END $$;
    CREATE TABLE t (id int PRIMARY KEY, d timestamptz);
    CREATE INDEX ON t (d);
    CREATE TRIGGER slow BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION slow();
    SELECT sweeper.register('t', deadline => 'd', start => 'now', check_every => '100 ms', fuse_fraction => 1)});
for my $i (1 .. 9) {
    $node->safe_psql('postgres', "CREATE DATABASE gone TEMPLATE model1");
    $node->safe_psql('gone', "SELECT sweeper.resume_all(); INSERT INTO t SELECT i, now() - interval '1 h' FROM generate_series(1, 1000) AS i");
    wait_for($node, "SELECT count(*) > 0 FROM sweeper._progress() WHERE true", undef, 'gone')
        or BAIL_OUT('no pass began');
    $node->safe_psql('postgres', 'DROP DATABASE gone');
}
$node->safe_psql('postgres', q{
    CREATE TABLE c (id int PRIMARY KEY, d timestamptz);
    SELECT sweeper.register('c', deadline => 'd', start => 'now', check_every => '100 ms', fuse_fraction => 1);
    INSERT INTO c VALUES (1, now() - interval '1 h')});
ok(wait_for($node, 'SELECT count(*) = 0 FROM c'), 'others have places for their passes');

# ALTER DATABASE ... SET reaches processes that are there already.
$node->safe_psql('postgres', 'ALTER DATABASE postgres SET default_transaction_read_only = on');
ok(wait_for($node, "SELECT state = 'read-only' FROM sweeper.policy_status WHERE policy = 'c'"), 'read-only is seen');
$node->safe_psql('postgres', q{SET default_transaction_read_only = off; INSERT INTO c VALUES (2, now() - interval '1 h'); ALTER DATABASE postgres RESET default_transaction_read_only});
ok(wait_for($node, 'SELECT count(*) = 0 FROM c'), 'and that it is over');
$node->stop;
done_testing();
