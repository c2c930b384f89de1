# Time without service is no time in which a session could have been refreshed,
# however starts and stops follow each other.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main');
$node->safe_psql('postgres', "CREATE EXTENSION session_sweeper;
    CREATE TABLE lease (id int PRIMARY KEY, seen timestamptz); INSERT INTO lease VALUES (1, now()), (2, now());
    SELECT sweeper.register('lease', last_seen => 'seen', ttl => '1 min', check_every => '100 ms', fuse_fraction => 1)");
# nothing dies in the looks from here on
my $stays = sub {
    my ($what) = @_;
    my $looks = $node->safe_psql('postgres', "SELECT coalesce(max(looks), 0) FROM sweeper.stat_policy WHERE policy = 'lease'");
    wait_for($node, "SELECT looks > $looks + 5 FROM sweeper.stat_policy WHERE policy = 'lease'", 'it is looked at');
    is($node->safe_psql('postgres', 'SELECT count(*) FROM lease'), 2, $what);
};

# The rows have not been refreshed for hours, because there was a long outage.
$node->stop('immediate');
$node->start;
$node->safe_psql('postgres', "UPDATE lease SET seen = now() - interval '3 h'");
wait_for($node, "SELECT cardinality(horizons) > 0 FROM sweeper.policy WHERE policy = 'lease'", 'this start is noted');
$stays->('a crash gives one time to live');

# The same, clean: what was left of that time is not forgotten.
$node->restart;
$stays->('a clean restart within it is no end of it');

# Short service, another long outage: as if the last start had been an hour ago.
$node->append_conf('postgresql.conf', 'session_sweeper.enabled = off');
$node->stop('immediate');
$node->start;
$node->safe_psql('postgres', "UPDATE sweeper.policy SET horizons = (SELECT array_agg(h - interval '1 h') FROM unnest(horizons) AS h)
    WHERE policy = 'lease'");
$node->append_conf('postgresql.conf', 'session_sweeper.enabled = on');
$node->reload;
$stays->('an outage is no service');

# As if service had gone on for a time to live since the first start: it counts,
# although the present start is young.
$node->append_conf('postgresql.conf', 'session_sweeper.enabled = off');
$node->stop('immediate');
$node->start;
$node->safe_psql('postgres', "UPDATE sweeper.policy SET horizons[1] = horizons[1] - interval '2 min' WHERE policy = 'lease'");
$node->append_conf('postgresql.conf', 'session_sweeper.enabled = on');
$node->reload;
wait_for($node, 'SELECT count(*) = 0 FROM lease', 'then they are dead');
is($node->safe_psql('postgres', "SELECT count(*), count(DISTINCT key), min(cleanup_type) FROM sweeper.cleanup_event"), '2|2|zombie', 'once each');

# a grace that is over leaves nothing behind
$node->safe_psql('postgres', "SELECT sweeper.alter_policy('lease', ttl => '1 s')");
$node->stop('immediate');
$node->start;
wait_for($node, "SELECT cardinality(horizons) > 0 FROM sweeper.policy WHERE policy = 'lease'", 'a new start is noted');
wait_for($node, "SELECT cardinality(horizons) = 0 FROM sweeper.policy WHERE policy = 'lease'", 'and forgotten when its grace is over');

# The mark of the last look stays younger than max_gap, however small that is.
my $mark = $node->safe_psql('postgres', 'SELECT looked_at FROM sweeper.service_mark');
$node->append_conf('postgresql.conf', "session_sweeper.max_gap = '4 s'");
$node->reload;
wait_for($node, "SELECT looked_at > '$mark' FROM sweeper.service_mark", 'the mark moves');

# A server that starts read-only rests without a complaint.
$node->append_conf('postgresql.conf', 'default_transaction_read_only = on');
$node->restart;
wait_for($node, "SELECT state = 'read-only' FROM sweeper.policy_status WHERE policy = 'lease'");
unlike(slurp_file($node->logfile), qr/cannot execute \w+ in a read-only transaction/, 'nothing was tried');
$node->stop;
done_testing();
