# Load care: replicas, WAL and maintenance windows hold up sweeps, and neither who lives nor who asks.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('primary', 'wal_level = logical', 'max_wal_senders = 4', 'hot_standby = on');
sub sql { return $node->safe_psql('postgres', @_) }
sub configure { my ($set) = @_; return sql("ALTER SYSTEM SET $set; SELECT pg_reload_conf()") }
sub reset_conf { my ($name) = @_; return sql("ALTER SYSTEM RESET session_sweeper.$name; SELECT pg_reload_conf()") }
# $n rows that are dead from now on: earlier deadlines than passes have seen may be found a minute late
sub fill {
    my ($table, $n) = @_;
    return sql("INSERT INTO $table SELECT i, now(), repeat('x', 200) FROM generate_series(1, $n) AS i");
}
# batches and rows that the pass log has of policy t
sub done_so_far { return split /\|/, sql(q{SELECT sum(batches), sum(expired) FROM sweeper.pass WHERE policy = 't'}) }
sub state_is { my ($policy, $state) = @_; return wait_for($node, "SELECT state = '$state' FROM sweeper.policy_status WHERE policy = '$policy'", "$policy is $state") }
sql(q{CREATE EXTENSION session_sweeper;
    CREATE TABLE t (id int PRIMARY KEY, d timestamptz, filling text); CREATE INDEX ON t (d);
    CREATE TABLE hidden (id int PRIMARY KEY, d timestamptz, filling text); CREATE INDEX ON hidden (d);
    CREATE TABLE beat (id int PRIMARY KEY, d timestamptz, filling text); CREATE INDEX ON beat (d);
    SELECT sweeper.register('t', deadline => 'd', start => 'now', backlog_rate => 0, fuse_fraction => 1, check_every => '100 ms', max_lag => '1 s');
    SELECT sweeper.register('hidden', deadline => 'd', filter => 'length(filling) > 0', start => 'now', backlog_rate => 0, fuse_fraction => 1, check_every => '100 ms', max_lag => '1 s');
    SELECT sweeper.register('beat', deadline => 'd', ttl => '20 s', heartbeats => true, start => 'now', backlog_rate => 0, fuse_fraction => 1, check_every => '100 ms')});
$node->backup('copy');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'copy', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby);

my $touched = q{(SELECT sweeper.touch('beat', 1))};

