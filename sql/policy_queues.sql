-- Job queues that people have, by their DDL: jobs of dead workers are put back as the queue does it, those with heartbeats stay.
SET timezone = 'UTC'; SET client_min_messages = warning;
CREATE FUNCTION fresh(t timestamptz) RETURNS boolean LANGUAGE sql AS $$ SELECT t > now() - interval '30 s' $$;
CREATE FUNCTION utc(t timestamptz) RETURNS timestamp LANGUAGE sql AS $$ SELECT t AT TIME ZONE 'UTC' $$;
SELECT preset, key, settings - 'set_clause' AS settings FROM sweeper.preset WHERE settings ? 'heartbeats' ORDER BY 1;
-- pg-boss 12
CREATE SCHEMA pgboss;
CREATE TYPE pgboss.job_state AS ENUM ('created', 'retry', 'active', 'completed', 'cancelled', 'failed');
CREATE TABLE pgboss.job (id uuid NOT NULL DEFAULT gen_random_uuid(), name text NOT NULL, priority integer NOT NULL DEFAULT 0, data jsonb, state pgboss.job_state NOT NULL DEFAULT 'created',
    retry_limit integer NOT NULL DEFAULT 2, retry_count integer NOT NULL DEFAULT 0, retry_delay integer NOT NULL DEFAULT 0, retry_backoff boolean NOT NULL DEFAULT false, retry_delay_max integer,
    expire_seconds int NOT NULL DEFAULT 900, deletion_seconds int NOT NULL DEFAULT 604800, singleton_key text, singleton_on timestamp without time zone, start_after timestamptz NOT NULL DEFAULT now(),
    created_on timestamptz NOT NULL DEFAULT now(), started_on timestamptz, completed_on timestamptz, keep_until timestamptz NOT NULL DEFAULT now() + interval '1209600', output jsonb, dead_letter text,
    policy text, heartbeat_on timestamptz, heartbeat_seconds int) PARTITION BY LIST (name);
ALTER TABLE pgboss.job ADD PRIMARY KEY (name, id);
CREATE TABLE pgboss.job_common PARTITION OF pgboss.job DEFAULT;
CREATE INDEX ON pgboss.job (started_on) WHERE state = 'active';
-- it is never guessed, and it waits for the workers
SELECT preset FROM sweeper.adoptable WHERE relation = 'pgboss.job'::regclass;
SET client_min_messages = notice;
SELECT policy, state, advice FROM sweeper.adopt('pgboss.job', 'pg-boss running', check_every => '0');
SET client_min_messages = warning;
SELECT sweeper.resume('pgboss.job');
INSERT INTO pgboss.job (id, name, state, started_on, retry_count, retry_limit, retry_delay, retry_backoff, policy)
SELECT lpad(v.id, 32, '0')::uuid, 'q', v.state::pgboss.job_state, now() - interval '1 min', v.count, 2, v.delay, v.backoff, v.policy
FROM (VALUES ('1', 'active', 0, 0, false, NULL), ('2', 'active', 1, 60, false, NULL), ('3', 'active', 0, 60, true, NULL), ('4', 'active', 2, 0, false, NULL), ('5', 'active', 0, 0, false, 'stately'),
      ('6', 'active', 0, 0, false, NULL), ('7', 'completed', 0, 0, false, NULL), ('8', 'created', 0, 0, false, NULL)) AS v (id, state, count, delay, backoff, policy);
-- job 6 has a worker
SELECT * FROM sweeper.touch_many('pgboss.job', ARRAY['(q,00000000-0000-0000-0000-000000000006)']);
CALL sweeper.sweep('pgboss.job') \g /dev/null
SELECT ltrim(id::text, '0-') AS id, state, retry_count, start_after - now() BETWEEN '59 s' AND '121 s' AS delayed, fresh(started_on) AS started, output, heartbeat_on,
       started_on + expire_seconds * interval '1 s' < now() AS timed_out FROM pgboss.job ORDER BY id;
CALL sweeper.sweep('pgboss.job') \g /dev/null
SELECT key, cleanup_type FROM sweeper.cleanup_event WHERE policy = 'pgboss.job' ORDER BY key;
-- a job that was put back is gone for the worker that had it
SELECT * FROM sweeper.touch_many('pgboss.job', ARRAY['(q,00000000-0000-0000-0000-000000000001)', '(q,00000000-0000-0000-0000-000000000006)']);
-- graphile-worker: the queue of a dead worker's job is free, too, but not that of another worker
CREATE SCHEMA graphile_worker;
CREATE TABLE graphile_worker._private_job_queues (id int PRIMARY KEY, queue_name text NOT NULL UNIQUE, locked_at timestamptz, locked_by text, is_available boolean GENERATED ALWAYS AS (locked_at IS NULL) STORED NOT NULL);
CREATE TABLE graphile_worker._private_jobs (id bigint PRIMARY KEY, job_queue_id int, task_id int NOT NULL, payload json NOT NULL DEFAULT '{}', priority smallint NOT NULL DEFAULT 0, run_at timestamptz NOT NULL DEFAULT now(),
    attempts smallint NOT NULL DEFAULT 0, max_attempts smallint NOT NULL DEFAULT 25, last_error text, created_at timestamptz NOT NULL DEFAULT now(), updated_at timestamptz NOT NULL DEFAULT now(), key text, locked_at timestamptz,
    locked_by text, revision int NOT NULL DEFAULT 0, flags jsonb, is_available boolean GENERATED ALWAYS AS (locked_at IS NULL AND attempts < max_attempts) STORED NOT NULL);
