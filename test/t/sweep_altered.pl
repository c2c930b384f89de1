# A table that is altered, or a partition that is locked, in the middle of a pass: nothing goes by what columns meant before, and
# the other partitions are swept.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main');
my $holder = $node->background_psql('postgres');
$holder->query_safe('SELECT pg_advisory_lock(4711)');
$node->safe_psql('postgres', q{
    CREATE EXTENSION session_sweeper;
    CREATE TABLE swap (id int PRIMARY KEY, d timestamptz, a boolean, b boolean);
    INSERT INTO swap SELECT i, now() - interval '1 h' + i * interval '1 s', i <= 2000, i > 2000 FROM generate_series(1, 4000) AS i;
    CREATE INDEX ON swap (d);
    CREATE FUNCTION hold() RETURNS trigger LANGUAGE plpgsql SET lock_timeout = 0 AS $$ BEGIN
        PERFORM pg_advisory_lock(4711), pg_advisory_unlock(4711); RETURN OLD; END $$;
    CREATE TRIGGER hold AFTER DELETE ON swap FOR EACH ROW WHEN (OLD.id = 1) EXECUTE FUNCTION hold();
    SELECT sweeper.register('swap', deadline => 'd', filter => 'a IS TRUE', start => 'now', check_every => '100 ms', batch_size => 10, max_workers => 1, fuse_fraction => 1)});
wait_for($node, "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", 'the first batch is held');
my $swapper = $node->background_psql('postgres');
$swapper->query_until(qr/waits/, q{\echo waits
    BEGIN; ALTER TABLE swap RENAME a TO tmp; ALTER TABLE swap RENAME b TO a; ALTER TABLE swap RENAME tmp TO b; COMMIT;
});
wait_for($node, "SELECT count(*) = 1 FROM pg_locks WHERE relation = 'swap'::regclass AND mode = 'AccessExclusiveLock' AND NOT granted",
    'the swap waits behind it');
# the worker itself must see it, before any other tells it
my ($coordinator) = pids($node, 'coordinator');
freeze($node, $coordinator);
$holder->query_safe('SELECT pg_advisory_unlock(4711)');
wait_for($node, "SELECT bool_and(state = 'idle') FROM sweeper.stat_process WHERE backend_type = 'session_sweeper worker'", 'the worker has left the pass');
is($node->safe_psql('postgres', 'SELECT count(*) FROM swap WHERE id > 2000'), 2000, 'no row that the filter left out went in the pass');
kill 'CONT', $coordinator;
wait_for($node, "SELECT state = 'broken' FROM sweeper.policy_status WHERE policy = 'swap'", 'it is noticed');
is($node->safe_psql('postgres', 'SELECT count(*) FROM swap WHERE id > 2000'), 2000, 'nor later');
is($node->safe_psql('postgres', 'SELECT count(*) FROM swap WHERE id <= 2000'), 1990, 'after the batch that was held');
like($node->safe_psql('postgres', "SELECT detail FROM sweeper.problem WHERE policy = 'swap'"), qr/column "a", which filter names/, 'and told');
$swapper->quit;

# A partition that is rewritten while its rows are asked about: an answer stays with its row, with a key and without.
for my $table ('keyed', 'keyless') {
    my $key = $table eq 'keyed' ? 'PRIMARY KEY' : '';
    my $name = $table eq 'keyed' ? 'id::text' : 'ctid::text';
    $holder->query_safe('SELECT pg_advisory_lock(4711)');
    $node->safe_psql('postgres', qq{
        CREATE TABLE $table (id int $key, seen timestamptz) PARTITION BY RANGE (id);
        CREATE TABLE ${table}_part PARTITION OF $table FOR VALUES FROM (0) TO (10);
        INSERT INTO $table SELECT i, now() - interval '1 h' FROM generate_series(0, 3) AS i;
        DELETE FROM $table WHERE id = 0;
        CREATE FUNCTION ${table}_alive(key text) RETURNS boolean LANGUAGE plpgsql SET lock_timeout = 0 AS \$\$ DECLARE
            i int = (SELECT id FROM $table WHERE $name = key);
        BEGIN
            IF i = 1 THEN PERFORM pg_advisory_lock(4711), pg_advisory_unlock(4711); END IF; RETURN i <> 1; END \$\$;
        SELECT sweeper.register('$table', last_seen => 'seen', ttl => '5 min', is_alive => '${table}_alive(text)', start => 'now', check_every => '100 ms')});
    wait_for($node, "SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", 'it asks about the first row');
    my $rewriter = $node->background_psql('postgres');
    $rewriter->query_until(qr/waits/, qq{\\echo waits\nVACUUM FULL ${table}_part;\n});
    wait_for($node, "SELECT count(*) = 1 FROM pg_locks WHERE relation = '${table}_part'::regclass AND mode = 'AccessExclusiveLock' AND NOT granted",
        'the rewrite waits behind it');
    $holder->query_safe('SELECT pg_advisory_unlock(4711)');
    wait_for($node, "SELECT NOT EXISTS (SELECT FROM $table WHERE seen < now() - interval '5 min')", 'nothing is left to be done');
    is($node->safe_psql('postgres', "SELECT string_agg(id::text, ',' ORDER BY id) FROM $table"), '2,3', "$table: who is alive stays");
    $rewriter->quit;
}
$holder->quit;

