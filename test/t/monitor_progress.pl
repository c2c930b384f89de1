# Done, left, rate and time left of a backlog, against a rate limit, which knows the truth.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);
use Sweeper;

# never analysed: the planner knows nothing of its rows
my $node = sweeper_node('main');
my ($rows, $rate) = (9000, 500);
sub sql { return $node->safe_psql('postgres', @_) }
sql(qq{CREATE EXTENSION session_sweeper;
    CREATE TABLE limited (id int PRIMARY KEY, d timestamptz); CREATE INDEX ON limited (d);
    CREATE TABLE mixed (id int PRIMARY KEY, d timestamptz); CREATE INDEX ON mixed (d);
    CREATE TABLE stale (id int PRIMARY KEY, d timestamptz) PARTITION BY RANGE (id);
    CREATE TABLE stale_1 PARTITION OF stale FOR VALUES FROM (1) TO (4000);
    CREATE TABLE stale_2 PARTITION OF stale FOR VALUES FROM (4000) TO (100000); CREATE INDEX ON stale (d);
    INSERT INTO limited SELECT i, now() - interval '1 h' + i * interval '1 ms' FROM generate_series(1, $rows) AS i;
    INSERT INTO mixed SELECT i, now() - interval '1 h' FROM generate_series(1, $rows) AS i;
    INSERT INTO stale SELECT i, now() - interval '1 h' + i % 7 * interval '1 ms' FROM generate_series(1, $rows) AS i;
    INSERT INTO stale SELECT i, now() + interval '1 h' FROM generate_series(50001, 59000) AS i});
# one by the limit for all rows, the other by that for the backlog of registration
sql(qq{SELECT sweeper.register('limited', deadline => 'd', start => 'now', rate_limit => $rate, backlog_rate => 0);
    SELECT sweeper.register('stale', deadline => 'd', start => 'now', backlog_rate => $rate);
    SELECT sweeper.register('mixed', deadline => 'd', start => 'now', check_every => '50 ms', backlog_rate => 20)});

my %began;
my @seen;
my @forgotten;
my $open = $node->background_psql('postgres');
until (@seen && $seen[-1]{over}) {
    my $at = time;
    # rows that fall due meanwhile go at once, and say nothing of the others
    $open->query_safe(q{INSERT INTO mixed SELECT coalesce(max(id), 0) + 1, now() FROM mixed});
    my ($wait, $late) = split /\|/, $open->query_safe(q{SELECT count(*), s.lag > '50 min' FROM mixed CROSS JOIN sweeper.policy_status AS s WHERE s.policy = 'mixed' AND d < now() - interval '50 min' GROUP BY 2});
    push @forgotten, $at if $wait && $wait > $rate && $began{limited} && $late ne 't';
    # the deletions are committed before memory has them
    my @lines = split /\n/, $open->query_safe(q{SELECT format('%s %s %s %s %s %s %s %s', policy, n, g.done, g.rows_left, g.percent, g.rows_per_second, extract(epoch FROM g.eta), s.backlog)
        FROM (SELECT 'limited' AS policy, count(*) AS n FROM limited UNION ALL SELECT 'stale', count(*) FROM stale WHERE d < now()) AS t
        LEFT JOIN sweeper.stat_progress AS g USING (policy) JOIN sweeper.policy_status AS s USING (policy)});
    for (@lines) {
        my %r;
        @r{qw(policy n done left percent rate eta backlog)} = split / /;
        push @seen, { %r, at => $at };
        $began{$r{policy}} //= $at if $r{done};
    }
    $seen[-1]{over} = !grep { (split / /)[1] } @lines;
    select(undef, undef, undef, 0.1);
}
$open->quit;

