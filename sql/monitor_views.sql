-- What the views show, to whom.
SET client_min_messages = warning;
SELECT sweeper.stat_reset();
-- every view says what it is, and reads with the reader's rights
SELECT c.relname, obj_description(c.oid) IS NOT NULL AS described, 'security_invoker=true' = ANY (c.reloptions) AS invoker
FROM pg_class AS c WHERE c.relnamespace = 'sweeper'::regnamespace AND c.relkind = 'v' AND c.relname ~ '^(policy_status|problem|stat_)' ORDER BY 1;
SELECT kind, pid IS NOT NULL AS pid, state FROM sweeper._process() WHERE kind = 'launcher';
SELECT backend_type, bool_and(p.pid = a.pid) AS found FROM sweeper.stat_process AS p JOIN pg_stat_activity AS a USING (backend_type)
WHERE backend_type = 'session_sweeper launcher' GROUP BY 1;
SELECT preloaded, enabled, in_recovery, launcher_pid IS NOT NULL AS launcher, service_start < now() AS started, slots_short_since FROM sweeper._cluster();
SELECT state FROM sweeper._database() JOIN pg_database ON oid = database WHERE datname = current_database();
-- a policy before and after a pass
CREATE TABLE v (id int PRIMARY KEY, d timestamptz, g text);
CREATE INDEX ON v (d);
INSERT INTO v SELECT i, now() + CASE WHEN i <= 30 THEN '-2 min'::interval ELSE '1 h' END, 'g' || i % 2 FROM generate_series(1, 100) AS i;
SELECT policy FROM sweeper.register('v', deadline => 'd', group_by => 'g', check_every => '0', start => 'now');
CALL sweeper.sweep('v') \gset
SELECT policy, relation, state, brakes, reason, last_look <= now() AS looked, next_look, last_pass_at <= now() AS passed, oldest_deadline,
       lag, backlog, workers, expired, last_error, next_step
FROM sweeper.policy_status WHERE policy = 'v';
SELECT passes, batches, expired, refreshed, repaired, failed, skipped, failed_passes, fuse_trips, max_lag BETWEEN '2 min' AND '1 h' AS max_lag,
       cardinality(lag_bounds) = cardinality(lag_histogram) AS lags, (SELECT sum(x) FROM unnest(lag_histogram) AS x) AS lag_rows,
       (SELECT sum(x) FROM unnest(lag_histogram[1:8]) AS x) AS under_a_minute, lag_seconds / expired > 119 AS mean_lag,
       cardinality(duration_bounds) = cardinality(duration_histogram) AS durations, (SELECT sum(x) FROM unnest(duration_histogram) AS x) AS pass_count,
       busy_seconds > 0 AS busy, duration_seconds > 0 AS took
