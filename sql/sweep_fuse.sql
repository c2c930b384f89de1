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
-- nobody lets them go in passing, not even where all else continues
SELECT sweeper.pause_all('incident');
SELECT * FROM sweeper.resume_all() WHERE policy = 'b';
SELECT brakes FROM sweeper.policy_status WHERE policy = 'b';
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
SELECT * FROM sweeper.resume_all() WHERE policy = 'b';
SELECT sweeper.resume('b');
CALL sweeper.sweep('b') \gset
SELECT count(*) FROM b;
SELECT backlog_before IS NULL AS drained FROM sweeper.policy WHERE policy = 'b';
SELECT sweeper.unregister('b');
DROP TABLE b;
-- The fuse looks at groups too, and only at rows that take part.
CREATE TABLE f (id int PRIMARY KEY, tenant text, d timestamptz, ended boolean DEFAULT false) PARTITION BY HASH (id);
CREATE TABLE f_0 PARTITION OF f FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE f_1 PARTITION OF f FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE INDEX ON f (d);
INSERT INTO f SELECT i, 'tenant ' || i % 10, now() + interval '1 h' FROM generate_series(1, 4000) AS i;
ANALYZE f;
SELECT policy FROM sweeper.register('f', deadline => 'd', group_by => 'tenant', filter => 'NOT ended', action => 'update',
    set_clause => 'ended = true', check_every => '0');
