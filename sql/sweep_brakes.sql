-- Brakes: pause, backlog hold, fuse, disabled.
SET client_min_messages = warning;
CREATE TABLE b (id int PRIMARY KEY, d timestamptz);
CREATE INDEX ON b (d);
INSERT INTO b SELECT i, now() + '1 h'::interval FROM generate_series(1, 400) AS i;
SELECT state FROM sweeper.register('b', deadline => 'd', check_every => '0');
-- nearly all sessions die at once: held, nothing removed
UPDATE b SET d = now() - '1 s'::interval WHERE id <= 390;
CALL sweeper.sweep('b') \gset
SELECT count(*) FROM b;
SELECT brakes, state FROM sweeper.policy_status WHERE policy = 'b';
SELECT severity, problem, next_step FROM sweeper.problem WHERE policy = 'b';
CALL sweeper.sweep('b') \gset
SELECT sweeper.resume('b');
CALL sweeper.sweep('b') \gset
SELECT count(*) FROM b;
-- force opens the fuse
INSERT INTO b SELECT i, now() - '1 ms'::interval FROM generate_series(1001, 1300) AS i;
CALL sweeper.sweep('b', force => true) \gset
SELECT count(*) FROM b;
-- below fuse_min it does not trip
INSERT INTO b SELECT i, now() - '1 ms'::interval FROM generate_series(2001, 2099) AS i;
CALL sweeper.sweep('b') \gset
SELECT count(*) FROM b;
SELECT sweeper.pause('b', 'for a test', now() + '1 h'::interval);
SELECT state, reason FROM sweeper.policy_status WHERE policy = 'b';
SELECT sweeper.pause_all('all of them');
SELECT policy, state FROM sweeper.policy_status WHERE policy <> 'sweeper.usage_event' ORDER BY policy;
SELECT sweeper.resume_all();
SELECT policy, state FROM sweeper.policy_status WHERE policy <> 'sweeper.usage_event' ORDER BY policy;
SELECT sweeper.unregister('b');
-- a large backlog at registration waits for a word
TRUNCATE b;
INSERT INTO b SELECT i, now() - '1 h'::interval FROM generate_series(1, 12000) AS i;
ANALYZE b;
SET client_min_messages = notice;
SELECT state FROM sweeper.register('b', deadline => 'd', check_every => '0', backlog_rate => 0);
SET client_min_messages = warning;
CALL sweeper.sweep('b') \gset
SELECT sweeper.resume('b');
CALL sweeper.sweep('b') \gset
SELECT count(*) FROM b;
SELECT backlog_before IS NULL AS drained FROM sweeper.policy WHERE policy = 'b';
SELECT sweeper.unregister('b');
DROP TABLE b;
-- who commits a prepared transaction tells nobody of policies that it changed
CREATE TABLE two_phase (id int PRIMARY KEY, d timestamptz);
SELECT FROM sweeper.register('two_phase', deadline => 'd', check_every => '0', start => 'now');
BEGIN;
SELECT sweeper.pause('two_phase');
PREPARE TRANSACTION 'pause';
BEGIN;
SELECT sweeper.unregister('two_phase');
PREPARE TRANSACTION 'unregister';
SELECT policy, paused_at IS NULL AS sweeps FROM sweeper.policy WHERE policy = 'two_phase';
BEGIN;
INSERT INTO two_phase VALUES (1, now());
PREPARE TRANSACTION 'rows';
COMMIT PREPARED 'rows';
SELECT sweeper.unregister('two_phase');
DROP TABLE two_phase;
