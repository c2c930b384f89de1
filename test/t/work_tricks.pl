# What somebody might try with commands and appended rows, and what must not go wrong.
use strict;
use warnings;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Sweeper;

my $node = sweeper_node('main', 'session_sweeper.max_workers = 2');
$node->safe_psql('postgres', q{
    CREATE EXTENSION session_sweeper;
    CREATE ROLE app LOGIN;
    CREATE ROLE dba SUPERUSER LOGIN;
    CREATE ROLE mallory LOGIN;
    SELECT sweeper.grant_access(r, 'user') FROM unnest('{app,dba,mallory}'::regrole[]) AS r;
    CREATE TABLE proof (who name, session name);
    CREATE ROLE host; ALTER TABLE proof OWNER TO host;
    GRANT SELECT, INSERT ON proof TO PUBLIC;
    GRANT CREATE ON SCHEMA public TO mallory;
    ALTER ROLE dba SET role = 'app'});

# A role whose sessions act as another by ALTER ROLE: neither runs the other's commands.
for my $i (1 .. 5) {
    $node->safe_psql('postgres', q{SELECT sweeper.submit_sql('DO $$ BEGIN EXECUTE ''SET ROLE NONE''; INSERT INTO proof VALUES (current_user, session_user); PERFORM pg_sleep(0.05); END $$')},
        connstr => $node->connstr('postgres') . ' user=app');
    $node->safe_psql('postgres', q{SET ROLE NONE; SELECT sweeper.submit_sql('INSERT INTO proof VALUES (current_user, session_user)')},
        connstr => $node->connstr('postgres') . ' user=dba');
}
ok(wait_for($node, "SELECT count(*) = 10 AND bool_and(finished_at IS NOT NULL) FROM sweeper.task_info"), 'all commands end');
is($node->safe_psql('postgres', 'SELECT who, session, count(*) FROM proof GROUP BY 1, 2 ORDER BY 1'), "app|app|5\ndba|dba|5", 'each as who submitted it');

# A role that is dropped and made anew is another: it runs nothing of the first.
$node->safe_psql('postgres', q{ALTER SYSTEM SET session_sweeper.max_task_workers = 0; SELECT pg_reload_conf()});
$node->safe_psql('postgres', q{SELECT sweeper.append('proof', '{"who": "first"}'); SELECT sweeper.alter_append('proof', flush_every => '1 h');
    CREATE ROLE joe LOGIN; SELECT sweeper.grant_access('joe', 'user')});
$node->safe_psql('postgres', q{SELECT sweeper.submit_sql('INSERT INTO proof VALUES (''old joe'')'), sweeper.append('proof', '{"who": "old joe"}')},
    connstr => $node->connstr('postgres') . ' user=joe');
$node->safe_psql('postgres', q{SELECT sweeper.revoke_access('joe'); DROP ROLE joe; CREATE ROLE joe SUPERUSER LOGIN;
    ALTER SYSTEM RESET session_sweeper.max_task_workers; SELECT pg_reload_conf(); SELECT sweeper.submit_sql('SELECT 1'), sweeper.append('proof', '{"who": "wakes"}'); SELECT sweeper.alter_append('proof', flush_every => '1 s')});