# Whoever holds up passes, rows of who lives are refreshed, the dead stay, and a pass that somebody asks for goes.
sub held_up {
    my ($what, $reason) = @_;
    sql(q{INSERT INTO beat SELECT i, now() + interval '4 s', 'x' FROM generate_series(1, 2) AS i});
    my $d = sql(q{SELECT d FROM beat WHERE id = 1});
    sql(q{SELECT sweeper.touch('beat', 1)});
    # it is not late before there was something to read
    wait_until(sub {
        sql(q{INSERT INTO t SELECT coalesce(max(id), 0) + 1000, now() FROM t});
        return sql(q{SELECT state FROM sweeper.policy_status WHERE policy = 't'}) eq 'throttled' }, 'sweeps rest');
    fill($_, 100) for qw(t hidden);
    like(sql(q{SELECT reason FROM sweeper.policy_status WHERE policy = 't'}), $reason, "$what: the reason");
    $node->poll_query_until('postgres', "SELECT sweeper.touch('beat', 1) AND d > '$d'::timestamptz + interval '1 s' FROM beat WHERE id = 1") or die 'not refreshed';
    pass("$what: who lives is refreshed");
    # what follows may take longer than a time to live
    wait_for($node, "SELECT $touched AND d < now() FROM beat WHERE id = 2", 'the other is dead');
    wait_for($node, qq{SELECT $touched AND count(*) = 1 FROM sweeper.problem WHERE policy = 't' AND problem = 'lag above max_lag' AND detail ~ 'behind' AND next_step ~ 'pg_stat_replication'}, 'the problem says so');
    wait_for($node, qq{SELECT $touched AND state = 'throttled' AND lag > interval '0' FROM sweeper.policy_status WHERE policy = 'beat'}, 'it waits, too');
    # what is due by an expression only a pass can tell
    wait_for($node, qq{SELECT $touched AND count(*) = 1 FROM sweeper.problem WHERE policy = 'hidden' AND problem = 'lag above max_lag' AND detail ~ '^No pass has run for .*behind' AND next_step ~ 'pg_stat_replication'}, 'nor of what nobody knows is nothing said');
    is(sql(q{SELECT backlog IS NULL, (SELECT count(*) FROM sweeper.metrics WHERE family = 'session_sweeper_overdue_seconds' AND labels @> '{"policy": "hidden"}') FROM sweeper.policy_status WHERE policy = 'hidden'}), 't|0', 'nor that it is none');
    is(sql(q{SELECT count(*) FROM t WHERE id <= 100}) . sql(q{SELECT string_agg(id::text, ',' ORDER BY id) FROM beat}), '1001,2', "$what: the dead stay");
    like(sql(q{SELECT reason FROM sweeper.explain_row('t', '7')}), qr/throttled.*behind/, "$what: explain_row() knows");
    is(sql(q{SELECT value FROM sweeper.metrics WHERE family = 'session_sweeper_brake' AND labels @> '{"policy": "t", "brake": "throttled"}'}), 1, "$what: a metric");
    sql(q{CALL sweeper.sweep('t')});
    is(sql(q{SELECT count(*) FROM t}), 0, "$what: CALL sweep goes");
    return fill('t', 100);
}
sub goes_on {
    my ($what) = @_;
    wait_for($node, "SELECT $touched AND count(*) = 0 FROM $_", "$what: it goes on") for qw(t hidden);
    wait_for($node, q{SELECT sweeper.touch('beat', 1) AND NOT EXISTS (SELECT FROM beat WHERE id = 2)}, "$what: and the other, but not who lives");
    state_is('t', 'waiting');
    return sql(q{SELECT sweeper.expire('beat', '{1,2}', 'test')});
}

# a standby that does not replay
configure(q{session_sweeper.max_replica_lag = '500ms'});
$standby->safe_psql('postgres', 'SELECT pg_wal_replay_pause()');
held_up('standby', qr/replica "standby" \(pid \d+\) is more than 500ms behind/);
$standby->safe_psql('postgres', 'SELECT pg_wal_replay_resume()');
goes_on('standby');

# a standby that is not there holds up nothing
$standby->stop;
fill('t', 100);
wait_for($node, q{SELECT count(*) = 0 FROM t}, 'no standby');

# a logical slot that nobody reads does: its changes pile up
sql(q{SELECT pg_create_logical_replication_slot('unread', 'pgoutput')});
held_up('slot', qr/replication slot "unread" is more than 500ms behind/);
sql(q{SELECT pg_drop_replication_slot('unread')});
goes_on('slot');
# no more does a consumer that is connected, tells nothing, and takes nothing
sql(q{CREATE PUBLICATION all_of_it FOR ALL TABLES; SELECT pg_create_logical_replication_slot('silent', 'pgoutput')});
sql(q{ALTER SYSTEM SET wal_sender_timeout = 0; SELECT pg_reload_conf()});
my $consumer = IPC::Run::start([ 'pg_recvlogical', '-d', $node->connstr('postgres'), '-S', 'silent', '--start', '-f', '-', '--status-interval=0', '--fsync-interval=0',
    '-o', 'proto_version=1', '-o', 'publication_names=all_of_it' ],
    '<', \undef, '>', '/dev/null', '2>', '/dev/null');
