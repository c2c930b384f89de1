-- One bad row costs its neighbours nothing; when all fail, the policy is at fault.
SET client_min_messages = warning;
CREATE TABLE f (id int PRIMARY KEY, d timestamptz);
CREATE INDEX ON f (d);
INSERT INTO f SELECT i, now() - '1 min'::interval FROM generate_series(1, 2000) AS i;
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF OLD.id % 100 = 0 THEN RAISE EXCEPTION 'row % will not go', OLD.id; END IF; RETURN OLD; END $$;
CREATE TRIGGER refuse BEFORE DELETE ON f FOR EACH ROW EXECUTE FUNCTION refuse();
SELECT state FROM sweeper.register('f', policy => 'flaky', deadline => 'd', check_every => '0', start => 'now', max_retries => 0, fuse_fraction => 1);
CALL sweeper.sweep('flaky') \gset
SELECT count(*), bool_and(id % 100 = 0) FROM f;
SELECT count(*), state, class, sqlstate FROM sweeper.failed_row GROUP BY 2, 3, 4;
SELECT expired, failed, status FROM sweeper.pass WHERE policy = 'flaky';
SELECT count(*) FROM sweeper.cleanup_event WHERE policy = 'flaky';
SELECT severity, problem, next_step FROM sweeper.problem WHERE policy = 'flaky';
-- quarantined rows do not hold up new ones, and are not tried again
INSERT INTO f VALUES (5001, now() - '1 h'::interval);
CALL sweeper.sweep('flaky') \gset
SELECT count(*) FROM f;
SELECT failed FROM sweeper.pass WHERE policy = 'flaky' ORDER BY pass DESC LIMIT 1;
-- a changed row lapses its entry; resume lifts the quarantine
UPDATE f SET d = now() - '30 s'::interval WHERE id = 100;
SELECT sweeper.resume('flaky');
DROP TRIGGER refuse ON f;
CALL sweeper.sweep('flaky') \gset
SELECT count(*) FROM f;
SELECT count(*) FROM sweeper.failed_row;
-- all rows fail alike: nothing is quarantined, the policy backs off and says why
INSERT INTO f SELECT i, now() - '1 min'::interval FROM generate_series(1, 500) AS i;
CREATE FUNCTION refuse_all() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'closed on Sundays'; END $$;
CREATE TRIGGER refuse BEFORE DELETE ON f FOR EACH ROW EXECUTE FUNCTION refuse_all();
CALL sweeper.sweep('flaky') \gset
SELECT count(*) FROM f;
SELECT count(*) FROM sweeper.failed_row;
SELECT brakes, last_error FROM sweeper.policy_status WHERE policy = 'flaky';
SELECT status, sqlstate, error FROM sweeper.pass WHERE policy = 'flaky' ORDER BY pass DESC LIMIT 1;
-- a missing table in a trigger is the policy's fault at once
CREATE OR REPLACE FUNCTION refuse_all() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO not_there VALUES (1); RETURN OLD; END $$;
SELECT sweeper.resume('flaky');
CALL sweeper.sweep('flaky') \gset
SELECT count(*) FROM f;
SELECT failures, last_sqlstate, last_error FROM sweeper.policy WHERE policy = 'flaky';
-- a trigger that keeps rows silently
CREATE OR REPLACE FUNCTION refuse_all() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN CASE WHEN OLD.id > 3 THEN OLD END; END $$;
SELECT sweeper.resume('flaky');
CALL sweeper.sweep('flaky') \gset
SELECT id FROM f;
SELECT key, class FROM sweeper.failed_row ORDER BY key;
SELECT sweeper.unregister('flaky');
DROP TABLE f;
DROP FUNCTION refuse, refuse_all;
