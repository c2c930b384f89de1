# Idle policies: a row that is written is found before the next look that was planned, and only its policy looks.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main');
$node->safe_psql('postgres', 'CREATE EXTENSION session_sweeper');
for my $table (qw(written other)) {
    $node->safe_psql('postgres', "CREATE TABLE $table (id int PRIMARY KEY, d timestamptz NOT NULL);
        CREATE INDEX ON $table (d);
        INSERT INTO $table SELECT i, now() + interval '30 days' FROM generate_series(1, 10) AS i;
        SELECT sweeper.register('$table', deadline => 'd', start => 'now', check_every => '4 s', fuse_fraction => 1)");
}

# a time to live in each row, and an index that has computed the deadlines
$node->safe_psql('postgres', q{CREATE TABLE by_row (id int PRIMARY KEY, seen timestamptz NOT NULL, ttl_s int);
    CREATE INDEX ON by_row (((seen AT TIME ZONE 'UTC') + coalesce(make_interval(secs => ttl_s), '720 h')));
    INSERT INTO by_row SELECT i, now(), 30 * 86400 FROM generate_series(1, 10) AS i;
    INSERT INTO by_row VALUES (11, now(), null);
    SELECT sweeper.register('by_row', last_seen => 'seen', ttl_column => 'ttl_s', ttl => '30 days', start => 'now', check_every => '4 s', fuse_fraction => 1)});

# a filter and a partial index with its rows: the one that the filter keeps does not count
$node->safe_psql('postgres', q{CREATE TYPE stage AS ENUM ('open', 'kept');
    CREATE FUNCTION is_open(stage) RETURNS bool IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN RAISE LOG 'asked by %', (SELECT backend_type FROM pg_catalog.pg_stat_activity WHERE pid = pg_backend_pid()); RETURN $1 = 'open'; END $$;
    CREATE TABLE filtered (id int PRIMARY KEY, d timestamptz NOT NULL, stage stage NOT NULL DEFAULT 'open');
    CREATE INDEX ON filtered (d); CREATE INDEX ON filtered (d) WHERE d IS NOT NULL; CREATE INDEX ON filtered (d) WHERE is_open(stage); CREATE INDEX ON filtered (d) WHERE d > '-infinity';
    INSERT INTO filtered SELECT i, now() + interval '30 days' FROM generate_series(1, 10) AS i; INSERT INTO filtered VALUES (11, now() - interval '30 days', 'kept');
    SELECT sweeper.register('filtered', deadline => 'd', filter => 'is_open(stage)', start => 'now', check_every => '4 s', fuse_fraction => 1)});
# a filter that keeps no row with a deadline that has passed needs none
$node->safe_psql('postgres', q{CREATE TABLE unkept (id int PRIMARY KEY, d timestamptz NOT NULL); CREATE INDEX ON unkept (d);
    INSERT INTO unkept SELECT i, now() + interval '30 days' FROM generate_series(1, 10) AS i;
    SELECT sweeper.register('unkept', deadline => 'd', filter => 'id > 10', start => 'now', check_every => '4 s', fuse_fraction => 1)});

# If the planned look comes first, the turn proves nothing.
for my $row (['written', 'now()'], ['by_row', q{now() - interval '1 hour', 3}], ['filtered', 'now()'], ['unkept', 'now()']) {
    my ($table, $values) = @$row;
    my $proved = 0;
    for my $turn (1 .. 5) {
        # each look that finds nothing puts the next one off
        $node->safe_psql('postgres', "CALL sweeper.sweep('$_'); " x 7) for $table, 'other';
        wait_for($node, "SELECT bool_and(next_look > now() + interval '10 s') FROM sweeper.policy_status WHERE policy IN ('$table', 'other')",
            'the next looks are far away');
        my ($planned, $looks) = split /\|/, $node->safe_psql('postgres', "SELECT min(s.next_look), max(o.looks) FROM sweeper.policy_status AS s, sweeper.stat_policy AS o
            WHERE s.policy IN ('$table', 'other') AND o.policy = 'other'");
        $node->safe_psql('postgres', "INSERT INTO $table VALUES (100 + $turn, $values)");
        wait_for($node, "SELECT count(*) = $turn FROM sweeper.cleanup_event WHERE policy = '$table'", 'a row that is written is swept');
        $proved = $node->safe_psql('postgres', "SELECT now() < '$planned' AND looks = $looks FROM sweeper.stat_policy WHERE policy = 'other'") eq 't';
        last if $proved;
    }
    ok($proved, "$table: before the next look that was planned, and the other policy does not look");
}

# the deadline of the next row is known, so that the look comes then
$node->safe_psql('postgres', q{INSERT INTO by_row VALUES (200, now(), 20); CALL sweeper.sweep('by_row')});
is($node->safe_psql('postgres', q{SELECT next_look <= next_due AND next_due = (SELECT seen + interval '20 s' FROM by_row WHERE id = 200) FROM sweeper.policy_status WHERE policy = 'by_row'}),
    't', 'it is known when a row with a time to live of its own is due');
$node->safe_psql('postgres', q{UPDATE by_row SET ttl_s = 86400 WHERE id = 200});

$node->safe_psql('postgres', qq{INSERT INTO $_ VALUES (200, now() + interval '20 s'); CALL sweeper.sweep('$_')}) for 'filtered', 'unkept';
is($node->safe_psql('postgres', qq{SELECT next_look <= next_due AND next_due = (SELECT d FROM $_ WHERE id = 200) FROM sweeper.policy_status WHERE policy = '$_'}), 't',
    "$_: it is known when the next row is due") for 'filtered', 'unkept';
my $log = slurp_file($node->logfile);
like($log, qr/asked by session_sweeper worker/, 'a worker reads the filter');
unlike($log, qr/asked by session_sweeper coordinator/, 'and no coordinator');
# one that the filter keeps is looked at now and then, and is not late
$node->safe_psql('postgres', q{INSERT INTO unkept VALUES (9, now()) ON CONFLICT (id) DO UPDATE SET d = excluded.d; CALL sweeper.sweep('unkept')});
is($node->safe_psql('postgres', q{SELECT lag IS NULL AND oldest_deadline IS NULL AND next_look - last_look <= interval '40 s' FROM sweeper.policy_status WHERE policy = 'unkept'}), 't',
    'a row that the filter keeps is not late');

# A function that the planner inlines is another one now: so is the index that has the filter's rows.
$node->safe_psql('postgres', q{CREATE FUNCTION wanted(stage) RETURNS bool IMMUTABLE LANGUAGE sql AS $$ SELECT $1 = 'open' $$;
    CREATE TABLE inlined (id int PRIMARY KEY, d timestamptz NOT NULL, stage stage NOT NULL DEFAULT 'open'); CREATE INDEX ON inlined (d) WHERE stage = 'open';
    INSERT INTO inlined SELECT i, now() + interval '30 days' FROM generate_series(1, 10) AS i; INSERT INTO inlined VALUES (11, now() - interval '30 days', 'kept');
    SELECT sweeper.register('inlined', deadline => 'd', filter => 'wanted(stage)', start => 'now', check_every => '4 s', fuse_fraction => 1)});
wait_for($node, q{SELECT next_due IS NOT NULL FROM sweeper.policy_status WHERE policy = 'inlined'}, 'the next deadline is known');
$node->safe_psql('postgres', q{CREATE OR REPLACE FUNCTION wanted(stage) RETURNS bool IMMUTABLE LANGUAGE sql AS $$ SELECT $1 = 'kept' $$; CALL sweeper.sweep('other')});
ok(wait_for($node, q{SELECT count(*) = 0 FROM inlined WHERE id = 11}), 'a row that another definition of its function lets through goes');
# A call sees at once what it is now, whatever a worker has said of the index.
$node->safe_psql('postgres', q{CREATE FUNCTION asked(stage) RETURNS bool IMMUTABLE LANGUAGE sql AS $$ SELECT $1 = 'open' $$;
    CREATE TABLE called (id int PRIMARY KEY, d timestamptz NOT NULL, stage stage NOT NULL DEFAULT 'open'); CREATE INDEX ON called (d) WHERE stage = 'open';
    SELECT sweeper.register('called', deadline => 'd', filter => 'asked(stage)', start => 'now', check_every => '0'); CALL sweeper.sweep('called'); CALL sweeper.sweep('called');
    INSERT INTO called VALUES (1, now() - interval '1 h', 'kept');
    CREATE OR REPLACE FUNCTION asked(stage) RETURNS bool IMMUTABLE LANGUAGE sql AS $$ SELECT $1 = 'kept' $$; CALL sweeper.sweep('called')});
is($node->safe_psql('postgres', 'SELECT count(*) FROM called'), 0, 'also where only calls look');

# Now and then a pass looks where a probe has found nothing.  It forgets nothing that the probe knew.
$node->safe_psql('postgres', q{CREATE TABLE known (id int PRIMARY KEY, d timestamptz NOT NULL); CREATE INDEX ON known (d); INSERT INTO known VALUES (1, now() + interval '1 day');
    SELECT sweeper.register('known', deadline => 'd', start => 'now', check_every => '4 s')});
unlike($node->safe_psql('postgres', join('', map { q{CALL sweeper.sweep('known'); SELECT 'forgotten' FROM sweeper.policy_status WHERE policy = 'known' AND next_due IS NULL; } } 1 .. 61)),
    qr/forgotten/, 'the next deadline stays known');

# Zero counts as null: the row is due by the default, after its place in the index.  It is not late, and nothing waits for it.
$node->safe_psql('postgres', q{INSERT INTO by_row VALUES (201, now() - interval '1 day', 0), (202, now() - interval '1 day', 3); CALL sweeper.sweep('by_row')});
is($node->safe_psql('postgres', q{SELECT string_agg(id::text, ' ' ORDER BY id) FROM by_row WHERE id > 200}), '201', 'a row with a time to live of zero stays');
is($node->safe_psql('postgres', q{SELECT lag IS NULL AND oldest_deadline IS NULL FROM sweeper.policy_status WHERE policy = 'by_row'}), 't', 'and is not late');

# rows with a time to live of their own: none is in its grace
$node->safe_psql('postgres', q{CREATE TABLE own (id int PRIMARY KEY, seen timestamptz, ttl_s int); INSERT INTO own SELECT i, now(), 1000 FROM generate_series(1, 10) AS i;
    SELECT sweeper.register('own', last_seen => 'seen', ttl_column => 'ttl_s', ttl => '1 h', check_every => '4 s');
    SELECT sweeper.create_pool('seats', seats => 2, ttl => '1 s'); SELECT session FROM sweeper.acquire('seats', 'me')});
wait_for($node, q{SELECT count(*) = 1 FROM sweeper.cleanup_event WHERE relation = 'sweeper.session'}, 'a session of a pool ends');
for my $policy (qw(own sweeper.session)) {
    $node->safe_psql('postgres', "CALL sweeper.sweep('$policy')");
    ok(wait_for($node, "SELECT next_look - last_look >= interval '900 ms' FROM sweeper.policy_status WHERE policy = '$policy'"), "$policy rests");
}

# the first heartbeat, which writes no table
$node->safe_psql('postgres', q{SELECT sweeper.register('written', policy => 'beats', deadline => 'd', ttl => '1 day', heartbeats => true, check_every => '4 s')});
my $proved = 0;
for my $turn (1 .. 3) {
    $node->safe_psql('postgres', q{CALL sweeper.sweep('beats'); } x 7);
    wait_for($node, q{SELECT next_look > now() + interval '10 s' FROM sweeper.policy_status WHERE policy = 'beats'}, 'its next look is far away');
    my $planned = $node->safe_psql('postgres', q{SELECT next_look FROM sweeper.policy_status WHERE policy = 'beats'});
    my $since = $node->safe_psql('postgres', q{SELECT clock_timestamp() FROM sweeper.touch('beats', 1) AS t WHERE t});
    wait_for($node, "SELECT last_look > '$since' FROM sweeper.policy_status WHERE policy = 'beats'", 'the first heartbeat is looked for');
    $proved = $node->safe_psql('postgres', "SELECT now() < '$planned'") eq 't';
    last if $proved;
    $node->restart;
}
ok($proved, 'before the next look that was planned');

# nothing would report a write
$node->safe_psql('postgres', 'ALTER SYSTEM SET track_counts = off; SELECT pg_reload_conf()');
ok(wait_until(sub {
    $node->safe_psql('postgres', q{CALL sweeper.sweep('written')});
    return $node->safe_psql('postgres', q{SELECT next_look - last_look <= interval '40 s' FROM sweeper.policy_status WHERE policy = 'written'}) eq 't';
}, 'looks come after ten times check_every'), 'without track_counts looks are not as rare');

# a setting that changes while no coordinator is there: the next one does not wait for the look that was planned before
wait_for($node, q{SELECT next_look > now() + interval '30 min' FROM sweeper.policy_status WHERE policy = 'sweeper.cleanup_event'}, 'evidence of 90 days is looked for in an hour');
$node->safe_psql('postgres', 'ALTER SYSTEM SET session_sweeper.enabled = off');
$node->reload;
wait_for($node, q{SELECT count(*) = 0 FROM sweeper.stat_process WHERE backend_type ~ 'coordinator'}, 'nobody is there');
$node->safe_psql('postgres', q{ALTER SYSTEM RESET session_sweeper.enabled; ALTER SYSTEM SET session_sweeper.cleanup_event_retention = '1 h'});
$node->reload;
ok(wait_for($node, q{SELECT next_look < now() + interval '2 min' FROM sweeper.policy_status WHERE policy = 'sweeper.cleanup_event'}), 'evidence of an hour is looked for in a minute');
done_testing();
