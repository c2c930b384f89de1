# A standby runs nothing; promotion starts the sweeps, with grace for activity.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $primary = sweeper_node('primary');
$primary->safe_psql('postgres', 'CREATE EXTENSION session_sweeper');
load_table($primary, 'fixed', 100, 100);
$primary->safe_psql('postgres', "CREATE TABLE active (id int PRIMARY KEY, seen timestamptz);
    INSERT INTO active SELECT i, now() FROM generate_series(1, 10) AS i;
    SELECT sweeper.register('fixed', deadline => 'd', start => 'paused');
    SELECT sweeper.register('active', last_seen => 'seen', ttl => '20 s', check_every => '100 ms');
    CREATE UNLOGGED TABLE light (id int PRIMARY KEY, d timestamptz);
    SELECT sweeper.register('light', deadline => 'd', start => 'paused')");
$primary->backup('copy');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'copy', has_streaming => 1);
$standby->start;
$primary->wait_for_catchup($standby);
is($standby->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'session_sweeper%'"), 0,
    'a standby has none of our processes');
my ($ret, $out, $err) = $standby->psql('postgres', "CALL sweeper.sweep('fixed')");
like($err, qr/cannot execute sweeper.sweep\(\) on a standby/, 'sweep on a standby');
for my $change ("pause('fixed')", "resume('fixed')", 'pause_all()', 'resume_all()', "unregister('fixed')", "alter_policy('fixed', max_workers => 2)", "retry_row('fixed', '1')", "expire('fixed', '{1}')") {
    ($ret, $out, $err) = $standby->psql('postgres', "\\set VERBOSITY verbose\nSELECT sweeper.$change");
    like($err, qr/25006.*Call it on the primary/s, "$change on a standby");
}

($ret, $out, $err) = $standby->psql('postgres', "\\set VERBOSITY verbose\nSELECT sweeper.preview('light')");
like($err, qr/0A000: cannot access unlogged table "light" on a standby/, 'an unlogged table has no rows there');
is($standby->safe_psql('postgres', "SELECT rows_estimate FROM sweeper.preview('active')"), 10, 'others can be looked at');

# the primary is gone for longer than the ttl: nobody could write
$primary->safe_psql('postgres', "UPDATE active SET seen = now() - interval '19 s'; SELECT sweeper.resume('fixed')");
$primary->wait_for_catchup($standby);
$primary->stop('immediate');
$standby->promote;
wait_for($standby, "SELECT NOT EXISTS (SELECT FROM fixed WHERE id <= 100)", 'a fixed deadline has no grace');
is(exactly_once($standby, 'fixed', 100, 100), '0|0|0|0', 'exactly once, over the promotion');
wait_for($standby, "SELECT looks > 3 FROM sweeper.stat_policy WHERE policy = 'active'", 'the activity policy is looked at');
is($standby->safe_psql('postgres', 'SELECT count(*) FROM active WHERE seen < now() - interval \'20 s\' OR seen IS NOT NULL'), 10,
    'no row of an activity policy dies before its application could write');
is($standby->safe_psql('postgres', "SELECT count(*) FROM active"), 10, 'all are there');
wait_for($standby, "SELECT count(*) = 0 FROM active", 'after one ttl from the promotion they are dead');
cmp_ok($standby->safe_psql('postgres', "SELECT min(e.cleaned_at) - c.service_start >= interval '20 s'
    FROM sweeper.cleanup_event AS e, sweeper._cluster() AS c WHERE e.policy = 'active' GROUP BY c.service_start"), 'eq', 't',
    'not a moment earlier');
$standby->stop;
done_testing();
