-- Jobs that nobody offers: a submit makes them, create_job() and drop_job(); who may define them.
SET client_min_messages = warning;
CREATE FUNCTION code(command text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN EXECUTE command; RETURN 'ok';
    EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE || ': ' || SQLERRM; END $$;
CREATE VIEW job AS SELECT name, schema, on_worker_loss, max_attempts, backoff, max_backoff, timeout, permanent, registered_by, workers, waiting FROM sweeper.job_status ORDER BY room, name;
GRANT SELECT ON job TO PUBLIC;
CREATE ROLE regress_boss;
CREATE ROLE regress_worker;
CREATE ROLE regress_client;
SELECT sweeper.grant_access(r, 'user') FROM unnest('{regress_boss,regress_worker,regress_client}'::regrole[]) AS r \g /dev/null
-- a task makes its job, which belongs to no role until a worker offers it, with what that says
SET ROLE regress_client;
SELECT sweeper.submit('r', 'c', 'new', '1') IS NOT NULL AS submitted, sweeper.submit('r', 'c', 'new', '2') IS NOT NULL AS submitted;
SELECT * FROM job;
SELECT code($$SELECT sweeper.drop_job('r', 'c', 'new')$$), code($$SELECT sweeper.submit('@global', 'c', 'new')$$), code($$SELECT sweeper.submit('@internal', 'c', 'new')$$);
SET ROLE regress_worker;
SELECT sweeper.register_worker('w') AS w \gset
SELECT sweeper.register_job(:'w', 'r', 'c', 'new', '{"a": 1}') IS NOT NULL AS registered;
SELECT * FROM job;
SELECT payload FROM sweeper.claim(:'w', 10);
SET ROLE regress_boss;
SELECT code($$SELECT sweeper.create_job('r', 'c', 'new')$$), code($$SELECT sweeper.drop_job('r', 'c', 'new')$$);
-- it ends with its worker and tasks; a task revives it, and its role keeps it
SET ROLE regress_worker;
SELECT sweeper.release(:'w');
SELECT count(*) FROM job;
SET ROLE regress_client;
SELECT sweeper.submit('r', 'c', 'new', '3') AS task \gset
SELECT name, permanent, registered_by FROM job;
SET ROLE regress_boss;
SELECT sweeper.register_worker('boss') AS b \gset
SELECT code(format($$SELECT sweeper.register_job(%L, 'r', 'c', 'new')$$, :'b'));
SET ROLE regress_worker;
SELECT sweeper.register_worker('w') AS w \gset
SELECT sweeper.register_job(:'w', 'r', 'c', 'new', '{"b": 1}', 'requeue') IS NOT NULL AS redefined;
SELECT code(format($$SELECT sweeper.register_job(%L, 'r', 'c', 'new', '{"c": 1}')$$, :'w'));
SELECT payload FROM sweeper.claim(:'w');
SELECT sweeper.finish_task(:'task', 'cancelled'), sweeper.release(:'w');
SELECT count(*) FROM job;
-- one that is cancelled takes the job along
SET ROLE regress_client;
SELECT sweeper.submit('r', 'c', 'brief') AS task \gset
SELECT count(*) FROM job;
SELECT sweeper.cancel_task(:'task');
SELECT count(*) FROM job;
-- a job that stays
SET ROLE regress_boss;
SELECT sweeper.create_job('r', 'c', 'stays') = sweeper.create_job('r', 'c', 'stays', '{"d": 1}', 'fail', 5, '2 s', '1 min', '90 s') AS changed;
SELECT * FROM job;
SELECT code(c) FROM (VALUES
    ($$SELECT sweeper.create_job('r', 'c', NULL)$$),
    ($$SELECT sweeper.create_job('r', 'c', '')$$),
    ($$SELECT sweeper.create_job('r', 'c', 'n', on_worker_loss => 'x')$$),
    ($$SELECT sweeper.create_job('r', 'c', 'n', max_attempts => 0)$$),
    ($$SELECT sweeper.create_job('r', 'c', 'n', max_attempts => NULL)$$),
    ($$SELECT sweeper.create_job('r', 'c', 'n', backoff => '-1 s')$$),
    ($$SELECT sweeper.create_job('r', 'c', 'n', max_backoff => '1 month')$$),
    ($$SELECT sweeper.create_job('r', 'c', 'n', timeout => '10 ms')$$),
    ($$SELECT sweeper.create_job('@global', 'c', 'n')$$),
    ($$SELECT sweeper.drop_job('r', 'c', 'none')$$)) AS v (c);
SELECT sweeper.register_job(:'b', 'r', 'c', 'stays', '{"other": 1}', 'fail') IS NOT NULL AS offered;
SELECT name, schema, on_worker_loss, permanent, workers FROM job;
SET ROLE regress_worker;
SELECT sweeper.register_worker('w') AS w \gset
SELECT code(format($$SELECT sweeper.register_job(%L, 'r', 'c', 'stays')$$, :'w')), code($$SELECT sweeper.create_job('r', 'c', 'stays')$$);
SET ROLE regress_client;
SELECT sweeper.submit('r', 'c', 'stays', to_jsonb(i)) IS NOT NULL AS submitted FROM generate_series(1, 3) AS i;
SET ROLE regress_boss;
SELECT payload FROM sweeper.claim(:'b', start => true);
SELECT code($$SELECT sweeper.drop_job('r', 'c', 'stays')$$);
SELECT count(*) FROM job;
RESET ROLE;
SELECT t.payload, t.status, t.finished_at IS NOT NULL AS ended, c.actor, c.comment FROM sweeper.task AS t LEFT JOIN sweeper.task_comment AS c USING (task)
WHERE t.job = (SELECT job FROM sweeper.job WHERE name = 'stays') ORDER BY t.payload;
SELECT sweeper.finish_task(task, 'completed') FROM sweeper.task WHERE status = 'running';
SELECT count(*) FROM job;
SELECT count(*) FROM sweeper.job_worker AS w JOIN sweeper.job AS j USING (job) WHERE j.name = 'stays';
-- what comes afterwards makes it again, as its role says
SELECT sweeper.submit('r', 'c', 'stays', '4') IS NOT NULL AS submitted;
SELECT name, permanent, registered_by, workers, waiting FROM job;
SELECT sweeper.release(session) FROM sweeper.session WHERE owner IN ('w', 'boss') AND status = 'active';
SELECT name, permanent, registered_by, workers, waiting FROM job;
-- tasks that wait for a minute without a worker are a problem, until one comes
SELECT count(*) FROM sweeper.problem WHERE problem = 'tasks without a worker';
UPDATE sweeper.task SET enqueued_at = now() - interval '61 s' WHERE payload = '4';
SELECT severity, detail, next_step, since < now() - interval '1 min' AS long FROM sweeper.problem WHERE problem = 'tasks without a worker';
SET ROLE regress_client;
SELECT count(*) FROM sweeper.problem WHERE problem = 'tasks without a worker';
SET ROLE regress_boss;
SELECT sweeper.register_worker('boss') AS b \gset
SELECT sweeper.register_job(:'b', 'r', 'c', 'stays') IS NOT NULL AS offered;
SELECT count(*) FROM sweeper.problem WHERE problem = 'tasks without a worker';
SELECT sweeper.release(:'b');
RESET ROLE;
SELECT sweeper.drop_job('r', 'c', 'stays');
SELECT count(*) FROM job;
SELECT sweeper.revoke_access(r) FROM unnest('{regress_boss,regress_worker,regress_client}'::regrole[]) AS r \g /dev/null
DROP VIEW job;
DROP FUNCTION code;
DELETE FROM sweeper.task;
DELETE FROM sweeper.job;
DROP ROLE regress_boss, regress_worker, regress_client;
-- what a worker offers and provides ends with it in one transaction: it is not without end
SELECT sweeper.register_worker('greedy') AS w \gset
SELECT sweeper.register_job(:'w', 'limits', 'c', 'first') AS first \gset
INSERT INTO sweeper.job_worker SELECT :'w', -i FROM generate_series(1, 9999) AS i;
INSERT INTO sweeper.provider (room, category, name, worker, owner, metadata) SELECT 'limits', 'c', i::text, :'w', current_user, '{}' FROM generate_series(1, 10000) AS i;
SELECT sweeper.register_job(:'w', 'limits', 'c', 'too many');
SELECT sweeper.register_job(:'w', 'limits', 'c', 'first') = :first AS again;
SELECT sweeper.register_provider(:'w', 'limits', 'c', 'too many');
SELECT sweeper.register_provider(:'w', 'limits', 'c', '1') IS NOT NULL AS again;
SELECT sweeper.release(:'w');
SELECT count(*) FROM sweeper.provider WHERE room = 'limits';
