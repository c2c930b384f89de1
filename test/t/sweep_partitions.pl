# A partition that somebody holds: the others are swept, and the fuse is not deceived by it.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main');
sub sql { return $node->safe_psql('postgres', @_) }
sub state_is { my ($state) = @_; return wait_for($node, "SELECT state = '$state' FROM sweeper.policy_status WHERE policy = 'part'", "the policy is $state") }
sql('CREATE EXTENSION session_sweeper');
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
my $holder;
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
        wait_for($node, q{SELECT detail ~ 'locked|lock on' FROM sweeper.problem WHERE problem = 'lag above max_lag'}, 'the lag is told');
        like(sql(sql(q{SELECT next_step FROM sweeper.problem WHERE problem = 'lag above max_lag'})), qr/part_2\|.*AccessExclusiveLock/, 'and who holds what');
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
