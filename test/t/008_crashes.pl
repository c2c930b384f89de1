# Crashes, again and again: nothing is lost or done twice, and nobody outlives them.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use Sweeper;

my $node = sweeper_node('main', 'log_min_messages = log');
$node->safe_psql('postgres', 'CREATE EXTENSION session_sweeper');

# kill -9 of one process, which is a crash, and wait for the recovery
sub crash {
    my ($kind) = @_;
    my $offset = -s $node->logfile;
    return 0 unless kill_process($node, $kind, 'KILL');
    $node->wait_for_log(qr/database system is ready to accept connections/, $offset);
    return wait_for($node, 'SELECT true', 'the server is back');
}

# each kind, 20 times, under load
load_table($node, 'crashed', 0, 500);
$node->safe_psql('postgres', "SELECT sweeper.register('crashed', deadline => 'd', start => 'now', backlog_rate => 0,
    max_workers => 4, batch_size => 50, check_every => '100 ms', fuse_fraction => 1)");
my ($dead, %killed) = (0);
for my $round (0 .. 59) {
    my $kind = qw(worker coordinator launcher)[ $round % 3 ];
    $node->safe_psql('postgres', "INSERT INTO crashed SELECT 1000000 + $dead + i, now() - interval '1 s' FROM generate_series(1, 1000) AS i");
    $dead += 1000;
    # while it works, if it is the launcher's turn not only while it starts others
    wait_for($node, $kind eq 'worker'
        ? "SELECT EXISTS (SELECT FROM sweeper.stat_process WHERE backend_type = 'session_sweeper worker')"
        : "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'session_sweeper $kind')");
    $killed{$kind} += crash($kind);
}
cmp_ok($killed{$_} // 0, '>=', 20, "$_ killed") for qw(worker coordinator launcher);
wait_for($node, 'SELECT NOT EXISTS (SELECT FROM crashed WHERE id > 1000000)', 'all dead rows are gone');
is($node->safe_psql('postgres', "SELECT (SELECT count(*) FROM crashed), count(*), count(DISTINCT key) FROM sweeper.cleanup_event
    WHERE policy = 'crashed'"), "500|$dead|$dead", 'exactly once, after 60 crashes');
wait_for($node, "SELECT NOT EXISTS (SELECT FROM sweeper.pass WHERE status = 'running')", 'no pass is left open');
is($node->safe_psql('postgres', "SELECT sum(expired) FROM sweeper.pass WHERE policy = 'crashed'"), $dead,
    'abandoned passes were closed from their events');

# Crashes with a period below the time to live: each gives grace, but a session
# that was found dead under one start of service has had its own.
my $ttl = 4;
$node->safe_psql('postgres', "CREATE TABLE lease (id int PRIMARY KEY, seen timestamptz);
    SELECT sweeper.register('lease', last_seen => 'seen', ttl => '$ttl s', check_every => '100 ms', fuse_fraction => 1);
    INSERT INTO lease VALUES (1, now()), (2, now())");
my ($start, $crashes, $gone) = (time, 0);
while (!$gone && time - $start < 10 * $ttl) {
    $crashes += crash('coordinator');
    # the application keeps number 2 alive; service lasts for less than the ttl
    $node->safe_psql('postgres', 'UPDATE lease SET seen = now() WHERE id = 2');
    wait_for($node, "SELECT clock_timestamp() > service_start + interval '1500 ms' AND EXISTS (SELECT FROM sweeper.stat_policy
        WHERE policy = 'lease' AND looks > 0) FROM sweeper._cluster()");
    $gone = $node->safe_psql('postgres', 'SELECT count(*) FROM lease WHERE id = 1') eq '0';
}
ok($gone, "gone in spite of $crashes crashes");
cmp_ok($crashes, '>=', 3, 'there were some');
is($node->safe_psql('postgres', "SELECT e.cleaned_at >= e.last_seen + interval '$ttl s', e.cleaned_at < e.last_seen + 3 * interval '$ttl s'
    FROM sweeper.cleanup_event AS e WHERE policy = 'lease'"), 't|t', 'not before its time, and within the bound');
is($node->safe_psql('postgres', 'SELECT id FROM lease'), '2', 'who was alive lives');

# after a crash nothing dies that could not be refreshed meanwhile
$node->safe_psql('postgres', "UPDATE lease SET seen = now()");
$node->stop('immediate');
$node->start;
wait_for($node, "SELECT (SELECT looks FROM sweeper.stat_policy WHERE policy = 'lease') > 5");
wait_for($node, 'SELECT NOT EXISTS (SELECT FROM lease)', 'it dies at last');
is($node->safe_psql('postgres', "SELECT e.cleaned_at >= c.service_start + interval '$ttl s' FROM sweeper._cluster() AS c, sweeper.cleanup_event AS e
    WHERE e.policy = 'lease' AND e.key = '2'"), 't', 'one ttl after service began');

# nobody looked for longer than max_gap: a human decides
load_table($node, 'old', 10, 10);
$node->safe_psql('postgres', "SELECT sweeper.register('old', deadline => 'd', start => 'paused'); ALTER SYSTEM SET session_sweeper.enabled = off");
$node->reload;
wait_for($node, "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'session_sweeper coordinator')");
$node->safe_psql('postgres', "UPDATE sweeper.service_mark SET looked_at = now() - interval '4 days';
    UPDATE sweeper.policy SET paused_at = NULL; ALTER SYSTEM RESET session_sweeper.enabled");
$node->reload;
wait_for($node, "SELECT held_reason = 'long gap' FROM sweeper.policy WHERE policy = 'old'", 'it is held');
is($node->safe_psql('postgres', "SELECT problem FROM sweeper.problem WHERE policy = 'old'"), 'held: long gap', 'and that is a problem');
is($node->safe_psql('postgres', 'SELECT count(*) FROM old'), 20, 'nothing was removed');
is($node->safe_psql('postgres', "SELECT sweeper.resume('old')"), '{"long gap"}', 'resume');
wait_for($node, 'SELECT count(*) = 10 FROM old', 'then it is swept');
$node->stop;
done_testing();
