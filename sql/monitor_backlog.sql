-- How much is due while a brake is on: counted in an index, at registration, or by the fuse.
SET client_min_messages = warning;
CREATE PROCEDURE wait_until(query text) LANGUAGE plpgsql AS $$ DECLARE ok boolean := false; BEGIN
    FOR i IN 1 .. 6000 LOOP EXECUTE query INTO ok; EXIT WHEN ok; COMMIT; PERFORM pg_sleep(0.01); END LOOP;
    IF NOT ok THEN RAISE EXCEPTION 'waited in vain until %', query; END IF; END $$;
-- within a fifth of the truth
CREATE FUNCTION about(backlog bigint, truth bigint) RETURNS boolean LANGUAGE sql AS 'SELECT abs(backlog - truth) <= truth * 0.2';
CREATE FUNCTION make(name text, rows int) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
    EXECUTE format('CREATE TABLE %1$I (id int PRIMARY KEY, d timestamptz, g text); CREATE INDEX ON %1$I (d);
        INSERT INTO %1$I SELECT i, now() - i * interval ''1 s'', CASE WHEN i %% 8 = 0 THEN ''a'' ELSE ''b'' END FROM generate_series(1, %2$s) AS i;
        INSERT INTO %1$I SELECT -i, now() + interval ''1 d'', ''a'' FROM generate_series(1, 50) AS i;
        ANALYZE %1$I', name, rows); END $$;
-- held since registration, with an index and without: known at once, and after a look
SELECT make('counted', 3000), make('filtered', 3000), make('bare', 3000);
DROP INDEX bare_d_idx;
SELECT state FROM sweeper.register('counted', deadline => 'd') UNION ALL SELECT state FROM sweeper.register('filtered', deadline => 'd', filter => 'id <> 0')
UNION ALL SELECT state FROM sweeper.register('bare', deadline => 'd', start => 'paused');
SELECT policy, state, about(backlog, 3000) FROM sweeper.policy_status WHERE policy IN ('counted', 'filtered', 'bare') ORDER BY policy;
CALL wait_until($$SELECT lag > '49 min' FROM sweeper.policy_status WHERE policy = 'counted'$$);
SELECT policy, state, about(backlog, 3000) FROM sweeper.policy_status WHERE policy IN ('counted', 'filtered', 'bare') ORDER BY policy;
SELECT metric, labels ->> 'policy' AS policy, about(value::bigint, 3000) FROM sweeper.metrics WHERE family = 'session_sweeper_backlog_rows' AND labels ->> 'policy' IN ('counted', 'filtered', 'bare') ORDER BY 2;
-- perhaps more entries than are counted, many with the same deadline, in both orders of an index, and in several partitions
CREATE TABLE large (id int, d timestamptz, PRIMARY KEY (id)) PARTITION BY RANGE (id);
CREATE TABLE large_1 PARTITION OF large FOR VALUES FROM (0) TO (200000);
CREATE TABLE large_2 PARTITION OF large FOR VALUES FROM (200000) TO (400000);
CREATE INDEX ON large (d DESC);
INSERT INTO large SELECT i, now() + interval '1 h' - CASE WHEN i % 2 = 0 THEN i ELSE 200001 END * interval '1 s' FROM generate_series(0, 299999) AS i;
ANALYZE large;
SELECT sweeper.register('large', deadline => 'd', start => 'paused') IS NOT NULL AS registered;
CALL wait_until($$SELECT s.due_rows IS NOT NULL FROM sweeper._policy() AS s JOIN sweeper.policy AS p USING (policy_id) WHERE p.policy = 'large'$$);
SELECT policy, state, about(backlog, 298200) FROM sweeper.policy_status WHERE policy = 'large';
-- rows that somebody else deletes, and those that come while it is paused
DELETE FROM counted WHERE id > 1000;
SELECT sweeper.pause('counted', 'later');
VACUUM counted;
CALL wait_until($$SELECT state = 'paused' AND about(backlog, 1000) FROM sweeper.policy_status WHERE policy = 'counted'$$);
INSERT INTO counted SELECT i, now() FROM generate_series(5000, 5999) AS i;
CALL wait_until($$SELECT state = 'paused' AND about(backlog, 2000) FROM sweeper.policy_status WHERE policy = 'counted'$$);
-- nothing is due any more
DELETE FROM counted WHERE id > 0;
SELECT sweeper.pause('counted', 'much later');
CALL wait_until($$SELECT state = 'paused' AND backlog = 0 FROM sweeper.policy_status WHERE policy = 'counted'$$);
-- the fuse, of all, of a group, and of a policy with a filter
SELECT make('blown', 400), make('grouped', 400), make('sifted', 400);
SELECT state FROM sweeper.register('blown', deadline => 'd', start => 'paused') UNION ALL SELECT state FROM sweeper.register('grouped', deadline => 'd', group_by => 'g', start => 'paused')
UNION ALL SELECT state FROM sweeper.register('sifted', deadline => 'd', filter => 'id <> 0', start => 'paused');
-- what is no backlog of registration
UPDATE sweeper.policy SET backlog_before = NULL WHERE policy IN ('blown', 'grouped', 'sifted');
SELECT cardinality(sweeper.resume(p)) FROM unnest('{blown,grouped,sifted}'::text[]) AS p;
CALL wait_until($$SELECT count(*) = 3 FROM sweeper.fuse_hold AS h JOIN sweeper.policy AS p USING (policy_id) WHERE p.policy IN ('blown', 'grouped', 'sifted')$$);
SELECT p.policy, h."group", h.rows FROM sweeper.fuse_hold AS h JOIN sweeper.policy AS p USING (policy_id) ORDER BY 1;
CALL wait_until($$SELECT string_agg(concat_ws(' ', policy, state, brakes, backlog), ', ' ORDER BY policy) = 'blown fuse {fuse} 400, grouped waiting {fuse} 350, sifted fuse {fuse} 400'
    FROM sweeper.policy_status WHERE policy IN ('blown', 'grouped', 'sifted')$$);
-- a hold that was lifted counts no more
SELECT cardinality(sweeper.resume(p)) FROM unnest('{blown,grouped,sifted}'::text[]) AS p;
CALL wait_until($$SELECT count(*) = 0 FROM (SELECT d FROM blown UNION ALL SELECT d FROM grouped UNION ALL SELECT d FROM sifted) AS r WHERE d < now()$$);
CALL wait_until($$SELECT sum(backlog) = 0 FROM sweeper.policy_status WHERE policy IN ('blown', 'grouped', 'sifted')$$);
SELECT sweeper.unregister(policy) FROM sweeper.policy WHERE policy IN ('blown', 'grouped', 'sifted', 'counted', 'filtered', 'bare', 'large');
DROP TABLE blown, grouped, sifted, counted, filtered, bare, large;
-- while rows or the policy fail and none was processed, nobody knows the time left
CREATE TABLE etas (policy text, eta interval);
CREATE TABLE refused (id int PRIMARY KEY, d timestamptz); CREATE INDEX ON refused (d);
CREATE TABLE refers (id int REFERENCES refused); CREATE INDEX ON refers (id);
INSERT INTO refused SELECT i, now() - interval '1 h' FROM generate_series(1, 5) AS i;
INSERT INTO refers SELECT id FROM refused;
SELECT state FROM sweeper.register('refused', deadline => 'd', start => 'now', fuse_fraction => 1, backlog_rate => 0, check_every => '100 ms');
CALL wait_until($$WITH s AS MATERIALIZED (SELECT policy, backlog, eta FROM sweeper.policy_status WHERE policy = 'refused'),
    e AS (INSERT INTO etas SELECT policy, eta FROM s WHERE eta IS NOT NULL)
    SELECT (SELECT count(*) FROM refused) = 5 AND (SELECT backlog > 0 AND eta IS NULL FROM s) AND EXISTS (SELECT FROM sweeper.policy WHERE policy = 'refused' AND failures >= 2
        UNION ALL SELECT FROM sweeper.failed_row AS r JOIN sweeper.policy AS p USING (policy_id) WHERE p.policy = 'refused' AND attempts >= 2)$$);
SELECT count(*) FROM sweeper.metrics AS m JOIN sweeper.policy_status AS s ON s.policy = m.labels ->> 'policy' WHERE m.family = 'session_sweeper_progress_eta_seconds' AND s.policy = 'refused' AND s.backlog > 0;
SELECT * FROM etas;
-- with a limit neither
SELECT sweeper.alter_policy('refused', rate_limit => 1000);
SELECT sweeper.resume('refused') IS NOT NULL AS resumed;
CALL wait_until($$SELECT backlog > 0 AND eta IS NULL AND EXISTS (SELECT FROM sweeper.policy WHERE policy = 'refused' AND failures >= 2
        UNION ALL SELECT FROM sweeper.failed_row AS r JOIN sweeper.policy AS p USING (policy_id) WHERE p.policy = 'refused' AND attempts >= 2)
    FROM sweeper.policy_status WHERE policy = 'refused'$$);
SELECT sweeper.unregister('refused');
DROP TABLE refers, refused, etas;
