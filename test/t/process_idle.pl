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

sub looks_of_other {
    return $node->safe_psql('postgres', "SELECT looks FROM sweeper.stat_policy WHERE policy = 'other'");
}

for my $turn (1 .. 3) {
    # each look that finds nothing puts the next one off
    $node->safe_psql('postgres', "CALL sweeper.sweep('$_'); " x 61) for qw(written other);
    wait_for($node, "SELECT bool_and(next_look > now() + interval '3 min') FROM sweeper.policy_status WHERE policy IN ('written', 'other')",
        'the next looks are far away');
    my $planned = $node->safe_psql('postgres', "SELECT min(next_look) FROM sweeper.policy_status WHERE policy IN ('written', 'other')");
    my $looks = looks_of_other();
    $node->safe_psql('postgres', "INSERT INTO written VALUES (100 + $turn, now())");
    wait_for($node, "SELECT count(*) = $turn FROM sweeper.cleanup_event", 'a row that is written is swept');
    my $until = $node->safe_psql('postgres', "SELECT now() < '$planned'");
    is($until, 't', 'before the next look that was planned');
    is(looks_of_other(), $looks, 'the other policy does not look');
}
done_testing();
