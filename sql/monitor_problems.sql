-- Problems of tasks, seats, rights and disks, and the statement of each.
SET client_min_messages = warning;
CREATE TEMP VIEW trouble AS SELECT problem, severity, since < now() AS earlier, detail, next_step FROM sweeper.problem;
-- tasks without a worker: not before a minute has passed
SELECT 'it''s "odd"' AS odd \gset
SELECT sweeper.register_worker('ann') AS worker \gset
SELECT sweeper.register_job(:'worker', 'room', 'image', :'odd', on_worker_loss => 'requeue') IS NOT NULL AS offered;
SELECT count(sweeper.submit('room', 'image', :'odd')) FROM generate_series(1, 13);
SELECT sweeper.release(:'worker');
CREATE PROCEDURE wait_until(query text) LANGUAGE plpgsql AS $$ DECLARE ok boolean := false; BEGIN
    FOR i IN 1 .. 6000 LOOP EXECUTE query INTO ok; EXIT WHEN ok; COMMIT; PERFORM pg_sleep(0.01); END LOOP;
    IF NOT ok THEN RAISE EXCEPTION 'waited in vain until %', query; END IF; END $$;
CALL wait_until('SELECT NOT EXISTS (SELECT FROM sweeper.job_worker)');
SELECT * FROM trouble;
UPDATE sweeper.task SET enqueued_at = now() - interval '2 min' WHERE task = (SELECT min(task::text)::uuid FROM sweeper.task);
SELECT * FROM trouble;
SELECT value FROM sweeper.metrics WHERE family = 'session_sweeper_tasks_without_worker';
-- what it gives to paste
SELECT format('SELECT count(*) FROM (%s) AS s', split_part(next_step, ';', 1)) FROM sweeper.problem \gexec
-- a queue that grows: a worker is there, one task has waited for long, and the others are new
SELECT sweeper.register_worker('bob') AS worker \gset
SELECT sweeper.register_job(:'worker', 'room', 'image', :'odd', on_worker_loss => 'requeue') IS NOT NULL AS offered;
SELECT * FROM trouble;
UPDATE sweeper.task SET enqueued_at = now() - interval '6 min' WHERE task = (SELECT min(task::text)::uuid FROM sweeper.task);
SELECT * FROM trouble;
SELECT format('SELECT name, tasks, jobs FROM (%s) AS s', split_part(next_step, ';', 1)) FROM sweeper.problem \gexec
-- not if as many have been taken meanwhile
UPDATE sweeper.task SET enqueued_at = now() - interval '6 min';
SELECT count(*) FROM sweeper.claim(:'worker', 6, start => true);
SELECT * FROM trouble;
-- tasks that fail again and again
SELECT count(sweeper.finish_task(task, 'failed', error => 'no space for ' || name)) FROM sweeper.list_tasks(statuses => '{running}');
SELECT problem, severity, earlier, detail, next_step FROM trouble;
-- a name does not end the comment of a statement
SELECT count(*) FROM trouble WHERE next_step ~ '-- [^\n]*\n';
SELECT format('SELECT count(*), min(error) FROM (%s) AS s', rtrim(next_step, ';')) FROM sweeper.problem \gexec
SELECT count(*) FROM sweeper.claim(:'worker', 7, start => true);
SELECT count(sweeper.finish_task(task, 'completed')) FROM sweeper.list_tasks(statuses => '{running}');
SELECT * FROM trouble;
-- only level monitor sees jobs of others
UPDATE sweeper.task SET finished_at = finished_at - interval '2 hours' WHERE status = 'completed';
CREATE ROLE regress_problem_user;
CREATE ROLE regress_problem_monitor;
SELECT sweeper.grant_access('regress_problem_user', 'user'), sweeper.grant_access('regress_problem_monitor', 'monitor');
SET ROLE regress_problem_user;
SELECT count(*) FROM sweeper.problem;
SET ROLE regress_problem_monitor;
SELECT count(*) FROM sweeper.problem;
RESET ROLE;
DELETE FROM sweeper.task;
SELECT sweeper.release(:'worker');
-- a pool that is full, and has been for long
SELECT sweeper.create_pool(:'odd', seats => 1);
SELECT session FROM sweeper.acquire(:'odd', 'ann') \gset
SELECT * FROM trouble;
SELECT value FROM sweeper.metrics WHERE family = 'session_sweeper_pools_full';
UPDATE sweeper.session SET acquired_at = now() - interval '20 min' WHERE session = :'session';
SELECT problem, severity, earlier, regexp_replace(detail, 'taken for .*', 'taken for ...') AS detail, next_step FROM trouble;
SELECT format('SELECT owner FROM (%s) AS s', rtrim(next_step, ';')) FROM sweeper.problem \gexec
SELECT sweeper.alter_pool(:'odd', seats => 2);
SELECT * FROM trouble;
-- seats that were refused: until there is one, or for five minutes
SELECT session FROM sweeper.acquire(:'odd', 'bob') \gset
SELECT * FROM trouble;
SELECT count(*) FROM sweeper.acquire(:'odd', 'carl');
SELECT count(*) FROM sweeper.acquire(:'odd', 'carl');
SELECT problem, severity, earlier, regexp_replace(detail, 'one .* ago', 'one ... ago') AS detail, next_step FROM trouble;
SELECT next_step FROM sweeper.problem \gexec
SELECT * FROM trouble;
SELECT count(*) FROM sweeper.acquire(:'odd', 'carl');
SELECT problem FROM trouble;
SELECT sweeper.release(:'session');
SELECT * FROM trouble;
SELECT count(*) FROM sweeper.acquire(:'odd', 'carl');
SELECT problem FROM trouble;
CALL wait_until('SELECT sum(refused) = 2 FROM sweeper.pool_day WHERE pool LIKE ''it%''');
UPDATE sweeper.pool_day SET last_refused = now() - interval '6 min';
SELECT * FROM trouble;
SELECT count(*) FROM sweeper.acquire(:'odd', 'carl');
SELECT problem FROM trouble;
SELECT sweeper.drop_pool(:'odd', force => true);
SELECT * FROM trouble;
-- rights that were revoked: the GRANT
CREATE SCHEMA :"odd";
GRANT USAGE, CREATE ON SCHEMA :"odd" TO regress_problem_user;
CREATE FUNCTION public.seen_last(text[]) RETURNS void LANGUAGE sql AS 'SELECT';
SELECT format('CREATE TABLE %1$I.poor (id int PRIMARY KEY, d timestamptz); INSERT INTO %1$I.poor SELECT i, now() - interval %2$L FROM generate_series(1, 9) AS i; ALTER TABLE %1$I.poor OWNER TO regress_problem_user', :'odd', '1 h') \gexec
SELECT FROM sweeper.register(format('%I.poor', :'odd')::regclass, policy => 'poor', deadline => 'd', on_expire => 'public.seen_last(text[])', check_every => '0', start => 'now', fuse_fraction => 1);
\set VERBOSITY terse
\set ON_ERROR_STOP off
REVOKE SELECT, DELETE ON TABLE :"odd".poor FROM regress_problem_user;
\o /dev/null
CALL sweeper.sweep('poor');
\o
SELECT problem, detail, next_step FROM trouble;
SELECT next_step FROM sweeper.policy_status WHERE policy = 'poor' \gexec
REVOKE EXECUTE ON FUNCTION public.seen_last FROM PUBLIC;
\o /dev/null
CALL sweeper.sweep('poor');
\o
SELECT problem, next_step FROM trouble;
SELECT next_step FROM sweeper.policy_status WHERE policy = 'poor' \gexec
REVOKE USAGE ON SCHEMA :"odd" FROM regress_problem_user;
\o /dev/null
CALL sweeper.sweep('poor');
\o
SELECT problem, next_step FROM trouble;
SELECT next_step FROM sweeper.policy_status WHERE policy = 'poor' \gexec
CALL sweeper.sweep('poor') \gset
SELECT problem, next_step FROM trouble;
SELECT count(*) FROM :"odd".poor;
-- a disk that is full, and a right that only the error knows
CREATE OR REPLACE FUNCTION public.seen_last(text[]) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END $$;
INSERT INTO :"odd".poor VALUES (1, now());
CALL sweeper.sweep('poor');
SELECT problem, detail, next_step FROM trouble;
CREATE OR REPLACE FUNCTION public.seen_last(text[]) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'permission denied for table log' USING ERRCODE = 'insufficient_privilege'; END $$;
SELECT sweeper.resume('poor');
CALL sweeper.sweep('poor');
SELECT problem, detail, next_step FROM trouble;
\set ON_ERROR_STOP on
SELECT sweeper.unregister('poor');
DROP SCHEMA :"odd" CASCADE;
DROP FUNCTION public.seen_last;
SELECT sweeper.revoke_access('regress_problem_user'), sweeper.revoke_access('regress_problem_monitor');
DROP ROLE regress_problem_user, regress_problem_monitor;
