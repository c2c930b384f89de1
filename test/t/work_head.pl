# Claims begin where the waiting tasks of a job begin: they do not walk over entries that an old snapshot keeps, and
# find whatever comes to wait before that place.
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
sql("SELECT sweeper.register_job('$worker', 'r', 'c', 'n', on_worker_loss => 'requeue')");
sql(q{UPDATE sweeper.job SET backoff = '0'});
sub submit { return sql(q{SELECT sweeper.submit('r', 'c', 'n')}) }
sub claim { return sql("SELECT task FROM sweeper.claim('$worker', $_[0])") }
# a task of now is too young for the place to be behind it
sub age { return sql('SELECT pg_sleep(0.15)') }
# claims all that waits, and then once more, so that the place is behind all of it
sub empty {
    age();
    sql("SELECT count(*) FROM sweeper.claim('$worker', 1000)");
    return claim(1);
}
sub buffers {
    my ($line) = sql("EXPLAIN (ANALYZE, BUFFERS) SELECT count(*) FROM sweeper.claim('$worker')") =~ /Buffers: shared (.*)/;
    my $sum = 0;
    $sum += $1 while $line =~ /(?:hit|read)=(\d+)/g;
    return $sum;
}

# a snapshot from before keeps the entries of all tasks
my $snapshot = client();
$snapshot->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
sql(q{SELECT count(sweeper.submit('r', 'c', 'n')) FROM generate_series(1, 20000)});
is(sql("SELECT count(*) FROM generate_series(1, 20) AS i, sweeper.claim('$worker', 1000 + 0 * i)"), 20000, 'many tasks are claimed');
is(empty(), '', 'none is left');
buffers();
my $few = buffers();
cmp_ok($few, '<', 400, "a claim does not read the entries of those: $few buffers");

# submitted before the place, committed after
my $slow = client();
$slow->query_safe('BEGIN');
my $late = $slow->query_safe(q{SELECT sweeper.submit('r', 'c', 'n')});
submit();
empty();
is(claim(1), '', 'what is not committed cannot be claimed');
$slow->query_safe('COMMIT');
is(claim(1), $late, 'a task that was submitted long before its commit is found');

# the transaction that submitted it claims it
$slow->query_safe('BEGIN');
$late = $slow->query_safe(q{SELECT sweeper.submit('r', 'c', 'n')});
submit();
empty();
is($slow->query_safe("SELECT task FROM sweeper.claim('$worker')"), $late, 'by its own transaction, too');
$slow->query_safe('ROLLBACK');

# a claim is rolled back
my @tasks = (submit(), submit());
$slow->query_safe('BEGIN');
is($slow->query_safe("SELECT task FROM sweeper.claim('$worker')"), $tasks[0], 'a claim that is not committed');
is(claim(1), $tasks[1], 'others claim the next');
empty();
$slow->query_safe('ROLLBACK');
is(claim(1), $tasks[0], 'what it gives back is found');

# and one in a subtransaction, while the transaction goes on
@tasks = (submit(), submit());
$slow->query_safe('BEGIN; SAVEPOINT s');
is($slow->query_safe("SELECT task FROM sweeper.claim('$worker')"), $tasks[0], 'a claim in a subtransaction');
is(claim(1), $tasks[1], 'others claim the next');
empty();
$slow->query_safe('ROLLBACK TO s');
is(claim(1), $tasks[0], 'what that gives back is found');
$slow->query_safe('ROLLBACK');
$slow->quit;

# a worker ends, and its tasks wait again
my $other = sql(q{SELECT sweeper.register_worker('other', ttl => '1 day')});
sql("SELECT sweeper.register_job('$other', 'r', 'c', 'n', on_worker_loss => 'requeue')");
@tasks = (submit(), submit(), submit());
is(sql("SELECT task FROM sweeper.claim('$other')"), $tasks[0], 'another worker claims');
empty();
is(sql("SELECT sweeper.release('$other')"), 't', 'and ends');
wait_for($node, "SELECT status = 'enqueued' FROM sweeper.task WHERE task = '$tasks[0]'");
is(claim(1), $tasks[0], 'what it had is found');

# several jobs: the oldest first, each from its own place
sql("SELECT sweeper.register_job('$worker', 'r', 'c', '$_')") for qw(a b);
@tasks = map { sql("SELECT sweeper.submit('r', 'c', '$_')") } qw(b n a b a);
is(claim(4), join("\n", @tasks[ 0 .. 3 ]), 'the oldest of several jobs, in order');
is(claim(4), $tasks[4], 'and the rest');
$snapshot->query_safe('COMMIT');
$snapshot->quit;
$node->stop;
done_testing();
