# How late a policy is, is told when nobody can look, too: its table is locked, it fails or is paused, the sweeper is off.
# What is not known is not told; a database that is left out on purpose is no emergency.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main', 'max_prepared_transactions = 2');
sub sql { return $node->safe_psql('postgres', $_[0]) }
sub policy {
    my ($name, $rows) = @_;
    return sql(qq{
        CREATE TABLE $name (id int PRIMARY KEY, d timestamptz);
        CREATE INDEX ON $name (d);
        INSERT INTO $name $rows;
        SELECT FROM sweeper.register('$name', deadline => 'd', check_every => '100 ms', start => 'now', fuse_fraction => 1)});
}
# The value of a series, or nothing.
sub metric { my ($name, $labels) = @_; return "(SELECT value FROM sweeper.metrics WHERE family = 'session_sweeper_$name' AND labels \@> '$labels')" }
sub late { return metric('overdue_seconds', qq({"policy": "$_[0]"})) }
sub brake { return metric('brake', qq({"policy": "$_[0]", "brake": "$_[1]"})) }

$node->safe_psql('postgres', 'CREATE EXTENSION session_sweeper');
policy('empty', 'SELECT 1, now() LIMIT 0');
policy('locked', 'SELECT 1, now() LIMIT 0');
policy('paused', 'SELECT 1, now() LIMIT 0');
policy('failing', 'SELECT 1, now() LIMIT 0');
wait_for($node, 'SELECT ' . late('empty') . ' = 0 AND ' . late('failing') . ' = 0', 'nothing is due');

