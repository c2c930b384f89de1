# Seats under load, locks that are not granted, restarts and dumps.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main');
sub sql { return $node->safe_psql('postgres', @_) }
# What psql says of a statement that fails.
sub complaint {
    my ($statement) = @_;
    my ($ret, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$statement");
    return $err;
}
sql(q{CREATE EXTENSION session_sweeper; SELECT sweeper.alter_policy('sweeper.session', check_every => '0');
    SELECT sweeper.create_pool('few', 3), sweeper.create_pool('one', 1), sweeper.create_pool('desk', 2, ttl => '1 h', max_ttl => '8 h')});

# eight clients and three seats, at every isolation level; a script is one transaction, which pgbench repeats after 40001
my $acquire = $node->basedir . '/acquire.sql';
append_to_file($acquire, <<'SQL');
BEGIN;
SELECT sweeper.release(:few::uuid), sweeper.release(:one::uuid);
SELECT coalesce((SELECT session FROM sweeper.acquire('few', 'c' || :client_id::text, takeover => true)), gen_random_uuid()) AS few,
    coalesce((SELECT session FROM sweeper.acquire('one')), gen_random_uuid()) AS one \gset
COMMIT;
SQL
my $release = $node->basedir . '/release.sql';
append_to_file($release, "SELECT sweeper.release(:few::uuid), sweeper.release(:one::uuid);\n");
my $nobody = '00000000-0000-0000-0000-000000000000';
for my $level ('read committed', 'repeatable read', 'serializable') {
    local $ENV{PGOPTIONS} = "-c lock_timeout=60s -c default_transaction_isolation=" . ($level =~ s/ /\\ /r);
    $node->command_ok([ 'pgbench', '-n', '-c', 8, '-j', 2, '-t', 150, '-M', 'prepared', '--max-tries=100000', '-D', "few=$nobody", '-D', "one=$nobody",
        '-f', $acquire, '-f', $release, $node->connstr('postgres') ], "clients, $level");
    is(sql(q{SELECT bool_or(NOT sweeper.release(session)) IS TRUE FROM sweeper.live_session}), 'f', 'who is left can be released');
}
cmp_ok(sql(q{SELECT count(*) FROM sweeper.session WHERE pool = 'few'}), '>=', 300, 'many were acquired');
# a seat is free only after the time of its release: those that overlap were held together
is(sql(q{SELECT count(*) FROM (SELECT pool, sum(n) OVER (PARTITION BY pool ORDER BY at, n) AS held FROM
    (SELECT pool, acquired_at AS at, 1 AS n FROM sweeper.session UNION ALL SELECT pool, released_at, -1 FROM sweeper.session) AS e) AS h
    WHERE held > CASE pool WHEN 'few' THEN 3 ELSE 1 END}), 0, 'no seat was sold twice');
is(sql(q{SELECT count(*) - count(DISTINCT (pool, fence)) FROM sweeper.session}), 0, 'no fence was given twice');
is(sql(q{SELECT count(*) FROM sweeper.session AS s FULL JOIN sweeper.usage_event AS u USING (session)
    FULL JOIN (SELECT * FROM sweeper.cleanup_event WHERE policy = 'sweeper.session') AS e ON e.key = session::text
    WHERE s.session IS NULL OR u.session IS NULL OR e.key IS NULL OR e.id <> u.id}), 0, 'each end is on record once');

# a lock that is not granted is told, in time
my $holder = $node->background_psql('postgres');
$holder->query_safe(q{BEGIN; SELECT FROM sweeper.acquire('one', 'holder')});
like(complaint(q{SELECT sweeper.acquire('one')}), qr/55P03: could not lock pool "one" within 500 ms.*HINT/s, 'acquire waits as long as the policy says');
like(complaint(q{SET lock_timeout = '20 ms'; SELECT sweeper.acquire('one')}), qr/55P03: could not lock pool "one" within 20 ms/, 'or the session');
sql(q{SELECT sweeper.alter_policy('sweeper.session', lock_timeout => '40 ms')});
like(complaint(q{SELECT sweeper.alter_pool('one', seats => 2)}), qr/55P03: could not lock pool "one" within 40 ms/, 'so does who changes the pool');
is(sql(q{SELECT count(*) FROM sweeper.acquire('few')}), 1, 'other pools are not concerned');
$holder->query_safe(q{COMMIT; BEGIN; SELECT sweeper.release(session) FROM sweeper.live_session});
my $id = sql(q{SELECT session FROM sweeper.live_session WHERE pool = 'one'});
like(complaint("SELECT sweeper.release('$id')"), qr/55P03: canceling statement due to lock timeout/, 'release');
like(complaint(q{SELECT sweeper.drop_pool('one', true)}), qr/55P03: canceling statement due to lock timeout/, 'drop_pool');
is(sql("SHOW lock_timeout"), '0', 'the setting is the session\'s own again');
$holder->query_safe('ROLLBACK');
$holder->quit;
sql(q{SELECT sweeper.drop_pool('one', true), sweeper.drop_pool('few', true)});

# restarts: after a clean one the dead are dead, after a crash nobody is for a time to live
my $age = q{UPDATE sweeper.session SET acquired_at = now() - interval '3 h', last_seen_at = now() - interval '2 h', expires_at = now() - interval '1 h' WHERE status = 'active'};
sql(q{SELECT count(*) FROM sweeper.acquire('desk', 'ann') AS a, sweeper.acquire('desk', 'bob') AS b});
sql($age);
$node->restart;
wait_for($node, 'SELECT service_start IS NOT NULL FROM sweeper._cluster()');
is(sql(q{SELECT seats_used FROM sweeper.acquire('desk', 'carl')}), 1, 'a dead holder has no seat after a clean restart');
is(sql(q{SELECT seats_used FROM sweeper.acquire('desk', 'dora')}), 2, 'and then the pool is full');
sql($age);
$node->stop('immediate');
$node->start;
wait_for($node, 'SELECT service_start IS NOT NULL FROM sweeper._cluster()');
is(sql(q{SELECT count(*) FROM sweeper.acquire('desk', 'emil')}), 0, 'after a crash nobody is dead before a time to live has passed');
is(sql(q{SELECT live FROM sweeper.pool_status}), 2, 'both hold their seats');
sql(q{UPDATE sweeper.session SET ends_at = now() - interval '1 min' WHERE owner = 'dora' AND status = 'active'});
is(sql(q{SELECT seats_used FROM sweeper.acquire('desk', 'emil')}), 2, 'an absolute limit has no grace');
is(sql(q{SELECT string_agg(cleanup_type, ',' ORDER BY owner) FROM sweeper.cleanup_event WHERE owner IN ('ann', 'bob', 'carl', 'dora', 'emil')}),
    'zombie,zombie,expired', 'and the types are right');

# a dump takes sessions along, and fences go on
my $file = $node->basedir . '/dump.sql';
my $fence = sql(q{SELECT max(fence) FROM sweeper.session});
$node->command_ok([ 'pg_dump', '-f', $file, $node->connstr('postgres') ], 'pg_dump');
# one that the dump does not know
my $later = sql(q{SELECT sweeper.create_pool('later', null); SELECT fence FROM sweeper.acquire('later')}) =~ s/^\n//r;
sql('CREATE DATABASE restored');
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $file, $node->connstr('restored') ], 'restore');
is($node->safe_psql('restored', q{SELECT count(*) FROM sweeper.live_session WHERE owner = 'emil'}), 1, 'a live session is alive');
is($node->safe_psql('restored', q{SELECT count(*) FROM sweeper.usage_event}), sql(q{SELECT count(*) FROM sweeper.usage_event}), 'usage is there');
is($node->safe_psql('restored', qq{SELECT sweeper.drop_pool('desk', true); SELECT sweeper.create_pool('desk');
    SELECT fence > $later FROM sweeper.acquire('desk')}), "\n\nt", 'fences go on');
