# Errors that begin and end in the middle of a pass, among rows that can never go.  See ../README.md.
package Chaos::Outage;
use strict;
use warnings;
use List::Util qw(shuffle);
use PostgreSQL::Test::Cluster;
use Sweeper;
use Test::More;
use Time::HiRes qw(time);

use constant { ROWS => 20_000, BOUND => 180 };    # seconds after the end of an outage until no good row is left, on the slowest machine

# Which rows never go.
my %BAD = (none => 'false', one => 'i = ' . ROWS / 2, few => 'i % ' . ROWS / 10 . ' = 5', half => 'i % 2 = 0', most => 'i % 50 <> 0');

# What begins, what ends it.
my %OUTAGE = (
    raise => [ q{UPDATE side SET code = 'P0001'}, 'UPDATE side SET code = NULL' ],
    disk => [ q{UPDATE side SET code = '53100'}, 'UPDATE side SET code = NULL' ],
    serialize => [ q{UPDATE side SET code = '40001'}, 'UPDATE side SET code = NULL' ],
    revoke => [ 'REVOKE ALL ON side FROM keeper', 'GRANT SELECT ON side TO keeper' ],
    rename => [ 'ALTER TABLE side RENAME TO side_away', 'ALTER TABLE side_away RENAME TO side' ],
    lock => [ 'BEGIN; LOCK TABLE side', 'COMMIT' ]);

sub new {
    my ($class, %arg) = @_;
    my $self = bless {%arg}, $class;
    $self->{node} = sweeper_node('outage');
    $self->{node}->safe_psql('postgres', q{CREATE EXTENSION session_sweeper;
        CREATE ROLE keeper;
        GRANT ALL ON SCHEMA public TO keeper;
        SELECT sweeper.grant_access('keeper', 'user');
        CREATE TABLE side (code text);
        INSERT INTO side VALUES (NULL);
        GRANT SELECT ON side TO keeper;
        CREATE FUNCTION goes() RETURNS trigger LANGUAGE plpgsql AS 'DECLARE code text := (SELECT s.code FROM public.side AS s); BEGIN
            IF OLD.bad THEN RAISE EXCEPTION ''it never goes''; END IF;
            IF code IS NOT NULL THEN RAISE EXCEPTION ''it does not go now'' USING ERRCODE = code; END IF;
            IF OLD.id % 100 = 0 THEN PERFORM pg_sleep(0.01); END IF;
            RETURN OLD; END'});
    return $self;
}

# Every bad set with every outage and number of workers, in the order of the seed.
sub cases {
    my ($self) = @_;
    srand $self->{seed};
    return shuffle map { my $bad = $_; map { my $outage = $_; map { [ $bad, $outage, $_ ] } 1, 2 } sort keys %OUTAGE } sort keys %BAD;
}

sub count {
    my ($self, $query) = @_;
    return $self->{node}->safe_psql('postgres', "SELECT count(*) $query");
}

# True when no more than so many good rows are left.
sub left_at_most {
    my ($self, $rows, $seconds) = @_;
    my $give_up = time + $seconds;
    while ($self->count('FROM t WHERE NOT bad') > $rows) {
        return 0 if time > $give_up;
        select undef, undef, undef, 0.1;
    }
    return 1;
}

sub one {
    my ($self, $bad, $outage, $workers) = @_;
    my $node = $self->{node};
    my $name = "bad rows: $bad, outage: $outage, workers: $workers";
    $node->safe_psql('postgres', qq{SELECT sweeper.unregister(policy) FROM sweeper.policy WHERE policy = 't';
        DROP TABLE IF EXISTS t;
        DELETE FROM sweeper.cleanup_event;
        CREATE TABLE t AS SELECT i AS id, now() - interval '1 h' + i * interval '1 ms' AS d, $BAD{$bad} AS bad FROM generate_series(1, @{[ROWS]}) AS i;
        ALTER TABLE t ADD PRIMARY KEY (id), OWNER TO keeper;
        CREATE INDEX ON t (d);
        CREATE TRIGGER goes BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION goes()});
    my $good = $self->count('FROM t WHERE NOT bad');
    $node->safe_psql('postgres', qq{SELECT sweeper.register('t', deadline => 'd', start => 'now', fuse_fraction => 1, backlog_rate => 0, check_every => '1 s', max_workers => $workers)});
    $self->left_at_most(0.9 * $good, BOUND) or return fail("$name: rows go");
    my $psql = $node->background_psql('postgres');
    my ($begin, $end) = @{ $OUTAGE{$outage} };
    $psql->query_safe($begin);
    my $rest = $self->count('FROM t WHERE NOT bad');
    # long enough for retries, or hardly felt
    my $until = time + (rand() < 0.5 ? rand : 2 + rand 6);
    select undef, undef, undef, 0.05 while time < $until;
    $psql->query_safe($end);
    $psql->quit;
    $self->{felt} += $rest > 0;
    my $ended = time;
    my $all = $self->left_at_most(0, BOUND);
    note sprintf '%s: %d of %d good rows were left, all went within %.1f s', $name, $rest, $good, time - $ended;
    ok($all, "$name: all good rows go") or diag $node->safe_psql('postgres', q{SELECT class, state, sqlstate, message, count(*) FROM sweeper.failed_row GROUP BY 1, 2, 3, 4});
    is($self->count(q{, count(DISTINCT key), count(*) FILTER (WHERE key::int NOT IN (SELECT id FROM t)) FROM sweeper.cleanup_event WHERE policy = 't'}),
        "$good|$good|$good", "$name: with an event each");
    is($self->count('FROM t'), ROWS - $good, "$name: the others stay");
    is($self->count(q{FROM sweeper.failed_row WHERE state = 'quarantined' AND key NOT IN (SELECT id::text FROM t)}), 0, "$name: and only they are quarantined");
    return;
}

sub run {
    my ($self, $rounds) = @_;
    my @cases = $self->cases;
    diag "outages: seed $self->{seed}";
    $self->one(@$_) for @cases[ 0 .. ($rounds < @cases ? $rounds : @cases) - 1 ];
    cmp_ok($self->{felt}, '>', 0, 'an outage began in the middle of a pass');
    $self->{node}->stop;
}
1;