# a lock from before the row falls due, as of a transaction that somebody forgot
sql(q{INSERT INTO locked VALUES (1, now() + interval '10 s')});
wait_for($node, q{SELECT next_due = (SELECT d FROM locked) FROM sweeper.policy_status WHERE policy = 'locked'}, 'it is known when it falls due');
sql(q{BEGIN; LOCK TABLE locked; PREPARE TRANSACTION 'forgotten'});
is(sql(q{SELECT next_due > now() FROM sweeper.policy_status WHERE policy = 'locked'}), 't', 'it is locked before its row is due');
wait_for($node, 'SELECT ' . brake('locked', 'locked') . ' = 1', 'a look at it has come to nothing');
my ($ret, $out, $err) = $node->psql('postgres', q{CALL sweeper.sweep('locked', timeout => '100 ms')});
like($err, qr/no pass began within the timeout\nDETAIL:.*holds a lock on table public\.locked,.*\nHINT:/, 'sweep says that the table is locked');
like(sql($err =~ s/.*\nHINT:  //sr), qr/^locked\|\|forgotten\|AccessExclusiveLock/m, 'and how to find who holds it');
sql(q{SELECT sweeper.pause('paused', 'for a while')});
sql(q{CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO not_there VALUES (1); RETURN NULL; END $$;
      CREATE TRIGGER refuse BEFORE DELETE ON failing FOR EACH STATEMENT EXECUTE FUNCTION refuse();
      INSERT INTO failing VALUES (1, now())});
wait_for($node, 'SELECT ' . brake('failing', 'failing') . ' = 1', 'it fails');
wait_for($node, q{SELECT failures > 2 FROM sweeper.policy WHERE policy = 'failing'}, 'and again');
is(sql(q{SELECT last_success < failing_since FROM sweeper.policy_status JOIN sweeper.policy USING (policy) WHERE policy = 'failing'}), 't', 'a pass that failed was no success');
sql(q{INSERT INTO paused VALUES (1, now() - interval '2 h'); INSERT INTO failing VALUES (2, now() - interval '1 h')});
wait_for($node, 'SELECT ' . late('locked') . ' > 2 AND ' . brake('locked', 'locked') . ' = 1', 'locked: it is told how late it is');
wait_for($node, 'SELECT ' . late('failing') . ' > 3600', 'failing: what came later is late');
wait_for($node, 'SELECT ' . late('paused') . ' > 7200', 'paused: so it is there');
is(sql(q{SELECT lag > interval '2 s' AND state = 'locked' FROM sweeper.policy_status WHERE policy = 'locked'}), 't', 'as view policy_status does');

# the next coordinator knows what the one before knew
kill_process($node, 'coordinator', 'TERM');
wait_for($node, q{SELECT started_at > now() - interval '1 min' FROM sweeper.stat_process WHERE backend_type ~ 'coordinator'}, 'there is another coordinator');
wait_for($node, 'SELECT ' . late('locked') . ' > 2 AND ' . brake('locked', 'locked') . ' = 1', 'locked: known still');

# off: what was known stays known, and grows; where nothing is, nothing is said
sql(q{INSERT INTO empty VALUES (1, now() + interval '3 s')});
wait_for($node, q{SELECT next_due > now() FROM sweeper.policy_status WHERE policy = 'empty'}, 'a row is known');
policy('unknown', 'SELECT 1, now() LIMIT 0');
wait_for($node, 'SELECT ' . late('unknown') . ' = 0', 'and that there is none');
sql(q{ALTER SYSTEM SET session_sweeper.enabled = off});
sql(q{SELECT pg_reload_conf()});
wait_for($node, q{SELECT count(*) = 0 FROM sweeper.stat_process WHERE backend_type ~ 'coordinator'}, 'it is off');
sql(q{INSERT INTO unknown VALUES (1, now())});
wait_for($node, 'SELECT ' . late('empty') . ' > 0', 'off: it grows late');
is(sql('SELECT ' . late('unknown')), '', 'off: what nobody looks at is not said to be well');
is(sql('SELECT DISTINCT state, reason FROM sweeper.policy_status'), 'disabled|', 'off: no reason of before is left');
sql(q{ALTER SYSTEM RESET session_sweeper.enabled});
$node->restart;
wait_for($node, 'SELECT ' . brake('locked', 'locked') . ' = 1', 'a restart does not end the lock');
is(sql('SELECT ' . late('locked')), '', 'nothing is known of it any more, and nothing is said');
sql(q{ROLLBACK PREPARED 'forgotten'});
wait_for($node, q{SELECT count(*) = 0 FROM locked}, 'the lock is gone, and so is the row');

# one child of a table is locked: the rows of the others go, nobody is late for them, and the lock is told
sql(q{CREATE TABLE part (id int, d timestamptz, PRIMARY KEY (id)) PARTITION BY RANGE (id); CREATE INDEX ON part (d);
    CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (100); CREATE TABLE part_2 PARTITION OF part FOR VALUES FROM (100) TO (200);
    CREATE TABLE parent (id int PRIMARY KEY, d timestamptz); CREATE INDEX ON parent (d); CREATE TABLE parent_1 () INHERITS (parent); CREATE INDEX ON parent_1 (d);
    SELECT FROM (VALUES ('part'), ('parent')) AS v (t), sweeper.register(t, deadline => 'd', check_every => '100 ms', start => 'now', fuse_fraction => 1);
    CREATE TABLE rated (id int, d timestamptz, PRIMARY KEY (id)) PARTITION BY RANGE (id); CREATE INDEX ON rated (d);
    CREATE TABLE rated_1 PARTITION OF rated FOR VALUES FROM (0) TO (100); CREATE TABLE rated_2 PARTITION OF rated FOR VALUES FROM (100) TO (9999);
    SELECT FROM sweeper.register('rated', deadline => 'd', check_every => '100 ms', start => 'now', fuse_fraction => 1, rate_limit => 20);
    CREATE TABLE rests (id int PRIMARY KEY, d timestamptz); SELECT FROM sweeper.register('rests', deadline => 'd', start => 'paused');
    INSERT INTO rated SELECT 100 + i, now() FROM generate_series(1, 5000) AS i;
    CREATE TABLE fused (id int, d timestamptz, PRIMARY KEY (id)) PARTITION BY RANGE (id); CREATE INDEX ON fused (d);
    CREATE TABLE fused_1 PARTITION OF fused FOR VALUES FROM (0) TO (100); CREATE TABLE fused_2 PARTITION OF fused FOR VALUES FROM (100) TO (9999);
    SELECT FROM sweeper.register('fused', deadline => 'd', check_every => '100 ms', start => 'now', fuse_fraction => 0.5, fuse_min => 10);
    INSERT INTO fused SELECT i, now() + CASE WHEN i < 100 THEN interval '1 d' ELSE '1 s' END FROM generate_series(1, 150) AS i;
    BEGIN; LOCK TABLE part_1, parent_1, rated_1, fused_1, rests; PREPARE TRANSACTION 'forgotten'});
sql(q{INSERT INTO part SELECT 100 + i, now() FROM generate_series(1, 10) AS i; INSERT INTO parent SELECT i, now() FROM generate_series(1, 10) AS i});
wait_for($node, 'SELECT NOT EXISTS (SELECT FROM part_2) AND NOT EXISTS (SELECT FROM ONLY parent)', 'the others go');
for my $table (qw(part parent rated)) {
    my $looks = sql("SELECT looks FROM sweeper.stat_policy WHERE policy = '$table'");
    my $since = sql("SELECT locked_since FROM sweeper._policy() JOIN sweeper.policy USING (policy_id) WHERE policy = '$table'");
    # the next coordinator knows it, too
    kill_process($node, 'coordinator', 'TERM');
    wait_for($node, "SELECT looks > $looks + 3 FROM sweeper.stat_policy WHERE policy = '$table'", 'it is looked at again and again');
    is(sql("SELECT locked_since FROM sweeper._policy() JOIN sweeper.policy USING (policy_id) WHERE policy = '$table'"), $since, "$table: locked for all that time");
    isnt($since, '', 'which is known');
    is(sql("SELECT lag FROM sweeper.policy_status WHERE policy = '$table'"), '', "$table: nothing that can be read is late") if $table ne 'rated';
}

# a row that a prepared transaction holds: it is named, not written down again and again, and the row goes soon after its end
policy('held', 'SELECT 1, now() LIMIT 0');
sql(q{SELECT sweeper.pause('held'); INSERT INTO held VALUES (1, now())});
sql(q{BEGIN; SELECT FROM held FOR UPDATE; PREPARE TRANSACTION 'forgotten row'});
sql(q{SELECT sweeper.resume('held')});
wait_for($node, q{SELECT count(*) = 1 FROM sweeper.failed_row WHERE policy = 'held' AND class = 'locked'}, 'it is locked');
is(sql(q{SELECT message || ' ' || blocked_by::text FROM sweeper.failed_row WHERE policy = 'held'}), 'prepared transaction "forgotten row" holds the row {0}', 'by whom');
# as after an hour
sql(q{UPDATE sweeper.failed_row SET attempts = 12, first_at = now() - interval '1 h', next_attempt = now() + interval '10 min' WHERE policy = 'held'});
like(sql(q{SELECT detail FROM sweeper.problem WHERE policy = 'held' AND problem = 'rows locked for long'}), qr/dead rows.*: 1; .*"forgotten row" holds the row/, 'a problem');
like(sql(sql(q{SELECT next_step FROM sweeper.problem WHERE policy = 'held' AND problem = 'rows locked for long'})), qr/^forgotten row\|/m, 'whose next step finds it');
my $looks = sql(q{SELECT looks FROM sweeper.stat_policy WHERE policy = 'held'});
sql(q{INSERT INTO held SELECT i, now() FROM generate_series(10, 20) AS i});
wait_for($node, "SELECT (SELECT looks > $looks + 1 FROM sweeper.stat_policy WHERE policy = 'held') AND count(*) = 1 FROM held", 'it is looked at, and others go');
is(sql(q{SELECT attempts FROM sweeper.failed_row WHERE policy = 'held'}), 12, 'nothing is written of the same holder');
my $released = sql(q{SELECT clock_timestamp()});
sql(q{ROLLBACK PREPARED 'forgotten row'});
wait_for($node, 'SELECT count(*) = 0 FROM held', 'free, it goes');
cmp_ok(sql("SELECT extract(epoch FROM cleaned_at - '$released')::int FROM sweeper.cleanup_event WHERE policy = 'held' ORDER BY cleaned_at DESC LIMIT 1"), '<=', 6, 'within seconds');

# locked for a minute by now
wait_for($node, q{SELECT count(*) = 3 FROM sweeper.problem WHERE policy IN ('part', 'parent', 'rated') AND problem = 'table locked'}, 'told');
is(sql(q{SELECT count(*) FROM sweeper.problem WHERE policy = 'rests'}), 0, 'not of a policy that is paused');
like(sql($node->safe_psql('postgres', qq{SELECT next_step FROM sweeper.problem WHERE policy = '$_' AND problem = 'table locked'})), qr/${_}_1\|.*AccessExclusiveLock/, 'with who holds it, by a statement that does not wait for him') for qw(part parent);
# a fuse that the locked rows might keep from tripping waits for them, but not for ever
wait_for($node, q{SELECT count(*) = 1 FROM sweeper.problem WHERE policy = 'fused' AND problem = 'fuse'}, 'the fuse');
is(sql('SELECT count(*) FROM fused_2'), 51, 'holds the rows');
sql(q{SELECT sweeper.resume('fused')});
wait_for($node, 'SELECT count(*) = 0 FROM fused_2', 'until somebody says so');
# who does not look any more knows nothing of it
my $far = sql(q{SELECT to_char(now() AT TIME ZONE 'UTC' + interval '3 days', 'Dy')});
sql("SELECT sweeper.alter_policy('part', maintenance_window => '$far 00:00-24:00 UTC')");
wait_for($node, q{SELECT count(*) = 0 FROM sweeper.problem WHERE policy = 'part'}, 'no problem while its window is closed');
# nor who looks only when asked, and is told
sql(q{SELECT sweeper.alter_policy('parent', check_every => '0')});
(undef, undef, $err) = $node->psql('postgres', q{\set VERBOSITY verbose
    CALL sweeper.sweep('parent')});
like($err, qr/55P03: policy "parent" could not be swept.*a lock on a partition/s, 'told to who asks');
sql(q{ROLLBACK PREPARED 'forgotten'});
wait_for($node, q{SELECT count(*) = 0 FROM sweeper._policy() WHERE locked_since IS NOT NULL}, 'and is over');

# a database that is not listed: a warning, and nothing that calls somebody
$node->safe_psql('postgres', 'CREATE DATABASE other');
sql(q{ALTER SYSTEM SET session_sweeper.databases = 'other'});
sql(q{SELECT pg_reload_conf()});
wait_for($node, 'SELECT ' . metric('database_listed', '{}') . ' = 0', 'the database is not listed');
is(sql(q{SELECT severity || ' ' || problem FROM sweeper.problem WHERE policy IS NULL}), 'warning database not swept', 'the problem says so');
is(sql(q{SELECT DISTINCT state FROM sweeper.policy_status WHERE policy = 'empty'}), 'not running', 'the policy as well');
is(sql('SELECT ' . metric('enabled', '{}') . ' = 1 AND NOT EXISTS ' . metric('max_lag_seconds', '{}')), 't', 'enabled, with no lag that would be too long');

sql('ALTER SYSTEM RESET session_sweeper.databases');
sql('SELECT pg_reload_conf()');

# Dead index entries that an old snapshot keeps are skipped: counted by what the index has returned, in looks, passes, and
# for as many policies as there are of the table. Somebody writes each second, so that there are passes.
$node->safe_psql('postgres', q{CREATE TABLE kept (id int PRIMARY KEY, d timestamptz NOT NULL); CREATE INDEX kept_d ON kept (d);
    INSERT INTO kept SELECT i, now() - interval '1 h' + i * interval '1 ms' FROM generate_series(1, 20000) AS i;
    INSERT INTO kept SELECT -i, now() + interval '1 h' FROM generate_series(1, 20000) AS i; ANALYZE kept});
my $old = $node->background_psql('postgres');
$old->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM kept');
$node->safe_psql('postgres', 'DELETE FROM kept WHERE id > 0');
$node->safe_psql('postgres', qq{SELECT FROM sweeper.register('kept', policy => 'kept_$_', deadline => 'd', start => 'now', check_every => '100 ms')}) for 1 .. 10;
my $all_looks = q{SELECT coalesce(sum(looks), 0) FROM sweeper.stat_policy WHERE policy LIKE 'kept%'};
my $returned = q{SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'kept_d'};
my $deleted = q{SELECT coalesce(sum(expired), 0) FROM sweeper.stat_policy WHERE policy LIKE 'kept%'};
wait_for($node, "SELECT min(looks) > 2 FROM sweeper.stat_policy WHERE policy LIKE 'kept%'", 'each was looked at');
my ($looks_then, $returned_then) = map { $node->safe_psql('postgres', $_) } $all_looks, $returned;
for my $row (1 .. 20) {
    $node->safe_psql('postgres', "INSERT INTO kept VALUES (100000 + $row, now())");
    wait_for($node, "SELECT ($deleted) >= $row", "row $row is deleted");
}
wait_for($node, "SELECT ($all_looks) >= $looks_then + 100", 'a hundred looks');
cmp_ok($node->safe_psql('postgres', $returned) - $returned_then, '<', 100000, 'entries read meanwhile: not 20,000 each time');
# Rows of an open transaction are not dead ones.
policy('opened', q{SELECT i, now() + interval '1 h' FROM generate_series(1, 4000) AS i});
$node->safe_psql('postgres', 'VACUUM ANALYZE opened');
my $writer = $node->background_psql('postgres');
$writer->query_safe(q{BEGIN; UPDATE opened SET d = now() - interval '1 min' WHERE id <= 3000});
sql('INSERT INTO opened VALUES (0, now())');
wait_for($node, 'SELECT NOT EXISTS (SELECT FROM opened WHERE id = 0)', 'a row behind them is deleted');
$writer->query_safe('COMMIT');
$writer->quit;
my $committed = time;
wait_for($node, 'SELECT count(*) = 1000 FROM opened', 'they are, when they are committed');
cmp_ok(time - $committed, '<', 40, 'before everything is read again, which takes up to 60 s');
# one that is written with a deadline before: found at once by whoever asks, within a minute else
$node->safe_psql('postgres', "INSERT INTO kept VALUES (200000, now() - interval '2 h')");
$node->safe_psql('postgres', "CALL sweeper.sweep('kept_1')");
is($node->safe_psql('postgres', 'SELECT count(*) FROM kept WHERE id = 200000'), 0, 'a row with a deadline of long ago is found by sweep()');
# While nobody writes the table, sweep() begins behind them, too; what its own session has just written it finds, and so
# does "force".
my $session = $node->background_psql('postgres');
my $entries = q{SELECT pg_stat_get_tuples_returned('kept_d'::regclass)};
$session->query_safe("CALL sweeper.sweep('kept_1')");
my $before_calls = $node->safe_psql('postgres', $entries);
$session->query_safe("CALL sweeper.sweep('kept_1')") for 1 .. 50;
cmp_ok($node->safe_psql('postgres', $entries) - $before_calls, '<', 200000, 'entries read by 50 calls: not 20,000 each time');
my $gone = 'SELECT count(*) FROM kept WHERE id = 200001';
$session->query_safe("INSERT INTO kept VALUES (200001, now() - interval '2 h'); CALL sweeper.sweep('kept_1')") for 1 .. 3;
is($node->safe_psql('postgres', $gone), 0, 'rows that the session of the call has just written');
$node->safe_psql('postgres', 'CREATE ROLE uncounted SUPERUSER; ALTER ROLE uncounted SET track_counts = off');
$node->safe_psql('postgres', "SET SESSION AUTHORIZATION uncounted; SET track_counts = off; INSERT INTO kept VALUES (200001, now() - interval '2 h')");
$node->safe_psql('postgres', "CALL sweeper.sweep('kept_1', force => true)");
is($node->safe_psql('postgres', $gone), 0, 'a row that no statistics show is found with force');
# a table with one partition: its own statistics show nothing
$node->safe_psql('postgres', q{CREATE TABLE whole (id int PRIMARY KEY, d timestamptz NOT NULL) PARTITION BY RANGE (id); CREATE TABLE whole_1 PARTITION OF whole DEFAULT;
    CREATE INDEX ON whole (d); INSERT INTO whole SELECT i, now() - interval '1 h' FROM generate_series(1, 20000) AS i; ANALYZE whole});
$node->safe_psql('postgres', 'DELETE FROM whole');
$node->safe_psql('postgres', q{SELECT FROM sweeper.register('whole', deadline => 'd', start => 'now', check_every => '0')});
$node->safe_psql('postgres', "CALL sweeper.sweep('whole')") for 1 .. 2;
$node->safe_psql('postgres', "INSERT INTO whole VALUES (1, now() - interval '2 h')");
$node->safe_psql('postgres', "CALL sweeper.sweep('whole')");
is($node->safe_psql('postgres', 'SELECT count(*) FROM whole'), 0, 'a row of long ago in the only partition is found by sweep()');
$session->quit;
$old->query_safe('COMMIT');
$old->quit;
$node->stop;
done_testing();