FROM sweeper.stat_policy WHERE policy = 'v';
SELECT cleanup_type, cleaned, groups, percent BETWEEN 0.01 AND 100 AS percent FROM sweeper.stat_cleanup_daily WHERE policy = 'v';
SELECT rows, avg_after_deadline BETWEEN '2 min' AND '1 h' AS avg, max_after_deadline >= avg_after_deadline AS max, avg_after_last_seen, minutes_after_last_seen
FROM sweeper.stat_cleanup_lag WHERE policy = 'v';
SELECT count(*) FROM sweeper.stat_progress WHERE policy = 'v';
-- last activity in minutes; counted rows count; infinite deadlines do not hurt
CREATE TABLE act (id int PRIMARY KEY, seen timestamptz);
INSERT INTO act SELECT i, now() - '10 h'::interval FROM generate_series(1, 4) AS i;
INSERT INTO act VALUES (5, '-infinity'), (6, now() + '1 h'::interval), (7, now() + '1 h'::interval);
SELECT policy FROM sweeper.register('act', last_seen => 'seen', ttl => '1 s', check_every => '0', start => 'now');
CALL sweeper.sweep('act', force => true) \gset
SELECT rows, minutes_after_last_seen >= 60 AS minutes, avg_after_deadline >= '9 h' AS late FROM sweeper.stat_cleanup_lag WHERE policy = 'act';
-- a clean start gives no grace
SELECT sweeper.alter_policy('act', ttl => '10 days');
SELECT state, next_step FROM sweeper.policy_status WHERE policy = 'act';
SELECT sweeper.unregister('act');
DROP TABLE act;
-- brakes: one row each, with a statement that lifts it
SELECT sweeper.pause('v', 'by hand');
SELECT state, brakes, reason, next_step FROM sweeper.policy_status WHERE policy = 'v';
SELECT problem FROM sweeper.problem WHERE policy = 'v';
UPDATE sweeper.policy SET paused_at = now() - '2 days'::interval, held_reason = 'backlog', held_at = now() WHERE policy = 'v';
SELECT state, brakes, reason, next_step FROM sweeper.policy_status WHERE policy = 'v';
SELECT severity, problem, since IS NOT NULL AS since, detail LIKE '%by hand' AS by_hand, next_step FROM sweeper.problem WHERE policy = 'v' ORDER BY problem;
SELECT sweeper.resume('v');
UPDATE sweeper.policy SET failures = 9, broken = true, failing_since = now(), last_error = 'it does not work', last_sqlstate = '42501' WHERE policy = 'v';
SELECT state, brakes, reason, last_error, next_step FROM sweeper.policy_status WHERE policy = 'v';
SELECT severity, problem, detail, next_step FROM sweeper.problem WHERE policy = 'v';
-- what keeps it from another try is told instead
CREATE ROLE regress_view_heir;
ALTER TABLE v OWNER TO regress_view_heir;
SELECT severity, problem, detail, next_step FROM sweeper.problem WHERE policy = 'v';
ALTER TABLE v OWNER TO CURRENT_USER;
DROP ROLE regress_view_heir;
SELECT sweeper.resume('v');
-- a failed row
INSERT INTO sweeper.failed_row (policy_id, policy, key, state, class, message, first_at, last_at)
SELECT policy_id, policy, x, s, c, m, now() - '1 h'::interval, now() - n FROM sweeper.policy, (VALUES ('1', 'quarantined', 'error', 'zz first', interval '2 min'),
    ('2', 'quarantined', 'error', 'aa last', '1 min'), ('3', 'retrying', 'locked', 'held', '0')) AS f (x, s, c, m, n) WHERE policy = 'v';
