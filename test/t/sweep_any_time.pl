# Whatever time the oldest row says, as year 2000, which is 0, or -infinity: it holds up no row behind it.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main', "session_sweeper.max_workers = 4\ntimezone = 'UTC'");
sub sql { return $node->safe_psql('postgres', "SET client_min_messages = error; $_[0]") }
sql('CREATE EXTENSION session_sweeper');

# The zero of PostgreSQL's clock and a little before, the ends of its range, the zero of others.
my @times = ('2000-01-01', '2000-01-01 00:00:00.000001', '1999-12-31 23:00', '1999-12-31', '1970-01-01', '-infinity', 'infinity', '4713-01-01 BC', '294276-12-31');
my @numbers = (0, -1, 1, 946684800, 946684800_000, 946684800_000_000, 946681200, 946598400, '-9223372036854775808', '9223372036854775807');
my @floats = (0, -1, 946684800, '-Infinity', 'Infinity', 'NaN', 1e300, -1e300);
my $ago = "now() - interval '3 days'";
my $epoch = "extract(epoch FROM $ago)";

# Type of the column, the deadline, a dead row's value, extremes.
my %forms = (
    instant => ['timestamptz', q{deadline => 'd'}, $ago, @times],
    kept => ['timestamptz', q{deadline => 'd', keep_for => '1 day'}, $ago, @times],
    filtered => ['timestamptz', q{deadline => 'd', filter => 'id < 9'}, $ago, @times],
    two_clocks => ['timestamptz', q{deadline => 'd', created => 'c', max_age => '1 day'}, $ago, @times],
    grouped => ['timestamptz', q{deadline => 'd', group_by => 'n'}, $ago, @times],
    kept_alive => ['timestamptz', q{deadline => 'd', heartbeats => true, ttl => '1 min'}, $ago, @times],
    seen => ['timestamptz', q{last_seen => 'd', ttl => '1 h'}, $ago, @times],
    own_ttl => ['timestamptz', q{last_seen => 'd', ttl_column => 'n'}, $ago, grep { !/^29/ } @times],
    local => ['timestamp', q{deadline => 'd', timezone => 'UTC'}, $ago, @times],
    local_seen => ['timestamp', q{last_seen => 'd', ttl => '1 h', timezone => 'UTC'}, $ago, @times],
    day => ['date', q{deadline => 'd', timezone => 'UTC'}, $ago, grep { !/:/ } @times],
    seconds => ['bigint', q{deadline => 'd', unit => 's'}, $epoch, @numbers],
    milliseconds => ['bigint', q{last_seen => 'd', ttl => '1 h', unit => 'ms'}, "$epoch * 1000", @numbers],
    microseconds => ['bigint', q{deadline => 'd', unit => 'us'}, "$epoch * 1000000", @numbers],
    float => ['float8', q{deadline => 'd', unit => 's'}, $epoch, @floats],
    numeric => ['numeric', q{deadline => 'd', unit => 's'}, $epoch, @floats],
    int => ['int', q{deadline => 'd', unit => 's'}, $epoch, 0, -1, 946684800, 2147483647, -2147483648],
);
my @tables;
for my $form (sort keys %forms) {
    my ($type, $deadline, $dead, @extremes) = @{ $forms{$form} };
    my ($sql, $n) = ('', 0);
    for my $value (@extremes) {
        my $t = $form . ++$n;
        push @tables, { name => $t, is => "$form: $value" };
        $sql .= "CREATE TABLE $t (id int PRIMARY KEY, d $type, n int NOT NULL DEFAULT 3600, c timestamptz DEFAULT now());"
            . ($form eq 'own_ttl' ? "CREATE INDEX ON $t (((d AT TIME ZONE 'UTC') + make_interval(secs => n)));" : "CREATE INDEX ON $t (d);")
            . "SELECT FROM sweeper.register('$t', $deadline, start => 'now', fuse_fraction => 1); INSERT INTO $t (id, d) VALUES (1, '$value'), (2, $dead);";
    }
    sql($sql);
}
my $left = join(' UNION ALL ', map { "SELECT '$_->{is}' FROM $_->{name} WHERE id = 2" } @tables);
ok(wait_for($node, "SELECT count(*) = 0 FROM ($left) AS l"), 'all dead rows behind such a one are gone') or diag(sql($left));
my $early = join(' UNION ALL ', map { "SELECT '$_->{is}' FROM $_->{name} WHERE id = 1" } grep { $_->{is} =~ /: (2000|19|-inf|-Inf|4713|0$|-)/ } @tables);
ok(wait_for($node, "SELECT count(*) = 0 FROM ($early) AS l"), 'and so is it, if it is dead') or diag(sql($early));
is(sql(q{SELECT count(*) FROM sweeper.policy_status WHERE lag IS NOT NULL}), 0, 'nothing is late');
is(sql(q{SELECT string_agg(DISTINCT problem, ', ') FROM sweeper.problem WHERE problem NOT IN ('no index')}), '', 'nobody is told of a problem');

# A zone's clock has just skipped an hour.  The first row of the index is due in 58 min, the next one was due 30 s ago.
my $zone = sql(q{SELECT format('AAA0BBB,%s/%s,%s', day, to_char(at, 'HH24:MI:SS'), (day + 180) % 365)
    FROM (SELECT at, extract(doy FROM at)::int - 1 AS day FROM (SELECT now() - interval '1 min' AS at) AS a) AS b});
sql(qq{CREATE TABLE skipped (id int PRIMARY KEY, d timestamp); CREATE INDEX ON skipped (d);
    SELECT FROM sweeper.register('skipped', deadline => 'd', timezone => '$zone', start => 'now', fuse_fraction => 1);
    INSERT INTO skipped VALUES (1, date_trunc('s', now()) + interval '58 min'), (2, date_trunc('s', now()) + interval '59 min 30 s')});
is(sql(qq{SELECT string_agg((d AT TIME ZONE '$zone' < now())::text, ' ' ORDER BY d) FROM skipped}), 'false true', 'the first is due later than the second');
sql(join('', map { "CALL sweeper.sweep('skipped'); " } 1 .. 30));
is(sql('SELECT count(*) FROM skipped'), 2, 'the index says that nothing is due');
# also where the table is written all the time
sql(q{INSERT INTO skipped VALUES (3, 'infinity'); CALL sweeper.sweep('skipped')});
wait_for($node, q{SELECT next_look < now() + interval '2 s' FROM sweeper.policy_status WHERE policy = 'skipped'});
sql(join('', map { "CALL sweeper.sweep('skipped'); " } 1 .. 30));
is(sql('SELECT id FROM skipped WHERE id < 3'), 1, 'which is not believed for ever');
$node->stop;
done_testing();
