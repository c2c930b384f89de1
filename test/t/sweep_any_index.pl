# Whatever filters and indexes a table has: every dead row goes, and rows that the filter keeps are not late.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $seed = $ENV{SEED} // int(rand(1_000_000));
srand($seed);
note("SEED=$seed");
my $node = sweeper_node('main', 'session_sweeper.max_workers = 4');
sub sql { return $node->safe_psql('postgres', "SET client_min_messages = error; $_[0]") }
sub one { return $_[rand @_] }

my @filters = (q{s = 'a'}, q{s <> 'b'}, 'ok(s)', q{s = 'a' AND n > 3}, q{s IN ('a', 'c') AND n IS NOT NULL}, 'n % 2 = 0', q{s = 'a' AND d < now() + interval '1 year'});
my @indexes = ('(d)', q{(d) WHERE s = 'a'}, q{(d) WHERE s <> 'b'}, '(d) WHERE ok(s)', '(d) WHERE n > 3', '(d) WHERE d IS NOT NULL', q{(n, d) WHERE s = 'a'},
    q{(d, n) WHERE s = 'a' AND n > 3}, '(d) WHERE n % 2 = 0', q{(d DESC) WHERE s = 'a'}, q{(d) WHERE s = 'b'}, '((n + 1), d)');
my $sum = q{(((seen AT TIME ZONE 'UTC') + coalesce(make_interval(secs => ttl_s), '5 s')))};

sql('CREATE EXTENSION session_sweeper');
sql(q{CREATE TYPE stage AS ENUM ('a', 'b', 'c'); CREATE FUNCTION ok(stage) RETURNS bool IMMUTABLE LANGUAGE sql AS $$ SELECT $1 = 'a' $$});
# Deadlines of dead rows, and what they are swept by.
my %tables;
for my $t (map { "t$_" } 1 .. 16) {
    my $own = $t =~ /[48]$/;
    my $filter = $own ? one('true', q{s = 'a'}, q{s <> 'b'}) : one(@filters);
    my @on = $own ? one($sum, "$sum WHERE s = 'a'", '(seen)') : map { one(@indexes) } 1 .. int rand 4;
    my $due = $own ? q{seen + CASE WHEN ttl_s > 0 THEN make_interval(secs => ttl_s) ELSE '5 s' END} : 'd';
    $tables{$t} = "($filter) AND $due <= now()";
    note("$t: $filter; $due; @on");
    sql("CREATE TABLE $t (id int PRIMARY KEY, d timestamptz NOT NULL, s stage NOT NULL, n int, ttl_s int, seen timestamptz NOT NULL);"
            . join('', map { "CREATE INDEX ON $t $_;" } @on)
            . "SELECT FROM sweeper.register('$t', " . ($own ? q{last_seen => 'seen', ttl_column => 'ttl_s', ttl => '5 s'} : q{deadline => 'd'})
            . ($filter eq 'true' ? '' : ", filter => \$f\$$filter\$f\$") . ", start => 'now', fuse_fraction => 1)");
}

sub change {
    my ($t, $id) = @_;
    my $some = "WHERE id IN (SELECT id FROM $t ORDER BY random() LIMIT 2)";
    return one(
        "INSERT INTO $t VALUES ($id, now() + interval '" . one(-86400, -1, 0, 1, 3) . " s', '" . one('a', 'b', 'c') . "', " . one('NULL', 1 .. 6) . ', ' . one('NULL', 0, -5, 1, 3)
            . ", now() - interval '" . one(0, 1, 60) . " s')",
        "UPDATE $t SET s = '" . one('a', 'b', 'c') . "', n = " . one(1 .. 6) . " $some",
        "UPDATE $t SET d = d - interval '10 s', seen = seen - interval '5 s' $some",
        "DELETE FROM $t $some");
}
my $dead = join(' + ', map { "(SELECT count(*) FROM $_ WHERE $tables{$_})" } sort keys %tables);
my $id = 0;
for my $round (1 .. 4) {
    # looks that find nothing put the next ones off
    sql(join('', map { "CALL sweeper.sweep('$_'); " x 5 } sort keys %tables));
    for my $t (grep { rand() < 0.6 } sort keys %tables) {
        sql(join('; ', map { change($t, ++$id) } 1 .. 10));
    }
    ok(wait_for($node, "SELECT $dead = 0"), "round $round: all dead rows are gone");
}
ok(wait_for($node, 'SELECT count(*) = 0 FROM sweeper.policy_status WHERE lag IS NOT NULL'), 'nothing is late');
ok(sql('SELECT count(*) > 0 FROM sweeper.cleanup_event') eq 't', 'rows were swept');
$node->stop;
done_testing();
