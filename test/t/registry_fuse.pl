# The fuse of the registry: the group is the pool, others go on, and what it holds costs them nothing.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes 'time';
use Sweeper;

my $node = sweeper_node('main');
sub sql { return $node->safe_psql('postgres', @_) }
sub live { return "(SELECT count(*) FROM sweeper.session WHERE pool = '$_[0]' AND status = 'active')" }
sub dies { return sql("UPDATE sweeper.session SET expires_at = now() - interval '1 s' WHERE status = 'active' AND $_[0]") }
sql(q{CREATE EXTENSION session_sweeper;
    SELECT sweeper.create_pool('a', seats => 180, ttl => '3 min'), sweeper.create_pool('b'), sweeper.create_pool('c', ttl => '1 h');
    SELECT count(*) FROM generate_series(1, 180) AS i, sweeper.acquire('a', i::text);
    SELECT count(*) FROM generate_series(1, 5) AS i, sweeper.acquire('b', i::text);});
my $worker = sql(q{SELECT sweeper.register_worker('w')});
sql(qq{SELECT sweeper.register_job('$worker', 'room', 'c', 'j'); SELECT sweeper.submit('room', 'c', 'j')});
is(sql("SELECT count(*) FROM sweeper.claim('$worker', start => true)"), 1, 'a task runs');
my $client = $node->background_psql('postgres');
is($client->query_safe(q{SELECT sweeper.attach(session) FROM sweeper.acquire('c', 'attached')}), 't', 'a session is attached');

