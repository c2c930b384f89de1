# Commands and appended rows of one role, and what they do to others.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main', 'session_sweeper.max_workers = 2');
sub sql { return $node->safe_psql('postgres', @_) }
sub as { my ($role, $sql) = @_; return sql($sql, connstr => $node->connstr('postgres') . " user=$role") }
sql(q{CREATE EXTENSION session_sweeper; CREATE ROLE ann LOGIN; CREATE ROLE bob LOGIN; CREATE ROLE cut LOGIN;
    SELECT sweeper.grant_access(r, 'user') FROM unnest('{ann,bob,cut}'::regrole[]) AS r;
    REVOKE CONNECT ON DATABASE postgres FROM PUBLIC; GRANT CONNECT ON DATABASE postgres TO ann, bob;
    CREATE TABLE slow (n int); CREATE TABLE quick (n int); GRANT INSERT, SELECT ON slow, quick TO ann, bob, cut;
    CREATE ROLE host; ALTER TABLE slow OWNER TO host; ALTER TABLE quick OWNER TO host});

# A role that no process can connect as: what is its, is told; others go on, and so do its rows.
sql(q{SET ROLE cut; SELECT sweeper.append('quick', '{"n": -1}')});
ok(wait_for($node, 'SELECT count(*) = 1 FROM quick WHERE n = -1'), 'its row is written');
my $t = sql(q{SET ROLE cut; SELECT sweeper.submit_sql('SELECT 1')});
ok($node->wait_for_log(qr/FATAL:  permission denied for database "postgres"/), 'a role cannot connect');
for my $i (1 .. 5) {
    my $b = as('bob', q{SELECT sweeper.submit_sql('SELECT 1')});
    wait_for($node, "SELECT finished_at IS NOT NULL FROM sweeper.task_info WHERE task = '$b'");
    is(sql("SELECT status, error FROM sweeper.task_info WHERE task = '$b'"), 'completed|', 'another\'s command runs');
}
wait_for($node, "SELECT finished_at IS NOT NULL FROM sweeper.task_info WHERE task = '$t'");
like(sql("SELECT status, error FROM sweeper.task_info WHERE task = '$t'"), qr/dropped\|no process could connect as role "cut"/, 'its command dropped');

# Rows that take long do not keep those of others waiting for long, nor are they put off for ever.
sql(q{CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.025); RETURN NEW; END $$;
    CREATE TRIGGER slow BEFORE INSERT ON slow FOR EACH ROW EXECUTE FUNCTION slow()});
as('ann', q{SELECT count(sweeper.append('slow', jsonb_build_object('n', i))) FROM generate_series(1, 600) AS i});
my $n = 0;
while (sql('SELECT count(*) < 600 FROM slow') eq 't' && $n < 1000) {
    $n++;
    as('bob', qq{SELECT sweeper.append('quick', '{"n": $n}')});
    wait_for($node, "SELECT count(*) = 1 FROM quick WHERE n = $n") or last;
}
is(sql('SELECT count(*), count(DISTINCT n) FROM slow'), '600|600', 'slow rows are written beside the rows of another');

# A role that may no longer log in, while its rows are just being written: sweeps go on.
load_table($node, 'login', 5, 5);
sql(q{SELECT sweeper.register('login', deadline => 'd', start => 'now', check_every => '100 ms', fuse_fraction => 1)});
wait_for($node, 'SELECT count(*) = 5 FROM login', 'swept');
sql(q{CREATE OR REPLACE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(4); RETURN NEW; END $$});
my $coordinator = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'session_sweeper coordinator'};
my $pid = sql($coordinator);
as('ann', q{SELECT count(sweeper.append('slow', jsonb_build_object('n', i))) FROM generate_series(1001, 1003) AS i});
ok(wait_for($node, q{SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'session_sweeper worker' AND wait_event = 'PgSleep')}), 'a row is being written');
sql('ALTER ROLE ann NOLOGIN');
for my $i (1 .. 5) {
    sql("INSERT INTO login VALUES (100 + $i, now())");
    wait_for($node, 'SELECT count(*) = 5 FROM login', 'swept meanwhile');
}
is(sql($coordinator), $pid, 'the coordinator goes on');
ok(wait_for($node, 'SELECT count(*) = 3 FROM slow WHERE n > 1000'), 'all is written');

# More tasks than memory keeps the progress of: commands are seen and cancelled all the same.
as('bob', q{SELECT sweeper.register_worker('w', ttl => '10 min') AS w \gset
    SELECT FROM sweeper.register_job(:'w', 'r', 'c', 'n');
    SELECT count(sweeper.submit('r', 'c', 'n')) FROM generate_series(1, 1100);
    SELECT count(*) FROM (SELECT sweeper.task_progress(c.task, done => 1) FROM sweeper.claim(:'w', 1000, true) AS c) AS p;
    SELECT count(*) FROM (SELECT sweeper.task_progress(c.task, done => 1) FROM sweeper.claim(:'w', 1000, true) AS c) AS p});