-- 10 % of everything, but nearly all of one tenant
UPDATE f SET d = now() WHERE tenant = 'tenant 3' AND id <= 3500;
CALL sweeper.sweep('f') \gset
SELECT count(*) FROM f WHERE ended;
SELECT "group", detail, held_until - held_at BETWEEN '1 h' AND '61 min' AS an_hour FROM sweeper.fuse_hold;
SELECT state, brakes, reason FROM sweeper.policy_status WHERE policy = 'f';
SELECT regexp_replace(detail, 'until [^.]*', 'until ...') AS detail, next_step FROM sweeper.problem WHERE policy = 'f';
-- while it is paused too, nothing expires: no critical problem, and what ends the pause says so
BEGIN;
SELECT sweeper.pause('f');
SELECT severity, regexp_replace(detail, 'until [^.]*', 'until ...') AS detail, next_step FROM sweeper.problem WHERE policy = 'f';
SELECT state, next_step FROM sweeper.policy_status WHERE policy = 'f';
SELECT sweeper.pause('f', until => now() + interval '1 day');
SELECT severity, regexp_replace(detail, 'until [^.:]*:[^.:]*:[^.:]*', 'until ...', 'g') AS detail FROM sweeper.problem WHERE policy = 'f';
ROLLBACK;
SELECT state, verdict, reason, hint FROM sweeper.explain_row('f', '13');
-- others go in the same pass, and in later ones
UPDATE f SET d = now() WHERE id IN (1, 2, 23);
CALL sweeper.sweep('f', pass => NULL) \gset
SELECT string_agg(id::text, ',' ORDER BY id) FROM f WHERE ended;
SELECT verdict FROM unnest('{1,23}'::text[]) AS k, sweeper.explain_row('f', k);
SELECT sweeper.resume('f', 'tenant 4');
SELECT sweeper.resume('f', 'tenant 3');
CALL sweeper.sweep('f', pass => NULL) \gset
SELECT count(*) FROM f WHERE ended;
SELECT count(*) FROM sweeper.fuse_hold;
-- half of each is not too much
UPDATE f SET d = now() WHERE id <= 2000 AND tenant <> 'tenant 3';
CALL sweeper.sweep('f', pass => NULL) \gset
SELECT count(*) FROM f WHERE ended;
-- rows that ended long ago are no sessions that stay alive
UPDATE f SET d = now() WHERE id > 2000 AND tenant IN ('tenant 1', 'tenant 2', 'tenant 4', 'tenant 5', 'tenant 6', 'tenant 7');
CALL sweeper.sweep('f') \gset
-- rows without a group are none
SELECT sweeper.resume('f');
CALL sweeper.sweep('f', pass => NULL) \gset
TRUNCATE f;
INSERT INTO f SELECT i, CASE WHEN i > 150 THEN 'a' END, now() + CASE WHEN i > 150 THEN 1 ELSE 0 END * interval '1 h' FROM generate_series(1, 1000) AS i;
CALL sweeper.sweep('f', pass => NULL) \gset
SELECT count(*) FROM f WHERE ended;
SELECT sweeper.unregister('f');
DROP TABLE f;
-- rows that lost their deadline count like others: first the fuse, then, lifted, they go
CREATE TABLE f (id int PRIMARY KEY, d timestamptz, wide text);
INSERT INTO f SELECT i, now() + interval '1 h', repeat('x', 500) FROM generate_series(1, 1000) AS i;
SELECT policy FROM sweeper.register('f', deadline => 'd', on_null => 'expire', check_every => '0', start => 'now');
CALL sweeper.sweep('f', pass => NULL) \gset
UPDATE f SET d = NULL WHERE id <= 700;
CALL sweeper.sweep('f') \gset
SELECT count(*) FROM f;
SELECT sweeper.resume('f');
CALL sweeper.sweep('f', pass => NULL) \gset
SELECT count(*) FROM f;
UPDATE f SET d = NULL WHERE id <= 900;
CALL sweeper.sweep('f') \gset
SELECT count(*) FROM f;
SELECT sweeper.unregister('f');
-- those that had none at registration are its backlog
UPDATE f SET d = NULL WHERE id <= 850;
SELECT policy, dead_estimate FROM sweeper.register('f', deadline => 'd', on_null => 'expire', check_every => '0', start => 'now');
CALL sweeper.sweep('f', pass => NULL) \gset
SELECT count(*) FROM f;
-- a table that was never analysed is estimated far too small
TRUNCATE f;
ALTER TABLE f SET (autovacuum_enabled = off);
SELECT sweeper.unregister('f');
INSERT INTO f SELECT i, now() + interval '1 h' FROM generate_series(1, 20000) AS i;
ALTER TABLE f ADD c1 text, ADD c2 text, ADD c3 text, ADD c4 text, ADD c5 text, ADD c6 text, ADD c7 text, ADD c8 text;
SELECT policy FROM sweeper.register('f', deadline => 'd', check_every => '0');
UPDATE f SET d = now() WHERE id <= 15000;
CALL sweeper.sweep('f') \gset
SELECT count(*) FROM f;
SELECT sweeper.unregister('f');
DROP TABLE f;
-- dead by both clocks, a row counts once
CREATE TABLE f (id int PRIMARY KEY, d timestamptz, made timestamptz DEFAULT now());
INSERT INTO f SELECT i, now() + interval '1 h' FROM generate_series(1, 160) AS i;
SELECT policy FROM sweeper.register('f', deadline => 'd', created => 'made', max_age => '1 h', check_every => '0');
CALL sweeper.sweep('f', pass => NULL) \gset
UPDATE f SET d = now(), made = now() - interval '1 h' WHERE id <= 60;
CALL sweeper.sweep('f', pass => NULL) \gset
SELECT count(*) FROM f;
UPDATE f SET d = now(), made = now() - interval '1 h';
SELECT sweeper.alter_policy('f', fuse_min => 100);
CALL sweeper.sweep('f') \gset
SELECT sweeper.unregister('f');
-- a row without a deadline, which is ignored, is no session that stays alive
TRUNCATE f;
INSERT INTO f SELECT i, CASE WHEN i <= 1000 THEN now() + interval '1 h' END FROM generate_series(1, 3000) AS i;
SELECT policy FROM sweeper.register('f', deadline => 'd', check_every => '0');
CALL sweeper.sweep('f', pass => NULL) \gset
UPDATE f SET d = now() WHERE d IS NOT NULL;
CALL sweeper.sweep('f') \gset
SELECT sweeper.unregister('f');
DROP TABLE f;
-- what lifted the fuse once does not hold for later accidents
CREATE TABLE f (id int PRIMARY KEY, d timestamptz);
INSERT INTO f SELECT i, now() + interval '1 h' FROM generate_series(1, 1000) AS i;
SELECT policy FROM sweeper.register('f', deadline => 'd', check_every => '0', max_retries => 0);
UPDATE f SET d = now() WHERE id <= 600;
CALL sweeper.sweep('f') \gset
SELECT sweeper.resume('f');
CALL sweeper.sweep('f', pass => NULL) \gset
SELECT count(*) FROM f;
INSERT INTO f SELECT i, now() + interval '1 h' FROM generate_series(2001, 3000) AS i;
UPDATE f SET d = to_timestamp(extract(epoch FROM d) / 1000);
CALL sweeper.sweep('f') \gset
SELECT count(*) FROM f;
-- rows that are left alone take no part: 150 that cannot go do not hold the others
UPDATE f SET d = now() + interval '1 h';
SELECT sweeper.resume('f');
CREATE FUNCTION stay() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF OLD.id BETWEEN 2001 AND 2150 THEN RAISE EXCEPTION 'it stays'; END IF; RETURN OLD; END $$;
CREATE TRIGGER stay BEFORE DELETE ON f FOR EACH ROW EXECUTE FUNCTION stay();
UPDATE f SET d = now() WHERE id BETWEEN 2001 AND 2400;
CALL sweeper.sweep('f', pass => NULL) \gset
SELECT count(*) FROM sweeper.failed_row WHERE policy = 'f';
DELETE FROM f WHERE id > 2500 OR id < 2001;
UPDATE f SET d = now() WHERE id = 2450;
CALL sweeper.sweep('f', pass => NULL) \gset
SELECT count(*) FROM f WHERE id = 2450;
SELECT sweeper.unregister('f');
DROP TABLE f;
DROP FUNCTION stay;
-- held once, all that is due goes at the end of the hold, also what fell due in it; a pass that fails loses nothing of that
CREATE TABLE f (id int PRIMARY KEY, d timestamptz);
CREATE INDEX ON f (d);
INSERT INTO f SELECT i, now() + interval '1 h' FROM generate_series(1, 1000) AS i;
SELECT policy FROM sweeper.register('f', deadline => 'd', check_every => '0');
UPDATE f SET d = now() WHERE id <= 700;
CALL sweeper.sweep('f') \gset
UPDATE f SET d = now() WHERE id <= 950;
CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE insufficient_privilege; END $$;
CREATE TRIGGER fail BEFORE DELETE ON f FOR EACH ROW EXECUTE FUNCTION fail();
UPDATE sweeper.fuse_hold SET held_until = now();
SELECT sweeper.alter_policy('f', max_lag => '2 min');
CALL sweeper.sweep('f') \gset
SELECT sweeper.resume('f');
DROP TRIGGER fail ON f;
DROP FUNCTION fail;
CALL sweeper.sweep('f', pass => NULL) \gset
SELECT count(*) FROM f;
SELECT count(*) FROM sweeper.fuse_hold;
-- what dies later counts again
INSERT INTO f SELECT i, now() FROM generate_series(1001, 1200) AS i;
CALL sweeper.sweep('f') \gset
SELECT count(*) FROM f;
-- it does, too, after a look that found nothing to do
UPDATE f SET d = now() + interval '1 h';
SELECT sweeper.resume('f');
CALL sweeper.sweep('f', pass => NULL) \gset
UPDATE f SET d = now();
CALL sweeper.sweep('f') \gset
SELECT count(*) FROM f;
SELECT sweeper.unregister('f');
DROP TABLE f;
-- what a throttled pass goes on with is not counted again for each refill
CREATE TABLE f (id int PRIMARY KEY, d timestamptz) WITH (autovacuum_enabled = off);
CREATE INDEX ON f (d);
INSERT INTO f SELECT i, now() + interval '1 h' FROM generate_series(1, 2000) AS i;
CREATE SEQUENCE alive;
CREATE FUNCTION count_alive(d timestamptz) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN
    IF d > clock_timestamp() THEN PERFORM nextval('public.alive'); END IF; RETURN true; END $$;
