# A worker that the fuse has had hold a group is cancelled before it commits: the next one counts again, and holds it, too.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main', 'session_sweeper.max_workers = 2');
$node->safe_psql('postgres', q{
    CREATE EXTENSION session_sweeper;
    CREATE ROLE greedy; CREATE ROLE modest; GRANT CREATE ON SCHEMA public TO greedy, modest;
    GRANT USAGE ON SCHEMA sweeper TO greedy; GRANT SELECT ON sweeper.fuse_hold, sweeper.policy TO greedy;
    CREATE TABLE gate (name text PRIMARY KEY); GRANT SELECT ON gate TO greedy;
    SET ROLE greedy;
    CREATE FUNCTION hang(name text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
        WHILE NOT EXISTS (SELECT FROM public.gate AS g WHERE g.name = hang.name) LOOP PERFORM pg_sleep(0.02); END LOOP; END $$;
    CREATE FUNCTION hanging() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM public.hang(TG_TABLE_NAME); RETURN OLD; END $$;
    -- the worker that holds a group sees its own hold: its statements have snapshots of their own
    CREATE FUNCTION hang_if_held() RETURNS void LANGUAGE plpgsql VOLATILE AS $$ BEGIN
        IF EXISTS (SELECT FROM sweeper.fuse_hold) THEN PERFORM public.hang('grouped'); END IF; END $$;
    CREATE FUNCTION hang_when_held(text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$ BEGIN PERFORM public.hang_if_held(); RETURN true; END $$;
    CREATE TABLE first (id int PRIMARY KEY, d timestamptz NOT NULL);
    CREATE TRIGGER hang BEFORE DELETE ON first FOR EACH ROW EXECUTE FUNCTION hanging();
    INSERT INTO first VALUES (1, now());
    CREATE TABLE grouped (id int PRIMARY KEY, d timestamptz NOT NULL, g text);
    CREATE INDEX ON grouped (d);
    INSERT INTO grouped SELECT i, now() + interval '1 h', 'b' FROM generate_series(1, 1000) AS i;
    SET ROLE modest;
    CREATE TABLE modest (id int PRIMARY KEY, d timestamptz NOT NULL); CREATE INDEX ON modest (d);
    RESET ROLE;
    SELECT sweeper.register('first', deadline => 'd', start => 'now')});
my $hanging = "FROM pg_stat_activity WHERE backend_type = 'session_sweeper worker' AND wait_event = 'PgSleep'";
# a row that was slow is tried again with all its time
wait_for($node, "SELECT (SELECT count(*) = 1 FROM sweeper.failed_row WHERE class = 'slow') AND count(*) = 1 $hanging AND xact_start < now() - interval '3 s'", 'a role has one place');
$node->safe_psql('postgres', q{
    SELECT sweeper.register('grouped', deadline => 'd', group_by => 'g', filter => 'hang_when_held(g)', start => 'now');
    INSERT INTO grouped SELECT i, now() + interval '1 s', CASE WHEN i <= 1200 THEN 'a' ELSE 'b' END FROM generate_series(1001, 1210) AS i});
# the one that began last is taken back, if both have been there for two seconds
wait_for($node, "SELECT count(*) = 2 $hanging AND xact_start < now() - interval '3 s'", 'and the other, whose worker holds a group');
$node->safe_psql('postgres', q{INSERT INTO modest VALUES (1, now()); SELECT sweeper.register('modest', deadline => 'd', start => 'now')});
wait_for($node, 'SELECT count(*) = 0 FROM modest', 'another role gets one of them back');
is($node->safe_psql('postgres', 'SELECT count(*) FROM sweeper.fuse_hold'), 0, 'the hold was not committed');
$node->safe_psql('postgres', q{INSERT INTO gate VALUES ('grouped'), ('first')});
wait_for($node, q{SELECT count(*) = 0 FROM grouped WHERE g = 'b' AND d <= now()}, 'the other group is swept');
is($node->safe_psql('postgres', q{SELECT count(*) FROM grouped WHERE g = 'a'}), 200, 'nothing of the group that is too many has expired');
is($node->safe_psql('postgres', 'SELECT count(*) FROM sweeper.fuse_hold'), 1, 'and it is held');
$node->stop;
done_testing();