$t = as('bob', q{SELECT sweeper.submit_sql('DO $$ BEGIN FOR i IN 1 .. 6000 LOOP PERFORM sweeper.task_progress(done => i); PERFORM pg_sleep(0.1); END LOOP; END $$')});
ok(wait_for($node, "SELECT done > 1 FROM sweeper.get_task('$t')"), 'its progress is seen');
is(as('bob', "SELECT sweeper.cancel_task('$t')"), 't', 'it can be cancelled');
sql('ALTER SYSTEM SET session_sweeper.cancel_grace = 100; SELECT pg_reload_conf()');
wait_for($node, "SELECT finished_at IS NOT NULL FROM sweeper.task_info WHERE task = '$t'");
is(sql("SELECT status FROM sweeper.task_info WHERE task = '$t'"), 'cancelled', 'and is');

# Starts that fail now and then, with good ones between, do not add up.
sql(q{ALTER SYSTEM SET session_sweeper.worker_idle_timeout = '1 s'; SELECT pg_reload_conf(); ALTER ROLE ann LOGIN; CREATE DATABASE sparse});
$node->safe_psql('sparse', q{CREATE EXTENSION session_sweeper; SELECT sweeper.grant_access('ann', 'user')});
for my $round (1 .. 6) {
    sql('REVOKE CONNECT ON DATABASE sparse FROM public');
    my $from = -s $node->logfile;
    my $task = $node->safe_psql('sparse', q{SET SESSION AUTHORIZATION ann; SELECT sweeper.submit_sql('SELECT 1')});
    $node->wait_for_log(qr/permission denied for database "sparse"/, $from);
    sql('GRANT CONNECT ON DATABASE sparse TO public');
    wait_for($node, "SELECT finished_at IS NOT NULL FROM sweeper.task WHERE task = '$task'", "round $round has ended", 'sparse');
    is($node->safe_psql('sparse', "SELECT status FROM sweeper.task WHERE task = '$task'"), 'completed', "round $round");
    wait_for($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type = 'session_sweeper worker' AND usename = 'ann'}, 'its runner has left');
}

# Who wants to copy the database, and cannot, costs a command one try, not its life.
my $open = $node->background_psql('sparse');
$t = $node->safe_psql('sparse', q{SET SESSION AUTHORIZATION ann; SELECT sweeper.submit_sql('SELECT pg_sleep(600)', max_retries => 3)});
wait_for($node, "SELECT status = 'running' FROM sweeper.task WHERE task = '$t'", 'a command runs', 'sparse');
my ($ret, $out, $err) = $node->psql('postgres', 'CREATE DATABASE copy TEMPLATE sparse');
like($err, qr/is being accessed by other users/, 'refused');
ok(wait_for($node, "SELECT status = 'running' AND attempt = 2 FROM sweeper.task WHERE task = '$t'", 'it is tried again', 'sparse'), 'it runs again');
$open->quit;
$node->safe_psql('sparse', "SET client_min_messages = warning; DROP EXTENSION session_sweeper CASCADE");
sql(q{ALTER SYSTEM RESET session_sweeper.worker_idle_timeout; SELECT pg_reload_conf()});

# A command does not outlive the extension, also if another takes its place in the same transaction.
as('bob', q{SELECT sweeper.submit_sql('SELECT pg_sleep(601)')});
my $first = q{SELECT EXISTS (SELECT FROM pg_stat_activity WHERE query LIKE '%601%' AND backend_type = 'session_sweeper worker' AND wait_event = 'PgSleep')};
wait_for($node, $first, 'a command runs');
sql(q{SET client_min_messages = warning; BEGIN; DROP EXTENSION session_sweeper CASCADE; CREATE EXTENSION session_sweeper; COMMIT;
    SELECT sweeper.grant_access('bob', 'user'); SELECT sweeper.register('login', deadline => 'd', start => 'now', check_every => '100 ms', fuse_fraction => 1)});
ok(wait_for($node, "SELECT NOT ($first)"), 'it ends with its extension');
as('bob', q{SELECT sweeper.submit_sql('SELECT pg_sleep(600)')});
my $runs = q{SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'session_sweeper worker' AND wait_event = 'PgSleep')};
ok(wait_for($node, $runs), 'a command runs');
# Nor one whose process was to leave after it.
sql('ALTER SYSTEM SET default_transaction_read_only = on');
sql('SELECT pg_reload_conf()');
wait_for($node, q{SELECT state = 'read-only' FROM sweeper.policy_status WHERE policy = 'login'});
sql('BEGIN READ WRITE; SET client_min_messages = warning; DROP EXTENSION session_sweeper CASCADE; COMMIT');
ok(wait_for($node, "SELECT NOT ($runs)"), 'it ends with the extension');
$node->stop;
done_testing();