SELECT severity, problem, detail, next_step FROM sweeper.problem WHERE policy = 'v' ORDER BY problem;
SELECT sweeper.resume('v');
-- a name that must be quoted is
SELECT sweeper.alter_policy('v', new_name => 'o''clock');
SELECT sweeper.pause('o''clock');
SELECT next_step FROM sweeper.policy_status WHERE state = 'paused';
SELECT sweeper.resume('o''clock');
SELECT sweeper.alter_policy('o''clock', new_name => 'v');
-- readers: the owner sees its own, monitor all, others nothing; so do the functions behind the views
CREATE ROLE regress_view_owner;
CREATE ROLE regress_view_monitor;
CREATE ROLE regress_view_nobody;
GRANT CREATE ON SCHEMA public TO regress_view_owner;
SELECT sweeper.grant_access('regress_view_owner', 'user'), sweeper.grant_access('regress_view_monitor', 'monitor');
\set VERBOSITY terse
SET ROLE regress_view_owner;
CREATE TABLE own (id int PRIMARY KEY, d timestamptz);
INSERT INTO own VALUES (1, now() - '1 min'::interval);
SELECT policy FROM sweeper.register('own', deadline => 'd', check_every => '0', start => 'now');
CALL sweeper.sweep('own') \gset
SELECT policy, expired FROM sweeper.policy_status;
SELECT policy FROM sweeper.stat_policy;
SELECT count(*) FROM sweeper._policy();
SELECT DISTINCT policy FROM sweeper.stat_cleanup_daily;
SELECT count(*) FROM sweeper.problem;
-- all of its own, not all
SELECT sweeper.stat_reset();
SELECT sweeper.stat_reset('v');
SELECT policy, expired FROM sweeper.stat_policy;
SET ROLE regress_view_monitor;
SELECT policy, expired FROM sweeper.stat_policy WHERE policy IN ('v', 'own') ORDER BY 1;
SELECT sweeper.stat_reset('v');
SET ROLE regress_view_nobody;
SELECT * FROM sweeper.problem;
RESET ROLE;
SELECT sweeper.stat_reset('v');
SELECT expired, passes, max_lag, lag_histogram, duration_seconds FROM sweeper.stat_policy WHERE policy = 'v';
SELECT sweeper.stat_reset('none');
-- healthy
SELECT * FROM sweeper.problem;
SELECT sweeper.unregister('own');
SELECT sweeper.unregister('v');
DROP TABLE own, v;
REVOKE CREATE ON SCHEMA public FROM regress_view_owner;
SELECT sweeper.revoke_access('regress_view_owner'), sweeper.revoke_access('regress_view_monitor');
DROP ROLE regress_view_owner, regress_view_monitor, regress_view_nobody;
-- a policy that waits for its rate says so
CREATE TABLE dripping (id int PRIMARY KEY, d timestamptz);
CREATE INDEX ON dripping (d);
SELECT state FROM sweeper.register('dripping', deadline => 'd', filter => 'id > 0', rate_limit => 5, backlog_rate => 0, check_every => '50 ms', max_lag => '1 s', start => 'now', fuse_fraction => 1);
INSERT INTO dripping SELECT i, now() FROM generate_series(1, 60) AS i;
CREATE TABLE seen (state text, reason text, phase text, detail text, next_step text);
DO $$ BEGIN
    FOR i IN 1 .. 2000 LOOP
        INSERT INTO seen SELECT s.state, s.reason, g.phase, regexp_replace(p.detail, 'is .* late', 'is ... late'), p.next_step
            FROM sweeper.policy_status AS s JOIN sweeper.problem AS p USING (policy) JOIN sweeper.stat_progress AS g USING (policy)
            WHERE s.policy = 'dripping' AND s.state = 'running' AND s.reason IS NOT NULL AND g.phase = 'waiting' AND g.done > 0;
        EXIT WHEN FOUND;
        COMMIT;
        PERFORM pg_sleep(0.01);
    END LOOP;
END $$;
SELECT * FROM seen;
SELECT sweeper.unregister('dripping');
DROP TABLE dripping, seen;
-- passes of a minute share a row, and what was asked for has its own
CREATE PROCEDURE wait_until(query text) LANGUAGE plpgsql AS $$ DECLARE ok boolean := false; BEGIN
    FOR i IN 1 .. 6000 LOOP EXECUTE query INTO ok; EXIT WHEN ok; COMMIT; PERFORM pg_sleep(0.01); END LOOP;
    IF NOT ok THEN RAISE EXCEPTION 'waited in vain until %', query; END IF; END $$;
CREATE TABLE trickle (id int PRIMARY KEY, d timestamptz);
CREATE INDEX ON trickle (d);
SELECT state FROM sweeper.register('trickle', deadline => 'd', check_every => '20 ms', start => 'now', fuse_fraction => 1);
DO $$ BEGIN
    FOR i IN 1 .. 3 LOOP
        INSERT INTO trickle VALUES (i, now());
        COMMIT;
        CALL wait_until('SELECT NOT EXISTS (SELECT FROM trickle)');
        CALL wait_until($q$SELECT count(*) = 1 AND bool_and(status = 'done') FROM sweeper.pass WHERE policy = 'trickle'$q$);
    END LOOP;
