# Code of a table's owner that ends the worker it runs in: its rows are found,
# recorded and left alone, and their neighbours go.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main', 'session_sweeper.max_workers = 2');
$node->safe_psql('postgres', q{
    CREATE EXTENSION session_sweeper;
    -- the first is heeded after the batch, a later one at once
    CREATE FUNCTION die() RETURNS void LANGUAGE plpgsql AS $$ BEGIN
        LOOP PERFORM pg_terminate_backend(pg_backend_pid()), pg_sleep(0.02); END LOOP; END $$;
    CREATE FUNCTION dying() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM public.die(); RETURN OLD; END $$;
    CREATE FUNCTION stubborn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        LOOP BEGIN PERFORM pg_sleep(1000); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END $$;
    CREATE FUNCTION fatal() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        PERFORM set_config('exit_on_error', 'on', false); RAISE EXCEPTION 'no'; END $$});
my $limits = "fuse_min => 100000, soft_time_limit => '1 s', hard_time_limit => '1 s'";

sub failed {
    my ($policy) = @_;
    return $node->safe_psql('postgres', "SELECT string_agg(concat_ws(' ', key, state, class, sqlstate), ', ' ORDER BY key::int)
        FROM sweeper.failed_row WHERE policy = '$policy'");
}

# A row, or two, among many; by their tids and as a range of deadlines.
for my $how ([ 'dying', '7' ], [ 'fatal', '7, 3001' ], [ 'stubborn', '7' ]) {
    my ($trigger, $rows) = @$how;
    load_table($node, $trigger, 4000, 10);
    $node->safe_psql('postgres', "UPDATE $trigger SET d = now() - interval '1 h' WHERE id = 7;
        CREATE TRIGGER ends BEFORE DELETE ON $trigger FOR EACH ROW WHEN (OLD.id IN ($rows)) EXECUTE FUNCTION $trigger();
        SELECT sweeper.register('$trigger', deadline => 'd', start => 'now', backlog_rate => 0, max_retries => 100, $limits)");
    my $n = 1 + ($rows =~ tr/,//);
    wait_for($node, "SELECT count(*) = 10 + $n FROM $trigger", "$trigger: all others go");
    wait_for($node, "SELECT count(*) = $n FROM sweeper.failed_row WHERE policy = '$trigger' AND state = 'quarantined'", "$trigger: it is left alone");
    is(failed($trigger), join(', ', map { "$_ quarantined error 57P01" } split /, /, $rows), "$trigger: recorded");
    # later rows go together again
    $node->safe_psql('postgres', "INSERT INTO $trigger SELECT i, now() FROM generate_series(10001, 11000) AS i");
    wait_for($node, "SELECT count(*) = 10 + $n FROM $trigger", "$trigger: and later rows");
    $node->safe_psql('postgres', "ALTER TABLE $trigger DISABLE TRIGGER USER; SELECT sweeper.resume('$trigger')");
    wait_for($node, "SELECT count(*) = 10 FROM $trigger", "$trigger: once mended they go");
    is($node->safe_psql('postgres', "SELECT count(*), count(DISTINCT key) FROM sweeper.cleanup_event WHERE policy = '$trigger'"), '5000|5000', "$trigger: exactly once");
    $node->safe_psql('postgres', "SELECT sweeper.unregister('$trigger')");
}

# is_alive, asked about one row.
load_table($node, 'asked', 20, 10);
$node->safe_psql('postgres', q{
    CREATE FUNCTION alive(key text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
        IF key = '7' THEN PERFORM public.die(); END IF; RETURN false; END $$;
    SELECT sweeper.register('asked', deadline => 'd', ttl => '1 h', is_alive => 'alive(text)', start => 'now', max_retries => 100, } . $limits . ')');
wait_for($node, "SELECT count(*) = 11 FROM asked", 'is_alive: all others go');
wait_for($node, "SELECT count(*) = 1 FROM sweeper.failed_row WHERE policy = 'asked' AND state = 'quarantined'", 'is_alive: unknown');
is(failed('asked'), '7 quarantined error 57P01', 'is_alive: recorded');

# Code that asks once for its end: of one row, and of a call for many.  Two of them before all others, which go all the same.
$node->safe_psql('postgres', q{
    CREATE FUNCTION alive_once(key text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
        IF key IN ('7', '9') THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF; RETURN false; END $$;
    CREATE FUNCTION alive_list(keys text[]) RETURNS boolean[] LANGUAGE sql AS $$
        SELECT array_agg(public.alive_once(k) ORDER BY n) FROM unnest(keys) WITH ORDINALITY AS u (k, n) $$});
for my $how ([ 'once', 'text' ], [ 'list', 'text[]' ]) {
    my ($name, $type) = @$how;
    load_table($node, $name, 100, 10);
    $node->safe_psql('postgres', "UPDATE $name SET d = now() - interval '1 h' WHERE id IN (7, 9);
        SELECT sweeper.register('$name', deadline => 'd', ttl => '1 h', is_alive => 'alive_$name($type)', start => 'now', max_retries => 100, $limits)");
    wait_for($node, "SELECT count(*) = 12 FROM $name", "$name: all others go");
    wait_for($node, "SELECT count(*) = 2 FROM sweeper.failed_row WHERE policy = '$name' AND state = 'quarantined'", "$name: quarantined");
    is(failed($name), '7 quarantined error 57P01, 9 quarantined error 57P01', "is_alive($type) that asks once for the end of its worker: recorded");
    $node->safe_psql('postgres', "SELECT sweeper.unregister('$name')");
}

# No row in particular, and every row: the policy backs off.
load_table($node, 'sought', 20, 10);
$node->safe_psql('postgres', q{
    CREATE FUNCTION seek(int) RETURNS boolean LANGUAGE plpgsql STABLE AS $$ BEGIN
        IF (SELECT backend_type = 'session_sweeper worker' FROM pg_stat_activity WHERE pid = pg_backend_pid()) THEN PERFORM public.die(); END IF;
        RETURN true; END $$;
    SELECT sweeper.register('sought', deadline => 'd', filter => 'seek(id)', start => 'now', } . $limits . ')');
wait_for($node, "SELECT count(*) = 1 FROM sweeper.problem WHERE policy = 'sought' AND problem = 'failing' AND detail LIKE '57P01 %'", 'a filter: failing');
load_table($node, 'all_die', 100, 10);
$node->safe_psql('postgres', "CREATE TRIGGER ends BEFORE DELETE ON all_die FOR EACH ROW EXECUTE FUNCTION dying();
    SELECT sweeper.register('all_die', deadline => 'd', start => 'now', $limits)");
wait_for($node, "SELECT count(*) = 1 FROM sweeper.problem WHERE policy = 'all_die' AND problem = 'failing' AND detail LIKE '57P01 %'", 'every row: failing');

# The owner of a database may set it for everyone: an error of a row ends nothing.
$node->safe_psql('postgres', 'CREATE DATABASE strict; ALTER DATABASE strict SET exit_on_error = on');
$node->safe_psql('strict', q{
    CREATE EXTENSION session_sweeper;
    CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$});
load_table($node, 'login', 200, 10, 'strict');
my $log = -s $node->logfile;
$node->safe_psql('strict', "CREATE TRIGGER no BEFORE DELETE ON login FOR EACH ROW WHEN (OLD.id = 7) EXECUTE FUNCTION no();
    SELECT sweeper.register('login', deadline => 'd', start => 'now')");
wait_for($node, 'SELECT count(*) = 11 FROM login', 'all others go', 'strict');
wait_for($node, "SELECT count(*) = 1 FROM sweeper.failed_row WHERE key = '7' AND sqlstate = 'P0001'", 'the row is recorded', 'strict');
unlike(slurp_file($node->logfile, $log), qr/FATAL:  no/, 'no worker ends by it');

$node->stop;
done_testing();
