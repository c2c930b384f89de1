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

# kill -9 of each kind, 20 times, in the middle of a pass: two workers, and batches
# that take a moment, so that a kill meets some of them
my ($rounds, $dead, $live) = (20, 60000, 500);
load_table($node, 'crashed', $dead, $live);
$node->safe_psql('postgres', "CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.05); RETURN NULL; END';
    CREATE TRIGGER linger AFTER DELETE ON crashed FOR EACH STATEMENT EXECUTE FUNCTION linger();
    SELECT sweeper.register('crashed', deadline => 'd', start => 'now', backlog_rate => 0, max_workers => 2, batch_size => 10)");
my %killed = map { $_ => 0 } qw(worker coordinator launcher);
for my $round (1 .. $rounds) {
    for my $kind (sort keys %killed) {
        wait_for($node, "SELECT EXISTS (SELECT FROM sweeper.stat_progress WHERE policy = 'crashed' AND batches > 1)
            AND EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'session_sweeper $kind')", "a $kind is at work");
        $killed{$kind} += crash($node, $kind);
    }
}
is($killed{$_}, $rounds, "$_ killed $rounds times") for sort keys %killed;
is($node->safe_psql('postgres', "SELECT EXISTS (SELECT FROM crashed WHERE id <= $dead)"), 't', 'under load until the last');
$node->safe_psql('postgres', "DROP TRIGGER linger ON crashed; SELECT sweeper.alter_policy('crashed', batch_size => 0)");
wait_for($node, "SELECT NOT EXISTS (SELECT FROM crashed WHERE id <= $dead)", 'all dead rows are gone');
is(exactly_once($node, 'crashed', $dead, $live), '0|0|0|0', 'exactly once');
wait_for($node, "SELECT NOT EXISTS (SELECT FROM sweeper.pass WHERE status = 'running')", 'no pass is left open');
is($node->safe_psql('postgres', "SELECT sum(expired) FROM sweeper.pass WHERE policy = 'crashed'"), $dead,
    'abandoned passes were closed from their events');

# Crashes with a period far below the time to live: each gives grace, yet in no life
# of the server is there time enough for one.  Service adds up.
my $ttl = 4;
$node->safe_psql('postgres', "CREATE TABLE lease (id int PRIMARY KEY, seen timestamptz);
    SELECT sweeper.register('lease', last_seen => 'seen', ttl => '$ttl s', check_every => '100 ms', fuse_fraction => 1);
    INSERT INTO lease VALUES (1, now()), (2, now())");
my ($start, $crashes, $gone) = (time, 0);
while (!$gone && time - $start < 10 * $ttl) {
    $crashes += crash($node, 'coordinator');
    # the application keeps number 2 alive; service lasts for less than the ttl
    $node->safe_psql('postgres', 'UPDATE lease SET seen = now() WHERE id = 2');
    wait_for($node, "SELECT clock_timestamp() > service_start + interval '800 ms' AND EXISTS (SELECT FROM sweeper.stat_policy
        WHERE policy = 'lease' AND looks > 0) FROM sweeper._cluster()");
    $gone = $node->safe_psql('postgres', 'SELECT count(*) FROM lease WHERE id = 1') eq '0';
}
ok($gone, "gone in spite of $crashes crashes");
cmp_ok($crashes, '>=', 3, 'there were some');
is($node->safe_psql('postgres', "SELECT e.cleaned_at >= e.last_seen + interval '$ttl s' FROM sweeper.cleanup_event AS e WHERE policy = 'lease'"),
    't', 'not before its time');
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
$node->restart;    # its memory knows better
wait_for($node, "SELECT held_reason = 'long gap' FROM sweeper.policy WHERE policy = 'old'", 'it is held');
is($node->safe_psql('postgres', "SELECT problem FROM sweeper.problem WHERE policy = 'old'"), 'held: long gap', 'and that is a problem');
is($node->safe_psql('postgres', 'SELECT count(*) FROM old'), 20, 'nothing was removed');
is($node->safe_psql('postgres', "SELECT sweeper.resume('old')"), '{"long gap"}', 'resume');
wait_for($node, 'SELECT count(*) = 10 FROM old', 'then it is swept');
$node->stop;
done_testing();
