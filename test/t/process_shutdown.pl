# Every kind of shutdown under load: in time, and nothing is done by halves.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use Sweeper;

my $node = sweeper_node('main');
$node->safe_psql('postgres', 'CREATE EXTENSION session_sweeper');
my ($dead, $live) = (30000, 1000);
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
load_table($node, 'other', 1000, 10);
$node->safe_psql('postgres', "SELECT sweeper.register('other', deadline => 'd', start => 'now')");
wait_for($node, 'SELECT NOT EXISTS (SELECT FROM other WHERE id <= 1000)', 'another policy is swept');
wait_for($node, "SELECT EXISTS (SELECT FROM sweeper.failed_row WHERE policy = 'stuck' AND sqlstate = '57014')
    OR EXISTS (SELECT FROM sweeper.pass WHERE policy = 'stuck' AND sqlstate = '57014')", 'the time-out is recorded');
$node->safe_psql('postgres', "SELECT sweeper.unregister('stuck')");

# A worker that the postmaster has not begun when the server is to stop is never begun: nothing waits for it.
$node->append_conf('postgresql.conf', "session_sweeper.shutdown_timeout = '60 s'\nsession_sweeper.worker_idle_timeout = '1 s'");
$node->restart;
wait_for($node, "SELECT state = 'waiting' FROM sweeper.policy_status WHERE policy = 'other'", 'a policy waits');
wait_for($node, "SELECT NOT EXISTS (SELECT FROM sweeper._process() WHERE kind = 'worker')", 'without a worker');
my $client = $node->background_psql('postgres');
my $postmaster = (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];
kill 'STOP', $postmaster;
$client->query_safe('INSERT INTO other SELECT -1, now()');
wait_until(sub { $client->query_safe("SELECT EXISTS (SELECT FROM sweeper._process() WHERE kind = 'worker' AND state = 'starting')") eq 't' }, 'a worker is to begin');
kill 'INT', $postmaster;
kill 'CONT', $postmaster;
eval { $client->quit };
{
    local $ENV{PGCTLTIMEOUT} = 20;
    ok($node->stop('fast', fail_ok => 1) || !-e $node->data_dir . '/postmaster.pid', 'the server stops without it');
}
done_testing();
