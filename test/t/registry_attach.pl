# Sessions that end with the connection they are attached to: every way a connection ends, and those that are no evidence.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main', 'track_commit_timestamp = on', "deadlock_timeout = '2 min'", 'max_prepared_transactions = 1');
sub sql { return $node->safe_psql('postgres', @_) }
sub client { return $node->background_psql('postgres') }
sub seat { return sql("SELECT session FROM sweeper.acquire('p', '$_[0]')") }
sub status { return sql("SELECT status FROM sweeper.session WHERE session = '$_[0]'") }
sub events { return sql("SELECT coalesce(string_agg(cleanup_type, ',' ORDER BY id), 'none') FROM sweeper.cleanup_event WHERE key = '$_[0]'") }
sub attach { my ($client, @ids) = @_; return join ',', map { $client->query_safe("SELECT sweeper.attach('$_')") } @ids }
# Ended, by its connection, once, with that as the last evidence of its life.
sub disconnected {
    my ($id, $what) = @_;
    wait_for($node, "SELECT status <> 'active' FROM sweeper.session WHERE session = '$id'", "the session has ended: $what");
    is(sql("SELECT cleanup_type, status, s.ended_at = u.ended_at, s.ended_at <= released_at, s.ended_at > acquired_at,
        hours = round(extract(epoch FROM s.ended_at - s.acquired_at) / 3600, 6) FROM sweeper.session AS s JOIN sweeper.usage_event AS u USING (session, acquired_at)
        WHERE session = '$id'") . ' ' . events($id), 'disconnected|expired|t|t|t|t disconnected', $what);
}
# Posts are settled in their order: one that ends shows that those before it have been looked at.
my $n = 0;
sub attached_client {
    my @ids = (@_, seat('marker' . ++$n));
    my $client = client();
    is(attach($client, @ids), join(',', map { 't' } @ids), 'attached');
    return ($client, $ids[-1]);
}
sql(q{CREATE EXTENSION session_sweeper; SELECT sweeper.create_pool('p', ttl => '1 h')});

# ends of a connection
my $id = seat('ann');
my $client = client();
is(attach($client, $id), 't', 'attach');
is(attach($client, sql('SELECT gen_random_uuid()')), 'f', 'one that is gone is not attached');
$client->query_safe('DISCARD ALL');
my $before = sql('SELECT clock_timestamp()');
$client->quit;
disconnected($id, 'the client said good-bye');
is(sql("SELECT ended_at > '$before' FROM sweeper.session WHERE session = '$id'"), 't', 'it lived until then');
is(sql("SELECT sweeper.heartbeat('$id'), sweeper.attach('$id'), sweeper.release('$id')"), 'f|f|f', 'and no longer');

$id = seat('bob');
my $other = seat('bob, alone');
$client = client();
attach($client, $id);
sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = " . $client->query_safe('SELECT pg_backend_pid()'));
disconnected($id, 'pg_terminate_backend');
is(status($other), 'active', 'who has no connection lives on');
eval { $client->quit };

$id = seat('carl');
$client = client();
attach($client, $id);
# psql may learn of it before or after the answer
eval { $client->query_safe(q{SET idle_session_timeout = '1 ms'}) };
disconnected($id, 'FATAL');
eval { $client->quit };

$id = seat('dora');
$client = client();
attach($client, $id);
kill 'KILL', $client->{run}->{KIDS}[0]{PID};
disconnected($id, 'the client is gone');
eval { $client->quit };

# a transaction that the connection left open holds nothing up
$id = seat('emil');
$client = client();
attach($client, $id);
$client->query_safe("BEGIN; SELECT FROM sweeper.session WHERE session = '$id' FOR UPDATE");
$client->quit;
disconnected($id, 'in a transaction');

# more than the list holds, and others in between
sql(q{SELECT count(*) FROM generate_series(1, 1000) AS i, sweeper.acquire('p', 'many' || i)});
$client = client();
my $keeper = client();
is($client->query_safe(q{SELECT count(*) FROM sweeper.session WHERE owner LIKE 'many%' AND sweeper.attach(session)}), 1000, 'many on one connection');
is($keeper->query_safe(q{SELECT count(*) FROM sweeper.session WHERE owner LIKE 'many%5' AND sweeper.attach(session)}), 100, 'some of them move');
$client->quit;
wait_for($node, q{SELECT count(*) = 100 FROM sweeper.session WHERE owner LIKE 'many%' AND status = 'active'}, 'they have ended');
is(sql(q{SELECT count(*), count(DISTINCT key), bool_and(cleanup_type = 'disconnected') FROM sweeper.cleanup_event WHERE owner LIKE 'many%'}), '900|900|t', 'each once');
is(sql(q{SELECT bool_and(owner LIKE '%5') FROM sweeper.session WHERE owner LIKE 'many%' AND status = 'active'}), 't', 'those that moved live');
is(sql(q{SELECT count(*) FROM sweeper.session WHERE owner LIKE 'many%' AND sweeper.release(session)}), 100, 'until they are released');
$keeper->quit;
sql(q{CALL sweeper.sweep('sweeper.session')});
is(sql(q{SELECT count(*) FROM sweeper.cleanup_event WHERE owner LIKE 'many%'}), 1000, 'which is their only end');

# moved, heard of, released: the connection before has no say any more
my @ids = map { seat("moved$_") } 1 .. 4;
sql(q{SELECT sweeper.pause('sweeper.session')});
($client, my $marker) = attached_client(@ids);
$keeper = client();
is(attach($keeper, $ids[0]), 't', 'attached to another connection');
sql("SELECT sweeper.release('$ids[3]')");
$client->quit;
wait_for($node, q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%attach(%' AND pid <> pg_backend_pid()}, 'the connection is gone');
is(sql("SELECT sweeper.heartbeat('$ids[1]')"), 't', 'a heartbeat after the end of the connection');
is(attach($keeper, $ids[2]), 't', 'attached to another connection after that');
is(status($marker), 'active', 'nothing ends while the policy is paused');
my $resumed = sql(q{SELECT clock_timestamp() FROM sweeper.resume('sweeper.session')});
disconnected($marker, 'nothing is lost while the policy is paused');
is(sql("SELECT ended_at < '$resumed' FROM sweeper.session WHERE session = '$marker'"), 't', 'its end is that of the connection');
is(join(',', map { status($_) } @ids), 'active,active,active,released', 'the others are not its business');
is(join(',', map { events($_) } @ids), 'none,none,none,released', 'nor on record');
sql("SELECT sweeper.release('$_')") for @ids[ 0 .. 2 ];
$keeper->quit;

# a heartbeat by another connection than the one it is attached to: that is not the client's, and its end says nothing
@ids = map { seat("elsewhere$_") } 1 .. 4;
($client, $marker) = attached_client(@ids);
sql("SELECT FROM sweeper.heartbeat_many('{$ids[0]}')");
is(sql("SELECT sweeper.heartbeat('$ids[1]')"), 't', 'a heartbeat by another connection');
is($client->query_safe("SELECT sweeper.heartbeat('$ids[2]')"), 't', 'one by its own');
$keeper = client();
is($keeper->query_safe("BEGIN; SELECT sweeper.attach('$ids[3]'); ROLLBACK"), 't', 'an attach() by another connection, undone');
is(scalar(() = slurp_file($node->logfile) =~ /detached a session from its connection/g), 1, 'it is logged, and once');
$client->quit;
disconnected($_, 'by its own connection') for $marker, $ids[2];
is(join(',', map { status($_) } @ids[ 0, 1, 3 ]), 'active,active,active', 'those that another connection keeps alive are');
$keeper->quit;
sql("SELECT sweeper.release('$_')") for @ids[ 0, 1, 3 ];

# while somebody holds the row, and while somebody is about to attach it; where nothing else makes the policy look
sql(q{SELECT sweeper.alter_policy('sweeper.session', check_every => '0')});
my ($locked, $kept) = map { seat($_) } qw(locked kept);
($client, $marker) = attached_client($locked, $kept);
my $holder = client();
$holder->query_safe("BEGIN; SELECT FROM sweeper.session WHERE session = '$locked' FOR UPDATE");
my $about = client();
$about->query_safe('BEGIN');
is(attach($about, $kept), 't', 'attached, if committed');
$client->quit;
disconnected($marker, 'others are not held up');
is(join(',', map { status($_) } $locked, $kept), 'active,active', 'they wait');
$holder->query_safe('ROLLBACK');
disconnected($locked, 'when its row is free');
$about->query_safe('COMMIT');
is(status($kept), 'active', 'not the one that is attached to another connection');
$_->quit for $about, $holder;
disconnected($kept, 'that connection is gone, too');

# who ends it by name does not mind that its connection goes meanwhile
my ($named, $spared) = map { seat($_) } qw(named spared);
($client, $marker) = attached_client($named, $spared);
$holder = client();
$holder->query_safe("BEGIN; SELECT sweeper.release('$named'); SAVEPOINT s; SELECT sweeper.release('$spared')");
$client->quit;
disconnected($marker, 'ends in progress hold up nobody else');
$holder->query_safe('ROLLBACK TO s; COMMIT');
$holder->quit;
disconnected($spared, 'an end that was undone leaves the session to its connection');
is(events($named) . sql("SELECT sweeper._last_heartbeat('$named') IS NULL"), 'releasedt', 'one that was not is the only one, and memory forgets');

# ended by a transaction that is committed later: that is its only end
$id = seat('prepared');
($client, $marker) = attached_client($id);
sql("BEGIN; SELECT sweeper.release('$id'); PREPARE TRANSACTION 'release'");
$client->quit;
disconnected($marker, 'a prepared transaction holds up its own session only');
is(status($id), 'active', 'which waits');
sql(q{COMMIT PREPARED 'release'});
($client, $marker) = attached_client();
$client->quit;
disconnected($marker, 'and then it has ended');
is(events($id) . sql("SELECT sweeper.heartbeat('$id')"), 'releasedf', 'in the way it was told');

# a worker that is ended loses nothing
sql(q{SELECT sweeper.alter_policy('sweeper.session', lock_timeout => '60 s')});
($client, $marker) = attached_client();
$holder = client();
$holder->query_safe('BEGIN; LOCK TABLE sweeper.session IN SHARE MODE');
$client->quit;
my $waiting = q{FROM pg_stat_activity WHERE backend_type = 'session_sweeper worker' AND wait_event_type = 'Lock'};
wait_for($node, "SELECT count(*) = 1 $waiting", 'the worker waits for the table');
# the first SIGTERM asks for an end after the batch
my $worker = sql("SELECT pid $waiting");
wait_until(sub { kill('TERM', $worker); return sql("SELECT count(*) FROM pg_stat_activity WHERE pid = $worker") eq '0' }, 'the worker is gone');
is(status($marker), 'active', 'the worker did not get to it');
$holder->query_safe('COMMIT');
$holder->quit;
disconnected($marker, 'the next worker does');
sql(q{SELECT sweeper.resume('sweeper.session'), sweeper.alter_policy('sweeper.session', reset => '{lock_timeout,check_every}')});

# how long it takes, for who looks into the log, where nothing else makes the policy look
sql(q{SELECT sweeper.alter_policy('sweeper.session', check_every => '0')});
for (1 .. 20) {
    ($id) = (seat('fast'));
    $client = client();
    $client->query_safe("SELECT sweeper.attach('$id')");
    $client->quit;
    wait_for($node, "SELECT status <> 'active' FROM sweeper.session WHERE session = '$id'");
}
note 'from the exit to the commit, in ms: ' . sql(q{SELECT string_agg(round(ms)::text, ' ' ORDER BY ms) || ', median ' || round(percentile_cont(0.5) WITHIN GROUP (ORDER BY ms)::numeric, 1)
    FROM (SELECT 1000 * extract(epoch FROM pg_xact_commit_timestamp(xmin) - ended_at) AS ms FROM sweeper.session WHERE owner = 'fast') AS m});
is(sql(q{SELECT bool_and(pg_xact_commit_timestamp(xmin) - ended_at < interval '30 s') FROM sweeper.session WHERE owner = 'fast'}), 't', 'none waits for a look of the policy');

# a server that stops, or crashes, ends connections: no evidence.  Memory is empty then, and a pass finds nothing to end.
sub survives {
    my ($id, $what) = @_;
    wait_for($node, 'SELECT service_start IS NOT NULL FROM sweeper._cluster()');
    sql(q{CALL sweeper.sweep('sweeper.session')});
    is(status($id) . ' ' . events($id) . sql("SELECT sweeper.heartbeat('$id')"), 'active nonet', $what);
}
$id = seat('restart');
for my $mode (qw(fast immediate)) {
    $client = client();
    attach($client, $id);
    $node->stop($mode);
    $node->start;
    survives($id, "stop -m $mode");
    eval { $client->quit };
}
# in a smart stop our processes go on while there are clients
($client, $keeper) = (client(), client());
attach($client, $id);
my $offset = -s $node->logfile;
system_or_bail('pg_ctl', '-D', $node->data_dir, '-m', 'smart', '-W', 'stop');
$node->wait_for_log(qr/received smart shutdown request/, $offset);
my $pid = $client->query_safe('SELECT pg_backend_pid()');
$client->quit;
wait_until(sub { $keeper->query_safe("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") eq '0' }, 'the connection is gone');
$keeper->query_safe(q{CALL sweeper.sweep('sweeper.session')});
is($keeper->query_safe("SELECT status FROM sweeper.session WHERE session = '$id'"), 'active', 'stop -m smart, while it goes on');
$keeper->quit;
wait_until(sub { !-e $node->data_dir . '/postmaster.pid' }, 'the server has stopped');
$node->{_pid} = undef;
$node->start;
survives($id, 'stop -m smart');

$client = client();
attach($client, $id);
my $life = sql('SELECT service_start FROM sweeper._cluster()');
kill 'KILL', $client->query_safe('SELECT pg_backend_pid()');
wait_for($node, "SELECT service_start > '$life' FROM sweeper._cluster()", 'the server is back');
survives($id, 'a crash');
eval { $client->quit };
$node->stop;

# memory: what is attached is not given away, though its row says as much, and what cannot be kept is refused
my $small = sweeper_node('small', "session_sweeper.heartbeat_memory = '1 kB'", 'session_sweeper.refresh_ahead = 0.9');
$small->safe_psql('postgres', q{CREATE EXTENSION session_sweeper; SELECT sweeper.create_pool('p', ttl => '2 min');
    SELECT count(*) FROM generate_series(1, 200) AS i, sweeper.acquire('p', i::text)});
$small->stop('immediate');
$small->start;
$client = $small->background_psql('postgres');
is($client->query_safe(q{SELECT count(*) FROM sweeper.session WHERE CASE WHEN owner::int <= 20 THEN sweeper.attach(session) END}), 20, 'some are attached');
is($small->safe_psql('postgres', q{SELECT count(*) FROM sweeper.session WHERE CASE WHEN owner::int > 20 THEN sweeper.heartbeat(session) END}), 180, 'more are heard of than fit');
$small->wait_for_log(qr/memory for heartbeats is full/);
wait_until(sub { $small->safe_psql('postgres', q{SELECT FROM sweeper.heartbeat_many(ARRAY(SELECT session FROM sweeper.session WHERE owner::int > 20));
    SELECT next_step FROM sweeper.problem WHERE problem = 'heartbeat memory full'}) =~ /heartbeat_memory = '1MB'/ }, 'which is a problem');
# Those that are heard of again before their rows are written may stay: memory is short no more.
wait_for($small, q{SELECT heartbeats <= 0.9 * most_heartbeats FROM sweeper._cluster()}, 'room is made');
is($small->safe_psql('postgres', q{SELECT count(*) FROM sweeper.session WHERE owner::int <= 20 AND sweeper._last_heartbeat(session) IS NOT NULL}), 20, 'by others');
wait_for($small, q{SELECT heartbeats < most_heartbeats AND heartbeats_refused > 0 AND NOT EXISTS (SELECT FROM sweeper.problem) FROM sweeper._cluster()}, 'and no problem any more');
my ($ret, $out, $err) = $small->psql('postgres', "\\set VERBOSITY verbose\nSELECT sweeper.attach(session) FROM sweeper.session WHERE owner::int > 20");
like($err, qr/53400: could not attach the session: the memory for heartbeats is full.*HINT:  Raise "session_sweeper.heartbeat_memory"/s, 'no room for more');
$client->quit;
wait_for($small, q{SELECT count(*) = 180 FROM sweeper.session WHERE status = 'active'}, 'the connection ends its own');
is($small->safe_psql('postgres', q{SELECT count(*) FROM sweeper.cleanup_event WHERE cleanup_type = 'disconnected' AND owner::int <= 20}), 20, 'and no other');
$small->stop;
done_testing();