\set VERBOSITY terse
SELECT sweeper.adopt('graphile_worker._private_jobs', 'graphile-worker running');
\set VERBOSITY default
DO $$
DECLARE hint text;
BEGIN
    PERFORM sweeper.adopt('graphile_worker._private_jobs', 'graphile-worker running', policy => 'jobs', check_every => '0', start => 'now');
EXCEPTION WHEN undefined_function THEN
    GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
    RAISE WARNING '%', hint;
    EXECUTE substring(hint FROM ': (.*)');
END $$;
INSERT INTO graphile_worker._private_job_queues VALUES (1, 'one', now() - interval '1 min', 'dead'), (2, 'two', now(), 'other');
INSERT INTO graphile_worker._private_jobs (id, job_queue_id, task_id, attempts, max_attempts, locked_at, locked_by)
VALUES (1, 1, 1, 1, 25, now() - interval '1 min', 'dead'), (2, NULL, 1, 25, 25, now() - interval '1 min', 'dead'), (3, 2, 1, 1, 25, now() - interval '1 min', 'dead'), (4, NULL, 1, 1, 25, now() - interval '5 hours', 'slow'), (5, NULL, 1, 0, 25, NULL, NULL);
SELECT * FROM sweeper.touch_many('jobs', '{4}');
CALL sweeper.sweep('jobs') \g /dev/null
SELECT id, attempts, fresh(locked_at) AS locked, locked_by, is_available, run_at >= now() - interval '1 min' AS soon FROM graphile_worker._private_jobs ORDER BY id;
SELECT queue_name, locked_by, is_available FROM graphile_worker._private_job_queues ORDER BY id;
-- River
CREATE TYPE river_job_state AS ENUM ('available', 'cancelled', 'completed', 'discarded', 'pending', 'retryable', 'running', 'scheduled');
CREATE TABLE river_job (id bigserial PRIMARY KEY, state river_job_state NOT NULL DEFAULT 'available', attempt smallint NOT NULL DEFAULT 0, max_attempts smallint NOT NULL, attempted_at timestamptz, created_at timestamptz NOT NULL DEFAULT now(),
    finalized_at timestamptz, scheduled_at timestamptz NOT NULL DEFAULT now(), priority smallint NOT NULL DEFAULT 1, args jsonb, attempted_by text[], errors jsonb[], kind text NOT NULL, metadata jsonb NOT NULL DEFAULT '{}',
    queue text NOT NULL DEFAULT 'default', tags varchar(255)[], CONSTRAINT finalized_or_finalized_at_null CHECK ((finalized_at IS NULL AND state NOT IN ('cancelled', 'completed', 'discarded')) OR (finalized_at IS NOT NULL AND state IN ('cancelled', 'completed', 'discarded'))));
SELECT policy, state FROM sweeper.adopt('river_job', 'River running', check_every => '0', start => 'now');
INSERT INTO river_job (state, attempt, max_attempts, attempted_at, errors, kind)
VALUES ('running', 1, 25, now() - interval '2 h', NULL, 'k'), ('running', 3, 25, now() - interval '1 min', ARRAY['{}', '{}']::jsonb[], 'k'), ('running', 25, 25, now() - interval '1 min', NULL, 'k'), ('running', 1, 25, now() - interval '2 h', NULL, 'k'), ('retryable', 1, 25, now() - interval '2 h', NULL, 'k');
SELECT sweeper.touch('river_job', 4);
CALL sweeper.sweep('river_job') \g /dev/null
SELECT id, state, attempt, fresh(attempted_at) AS attempted, round(extract(epoch FROM scheduled_at - now())) BETWEEN 70 AND 92 AS after_81_s, finalized_at IS NOT NULL AS finalized, cardinality(errors) AS errors, errors[cardinality(errors)] - 'at' AS error FROM river_job ORDER BY id;
-- Oban
CREATE TYPE oban_job_state AS ENUM ('available', 'scheduled', 'executing', 'retryable', 'completed', 'discarded', 'cancelled');
CREATE TABLE oban_jobs (id bigserial PRIMARY KEY, state oban_job_state NOT NULL DEFAULT 'available', queue text NOT NULL DEFAULT 'default', worker text NOT NULL, args jsonb NOT NULL DEFAULT '{}', errors jsonb[] NOT NULL DEFAULT '{}',
    attempt integer NOT NULL DEFAULT 0, max_attempts integer NOT NULL DEFAULT 20, inserted_at timestamp NOT NULL DEFAULT timezone('UTC', now()), scheduled_at timestamp NOT NULL DEFAULT timezone('UTC', now()), attempted_at timestamp, completed_at timestamp,
    attempted_by text[], discarded_at timestamp, priority integer NOT NULL DEFAULT 0, tags text[] DEFAULT '{}', meta jsonb DEFAULT '{}', cancelled_at timestamp);
