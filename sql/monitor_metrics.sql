-- What Prometheus is told.
SET client_min_messages = warning;
SELECT sweeper.stat_reset();
CREATE TABLE m (id int PRIMARY KEY, d timestamptz);
INSERT INTO m SELECT i, now() - interval '1 min' FROM generate_series(1, 7) AS i;
SELECT FROM sweeper.register('m', policy => E'a "b" \\c', deadline => 'd', check_every => '0', start => 'now', fuse_fraction => 1);
CALL sweeper.sweep(E'a "b" \\c') \gset
INSERT INTO m VALUES (8, now() + interval '1 day');
BEGIN;
SAVEPOINT s; -- what is rolled back counts, too
SELECT sweeper.expire(E'a "b" \\c', '{8}', 'undone');
ROLLBACK TO s;
COMMIT;
SELECT sweeper.expire(E'a "b" \\c', '{8}', 'done');
-- each family says what it is; each series belongs to one
SELECT count(*) = count(DISTINCT family) AS once, bool_and(help ~ '\.$|\?$') AS helped, bool_and((type = 'counter') = (family LIKE '%\_total')) AS named FROM sweeper._metric_families();
SELECT count(*) = count(DISTINCT (metric, labels)) AS once FROM sweeper.metrics;
SELECT family FROM sweeper._metric_families() EXCEPT SELECT family FROM sweeper.metrics ORDER BY 1;
SELECT metric, labels - 'policy' - 'datname' AS labels, value FROM sweeper.metrics
WHERE labels ->> 'policy' = E'a "b" \\c' AND metric !~ '_bucket|_sum|timestamp|looks' ORDER BY 1, labels::text;
SELECT metric, max(value) - min(value) >= 0 AS grows, count(*) FROM sweeper.metrics WHERE labels ->> 'policy' = E'a "b" \\c' AND metric ~ '_bucket' GROUP BY 1 ORDER BY 1;
-- what is no trouble, and which lag is one: of a policy that looks by itself
SELECT metric, labels ->> 'policy' AS policy, value FROM sweeper.metrics
WHERE family IN ('session_sweeper_in_recovery', 'session_sweeper_worker_slots_short')
   OR family = 'session_sweeper_max_lag_seconds' AND labels ->> 'policy' IN ('sweeper.session', E'a "b" \\c') ORDER BY 1;
-- a look that finds nothing is a success, and no pass
CALL sweeper.sweep(E'a "b" \\c') \gset
SELECT last_success > last_pass_at AS later, last_look - last_success < interval '1 s' AS just_now,
       (SELECT value FROM sweeper.metrics AS m WHERE family = 'session_sweeper_last_success_timestamp_seconds' AND labels ->> 'policy' = policy) = extract(epoch FROM last_success)::float8 AS told
FROM sweeper.policy_status WHERE policy = E'a "b" \\c';
-- each state of a task that has not ended; a command that failed waits to be tried again
SELECT array_agg(labels ->> 'status' ORDER BY labels ->> 'status') FROM sweeper.metrics WHERE family = 'session_sweeper_tasks';
SELECT sweeper.submit_sql('SELECT 1 / 0', max_retries => 8) AS task \gset
DO $$ BEGIN
    FOR i IN 1 .. 600 LOOP
        IF (SELECT value FROM sweeper.metrics WHERE family = 'session_sweeper_tasks' AND labels ->> 'status' = 'allocated') = 1 THEN RETURN; END IF;
        PERFORM pg_sleep(0.05);
    END LOOP;
    RAISE EXCEPTION 'no task is told to be allocated';
