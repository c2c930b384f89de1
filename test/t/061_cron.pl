# Calendars by the real pg_cron, from its own database and from another one; maintenance, and what outlives the events.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

needs_pg_cron();
my $node = sweeper_node('main');
my ($ret, $out, $err);
$node->safe_psql('postgres', 'CREATE DATABASE app');
sub sql { my ($db, $query) = @_; return $node->safe_psql($db, $query) }
sub fails { my ($db, $query, $like, $what) = @_; ($ret, $out, $err) = $node->psql($db, "\\set VERBOSITY verbose\n$query"); return like($err, $like, $what) }
for my $db ('app', 'postgres') {
    sql($db, q{CREATE EXTENSION session_sweeper;
        CREATE TABLE t (id int PRIMARY KEY, d timestamptz); CREATE INDEX ON t (d);
        INSERT INTO t SELECT i, now() - interval '1 h' FROM generate_series(1, 100) AS i;
        SELECT sweeper.register('t', deadline => 'd', check_every => '0', start => 'now', fuse_fraction => 1)});
}
fails('app', q{SELECT sweeper.schedule('t', '* * * * *')}, qr/55000: pg_cron is not loaded.*HINT: .*shared_preload_libraries/s, 'not loaded');
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_cron, session_sweeper'\ncron.database_name = 'postgres'\ncron.use_background_workers = on\nlog_min_messages = info\n");
$node->restart;
fails('app', q{SELECT sweeper.schedule('t', '* * * * *')}, qr/55000: extension "pg_cron" is not installed in database "postgres".*HINT: .*CREATE EXTENSION pg_cron/s, 'not installed');
fails('postgres', q{SELECT sweeper.schedule('t', '* * * * *')}, qr/55000: extension "pg_cron" is not installed in database "postgres"/, 'not installed here');
sql('postgres', 'CREATE EXTENSION pg_cron');
# when others have all processes, it says so
$node->append_conf('postgresql.conf', "max_worker_processes = 8\nmax_parallel_workers = 8\nsession_sweeper.enabled = off\n");
$node->restart;
my @parallel = map { $node->background_psql('postgres') } 1 .. 8;
for my $session (@parallel) {
    $session->query_safe(q{SELECT set_config(name, 'on', false) FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')});
    $session->query_until(qr/started/, "\\echo started\nSELECT pg_sleep(3600);\n");
}
wait_for($node, q{SELECT count(*) = 8 FROM pg_stat_activity WHERE backend_type IN ('parallel worker', 'logical replication launcher', 'pg_cron launcher', 'session_sweeper launcher')}, 'none is left');
fails('app', q{SELECT sweeper.schedule('t', '* * * * *')}, qr/53000: could not start a background process for database "postgres".*HINT: .*"max_worker_processes" \(now 8\)/s, 'no process');
sql('postgres', q{SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(3600)%'});
eval { $_->quit } for @parallel;
$node->append_conf('postgresql.conf', "max_worker_processes = 32\nsession_sweeper.enabled = on\n");
$node->restart;

# one process at a time goes there, and not for long
my $holder = $node->background_psql('postgres');
$holder->query_safe('BEGIN; LOCK TABLE cron.job');
fails('app', q{SELECT sweeper.schedule('t', '* * * * *')}, qr/55P03.*CONTEXT: .*in database "postgres"/s, 'somebody holds its table');
my @callers = map { $node->background_psql('app') } 1 .. 3;
$_->query_until(qr/started/, "\\echo started\nSELECT sweeper.schedule('t', '0 0 1 1 *');\n") for @callers;
wait_for($node, q{SELECT count(*) FILTER (WHERE backend_type = 'session_sweeper errand') = 1 AND count(*) FILTER (WHERE query LIKE '%schedule(%' AND wait_event_type = 'Lock' AND backend_type = 'client backend') = 2
    FROM pg_stat_activity}, 'two wait for the first');
# nor does it outlive its caller
sql('postgres', q{SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = 'app' AND query LIKE '%schedule(%' AND wait_event_type <> 'Lock' AND backend_type = 'client backend'});
sql('postgres', q{SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = 'app' AND query LIKE '%schedule(%' AND backend_type = 'client backend'});
wait_for($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'session_sweeper errand'}, 'it leaves');
$holder->query_safe('COMMIT');
is(sql('postgres', 'SELECT count(*) FROM cron.job'), 0, 'nothing was done');
eval { $_->quit } for $holder, @callers;

# both: jobs that pg_cron runs
my $job = sql('app', q{SELECT sweeper.schedule('t', '0 0 1 1 *')});
is(sql('app', q{SELECT sweeper.schedule('t', '* * * * *')}), $job, 'changed, not doubled');
sql('postgres', q{SELECT sweeper.schedule('t', '* * * * *')});
is(sql('postgres', q{SELECT string_agg(concat_ws('/', jobname, database, schedule, command), ' ' ORDER BY jobname) FROM cron.job}),
    "session_sweeper.app.t/app/* * * * */CALL sweeper.sweep('t', wait => false) session_sweeper.postgres.t/postgres/* * * * */CALL sweeper.sweep('t', wait => false)", 'two jobs');
# of its own database's it is part of the transaction
sql('postgres', q{BEGIN; SELECT sweeper.unschedule('t'); ROLLBACK});
is(sql('postgres', 'SELECT count(*) FROM cron.job'), 2, 'still two');

# errors change nothing
fails('app', q{SELECT sweeper.schedule('t', 'at noon')}, qr/invalid schedule: at noon.*CONTEXT: .*in database "postgres"/s, 'no schedule');
fails('app', q{SELECT sweeper.schedule('none', '* * * * *')}, qr/42704/, 'no policy');
fails('app', q{SELECT sweeper.schedule(NULL, '* * * * *')}, qr/22004/, 'null policy');
fails('app', q{SELECT sweeper.schedule('t', NULL)}, qr/22004/, 'null schedule');
fails('app', qq{BEGIN READ ONLY; SELECT sweeper.$_}, qr/25006/, "$_: read-only") for q{schedule('t', '* * * * *')}, q{unschedule('t')}, 'schedule_maintenance()', 'unschedule_maintenance()';
sql('app', q{CREATE ROLE ann LOGIN; CREATE ROLE eve LOGIN; SELECT sweeper.grant_access('ann', 'user'), sweeper.grant_access('eve', 'user');
    GRANT CREATE ON SCHEMA public TO ann});
fails('app', q{SET ROLE eve; SELECT sweeper.schedule('t', '* * * * *')}, qr/42501: permission denied for policy "t"/, 'not his');
fails('app', q{SET ROLE eve; SELECT sweeper.schedule_maintenance()}, qr/42501/, 'no admin');
fails('app', q{SET ROLE eve; SELECT sweeper.maintain()}, qr/42501/, 'nor by hand');
sql('app', q{SET ROLE ann; CREATE TABLE hers (id int PRIMARY KEY, d timestamptz); CREATE INDEX ON hers (d);
    SELECT sweeper.register('hers', deadline => 'd', check_every => '0', start => 'now')});
fails('app', q{SET ROLE ann; SELECT sweeper.schedule('hers', '* * * * *')}, qr/42501: permission denied for schema cron.*HINT: .*grant role "ann" the use of extension "pg_cron".*CONTEXT: .*in database "postgres"/s, 'she has no right to pg_cron');
sql('postgres', q{GRANT USAGE ON SCHEMA cron TO ann; GRANT EXECUTE ON FUNCTION cron.schedule_in_database TO ann; REVOKE CONNECT ON DATABASE postgres FROM PUBLIC});
fails('app', q{SET ROLE ann; SELECT sweeper.schedule('hers', '* * * * *')}, qr/08006: could not connect to database "postgres" as role "ann".*HINT: /s, 'may not connect there');
sql('postgres', 'GRANT CONNECT ON DATABASE postgres TO PUBLIC');
sql('app', q{SET ROLE ann; SELECT sweeper.schedule('hers', q) FROM (VALUES ('* * * * *')) AS v (q)});
is(sql('postgres', q{SELECT username FROM cron.job WHERE jobname = 'session_sweeper.app.hers'}), 'ann', 'her job');
is(sql('app', q{SELECT sweeper.unschedule('hers')}), 'f', 'not another\'s, who made none');
sql('app', q{SET ROLE ann; INSERT INTO hers SELECT i, now() - interval '1 h' FROM generate_series(1, 10) AS i});

# names as long as they may be, of which pg_cron keeps 63 bytes: not one job for two
my @long = map { 'a policy with a name that goes on and on, \'äöü\' and "' . ('x' x 20) . $_ } 1, 2;
sql('app', "SELECT sweeper.alter_policy('t', new_name => \$x\$$long[0]\$x\$); CREATE TABLE u (LIKE t INCLUDING ALL);
    SELECT sweeper.register('u', \$x\$$long[1]\$x\$, deadline => 'd', check_every => '0')");
isnt(sql('app', "SELECT sweeper.schedule(\$x\$$long[0]\$x\$, '0 0 1 1 *')"), sql('app', "SELECT sweeper.schedule(\$x\$$long[1]\$x\$, '0 0 1 1 *')"), 'two jobs');
is(sql('app', "SELECT sweeper.unschedule(\$x\$$_\$x\$)"), 't', 'found by its name') for @long;
sql('app', "SELECT sweeper.alter_policy(\$x\$$long[0]\$x\$, new_name => 't'), sweeper.unregister(\$x\$$long[1]\$x\$)");

# a point in the name of a database
sql('postgres', 'CREATE DATABASE "app.t"');
sql('app.t', q{CREATE EXTENSION session_sweeper; CREATE TABLE u (id int PRIMARY KEY, d timestamptz); SELECT sweeper.register('u', deadline => 'd')});
sql('app', q{CREATE TABLE dotted (LIKE t INCLUDING ALL); SELECT sweeper.register('dotted', 't.u', deadline => 'd')});
isnt(sql('app.t', q{SELECT sweeper.schedule('u', '0 0 1 1 *')}), sql('app', q{SELECT sweeper.schedule('t.u', '0 0 1 1 *')}), 'not that of another');
is(sql('app', q{SELECT sweeper.unschedule('t.u')}) . sql('app.t', q{SELECT sweeper.unschedule('u')}), 'tt', 'each has its own');
sql('postgres', 'DROP DATABASE "app.t"');

# a database of another encoding than pg_cron's
sql('postgres', q{CREATE DATABASE latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0});
sql('postgres', qq{CREATE DATABASE "latin \xc3\xa9" TEMPLATE latin});
my $latin = q{SET client_encoding = 'UTF8'; };
for my $db ('latin', "latin \xc3\xa9") {
    sql($db, $latin . qq{CREATE EXTENSION session_sweeper; CREATE TABLE t (id int PRIMARY KEY, d timestamptz); INSERT INTO t VALUES (1, now() - interval '1 h');
        SELECT sweeper.register('t', E'\xc3\xa9t\xc3\xa9 ''\\\\', deadline => 'd', check_every => '0', start => 'now', fuse_fraction => 1)});
}
fails("latin \xc3\xa9", $latin . qq{SELECT sweeper.schedule(E'\xc3\xa9t\xc3\xa9 ''\\\\', '* * * * *')}, qr/0A000: pg_cron cannot be told the name of database.*HINT: /s, 'a name that cannot be told');
sql('latin', $latin . qq{SELECT sweeper.schedule(E'\xc3\xa9t\xc3\xa9 ''\\\\', '* * * * *')});
is(sql('postgres', q{SELECT jobname || upper(command) FROM cron.job WHERE database = 'latin'}),
    qq{session_sweeper.latin.\xc3\xa9t\xc3\xa9 '\\CALL SWEEPER.SWEEP(E'\\U000000E9T\\U000000E9 ''\\\\', WAIT => FALSE)}, 'in its encoding');

# pg_cron starts them at the next minute
wait_for($node, 'SELECT count(*) = 0 FROM t', 'swept', 'app');
wait_for($node, 'SELECT count(*) = 0 FROM t', 'swept', 'postgres');
wait_for($node, 'SELECT count(*) = 0 FROM hers', 'swept', 'app');
wait_for($node, 'SELECT count(*) = 0 FROM t', 'swept', 'latin');
wait_for($node, q{SELECT count(*) FILTER (WHERE status = 'succeeded') >= 4 AND count(*) FILTER (WHERE status = 'failed') = 0 FROM cron.job_run_details}, 'four jobs went well');
is(sql('app', q{SET ROLE ann; SELECT sweeper.unschedule('hers')}), 't', 'hers is gone');
is(sql('app', q{SELECT sweeper.unschedule('t')}) . sql('app', q{SELECT sweeper.unschedule('t')}) . sql('postgres', q{SELECT sweeper.unschedule('t')}), 'tft', 'all are');
is(sql('latin', $latin . qq{SELECT sweeper.unschedule(E'\xc3\xa9t\xc3\xa9 ''\\\\')}), 't', 'this one, too');
is(sql('postgres', 'SELECT count(*) FROM cron.job'), 0, 'none is left');

# maintenance: history of four days, of which events are kept for three
sql('app', q{SELECT sweeper.create_pool('desk', seats => 9)});
sql('app', q{INSERT INTO sweeper.cleanup_event (id, cleaned_at, deadline, last_seen, policy_id, policy, relation, key, "group", cleanup_type)
    SELECT -i, date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' - d * interval '1 day' + interval '5 h' AS at,
           date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' - d * interval '1 day' + interval '4 h', NULL, v.id, v.policy, v.policy, i::text, v.g, v.type
    FROM generate_series(1, 6) AS i, generate_series(1, 4) AS d, (SELECT policy_id AS id, 't' AS policy, 'g' AS g, 'expired' AS type FROM sweeper.policy WHERE policy = 't'
        UNION ALL VALUES (50, 'sweeper.session', 'desk', 'zombie')) AS v;
    ALTER SYSTEM SET session_sweeper.cleanup_event_retention = '3d'});
# days are in UTC, wherever one looks from
my $daily = q{SET timezone = 'UTC'; SELECT string_agg(concat_ws('/', policy, cleanup_type, cleaned, groups), ' ' ORDER BY policy) FROM sweeper.stat_cleanup_daily WHERE day = date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' - interval '3 days'};
sql('app', q{ALTER DATABASE app SET timezone = 'Asia/Tokyo'});
is(sql('app', $daily), 'sweeper.session/zombie/6/1 t/expired/6/1', 'as events tell');
my $pools = q{SELECT concat_ws('/', pool, ended, zombies) FROM sweeper.stat_pool_cleanup};
my $lag = q{SELECT concat_ws('/', rows >= 24, avg_after_deadline, max_after_deadline) FROM sweeper.stat_cleanup_lag WHERE policy = 'sweeper.session'};
is(sql('app', $pools) . sql('app', $lag), 'desk/24/24t/01:00:00/01:00:00', 'all of them');
sql('app', q{SELECT sweeper.schedule_maintenance('* * * * *')});
is(sql('app', q{SELECT string_agg(DISTINCT check_every::text, ' ') FROM sweeper.policy WHERE policy LIKE 'sweeper.%' AND action = 'delete'}), '00:00:00', 'history waits for it');
$node->reload;
wait_for($node, q{SELECT count(*) = 0 FROM sweeper.cleanup_event WHERE cleaned_at < now() - interval '3 days'}, 'old events are gone', 'app');
is(sql('app', q{SELECT count(*) || '/' || sum(cleaned) FROM sweeper.cleanup_day}), '8/48', 'summed up, before they went');
is(sql('app', $daily), 'sweeper.session/zombie/6/1 t/expired/6/1', 'as before');
is(sql('app', $pools) . sql('app', $lag), 'desk/24/24t/01:00:00/01:00:00', 'the others, too');
sql('app', q{SELECT sweeper.maintain()});
is(sql('app', q{SELECT count(*) || '/' || sum(cleaned) FROM sweeper.cleanup_day}), '8/48', 'once');
# a transaction that was open over midnight
is(sql('app', q{INSERT INTO sweeper.cleanup_event (id, cleaned_at, policy_id, policy, relation, key, cleanup_type)
    SELECT -100, date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC' - interval '1 us', policy_id, 't', 't', 'late', 'expired' FROM sweeper.policy WHERE policy = 't';
    SELECT sweeper.maintain()}), 1, 'one day more');
is(sql('app', q{SELECT count(*) || '/' || sum(cleaned) FROM sweeper.cleanup_day}), '8/49', 'is part of its day');
# who owns a policy sees its days
is(sql('app', q{SET ROLE ann; SELECT count(*) FROM sweeper.cleanup_day}), 0, 'not of others');
is(sql('app', q{SELECT sweeper.unschedule_maintenance()}), 't', 'no longer');
is(sql('app', q{SELECT string_agg(DISTINCT check_every::text, ' ') FROM sweeper.policy WHERE policy LIKE 'sweeper.%' AND action = 'delete'}), '00:01:00', 'a little all the time');
is(sql('postgres', 'SELECT count(*) FROM cron.job'), 0, 'no job is left');

# no coordinator has told yet what is kept for ever
sql('postgres', 'CREATE DATABASE fresh');
kill_process($node, 'launcher', 'STOP');
sql('fresh', 'CREATE EXTENSION session_sweeper');
is(sql('fresh', q{SELECT state FROM sweeper.policy_status WHERE policy = 'sweeper.usage_event'}), 'waiting', 'nobody knows that it is held');
is(sql('fresh', 'SELECT sweeper.maintain()'), 0, 'maintenance goes on without it');
kill_process($node, 'launcher', 'CONT');

# without pg_cron history is not left to grow
sql('app', q{SELECT sweeper.schedule_maintenance()});
$node->append_conf('postgresql.conf', "shared_preload_libraries = 'session_sweeper'\n");
$node->restart;
($ret, $out, $err) = $node->psql('app', 'SELECT sweeper.unschedule_maintenance()');
is("$ret $out", '0 f', 'it is over');
like($err, qr/NOTICE: .*pg_cron is not loaded/, 'and says so');
is(sql('app', q{SELECT string_agg(DISTINCT check_every::text, ' ') FROM sweeper.policy WHERE policy LIKE 'sweeper.%' AND action = 'delete'}), '00:01:00', 'a little all the time');
done_testing();
