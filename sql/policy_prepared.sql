-- A transaction that changes policies can be prepared: others notice at COMMIT PREPARED, in whatever session, and never after ROLLBACK PREPARED.
SET client_min_messages = warning;
CREATE PROCEDURE wait_until(query text) LANGUAGE plpgsql AS $$ DECLARE ok boolean := false; BEGIN
    FOR i IN 1 .. 3000 LOOP
        EXECUTE query INTO ok;
        COMMIT;
        EXIT WHEN ok;
        PERFORM pg_sleep(0.02);
    END LOOP;
    ASSERT ok, query;
END $$;
CREATE TABLE two_phase (id int PRIMARY KEY, d timestamptz);
CREATE INDEX ON two_phase (d);
INSERT INTO two_phase VALUES (1, now()), (2, now() + interval '1 hour');
-- register
BEGIN;
SELECT FROM sweeper.register('two_phase', deadline => 'd', start => 'now');
PREPARE TRANSACTION 'register';
SELECT policy FROM sweeper.policy WHERE policy = 'two_phase';
ROLLBACK PREPARED 'register';
SELECT policy FROM sweeper.policy WHERE policy = 'two_phase';
BEGIN;
SELECT FROM sweeper.register('two_phase', deadline => 'd', heartbeats => true, ttl => '1 hour', start => 'now');
PREPARE TRANSACTION 'register';
COMMIT PREPARED 'register';
CALL wait_until('SELECT count(*) = 1 FROM two_phase');
-- memory knows the row; then the policy has another filter
SELECT sweeper.touch('two_phase', 2);
BEGIN;
SELECT sweeper.alter_policy('two_phase', filter => 'id <> 2');
PREPARE TRANSACTION 'alter';
SELECT sweeper.touch('two_phase', 2);
COMMIT PREPARED 'alter';
SELECT sweeper.touch('two_phase', 2);
-- pause
INSERT INTO two_phase VALUES (3, now() + interval '1 hour');
BEGIN;
SELECT sweeper.pause('two_phase');
PREPARE TRANSACTION 'pause';
SELECT state = 'paused' AS paused FROM sweeper.policy_status WHERE policy = 'two_phase';
COMMIT PREPARED 'pause';
CALL wait_until($$SELECT state = 'paused' FROM sweeper.policy_status WHERE policy = 'two_phase'$$);
-- unregister
BEGIN;
SELECT sweeper.unregister('two_phase');
PREPARE TRANSACTION 'unregister';
SELECT policy FROM sweeper.policy WHERE policy = 'two_phase';
COMMIT PREPARED 'unregister';
CALL wait_until($$SELECT count(*) = 0 FROM sweeper.policy_status WHERE policy = 'two_phase'$$);
SELECT sweeper.touch('two_phase', 3);
DROP TABLE two_phase;
DROP PROCEDURE wait_until;