ok(wait_for($node, "SELECT bool_and(finished_at IS NOT NULL) FROM sweeper.task_info"), 'nothing waits');
is($node->safe_psql('postgres', "SELECT status, error FROM sweeper.task_info WHERE owner = 'joe'"), q{dropped|no process could connect as role "joe"; the server's log says why}, 'the namesake runs nothing');
ok(wait_for($node, q{SELECT count(*) = 1 FROM sweeper.append_failed_row WHERE error = 'role "joe" no longer exists'}), 'and writes nothing');
is($node->safe_psql('postgres', "SELECT count(*) FROM proof WHERE who = 'old joe'"), '0', 'of the other');

# What a cheap function is shown of views is what the reader may see.
my ($ret, $out, $err) = $node->psql('postgres', q{
    CREATE FUNCTION leak(text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS $$ BEGIN RAISE NOTICE 'leak %', $1; RETURN true; END $$;
    SELECT count(*) FROM sweeper.append_failed_row WHERE leak(row_data::text);
    SELECT count(*) FROM sweeper.append_status WHERE leak(relation)}, connstr => $node->connstr('postgres') . ' user=mallory');
unlike($err, qr/leak /, 'others\' rows are not shown on the way');
$node->safe_psql('postgres', q{SELECT sweeper.create_pool('safe'); SELECT session IS NOT NULL FROM sweeper.acquire('safe', 'hidden')});
($ret, $out, $err) = $node->psql('postgres', q{
    SELECT sweeper.register_provider(sweeper.register_worker('shown'), 'r', 'c', 'n');
    CREATE FUNCTION leak(text, bigint) RETURNS boolean LANGUAGE plpgsql STRICT COST 0.0000001 AS $$ BEGIN RAISE NOTICE 'leak % %', $1, $2; RETURN true; END $$;
    SET enable_nestloop = off;
    SELECT count(*) FROM sweeper.provider_status WHERE leak(worker_name, worker_id)}, connstr => $node->connstr('postgres') . ' user=mallory');
like($err, qr/leak shown/, 'a view shows what its readers may see');
unlike($err, qr/leak hidden/, 'and no session of another pool');

# A stream that was made by a transaction that was rolled back is made anew.
$node->safe_psql('postgres', q{
    CREATE TABLE log (n int);
    BEGIN; SELECT sweeper.append('log', '{"n": 1}'), sweeper.append('log', '{"n": 2}'); ROLLBACK;
    SELECT sweeper.append('log', '{"n": 3}')});
$node->safe_psql('postgres', q{CALL sweeper.flush('log')});
is($node->safe_psql('postgres', 'SELECT string_agg(n::text, \',\') FROM log'), '3', 'what was accepted afterwards is written');

# Somebody who holds his own table, or his own task, holds up nobody else.
my $holder = $node->background_psql('postgres', extra_params => [ '-U', 'mallory' ]);
$holder->query_safe(q{CREATE TABLE mine (n int); SELECT sweeper.append('mine', '{"n": 1}')});
$holder->query_safe(q{BEGIN; LOCK TABLE mine});
$node->safe_psql('postgres', q{SELECT sweeper.submit_sql('INSERT INTO proof VALUES (''not held up'')')}, connstr => $node->connstr('postgres') . ' user=app');
ok(wait_for($node, "SELECT count(*) = 1 FROM proof WHERE who = 'not held up'"), 'by a lock on a table');
$holder->query_safe('COMMIT');
$holder->query_safe(q{SELECT sweeper.submit_sql('SELECT 1/0', max_retries => 20, summary => 'again')});
ok(wait_for($node, "SELECT status = 'allocated' FROM sweeper.task_info WHERE summary = 'again'"), 'a command waits to be tried again');
$holder->query_safe(q{BEGIN; SELECT sweeper.cancel_task(task) FROM sweeper.list_tasks() WHERE summary = 'again'});
my $pid = $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'session_sweeper coordinator'");
$node->safe_psql('postgres', q{SELECT pg_sleep(2.5); SELECT sweeper.submit_sql('INSERT INTO proof VALUES (''nor by a task'')')}, connstr => $node->connstr('postgres') . ' user=app');
ok(wait_for($node, "SELECT count(*) = 1 FROM proof WHERE who = 'nor by a task'"), 'nor by a task');
is($node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'session_sweeper coordinator'"), $pid, 'the coordinator goes on');
$holder->query_safe('COMMIT');
$holder->quit;

# A command that will not be interrupted ends with its process.
my $deaf = q{DO $$ BEGIN LOOP BEGIN PERFORM pg_sleep(60); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END $$};
my $t = $node->safe_psql('postgres', "SELECT sweeper.submit_sql(\$x\$$deaf\$x\$, timeout => '300 ms')");
ok(wait_for($node, "SELECT status = 'failed' FROM sweeper.task_info WHERE task = '$t'"), 'when its time is over');
$node->safe_psql('postgres', 'ALTER SYSTEM SET session_sweeper.cancel_grace = 100; SELECT pg_reload_conf()');
$t = $node->safe_psql('postgres', "SELECT sweeper.submit_sql(\$x\$$deaf\$x\$)");
ok(wait_for($node, "SELECT status = 'running' FROM sweeper.task_info WHERE task = '$t'"), 'another runs');
$node->safe_psql('postgres', "SELECT sweeper.cancel_task('$t')");
ok(wait_for($node, "SELECT status = 'cancelled' FROM sweeper.task_info WHERE task = '$t'"), 'and when it was cancelled');

# A row that fails with what may pass by itself holds up no other.
$node->safe_psql('postgres', q{
    CREATE FUNCTION again() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.n = 55 THEN RAISE SQLSTATE '40001'; END IF; RETURN NEW; END $$;
    CREATE TRIGGER again BEFORE INSERT ON log FOR EACH ROW EXECUTE FUNCTION again();
    SELECT count(sweeper.append('log', jsonb_build_object('n', i))) FROM generate_series(51, 60) AS i});
ok(wait_for($node, 'SELECT count(*) = 9 FROM log WHERE n > 50'), 'nine of ten are written');
ok(wait_for($node, q{SELECT count(*) = 1 FROM sweeper.append_failed_row WHERE sqlstate = '40001'}), 'and the other is set aside');

# Who waits for a task lives.
is($node->safe_psql('postgres', q{
    SELECT sweeper.register_worker('waits', ttl => '2 s') AS w \gset
    SELECT FROM sweeper.register_job(:'w', 'r', 'c', 'n');
    CALL sweeper.claim_wait(:'w', '6 s')}) =~ /does not exist/ ? 'gone' : 'lives', 'lives', 'who waits for a task lives');

# A copy of the database runs no commands of the original's.
$node->safe_psql('postgres', q{ALTER SYSTEM SET session_sweeper.max_task_workers = 0; SELECT pg_reload_conf()});
my $waits = $node->safe_psql('postgres', q{SELECT sweeper.submit_sql('SELECT 1')});
wait_for($node, q{SELECT count(*) = 0 FROM pg_stat_activity WHERE datname = 'postgres' AND backend_type = 'client backend' AND pid <> pg_backend_pid()}, 'nobody is connected');
$node->safe_psql('template1', 'CREATE DATABASE copy TEMPLATE postgres');
$node->safe_psql('postgres', q{ALTER SYSTEM RESET session_sweeper.max_task_workers; SELECT pg_reload_conf()});
ok(wait_for($node, "SELECT status = 'completed' FROM sweeper.task WHERE task = '$waits'"), 'it runs');
ok(wait_for($node, "SELECT status = 'dropped' AND error ~ 'copy' FROM sweeper.task WHERE task = '$waits'", 'dropped', 'copy'), 'and not again');

# The extension goes while a session remembers its streams.
my $s = $node->background_psql('postgres');
$s->query_safe(q{SELECT sweeper.append('log', '{"n": 4}')});
$node->safe_psql('postgres', 'SET client_min_messages = warning; DROP EXTENSION session_sweeper CASCADE');
is($s->query_safe('SELECT count(*) > 0 FROM pg_class'), 't', 'it goes on without');
$s->quit;
$node->stop;
done_testing();