my $copied = $node->safe_psql('restored', q{SELECT max(fence) FROM sweeper.session});
wait_until(sub { $node->psql('postgres', 'CREATE DATABASE copied TEMPLATE restored') == 0 }, 'a copy of a database');
is($node->safe_psql('copied', "SELECT fence >> 40 > $copied >> 40 FROM sweeper.acquire('desk')"), 't', 'and so in a copy');

# a standby has none to give
my $backup = $node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
my ($ret, $out, $err) = $standby->psql('postgres', "\\set VERBOSITY verbose\nSELECT sweeper.acquire('desk')");
like($err, qr/25006: cannot execute sweeper\.acquire\(\) on a standby.*HINT/s, 'not on a standby');
$standby->promote;
is($standby->safe_psql('postgres', qq{SELECT sweeper.drop_pool('desk', true); SELECT sweeper.create_pool('desk');
    SELECT fence >> 40, fence > $fence FROM sweeper.acquire('desk')}), "\n\n2|t", 'a promoted one gives fences of its timeline');

# and back on a server of a lower timeline they go on from there
my $highest = $standby->safe_psql('postgres', 'SELECT max(fence) FROM sweeper.session');
$standby->command_ok([ 'pg_dump', '-f', $file, $standby->connstr('postgres') ], 'pg_dump after a promotion');
sql('CREATE DATABASE back');
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $file, $node->connstr('back') ], 'restore');
is($node->safe_psql('back', "SELECT fence > $highest FROM sweeper.acquire('desk')"), 't', 'fences do not go back');
$standby->stop;
$node->stop;
done_testing();