SELECT policy, state FROM sweeper.adopt('oban_jobs', 'Oban running', check_every => '0', start => 'now');
INSERT INTO oban_jobs (state, worker, attempt, attempted_at) VALUES ('executing', 'W', 1, utc(now() - interval '2 h')), ('executing', 'W', 20, utc(now() - interval '1 min')), ('executing', 'W', 1, utc(now() - interval '2 h')), ('available', 'W', 1, NULL);
SELECT sweeper.touch('oban_jobs', 3);
CALL sweeper.sweep('oban_jobs') \g /dev/null
SELECT id, state, fresh(attempted_at) AS attempted, fresh(discarded_at) AS discarded FROM oban_jobs ORDER BY id;
-- Solid Queue: a worker's jobs are ready again; supervisors and dispatchers stay
CREATE TABLE solid_queue_processes (id bigserial PRIMARY KEY, kind character varying NOT NULL, last_heartbeat_at timestamp(6) NOT NULL, supervisor_id bigint, pid integer NOT NULL, hostname character varying,
    metadata text, created_at timestamp(6) NOT NULL, name character varying NOT NULL);
CREATE TABLE solid_queue_jobs (id bigserial PRIMARY KEY, queue_name character varying NOT NULL, class_name character varying NOT NULL, priority integer NOT NULL DEFAULT 0);
CREATE TABLE solid_queue_claimed_executions (id bigserial PRIMARY KEY, job_id bigint NOT NULL UNIQUE, process_id bigint, created_at timestamp(6) NOT NULL);
CREATE TABLE solid_queue_ready_executions (id bigserial PRIMARY KEY, job_id bigint NOT NULL UNIQUE, queue_name character varying NOT NULL, priority integer NOT NULL DEFAULT 0, created_at timestamp(6) NOT NULL);
DO $$
DECLARE hint text;
BEGIN
    PERFORM sweeper.adopt('solid_queue_processes', 'Solid Queue running', check_every => '0', start => 'now');
EXCEPTION WHEN undefined_function THEN
    GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
    EXECUTE substring(hint FROM ': (.*)');
END $$;
INSERT INTO solid_queue_processes SELECT i, CASE i WHEN 3 THEN 'Dispatcher' ELSE 'Worker' END, utc(now() - interval '1 min'), NULL, i, 'h', '', now(), i::text FROM generate_series(1, 3) AS i;
INSERT INTO solid_queue_jobs SELECT i, 'q', 'C', i FROM generate_series(1, 4) AS i;
INSERT INTO solid_queue_claimed_executions SELECT i, i, 1 + i % 2, now() FROM generate_series(1, 4) AS i;
SELECT sweeper.touch('solid_queue_processes', 1);
CALL sweeper.sweep('solid_queue_processes') \g /dev/null
SELECT id, kind, fresh(last_heartbeat_at) AS heartbeat FROM solid_queue_processes ORDER BY id;
SELECT job_id, process_id FROM solid_queue_claimed_executions ORDER BY 1;
SELECT job_id, queue_name, priority FROM solid_queue_ready_executions ORDER BY 1;
-- GoodJob
CREATE TABLE good_job_processes (id uuid NOT NULL DEFAULT gen_random_uuid() PRIMARY KEY, created_at timestamp(6) NOT NULL, updated_at timestamp(6) NOT NULL, state jsonb, lock_type smallint);
CREATE TABLE good_jobs (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), locked_by_id uuid, locked_at timestamp(6));
DO $$
DECLARE hint text;
BEGIN
    PERFORM sweeper.adopt('good_job_processes', 'GoodJob running', check_every => '0', start => 'now');
EXCEPTION WHEN undefined_function THEN
    GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
    EXECUTE substring(hint FROM ': (.*)');
END $$;
INSERT INTO good_job_processes SELECT lpad(i::text, 32, '0')::uuid, now(), utc(now() - interval '1 min'), '{}', CASE i WHEN 3 THEN 0 END FROM generate_series(1, 3) AS i;
INSERT INTO good_jobs SELECT lpad(i::text, 32, 'a')::uuid, lpad(i::text, 32, '0')::uuid, now() FROM generate_series(1, 3) AS i;
SELECT sweeper.touch('good_job_processes', lpad('1', 32, '0')::uuid);
CALL sweeper.sweep('good_job_processes') \g /dev/null
SELECT ltrim(id::text, '0-') AS process FROM good_job_processes ORDER BY 1;
SELECT right(id::text, 1) AS job, locked_by_id IS NOT NULL AS locked FROM good_jobs ORDER BY 1;
SELECT policy, expired, failed FROM sweeper.pass WHERE expired + failed > 0 ORDER BY 1;
SELECT policy, key, message FROM sweeper.failed_row;