wait_for($node, q{SELECT active FROM pg_replication_slots WHERE slot_name = 'silent'}, 'it is connected');
fill('t', 100);
wait_for($node, q{SELECT count(*) = 0 FROM t}, 'one that takes all is none of it');
$consumer->signal('STOP');
sql(q{CREATE TABLE much (filling text); INSERT INTO much SELECT repeat('x', 1000) FROM generate_series(1, 20000)});
held_up('consumer', qr/replication slot "silent" is more than 500ms behind/);
$consumer->signal('KILL');
$consumer->finish;
wait_for($node, q{SELECT NOT active FROM pg_replication_slots WHERE slot_name = 'silent'}, 'it is gone');
sql(q{SELECT pg_drop_replication_slot('silent'); DROP PUBLICATION all_of_it});
goes_on('consumer');
# nor does one when nobody minds
sql(q{SELECT pg_create_logical_replication_slot('unread', 'pgoutput')});
reset_conf('max_replica_lag');
fill('t', 100);
wait_for($node, q{SELECT count(*) = 0 FROM t}, 'nobody minds');
sql(q{SELECT pg_drop_replication_slot('unread')});

# WAL: one batch at a time, and no more than allowed
configure(q{session_sweeper.max_wal_rate = '200kB'});
# the first batches of the workers are still as large as before
fill('t', 3000);
wait_for($node, q{SELECT count(*) = 0 FROM t}, 'batches become smaller');
my ($batches_before, $rows_before) = done_so_far();
my $began = sql(q{SELECT extract(epoch FROM clock_timestamp())});
fill('t', 5000);
state_is('t', 'throttled');
wait_for($node, q{SELECT count(*) = 0 FROM t}, 'all go');
my $seconds = sql(qq{SELECT extract(epoch FROM clock_timestamp()) - $began});
my ($batches, $rows) = done_so_far();
# a row costs more than 80 bytes; a second's worth is there at once, and a batch of each worker may be under way
cmp_ok($seconds, '>', 5000 * 80 / 200_000 - 1, "in $seconds s");
cmp_ok($batches - $batches_before, '>', 5, 'in several batches');
is($rows - $rows_before, 5000, 'each once');
# what somebody asked for is no debt
fill('t', 20000);
sql(q{CALL sweeper.sweep('t')});
fill('t', 10);
wait_for($node, q{SELECT count(*) = 0 FROM t}, 'no debt');
# a policy that looks only when asked is finished, whatever is altered meanwhile
sql(q{SELECT sweeper.alter_policy('t', check_every => '0')});
fill('t', 5000);
sql(q{SELECT sweeper.alter_policy('t', rate_limit => 1500); CALL sweeper.sweep('t', wait => false)});
wait_for($node, q{SELECT count(*) = 0 FROM t}, 'who asks does not wait for rates');
sql(q{SELECT sweeper.alter_policy('t', reset => '{check_every}')});
fill('t', 5000);
wait_for($node, q{SELECT count(*) BETWEEN 1 AND 4999 FROM t}, 'it has begun');
sql(q{SELECT sweeper.alter_policy('t', check_every => '0'), sweeper.alter_policy('beat', max_lag => '2 min')});
wait_for($node, q{SELECT count(*) = 0 FROM t}, 'it is finished');
sql(q{SELECT sweeper.alter_policy('t', reset => '{check_every,rate_limit}')});
reset_conf('max_wal_rate');

# batches adapt both ways: to a slow trigger, and back
sql(q{CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.004); RETURN OLD; END $$;
    CREATE TRIGGER slow BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION slow()});
fill('t', 1500);
wait_for($node, q{SELECT count(*) = 0 FROM t}, 'slowly');
sql(q{DROP TRIGGER slow ON t});
($batches_before, $rows_before) = done_so_far();
fill('t', 50);
wait_for($node, q{SELECT count(*) = 0 FROM t}, 'a few');
fill('t', 20000);
wait_for($node, q{SELECT count(*) = 0 FROM t}, 'fast');
($batches, $rows) = done_so_far();
cmp_ok(($rows - $rows_before) / ($batches - $batches_before), '>', 200, 'batches have grown again');