SELECT policy FROM sweeper.register('f', deadline => 'd', filter => 'count_alive(d)', rate_limit => 200, start => 'now', check_every => '100 ms');
CALL sweeper.sweep('f', pass => NULL) \gset
SELECT setval('alive', 1) \gset
UPDATE f SET d = now() WHERE id <= 500;
DO $$ BEGIN
    FOR i IN 1 .. 1000 LOOP
        EXIT WHEN NOT EXISTS (SELECT FROM f WHERE id <= 500);
        PERFORM pg_sleep(0.06);
    END LOOP;
END $$;
SELECT count(*) FROM f;
SELECT last_value >= 500 AS counted, last_value <= 1000 AS once FROM alive;
SELECT sweeper.unregister('f');
DROP TABLE f;
DROP FUNCTION count_alive;
DROP SEQUENCE alive;
-- more suspected groups than are looked at together: none loses too much, then the last in order would
CREATE TABLE f (id int PRIMARY KEY, tenant text, d timestamptz) WITH (autovacuum_enabled = off);
INSERT INTO f SELECT i, i % 12000, now() + interval '1 h' FROM generate_series(0, 23999) AS i;
SELECT policy FROM sweeper.register('f', deadline => 'd', group_by => 'tenant', fuse_min => 1, check_every => '0');
UPDATE f SET d = now() WHERE id < 12000;
CALL sweeper.sweep('f', pass => NULL) \gset
SELECT count(*) FROM f;
INSERT INTO f SELECT i, i, now() FROM generate_series(0, 11999) AS i;
INSERT INTO f SELECT i, NULL, now() + interval '1 h' FROM generate_series(24000, 24010) AS i;
UPDATE f SET d = now() WHERE tenant = '9999';
CALL sweeper.sweep('f') \gset
SELECT count(*) FROM f;
SELECT sweeper.unregister('f');
DROP TABLE f;
-- Confirmed, a pile goes, and so does what it brings about while it is worked on: that is no look which found nothing wrong.
CREATE TABLE pile (id int PRIMARY KEY, d timestamptz);
CREATE INDEX ON pile (d);
CREATE FUNCTION follow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM pg_sleep(0.001);
    INSERT INTO pile VALUES (OLD.id + 1000, clock_timestamp());
    RETURN OLD;
