-- Workers, jobs, providers and tasks.
SET client_min_messages = warning;
-- what a statement raises
CREATE FUNCTION code(command text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN EXECUTE command; RETURN 'ok';
    EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE || ': ' || regexp_replace(SQLERRM, '[0-9a-f]{8}-[0-9a-f-]{27}', '...'); END $$;
-- the task of a payload, its state and comments
CREATE FUNCTION state(payload jsonb) RETURNS TABLE (status text, error text, attempt int, ended boolean, comments text[]) LANGUAGE sql AS $$
    SELECT t.status, t.error, t.attempt, t.finished_at IS NOT NULL, ARRAY(SELECT c.comment FROM sweeper.task_comment AS c WHERE c.task = t.task ORDER BY c.commented_at)
    FROM sweeper.task AS t WHERE t.payload = $1 $$;
SELECT sweeper.register_worker('w1') AS w1 \gset
SELECT sweeper.register_worker('w2', metadata => '{"host": "h"}', ttl => '2 min') AS w2 \gset
-- a worker is a session
SELECT sweeper.heartbeat(:'w1'), sweeper.is_live(:'w1'), count(*) AS gone FROM sweeper.heartbeat_many(ARRAY[:'w1', :'w2']::uuid[]);
SELECT name, registered_by = current_user AS mine, s.expires_at - registered_at AS ttl, w.metadata, jobs, tasks, w.expires_at > s.expires_at AS prolonged, w.expires_at = l.expires_at AS alike
FROM sweeper.worker_status AS w JOIN sweeper.session AS s ON s.fence = w.worker_id JOIN sweeper.live_session AS l USING (session) ORDER BY name;
-- jobs are registered again, and by others
SELECT sweeper.register_job(:'w1', 'room1', 'math', 'add', '{"a": 1}') = sweeper.register_job(:'w1', 'room1', 'math', 'add', '{"a": 1}') AS idempotent;
SELECT sweeper.register_job(:'w2', 'room1', 'math', 'add', '{"a": 2}');
SELECT sweeper.register_job(:'w2', 'room1', 'math', 'add', '{"a": 1}', 'requeue');
SELECT sweeper.register_job(:'w2', 'room1', 'math', 'add', '{"a": 1}') IS NOT NULL AS second_worker;
SELECT sweeper.register_job(:'w1', 'room1', 'math', 'mul', on_worker_loss => 'requeue') IS NOT NULL AS another;
SELECT room, category, name, schema, on_worker_loss, workers, waiting FROM sweeper.job_status ORDER BY name;
-- bad input
SELECT code(c) FROM (VALUES
    ($$SELECT sweeper.register_worker(NULL)$$),
    ($$SELECT sweeper.register_worker('')$$),
    ($$SELECT sweeper.acquire('sweeper.worker', NULL)$$),
    ($$SELECT sweeper.register_worker('w', ttl => '0')$$),
    ($$SELECT sweeper.register_job(NULL, 'r', 'c', 'n')$$),
    ($$SELECT sweeper.register_job(gen_random_uuid(), 'r', 'c', 'n')$$),
    ($$SELECT sweeper.register_job(gen_random_uuid(), '', 'c', 'n')$$),
    ($$SELECT sweeper.register_job(gen_random_uuid(), 'r', 'c', repeat('n', 256))$$),
    ($$SELECT sweeper.register_job(gen_random_uuid(), 'r', 'c', 'n', on_worker_loss => 'x')$$),
    ($$SELECT sweeper.register_provider(gen_random_uuid(), 'r', 'c', 'n', '[]')$$),
    ($$SELECT sweeper.submit('r', 'c', NULL)$$),
    ($$SELECT sweeper.claim(gen_random_uuid())$$),
    ($$SELECT sweeper.claim(gen_random_uuid(), 0)$$),
    ($$SELECT sweeper.claim(gen_random_uuid(), 1001)$$),
    ($$SELECT sweeper.finish_task(gen_random_uuid(), 'running')$$),
    ($$SELECT sweeper.cancel_task(gen_random_uuid())$$),
    ($$SELECT sweeper.get_task(gen_random_uuid())$$),
    ($$SELECT sweeper.list_tasks(max => -1)$$),
    ($$SELECT sweeper.list_tasks(skip => -1)$$),
    ($$SELECT sweeper.list_tasks(statuses => '{running,done}')$$),
    ($$SELECT sweeper.list_tasks(kinds => '{task}')$$),
    ($$SELECT sweeper.submit_sql('')$$),
    ($$SELECT sweeper.submit_sql(E' -- later\n;/* ; */;')$$),
    ($$SELECT sweeper.submit_sql('SELECT 1', timeout => '1 us')$$),
    ($$SELECT sweeper.task_progress()$$),
    ($$SELECT sweeper.task_progress(gen_random_uuid(), -1)$$),
    ($$SELECT sweeper.create_pool('sweeper.mine')$$),
    ($$SELECT sweeper.drop_pool('sweeper.worker', true)$$),
    ($$SELECT sweeper.alter_pool('sweeper.worker', seats => 1)$$),
    ($$SELECT sweeper.alter_pool('sweeper.worker', max_per_owner => 1)$$),
    ($$CALL sweeper.claim_wait(gen_random_uuid(), '1 s')$$),
    ($$CALL sweeper.wait_for_task(gen_random_uuid())$$)) AS v (c);
SELECT sweeper.finish_task(gen_random_uuid(), 'completed'), sweeper.start_task(gen_random_uuid()), sweeper.task_progress(gen_random_uuid());
-- the oldest first, one winner
SELECT sweeper.submit('room1', 'math', 'add', '{"n": 1}') AS t1 \gset
SELECT sweeper.submit('room1', 'math', 'mul', '{"n": 2}') AS t2 \gset
SELECT sweeper.submit('room1', 'math', 'add', '{"n": 3}') AS t3 \gset
SELECT :'t1' < :'t2' AND :'t2' < :'t3' AS in_order;
SELECT name, status, queue_position FROM sweeper.list_tasks() ORDER BY task;
SELECT task = :'t1' AS oldest, room, category, name, payload, attempt FROM sweeper.claim(:'w1');
SELECT payload FROM sweeper.claim(:'w2', start => true);
SELECT payload FROM sweeper.claim(:'w2');
SELECT payload FROM sweeper.claim(:'w1', 10);
SELECT payload FROM sweeper.claim(:'w1');
SELECT name, jobs, tasks FROM sweeper.worker_status ORDER BY name;
-- the edges
SELECT code(format($$SELECT sweeper.finish_task(%L, 'completed')$$, :'t1'));
SELECT sweeper.start_task(:'t1'), sweeper.start_task(:'t1') AS again, sweeper.start_task(:'t3') AS running;
SELECT sweeper.task_progress(:'t1', 1, 10, 'héllo'), sweeper.task_progress(:'t1', 2), sweeper.task_progress(:'t1', 3, attempt => 2) AS other_attempt;
SELECT done, total, message, progress_at IS NOT NULL AS at FROM sweeper.get_task(:'t1');
SELECT sweeper.finish_task(:'t1', 'completed', attempt => 2) AS other_attempt, sweeper.finish_task(:'t1', 'completed', '{"sum": 3}', attempt => 1), sweeper.finish_task(:'t1', 'failed') AS again;
SELECT done, total, message, status, result, started_at BETWEEN claimed_at AND finished_at AND claimed_at >= enqueued_at AND enqueued_at >= created_at AS in_order FROM sweeper.get_task(:'t1');
SELECT sweeper.start_task(:'t1') AS ended, sweeper.task_progress(:'t1') AS ended, sweeper.cancel_task(:'t1') AS ended;
SELECT old || ' ' || new AS edge FROM unnest('{allocated,enqueued,claimed,running,completed,failed,cancelled,dropped}'::text[]) AS o (old), unnest('{allocated,enqueued,claimed,running,completed,failed,cancelled,dropped}'::text[]) AS n (new)
WHERE old <> new AND code(format($f$DO $x$ DECLARE t uuid := gen_random_uuid(); BEGIN INSERT INTO sweeper.task (task, command, status, owner) VALUES (t, '', %L, 'x'); UPDATE sweeper.task SET status = %L WHERE task = t; RAISE 'legal'; END $x$ $f$, old, new)) LIKE '%legal'
ORDER BY 1;
-- cancelled before it started, it never runs; running, it is asked to stop, once
SELECT sweeper.cancel_task(:'t2'), sweeper.cancel_task(:'t2') AS again, sweeper.start_task(:'t2') AS never;
SELECT sweeper.cancel_task(:'t3'), sweeper.cancel_task(:'t3') AS again, sweeper.task_progress(:'t3') AS go_on;
SELECT status, cancel_requested_at IS NOT NULL AS asked FROM sweeper.get_task(:'t3');
-- COMMIT PREPARED, perhaps in another session, would wake nobody
BEGIN;
SELECT sweeper.cancel_task(:'t3') AS cancelled_already, sweeper.submit('room1', 'math', 'add') IS NOT NULL AS submitted;
PREPARE TRANSACTION 'submit';
SELECT status, count(*) FROM sweeper.task GROUP BY 1 ORDER BY 1;
SELECT sweeper.finish_task(:'t3', 'cancelled', error => 'as asked');
SELECT * FROM state('{"n": 2}') UNION ALL SELECT * FROM state('{"n": 3}');
-- how a task ended is consumed by its owner
SELECT consumed_at IS NOT NULL AS consumed FROM sweeper.get_task(:'t3');
SELECT regexp_replace(comments, ' at [^\n]*', ' at ...', 'g') FROM sweeper.get_task(:'t3');
-- a worker ends: its tasks fail or wait again, its providers go, jobs that nobody offers and nothing waits for go
SELECT sweeper.submit('room1', 'math', n, jsonb_build_object('end', n, 'i', i)) FROM unnest('{add,mul}'::text[]) AS n, generate_series(1, 3) AS i \g /dev/null
SELECT sweeper.register_provider(:'w1', 'room1', 'frames', 'p') = sweeper.register_provider(:'w1', 'room1', 'frames', 'p', '{"v": 2}') AS upsert;
SELECT sweeper.register_provider(:'w2', 'room1', 'frames', 'q') IS NOT NULL AS another;
SELECT room, category, name, worker_name, metadata FROM sweeper.provider_status ORDER BY name;
SELECT sweeper.register_provider(:'w2', 'room1', 'frames', 'brief') AS p \gset
SELECT sweeper.unregister_provider(:p);
SELECT regexp_replace(code(format('SELECT sweeper.unregister_provider(%s)', :p)), '\d+ does', '... does'), code('SELECT sweeper.unregister_provider(NULL)');
SELECT name FROM sweeper.provider_status ORDER BY name;
SELECT count(*) FROM sweeper.claim(:'w1', 4);
SELECT count(*) FILTER (WHERE sweeper.start_task(task)) FROM sweeper.list_tasks(names => '{mul}', statuses => '{claimed}');
SELECT sweeper.cancel_task(task) FROM sweeper.list_tasks(names => '{mul}', statuses => '{running}');
UPDATE sweeper.job SET backoff = '1 h' WHERE name = 'mul';
SELECT sweeper.release(:'w1');
SELECT payload, s.status, s.error, s.ended, s.comments FROM sweeper.task CROSS JOIN LATERAL state(payload) AS s WHERE payload ? 'end' ORDER BY task;
SELECT worker_name, count(*) FROM sweeper.list_tasks(statuses => '{failed}') GROUP BY 1;
SELECT name FROM sweeper.provider_status;
SELECT name, workers, waiting FROM sweeper.job_status ORDER BY name;
SELECT cleanup_type, "group", owner FROM sweeper.cleanup_event WHERE policy = 'sweeper.session' AND "group" = 'sweeper.worker' AND owner = 'w1';
-- the last task of a job that nobody offers any more takes it with it
SELECT sweeper.cancel_task(task) FROM sweeper.list_tasks(names => '{mul}', statuses => '{enqueued,allocated}') ORDER BY task DESC;
SELECT name FROM sweeper.job_status ORDER BY name;
-- its tasks still say its name; it comes back with another schema
SELECT DISTINCT name FROM sweeper.list_tasks(names => '{MU*}');
SELECT sweeper.register_job(:'w2', 'room1', 'math', 'mul', '{"b": 1}') IS NOT NULL AS revived;
SELECT name, schema, on_worker_loss FROM sweeper.job_status WHERE name = 'mul';
-- heartbeats that stop end a worker, too
SELECT sweeper.register_worker('w3') AS w3 \gset
SELECT sweeper.register_job(:'w3', 'room2', 'math', 'add') IS NOT NULL AS registered;
SELECT sweeper.submit('room2', 'math', 'add', '{"lapsed": 1}') IS NOT NULL AS submitted;
SELECT payload FROM sweeper.claim(:'w3');
UPDATE sweeper.session SET acquired_at = now() - interval '3 h', last_seen_at = now() - interval '2 h', expires_at = now() - interval '1 h' WHERE session = :'w3';
CALL sweeper.sweep('sweeper.session') \gset
SELECT * FROM state('{"lapsed": 1}');
SELECT code(format($$SELECT sweeper.claim(%L)$$, :'w3'));
-- a worker whose things will not go holds up no other; it goes when they do
SELECT sweeper.register_worker('dead' || i) AS session INTO TEMP dead FROM generate_series(1, 5) AS i;
SELECT sweeper.register_provider(session, 'room2', 'frames', worker) IS NOT NULL AS registered FROM dead JOIN (SELECT session, owner AS worker FROM sweeper.session) AS s USING (session) ORDER BY worker;
CREATE FUNCTION hold_dead3() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF OLD.name = 'dead3' THEN RAISE EXCEPTION '% stays', OLD.name; END IF; RETURN OLD; END $$;
CREATE TRIGGER hold_dead3 BEFORE DELETE ON sweeper.provider FOR EACH ROW EXECUTE FUNCTION hold_dead3();
UPDATE sweeper.session SET acquired_at = now() - interval '3 h', last_seen_at = now() - interval '2 h', expires_at = now() - interval '1 h' WHERE owner LIKE 'dead_';
CALL sweeper.sweep('sweeper.session') \gset
SELECT p.name, s.status FROM sweeper.provider AS p JOIN sweeper.session AS s ON s.session = p.worker WHERE p.worker IN (SELECT session FROM dead);
SELECT state, class, message FROM sweeper.failed_row WHERE policy = 'sweeper.session';
DROP TRIGGER hold_dead3 ON sweeper.provider;
SELECT sweeper.resume('sweeper.session');
CALL sweeper.sweep('sweeper.session') \gset
SELECT e.owner, e.cleanup_type, count(*) AS ends FROM dead JOIN sweeper.cleanup_event AS e ON e.key = dead.session::text GROUP BY 1, 2 ORDER BY 1;
SELECT count(*) FROM sweeper.failed_row WHERE policy = 'sweeper.session';
DROP TABLE dead;
DROP FUNCTION hold_dead3;
-- minute by minute; a task that is cancelled before its time never waits
SELECT sweeper.cancel_task(sweeper.submit('room1', 'c', 'later', run_at => now() + interval '1 h'));
SELECT name, sum(submitted) AS submitted, sum(taken) AS taken, sum(completed) AS completed, sum(failed) AS failed, sum(cancelled) AS cancelled,
    (array_agg(waiting ORDER BY minute DESC))[1] AS waiting, min(wait_min) >= '0' AND max(wait_max) >= max(wait_avg) AS waits, min(run_min) >= '0' AS runs
FROM sweeper.stat_task GROUP BY room, category, name ORDER BY room, name;
-- filters
SELECT count(*) FILTER (WHERE f) AS yes, count(*) AS all FROM (SELECT task IN (SELECT l.task FROM sweeper.list_tasks(rooms => '{ROOM1}', names => '{a*}', statuses => '{completed,cancelled}', owners => ARRAY[current_user::text], kinds => '{job}') AS l) AS f FROM sweeper.task) AS x;
SELECT count(*) FILTER (WHERE a) AS none, count(*) FILTER (WHERE b) AS waiting, count(*) FILTER (WHERE c) AS one FROM (SELECT
    task IN (SELECT l.task FROM sweeper.list_tasks(kinds => '{sql}') AS l) AS a, task IN (SELECT l.task FROM sweeper.list_tasks(statuses => '{enqueued}', finished_after => '-infinity') AS l) AS b,
    task IN (SELECT l.task FROM sweeper.list_tasks(tasks => ARRAY[left(:'t1', 30) || '*'], workers => '{w_}') AS l) AS c FROM sweeper.task) AS x;
SELECT (SELECT count(*) FROM sweeper.list_tasks(cancel_requested => true)) AS cancelled, (SELECT count(*) FROM sweeper.list_tasks(consumed => true)) AS consumed,
    (SELECT count(*) FROM sweeper.list_tasks(group_roles => '{}')) = (SELECT count(*) FROM sweeper.task) AS without_group, (SELECT count(*) FROM sweeper.list_tasks(group_roles => '{*}')) AS with_group,
    (SELECT count(*) FROM sweeper.list_tasks(max => 2)) AS most, (SELECT count(*) FROM sweeper.list_tasks(max => 2, skip => (SELECT count(*)::int - 1 FROM sweeper.task))) AS last,
    (SELECT count(*) FROM sweeper.list_tasks(enqueued_after => 'infinity')) AS later, (SELECT count(*) FROM sweeper.list_tasks(started_before => now(), started_after => '-infinity')) > 0 AS started;
SELECT (SELECT count(*) FROM sweeper.list_tasks(enqueued_after => a.enqueued_at, enqueued_before => b.enqueued_at)) AS three, (SELECT count(*) FROM sweeper.list_tasks(started_after => b.started_at, started_before => b.started_at)) AS itself,
    (SELECT count(*) FROM sweeper.list_tasks(finished_after => a.finished_at, finished_before => a.finished_at)) AS itself, (SELECT count(*) FROM sweeper.list_tasks(progress_after => a.progress_at, progress_before => a.progress_at)) AS itself,
    (SELECT count(*) FROM sweeper.list_tasks(machine_ids => '{*}')) AS elsewhere
FROM sweeper.task AS a, sweeper.task AS b WHERE a.task = :'t1' AND b.task = :'t3';
-- in a read-only transaction one may look, and consumes nothing
BEGIN READ ONLY;
SELECT count(*) > 0 AS some FROM sweeper.list_tasks();
SELECT consumed_at FROM sweeper.get_task((SELECT task FROM sweeper.task WHERE payload = '{"lapsed": 1}'));
SELECT code($$SELECT sweeper.submit('room1', 'math', 'mul')$$), code($$SELECT sweeper.task_progress(gen_random_uuid())$$);
COMMIT;
-- by roles
CREATE ROLE regress_worker;
CREATE ROLE regress_owner;
CREATE ROLE regress_group;
CREATE ROLE regress_stranger;
CREATE ROLE regress_chief;
CREATE ROLE regress_nobody;
SELECT sweeper.grant_access(r, 'user') FROM unnest('{regress_worker,regress_owner,regress_group,regress_stranger}'::regrole[]) AS r \g /dev/null
SELECT sweeper.grant_access('regress_chief', 'admin') \g /dev/null
SET ROLE regress_worker;
SELECT sweeper.register_worker('mine') AS wm \gset
SELECT sweeper.register_job(:'wm', 'room3', 'c', 'n') IS NOT NULL AS registered;
SELECT code(format($$SELECT sweeper.register_job(%L, '@global', 'c', 'n')$$, :'wm')), code(format($$SELECT sweeper.register_provider(%L, '@internal', 'c', 'n')$$, :'wm'));
SELECT code(format($$SELECT sweeper.register_job(%L, 'room1', 'math', 'mul', '{"b": 1}')$$, :'wm')) AS others_job;
SELECT code(format($$SELECT sweeper.register_provider(%L, 'room1', 'frames', 'q')$$, :'wm')) AS others_provider;
SELECT code(format($$SELECT sweeper.claim(%L)$$, :'w2')) AS others_worker;
SELECT regexp_replace(code(format('SELECT sweeper.unregister_provider(%s)', provider)), 'provider \d+', 'provider ...') AS others_provider FROM sweeper.provider_status WHERE name = 'q';
SET ROLE regress_owner;
SELECT sweeper.submit('room3', 'c', 'n', '{"by": "role"}', group_role => 'regress_group') AS tr \gset
SELECT code(format($$SELECT sweeper.claim(%L)$$, :'wm')) AS others_worker;
SELECT owner, group_role, status FROM sweeper.get_task(:'tr');
SET ROLE regress_stranger;
SELECT code(format($$SELECT sweeper.get_task(%L)$$, :'tr')), code(format($$SELECT sweeper.cancel_task(%L)$$, :'tr')), (SELECT count(*) FROM sweeper.list_tasks()) AS listed;
SELECT code('SELECT count(*) FROM sweeper.task'), code('SELECT count(*) FROM sweeper.task_detail'), code('SELECT count(*) FROM sweeper.job_worker');
SET ROLE regress_worker;
SELECT payload, attempt FROM sweeper.claim(:'wm', start => true);
SET ROLE regress_stranger;
SELECT sweeper.finish_task(:'tr', 'completed') AS not_mine, sweeper.task_progress(:'tr') AS not_mine;
SET ROLE regress_group;
SELECT status FROM sweeper.get_task(:'tr');
SELECT sweeper.cancel_task(:'tr');
SET ROLE regress_worker;
SELECT sweeper.task_progress(:'tr') AS go_on, sweeper.finish_task(:'tr', 'completed', '"done all the same"');
SET ROLE regress_chief;
SELECT status, result, consumed_at IS NULL AS kept FROM sweeper.get_task(:'tr');
SELECT code(format($$SELECT sweeper.register_job(%L, '@global', 'c', 'n')$$, :'wm')) AS of_others;
SET ROLE regress_owner;
SELECT status, consumed_at IS NOT NULL AS consumed FROM sweeper.get_task(:'tr');
SET ROLE regress_nobody;
SELECT code($$SELECT sweeper.submit('room3', 'c', 'n')$$), code('SELECT sweeper.list_tasks()'), code('CALL sweeper.flush(NULL)');
RESET ROLE;
-- a job does not become another's while its worker is away, unless its role is gone
SELECT sweeper.release(:'wm');
CREATE ROLE regress_gone;
SELECT sweeper.grant_access('regress_gone', 'user');
SET ROLE regress_gone;
SELECT sweeper.register_worker('gone') AS wg \gset
SELECT sweeper.register_job(:'wg', 'room9', 'c', 'n') IS NOT NULL AS registered, sweeper.release(:'wg');
SET ROLE regress_stranger;
SELECT sweeper.register_worker('stranger') AS ws \gset
SELECT code(format($$SELECT sweeper.register_job(%L, 'room9', 'c', 'n')$$, :'ws'));
RESET ROLE;
SELECT sweeper.revoke_access('regress_gone');
DROP ROLE regress_gone;
SET ROLE regress_stranger;
SELECT sweeper.register_job(:'ws', 'room9', 'c', 'n') IS NOT NULL AS registered;
SELECT name, registered_by FROM sweeper.job_status WHERE room = 'room9';
SELECT sweeper.release(:'ws');
RESET ROLE;
SELECT sweeper.release(:'w2');
SELECT name FROM sweeper.job_status;
SELECT sweeper.revoke_access(r) FROM unnest('{regress_worker,regress_owner,regress_group,regress_stranger,regress_chief}'::regrole[]) AS r \g /dev/null
DROP ROLE regress_worker, regress_owner, regress_group, regress_stranger, regress_chief, regress_nobody;
-- retention: those that ended, and sooner those that were consumed
UPDATE sweeper.task SET finished_at = finished_at - interval '8 days' WHERE task = :'t1';
UPDATE sweeper.task SET consumed_at = consumed_at - interval '25 h' WHERE task = :'t3';
CALL sweeper.sweep('sweeper.finished_task') \gset
CALL sweeper.sweep('sweeper.consumed_task') \gset
SELECT count(*) FROM sweeper.task WHERE task IN (:'t1', :'t3');
SELECT count(*) FROM sweeper.task_comment WHERE task IN (:'t1', :'t3');
DELETE FROM sweeper.task;
-- the states, and every step between them that is taken; no other
CREATE FUNCTION step(a text, b text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO sweeper.task (task, job, status, owner) VALUES (gen_random_uuid(), 0, a, 'x');
    UPDATE sweeper.task SET status = b;
    DELETE FROM sweeper.task;
    RETURN b;
EXCEPTION WHEN object_not_in_prerequisite_state THEN RETURN NULL; END $$;
SELECT a, string_agg(step(a, b), ' ' ORDER BY j) FROM unnest('{allocated,enqueued,claimed,running,completed,failed,cancelled,dropped}'::text[]) WITH ORDINALITY AS x (a, i),
    unnest('{allocated,enqueued,claimed,running,completed,failed,cancelled,dropped}'::text[]) WITH ORDINALITY AS y (b, j) GROUP BY i, a ORDER BY i;
SELECT code($$SELECT step('sleeping', 'running')$$), code($$SELECT step('running', 'sleeping')$$), code($$INSERT INTO sweeper.task (task, job, owner) VALUES (gen_random_uuid(), 0, 'x')$$);
CREATE TABLE other (status int);
CREATE TRIGGER edge BEFORE INSERT ON other FOR EACH ROW EXECUTE FUNCTION sweeper._task_transition();
CREATE TRIGGER edge_after AFTER UPDATE ON other FOR EACH ROW EXECUTE FUNCTION sweeper._task_transition();
SELECT code('INSERT INTO other VALUES (1)'), code('SELECT sweeper._task_transition()');
DROP TABLE other;
-- what calls leave in our tables is bounded
CREATE TABLE bounded (id int PRIMARY KEY, d timestamptz);
SELECT policy FROM sweeper.register('bounded', deadline => 'd', start => 'paused', audit => 'none');
CREATE FUNCTION big(n int) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_object('x', repeat('x', n)) $$;
SELECT code(c) FROM (VALUES
    ($$SELECT sweeper.create_pool('p', metadata => big(65536))$$),
    ($$SELECT sweeper.create_pool(repeat('p', 256))$$),
    ($$SELECT sweeper.create_pool('p', notify_channel => repeat('c', 64))$$),
    ($$SELECT sweeper.alter_pool('sweeper.worker', metadata => big(65536))$$),
    ($$SELECT sweeper.acquire('sweeper.worker', metadata => big(65536))$$),
    ($$SELECT sweeper.acquire('sweeper.worker', repeat('o', 1025))$$),
    ($$SELECT sweeper.register_worker('w', big(65536))$$),
    ($$SELECT sweeper.register_provider(gen_random_uuid(), 'r', 'c', 'n', big(65536))$$),
    ($$SELECT sweeper.register_job(gen_random_uuid(), 'r', 'c', 'n', big(65536))$$),
    ($$SELECT sweeper.submit('r', 'c', 'n', big(1048576))$$),
    ($$SELECT sweeper.submit('r', 'c', repeat('n', 256))$$),
    ($$SELECT sweeper.finish_task(gen_random_uuid(), 'completed', big(1048576))$$),
    ($$SELECT sweeper.finish_task(gen_random_uuid(), 'failed', error => repeat('e', 65537))$$),
    ($$SELECT sweeper.submit_sql('SELECT 1 -- ' || repeat('c', 1048576))$$),
    ($$SELECT sweeper.submit_sql('SELECT 1', repeat('s', 65537))$$),
    ($$SELECT sweeper.list_tasks(rooms => ARRAY[repeat('r', 65537)])$$),
    ($$SELECT sweeper.submit_sql('SELECT 1', timeout => '1 day 00:00:00.000001')$$),
    ($$SELECT sweeper.append('bounded', big(1048576))$$),
    ($$SELECT sweeper.pause('bounded', repeat('r', 65537))$$),
    ($$SELECT sweeper.pause_all(repeat('r', 65537))$$),
    ($$SELECT sweeper.expire('bounded', '{1}', repeat('r', 65537))$$),
    ($$SELECT sweeper.expire_group('bounded', 'g', repeat('r', 65537))$$),
    ($$SELECT sweeper.alter_policy('bounded', new_name => repeat('p', 256))$$),
    ($$SELECT sweeper.alter_policy('bounded', notify_channel => repeat('c', 64))$$),
    ($$SELECT sweeper.alter_policy('bounded', filter => repeat('f', 16385))$$),
    ($$SELECT sweeper.register('bounded', repeat('p', 256), deadline => 'd')$$)) AS v (c);
SELECT sweeper.register_worker('w', big(65000)) AS w \gset
SELECT sweeper.release(:'w');
-- a name of the greatest length fits into a notification
SELECT sweeper.alter_policy('bounded', new_name => repeat('"', 255), notify_channel => repeat('c', 63), notify_keys => true);
INSERT INTO bounded VALUES (1, now() - interval '1 min');
SELECT count(sweeper.resume(policy)) FROM sweeper.policy WHERE policy = repeat('"', 255);
CALL sweeper.sweep(repeat('"', 255)) \gset
SELECT count(*) AS left FROM bounded;
SELECT FROM sweeper.unregister(repeat('"', 255));
DROP TABLE bounded;
-- what a transaction that is rolled back has claimed or finished is as it was
SELECT sweeper.register_worker('back', ttl => '1 h') AS w \gset
SELECT count(sweeper.register_job(:'w', 'back', 'c', 'n'));
SELECT sweeper.submit('back', 'c', 'n', '1') AS t1 \gset
SELECT sweeper.submit('back', 'c', 'n', '2') AS t2 \gset
SELECT FROM pg_sleep(0.15); -- younger ones are always looked for
BEGIN;
SELECT payload FROM sweeper.claim(:'w');
SELECT payload FROM sweeper.claim(:'w');
SELECT payload FROM sweeper.claim(:'w');
ROLLBACK;
SELECT payload FROM sweeper.claim(:'w', start => true);
SELECT payload FROM sweeper.claim(:'w', start => true);
SELECT sweeper.task_progress(:'t1', 5, 10, 'half');
BEGIN;
SELECT sweeper.finish_task(:'t1', 'completed');
SELECT sweeper.submit('back', 'c', 'n', '3') AS t3 \gset
ROLLBACK;
SELECT status, done, total, message FROM sweeper.get_task(:'t1');
-- columns of another version
BEGIN;
ALTER TABLE sweeper.task ADD x text DEFAULT 'kept', ADD y text;
SELECT sweeper.finish_task(:'t1', 'completed');
SELECT status, x, y FROM sweeper.task WHERE task = :'t1';
ROLLBACK;
SELECT sweeper.release(:'w');
DROP FUNCTION code, state, step, big;
