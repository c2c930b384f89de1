# pg_partman drops partitions of a table that a policy sweeps, in the middle of a pass: it waits for one batch, the pass goes on
# in the other partitions, and each of their dead rows expires once.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main');
my $version = $node->safe_psql('postgres', "SELECT coalesce(max(split_part(default_version, '.', 1)::int), 0) FROM pg_available_extensions WHERE name = 'pg_partman'");
plan(skip_all => 'this PostgreSQL has no pg_partman') unless $version;
# from version 5 on it is always native
my $native = $version < 5 ? "p_type => 'native', " : '';
$node->safe_psql('postgres', qq{
    CREATE EXTENSION session_sweeper;
    CREATE SCHEMA partman;
    CREATE EXTENSION pg_partman SCHEMA partman;
    CREATE ROLE app LOGIN;
    GRANT CREATE ON SCHEMA public TO app;
    SELECT sweeper.grant_access('app', 'user');
    SET ROLE app;
    CREATE TABLE visit (id int, created timestamptz NOT NULL, expires_at timestamptz NOT NULL, PRIMARY KEY (id, created)) PARTITION BY RANGE (created);
    CREATE INDEX ON visit (expires_at);
    CREATE TABLE gate (id int);
    CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS \$\$ BEGIN
        PERFORM pg_advisory_lock(4711), pg_advisory_unlock(4711); RETURN OLD; END \$\$;
    CREATE TRIGGER hold AFTER DELETE ON visit FOR EACH ROW WHEN (OLD.id = 1) EXECUTE FUNCTION hold();
    RESET ROLE;
    SELECT partman.create_parent('public.visit', 'created', $native p_interval => '1 day', p_premake => 2,
        p_start_partition => (now() - interval '8 days')::date::text);
    UPDATE partman.part_config SET retention = '3 days', retention_keep_table = false, inherit_privileges = true;
    SELECT partman.reapply_privileges('public.visit');
    -- 20 dead and 20 living rows a day; the oldest are due first
    INSERT INTO visit SELECT i, now() - (7 - i / 40) * interval '1 day', now() + CASE WHEN i % 2 = 1 THEN i - 1000 ELSE 3600 END * interval '1 s'
        FROM generate_series(0, 319) AS i});
is($node->safe_psql('postgres', "SELECT DISTINCT relowner::regrole FROM pg_inherits JOIN pg_class ON oid = inhrelid WHERE inhparent = 'visit'::regclass"), 'app',
    'partitions belong to the owner of the table');

my $holder = $node->background_psql('postgres');
$holder->query_safe('SELECT pg_advisory_lock(4711)');
$node->safe_psql('postgres', "SET ROLE app; SELECT state FROM sweeper.register('visit', deadline => 'expires_at', check_every => '100 ms', batch_size => 5,
    max_workers => 1, fuse_fraction => 1, start => 'now')");
wait_for($node, "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", 'the first batch is held');
my $partman = $node->background_psql('postgres');
$partman->query_until(qr/waits/, "\\echo waits\nSELECT partman.run_maintenance('public.visit');\n");
wait_for($node, "SELECT count(*) > 0 FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND NOT granted", 'pg_partman waits behind it');
$holder->query_safe('SELECT pg_advisory_unlock(4711)');
$partman->quit;
wait_for($node, 'SELECT count(*) = 0 FROM visit WHERE expires_at < now()', 'the pass goes on');
# twenty a day of those that are left, whichever day it is now, and the batch before
is($node->safe_psql('postgres', q{SELECT count(*) > 0, count(*) % 20, (SELECT count(DISTINCT key) - 5 FROM sweeper.cleanup_event) - count(*),
    (SELECT count(*) - count(DISTINCT key) FROM sweeper.cleanup_event), (SELECT count(*) FROM sweeper.failed_row) FROM visit}), 't|0|0|0|0',
    'each dead row of the other partitions expired once, and those that were dropped did not');
is($node->safe_psql('postgres', "SELECT * FROM sweeper.problem"), '', 'there is no problem');

# what pg_partman has made since
my $partitions = $node->safe_psql('postgres', "SELECT count(*) FROM pg_inherits WHERE inhparent = 'visit'::regclass");
$node->safe_psql('postgres', "UPDATE partman.part_config SET premake = 4; SELECT partman.run_maintenance('public.visit')");
is($node->safe_psql('postgres', "SELECT count(*) - $partitions FROM pg_inherits WHERE inhparent = 'visit'::regclass"), 2, 'there are new partitions');
$node->safe_psql('postgres', "INSERT INTO visit VALUES (1000, now() + interval '4 days', now() - interval '1 s')");
wait_for($node, 'SELECT count(*) = 0 FROM visit WHERE id = 1000', 'a row of a new partition expires');

# heartbeats go by the key, which has the partition key in it
my $day = $node->safe_psql('postgres', "SET timezone = 'UTC'; SELECT date_trunc('day', now())");
$node->safe_psql('postgres', "SET ROLE app; SELECT sweeper.alter_policy('visit', ttl => '1 h', heartbeats => true);
    INSERT INTO visit VALUES (2000, '$day', now() + interval '1 h')");
is($node->safe_psql('postgres', qq{SELECT sweeper.touch('visit', '(2000,"$day")'), sweeper.touch('visit', '(2001,"$day")')}), 't|f', 'heartbeats');
is($node->safe_psql('postgres', qq{SELECT sweeper.expire('visit', ARRAY['(2000,"$day")'])}), 1, 'expire takes an array of keys');

# without inherit_privileges its partitions belong to its caller, and are not swept
$node->safe_psql('postgres', "UPDATE partman.part_config SET premake = 6, inherit_privileges = false; SELECT partman.run_maintenance('public.visit')");
$node->safe_psql('postgres', "INSERT INTO visit VALUES (3000, now() + interval '6 days', now() - interval '1 s')");
wait_for($node, "SELECT count(*) > 0 FROM sweeper.problem WHERE problem = 'partition of another owner'", 'a partition of another owner is reported');
$node->safe_psql('postgres', "UPDATE partman.part_config SET inherit_privileges = true; SELECT partman.reapply_privileges('public.visit')");
wait_for($node, 'SELECT count(*) = 0 FROM visit WHERE id = 3000', 'then its rows expire');
wait_for($node, 'SELECT count(*) = 0 FROM sweeper.problem', 'there is no problem any more');
$holder->quit;
$node->stop;
done_testing();