# windows: closed but for a day that is not near
my $far = sql(q{SELECT to_char(now() AT TIME ZONE 'UTC' + interval '3 days', 'Dy')});
sql("SELECT sweeper.alter_policy('t', maintenance_window => '$far 00:00-24:00 UTC')");
fill('t', 100);
state_is('t', 'outside window');
like(sql(q{SELECT reason FROM sweeper.explain_row('t', '7')}), qr/maintenance window opens at [-0-9]+ .*: $far 00:00-24:00 UTC/, 'explain_row() knows');
wait_for($node, q{SELECT lag > interval '2 s' FROM sweeper.policy_status WHERE policy = 't'}, 'it waits');
is(sql(q{SELECT count(*) FROM sweeper.problem WHERE policy = 't'}), 0, 'no problem, however late');
is(sql(q{SELECT count(*) FROM t}), 100, 'nothing goes');
sql(q{CALL sweeper.sweep('t')});
is(sql(q{SELECT count(*) FROM t}), 0, 'but who asks is served');
# while it is closed, who lives is refreshed
sql(qq{SELECT sweeper.alter_policy('beat', maintenance_window => '$far 00:00-24:00 UTC'); INSERT INTO beat SELECT i, now() + interval '4 s', 'x' FROM generate_series(1, 2) AS i});
my $d = sql(q{SELECT d FROM beat WHERE id = 1});
wait_for($node, "SELECT sweeper.touch('beat', 1) AND d > '$d'::timestamptz + interval '2 s' FROM beat WHERE id = 1", 'refreshed');
wait_for($node, q{SELECT d < now() FROM beat WHERE id = 2}, 'the other is dead');
# dead rows that wait are not read again and again for those that live
sql(q{INSERT INTO beat SELECT i, now() - interval '1 h', 'x' FROM generate_series(11, 3010) AS i});
my $looks = q{SELECT looks FROM sweeper.stat_policy WHERE policy = 'beat'};
wait_for($node, 'SELECT looks > ' . (sql($looks) + 10) . q{ FROM sweeper.stat_policy WHERE policy = 'beat'}, 'they are known');
my $read = q{SELECT sum(pg_stat_get_tuples_returned(indexrelid)) FROM pg_index WHERE indrelid = 'beat'::regclass};
my $before_looks = sql($looks);
wait_for($node, "SELECT looks > $before_looks + 20 AND sweeper.touch('beat', 1) FROM sweeper.stat_policy WHERE policy = 'beat'", 'looked at');
my $states = sql(q{CREATE TABLE states (state text); DO $$ BEGIN FOR i IN 1 .. 40 LOOP
        INSERT INTO states SELECT state FROM sweeper.policy_status WHERE policy = 'beat'; COMMIT; PERFORM pg_sleep(0.03); END LOOP; END $$;
    SELECT string_agg(DISTINCT state, ',') FROM states});
is($states, 'outside window', 'it is shown as closed all the time');
# a process tells its statistics with a delay
my $first = sql($read);
$before_looks = sql($looks);
wait_for($node, "SELECT looks > $before_looks + 40 AND sweeper.touch('beat', 1) FROM sweeper.stat_policy WHERE policy = 'beat'", 'looked at again');
cmp_ok(sql($read) - $first, '<', 20 * 3000, 'the dead are not read each time');
fill('t', 100);
my $today = sql(q{SELECT to_char(now() AT TIME ZONE 'UTC', 'Dy')});
my $tomorrow = sql(q{SELECT to_char(now() AT TIME ZONE 'UTC' + interval '1 day', 'Dy')});
sql("SELECT sweeper.alter_policy('t', maintenance_window => '$today-$tomorrow 00:00-24:00 UTC')");
wait_for($node, q{SELECT count(*) = 0 FROM t}, 'it opens');
is(sql(q{SELECT string_agg(id::text, ',' ORDER BY id) FROM beat WHERE id < 10}), '1,2', 'the other stays closed');
sql(q{SELECT sweeper.alter_policy('beat', reset => '{maintenance_window}')});
wait_for($node, q{SELECT count(*) = 0 FROM beat WHERE id = 2}, 'without one it goes');
# who has let go what the fuse held is not held again, though nothing was found while the window was closed
sql(qq{CREATE TABLE blown (id int PRIMARY KEY, d timestamptz); CREATE INDEX ON blown (d);
    INSERT INTO blown SELECT i, now() + CASE WHEN i <= 100 THEN interval '2 s' ELSE interval '1 h' END FROM generate_series(1, 110) AS i;
    SELECT sweeper.register('blown', deadline => 'd', ttl => '4 s', heartbeats => true, start => 'now', check_every => '100 ms', fuse_min => 10);
    SELECT sweeper.touch('blown', 110)});
