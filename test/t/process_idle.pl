# An idle policy whose table nobody writes: looks do not read its index; a row that is written is found by the next looks.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main');
$node->safe_psql('postgres', q(CREATE EXTENSION session_sweeper;
    CREATE TABLE idle (id int PRIMARY KEY, d timestamptz NOT NULL);
    CREATE INDEX idle_d ON idle (d);
    INSERT INTO idle SELECT i, now() + interval '30 days' FROM generate_series(1, 10) AS i;
    CREATE TABLE ended (looks bigint);
    CREATE FUNCTION ended() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN INSERT INTO ended SELECT looks FROM sweeper.stat_policy WHERE policy = 'idle'; RETURN OLD; END $$;
    CREATE TRIGGER ended BEFORE DELETE ON idle FOR EACH ROW EXECUTE FUNCTION ended();
    SELECT sweeper.register('idle', deadline => 'd', start => 'now', check_every => '100 ms', fuse_fraction => 1)));

# Looks and scans of the index until now.  The coordinator reports scans at most once a second, so they may be of earlier looks.
sub counted {
    return split /\|/, $node->safe_psql('postgres', "SELECT (SELECT looks FROM sweeper.stat_policy WHERE policy = 'idle'),
        (SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'idle_d')");
}

my ($rests, $most, $looks, $scans) = (0, 0);
my $since = time;
until ($rests >= 2 || time - $since > $PostgreSQL::Test::Utils::timeout_default) {
    my ($l, $s) = counted();
    ($looks, $scans) = ($l, $s) unless defined $scans && $s == $scans;
    if ($l - $looks >= 2) {
        $rests++;
        ($looks, $scans) = ($l, $s);
    }
    select undef, undef, undef, 0.1;
}
is($rests, 2, 'two looks in a row that did not read the index, twice');

# Written when the index has just been read: the next look that reads it in any case is far away.
for my $turn (1 .. 2) {
    my (undef, $read) = counted();
    wait_for($node, "SELECT idx_scan > $read FROM pg_stat_user_indexes WHERE indexrelname = 'idle_d'", 'the index is read');
    my $before = $node->safe_psql('postgres', "INSERT INTO idle VALUES (100 + $turn, now()) RETURNING (SELECT looks FROM sweeper.stat_policy WHERE policy = 'idle')");
    wait_for($node, "SELECT count(*) = $turn FROM ended", 'a row that is written is swept');
    my $after = $node->safe_psql('postgres', 'SELECT max(looks) FROM ended');
    cmp_ok($after - $before, '<', 5, 'by one of the next looks');
    wait_for($node, "SELECT looks >= $after + 15 FROM sweeper.stat_policy WHERE policy = 'idle'", 'idle again');
}
done_testing();