END $$;
CREATE TRIGGER follow BEFORE DELETE ON pile FOR EACH ROW WHEN (OLD.id <= 300) EXECUTE FUNCTION follow();
CREATE FUNCTION await(what text) RETURNS void LANGUAGE plpgsql AS $$ DECLARE done boolean; BEGIN
    FOR i IN 1 .. 6000 LOOP
        EXECUTE 'SELECT ' || what INTO done;
        IF done THEN RETURN; END IF;
        PERFORM pg_sleep(0.01);
    END LOOP;
    RAISE EXCEPTION 'timed out: %', what;
END $$;
SELECT FROM sweeper.register('pile', deadline => 'd', check_every => '50 ms', start => 'now');
INSERT INTO pile SELECT i, now() FROM generate_series(1, 300) AS i;
SELECT await('EXISTS (SELECT FROM sweeper.fuse_hold WHERE held_until > now())');
SELECT sweeper.resume('pile');
SELECT await('NOT EXISTS (SELECT FROM pile)');
SELECT count(*) FROM sweeper.policy_change WHERE policy = 'pile' AND change = 'fuse';
-- what comes after a look that found nothing due is stopped again
SELECT await('NOT EXISTS (SELECT FROM sweeper.fuse_hold)');
INSERT INTO pile SELECT i, now() FROM generate_series(1001, 1300) AS i;
SELECT await('EXISTS (SELECT FROM sweeper.fuse_hold WHERE held_until > now())');
SELECT sweeper.unregister('pile');
DROP TABLE pile;
DROP FUNCTION follow, await;
-- what a change of the policy makes dead counts: a typing error ends nobody
CREATE TABLE al (id int PRIMARY KEY, seen timestamptz);
INSERT INTO al SELECT i, now() - CASE WHEN i <= 240 THEN interval '1 h' ELSE interval '0' END FROM generate_series(1, 500) AS i;
INSERT INTO al SELECT i, now() - interval '9 h' FROM generate_series(501, 600) AS i;
SELECT dead_estimate FROM sweeper.register('al', last_seen => 'seen', ttl => '8 h', check_every => '0', fuse_fraction => 0.3);
CALL sweeper.sweep('al') \gset
SELECT count(*) FROM al;
SELECT sweeper.alter_policy('al', ttl => '8 min');
CALL sweeper.sweep('al') \gset
SELECT count(*) FROM al;
SELECT sweeper.alter_policy('al', ttl => '8 h');
SELECT sweeper.resume('al');
CALL sweeper.sweep('al') \gset
SELECT count(*) FROM al;
-- confirmed, it goes
SELECT sweeper.alter_policy('al', ttl => '8 min');
CALL sweeper.sweep('al') \gset
SELECT sweeper.resume('al');
CALL sweeper.sweep('al') \gset
SELECT count(*) FROM al;
SELECT sweeper.unregister('al');
DROP TABLE al;
-- Rows that is_alive speaks for do not count; those it does not, do.
CREATE TABLE asked (id int PRIMARY KEY, d timestamptz, alive boolean);
CREATE INDEX ON asked (d);
CREATE FUNCTION asked_alive(text) RETURNS boolean LANGUAGE sql AS $$ SELECT alive FROM asked WHERE id = $1::int $$;
SELECT state FROM sweeper.register('asked', deadline => 'd', ttl => '1 h', is_alive => 'asked_alive(text)', check_every => '0');
INSERT INTO asked SELECT i, now() - interval '1 min', i > 10 FROM generate_series(1, 400) AS i;
CALL sweeper.sweep('asked') \gset
SELECT count(*), bool_and(d > now()) AS refreshed, NOT EXISTS (SELECT FROM sweeper.fuse_hold WHERE held_until > now()) AS no_fuse FROM asked;
UPDATE asked SET d = now() - interval '1 min', alive = id % 10 = 0;
\set VERBOSITY terse
CALL sweeper.sweep('asked') \gset
\set VERBOSITY default
SELECT count(*), (SELECT detail FROM sweeper.fuse_hold) AS fuse FROM asked;
-- nor does it bite where is_alive says nothing of anybody
SELECT sweeper.resume('asked');
CALL sweeper.sweep('asked') \gset
UPDATE asked SET d = now() - interval '1 min', alive = NULL;
CALL sweeper.sweep('asked') \gset
SELECT count(*), NOT EXISTS (SELECT FROM sweeper.fuse_hold WHERE held_until > now()) AS no_fuse FROM asked;
-- rows that are not due are alive, too: with enough of them the dead go, else all are left
TRUNCATE asked;
INSERT INTO asked SELECT i, now() + CASE WHEN i > 120 THEN interval '1 h' ELSE '-1 min' END, false FROM generate_series(1, 300) AS i;
CALL sweeper.sweep('asked') \gset
SELECT count(*), NOT EXISTS (SELECT FROM sweeper.fuse_hold WHERE held_until > now()) AS no_fuse FROM asked;
TRUNCATE asked;
INSERT INTO asked SELECT i, now() + CASE WHEN i > 120 THEN interval '1 h' ELSE '-1 min' END, false FROM generate_series(1, 170) AS i;
\set VERBOSITY terse
CALL sweeper.sweep('asked') \gset
\set VERBOSITY default
SELECT count(*), (SELECT detail FROM sweeper.fuse_hold) AS fuse FROM asked;
-- one that hangs is known to be of those that are asked: the others' answers count
TRUNCATE asked;
INSERT INTO asked SELECT i, now() - interval '1 min' FROM generate_series(1, 200) AS i;
CREATE TABLE hangs AS SELECT id FROM asked ORDER BY hashtid(ctid) OFFSET 4 LIMIT 1;
CREATE OR REPLACE FUNCTION asked_alive(key text) RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN IF EXISTS (SELECT FROM hangs WHERE id = key::int) THEN PERFORM pg_sleep(60); END IF; RETURN true; END $$;
SELECT sweeper.resume('asked');
SELECT sweeper.alter_policy('asked', soft_time_limit => '2 s', hard_time_limit => '3 s');
\set VERBOSITY terse
CALL sweeper.sweep('asked') \gset
CALL sweeper.sweep('asked') \gset
\set VERBOSITY default
SELECT count(*), count(*) FILTER (WHERE d > now()) = count(*) - 1 AS all_but_one, NOT EXISTS (SELECT FROM sweeper.fuse_hold WHERE held_until > now()) AS no_fuse FROM asked;
SELECT class, sqlstate, key = (SELECT id::text FROM hangs) AS that FROM sweeper.failed_row;
DROP TABLE hangs;
SELECT sweeper.unregister('asked');
-- rows that were dead at registration do not count; those that fell due later do
TRUNCATE asked;
INSERT INTO asked SELECT i, now() - interval '1 h' FROM generate_series(1, 700) AS i;
CREATE OR REPLACE FUNCTION asked_alive(key text) RETURNS boolean LANGUAGE sql AS 'SELECT false';
SELECT FROM sweeper.register('asked', deadline => 'd', ttl => '1 h', is_alive => 'asked_alive(text)', check_every => '0', start => 'now');
UPDATE sweeper.policy SET backlog_before = now() - interval '30 min' WHERE policy = 'asked';
INSERT INTO asked SELECT i, now() - interval '1 min' FROM generate_series(1001, 1090) AS i;
CALL sweeper.sweep('asked') \gset
SELECT count(*) FROM asked;
INSERT INTO asked SELECT i, now() - interval '1 min' FROM generate_series(2001, 2200) AS i;
\set VERBOSITY terse
CALL sweeper.sweep('asked') \gset
\set VERBOSITY default
SELECT count(*), (SELECT detail FROM sweeper.fuse_hold) AS fuse FROM asked;
SELECT sweeper.unregister('asked');
DROP TABLE asked;
DROP FUNCTION asked_alive;
-- Groups that lose little each are also tested together; more than 64 that trip are the whole policy.
CREATE TABLE many (id int PRIMARY KEY, tenant int, d timestamptz);
CREATE INDEX ON many (d);
SELECT state FROM sweeper.register('many', deadline => 'd', group_by => 'tenant', check_every => '0');
INSERT INTO many SELECT i, i % 30, now() + CASE WHEN i > 120 THEN interval '1 h' ELSE '0' END FROM generate_series(1, 200) AS i;
\set VERBOSITY terse
CALL sweeper.sweep('many') \gset
SELECT "group", detail FROM sweeper.fuse_hold;
SELECT sweeper.resume('many', '3');
SELECT sweeper.resume('many');
CALL sweeper.sweep('many') \gset
SELECT count(*) FROM many;
UPDATE many SET d = now() + interval '1 h';
CALL sweeper.sweep('many') \gset
SELECT sweeper.alter_policy('many', fuse_min => 2);
INSERT INTO many SELECT i, i % 64 + 100, now() FROM generate_series(1001, 1200) AS i;
INSERT INTO many SELECT i, -1, now() + interval '1 h' FROM generate_series(2001, 2300) AS i;
CALL sweeper.sweep('many') \gset
SELECT count(*), count("group") FROM sweeper.fuse_hold;
INSERT INTO many SELECT i, 200, now() FROM generate_series(1201, 1210) AS i;
CALL sweeper.sweep('many') \gset
SELECT count(*), count("group") FROM sweeper.fuse_hold;
SELECT state FROM sweeper.policy_status WHERE policy = 'many';
SELECT sweeper.unregister('many');
SELECT count(*) FROM sweeper.fuse_hold;
DROP TABLE many;
-- A row that cannot be computed hides from the fuse neither the others nor what it holds.
CREATE TABLE odd (id int PRIMARY KEY, tenant int, d timestamptz, v text);
CREATE INDEX ON odd (d);
SELECT state FROM sweeper.register('odd', deadline => 'd', filter => 'v::int > 0', group_by => 'tenant', check_every => '0');
INSERT INTO odd SELECT i, i % 2, now() + CASE WHEN i % 2 = 0 THEN '0' ELSE interval '1 h' END, '1' FROM generate_series(1, 300) AS i;
INSERT INTO odd VALUES (1000, 1, now() - interval '1 h', 'x');
CALL sweeper.sweep('odd') \gset
SELECT "group" FROM sweeper.fuse_hold;
UPDATE odd SET d = now() WHERE id = 1;
INSERT INTO odd VALUES (1001, 1, now() - interval '1 h', 'y');
CALL sweeper.sweep('odd') \gset
SELECT count(*) FROM odd;
SELECT key, state FROM sweeper.failed_row ORDER BY key;
SELECT sweeper.unregister('odd');
DROP TABLE odd;
-- two workers with lists of their own: what one still asks about counts for the other, too
CREATE TABLE crowd (id int PRIMARY KEY, d timestamptz);
CREATE INDEX ON crowd (d);
CREATE FUNCTION crowd_alive(keys text[]) RETURNS boolean[] LANGUAGE plpgsql AS $$ BEGIN
    PERFORM pg_sleep(0.5); RETURN array_fill(false, ARRAY[cardinality(keys)]); END $$;
