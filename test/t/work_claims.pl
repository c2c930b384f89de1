# Tasks that workers claim at the same time, that wait, are told to listeners, and lose their workers.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main', 'max_connections = 150', "session_sweeper.event_interval = '300 ms'");
sub sql { return $node->safe_psql('postgres', @_) }
sub client { return $node->background_psql('postgres', on_error_stop => 0) }
sub worker {
    my ($name, @jobs) = @_;
    my $id = sql("SELECT sweeper.register_worker('$name', ttl => '1 h')");
    sql("SELECT sweeper.register_job('$id', 'r', 'c', '$_')") for @jobs;
    return $id;
}
sub submit { return sql("SELECT sweeper.submit('r', 'c', '$_[0]')") }
sub status { return sql("SELECT concat_ws(' ', status, error) FROM sweeper.task WHERE task = '$_[0]'") }
sql(q{CREATE EXTENSION session_sweeper;
    CREATE TABLE claimed (client int, task uuid);
    -- the worker of a client of pgbench
    CREATE FUNCTION w(client int) RETURNS uuid LANGUAGE sql AS $$ SELECT session FROM sweeper.session WHERE owner = 'w' || client AND status = 'active' $$});

# the claim races of the source systems
worker("w$_", 'add') for 0 .. 9;
sql(q{SELECT count(sweeper.submit('r', 'c', 'add', to_jsonb(i))) FROM generate_series(1, 50) AS i});
my $claim = 'INSERT INTO claimed SELECT :client_id, task FROM sweeper.claim(w(:client_id));';
together($node, 10, $claim, 20);
is(sql('SELECT count(*), count(DISTINCT task) FROM claimed'), '50|50', '10 workers, 50 tasks: each is claimed once');
is(sql(q{SELECT count(*) FROM claimed JOIN sweeper.task USING (task) WHERE status = 'claimed' AND worker_name = 'w' || client AND attempt = 1}), 50, 'as their rows say');
cmp_ok(sql('SELECT count(DISTINCT client) FROM claimed'), '>', 1, 'by several of them');
for my $round (1 .. 10) {
    sql(q{TRUNCATE claimed; SELECT sweeper.submit('r', 'c', 'add')});
    together($node, 10, $claim);
    is(sql('SELECT count(*) FROM claimed'), 1, '10 workers, 1 task: one winner');
}
for my $start ('false', 'true') {
    sql(q{TRUNCATE claimed; SELECT count(sweeper.submit('r', 'c', 'add')) FROM generate_series(1, 20)});
    together($node, 30, "INSERT INTO claimed SELECT :client_id, (SELECT task FROM sweeper.claim(w(0), start => $start));");
    is(sql('SELECT count(task), count(DISTINCT task), count(*) FROM claimed'), '20|20|30', "1 worker, 30 claims of 20 tasks: 20 hits, 10 none, start $start");
}
together($node, 100, q{SELECT sweeper.submit('r', 'c', 'add', '"stress"');});
is(sql(q{SELECT count(*) FROM sweeper.task WHERE payload = '"stress"' AND status = 'enqueued'}), 100, '100 submits at once are all stored');
is(sql(q{SELECT count(*) FROM sweeper.claim(w(0), 1000)}), 100, 'and claimed by one call');
sql(q{TRUNCATE claimed});
together($node, 7, q{\if :client_id < 2
SELECT sweeper.submit('r', 'c', 'add', '"mixed"');
\else
INSERT INTO claimed SELECT :client_id, task FROM sweeper.claim(w(:client_id));
\endif}, 30);
sql(q{INSERT INTO claimed SELECT 0, task FROM sweeper.claim(w(0), 1000)});
is(sql(q{SELECT count(*), count(DISTINCT task) FROM claimed JOIN sweeper.task USING (task) WHERE payload = '"mixed"'}), '60|60', 'submitted and claimed at the same time: no duplicates');

# oldest first, of all its jobs, also past those that somebody is just claiming, for whom nobody waits
my $many = worker('many', 'one', 'two', 'three');
my @tasks = map { submit($_) } qw(two three one two);
my $holder = client();
is($holder->query_safe("BEGIN; SELECT task FROM sweeper.claim('$many')"), $tasks[0], 'the oldest of several jobs');
is(sql("SELECT task FROM sweeper.claim('$many')"), $tasks[1], 'the next is for who comes meanwhile');
$holder->query_safe('ROLLBACK');
my $single = worker('single', 'solo');
my @solo = map { submit('solo') } 1 .. 2;
is($holder->query_safe("BEGIN; SELECT task FROM sweeper.claim('$single')"), $solo[0], 'the oldest of one job');
is(sql("SELECT task FROM sweeper.claim('$single')"), $solo[1], 'and the next');
$holder->query_safe('ROLLBACK');
$holder->quit;
is(sql("SELECT string_agg(task::text, ' ') FROM sweeper.claim('$many', 10)"), join(' ', @tasks[ 0, 2, 3 ]), 'in order, with what was given back');