state_is('blown', 'fuse');
sql(qq{SELECT sweeper.alter_policy('blown', maintenance_window => '$far 00:00-24:00 UTC'), sweeper.resume('blown')});
$before_looks = sql(q{SELECT looks FROM sweeper.stat_policy WHERE policy = 'blown'});
wait_for($node, "SELECT looks > $before_looks + 20 FROM sweeper.stat_policy WHERE policy = 'blown'", 'looked at');
sql(q{SELECT sweeper.alter_policy('blown', reset => '{maintenance_window}')});
wait_for($node, q{SELECT count(*) = 0 FROM blown WHERE id <= 100}, 'they go');
is(sql(q{SELECT fuse_trips FROM sweeper.stat_policy WHERE policy = 'blown'}), 1, 'the fuse has tripped once');
# nor is a row forgotten that cannot go
sql(q{CREATE TABLE refused (id int PRIMARY KEY, d timestamptz); CREATE INDEX ON refused (d);
    INSERT INTO refused VALUES (1, now() - interval '1 h'), (2, now() + interval '1 h'); CREATE TABLE child (id int REFERENCES refused); INSERT INTO child VALUES (1);
    SELECT sweeper.register('refused', deadline => 'd', ttl => '4 s', heartbeats => true, start => 'now', check_every => '100 ms', max_retries => 0);
    SELECT sweeper.touch('refused', 2)});
wait_for($node, q{SELECT count(*) = 1 FROM sweeper.failed_row WHERE policy = 'refused' AND state = 'quarantined'}, 'quarantined');
sql("SELECT sweeper.alter_policy('refused', maintenance_window => '$far 00:00-24:00 UTC')");
$before_looks = sql(q{SELECT looks FROM sweeper.stat_policy WHERE policy = 'refused'});
wait_for($node, "SELECT looks > $before_looks + 20 FROM sweeper.stat_policy WHERE policy = 'refused'", 'looked at');
is(sql(q{SELECT count(*) FROM sweeper.failed_row WHERE policy = 'refused' AND state = 'quarantined'}), 1, 'still quarantined');
# over midnight it belongs to the day on which it begins; where it is past midnight now
my $hour = sql(q{SELECT extract(hour FROM now() AT TIME ZONE 'UTC')});
my $zone = $hour <= 12 ? "Etc/GMT+$hour" : 'Etc/GMT-' . (24 - $hour);
my ($day, $before) = split /\|/, sql("SELECT to_char(now() AT TIME ZONE '$zone', 'Dy'), to_char(now() AT TIME ZONE '$zone' - interval '1 day', 'Dy')");
sql("SELECT sweeper.alter_policy('t', maintenance_window => '$day 22:00-02:00 $zone')");
fill('t', 100);
state_is('t', 'outside window');
sql("SELECT sweeper.alter_policy('t', maintenance_window => '$day 22:00-22:01, $before 22:00-02:00 $zone')");
wait_for($node, q{SELECT count(*) = 0 FROM t}, 'it is still open');
done_testing();
