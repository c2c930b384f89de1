# pg_upgrade keeps policies running; SQL of another version makes us rest, not fail.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $old = sweeper_node('old');
$old->safe_psql('postgres', 'CREATE EXTENSION session_sweeper; CREATE ROLE keeper');
load_table($old, 'login', 20, 20);
$old->safe_psql('postgres', "ALTER TABLE login OWNER TO keeper; CREATE SCHEMA app;
    CREATE FUNCTION app.note(text[]) RETURNS void LANGUAGE sql AS 'SELECT'; ALTER FUNCTION app.note(text[]) OWNER TO keeper;
    GRANT USAGE ON SCHEMA app TO keeper;
    SELECT sweeper.register('login', deadline => 'd', start => 'now', check_every => '100 ms', on_expire => 'app.note(text[])')");
wait_for($old, 'SELECT count(*) = 20 FROM login', 'swept before');

# SQL of another version: nothing is touched until both agree again
$old->safe_psql('postgres', "UPDATE pg_extension SET extversion = '0.9' WHERE extname = 'session_sweeper';
    INSERT INTO login SELECT i, now() - interval '1 s' FROM generate_series(101, 110) AS i");
$old->restart;
ok($old->wait_for_log(qr/session_sweeper is inactive in this database: its SQL is version 0\.9, the library version/), 'the log says so');
is($old->safe_psql('postgres', "SELECT restart_needed FROM sweeper.version()"), 't', 'version() says so');
is($old->safe_psql('postgres', "SELECT problem FROM sweeper.problem WHERE policy IS NULL"), 'restart needed', 'problem says so');
is($old->safe_psql('postgres', 'SELECT count(*) FROM login'), 30, 'nothing is swept');
my ($ret, $out, $err) = $old->psql('postgres', "CALL sweeper.sweep('login', timeout => '1 s')");
like($err, qr/cannot sweep: the library is version/, 'nor on request');
$old->safe_psql('postgres', "UPDATE pg_extension SET extversion = (SELECT library FROM sweeper.version()) WHERE extname = 'session_sweeper';
    SELECT sweeper.alter_policy('login', max_retries => 4)");
wait_for($old, 'SELECT count(*) = 20 FROM login', 'and goes on when they agree');

# ALTER EXTENSION UPDATE waits for the batch in flight
$old->safe_psql('postgres', "CREATE TABLE slow (id int PRIMARY KEY, d timestamptz);
    CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_lock(4711); RETURN OLD; END';
    CREATE TRIGGER hang BEFORE DELETE ON slow FOR EACH ROW EXECUTE FUNCTION hang();
    INSERT INTO slow VALUES (1, now())");
my $holder = $old->background_psql('postgres');
$holder->query_safe('SELECT pg_advisory_lock(4711)');
$old->safe_psql('postgres', "SELECT sweeper.register('slow', deadline => 'd', check_every => '100 ms', start => 'now', lock_timeout => '900 ms')");
wait_for($old, "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)");
($ret, $out, $err) = $old->psql('postgres', "SET lock_timeout = '100 ms'; ALTER EXTENSION session_sweeper UPDATE");
like($err, qr/lock timeout/, 'ALTER EXTENSION UPDATE waits for a batch');
$holder->query_safe('SELECT pg_advisory_unlock(4711)');
$holder->quit;
$old->safe_psql('postgres', 'ALTER EXTENSION session_sweeper UPDATE');
wait_for($old, 'SELECT NOT EXISTS (SELECT FROM slow)', 'then it is swept');
$old->safe_psql('postgres', "SELECT sweeper.unregister('slow'); DROP TABLE slow");

# pg_upgrade: our processes stay out of it, oids change, names do not
$old->safe_psql('postgres', "INSERT INTO login SELECT i, now() + interval '2 s' FROM generate_series(201, 205) AS i;
    SELECT sweeper.pause('login', 'upgrade')");
# a session that only memory knows to live: what was kept for the next start stays behind
$old->safe_psql('postgres', "CREATE TABLE beat (id int PRIMARY KEY, d timestamptz);
    SELECT sweeper.register('beat', deadline => 'd', ttl => '1 h', heartbeats => true, check_every => '100 ms', fuse_fraction => 1), sweeper.pause('beat');
    INSERT INTO beat VALUES (1, now() - interval '1 min'); BEGIN; SELECT sweeper.touch('beat', 1); ROLLBACK");
my $before = $old->safe_psql('postgres', 'SELECT relid, owner FROM sweeper.policy ORDER BY policy_id');
my $events = $old->safe_psql('postgres', 'SELECT count(*) FROM sweeper.cleanup_event');
$old->stop;
my $new = PostgreSQL::Test::Cluster->new('new');
$new->init;
$new->append_conf('postgresql.conf', "shared_preload_libraries = 'session_sweeper'\nmax_worker_processes = 32\nautovacuum = off\n");
my $bin = $old->config_data('--bindir');
chdir $new->basedir;
$new->command_ok([ 'pg_upgrade', '--no-sync', '-d', $old->data_dir, '-D', $new->data_dir, '-b', $bin, '-B', $bin,
    '-s', $new->host, '-p', $old->port, '-P', $new->port ], 'pg_upgrade');
$new->start;
wait_for($new, "SELECT system_identifier = (SELECT system_identifier FROM pg_control_system()) FROM sweeper.policy WHERE policy = 'login'",
    'policies are stamped anew');
is($new->safe_psql('postgres', "SELECT count(*) FROM sweeper.policy WHERE held_reason IS NOT NULL"), 0, 'none is held');
is($new->safe_psql('postgres', 'SELECT count(*) FROM sweeper.cleanup_event'), $events, 'the evidence is there');
is($new->safe_psql('postgres', 'SELECT count(*) FROM login'), 25, 'and so are the rows of the paused policy');
is($new->safe_psql('postgres', "SELECT sweeper.resume('login')"), '{paused}', 'resume');
wait_for($new, 'SELECT count(*) = 20 FROM login', 'swept afterwards');
my $looks = $new->safe_psql('postgres', "SELECT sweeper.resume('beat'); SELECT coalesce(max(looks), 0) FROM sweeper.stat_policy WHERE policy = 'beat'");
$looks =~ s/.*\n//;
wait_for($new, "SELECT looks > $looks + 5 FROM sweeper.stat_policy WHERE policy = 'beat'", 'it is looked at');
is($new->safe_psql('postgres', "SELECT count(*), bool_and(sweeper.is_live('beat', '1')) FROM beat"), '1|t', 'who lives by heartbeats has a grace');
is($new->safe_psql('postgres', "SELECT count(DISTINCT key), count(*) FROM sweeper.cleanup_event WHERE policy = 'login'"), '35|35', 'once each');
is($new->safe_psql('postgres', 'SELECT count(*) FROM sweeper.problem'), 0, 'no problem');
$new->stop;
done_testing();
