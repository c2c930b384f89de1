# Sessions that wait for a seat: whose turn it is, what wakes them, those that leave; and what is counted of pools.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main', 'max_connections = 60', 'max_prepared_transactions = 2', "log_timezone = 'UTC'");
sub sql { return $node->safe_psql('postgres', @_) }
sub client { return $node->background_psql('postgres', on_error_stop => 0) }
sub complaint { my ($ret, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$_[0]"); return $err }
sub pool { return sql("SELECT live, waiting, refused, peak_today FROM sweeper.pool_status WHERE pool = '$_[0]'") }
sub session { return sql("SELECT session FROM sweeper.live_session WHERE owner = '$_[0]'") }
sub release { return sql("SELECT sweeper.release('" . session($_[0]) . "')") }
sql(q{CREATE EXTENSION session_sweeper; SELECT sweeper.create_pool('lic', 1), sweeper.create_pool('mine', 2, max_per_owner => 1)});

# A client that waits for a seat of a pool; the queue has its place when this returns.
my %waiter;
sub begin_waiting {
    my ($owner, $pool, $expression) = @_;
    $expression //= "'$owner'";
    my $before = sql("SELECT waiting FROM sweeper.pool_status WHERE pool = '$pool'");
    my $client = $waiter{$owner} = client();
    $client->{backend} = $client->query_safe('SELECT pg_backend_pid()');
    $client->query_until(qr/waits/, "\\echo waits\nCALL sweeper.acquire_wait('$pool', $expression, '60 s');\n\\echo back\n");
    # twice: it sleeps, and is not just about to look
    wait_for($node, "SELECT count(*) = 1 FROM pg_stat_activity WHERE pid = $client->{backend} AND state = 'active' AND wait_event_type = 'Extension' AND backend_xmin IS NULL AND backend_xid IS NULL") for 1 .. 2;
    is(sql("SELECT waiting - $before FROM sweeper.pool_status WHERE pool = '$pool'"), 1, "$owner waits");
    return;
}
# What it got: a seat, or none.
sub waited {
    my ($owner) = @_;
    my $out = $waiter{$owner}->query_until(qr/back/, '');
    delete($waiter{$owner})->quit;
    return $out =~ /^[0-9a-f-]{36}\|\d+\|/m ? 'a seat' : $out =~ /^\|\|\|\|\|\|\|$/m ? 'none' : $out;
}

# where nobody waits it is an acquire
is(sql(q{CALL sweeper.acquire_wait('lic', 'ann', '1 min', ttl => '2 min')}) =~ /^[0-9a-f-]{36}\|\d+\|.*\|00:02:00\|00:00:40\|f\|1\|1$/, 1, 'a free seat is taken at once');
is(sql(q{CALL sweeper.acquire_wait('lic', 'bob', '50 ms')}), '|||||||', 'a full pool: none at the end of the time');
is(sql(q{CALL sweeper.acquire_wait('lic', 'bob', '0')}), '|||||||', 'or at once');
is(pool('lic'), '1|0|2|1', 'both are refused');

# in the order in which they came, each as soon as there is a seat
begin_waiting($_, 'lic') for qw(bob carl dora);
is(pool('lic'), '1|3|2|1', 'three wait');
my @took;
for my $pair ([ 'ann', 'bob' ], [ 'bob', 'carl' ], [ 'carl', 'dora' ]) {
    my ($before, $after) = @$pair;
    is(release($before), 't', "$before leaves");
    is(waited($after), 'a seat', "$after has the seat");
    push @took, sql("SELECT extract(epoch FROM n.acquired_at - o.released_at) FROM sweeper.session AS n, sweeper.session AS o WHERE n.owner = '$after' AND o.owner = '$before'");
}
cmp_ok((sort { $a <=> $b } @took)[0], '<', 0.5, "at once, not at the next look: @took");
is(pool('lic'), '1|0|2|1', 'none waits, none was refused');

# a rollback gives nothing; others do not overtake
begin_waiting('emil', 'lic');
my $other = client();
$other->query_safe("BEGIN; SELECT sweeper.release('" . session('dora') . "'); ROLLBACK");
is(sql(q{SELECT sweeper.alter_pool('lic', seats => 1)}) . waiting('emil'), 'waits', 'a change that makes no room');
$other->query_safe("BEGIN; SELECT sweeper.release('" . session('dora') . "')");
is(sql(q{SELECT count(*) FROM sweeper.acquire('lic', 'pushy')}), 0, 'the seat is not free before the commit');
$other->query_safe('COMMIT');
is(waited('emil'), 'a seat', 'then it is');
begin_waiting('fred', 'lic');
kill 'STOP', $waiter{fred}{backend};
release('emil');
is(sql(q{SELECT count(*) FROM sweeper.acquire('lic', 'pushy')}), 0, 'a free seat is that of the first in the queue');
is(pool('lic'), '0|1|4|1', 'which takes its time');
wait_for($node, q{SELECT count(*) = 1 FROM sweeper.acquire('lic', 'pushy')}, 'but not longer than some seconds');
kill 'CONT', $waiter{fred}{backend};
release('pushy');
is(waited('fred'), 'a seat', 'and it still has its turn');

sub waiting { return sql("SELECT CASE WHEN state = 'active' THEN 'waits' ELSE 'is back' END FROM pg_stat_activity WHERE pid = $waiter{$_[0]}{backend}") }

# a seat that another of one's own makes room for is nobody's
begin_waiting('gina', 'lic');
is(sql(q{SELECT taken_over FROM sweeper.acquire('lic', 'fred', takeover => true)}), 't', 'a take-over waits for nobody');
is(waiting('gina'), 'waits', 'and takes no seat from those who wait');

# more seats, and none
sql(q{SELECT sweeper.alter_pool('lic', seats => 2)});
is(waited('gina'), 'a seat', 'more seats wake');
begin_waiting('hans', 'lic');
sql(q{SELECT sweeper.drop_pool('lic', force => true)});
my $out = $waiter{hans}->query_until(qr/back/, '');
like($waiter{hans}{stderr}, qr/pool "lic" does not exist/, 'a pool that is dropped ends the wait');
delete($waiter{hans})->quit;
sql(q{SELECT sweeper.create_pool('lic', 2)});

# the end of a session in whatever way, and two seats at once
sql(q{SELECT count(*) FROM sweeper.acquire('lic', 'x') AS a, sweeper.acquire('lic', 'y') AS b});
begin_waiting($_, 'lic') for qw(ida jan);
sql(q{SELECT sweeper.expire_group('sweeper.session', 'lic', 'closing time')});
is(join(',', map { waited($_) } qw(ida jan)), 'a seat,a seat', 'two seats become free, two have them');
begin_waiting('kim', 'lic');
sql(q{UPDATE sweeper.session SET acquired_at = now() - interval '3 h', last_seen_at = now() - interval '2 h', expires_at = now() - interval '1 h' WHERE owner = 'ida'});
is(waited('kim'), 'a seat', 'a holder that is dead');
my $attached = client();
$attached->query_safe("SELECT sweeper.attach('" . session('jan') . "')");
begin_waiting('leo', 'lic');
$attached->quit;
is(waited('leo'), 'a seat', 'a connection that closes');
begin_waiting('mia', 'lic');
sql(q{BEGIN; SELECT sweeper.release(session) FROM sweeper.live_session WHERE owner = 'leo'; PREPARE TRANSACTION 'p'});
is(waiting('mia'), 'waits', 'an end that is prepared');
sql(q{COMMIT PREPARED 'p'});
is(waited('mia'), 'a seat', 'and committed');

# those that leave let the next one come: a cancel, the end of the session, of the client
begin_waiting($_, 'lic') for qw(nora otto paul quin);
sql("SELECT pg_cancel_backend($waiter{nora}{backend})");
$waiter{nora}->query_until(qr/back/, '');
like($waiter{nora}{stderr}, qr/canceling statement due to user request/, 'cancelled');
sql("SELECT pg_terminate_backend($waiter{otto}{backend})");
wait_for($node, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $waiter{otto}{backend}");
kill 'KILL', $waiter{paul}{run}{KIDS}[0]{PID};
wait_until(sub { eval { $waiter{paul}{run}->pump_nb }; !$waiter{paul}{run}->pumpable }, 'the client is gone');
release('mia');
is(waited('quin'), 'a seat', 'the next has the seat');
is(sql("SELECT count(*) FROM sweeper.session WHERE owner IN ('nora', 'otto', 'paul')"), 0, 'and those who left have taken none');
wait_for($node, q{SELECT waiting = 0 FROM sweeper.pool_status WHERE pool = 'lic'});
eval { $_->quit } for values %waiter;
%waiter = ();

# one whose owner has enough lets others pass, until that changes
sql(q{SELECT count(*) FROM sweeper.acquire('mine', 'ann') AS a, sweeper.acquire('mine', 'bob') AS b});
begin_waiting('ann', 'mine');
begin_waiting('carl', 'mine');
release('bob');
is(waited('carl'), 'a seat', 'who may not have one lets others pass');
is(waiting('ann'), 'waits', 'and waits on');
# once it has looked, because nobody overtakes one that may yet take the seat
sql(q{SELECT sweeper.alter_pool('mine', seats => 3)});
wait_for($node, q{SELECT count(*) = 1 FROM sweeper.acquire('mine', 'dora')}, 'it keeps no free seat from others');
# nor does another of that owner
my $first = delete $waiter{ann};
begin_waiting('ann', 'mine');
begin_waiting('eva', 'mine');
sql(q{SELECT sweeper.alter_pool('mine', seats => 4)});
is(waited('eva'), 'a seat', 'two of one owner let others pass');
sub leave { return sql("SELECT sweeper.release(session) FROM sweeper.live_session WHERE pool = 'mine' AND owner = '$_[0]'") }
leave('ann');
($waiter{ann}, $first) = ($first, $waiter{ann});
is(waited('ann'), 'a seat', 'the first has its seat when its owner may have it');
$waiter{ann} = $first;
is(waiting('ann'), 'waits', 'the second waits');
leave('ann');
is(waited('ann'), 'a seat', 'until its owner may have another');
leave('eva');
# also when that is so without a commit: nobody sweeps the session that is dead
sql(q{SELECT sweeper.create_pool('alone', max_per_owner => 1); SELECT sweeper.pause('sweeper.session'); SELECT FROM sweeper.acquire('alone', 'zoe', ttl => '5 s')});
begin_waiting('zoe', 'alone');
is(waited('zoe'), 'a seat', 'the dead session of its owner makes room');
sql(q{SELECT sweeper.resume('sweeper.session')});
# another call for its owner does not overtake it
begin_waiting('zoe', 'alone');
is(sql(qq{BEGIN; SELECT sweeper.release('@{[ session('zoe') ]}'); SELECT count(*) FROM sweeper.acquire('alone', 'zoe'); COMMIT}), "t\n0", 'who waits comes first');
is(waited('zoe'), 'a seat', 'and has the seat');

# an open transaction that holds the pool delays, and does not end the wait
my $holder = client();
$holder->query_safe(q{SELECT sweeper.alter_pool('mine', seats => 4); BEGIN; SELECT FROM sweeper.acquire('mine', 'long')});
like(complaint(q{SELECT sweeper.acquire('mine', 'emil')}), qr/55P03/, 'acquire gives up');
my $patient = client();
$patient->{backend} = $patient->query_safe('SELECT pg_backend_pid()');
$patient->query_until(qr/waits/, "\\echo waits\nCALL sweeper.acquire_wait('mine', 'emil', '60 s');\n\\echo back\n");
wait_for($node, "SELECT count(*) = 1 FROM pg_locks WHERE pid = $patient->{backend} AND NOT granted") for 1 .. 2;
$holder->query_safe('ROLLBACK');
$waiter{emil} = $patient;
is(waited('emil'), 'a seat', 'acquire_wait does not');
$_->quit for $holder, $other;

# an owner that a function has read from a table, out of line, and whose row is gone when there is a seat
my $long = 'x' x 200;
sql(qq{SELECT sweeper.create_pool('toasted', 1); SELECT FROM sweeper.acquire('toasted', 'first');
    CREATE TABLE wide (@{[ join ', ', map { "c$_ text" } 1 .. 12 ]}) WITH (toast_tuple_target = 128);
    ALTER TABLE wide @{[ join ', ', map { "ALTER c$_ SET STORAGE EXTERNAL" } 1 .. 12 ]};
    INSERT INTO wide SELECT @{[ join ', ', map { "'$long'" } 1 .. 12 ]};
    CREATE FUNCTION wide_owner() RETURNS text LANGUAGE sql VOLATILE AS 'SELECT c1 FROM wide';});
is(sql(q{SELECT pg_relation_size(reltoastrelid) > 0 FROM pg_class WHERE relname = 'wide'}), 't', 'it is out of line');
begin_waiting('wide', 'toasted', 'wide_owner()');
sql(q{DELETE FROM wide});
sql(q{VACUUM wide});
release('first');
is(waited('wide'), 'a seat', 'has its seat all the same');
is(sql(q{SELECT owner FROM sweeper.live_session WHERE pool = 'toasted'}), $long, 'in its name');

# what it refuses
# a transaction that stays open keeps the pool, not its seats
sql(q{SELECT sweeper.create_pool('kept', seats => 10)});
my $keeper = client();
$keeper->query_safe(q{BEGIN; SELECT FROM sweeper.acquire('kept', 'open')});
like(complaint(qq{CALL sweeper.acquire_wait('kept', 'x', '$_')}), qr/ERROR:  55P03: .*HINT:/s, "a pool that is kept has perhaps a seat: $_") for '0', '100 ms';
$keeper->query_safe('ROLLBACK');
$keeper->quit;
is(pool('kept'), '0|0|0|0', 'none of them counts as refused');
like(complaint(q{BEGIN; CALL sweeper.acquire_wait('lic', 'x', '1 s')}), qr/25001: acquire_wait cannot wait inside a transaction block.*HINT:  Call it outside of one; sweeper\.acquire\(\) does not wait\./s, 'no transaction block');
like(complaint(q{CALL sweeper.acquire_wait('lic', 'x', '-1 s')}), qr/22023: wait must not be negative/, 'no time below zero');
like(complaint(q{CALL sweeper.acquire_wait(NULL, 'x', '1 s')}), qr/22004: pool must not be null/, 'a pool');
like(complaint(q{CALL sweeper.acquire_wait('lic', NULL, '1 s')}), qr/22004: owner must not be null/, 'an owner');
like(complaint(q{CALL sweeper.acquire_wait('lic', 'x', NULL)}), qr/22004: wait must not be null/, 'a time');
like(complaint(q{CALL sweeper.acquire_wait('nil', 'x', '1 s')}), qr/42704: pool "nil" does not exist/, 'a pool that there is');
like(complaint(q{SET default_transaction_read_only = on; CALL sweeper.acquire_wait('lic', 'x', '1 s')}), qr/25006/, 'no read-only transaction');
like(complaint(q{CREATE ROLE nobody; GRANT USAGE ON SCHEMA sweeper TO nobody; GRANT EXECUTE ON PROCEDURE sweeper.acquire_wait TO nobody; SET ROLE nobody; CALL sweeper.acquire_wait('lic', 'x', '1 s')}),
    qr/42501: permission denied for pool "lic".*grant_access\('nobody', 'user', pool => 'lic'\)/s, 'a role without the level');
sql(q{SELECT sweeper.grant_access('nobody', 'user', pool => 'lic'); SELECT sweeper.alter_pool('lic', seats => 9)});
is(sql(q{SET ROLE nobody; CALL sweeper.acquire_wait('lic', 'x', '1 s')}) =~ /\|9\|\d$/, 1, 'level user of the pool is enough');

# many that wait for few seats: each has one in the end, never too many at once, in the order in which they came
sql(q{SELECT sweeper.create_pool('few', 3)});
together($node, 12, q{CALL sweeper.acquire_wait('few', 'w' || :client_id, '60 s') \gset
SELECT sweeper.release(':session');}, 10);
is(sql(q{SELECT count(*) FROM sweeper.session WHERE pool = 'few' AND status = 'released'}), 120, 'each call had a seat');
is(sql(q{SELECT count(*) FROM (SELECT sum(n) OVER (ORDER BY at, n) AS held FROM
    (SELECT acquired_at AS at, 1 AS n FROM sweeper.session WHERE pool = 'few' UNION ALL SELECT released_at, -1 FROM sweeper.session WHERE pool = 'few') AS e) AS h
    WHERE held > 3}), 0, 'no seat was sold twice');
is(sql(q{SELECT peak_today BETWEEN 1 AND 3, refused, waiting FROM sweeper.pool_status WHERE pool = 'few'}), 't|0|0', 'as the counts say');

# counts are written to the table, once, and are those of the evidence
sub written { return sql("SELECT acquired, refused, peak, zombie, expired, released, disconnected, manual FROM sweeper.pool_day WHERE pool = '$_[0]'") }
wait_for($node, q{SELECT count(*) = 0 FROM sweeper._pool_counts()}, 'all is written');
is(written('few'), '120|0|' . sql(q{SELECT peak_today FROM sweeper.pool_status WHERE pool = 'few'}) . '|0|0|120|0|0', 'a row a day');
is(sql(q{SELECT count(*) FROM (SELECT pool, count(*) AS n FROM sweeper.session GROUP BY pool) AS s FULL JOIN sweeper.pool_day AS d USING (pool) WHERE s.n IS DISTINCT FROM d.acquired}), 0, 'acquired: each session');
is(sql(q{SELECT count(*) FROM (SELECT pool, count(*) FILTER (WHERE cleanup_type = 'zombie') AS z, count(*) FILTER (WHERE cleanup_type = 'disconnected') AS d, count(*) AS n FROM sweeper.usage_event GROUP BY pool) AS u
    FULL JOIN sweeper.pool_day AS d USING (pool) WHERE (u.z, u.d, u.n) IS DISTINCT FROM (d.zombie, d.disconnected, d.zombie + d.expired + d.released + d.disconnected + d.manual)}), 0, 'ended: each usage event, by type');

# a pool of any number: nobody counts when a seat is taken, and the most is known all the same
sql(q{SELECT sweeper.create_pool('any'); SELECT count(*) FROM generate_series(1, 5) AS i, sweeper.acquire('any', 'a' || i)});
wait_for($node, q{SELECT count(*) = 0 FROM sweeper._pool_counts()}, 'all is written');
is(written('any'), '5|0|5|0|0|0|0|0', 'five');
sql(q{SELECT count(*) FROM generate_series(6, 8) AS i, sweeper.acquire('any', 'a' || i)});
sql(q{SELECT count(sweeper.release(session)) FROM sweeper.live_session WHERE pool = 'any' AND owner > 'a2'});
is(pool('any'), '2|0|0|8', 'eight at most, before it is written');
wait_for($node, q{SELECT count(*) = 0 FROM sweeper._pool_counts()}, 'all is written');
is(written('any') . ' ' . pool('any'), '8|0|8|0|0|6|0|0 2|0|0|8', 'and after');
sql(q{BEGIN; SELECT count(*) FROM sweeper.acquire('any', 'undone'); ROLLBACK; BEGIN; SAVEPOINT a; SELECT count(*) FROM sweeper.acquire('any', 'undone'); ROLLBACK TO a; COMMIT});
is(pool('any'), '2|0|0|8', 'what is rolled back does not count');
$other = client();
$other->query_safe(q{BEGIN; SELECT sweeper.alter_pool('few', seats => 0); SELECT count(*) FROM sweeper.acquire('few', 'late'); ROLLBACK});
is(sql(q{SELECT refused FROM sweeper.pool_status WHERE pool = 'few'}), 1, 'but what was refused does');
$other->quit;

# pools that are dropped keep their days
sql(q{SELECT sweeper.create_pool('gone'), sweeper.create_pool('gone 2', 2); SELECT count(*) FROM sweeper.acquire('gone', 'a') AS a, sweeper.acquire('gone', 'b') AS b, sweeper.acquire('gone 2', 'a') AS c});
sql(q{SELECT sweeper.drop_pool('gone', force => true)});
wait_for($node, q{SELECT count(*) = 0 FROM sweeper._pool_counts()}, 'all is written');
is(written('gone'), '2|0|2|0|2|0|0|0', 'of any number');
sql(q{SELECT sweeper.drop_pool('gone 2', force => true)});
wait_for($node, q{SELECT count(*) = 0 FROM sweeper._pool_counts()}, 'all is written');
is(written('gone 2') . sql(q{SELECT ' ' || seats FROM sweeper.pool_day WHERE pool = 'gone 2'}), '1|0|1|0|1|0|0|0 2', 'of some seats');

# another day: what nobody touches has its row, too
sql(q{ALTER SYSTEM SET log_timezone = 'Etc/GMT-14'; SELECT pg_reload_conf()});
my $today = sql(q{SELECT (now() AT TIME ZONE 'Etc/GMT-14')::date});
if ($today eq sql(q{SELECT (now() AT TIME ZONE 'UTC')::date})) {
    sql(q{ALTER SYSTEM SET log_timezone = 'Etc/GMT+12'; SELECT pg_reload_conf()});
    $today = sql(q{SELECT (now() AT TIME ZONE 'Etc/GMT+12')::date});
}
wait_for($node, "SELECT count(*) = 1 FROM sweeper.pool_day WHERE pool = 'any' AND day = '$today'");
is(sql("SELECT acquired, peak FROM sweeper.pool_day WHERE pool = 'any' AND day = '$today'"), '0|2', 'sessions that live on are part of the next day');
is(sql(q{SELECT peak_today FROM sweeper.pool_status WHERE pool = 'any'}), 2, 'on which the most begins anew');
sql(q{ALTER SYSTEM RESET log_timezone; SELECT pg_reload_conf()});

# a table that is locked delays the counts, and no policy
my $lock = client();
$lock->query_safe(q{BEGIN; LOCK TABLE sweeper.pool_day});
my $log = -s $node->logfile;
sql(q{SELECT count(*) FROM sweeper.acquire('any', 'locked')});
$node->wait_for_log(qr/could not write the counts of seats of database "postgres"/, $log);
is(sql(q{SELECT acquired FROM sweeper._pool_counts() WHERE pool = 'any'}), 1, 'they are still there');
$lock->quit;

# a crash loses what was not written, and the sessions are counted again
$node->stop('immediate');
$node->start;
wait_for($node, 'SELECT service_start IS NOT NULL FROM sweeper._cluster()');
is(pool('any'), '3|0|0|8', 'after a crash');
sql(q{SELECT count(*) FROM generate_series(1, 7) AS i, sweeper.acquire('any', 'b' || i)});
is(pool('any'), '10|0|0|10', 'more than before');
is(sql(q{SELECT sum(acquired) FROM sweeper.pool_day WHERE pool = 'any'}), 8, 'the one that was not written is lost');
$node->stop;
done_testing();