END $$;
SELECT sweeper.alter_policy('trickle', check_every => '0');
CALL sweeper.sweep('trickle');
INSERT INTO trickle SELECT i, now() FROM generate_series(10, 12) AS i;
CALL sweeper.sweep('trickle') \gset
SELECT passes, forced, status, expired, failed, batches = passes AS batches, seconds BETWEEN 0.000001 AND extract(epoch FROM finished_at - started_at) AS seconds,
       pass = :pass AS asked, max_lag > '0' AS lag FROM sweeper.pass WHERE policy = 'trickle' ORDER BY pass;
SELECT count(DISTINCT pass), count(*) FROM sweeper.cleanup_event WHERE policy = 'trickle';
SELECT passes FROM sweeper.stat_policy WHERE policy = 'trickle';
SELECT sweeper.unregister('trickle');
DROP TABLE trickle;
DROP PROCEDURE wait_until;
-- times that whoever writes a row has chosen break no view
CREATE TABLE far (id int PRIMARY KEY, d timestamptz, c timestamptz NOT NULL);
CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'kept'; END $$;
CREATE TRIGGER keep BEFORE DELETE ON far FOR EACH ROW WHEN (OLD.id = 0) EXECUTE FUNCTION keep();
SELECT FROM sweeper.register('far', deadline => 'd', created => 'c', max_age => '1 day', on_null => 'expire', keep_for => '73000 days', max_retries => 1000,
    check_every => '0', start => 'now', fuse_fraction => 1);
INSERT INTO far SELECT 0, NULL, '294270-01-01';
INSERT INTO far SELECT i, '4713-01-01 BC', now() FROM generate_series(1, 2000) AS i;
SET client_min_messages = error;
CALL sweeper.sweep('far') \gset
SET client_min_messages = warning;
SELECT state, deadline > now() AS later FROM sweeper.failed_row WHERE policy = 'far';
SELECT count(*) > 0 AS metrics FROM sweeper.metrics;
SELECT count(*) FROM sweeper.policy_status WHERE policy = 'far';
SELECT rows, avg_after_deadline > '2000000 days' AS long_ago FROM sweeper.stat_cleanup_lag WHERE policy = 'far';
SELECT sweeper.unregister('far');
DROP TABLE far;
DROP FUNCTION keep();
-- policies of users come first, and no built-in one alarms where nobody has done anything
BEGIN;
CREATE TABLE zone (id int PRIMARY KEY, expires timestamptz);
SELECT state FROM sweeper.register('zone', deadline => 'expires');
SELECT policy LIKE 'sweeper.%' AS built_in, count(*) > 1 AS several, array_agg(DISTINCT state) <@ '{waiting,running,grace,off}' AS quiet
FROM (SELECT policy, state, row_number() OVER () AS n FROM sweeper.policy_status) AS s GROUP BY 1 ORDER BY min(n);
ROLLBACK;
-- whatever the plan
BEGIN;
SET LOCAL parallel_setup_cost = 0; SET LOCAL parallel_tuple_cost = 0; SET LOCAL min_parallel_table_scan_size = 0;
CREATE TABLE wide AS SELECT i FROM generate_series(1, 20000) AS i;
SELECT format('SELECT (SELECT count(*) FROM wide WHERE i > 0), count(v) >= 0 AS %I FROM sweeper.%1$I AS v', relname)
FROM pg_class WHERE relnamespace = 'sweeper'::regnamespace AND relkind = 'v' ORDER BY 1 \gexec
SELECT (SELECT count(*) FROM wide WHERE i > 0), library IS NOT NULL AS library FROM sweeper.version();
SELECT sweeper.create_pool('p');
SELECT count(*) FROM sweeper.acquire('p', 'ann');
SELECT count(*), count(p.pool) FROM wide LEFT JOIN sweeper.pool_status AS p ON p.live = wide.i;
ROLLBACK;
