# Load care where several share a limit: databases that take turns, workers of one pass, statements with a debt.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

# images of whole pages would blur what a row costs
my $node = sweeper_node('main', 'wal_level = logical', 'full_page_writes = off');
my @databases = qw(first second third);
sub sql { my ($db, $query) = @_; return $node->safe_psql($db, $query) }
sub configure { my ($what) = @_; return sql('postgres', "ALTER SYSTEM $what; SELECT pg_reload_conf()") }
sub fill { my ($db, $n) = @_; return sql($db, "INSERT INTO t SELECT i, now() FROM generate_series(1, $n) AS i") }
for my $db (@databases) {
    sql('postgres', "CREATE DATABASE $db");
    sql($db, 'CREATE EXTENSION session_sweeper');
    load_table($node, 't', 0, 0, $db);
    sql($db, q{SELECT sweeper.register('t', deadline => 'd', start => 'now', backlog_rate => 0, fuse_fraction => 1, check_every => '100 ms')});
    fill($db, 10);
    wait_for($node, 'SELECT count(*) = 0 FROM t', "swept in $db", $db);
}

# more databases than coordinators: a slot that nobody reads holds up all of them, in each turn, and none for longer
configure(q{SET session_sweeper.max_replica_lag = '500ms'});
sql('first', q{SELECT pg_create_logical_replication_slot('unread', 'pgoutput')});
for my $db (@databases) {
    wait_until(sub {
        sql($db, 'INSERT INTO t SELECT coalesce(max(id), 0) + 1, now() FROM t');
        return sql($db, q{SELECT reason FROM sweeper.policy_status WHERE policy = 't' AND state = 'throttled'}) =~ /slot "unread" is more than 500ms behind/ }, "$db rests");
}
my %expired;
for my $db (@databases) {
    $expired{$db} = sql($db, q{SELECT expired FROM sweeper.stat_policy WHERE policy = 't'});
    sql($db, 'INSERT INTO t SELECT i, now() FROM generate_series(100001, 100010) AS i');
}
# each has had a turn since
for my $db (@databases) {
    wait_for($node, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'session_sweeper coordinator' AND datname = '$db' AND backend_start > '" . sql($db, 'SELECT now()') . "')", "a turn of $db");
}
for my $db (@databases) {
    is(sql($db, q{SELECT expired FROM sweeper.stat_policy WHERE policy = 't'}), $expired{$db}, "nothing goes in $db");
}
sql('first', q{SELECT pg_drop_replication_slot('unread')});
wait_for($node, 'SELECT count(*) = 0 FROM t', "$_ goes on", $_) for @databases;
configure('RESET session_sweeper.max_replica_lag');

# one statement may write more than a minute's worth of WAL: others wait for five seconds of it
sql('first', q{CREATE TABLE parent (id int PRIMARY KEY, d timestamptz); CREATE INDEX ON parent (d);
    CREATE TABLE child (parent int REFERENCES parent ON DELETE CASCADE, filling text); CREATE INDEX ON child (parent);
    INSERT INTO parent VALUES (1, now() + interval '1 h'); INSERT INTO child SELECT 1, 'x' FROM generate_series(1, 60000);
    SELECT sweeper.register('parent', deadline => 'd', start => 'now', backlog_rate => 0, fuse_fraction => 1, check_every => '100 ms')});
configure(q{SET session_sweeper.max_wal_rate = '32kB'});
my $lsn = sql('first', 'SELECT pg_current_wal_insert_lsn()');
sql('first', 'UPDATE parent SET d = now()');
wait_for($node, 'SELECT count(*) = 0 FROM parent', 'it goes', 'first');
cmp_ok(sql('first', "SELECT pg_current_wal_insert_lsn() - '$lsn'"), '>', 60 * 32 * 1024, 'it wrote that much');
fill('first', 10);
wait_for($node, q{SELECT state = 'throttled' FROM sweeper.policy_status WHERE policy = 't'}, 'others wait', 'first');
is(sql('first', q{SELECT next_look < now() + interval '5.5 s' FROM sweeper.policy_status WHERE policy = 't'}), 't', 'not for all of it');
wait_for($node, 'SELECT count(*) = 0 FROM t', 'they go', 'first');

# several workers of one pass share the rate
sql('first', q{CREATE TABLE asked (id int PRIMARY KEY, d timestamptz); CREATE INDEX ON asked (d);
    CREATE FUNCTION is_alive(key text) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.001); RETURN false; END';
    SELECT sweeper.register('asked', deadline => 'd', is_alive => 'is_alive(text)', ttl => '1 s', max_workers => 3, start => 'now', backlog_rate => 0, fuse_fraction => 1, check_every => '100 ms')});
configure(q{SET session_sweeper.max_wal_rate = '128kB'});
my $began = sql('first', 'SELECT extract(epoch FROM clock_timestamp())');
sql('first', q{INSERT INTO asked SELECT i, now() FROM generate_series(1, 6000) AS i});
$lsn = sql('first', 'SELECT pg_current_wal_insert_lsn()');
wait_for($node, 'SELECT count(*) = 0 FROM asked', 'all go', 'first');
my ($seconds, $wal) = split /\|/, sql('first', "SELECT extract(epoch FROM clock_timestamp()) - $began, pg_current_wal_insert_lsn() - '$lsn'");
cmp_ok(sql('first', q{SELECT max(workers) FROM sweeper.pass WHERE policy = 'asked'}), '>', 1, 'several workers');
# a second's worth is there at once, and others write some of it
cmp_ok($seconds, '>', 0.7 * $wal / (128 * 1024) - 1, "$wal bytes in $seconds s");
done_testing();