# 105 of 180 dead in one pool
dies(qq{(pool = 'b' OR session = '$worker' OR (pool = 'a' AND owner::int <= 105))});
wait_for($node, 'SELECT ' . live('b') . ' + ' . live('sweeper.worker') . ' = 0', 'seats of another pool, and a worker, go');
is(sql('SELECT ' . live('a')), 180, 'those of the one are held');
is(sql('SELECT status FROM sweeper.list_tasks()'), 'failed', q(the worker's task failed));
is(sql(q{SELECT "group", detail, held_until - held_at BETWEEN '3 min' AND '4 min' FROM sweeper.fuse_hold}),
    'a|the pass would expire 105 rows of group "a" and leave 75 alive|t', 'for one time to live of the rows, not of the policy');
is(sql(q{SELECT severity, policy, next_step FROM sweeper.problem WHERE problem = 'fuse'}), q{critical|sweeper.session|SELECT * FROM sweeper.preview('sweeper.session'); -- then SELECT sweeper.resume('sweeper.session', 'a'); or SELECT sweeper.pause('sweeper.session');},
    'problem names it');
like(slurp_file($node->logfile), qr/policy "sweeper.session" is held by its fuse: .*group "a"/, 'and so does the log');
is(sql(q{SELECT fuse_trips FROM sweeper.stat_policy WHERE policy = 'sweeper.session'}), 1, 'counted');
$client->quit;
wait_for($node, 'SELECT ' . live('c') . ' = 0', 'a closed connection ends its session');
sql(q{UPDATE sweeper.session SET ends_at = now() WHERE pool = 'a' AND owner = '1'});
wait_for($node, 'SELECT ' . live('a') . ' = 179', 'what max_ttl ends is not held');
is(sql(q{SELECT free, live, over_by FROM sweeper.pool_status WHERE pool = 'a'}), '105|75|0', 'seats of the dead are free');
is(sql(q{SELECT seats_used FROM sweeper.acquire('a', 'new')}), 76, 'and acquire gives one');
is(sql('SELECT ' . live('a')), 76, 'it obeys no fuse');

# workers, too, wait for no longer than their own time to live; then they go by themselves
sql(q{SELECT sweeper.create_pool('w', ttl => '2 s'); SELECT count(*) FROM generate_series(1, 200) AS i, sweeper.acquire('w', i::text)});
wait_for($node, 'SELECT ' . live('w') . ' = 0', 'after one time to live they go');
is(sql(q{SELECT count(*), max((new ->> 'until')::timestamptz - changed_at) <= '2 s' FROM sweeper.policy_change WHERE change = 'fuse' AND new ->> 'group' = 'w'}), '1|t', 'held once');
wait_for($node, q{SELECT NOT EXISTS (SELECT FROM sweeper.fuse_hold WHERE "group" = 'w')}, 'and the fuse is ready again');

# others pay nothing for what is held
sql(q{SELECT count(*) FROM generate_series(1, 5000) AS i, sweeper.acquire('b', i::text); SELECT count(*) FROM generate_series(1, 20) AS i, sweeper.acquire('c', i::text)});
sql(q{SELECT sweeper.alter_policy('sweeper.session', check_every => '20 ms')});
dies(q{pool = 'b'});
wait_for($node, q{SELECT EXISTS (SELECT FROM sweeper.fuse_hold WHERE "group" = 'b')}, 'a pool is held');
my $reads = q{SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'session_due'};
my ($before, $start) = (sql($reads), time);
for my $i (1 .. 20) {
    sql("UPDATE sweeper.session SET expires_at = clock_timestamp() + interval '100 ms', ttl = '1 s' WHERE pool = 'c' AND owner = '$i'");
    wait_for($node, 'SELECT ' . live('c') . " = 20 - $i", 'another goes');
}
my ($read, $seconds) = (sql($reads) - $before, time - $start);
cmp_ok($read, '<', 5000 * 3 * ($seconds + 2), sprintf('%d index entries read in %.1f s: held rows about once a second', $read, $seconds));
is(sql(q{SELECT sweeper.resume('sweeper.session', 'b')}), '{fuse}', 'lifted');
wait_for($node, 'SELECT ' . live('b') . ' = 0', 'they go');
is(sql(q{SELECT sweeper.resume('sweeper.session')}), '{fuse}', 'the other, too');
# After a crash nobody was heard of: one grace and one hold, each of the rows' own time to live.
sql(q{SELECT sweeper.create_pool('d', ttl => '2 s'); SELECT count(*) FROM generate_series(1, 200) AS i, sweeper.acquire('d', i::text)});
ok(crash($node, 'launcher'), 'a crash');
wait_for($node, 'SELECT ' . live('d') . ' = 0', 'they go');
is(sql(q{SELECT max(s.released_at - greatest(s.expires_at, c.service_start)) < '10 s' FROM sweeper.session AS s, sweeper._cluster() AS c WHERE s.pool = 'd'}), 't', 'soon');
wait_for($node, 'SELECT count(*) = 0 FROM sweeper.problem', 'nothing is left of that');
# nor do they pay for what grace covers, here that of each row
sql(q{CREATE TABLE own (id int PRIMARY KEY, seen timestamptz, ttl interval);
    CREATE INDEX own_due ON own (((seen AT TIME ZONE 'UTC') + ttl));
    INSERT INTO own SELECT i, now(), '1 h' FROM generate_series(1, 100000) AS i;
    SELECT sweeper.register('own', last_seen => 'seen', ttl_column => 'ttl', check_every => '20 ms', start => 'now')});
ok(crash($node, 'launcher'), 'another crash');
sql(q{UPDATE own SET seen = now() - interval '61 min' WHERE id <= 50000});
sql('VACUUM ANALYZE own');
$reads = q{SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'own_due'};
($before, $start) = (sql($reads), time);
for my $i (1 .. 20) {
    sql("INSERT INTO own VALUES (100000 + $i, clock_timestamp() - interval '900 ms', '1 s')");
    wait_for($node, 'SELECT count(*) = 0 FROM own WHERE id > 100000', 'another goes');
}
($read, $seconds) = (sql($reads) - $before, time - $start);
cmp_ok($read, '<', 50_000 * 3 * ($seconds + 2), sprintf('%d index entries read in %.1f s: rows in their grace no more often than once a second', $read, $seconds));
is(sql(q{SELECT count(*) FROM own}), 100000, 'which they have');
# a group is no reason to look at a table by workers only, each check_every
sql(q{CREATE TABLE grouped (id int, g text, d timestamptz); CREATE INDEX ON grouped (d);
    INSERT INTO grouped SELECT i, 'g', clock_timestamp() + i * interval '500 ms' FROM generate_series(1, 4) AS i;
    SELECT sweeper.register('grouped', deadline => 'd', group_by => 'g', check_every => '1 h', start => 'now')});
wait_for($node, 'SELECT count(*) = 0 FROM grouped', 'rows of a table with groups go when they are due');
$node->stop;
done_testing();
