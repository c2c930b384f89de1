# Workers run code of one owner each: many owners, commands and databases share few of them.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main', 'session_sweeper.max_workers = 2');
sub sql { return $node->safe_psql('postgres', @_) }

# Ten owners; each has a table with a hook of its own, and sees to it that a command of it runs.
sub owners_in {
    my ($db) = @_;
    $node->safe_psql($db, q{CREATE EXTENSION session_sweeper;
        CREATE SCHEMA o; GRANT USAGE, CREATE ON SCHEMA o TO PUBLIC;
        SELECT sweeper.grant_access(('owner' || i)::regrole, 'user') FROM generate_series(1, 10) AS i});
    $node->safe_psql($db, "SET SESSION AUTHORIZATION owner$_;
        CREATE TABLE o.t$_ (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, d timestamptz NOT NULL DEFAULT now()); CREATE INDEX ON o.t$_ (d);
        CREATE FUNCTION o.hook$_(text[]) RETURNS void LANGUAGE plpgsql AS 'BEGIN PERFORM 1; END';
        SELECT FROM sweeper.register('o.t$_', deadline => 'd', on_expire => 'o.hook$_(text[])', check_every => '50 ms', start => 'now', fuse_fraction => 1)")
        for 1 .. 10;
    return;
}
sub empty { return join(' + ', map { "(SELECT count(*) FROM o.t$_)" } 1 .. 10) . ' = 0' }

sql("CREATE ROLE owner$_ LOGIN") for 1 .. 10;
sql('CREATE DATABASE second');
owners_in($_) for 'postgres', 'second';

# Rows of all of them fall due all the time, in one database, while commands of several run.
sub load {
    my ($db) = @_;
    my $file = $node->basedir . '/load.sql';
    append_to_file($file, "\\set i random(1, 10)\nINSERT INTO o.t:i DEFAULT VALUES;\n") unless -e $file;
    my $pgbench = IPC::Run::start([ 'pgbench', '-n', '-T', 1000, '-R', 80, '-f', $file, $node->connstr($db) ], '<', \undef, '>', \my $out, '2>', \my $err);
    return $pgbench;
}
for my $workers (2, 1) {
    sql("ALTER SYSTEM SET session_sweeper.max_workers = $workers; SELECT pg_reload_conf()");
    my $load = load('postgres');
    # a single worker is for sweeps alone
    for my $i ($workers > 1 ? (1 .. 10) : ()) {
        my $t = sql("SET SESSION AUTHORIZATION owner$i; SELECT sweeper.submit_sql('SELECT 1')");
        ok(wait_for($node, "SELECT finished_at IS NOT NULL FROM sweeper.task_info WHERE task = '$t'", "command of owner$i with $workers workers"),
            "$workers workers: command of owner$i while rows of all fall due");
    }
    my $events = sql('SELECT count(*) FROM sweeper.cleanup_event');
    ok(wait_for($node, "SELECT count(*) > $events + 100 FROM sweeper.cleanup_event"), "$workers workers: rows expire");
    ok($load->pumpable, 'the load lasts');
    $load->kill_kill;
    ok(wait_for($node, 'SELECT ' . empty()), "$workers workers: all rows expired");
}

# Two databases share one worker.
my @loads = map { load($_) } 'postgres', 'second';
for my $db ('postgres', 'second') {
    my $from = $node->safe_psql($db, 'SELECT count(*) FROM sweeper.cleanup_event');
    ok(wait_for($node, "SELECT count(*) > $from + 300 FROM sweeper.cleanup_event", "300 rows of $db", $db), "one worker serves $db while the other database has work");
}
$_->kill_kill for @loads;
ok(wait_for($node, 'SELECT ' . empty(), "rows of $_", $_), "all rows of $_ expired") for 'postgres', 'second';

# A worker that does not react has its place, and keeps nobody waiting for it.
sql('ALTER SYSTEM SET session_sweeper.max_workers = 3; SELECT pg_reload_conf()');
sql("INSERT INTO o.t$_ DEFAULT VALUES") for 1 .. 3;
wait_for($node, 'SELECT ' . empty());
my ($frozen) = pids($node, 'worker');
freeze($node, $frozen);
# one owner's pass may be in its hands
for my $round (1 .. 2) {
    sql("INSERT INTO o.t$_ DEFAULT VALUES") for 1 .. 10;
    ok(wait_for($node, 'SELECT (' . join(' + ', map { "(SELECT least(count(*), 1) FROM o.t$_)" } 1 .. 10) . ') <= 1'), "round $round: rows of all others expired");
}
kill 'CONT', $frozen;
ok(wait_for($node, 'SELECT ' . empty()), 'and its own when it goes on');

# The worker that is asked to make room for another database is frozen: another one makes it.
sql('ALTER SYSTEM SET session_sweeper.max_workers = 2; SELECT pg_reload_conf()');
my $two = q{SELECT count(*) = 2 FROM pg_stat_activity WHERE backend_type = 'session_sweeper worker' AND datname = 'postgres'};
wait_until(sub { sql('INSERT INTO o.t1 DEFAULT VALUES; INSERT INTO o.t2 DEFAULT VALUES'); sql($two) eq 't' }, 'two workers of one database');
wait_for($node, 'SELECT ' . empty());
$frozen = sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'session_sweeper worker' ORDER BY backend_start LIMIT 1});
freeze($node, $frozen);
$node->safe_psql('second', 'INSERT INTO o.t3 DEFAULT VALUES');
ok(wait_for($node, 'SELECT count(*) = 0 FROM o.t3', 'rows of the other database', 'second'), 'a frozen worker that should make room is not waited for');
kill 'CONT', $frozen;

