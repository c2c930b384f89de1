-- The evidence is kept for as long as the settings say, by ordinary policies that leave no evidence themselves.
SET client_min_messages = warning;
SET intervalstyle = 'postgres';
SELECT policy, relation, audit, keep_for FROM sweeper.policy WHERE policy LIKE 'sweeper.%' ORDER BY policy;
CREATE VIEW evidence AS SELECT (SELECT count(*) FROM sweeper.cleanup_event WHERE policy = 'old') AS events,
    (SELECT count(*) FROM sweeper.pass WHERE policy = 'old') AS passes;
INSERT INTO sweeper.cleanup_event (id, cleaned_at, policy_id, policy, relation, key, cleanup_type)
    SELECT i, now() - i * interval '1 day', 0, 'old', 'old', i::text, 'expired' FROM generate_series(1, 200) AS i;
INSERT INTO sweeper.pass (pass, policy_id, policy, started_at, finished_at, status, cutoff)
    SELECT -i, 0, 'old', now() - i * interval '1 day', now(), 'done', now() FROM generate_series(1, 200) AS i;
CALL sweeper.sweep('sweeper.cleanup_event', force => true, pass => NULL) \gset
CALL sweeper.sweep('sweeper.pass', force => true, pass => NULL) \gset
SELECT * FROM evidence;
SELECT count(*) FROM sweeper.cleanup_event WHERE policy LIKE 'sweeper.%';
-- a setting changes it without a restart; 0 keeps for ever, and that is no trouble
ALTER SYSTEM SET session_sweeper.cleanup_event_retention = '10d';
ALTER SYSTEM SET session_sweeper.pass_retention = 0;
SELECT pg_reload_conf();
CREATE PROCEDURE wait_until(query text) LANGUAGE plpgsql AS $$ DECLARE ok boolean := false; BEGIN
    FOR i IN 1 .. 6000 LOOP EXECUTE query INTO ok; EXIT WHEN ok; COMMIT; PERFORM pg_sleep(0.01); END LOOP;
    IF NOT ok THEN RAISE EXCEPTION 'waited in vain until %', query; END IF; END $$;
CALL wait_until($$SELECT state = 'off' FROM sweeper._policy() AS s JOIN sweeper.policy AS p USING (policy_id) WHERE p.policy = 'sweeper.pass'$$);
CALL sweeper.sweep('sweeper.cleanup_event', force => true, pass => NULL) \gset
SELECT * FROM evidence;
CALL sweeper.sweep('sweeper.pass') \gset
SELECT count(*) FROM sweeper.problem WHERE policy = 'sweeper.pass';
SELECT policy, state, reason, next_step FROM sweeper.policy_status WHERE next_step IS NOT NULL OR policy IN ('sweeper.pass', 'sweeper.usage_event') ORDER BY policy;
ALTER SYSTEM RESET session_sweeper.cleanup_event_retention;
ALTER SYSTEM RESET session_sweeper.pass_retention;
SELECT pg_reload_conf();
CALL wait_until($$SELECT state NOT IN ('held', 'off') FROM sweeper._policy() AS s JOIN sweeper.policy AS p USING (policy_id) WHERE p.policy = 'sweeper.pass'$$);
-- what is kept for 90 days is looked for each hour, what is kept for ten hours each minute
CALL sweeper.sweep('sweeper.cleanup_event', force => true, pass => NULL) \gset
CALL wait_until($$SELECT next_look - last_look BETWEEN '50 min' AND '70 min' FROM sweeper.policy_status WHERE policy = 'sweeper.cleanup_event'$$);
ALTER SYSTEM SET session_sweeper.cleanup_event_retention = '10h';
SELECT pg_reload_conf();
CALL wait_until($$SELECT next_look < now() + interval '2 min' FROM sweeper.policy_status WHERE policy = 'sweeper.cleanup_event'$$);
ALTER SYSTEM RESET session_sweeper.cleanup_event_retention;
SELECT pg_reload_conf();
-- nobody else's policy may have such a name, and these cannot be taken away
SELECT sweeper.unregister('sweeper.pass');
CREATE TABLE mine (d timestamptz);
SELECT sweeper.register('mine', policy => 'sweeper.mine', deadline => 'd');
DELETE FROM sweeper.cleanup_event WHERE policy = 'old';
DELETE FROM sweeper.pass WHERE policy = 'old';
DROP VIEW evidence;
DROP PROCEDURE wait_until;
DROP TABLE mine;
