# What a role does to the names in others' code: no code of that role runs as anybody else.  The owner of a schema gives
# its name to another one while statements are prepared; a trigger has a function of another owner compiled in the worker.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main', 'max_connections = 30');
$node->safe_psql('postgres', q{
    CREATE EXTENSION session_sweeper;
    CREATE ROLE alice LOGIN;
    CREATE ROLE bob LOGIN;
    CREATE ROLE mallory LOGIN;
    GRANT CREATE ON DATABASE postgres TO alice, mallory;
    SELECT sweeper.grant_access(r, 'user') FROM unnest('{alice,bob}'::regrole[]) AS r});
sub as { my ($role, $sql) = @_; return $node->safe_psql('postgres', $sql, connstr => $node->connstr('postgres') . " user=$role") }

# what runs as anybody else counts; that is not undone
as('mallory', q{
    CREATE SCHEMA m;
    CREATE SEQUENCE m.ran;
    CREATE SEQUENCE m.rounds;
    CREATE FUNCTION m.canary(text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN IF current_user <> 'mallory' THEN RAISE LOG 'CANARY % %', $1, current_user; PERFORM nextval('m.ran'); END IF; END $$;
    CREATE FUNCTION m.folded(int) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM m.canary('planner'); RETURN true; END $$;
    CREATE FUNCTION m.fired() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM m.canary('trigger'); RETURN NEW; END $$;
    CREATE SCHEMA m1; CREATE SCHEMA m1e;
    GRANT ALL ON SCHEMA m, m1, m1e TO PUBLIC;
    GRANT ALL ON SEQUENCE m.ran TO PUBLIC});
as('alice', q{
    CREATE TABLE m1.s (id text PRIMARY KEY, d timestamptz DEFAULT now() + interval '1 h');
    INSERT INTO m1.s SELECT 'k' || i FROM generate_series(1, 20000) AS i;
    CREATE TABLE m1.log (id int, who text DEFAULT current_user);
    GRANT INSERT, SELECT ON m1.s, m1.log TO PUBLIC;
    CREATE FUNCTION m1.hook(text[]) RETURNS void LANGUAGE sql AS 'SELECT';
    CREATE FUNCTION m1.alive(text) RETURNS boolean LANGUAGE sql AS 'SELECT false';
    CREATE SCHEMA alice;
    CREATE TABLE alice.h (id int PRIMARY KEY, d timestamptz);
    SELECT FROM sweeper.register('m1.s', 'touched', deadline => 'd', last_seen => NULL, heartbeats => true, ttl => '1 h', start => 'now');
    SELECT FROM sweeper.register('alice.h', 'hooked', deadline => 'd', on_expire => 'm1.hook(text[])', is_alive => 'm1.alive(text)', ttl => '1 s', start => 'now', fuse_fraction => 1, batch_size => 5)});
$node->safe_psql('postgres', q{SELECT sweeper.grant_access('bob', 'user', 'touched')});
as('mallory', q{
    CREATE VIEW m1e.s AS SELECT t.tableoid, t.xmin, t.ctid, id, d FROM m1.s AS t WHERE m.folded(1);
    CREATE FUNCTION m1e.hook(text[]) RETURNS void LANGUAGE sql AS $$ SELECT m.canary('hook') $$;
    CREATE FUNCTION m1e.alive(text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM m.canary('alive'); RETURN false; END $$;
    CREATE TABLE m1e.log (id int, who text DEFAULT current_user);
    CREATE TRIGGER fired BEFORE INSERT ON m1e.log FOR EACH ROW EXECUTE FUNCTION m.fired();
    GRANT ALL ON ALL TABLES IN SCHEMA m1e TO PUBLIC});

my $racer = $node->background_psql('postgres', extra_params => [ '-U', 'mallory' ]);
$racer->query_until(qr/races/, q{\echo races
    DO $$ BEGIN FOR i IN 1 .. 100000 LOOP
        ALTER SCHEMA m1 RENAME TO m1x; ALTER SCHEMA m1e RENAME TO m1; COMMIT;
        ALTER SCHEMA m1 RENAME TO m1e; ALTER SCHEMA m1x RENAME TO m1; COMMIT; PERFORM nextval('m.rounds');
    END LOOP; END $$;
});
for my $round (1 .. 3) {
    as('alice', "INSERT INTO alice.h SELECT i, now() - interval '1 h' FROM generate_series($round * 1000, $round * 1000 + 300) AS i");
    # each its own transaction; now and then a name is not there, or a lock is not to be had
    my $load = join '', map { my $k = 2 + ($round * 2000 + $_) % 19000; ("SELECT sweeper.touch('touched', 'k$k');\n", $_ % 12 ? () : qq{SELECT sweeper.append('m1.log', '{"id": 1}');\n}) } 1 .. 2000;
    $node->psql('postgres', $load, on_error_stop => 0, connstr => $node->connstr('postgres') . ' user=bob');
}
$node->safe_psql('postgres', q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE usename = 'mallory'});
eval { $racer->quit };
$node->safe_psql('postgres', q{ALTER SCHEMA m1x RENAME TO m1}) if $node->safe_psql('postgres', q{SELECT count(*) FROM pg_namespace WHERE nspname = 'm1x'}) && !$node->safe_psql('postgres', q{SELECT count(*) FROM pg_namespace WHERE nspname = 'm1'});
# no row is quarantined for a name that was not there; without this they would wait for their next attempt
is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT sqlstate || ' ' || message, '; ') FROM sweeper.failed_row WHERE state = 'quarantined'}), '', 'no row is quarantined');
$node->safe_psql('postgres', q{SELECT sweeper.resume('hooked')});
wait_for($node, 'SELECT count(*) = 0 FROM alice.h', 'rows with a hook are deleted all the same');
cmp_ok($node->safe_psql('postgres', 'SELECT last_value FROM m.rounds'), '>', 100, 'the names were exchanged often');
is($node->safe_psql('postgres', 'SELECT is_called FROM m.ran'), 'f', 'nothing of the schema\'s owner ran as anybody else') or diag join '', grep { /CANARY/ } split /^/, slurp_file($node->logfile);

