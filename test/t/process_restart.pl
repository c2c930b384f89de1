# Processes come back, and nothing is lost or done twice, whoever is ended.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use Sweeper;

my $node = sweeper_node('main');
$node->safe_psql('postgres', 'CREATE EXTENSION session_sweeper');
wait_for($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'session_sweeper coordinator'");
is(scalar(pids($node, 'launcher')), 1, 'one launcher');

# terminate each kind again and again during one large pass
my ($dead, $live) = (100000, 20000);
load_table($node, 'busy', $dead, $live);
$node->safe_psql('postgres', "SELECT sweeper.register('busy', deadline => 'd', start => 'now', backlog_rate => 500,
    max_workers => 4, batch_size => 50, check_every => '100 ms')");
my @kinds = qw(worker coordinator launcher);
my %killed = map { $_ => 0 } @kinds;
for my $round (1 .. 200) {
    my $kind = $kinds[ $round % 3 ];
    last if !grep { $killed{$_} < 20 } @kinds;
    wait_for($node, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'session_sweeper $kind')
        OR NOT EXISTS (SELECT FROM busy WHERE id <= $dead)");
    $killed{$kind}++ if kill_process($node, $kind, 'TERM');
}
cmp_ok($killed{$_}, '>=', 20, "$_ ended again and again") for @kinds;
$node->safe_psql('postgres', "SELECT sweeper.alter_policy('busy', backlog_rate => 0, batch_size => 0)");
wait_for($node, "SELECT NOT EXISTS (SELECT FROM busy WHERE id <= $dead)", 'all dead rows are gone');
is(exactly_once($node, 'busy', $dead, $live), '0|0|0|0', 'exactly once, after SIGTERM');

($dead, $live) = (60000, 20000);
# a clean restart in the middle, and settings that are reloaded
load_table($node, 'again', $dead, $live);
$node->safe_psql('postgres', "SELECT sweeper.register('again', deadline => 'd', start => 'now', backlog_rate => 0, batch_size => 20)");
wait_for($node, 'SELECT EXISTS (SELECT FROM sweeper.stat_progress)');
$node->restart;
wait_for($node, "SELECT NOT EXISTS (SELECT FROM again WHERE id <= $dead)", 'all dead rows are gone');
is(exactly_once($node, 'again', $dead, $live), '0|0|0|0', 'exactly once, over a restart');

$node->append_conf('postgresql.conf', 'session_sweeper.enabled = off');
$node->reload;
wait_for($node, "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'session_sweeper coordinator')");
is($node->safe_psql('postgres', "SELECT problem FROM sweeper.problem"), 'disabled', 'disabled is a problem');
$node->append_conf('postgresql.conf', 'session_sweeper.enabled = on');
$node->reload;
wait_for($node, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'session_sweeper coordinator')");
wait_for($node, 'SELECT NOT EXISTS (SELECT FROM sweeper.problem)', 'healthy again');

# while the default is read-only, policies rest, and say so
$node->safe_psql('postgres', "ALTER SYSTEM SET default_transaction_read_only = on");
$node->reload;
wait_for($node, "SELECT bool_and(state = 'read-only') FROM sweeper.policy_status WHERE policy <> 'sweeper.usage_event'");
$node->safe_psql('postgres', "ALTER SYSTEM RESET default_transaction_read_only");
$node->reload;
wait_for($node, "SELECT bool_and(state = 'waiting') FROM sweeper.policy_status WHERE policy <> 'sweeper.usage_event'");

# a coordinator that begins knows what a policy waits for that a worker must look at; another window counts at once
my $far = $node->safe_psql('postgres', "SELECT to_char(now() AT TIME ZONE 'UTC' + interval '3 days', 'Dy')");
sub coordinator_follows {
    my ($pid) = pids($node, 'coordinator');
    $node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
    wait_for($node, "SELECT EXISTS (SELECT FROM sweeper._process() WHERE kind = 'coordinator' AND pid <> $pid)", 'another coordinator');
    return;
}
$node->safe_psql('postgres', qq{CREATE TABLE shut (id int PRIMARY KEY, d timestamptz); INSERT INTO shut VALUES (1, now());
    CREATE TABLE other (id int PRIMARY KEY, d timestamptz); SELECT sweeper.register('other', deadline => 'd', check_every => '0');
    SELECT sweeper.register('shut', deadline => 'd', filter => 'id > 0', check_every => '1 h', start => 'now', maintenance_window => '$far 00:00-24:00 UTC')});
wait_for($node, "SELECT state = 'outside window' FROM sweeper.policy_status WHERE policy = 'shut'", 'the window is closed');
coordinator_follows();
$node->safe_psql('postgres', "CALL sweeper.sweep('other')");
is($node->safe_psql('postgres', "SELECT state FROM sweeper.policy_status WHERE policy = 'shut'"), 'outside window', 'the next coordinator knows that');
$node->safe_psql('postgres', "SELECT sweeper.alter_policy('shut', maintenance_window => '00:00-24:00 UTC')");
wait_for($node, 'SELECT count(*) = 0 FROM shut', 'the window is open');

# CALL sweep gets its pass, also if its coordinator leaves in the middle
$node->safe_psql('postgres', q{CREATE FUNCTION at_gate() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN OLD; END';
    CREATE TRIGGER at_gate BEFORE DELETE ON other FOR EACH ROW EXECUTE FUNCTION at_gate(); CREATE TABLE answer (turn int, pass bigint)});
for my $turn (1 .. 3) {
    my ($gate, $caller) = map { $node->background_psql('postgres') } 1 .. 2;
    $gate->query_safe("INSERT INTO other VALUES ($turn, now()); SELECT pg_advisory_lock(1)");
    $caller->query_until(qr/called/, "\\echo called\nDO 'DECLARE p bigint; BEGIN CALL sweeper.sweep(''other'', pass => p); INSERT INTO answer VALUES ($turn, p); END';\n");
    wait_for($node, "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", 'its pass is in the middle of a row');
    $node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM sweeper._process() WHERE kind = 'coordinator'");
    $gate->quit;
    wait_for($node, "SELECT EXISTS (SELECT FROM answer WHERE turn = $turn)", 'CALL sweep is answered');
    is($node->safe_psql('postgres', "SELECT pass > 0 FROM answer WHERE turn = $turn"), 't', 'with its pass');
    $caller->quit;
}

# DROP EXTENSION during a pass waits for a batch, and CREATE starts anew
load_table($node, 'dropped', $dead, $live);
$node->safe_psql('postgres', "SELECT sweeper.register('dropped', deadline => 'd', start => 'now', backlog_rate => 0, batch_size => 20)");
wait_for($node, 'SELECT EXISTS (SELECT FROM sweeper.stat_progress)');
$node->safe_psql('postgres', 'DROP EXTENSION session_sweeper');
wait_for($node, "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'session_sweeper coordinator')");
$node->safe_psql('postgres', 'CREATE EXTENSION session_sweeper');
wait_for($node, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'session_sweeper coordinator')");

# every kind of shutdown under load: in time, and nothing is done by halves
($dead, $live) = (100000, 1000);
for my $mode (qw(smart fast immediate)) {
    my $table = "t_$mode";
    load_table($node, $table, $dead, $live);
    $node->safe_psql('postgres', "SELECT sweeper.register('$table', deadline => 'd', start => 'now', backlog_rate => 0,
        batch_size => 10, check_every => '100 ms')");
    wait_for($node, "SELECT EXISTS (SELECT FROM sweeper.stat_progress WHERE policy = '$table' AND batches > 2)");
    my $start = time;
    $node->stop($mode);
    cmp_ok(time - $start, '<', 5, "$mode shutdown within shutdown_timeout + 2 s");
    $node->start;
    wait_for($node, "SELECT NOT EXISTS (SELECT FROM $table WHERE id <= $dead)", 'all dead rows are gone');
    is(exactly_once($node, $table, $dead, $live), '0|0|0|0', "exactly once, over a $mode shutdown");
}

# a batch that does not end by itself is rolled back at the second SIGTERM
$node->safe_psql('postgres', "CREATE TABLE stuck (id int PRIMARY KEY, d timestamptz);
    INSERT INTO stuck VALUES (1, now());
    CREATE FUNCTION hang() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(600); RETURN OLD; END';
    CREATE TRIGGER hang BEFORE DELETE ON stuck FOR EACH ROW EXECUTE FUNCTION hang();
    SELECT sweeper.register('stuck', deadline => 'd', start => 'now', soft_time_limit => '1 s', hard_time_limit => '10 s')");
wait_for($node, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'session_sweeper worker' AND wait_event = 'PgSleep')");
my $start = time;
$node->stop('fast');
cmp_ok(time - $start, '<', 8, 'fast shutdown with a hanging trigger');
$node->start;
is($node->safe_psql('postgres', 'SELECT count(*) FROM stuck'), 1, 'its row is still there');
my ($outage) = slurp_file($node->data_dir . '/pg_stat/session_sweeper.starts') =~ /^start \d+ outage (\d+) crash 0 jump 0\n\z/m;
cmp_ok($outage, '>', 1_000_000, 'the time that the stop took is no service');

# the hard limit ends it, and others are not held up meanwhile
$node->safe_psql('postgres', "SELECT sweeper.alter_policy('stuck', hard_time_limit => '2 s')");
load_table($node, 'beside', 1000, 10);
$node->safe_psql('postgres', "SELECT sweeper.register('beside', deadline => 'd', start => 'now')");
wait_for($node, 'SELECT NOT EXISTS (SELECT FROM beside WHERE id <= 1000)', 'another policy is swept');
wait_for($node, "SELECT EXISTS (SELECT FROM sweeper.failed_row WHERE policy = 'stuck' AND sqlstate = '57014')
    OR EXISTS (SELECT FROM sweeper.pass WHERE policy = 'stuck' AND sqlstate = '57014')", 'the time-out is recorded');
$node->safe_psql('postgres', "SELECT sweeper.unregister('stuck')");

# A worker that the postmaster has not begun when the server is to stop is never begun: nothing waits for it.
$node->append_conf('postgresql.conf', "session_sweeper.shutdown_timeout = '60 s'\nsession_sweeper.worker_idle_timeout = '1 s'");
$node->restart;
wait_for($node, "SELECT state = 'waiting' FROM sweeper.policy_status WHERE policy = 'beside'", 'a policy waits');
wait_for($node, "SELECT NOT EXISTS (SELECT FROM sweeper._process() WHERE kind = 'worker')", 'without a worker');
my $client = $node->background_psql('postgres');
my $postmaster = (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];
kill 'STOP', $postmaster;
$client->query_safe('INSERT INTO beside SELECT -1, now()');
wait_until(sub { $client->query_safe("SELECT EXISTS (SELECT FROM sweeper._process() WHERE kind = 'worker' AND state = 'starting')") eq 't' }, 'a worker is to begin');
kill 'INT', $postmaster;
kill 'CONT', $postmaster;
eval { $client->quit };
{
    local $ENV{PGCTLTIMEOUT} = 20;
    ok($node->stop('fast', fail_ok => 1) || !-e $node->data_dir . '/postmaster.pid', 'the server stops without it');
}
done_testing();