# One owner has both places with code that cannot be ended: others get places all the same, and that owner no more.
sql("SET SESSION AUTHORIZATION owner4;
    CREATE FUNCTION o.hang() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(1000); RETURN OLD; END'");
sql("SET SESSION AUTHORIZATION owner4; CREATE TABLE o.deaf$_ (id int PRIMARY KEY, d timestamptz NOT NULL);
    CREATE TRIGGER hang BEFORE DELETE ON o.deaf$_ FOR EACH ROW EXECUTE FUNCTION o.hang(); INSERT INTO o.deaf$_ VALUES (1, now());
    SELECT FROM sweeper.register('o.deaf$_', deadline => 'd', start => 'now', fuse_fraction => 1)") for 1 .. 2;
my $hanging = "backend_type = 'session_sweeper worker' AND wait_event = 'PgSleep'";
ok(wait_for($node, "SELECT count(*) = 2 FROM pg_stat_activity WHERE $hanging"), 'one owner has both places');
my @deaf = split /\n/, sql("SELECT pid FROM pg_stat_activity WHERE $hanging");
kill 'STOP', @deaf; # they sleep, and hold nothing
for my $db ('postgres', 'second') {
    $node->safe_psql($db, 'INSERT INTO o.t5 DEFAULT VALUES');
    ok(wait_for($node, 'SELECT count(*) = 0 FROM o.t5', "others' rows in $db", $db), "others' rows expire in $db");
}
sql("SET SESSION AUTHORIZATION owner4; SELECT sweeper.submit_sql('SELECT 1')");
my $t = sql("SET SESSION AUTHORIZATION owner6; SELECT sweeper.submit_sql('SELECT 1')");
ok(wait_for($node, "SELECT finished_at IS NOT NULL FROM sweeper.task_info WHERE task = '$t'"), 'and so run their commands');
# both have had the time of their batch, and that to heed the cancel; what is due later for others is done
wait_for($node, "SELECT count(*) = 2 FROM pg_stat_activity WHERE $hanging AND xact_start < now() - interval '6 s'");
sql('INSERT INTO o.t4 DEFAULT VALUES');
sql('INSERT INTO o.t5 DEFAULT VALUES');
wait_for($node, 'SELECT count(*) = 0 FROM o.t5');
is(sql('SELECT count(*) FROM o.t4'), 1, 'that owner has no more workers');
is((grep { kill 0, $_ } @deaf), 2, 'although both are still there');
kill 'CONT', @deaf;
ok(wait_for($node, 'SELECT count(*) = 0 FROM o.t4'), 'and has when they have gone');
sql("SELECT sweeper.unregister('o.deaf$_')") for 1 .. 2;

# The coordinator reads deadlines that an index has computed; what else the owner has in indexes of that table is not run there.
sql(q{CREATE FUNCTION o.spy() RETURNS int IMMUTABLE LANGUAGE plpgsql SET search_path = pg_catalog AS $$
    BEGIN RAISE LOG 'spied on by %', (SELECT backend_type FROM pg_stat_activity WHERE pid = pg_backend_pid()); RETURN 1; END $$;
    CREATE TABLE o.by_row (id int PRIMARY KEY, seen timestamptz NOT NULL, ttl_s int NOT NULL);
    CREATE INDEX by_row_a ON o.by_row ((id + o.spy()), seen);
    CREATE INDEX by_row_b ON o.by_row (seen) WHERE id > o.spy();
    CREATE INDEX by_row_c ON o.by_row (((seen AT TIME ZONE 'UTC') + coalesce(make_interval(secs => ttl_s), '1 h')));
    INSERT INTO o.by_row SELECT i, now(), 86400 FROM generate_series(1, 10) AS i;
    SELECT FROM sweeper.register('o.by_row', last_seen => 'seen', ttl_column => 'ttl_s', ttl => '1 h', start => 'now')});
wait_for($node, q{SELECT next_due IS NOT NULL FROM sweeper.policy_status WHERE policy = 'o.by_row'}, 'the coordinator has read the index');
my $log = slurp_file($node->logfile);
like($log, qr/spied on by client backend/, 'code of an index can be seen to run');
unlike($log, qr/spied on by session_sweeper coordinator/, 'the coordinator runs none');
$node->stop;
done_testing();