for my $policy (qw(limited stale)) {
    my @of = grep { $_->{policy} eq $policy } @seen;
    my ($end) = map { $_->{at} } grep { $_->{n} == 0 } @of;
    my @going = grep { $_->{n} > 0 && defined $began{$policy} && $_->{at} >= $began{$policy} } @of;
    pop @going;    # its last rows may have gone between the snapshot of the table and the look at memory
    my @late = grep { $_->{at} > $began{$policy} + 10 && $end - $_->{at} > 0.5 } @going;
    cmp_ok(scalar @late, '>', 10, "$policy: seen often after its first 10 s");
    is_deeply([ grep { grep { !defined || !length } @$_{qw(done left percent rate eta backlog)} } @going ], [], "$policy: nothing is null while rows are left");
    # a first count that a busy machine cuts short may be too low
    is_deeply([ grep { $late[$_]{percent} < $late[$_ - 1]{percent} } 1 .. $#late ], [], "$policy: percent grows");
    is_deeply([ grep { abs($_->{done} + $_->{left} - $rows) > 0.2 * $rows } @late ], [], "$policy: all rows were counted");
    is_deeply([ grep { abs($_->{backlog} - $_->{left}) > $rate } @going ], [], "$policy: the backlog is what is left");
    is_deeply([ grep { abs($_->{eta} - ($end - $_->{at})) > 0.2 * ($end - $_->{at}) + 0.3 } @late ], [], "$policy: the time left is right");
    is_deeply([ grep { abs($_->{rate} - $rate) > 0.2 * $rate } @late ], [], "$policy: so is the rate");
}
is_deeply(\@forgotten, [], 'the lag is that of the oldest row, also while newer ones go first');
wait_for($node, q{SELECT NOT EXISTS (SELECT FROM sweeper.stat_progress WHERE policy IN ('limited', 'stale'))}, 'nothing is worked off any more');
is(sql(q{SELECT string_agg(concat_ws(' ', policy, backlog, done, percent, rows_per_second, eta), ', ' ORDER BY policy) FROM sweeper.policy_status WHERE policy IN ('limited', 'stale')}), 'limited 0, stale 0', 'and there is no backlog');

# the clock stands while a policy is paused
sql(q{CREATE TABLE halted (id int PRIMARY KEY, d timestamptz); CREATE INDEX ON halted (d);
    INSERT INTO halted SELECT i, now() - interval '1 h' + i * interval '1 ms' FROM generate_series(1, 100000) AS i;
    SELECT sweeper.register('halted', deadline => 'd', start => 'now', rate_limit => 500, backlog_rate => 0, fuse_fraction => 1)});
sub halted { return split /\|/, sql(q{SELECT done, rows_per_second, eta FROM sweeper.stat_progress WHERE policy = 'halted'}) }
wait_for($node, q{SELECT done > 3000 FROM sweeper.stat_progress WHERE policy = 'halted'}, 'some rows are gone');
sql(q{SELECT sweeper.pause('halted', 'for lunch')});
wait_for($node, q{SELECT s.state = 'paused' AND s.workers = 0 FROM sweeper.policy_status AS s WHERE policy = 'halted'}, 'it is paused');
my ($done, $before, $eta) = halted();
my $began = time;
my @differ;
while (time < $began + 6) {
    my @now = halted();
    push @differ, "@now" if "@now" ne "$done $before $eta";
    select(undef, undef, undef, 0.2);
}
is_deeply(\@differ, [], 'rate and time left stay the same while it is paused');
sql(q{SELECT sweeper.resume('halted')});
wait_for($node, "SELECT done > $done FROM sweeper.stat_progress WHERE policy = 'halted'", 'it goes on');
cmp_ok((halted())[1], '>', $before / 2, 'and so does the rate');

# the watch has problems first, then the 20 policies with most trouble
sql(q{CREATE TABLE calm (id int PRIMARY KEY, d timestamptz); CREATE INDEX ON calm (d);
    SELECT count(sweeper.register('calm', policy => 'calm_' || i, deadline => 'd')) FROM generate_series(1, 30) AS i;
    CREATE TABLE zealous (id int PRIMARY KEY, d timestamptz); CREATE INDEX ON zealous (d); INSERT INTO zealous SELECT i, now() - interval '1 h' FROM generate_series(1, 100) AS i;
    SELECT sweeper.register('zealous', deadline => 'd')});
wait_for($node, q{SELECT count(*) = 30 FROM sweeper.policy_status WHERE policy LIKE 'calm%' AND state = 'waiting'}, 'many policies do nothing');
my $watch = sql(slurp_file('monitoring/watch.sql'));
like($watch, qr/^problems\n.*zealous .*held.*?^policy .*?^(?:halted|zealous) .*?^\.\.\. and (\d+) more$/ms, 'problems, then trouble, then how many more there are');
my ($shown) = $watch =~ /^policy [^\n]*\n(.*?)^\.\.\. and/ms;
is(scalar(() = $shown =~ /\n/g), 20, 'there are 20 policies');
is(scalar(() = $shown =~ /^(?:halted|zealous) /mg), 2, 'those with trouble are among them');
done_testing();