SELECT FROM sweeper.register('crowd', deadline => 'd', ttl => '1 h', is_alive => 'crowd_alive(text[])', check_every => '0', max_workers => 2);
INSERT INTO crowd SELECT i, now() + CASE WHEN i > 1050 THEN interval '1 h' ELSE '-1 min' END FROM generate_series(1, 1350) AS i;
\set VERBOSITY terse
CALL sweeper.sweep('crowd') \gset
\set VERBOSITY default
-- how many it has counted by then depends on the two
SELECT count(*), (SELECT detail ~ '^the pass would expire 1\d\d\d rows and leave [1-3]\d\d alive$' FROM sweeper.fuse_hold) AS fuse FROM crowd;
SELECT sweeper.unregister('crowd');
DROP TABLE crowd;
DROP FUNCTION crowd_alive;
-- the name of a group that is held stands in statements, and means nothing there
CREATE TABLE marked (id int PRIMARY KEY, d timestamptz, tenant text);
CREATE INDEX ON marked (d);
SELECT state FROM sweeper.register('marked', deadline => 'd', group_by => 'tenant', check_every => '0');
INSERT INTO marked SELECT i, now(), E'/*session_sweeper OID 1*/\\''' FROM generate_series(1, 150) AS i;
INSERT INTO marked SELECT i, now() + interval '1 h', 'good' FROM generate_series(1000, 2000) AS i;
CALL sweeper.sweep('marked') \gset
SELECT "group", rows FROM sweeper.fuse_hold;
UPDATE marked SET d = now() WHERE id = 1000;
CALL sweeper.sweep('marked') \gset
SELECT count(*), count(*) FILTER (WHERE tenant <> 'good') AS held FROM marked;
SELECT state, last_error FROM sweeper.policy_status WHERE policy = 'marked';
SELECT sweeper.unregister('marked');
DROP TABLE marked;
-- a very long name is neither in the log nor in what is to be pasted
CREATE TABLE lengthy (id int PRIMARY KEY, d timestamptz, tenant text);
SELECT state FROM sweeper.register('lengthy', deadline => 'd', group_by => 'tenant', check_every => '0');
INSERT INTO lengthy SELECT i, now(), repeat('x', 100000) FROM generate_series(1, 150) AS i;
CALL sweeper.sweep('lengthy') \gset
SELECT length("group"), rows FROM sweeper.fuse_hold;
SELECT length(next_step) < 500 AS short, next_step LIKE '%lengthy%' AS named FROM sweeper.problem WHERE policy = 'lengthy' AND problem = 'fuse';
SELECT sweeper.unregister('lengthy');
DROP TABLE lengthy;
