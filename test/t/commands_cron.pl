# Calendars by the real pg_cron: in its own database, and what to do from another one; never as a superuser.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

needs_pg_cron();
my $node = sweeper_node('main');
sub sql { my ($db, $query) = @_; return $node->safe_psql($db, $query) }
sub fails { my ($db, $query, $like, $what) = @_; my (undef, undef, $err) = $node->psql($db, "\\set VERBOSITY verbose\n$query"); return like($err, $like, $what) }
sql('postgres', 'CREATE DATABASE "app 1"');
for my $db ('app 1', 'postgres') {
    sql($db, q{CREATE EXTENSION session_sweeper;
        CREATE TABLE t (id int PRIMARY KEY, d timestamptz); CREATE INDEX ON t (d);
        INSERT INTO t SELECT i, now() - interval '1 h' FROM generate_series(1, 100) AS i;
        SELECT sweeper.register('t', deadline => 'd', check_every => '0', start => 'now', fuse_fraction => 1)});
}
sql('postgres', q{CREATE ROLE ann LOGIN; CREATE ROLE eve LOGIN; CREATE ROLE adm LOGIN; GRANT CREATE ON SCHEMA public TO ann});
for my $db ('app 1', 'postgres') { sql($db, q{SELECT sweeper.grant_access('ann', 'user'), sweeper.grant_access('eve', 'user'), sweeper.grant_access('adm', 'admin')}) }
my $ask = q{SET ROLE adm; SELECT sweeper.schedule('t', '* * * * *')};
fails('postgres', $ask, qr/55000: pg_cron is not loaded.*HINT: .*shared_preload_libraries/s, 'not loaded');
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_cron, session_sweeper'\ncron.database_name = 'postgres'\ncron.use_background_workers = on\nlog_min_messages = info\n");
$node->restart;
fails('postgres', $ask, qr/55000: extension "pg_cron" is not installed/, 'not installed');
sql('postgres', 'CREATE EXTENSION pg_cron');

# a job of a superuser would run the code of whoever owns a database of that name by then
fails('postgres', q{SELECT sweeper.schedule('t', '* * * * *')}, qr/42501: a job must not belong to a superuser.*HINT: .*level "admin"/s, 'not as a superuser');
is(sql('postgres', 'SELECT count(*) FROM cron.job'), 0, 'there is none');
fails('postgres', $ask, qr/42501: permission denied for schema cron/, 'who may not use pg_cron');
sql('postgres', 'GRANT USAGE ON SCHEMA cron TO adm, ann, eve; GRANT EXECUTE ON FUNCTION cron.schedule_in_database TO adm');
my $job = sql('postgres', q{SET ROLE adm; SELECT sweeper.schedule('t', '0 0 1 1 *')});
is(sql('postgres', $ask), $job, 'changed, not doubled');

# from another database: the statement to run there
fails('app 1', q{SELECT sweeper.unschedule('t')}, qr/0A000: pg_cron is in database "postgres".*HINT: .*SELECT cron\.unschedule\('session_sweeper\."app 1"\.t'\);/s, 'remove it there');
my (undef, undef, $err) = $node->psql('app 1', $ask);
my ($there) = $err =~ /HINT:.*?(SELECT cron\.schedule_in_database.*;)/;
sql('postgres', "SET ROLE adm; $there");
is(sql('postgres', q{SELECT string_agg(concat_ws('/', jobname, database, username, command), ' ' ORDER BY database) FROM cron.job}),
    "session_sweeper.\"app 1\".t/app 1/adm/CALL sweeper.sweep('t', wait => false) session_sweeper.postgres.t/postgres/adm/CALL sweeper.sweep('t', wait => false)", 'two jobs');
sql('postgres', q{BEGIN; SET ROLE adm; SELECT sweeper.unschedule('t'); ROLLBACK});
is(sql('postgres', 'SELECT count(*) FROM cron.job'), 2, 'part of the transaction');

# errors change nothing
fails('postgres', q{SET ROLE adm; SELECT sweeper.schedule('t', 'at noon')}, qr/invalid schedule: at noon/, 'no schedule');
fails('postgres', q{SELECT sweeper.schedule('none', '* * * * *')}, qr/42704/, 'no policy');
fails('postgres', q{SELECT sweeper.schedule(NULL, '* * * * *')}, qr/22004/, 'null policy');
fails('postgres', q{SELECT sweeper.schedule('t', NULL)}, qr/22004/, 'null schedule');
fails('postgres', qq{BEGIN READ ONLY; SELECT sweeper.$_}, qr/25006/, "$_: read-only") for q{schedule('t', '* * * * *')}, q{unschedule('t')};
fails('postgres', q{SET ROLE eve; SELECT sweeper.schedule('t', '* * * * *')}, qr/42501: permission denied for policy "t"/, 'not eve\'s');
sql('postgres', q{SET ROLE ann; CREATE TABLE hers (id int PRIMARY KEY, d timestamptz); CREATE INDEX ON hers (d);
    SELECT sweeper.register('hers', deadline => 'd', check_every => '0', start => 'now'); SELECT sweeper.schedule('hers', '* * * * *');
    INSERT INTO hers SELECT i, now() - interval '1 h' FROM generate_series(1, 10) AS i});
is(sql('postgres', q{SET ROLE eve; SELECT sweeper.unschedule('hers')}), 'f', 'not another\'s, who made none');

# names as long as they may be, of which pg_cron keeps 63 bytes: not one job for two
my @long = map { "a policy with a name that goes on and on, 'äöü' and " . ('x' x 8) . $_ } 1, 2;
sql('postgres', "SET ROLE ann; SELECT sweeper.register('hers', \$x\$$_\$x\$, deadline => 'd', check_every => '0')") for @long;
isnt(sql('postgres', "SET ROLE ann; SELECT sweeper.schedule(\$x\$$long[0]\$x\$, '0 0 1 1 *')"), sql('postgres', "SET ROLE ann; SELECT sweeper.schedule(\$x\$$long[1]\$x\$, '0 0 1 1 *')"), 'two jobs');
is(sql('postgres', "SET ROLE ann; SELECT sweeper.unschedule(\$x\$$_\$x\$)"), 't', 'found by its name') for @long;

# pg_cron starts them at the next minute
wait_for($node, 'SELECT count(*) = 0 FROM t', 'swept', 'app 1');
wait_for($node, 'SELECT count(*) = 0 FROM t', 'swept', 'postgres');
wait_for($node, 'SELECT count(*) = 0 FROM hers', 'swept', 'postgres');
wait_for($node, q{SELECT count(*) FILTER (WHERE status = 'succeeded') >= 3 AND count(*) FILTER (WHERE status = 'failed') = 0 FROM cron.job_run_details}, 'three jobs went well');
is(sql('postgres', q{SET ROLE adm; SELECT sweeper.unschedule('t')}) . sql('postgres', q{SET ROLE adm; SELECT sweeper.unschedule('t')}), 'tf', 'removed, once');
is(sql('postgres', q{SET ROLE ann; SELECT sweeper.unschedule('hers')}), 't', 'hers, too');
is(sql('postgres', 'SELECT count(*) FROM cron.job'), 1, 'one is left');
done_testing();
