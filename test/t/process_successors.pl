# Coordinators that leave, told to or not, at any moment: those after them delete what is due in time, although no statistics
# tell that something was written.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use Sweeper;

my $bound = 10;    # seconds
my $seed = $ENV{SEED} // 1;
my $node = sweeper_node('main', "session_sweeper.min_interval = '200ms'", 'track_counts = off');
my @dbs = map { "db$_" } 1 .. 8;
for my $db (@dbs) {
    $node->safe_psql('postgres', "CREATE DATABASE $db");
    $node->safe_psql($db, q{CREATE EXTENSION session_sweeper;
        CREATE TABLE login (id int PRIMARY KEY, d timestamptz); CREATE INDEX ON login (d);
        CREATE TABLE empty (id int PRIMARY KEY, d timestamptz); CREATE INDEX ON empty (d);
        SELECT sweeper.register('login', deadline => 'd', start => 'now', fuse_min => 100000), sweeper.register('empty', deadline => 'd', start => 'now')});
}
# who looks for heartbeats has a coordinator often
for my $db (grep { /[48]/ } @dbs) {
    $node->safe_psql($db, q{CREATE TABLE session (id int PRIMARY KEY, seen timestamptz DEFAULT now()); CREATE INDEX ON session (seen);
        SELECT sweeper.register('session', last_seen => 'seen', ttl => '2 s', heartbeats => true, start => 'now', fuse_min => 100000)});
}

# Rows that fall due within six seconds, and sessions of which all but one are silent.
sub fill {
    my ($db) = @_;
    $node->safe_psql($db, "INSERT INTO login SELECT g, now() + g * interval '200 ms' FROM generate_series(1, 30) AS g; CALL sweeper.sweep('login')");
    $node->safe_psql($db, "INSERT INTO session SELECT g FROM generate_series(1, 20) AS g; SELECT sweeper.touch('session', '1')") if $db =~ /[48]/;
    return;
}

# All are gone before the bound has passed; what is left then says which database was forgotten.
sub all_are_gone {
    my ($what) = @_;
    my $until = time + $bound;
    my %left = map { $_ => 1 } @dbs;
    while (%left && time < $until) {
        for my $db (sort keys %left) {
            my $sessions = $db =~ /[48]/ ? 'AND NOT EXISTS (SELECT FROM session)' : '';
            delete $left{$db} if $node->safe_psql($db, "SELECT NOT EXISTS (SELECT FROM login) $sessions") eq 't';
        }
    }
    is(join(' ', sort keys %left), '', $what);
    return;
}

# Every other coordinator is told to leave as soon as it has started, others at any moment.
$node->safe_psql('db1', q{CREATE PROCEDURE stop_some(seed float8, span interval) LANGUAGE plpgsql AS $$
DECLARE p int; n int := 0; seen int[] := '{}'; until timestamptz := clock_timestamp() + span;
BEGIN
    PERFORM setseed(seed);
    WHILE clock_timestamp() < until LOOP
        FOR p IN SELECT pid FROM sweeper._process() WHERE kind = 'coordinator' AND pid IS NOT NULL LOOP
            IF random() < (CASE WHEN p = ANY (seen) THEN 0.01 ELSE 0.5 END) THEN
                n := n + pg_terminate_backend(p)::int;
            END IF;
            seen := seen || p;
        END LOOP;
        PERFORM pg_sleep(0.002);
    END LOOP;
    RAISE INFO '% were told to leave', n;
END $$});
for my $n (8, 3, 1) {
    $node->safe_psql('postgres', "DROP DATABASE $_") for splice(@dbs, $n);
    fill($_) for @dbs;
    my (undef, undef, $told) = $node->psql('db1', "CALL stop_some($seed / 1000.0, '5 s')");
    note("$n databases: $told");
    all_are_gone("$n databases: no deadline is forgotten");
    next if $n != 3;
    # a coordinator that inherits policies at rest, and then stays because no other database is left that waits
    wait_until(sub {
        $node->safe_psql($_, "CALL sweeper.sweep('empty')") for @dbs;
        return $node->safe_psql('db1', "SELECT next_look IS NULL FROM sweeper._policy() JOIN sweeper.policy USING (policy_id) WHERE policy = 'login'") eq 't';
    }, 'there is one');
    $node->safe_psql('postgres', "DROP DATABASE $_") for splice(@dbs, 2);
    $node->safe_psql($_, "CALL sweeper.sweep('empty')") for @dbs;
    $node->safe_psql($_, 'INSERT INTO login SELECT g, now() FROM generate_series(1, 30) AS g') for @dbs;
    all_are_gone('what is written then is found');
}
$node->stop;
done_testing();
