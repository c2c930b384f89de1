# Tasks whose worker says nothing for the timeout of their job, though it sends heartbeats; backoff by the clock.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main');
sub sql { return $node->safe_psql('postgres', @_) }
sub state { return sql("SELECT concat_ws(' ', status, attempt, error) FROM sweeper.task WHERE task = '$_[0]'") }
sql(q{CREATE EXTENSION session_sweeper;
    SELECT sweeper.create_job('r', 'c', 'again', timeout => '2 s', backoff => '300 ms', max_attempts => 2);
    SELECT sweeper.create_job('r', 'c', 'fail', timeout => '2 s', on_worker_loss => 'fail');
    SELECT sweeper.create_job('r', 'c', 'patient')});
my $worker = sql(q{SELECT sweeper.register_worker('w', ttl => '1 h')});
sql("SELECT sweeper.register_job('$worker', 'r', 'c', '$_')") for qw(again fail patient);
my %task = map { $_ => sql("SELECT sweeper.submit('r', 'c', '$_')") } qw(again fail patient);
my $reports = sql(q{SELECT sweeper.submit('r', 'c', 'again', '"reports"')});
is(sql("SELECT count(*) FROM sweeper.claim('$worker', 10, true)"), 4, 'four tasks run');
# twice the timeout: one task makes progress, the worker is alive for all of them
wait_until(sub {
    sql("SELECT sweeper.heartbeat('$worker'), sweeper.task_progress('$reports', 1)");
    # who only asks makes no progress
    sql("SELECT sweeper.task_progress('$task{fail}'), sweeper.task_progress('$task{again}', attempt => 1)");
    return sql("SELECT clock_timestamp() > claimed_at + interval '4 s' FROM sweeper.task WHERE task = '$reports'") eq 't';
}, 'the worker reports for one of them');
is(state($reports), 'running 1', 'that one runs on');
is(sql("SELECT sweeper.finish_task('$reports', 'completed')"), 't', 'to its end');
is(state($task{patient}), 'running 1', 'and that of a job without timeout');
is(state($task{fail}), 'failed 1 No progress within the timeout of its job', 'one whose worker only asks has failed');
is(sql("SELECT sweeper.task_progress('$task{fail}')"), 'f', 'and its worker learns it');
is(sql("SELECT sweeper.task_progress('$task{fail}', 1), sweeper.finish_task('$task{fail}', 'completed')"), 'f|f', 'however it asks');
like(state($task{again}), qr/^(allocated|enqueued) 1 No progress within the timeout of its job$/, 'another is to be tried again');
is(sql("SELECT finished_at - claimed_at BETWEEN '2 s' AND '3 s' FROM sweeper.task WHERE task = '$task{fail}'"), 't', 'soon after that time');
like(sql("CALL sweeper.claim_wait('$worker', '60 s')"), qr/^$task{again}\|.*\|2$/, 'and waits for a worker');
# claimed, and not even started
wait_for($node, "SELECT status = 'failed' FROM sweeper.task WHERE task = '$task{again}'");
is(sql("SELECT string_agg(comment, '; ' ORDER BY commented_at) FROM sweeper.task_comment WHERE task = '$task{again}'"),
    "attempt 1 failed: No progress within the timeout of its job\nIt is tried again.; failed: No progress within the timeout of its job", 'for good after its attempts, with all reasons');
# a crash loses what the worker said: its time begins again
$reports = sql(q{SELECT sweeper.submit('r', 'c', 'again', '"crash"')});
is(sql("SELECT count(*) FROM sweeper.claim('$worker', start => true)"), 1, 'a task runs');
wait_until(sub {
    sql("SELECT sweeper.task_progress('$reports', 1)");
    return sql("SELECT clock_timestamp() > claimed_at + interval '3 s' FROM sweeper.task WHERE task = '$reports'") eq 't';
}, 'and its worker reports');
$node->stop('immediate');
$node->start;
is(state($reports), 'running 1', 'it runs after a crash');
is(sql("SELECT sweeper.task_progress('$reports', 2)"), 't', 'and its worker reports again');
wait_for($node, "SELECT status <> 'running' FROM sweeper.task WHERE task = '$reports'", 'until it says nothing more');
# backoff: the first wait, and one for a worker that waits
my $task = sql(q{SELECT sweeper.submit('r', 'c', 'again', '"backoff"', priority => 100)});
like(sql("CALL sweeper.claim_wait('$worker', '60 s', true)"), qr/^$task\|/, 'a task');
is(sql("SELECT sweeper.finish_task('$task', 'failed', error => 'oops', retry => true)"), 't', 'fails');
my $from = sql("SELECT commented_at FROM sweeper.task_comment WHERE task = '$task'");
sub take_it { return sql("CALL sweeper.claim_wait('$worker', '60 s', true)") =~ /^$task\|.*\|2$/ }
wait_until(\&take_it, 'it comes back');
cmp_ok(sql("SELECT extract(epoch FROM claimed_at - '$from') FROM sweeper.task WHERE task = '$task'"), '>=', 0.224, 'after its backoff');
$node->stop;
done_testing();
