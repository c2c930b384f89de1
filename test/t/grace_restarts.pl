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
# the same with a time to live in each row, and an index from which the coordinator reads deadlines
$node->safe_psql('postgres', "CREATE TABLE by_row (id int PRIMARY KEY, seen timestamptz, ttl interval); INSERT INTO by_row SELECT id, seen, '1 min' FROM lease;
    CREATE INDEX ON by_row (((seen AT TIME ZONE 'UTC') + ttl));
    SELECT sweeper.register('by_row', last_seen => 'seen', ttl_column => 'ttl', check_every => '100 ms', fuse_fraction => 1)");
my @both = ('lease', 'by_row');
my $both = sub { $node->safe_psql('postgres', join('; ', map { $_[0] =~ s/TABLE/$_/gr } @both)) };
# Rows with a time to live of their own: what is dead when a clean stop comes is dead afterwards.
my $ids = sub { $node->safe_psql('postgres', "SELECT coalesce(string_agg(id::text, ',' ORDER BY id), '') FROM own") };
$node->safe_psql('postgres', "CREATE TABLE own (id int PRIMARY KEY, seen timestamptz, ttl interval);
    INSERT INTO own VALUES (1, now() - interval '2 h', '1 min'), (2, now() - interval '2 h', '10 min'), (3, now(), '1 h');
    SELECT sweeper.register('own', last_seen => 'seen', ttl_column => 'ttl', check_every => '100 ms', fuse_fraction => 1, start => 'paused')");
$node->restart;
$node->safe_psql('postgres', "SELECT sweeper.resume('own')");
wait_for($node, 'SELECT count(*) = 1 FROM own', 'the dead go after a clean start');
is($ids->(), '3', 'the others stay');
# nothing dies in the looks from here on
my $stays = sub {
    my ($what) = @_;
    for my $table (@both) {
        my $looks = $node->safe_psql('postgres', "SELECT coalesce(max(looks), 0) FROM sweeper.stat_policy WHERE policy = '$table'");
        wait_for($node, "SELECT looks > $looks + 5 FROM sweeper.stat_policy WHERE policy = '$table'", 'it is looked at');
        is($node->safe_psql('postgres', "SELECT (SELECT count(*) FROM $table), lag, backlog FROM sweeper.policy_status WHERE policy = '$table'"), '2||0', "$table: $what");
    }
};

# In what the launcher wrote, all of it was so many seconds earlier: with the last sign of life an outage as long as that
# follows, without it there was service.
my $earlier = sub {
    my ($seconds, $alive) = @_;
    my $file = $node->data_dir . '/pg_stat/session_sweeper.starts';
    my $us = $seconds * 1_000_000;
    my $text = slurp_file($file);
    $text =~ s/^start \K(-?\d+)/$1 - $us/gem;
    $text =~ s/^alive \K(-?\d+)/$1 - $us/em if $alive;
    unlink $file;
    append_to_file($file, $text);
};

# A clean stop for an hour, and another restart before the applications are back.
$both->("SELECT sweeper.pause('TABLE')");
$node->stop;
$earlier->(3600, 1);
$node->start;
$both->("UPDATE TABLE SET seen = now() - interval '1 h'; SELECT sweeper.resume('TABLE')");
$stays->('an outage is credited');
$node->restart;
$stays->('a short restart does not take that away');
$node->stop;
$earlier->(120, 0);
$node->start;
wait_for($node, "SELECT count(*) = 0 FROM $_", "$_: service of a time to live does") for @both;
my $state = "SELECT state FROM sweeper.policy_status WHERE policy = 'lease'";
wait_for($node, "SELECT ($state) <> 'running'", 'that pass ends');
is($node->safe_psql('postgres', $state), 'waiting', 'a clean start is no grace');
$node->safe_psql('postgres', "DELETE FROM sweeper.cleanup_event; INSERT INTO lease VALUES (1, now()), (2, now()); INSERT INTO by_row SELECT id, seen, '1 min' FROM lease");

# The rows have not been refreshed for hours, because there was a long outage.
$node->stop('immediate');
$node->start;
$both->("UPDATE TABLE SET seen = now() - interval '3 h'");
wait_for($node, "SELECT cardinality(horizons) > 0 FROM sweeper.policy WHERE policy = '$_'", 'this start is noted') for @both;
$stays->('a crash gives one time to live');
is($node->safe_psql('postgres', $state), 'grace', 'as its state says');

# The same, clean: what was left of that time is not forgotten.
$node->restart;
$stays->('a clean restart within it is no end of it');
is($node->safe_psql('postgres', $state), 'grace', 'as its state says');

# The same when nobody swept after the crash.
$node->append_conf('postgresql.conf', 'session_sweeper.enabled = off');
$node->stop('immediate');
$node->start;
$node->safe_psql('postgres', "UPDATE sweeper.policy SET horizons = NULL");
$node->append_conf('postgresql.conf', 'session_sweeper.enabled = on');
$node->restart;
$stays->('a crash before the last start is not forgotten either');

# Short service, another long outage: as if the last start had been an hour ago.
$node->append_conf('postgresql.conf', 'session_sweeper.enabled = off');
$node->stop('immediate');
$earlier->(3600, 1);
$node->start;
$node->safe_psql('postgres', "UPDATE sweeper.policy SET horizons = (SELECT array_agg(h - interval '1 h') FROM unnest(horizons) AS h)
    WHERE policy IN ('lease', 'by_row')");
$node->append_conf('postgresql.conf', 'session_sweeper.enabled = on');
$node->reload;
$stays->('an outage is no service');

# As if service had gone on for a time to live since the first start: it counts,
# although the present start is young.
$node->append_conf('postgresql.conf', 'session_sweeper.enabled = off');
$node->stop('immediate');
$node->start;
$node->safe_psql('postgres', "UPDATE sweeper.policy SET horizons[1] = horizons[1] - interval '2 min' WHERE policy IN ('lease', 'by_row')");
$node->append_conf('postgresql.conf', 'session_sweeper.enabled = on');
$node->reload;
for my $table (@both) {
    wait_for($node, "SELECT count(*) = 0 FROM $table", 'then they are dead');
    is($node->safe_psql('postgres', "SELECT count(*), count(DISTINCT key), min(cleanup_type) FROM sweeper.cleanup_event WHERE policy = '$table'"), '2|2|zombie', "$table: once each");
}
@both = ('lease');

# a grace that is over leaves nothing behind
$node->safe_psql('postgres', "SELECT sweeper.alter_policy('lease', ttl => '1 s')");
$node->stop('immediate');
$node->start;
wait_for($node, "SELECT cardinality(horizons) > 0 FROM sweeper.policy WHERE policy = 'lease'", 'a new start is noted');
wait_for($node, "SELECT cardinality(horizons) = 0 FROM sweeper.policy WHERE policy = 'lease'", 'and forgotten when its grace is over');

# A crash gives each its own time, and a clean restart does not begin it anew.
$node->safe_psql('postgres', "SELECT sweeper.pause('own');
    INSERT INTO own VALUES (1, now() - interval '2 h', '1 min'), (2, now() - interval '2 h', '10 min')");
$node->stop('immediate');
$node->start;
wait_for($node, "SELECT horizons[cardinality(horizons)] > pg_postmaster_start_time() FROM sweeper.policy WHERE policy = 'own'", 'this start is noted');
$node->append_conf('postgresql.conf', 'session_sweeper.enabled = off');
$node->restart;
$node->safe_psql('postgres', "UPDATE sweeper.policy SET horizons[1] = horizons[1] - interval '5 min' WHERE policy = 'own'");
$node->append_conf('postgresql.conf', 'session_sweeper.enabled = on');
$node->reload;
$node->safe_psql('postgres', "SELECT sweeper.resume('own')");
wait_for($node, 'SELECT count(*) = 2 FROM own', 'service of five minutes is the end of one');
is($ids->(), '2,3', 'and of no other');
is($node->safe_psql('postgres', "SELECT string_agg(verdict, ',' ORDER BY k) FROM unnest('{2,3}'::text[]) AS k, sweeper.explain_row('own', k)"),
    'in grace,alive', 'explained');
# Many crashes: notes are thinned out, the first start is not forgotten.
$node->append_conf('postgresql.conf', 'session_sweeper.enabled = off');
$node->stop('immediate');
$node->start;
$node->safe_psql('postgres', "UPDATE sweeper.policy SET horizons = (SELECT array_agg(now() - i * interval '1 min' ORDER BY i DESC, h)
    FROM generate_series(1, 30) AS i, generate_series(1, 2) AS h) || now() - interval '1 s' WHERE policy = 'own'");
$node->append_conf('postgresql.conf', 'session_sweeper.enabled = on');
$node->reload;
wait_for($node, 'SELECT count(*) = 1 FROM own', 'thirty starts ago was one that counts');
is($node->safe_psql('postgres', "SELECT cardinality(horizons) FROM sweeper.policy WHERE policy = 'own'"), 61, 'and not more are kept');

# is_alive with a deadline: whoever keeps it could not during the outage.
$node->safe_psql('postgres', "CREATE TABLE asked (id int PRIMARY KEY, d timestamptz);
    INSERT INTO asked SELECT i, now() + interval '1 h' FROM generate_series(1, 5) AS i;
    CREATE FUNCTION lives(text) RETURNS boolean LANGUAGE sql AS 'SELECT false';
    SELECT sweeper.register('asked', deadline => 'd', ttl => '1 h', is_alive => 'lives(text)', check_every => '100 ms', fuse_fraction => 1)");
$node->safe_psql('postgres', "UPDATE asked SET d = now() + interval '1 s'; SELECT pg_switch_wal()");
$node->stop('immediate');
$node->start;
$node->safe_psql('postgres', "UPDATE asked SET d = now() - interval '1 min'");
my $looks = $node->safe_psql('postgres', "SELECT coalesce(max(looks), 0) FROM sweeper.stat_policy WHERE policy = 'asked'");
wait_for($node, "SELECT looks > $looks + 5 FROM sweeper.stat_policy WHERE policy = 'asked'", 'it is looked at');
is($node->safe_psql('postgres', 'SELECT count(*) FROM asked'), 5, 'nobody dies before the application could write');

# What was noted while the clock was fast says nothing: neither that this start was noted, nor that rows were judged
# that have such deadlines by now.
$node->safe_psql('postgres', "SELECT sweeper.alter_policy('lease', ttl => '1 min'); INSERT INTO lease VALUES (1, now()), (2, now()) ON CONFLICT (id) DO UPDATE SET seen = now()");
for my $note ("'-infinity', now() + interval '1 h'", "now() + interval '1 h', now()") {
    $node->safe_psql('postgres', "UPDATE lease SET seen = now(); UPDATE sweeper.policy SET horizons = ARRAY[now() - interval '1 h', $note] WHERE policy = 'lease'");
    $node->stop('immediate');
    $node->start;
    $node->safe_psql('postgres', "UPDATE lease SET seen = now() - interval '30 min'");
    $stays->('a crash gives its grace whatever a fast clock has noted');
}

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
