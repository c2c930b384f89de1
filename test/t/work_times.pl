# Tasks that wait for their time: no worker has one before, and one that waits has it soon after; claims by priority beside an
# old snapshot.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main', 'autovacuum = off', 'jit = off');
sub sql { return $node->safe_psql('postgres', @_) }
sub client { return $node->background_psql('postgres', on_error_stop => 0) }
sql('CREATE EXTENSION session_sweeper');
my $worker = sql(q{SELECT sweeper.register_worker('w', ttl => '1 day')});
sql("SELECT sweeper.register_job('$worker', 'r', 'c', 'n')");

# a worker that waits
my @late;
for my $round (1 .. 5) {
    my $task = sql(q{SELECT sweeper.submit('r', 'c', 'n', run_at => clock_timestamp() + interval '700 ms')});
    is(sql("SELECT count(*) FROM sweeper.claim('$worker')"), 0, 'not before its time');
    like(sql("CALL sweeper.claim_wait('$worker', '60 s')"), qr/^$task\|/, 'a worker that waits has it');
    push @late, sql("SELECT 1000 * extract(epoch FROM claimed_at - created_at) - 700 FROM sweeper.task WHERE task = '$task'");
}
my @sorted = sort { $a <=> $b } @late;
cmp_ok($sorted[0], '>=', 0, "never too early: @late ms");
cmp_ok($sorted[2], '<', 100, 'and not late, as a rule');

# many that are due together, and one that another session holds
sql(q{SELECT count(*) FROM sweeper.submit_many('r', 'c', 'n', array_fill('1'::jsonb, ARRAY[2500]), run_at => clock_timestamp() + interval '1 s')});
my $held = sql(q{SELECT sweeper.submit('r', 'c', 'n', '"held"', run_at => clock_timestamp() + interval '1 s')});
my $holder = client();
$holder->query_safe("BEGIN; SELECT FROM sweeper.task WHERE task = '$held' FOR UPDATE");
wait_for($node, q{SELECT count(*) = 2500 FROM sweeper.task WHERE status = 'enqueued'});
is(sql("SELECT status FROM sweeper.task WHERE task = '$held'"), 'allocated', 'one that is held waits');
$holder->query_safe('COMMIT');
wait_for($node, "SELECT status = 'enqueued' FROM sweeper.task WHERE task = '$held'");
is(sql("SELECT sum(n) FROM (SELECT count(*) AS n FROM generate_series(1, 3) AS i, sweeper.claim('$worker', 1000 + 0 * i)) AS c"), 2501, 'all of them come');

# times outlive a restart and a crash
my @tasks = map { sql("SELECT sweeper.submit('r', 'c', 'n', run_at => clock_timestamp() + interval '2 s')") } 1 .. 2;
$node->restart;
like(sql("CALL sweeper.claim_wait('$worker', '60 s')"), qr/^$tasks[0]\|/, 'after a restart');
$node->stop('immediate');
$node->start;
like(sql("CALL sweeper.claim_wait('$worker', '60 s')"), qr/^$tasks[1]\|/, 'after a crash');

# an old snapshot keeps the entries of tasks of two priorities: claims of both skip them
my $snapshot = client();
$snapshot->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
sql("SELECT count(*) FROM sweeper.submit_many('r', 'c', 'n', array_fill('1'::jsonb, ARRAY[10000]), priority => $_)") for 0, 5;
is(sql("SELECT count(*) FROM generate_series(1, 20) AS i, sweeper.claim('$worker', 1000 + 0 * i)"), 20000, 'many tasks of two priorities are claimed');
sql('SELECT pg_sleep(0.15)');
sql("SELECT count(*) FROM sweeper.claim('$worker')") for 1 .. 2;
sub buffers {
    my ($line) = sql("EXPLAIN (ANALYZE, BUFFERS) SELECT count(*) FROM sweeper.claim('$worker')") =~ /Buffers: shared (.*)/;
    my $sum = 0;
    $sum += $1 while $line =~ /(?:hit|read)=(\d+)/g;
    return $sum;
}
buffers();
my $few = buffers();
cmp_ok($few, '<', 400, "a claim does not read the entries of those: $few buffers");
my ($low, $high) = map { sql("SELECT sweeper.submit('r', 'c', 'n', priority => $_)") } 0, 5;
is(sql("SELECT string_agg(task::text, ' ') FROM sweeper.claim('$worker', 2)"), "$high $low", 'the higher priority first');
my $slow = client();
$slow->query_safe('BEGIN');
$high = $slow->query_safe(q{SELECT sweeper.submit('r', 'c', 'n', priority => 5)});
sql('SELECT pg_sleep(0.15)');
is(sql("SELECT count(*) FROM sweeper.claim('$worker')"), 0, 'what is not committed cannot be claimed');
$slow->query_safe('COMMIT');
is(sql("SELECT task FROM sweeper.claim('$worker')"), $high, 'a task of a priority that was submitted long before its commit is found');
$_->quit for $snapshot, $slow, $holder;

# very many are over their time, or lose their worker: 1,000 at once, and the others soon
sql(q{SELECT sweeper.create_job('r', 'c', 'timed', max_attempts => 1, timeout => '1 s')});
my $second = sql(q{SELECT sweeper.register_worker('second')});
sql("SELECT sweeper.register_job('$second', 'r', 'c', name) FROM unnest(ARRAY['timed'] || ARRAY(SELECT 'many ' || i FROM generate_series(1, 2500) AS i)) AS name");
sql(q{SELECT count(*) FROM sweeper.submit_many('r', 'c', 'timed', array_fill('1'::jsonb, ARRAY[2500]))});
is(sql("SELECT sum(n) FROM (SELECT count(*) AS n FROM generate_series(1, 3) AS i, sweeper.claim('$second', 1000 + 0 * i)) AS c"), 2500, 'tasks that will be over their time');
wait_for($node, q{SELECT count(*) = 2500 FROM sweeper.task JOIN sweeper.job USING (job) WHERE name = 'timed' AND task.status = 'failed' AND error ~ 'No progress'});
my $had = sql("SELECT count(*) FROM sweeper.task WHERE worker = '$worker' AND status = 'claimed'");
is(sql("BEGIN; SELECT sweeper.release('$worker'), sweeper.release('$second'); SELECT $had - count(*) FROM sweeper.task WHERE worker = '$worker' AND status = 'claimed'; COMMIT") =~ s/.*\n//r,
    1000, 'so many end with the worker');
wait_for($node, "SELECT count(*) = 0 FROM sweeper.task WHERE worker = '$worker' AND status = 'claimed'");
wait_for($node, q{SELECT count(*) = 0 FROM sweeper.job WHERE name ~ 'many' AND deleted_at IS NULL});
ok($had > 20000, "all $had tasks and 2500 jobs end");
$node->stop;
done_testing();