# A partition that another session locks: the others are swept, and the fuse counts what it can read.
sub sql { return $node->safe_psql('postgres', @_) }
sub state_is { my ($state) = @_; return wait_for($node, "SELECT state = '$state' FROM sweeper.policy_status WHERE policy = 'part'", "the policy is $state") }
sql(q{CREATE TABLE part (id int, p int, d timestamptz, PRIMARY KEY (p, id)) PARTITION BY LIST (p);
    CREATE TABLE part_1 PARTITION OF part FOR VALUES IN (1); CREATE TABLE part_2 PARTITION OF part FOR VALUES IN (2); CREATE INDEX ON part (d);
    SELECT sweeper.register('part', deadline => 'd', start => 'now', check_every => '100 ms', max_lag => '1 s')});
sub hold {
    my ($mode) = @_;
    my $holder = $node->background_psql('postgres');
    $holder->query_safe("BEGIN; LOCK TABLE part_2 IN $mode MODE");
    return $holder;
}

# what can be read counts as alive; what cannot may be
sql(q{SELECT sweeper.pause('part');
    INSERT INTO part SELECT i, 2, now() + interval '1 h' FROM generate_series(1, 300) AS i});
for my $mode ('SHARE', 'ACCESS EXCLUSIVE') {
    sql(q{INSERT INTO part SELECT i, 1, now() - interval '1 min' FROM generate_series(1, 300) AS i});
    $holder = hold($mode);
    sql(q{SELECT sweeper.resume('part')});
    wait_for($node, 'SELECT count(*) = 0 FROM part_1', 'the dead go') if $mode eq 'SHARE';
    # in SHARE mode the locked partition can be read, and has no dead rows
    state_is('locked') if $mode ne 'SHARE';
    is(sql('SELECT count(*) FROM part_1'), $mode eq 'SHARE' ? 0 : 300, "$mode: the others");
    if ($mode ne 'SHARE') {
        # while a pass tries again, the problem shows its progress instead
        my $step;
        wait_until(sub { return ($step = sql(q{SELECT next_step FROM sweeper.problem WHERE problem = 'lag above max_lag' AND detail ~ 'locked|lock on' AND next_step !~ 'stat_progress'})) ne '' }, 'the lag is shown');
        like(sql($step), qr/part_2\|.*AccessExclusiveLock/, 'and who holds what');
    }
    $holder->query_safe('COMMIT');
    $holder->quit;
    wait_for($node, 'SELECT count(*) = 0 FROM part_1', 'they have gone');
    is(sql('SELECT count(*) FROM sweeper.fuse_hold'), 0, 'the fuse has not held');
    sql(q{SELECT sweeper.pause('part')});
}

# one that becomes free while the pass runs has not been counted
sql(q{UPDATE part SET d = now() - interval '1 min' WHERE p = 2;
    INSERT INTO part SELECT i, 1, now() + interval '1 h' FROM generate_series(1, 200) AS i;
    INSERT INTO part SELECT i, 1, now() - interval '1 min' FROM generate_series(201, 240) AS i;
    CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN OLD; END';
    CREATE TRIGGER wait BEFORE DELETE ON part_1 FOR EACH ROW EXECUTE FUNCTION wait();
    SELECT sweeper.alter_policy('part', lock_timeout => '900 ms', batch_size => 10)});
my $gate = $node->background_psql('postgres');
$gate->query_safe('BEGIN; SELECT pg_advisory_xact_lock(1)');
$holder = hold('ACCESS EXCLUSIVE');
sql(q{SELECT sweeper.resume('part')});
wait_for($node, q{SELECT count(*) > 0 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}, 'a batch waits in the trigger');
$holder->query_safe('COMMIT');
$gate->query_safe('COMMIT');
$_->quit for $holder, $gate;
state_is('fuse');
is(sql('SELECT count(*) FROM part_2'), 300, 'and is not swept uncounted');
$node->stop;
done_testing();