# A function is compiled once in a process, with the types of the search_path of then.
$node->append_conf('postgresql.conf', 'session_sweeper.max_workers = 1');
$node->reload;
$node->safe_psql('postgres', q{
    CREATE SCHEMA v;
    GRANT USAGE ON SCHEMA v TO PUBLIC;
    CREATE FUNCTION v.is_due(int) RETURNS boolean STABLE LANGUAGE plpgsql AS $$ DECLARE t text; BEGIN t := 'x'; RETURN true; END $$;
    CREATE TABLE v.s (id int PRIMARY KEY, d timestamptz);
    SELECT FROM sweeper.register('v.s', 'victim', deadline => 'd', filter => 'v.is_due(id)', start => 'now', fuse_fraction => 1, search_path => 'pg_catalog')});
as('mallory', q{
    CREATE TABLE m.mine (id int PRIMARY KEY, d timestamptz);
    CREATE FUNCTION m.checked(pg_catalog.text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM m.canary('domain'); RETURN true; END $$;
    CREATE DOMAIN m.text AS pg_catalog.text CHECK (m.checked(VALUE));
    CREATE FUNCTION m.poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        PERFORM set_config('search_path', 'm, pg_catalog', true); PERFORM v.is_due(1); RETURN OLD; END $$;
    CREATE TRIGGER poison AFTER DELETE ON m.mine FOR EACH ROW EXECUTE FUNCTION m.poison()});
$node->safe_psql('postgres', q{SELECT sweeper.grant_access('mallory', 'user')});
as('mallory', q{SELECT FROM sweeper.register('m.mine', 'mine', deadline => 'd', start => 'now', fuse_fraction => 1)});
for my $i (1 .. 3) {
    as('mallory', "INSERT INTO m.mine VALUES ($i, now())");
    wait_for($node, 'SELECT count(*) = 0 FROM m.mine', 'a row of the one owner is deleted');
    $node->safe_psql('postgres', "INSERT INTO v.s VALUES ($i, now())");
    wait_for($node, 'SELECT count(*) = 0 FROM v.s', 'and one of the other');
}
is($node->safe_psql('postgres', 'SELECT is_called FROM m.ran'), 'f', 'a worker that has run code of one owner runs none of another') or diag join '', grep { /LOG:  CANARY/ } split /^/, slurp_file($node->logfile);
done_testing();