END $$;
SELECT sweeper.cancel_task(:'task');
-- heartbeats: from memory, with a look, gone, an error
CREATE TEMP TABLE before AS SELECT labels ->> 'result' AS result, value FROM sweeper.metrics WHERE family = 'session_sweeper_heartbeats_total';
SELECT sweeper.create_pool('metered', seats => 3);
SELECT session FROM sweeper.acquire('metered', 'ann') \gset
SELECT sweeper.heartbeat(:'session'), sweeper.heartbeat(:'session'), sweeper.heartbeat('00000000-0000-0000-0000-000000000000');
SELECT count(*) FROM sweeper.heartbeat_many(ARRAY[:'session', :'session']::uuid[]);
SELECT b.result, m.value - b.value >= CASE b.result WHEN 'fast' THEN 3 WHEN 'gone' THEN 1 ELSE 0 END AS counted FROM before AS b
JOIN sweeper.metrics AS m ON m.family = 'session_sweeper_heartbeats_total' AND m.labels ->> 'result' = b.result ORDER BY 1;
-- the text: valid names, escaped labels, pools only when asked for
SELECT count(*) AS invalid FROM regexp_split_to_table(sweeper.metrics_text(), '\n') AS l
WHERE l <> '' AND l !~ '^# HELP session_sweeper_[a-z_]+ [A-Z].*[.?]$' AND l !~ '^# TYPE session_sweeper_[a-z_]+ (counter|gauge|histogram)$' AND l !~ '^session_sweeper_[a-z_]+(\{[a-z]+="([^"\\\n]|\\.)*"(,[a-z]+="([^"\\\n]|\\.)*")*\})? (\+Inf|[0-9.e+-]+)$';
SELECT replace(l, current_database(), 'db') FROM regexp_split_to_table(sweeper.metrics_text(), '\n') AS l WHERE l ~ '^session_sweeper_(rows_ended_total.*(expired|manual)|lag_seconds_count).*c"';
SELECT replace(l, current_database(), 'db') FROM regexp_split_to_table(sweeper.metrics_text(pools => true), '\n') AS l WHERE l ~ 'pool=' AND l !~ '_total' ORDER BY 1; -- what is counted of sessions comes from a table
SELECT count(*) AS of_pools FROM regexp_split_to_table(sweeper.metrics_text(pools => true), '\n') AS l WHERE l ~ 'rows_ended_total.*sweeper.session' AND l !~ 'pool=';
SELECT count(*) FROM regexp_split_to_table(sweeper.metrics_text(), '\n') AS l WHERE l ~ 'pool=';
SELECT count(*) AS sums FROM regexp_split_to_table(sweeper.metrics_text(pools => true), '\n') AS l WHERE l ~ '^session_sweeper_seats' AND l !~ 'pool=';
-- who may watch sees all, who owns a policy his own
CREATE ROLE regress_eye;
CREATE ROLE regress_owner2;
SELECT sweeper.grant_access('regress_eye', 'monitor'), sweeper.grant_access('regress_owner2', 'user');
SET ROLE regress_eye;
SELECT count(*) > 10 AS policy, (SELECT count(*) > 0 FROM sweeper.metrics WHERE family = 'session_sweeper_tasks') AS tasks, length(sweeper.metrics_text(true)) > 1000 AS text FROM sweeper.metrics WHERE labels ->> 'policy' = E'a "b" \\c';
SET ROLE regress_owner2;
SELECT count(*) AS policy, (SELECT count(*) FROM sweeper.metrics WHERE family = 'session_sweeper_tasks') AS tasks, length(sweeper.metrics_text(true)) > 1000 AS text FROM sweeper.metrics WHERE labels ->> 'policy' = E'a "b" \\c';
RESET ROLE;
SELECT sweeper.revoke_access('regress_eye'), sweeper.revoke_access('regress_owner2');
SET ROLE regress_eye;
SELECT sweeper.metrics_text();
RESET ROLE;
DROP ROLE regress_eye, regress_owner2;
SELECT sweeper.release(:'session'), sweeper.drop_pool('metered');
SELECT value FROM sweeper.metrics WHERE metric = 'session_sweeper_rows_ended_total' AND labels ->> 'policy' = 'sweeper.session' AND labels ->> 'type' = 'released';
SELECT sweeper.unregister(E'a "b" \\c');
DROP TABLE m;
