-- Attempts that fail: tried again later, in vain, and for good.
SET client_min_messages = warning;
CREATE FUNCTION code(command text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN EXECUTE command; RETURN 'ok';
    EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE || ': ' || regexp_replace(SQLERRM, '[0-9a-f]{8}-[0-9a-f-]{27}', '...'); END $$;
CREATE FUNCTION state(payload jsonb) RETURNS TABLE (status text, error text, attempt int, ended boolean, later boolean, comments text[]) LANGUAGE sql AS $$
    SELECT t.status, t.error, t.attempt, t.finished_at IS NOT NULL, t.not_before > t.claimed_at, ARRAY(SELECT c.actor || ': ' || c.comment FROM sweeper.task_comment AS c WHERE c.task = t.task ORDER BY c.commented_at)
    FROM sweeper.task AS t WHERE t.payload = $1 $$;
-- the time of the next attempt is now
CREATE PROCEDURE come(payload jsonb) LANGUAGE plpgsql AS $$ BEGIN
    UPDATE sweeper.task AS t SET status = 'enqueued', not_before = NULL, enqueued_at = clock_timestamp() WHERE t.payload = come.payload AND status = 'allocated'; END $$;
CREATE ROLE regress_worker;
CREATE ROLE regress_client;
CREATE ROLE regress_group;
SELECT sweeper.grant_access(r, 'user') FROM unnest('{regress_worker,regress_client,regress_group}'::regrole[]) AS r \g /dev/null
-- backoff doubles up to its most, with jitter
SELECT attempt, min(b) >= 0.75 * expected AND max(b) <= 1.25 * expected AS fits, max(b) > min(b) AS jitter
FROM (VALUES (1, interval '1 s'), (2, '2 s'), (5, '16 s'), (10, '60 s'), (1000, '60 s')) AS v (attempt, expected)
CROSS JOIN LATERAL (SELECT sweeper._backoff(attempt, '1 s', '60 s') AS b FROM generate_series(1, 50)) AS b GROUP BY attempt, expected ORDER BY attempt;
SELECT sweeper._backoff(3, '0', '60 s'), sweeper._backoff(1000, '73000 days', '73000 days') > '50000 days' AS long;
SET ROLE regress_worker;
SELECT sweeper.create_job('r', 'c', 'n', max_attempts => 2, backoff => '1 h') IS NOT NULL AS created, sweeper.create_job('r', 'c', 'fail', on_worker_loss => 'fail', backoff => '1 h') IS NOT NULL AS created;
SELECT sweeper.register_worker('w') AS w \gset
SELECT sweeper.register_job(:'w', 'r', 'c', n) IS NOT NULL AS registered FROM unnest('{n,fail}'::text[]) AS n;
SET ROLE regress_client;
SELECT sweeper.submit('r', 'c', 'n', '1', group_role => 'regress_group', unique_key => 'k') AS t1 \gset
SELECT sweeper.submit('r', 'c', 'fail', '2') AS t2 \gset
SELECT sweeper.submit('r', 'c', 'n', '3') AS t3 \gset
SELECT name, max_retries FROM sweeper.list_tasks(names => '{n,fail}') ORDER BY name, task;
SELECT code(format($$SELECT sweeper.finish_task(%L, 'completed', retry => true)$$, :'t1')), code(format($$SELECT sweeper.finish_task(%L, 'failed', retry => NULL)$$, :'t1')),
    sweeper.finish_task(:'t1', 'failed', retry => true) AS waits, sweeper.retry_task(:'t1') AS waits;
-- twice, and then no more: a dead letter with both reasons
SET ROLE regress_worker;
SELECT payload, attempt FROM sweeper.claim(:'w');
SELECT sweeper.finish_task(:'t1', 'failed', error => 'one', retry => true, attempt => 2) AS other_attempt, sweeper.finish_task(:'t1', 'failed', error => 'one', retry => true, attempt => 1);
SELECT sweeper.finish_task(:'t1', 'failed', retry => true) AS again, sweeper.task_progress(:'t1') AS go_on;
RESET ROLE;
SELECT * FROM state('1');
CALL come('1');
SET ROLE regress_worker;
SELECT payload, attempt FROM sweeper.claim(:'w', start => true);
SELECT sweeper.finish_task(:'t1', 'failed', error => 'two', retry => true);
RESET ROLE;
SELECT * FROM state('1');
-- once more, by those whose it is
SET ROLE regress_worker;
SELECT code(format($$SELECT sweeper.retry_task(%L)$$, :'t1')), code($$SELECT sweeper.retry_task(gen_random_uuid())$$), code($$SELECT sweeper.retry_task(NULL)$$);
SET ROLE regress_client;
SELECT sweeper.submit('r', 'c', 'n', '4', unique_key => 'k') AS t4 \gset
SELECT code(format($$SELECT sweeper.retry_task(%L)$$, :'t1'));
SELECT sweeper.cancel_task(:'t4'), sweeper.retry_task(:'t4') AS cancelled;
SET ROLE regress_group;
SELECT status FROM sweeper.get_task(:'t1');
SELECT sweeper.retry_task(:'t1'), sweeper.retry_task(:'t1') AS again;
RESET ROLE;
SELECT * FROM state('1');
SET ROLE regress_worker;
SELECT payload, attempt FROM sweeper.claim(:'w', start => true);
SELECT sweeper.finish_task(:'t1', 'failed', error => 'three', retry => true);
RESET ROLE;
SELECT status, attempt, comments FROM state('1');
-- a job that says fail is tried again when its worker asks for it, and not when that is lost
SET ROLE regress_worker;
SELECT payload FROM sweeper.claim(:'w', start => true);
SELECT sweeper.finish_task(:'t2', 'failed', retry => true);
RESET ROLE;
SELECT status, error, comments FROM state('2');
CALL come('2');
SET ROLE regress_worker;
SELECT payload FROM sweeper.claim(:'w', 2);
SELECT sweeper.release(:'w');
RESET ROLE;
SELECT payload, s.* FROM sweeper.task CROSS JOIN LATERAL state(payload) AS s WHERE payload IN ('2', '3') ORDER BY payload;
-- one that was cancelled, or whose job was dropped, is not tried again
SET ROLE regress_worker;
SELECT sweeper.register_worker('w') AS w \gset
SELECT sweeper.register_job(:'w', 'r', 'c', 'n') IS NOT NULL AS registered;
SELECT sweeper.submit('r', 'c', 'n', to_jsonb(i)) AS submitted FROM generate_series(5, 6) AS i \g /dev/null
SELECT payload FROM sweeper.claim(:'w', 2, start => true);
RESET ROLE;
SELECT sweeper.cancel_task(task) FROM sweeper.task WHERE payload = '5';
SELECT sweeper.finish_task(task, 'failed', error => 'e', retry => true) FROM sweeper.task WHERE payload = '5';
SELECT sweeper.drop_job('r', 'c', 'n');
SELECT sweeper.finish_task(task, 'failed', error => 'e', retry => true) FROM sweeper.task WHERE payload = '6';
SELECT payload, s.status, s.comments FROM sweeper.task CROSS JOIN LATERAL state(payload) AS s WHERE payload IN ('3', '5', '6') ORDER BY payload;
-- a job that has ended is revived by a task that is tried again
SELECT sweeper.retry_task(task) FROM sweeper.task WHERE payload = '6';
SELECT name, permanent, registered_by, waiting FROM sweeper.job_status ORDER BY name;
SELECT sweeper.submit_sql('SELECT 1/0') AS c \gset
SELECT code(format($$SELECT sweeper.retry_task(%L)$$, :'c'));
SELECT sweeper.release(:'w');
SELECT sweeper.cancel_task(:'c') IS NOT NULL AS cancelled;
SELECT sweeper.revoke_access(r) FROM unnest('{regress_worker,regress_client,regress_group}'::regrole[]) AS r \g /dev/null
DELETE FROM sweeper.task;
DELETE FROM sweeper.job;
DROP FUNCTION code, state;
DROP PROCEDURE come;
DROP ROLE regress_worker, regress_client, regress_group;