# waiting: woken by a commit of another session, not only by the next look 5 s later; without a snapshot
my $waiter = client();
my $waiter_pid = $waiter->query_safe('SELECT pg_backend_pid()');
sub begin_waiting {
    my ($call) = @_;
    $waiter->query_until(qr/waits/, "\\echo waits\n$call;\n\\echo back\n");
    # twice: it sleeps, and is not just about to look
    wait_for($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE pid = $waiter_pid AND state = 'active' AND wait_event_type = 'Extension' AND backend_xmin IS NULL AND backend_xid IS NULL") for 1 .. 2;
}
sub waited {
    my $out = $waiter->query_until(qr/back/, '');
    $out =~ s/waits\n|back\n?//g;
    return $out =~ s/^\n+|\n+$//gr;
}
my @waits;
for (1 .. 3) {
    begin_waiting("CALL sweeper.claim_wait('$many', '60 s')");
    my $task = submit('two');
    like(waited(), qr/^$task\|r\|c\|two\|\{\}\|1$/, 'claim_wait is woken by a submit');
    push @waits, sql("SELECT extract(epoch FROM claimed_at - enqueued_at) FROM sweeper.task WHERE task = '$task'");
}
cmp_ok((sort { $a <=> $b } @waits)[0], '<', 2.5, "at once: @waits");
is($waiter->query_safe("CALL sweeper.claim_wait('$many', '50 ms')"), '|||||', 'or returns nulls at the end of its time');
begin_waiting("CALL sweeper.claim_wait('$many', '60 s')");
$holder = client();
$holder->query_safe("BEGIN; SELECT sweeper.submit('r', 'c', 'two')");
sql(q{SELECT sweeper.submit('r', 'c', 'add')});
is(sql("SELECT count(*) FROM pg_stat_activity WHERE pid = $waiter_pid AND state = 'active'"), 1, 'not by what is not its business, or not committed');
$holder->query_safe('COMMIT');
like(waited(), qr/\|two\|/, 'but by the commit');

my $task = submit('one');
is(sql("SELECT count(*) FROM sweeper.claim('$many', start => true)"), 1, 'a task that runs');
is($waiter->query_safe("CALL sweeper.wait_for_task('$task', '50 ms')"), 'running', 'wait_for_task tells the status at the end of its time');
@waits = ();
for my $end (qw(completed failed cancelled)) {
    begin_waiting("CALL sweeper.wait_for_task('$task', '60 s')");
    sql("SELECT sweeper.finish_task('$task', '$end')");
    is(waited(), $end, "woken by the end of the task: $end");
    push @waits, sql("SELECT extract(epoch FROM consumed_at - finished_at) FROM sweeper.task WHERE task = '$task'");
    $task = submit('one');
    sql("SELECT FROM sweeper.claim('$many', start => true)");
}
cmp_ok((sort { $a <=> $b } @waits)[0], '<', 2.5, "at once: @waits");
begin_waiting("CALL sweeper.claim_wait('$many', '60 s')");
sql("SELECT sweeper.release('$many')");
my ($out, $failed) = $waiter->query('SELECT 1');
like($waiter->{stderr}, qr/the worker does not exist/, 'a worker that ends waits no more');
eval { $waiter->quit };

# nor does one whose client has gone, and it takes no task along
my $left = worker('left', 'alone');
$waiter = client();
$waiter_pid = $waiter->query_safe('SELECT pg_backend_pid()');
begin_waiting("CALL sweeper.claim_wait('$left', '60 s')");
kill 'KILL', $waiter->{run}->{KIDS}[0]{PID};
wait_until(sub { eval { $waiter->{run}->pump_nb }; !$waiter->{run}->pumpable }, 'the client is gone');
$task = submit('alone');
wait_for($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $waiter_pid", 'so is its connection');
is(sql("SELECT status, attempt FROM sweeper.task WHERE task = '$task'"), 'enqueued|0', 'the task waits for somebody who is there');
sql("SELECT sweeper.release('$left')");
eval { $waiter->quit };

# events: after the commit, none after a rollback, each once
my $listener = client();
$listener->query_safe(qq{LISTEN "sweeper.$_"}) for qw(task job jobs providers);
my $heard = '';
sub hear {
    my ($re, $what) = @_;
    return wait_until(sub { $heard .= $listener->query('SELECT') . "\n"; return $heard =~ $re }, "listeners hear: $what");
}
# events are told in the order of commits: when that of a marker has come, those before it have, too
my $markers = 0;
my $chief = worker('chief', 'chief');
sub heard_all {
    my ($from) = ('m' . ++$markers);
    sql("SELECT sweeper.register_provider('$chief', '$from', 'c', 'n')");
    hear(qr/"room": "$from"/, 'the marker');
    # those of one look are told kind by kind: wait for the next look's
    sql("SELECT sweeper.register_provider('$chief', 'x$from', 'c', 'n')");
    hear(qr/"room": "x$from"/, 'the next marker');
    my $all = $heard;
    $heard = '';
    return $all;
}
sub count { my ($text, $re) = @_; return scalar(() = $text =~ /$re/g) }
heard_all();
my $calm = worker('calm', 'quiet');
my $all = heard_all();
is(count($all, qr/"sweeper\.jobs" with payload "\{"room": "r"\}"/), 1, 'a job is registered: its room');
my $other = client();
$other->query_safe("BEGIN; SELECT sweeper.register_provider('$calm', 'undone', 'c', 'n'); SELECT sweeper.register_job('$calm', 'undone', 'c', 'n')");
$other->query_safe("ROLLBACK; BEGIN; SELECT sweeper.register_provider('$calm', 'open', 'c', 'n')");
my $t = $other->query_safe(q{SELECT sweeper.submit('r', 'c', 'quiet')});
is(count(heard_all(), qr/undone|open|$t/), 0, 'nothing is told of what is rolled back, or not committed');
$other->query_safe('COMMIT');
$all = heard_all();
is(count($all, qr/"sweeper\.providers" with payload "\{"room": "open"\}"/), 1, 'a provider, after the commit');
is(count($all, qr/"sweeper\.task" with payload "\{[^\n]*"$t"[^\n]*"enqueued"/), 1, 'a task, after the commit');
is(count($all, qr/"sweeper\.job" with payload "\{[^\n]*"quiet"/), 1, 'and that it waits for workers');
sql("SELECT sweeper.register_job('$calm', 'r', 'c', 'noise'), sweeper.register_job('$calm', 'r', 'c', 'din')");
sql("SELECT FROM sweeper.claim('$calm', start => true)");
heard_all();
sql("SELECT sweeper.release('$calm')");
$all = heard_all();
is(count($all, qr/"sweeper\.jobs" with payload "\{"room": "r"\}"/), 1, 'a worker of three jobs ends: its room is told once');
is(count($all, qr/"sweeper\.task" with payload "\{[^\n]*"$t"[^\n]*"failed"/), 1, 'and its task');
is(count($all, qr/"sweeper\.providers" with payload "\{"room": "open"\}"/), 1, 'and the room of its provider');
sql("SELECT sweeper.unregister_provider(sweeper.register_provider('$chief', 'brief', 'c', 'n'))");
is(count(heard_all(), qr/"sweeper\.providers" with payload "\{"room": "brief"\}"/), 1, 'a provider is unregistered: its room');
# rooms that submit to jobs of other rooms
sql(q{SELECT sweeper.create_job('@global', 'c', 'cross'), sweeper.create_job('@internal', 'c', 'cross')});
my @cross = map { sql("SELECT sweeper.submit('$_', 'c', 'cross', origin => 'lobby')") } '@global', '@internal';
$all = heard_all();
is(count($all, qr/"sweeper\.task" with payload "\{[^\n]*"origin": "lobby"/), 2, 'events of global and internal jobs have the room that submitted');
is(sql(q{SELECT string_agg(room, ' ' ORDER BY task) FROM sweeper.list_tasks(origins => '{lobby}')}), '@global @internal', 'and lists can be asked for it');
is(sql(q{SELECT count(*) FROM sweeper.list_tasks(origins => '{lobby}', rooms => '{r}')}), 0, 'which is not the room of the job');
sql("SELECT sweeper.cancel_task('$_')") for @cross;
my @pair = map { worker("pair$_", 'shared') } 1, 2;
$t = submit('shared');
heard_all();
sql("SELECT FROM sweeper.claim('$pair[0]')");
is(count(heard_all(), qr/"sweeper\.task" with payload "\{[^\n]*"$t"[^\n]*"claimed"/), 1, 'a claim is told');
sql("SELECT sweeper.start_task('$t')");
sql("SELECT sweeper.finish_task('$t', 'completed')");
is(count(heard_all(), qr/"sweeper\.task" with payload "\{[^\n]*"$t"[^\n]*"completed"/), 1, 'what its worker says of it');
sql("SELECT sweeper.release('$pair[0]')");
is(count(heard_all(), qr/"sweeper\.jobs" with payload "\{"room": "r"\}"/), 1, 'a worker ends where another remains');
$t = submit('shared');
sql("SELECT sweeper.release('$pair[1]')");
heard_all();
sql("SELECT sweeper.cancel_task('$t')");
is(count(heard_all(), qr/"sweeper\.jobs" with payload "\{"room": "r"\}"/), 1, 'the last task of a job without workers ends');
sql(q{SELECT sweeper.submit_sql('SELECT 1')});
is(count(heard_all(), qr/"sweeper\.job" with/), 0, 'a command is no task for workers');
my $begin = time;
together($node, 5, "SELECT sweeper.register_provider('$chief', 'burst', 'c', 'n' || :client_id);\nSELECT sweeper.submit('r', 'c', 'chief');", 20);
$all = heard_all();
my $most = 4 + 4 * (time - $begin);
for my $what ('providers', 'job') {
    my $n = count($all, qr/"sweeper\.$what" with payload "\{[^\n]*(?:burst|"chief")/);
    cmp_ok($n, '>=', 1, "a burst is told: $what");
    cmp_ok($n, '<=', $most, 'at most so often as event_interval says');
}
is(count($all, qr/"sweeper\.task" with/), 100, 'each task once');
sql(q{SELECT count(sweeper.cancel_task(task)) FROM sweeper.list_tasks(statuses => '{enqueued}', max => NULL)});
$_->quit for $other, $listener;

# a worker is lost: its connection goes, or its heartbeats stop
my $attached = worker('attached', 'one');
my @held = map { submit('one') } 1 .. 2;
my $connection = client();
is($connection->query_safe("SELECT sweeper.attach('$attached')"), 't', 'attached to a connection');
is($connection->query_safe("SELECT count(*) FROM sweeper.claim('$attached')"), 1, 'with a task claimed');
is($connection->query_safe("SELECT count(*) FROM sweeper.claim('$attached', start => true)"), 1, 'and one that runs');
$connection->quit;
wait_for($node, "SELECT count(*) = 2 FROM sweeper.task WHERE worker_name = 'attached' AND finished_at IS NOT NULL");
is(join(',', map { status($_) } @held), 'failed Worker disconnected,failed Worker disconnected', 'the connection is lost: its tasks fail');
my $lapsed = sql(q{SELECT sweeper.register_worker('lapsed', ttl => '1 s')});
sql("SELECT sweeper.register_job('$lapsed', 'r', 'c', 'lapse')");
(my $run, $left) = (submit('lapse'), submit('lapse'));
sql("SELECT FROM sweeper.claim('$lapsed', start => true)");
wait_for($node, "SELECT finished_at IS NOT NULL FROM sweeper.task WHERE task = '$run'");
is(status($run) . ', ' . status($left), 'failed Worker disconnected, enqueued', 'heartbeats stop: what it ran fails, what waits goes on waiting');
is(sql(q{SELECT worker_name || ' ' || (worker_id IS NOT NULL) FROM sweeper.task WHERE task = '} . $run . q{'}), 'lapsed true', 'who ran it stays readable');
is(sql(q{SELECT name || ' ' || workers || ' ' || waiting FROM sweeper.job_status WHERE name = 'lapse'}), 'lapse 0 1', 'a job for which a task waits stays');
is(sql("SELECT sweeper.cancel_task('$left')") . sql(q{SELECT count(*) FROM sweeper.job_status WHERE name = 'lapse'}), 't0', 'and goes with that');

# three of four are stale: one pass
sql(q{SELECT sweeper.alter_policy('sweeper.session', check_every => '0')});
my @workers = map { worker("stale$_", 'sweep', "own$_") } 0 .. 3;
submit('sweep') for 0 .. 4;
sql("SELECT FROM sweeper.claim('$_', start => true)") for @workers;
sql("SELECT sweeper.register_provider('$workers[$_]', 'r', 'c', 'p$_')") for 0 .. 3;
sql(q{UPDATE sweeper.session SET acquired_at = now() - interval '3 h', last_seen_at = now() - interval '2 h', expires_at = now() - interval '1 h'
    WHERE owner IN ('stale0', 'stale1', 'stale2')});
# one that is late, as its row says, and yet alive
sql("UPDATE sweeper.session SET expires_at = now() + interval '1 ms' WHERE owner = 'stale3'");
sql("SELECT sweeper.heartbeat('$workers[3]')");
my $passes = sql(q{SELECT coalesce(max(pass), 0) FROM sweeper.pass});
sql(q{CALL sweeper.sweep('sweeper.session')});
is(sql("SELECT count(*), sum(expired) FROM sweeper.pass WHERE policy = 'sweeper.session' AND pass > $passes AND expired > 0"), '1|3', '3 stale, 1 alive: one pass');
is(sql(q{SELECT string_agg(name, ',') FROM sweeper.worker_status WHERE name LIKE 'stale%'}), 'stale3', 'the living is left');
is(sql(q{SELECT string_agg(concat_ws(' ', worker_name, status, error), ', ' ORDER BY task) FROM sweeper.list_tasks(names => '{sweep}')}),
    'stale0 failed Worker disconnected, stale1 failed Worker disconnected, stale2 failed Worker disconnected, stale3 running, enqueued', 'its task runs, the others failed, who waits does');
is(sql(q{SELECT string_agg(name, ',' ORDER BY name) FROM sweeper.job_status WHERE name ~ 'sweep|own'}), 'own3,sweep', 'jobs that nobody offers any more are gone');
is(sql(q{SELECT string_agg(name, ',') FROM sweeper.provider_status WHERE room = 'r'}), 'p3', 'and providers');
is(sql(q{SELECT count(*) FROM sweeper.job_worker AS w WHERE NOT EXISTS (SELECT FROM sweeper.session AS s WHERE s.session = w.worker AND s.status = 'active')}), 0, 'and links');

# requeued: the attempt of who lost it counts no more, whoever has it now
my ($first, $second) = map { my $w = sql("SELECT sweeper.register_worker('$_')"); sql("SELECT sweeper.register_job('$w', 'r', 'c', 'again', on_worker_loss => 'requeue')"); $w } qw(first second);
$task = submit('again');
is(sql("SELECT task, attempt FROM sweeper.claim('$first', start => true)"), "$task|1", 'the first attempt');
is(sql("SELECT sweeper.release('$first')"), 't', 'its worker ends');
is(status($task), 'allocated Worker disconnected', 'it waits again');
is(sql("SELECT sweeper.finish_task('$task', 'completed', attempt => 1)"), 'f', 'and is not finished by who lost it');
like(sql("CALL sweeper.claim_wait('$second', '60 s', true)"), qr/^$task\|.*\|2$/, 'the second attempt');
is(sql("SELECT sweeper.task_progress('$task', 1, attempt => 1), sweeper.finish_task('$task', 'failed', attempt => 1), sweeper.finish_task('$task', 'completed', attempt => 2)"),
    'f|f|t', 'only who has it finishes it');
is(status($task), 'completed', 'once');
is(sql(q{SELECT count(*) FROM sweeper.task WHERE (finished_at IS NOT NULL) <> (status IN ('completed', 'failed', 'cancelled', 'dropped'))}), 0, 'every ended task has its time');

# What the worker said of a task may be lost by a crash or fail-over.  Its next claim tells: after one time to live of service, what
# it has not named since is not what it works on.
my $short = sql(q{SELECT sweeper.register_worker('short', ttl => '3 s')});
sql("SELECT sweeper.register_job('$short', 'r', 'c', 'lost', on_worker_loss => 'requeue'), sweeper.register_job('$short', 'r', 'c', 'kept')");
@held = map { submit($_) } qw(lost kept);
is(sql("SELECT count(*) FROM sweeper.claim('$short', 2, start => true)"), 2, 'a worker holds two tasks');
$node->stop('immediate');
$node->start;
is(sql("SELECT sweeper.task_progress('$held[1]'), count(*) FROM sweeper.claim('$short')"), 't|0', 'it has a time to live to name them');
wait_for($node, "SELECT count(*) = 1 FROM (SELECT sweeper.heartbeat('$short') OFFSET 0) AS h, sweeper.claim('$short', start => true) AS c WHERE c.task = '$held[0]' AND c.attempt = 2", 'the one not named is lost, and claimed again');
is(sql("SELECT string_agg(comment, ',') FROM sweeper.task_comment WHERE task = '$held[0]'"), "attempt 1 failed: Not reported by its worker since the server crashed or failed over\nIt is tried again.", 'which is on record');
is(status($held[1]), 'running', 'the other one runs');
$node->stop;
done_testing();
