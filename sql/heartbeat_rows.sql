-- Rows that the caller must not see, that share a key, or that one transaction writes more than once.
CREATE TABLE booth (id int PRIMARY KEY, who text, d timestamptz NOT NULL);
CREATE INDEX ON booth (d);
CREATE POLICY own ON booth USING (who = current_user);
CREATE ROLE regress_booth;
SELECT sweeper.grant_access('regress_booth', 'user');
GRANT SELECT, UPDATE ON booth TO regress_booth;
SELECT FROM sweeper.register('booth', deadline => 'd', ttl => '1 hour', heartbeats => true, check_every => '0');
INSERT INTO booth VALUES (1, 'bob', now() + interval '1 h'), (2, 'regress_booth', now() + interval '1 h'), (3, 'regress_booth', now() - interval '1 h');
SET ROLE regress_booth;
SELECT i, sweeper.is_live('booth', i::text) FROM generate_series(1, 4) AS i;
RESET ROLE;
ALTER TABLE booth ENABLE ROW LEVEL SECURITY;
SET ROLE regress_booth;
-- row security, which is code of the table's owner, is not asked as the caller
SELECT sweeper.is_live('booth', '2');
SELECT sweeper.touch('booth', '2');
SELECT * FROM sweeper.touch_many('booth', '{2}');
SET row_security = off;
SELECT sweeper.is_live('booth', '2');
RESET row_security;
RESET ROLE;
SELECT i, sweeper.is_live('booth', i::text) FROM generate_series(1, 4) AS i;
SELECT sweeper.unregister('booth');
SELECT sweeper.revoke_access('regress_booth');
DROP TABLE booth;
DROP ROLE regress_booth;
-- a key that rows of two tables have is no session's
CREATE TABLE booth (id int PRIMARY KEY, d timestamptz NOT NULL);
CREATE TABLE stall (PRIMARY KEY (id)) INHERITS (booth);
INSERT INTO booth VALUES (1, now() + interval '20 min'), (2, now() + interval '20 min');
INSERT INTO stall VALUES (1, now() + interval '10 min'), (3, now() + interval '20 min');
CREATE INDEX ON booth (d);
CREATE INDEX ON stall (d);
SELECT FROM sweeper.register('booth', deadline => 'd', ttl => '1 hour', heartbeats => true, check_every => '0');
SELECT sweeper.touch('booth', 1);
SELECT sweeper.touch('booth', 2), sweeper.touch('booth', 3);
SELECT sweeper.unregister('booth');
DROP TABLE booth CASCADE;
-- Heartbeats write a row more than once: what the transaction leaves behind is what memory compares with.
CREATE TABLE booth (id int PRIMARY KEY, d timestamptz NOT NULL);
CREATE INDEX ON booth (d);
SELECT FROM sweeper.register('booth', deadline => 'd', ttl => '1 hour', heartbeats => true, check_every => '0');
CREATE FUNCTION near(int) RETURNS boolean LANGUAGE sql AS $$
    UPDATE booth SET d = now() + interval '1 min' WHERE id = $1; SELECT sweeper.touch('booth', $1); $$;
INSERT INTO booth SELECT i, now() - interval '1 h' FROM generate_series(11, 14) AS i;
-- the second is undone, the first, the first of two levels, none
BEGIN;
SELECT sweeper.touch('booth', 11);
SAVEPOINT a;
SELECT near(11);
ROLLBACK TO a;
SELECT sweeper.touch('booth', 12);
SAVEPOINT b;
SELECT near(12);
SELECT sweeper.touch('booth', 13);
ROLLBACK TO b;
SELECT near(12), near(13);
SAVEPOINT c;
SELECT sweeper.touch('booth', 14);
RELEASE c;
SAVEPOINT d;
SELECT near(14), near(14);
RELEASE d;
COMMIT;
SELECT id FROM booth WHERE d > now() + interval '55 min' ORDER BY id;
-- so the application's word counts
UPDATE booth SET d = now() - interval '1 min';
SELECT id, sweeper.is_live('booth', id::text) FROM booth ORDER BY id;
-- and a heartbeat after the application's own word
INSERT INTO booth VALUES (15, now() + interval '1 min');
BEGIN;
SELECT sweeper.touch('booth', 15);
UPDATE booth SET d = now() + interval '12 min' WHERE id = 15;
SELECT sweeper.touch('booth', 15);
COMMIT;
CALL sweeper.sweep('booth') \gset
SELECT d > now() + interval '55 min' AS refreshed FROM booth WHERE id = 15;
SELECT sweeper.unregister('booth');
DROP TABLE booth;
DROP FUNCTION near;
-- A heartbeat counts by the time to live that others see, until the transaction that changes it commits.
CREATE TABLE passer_by (id int PRIMARY KEY, d timestamptz);
CREATE INDEX ON passer_by (d);
INSERT INTO passer_by VALUES (1, now() + interval '10 min');
CREATE TABLE stand (id int PRIMARY KEY, ttl interval, open boolean DEFAULT true, d timestamptz DEFAULT now() + interval '14 min');
CREATE INDEX ON stand (d);
SELECT FROM sweeper.register('stand', deadline => 'd', ttl => '1 hour', ttl_column => 'ttl', filter => 'open', heartbeats => true, check_every => '0', fuse_fraction => 1);
INSERT INTO stand SELECT i, '1 h' FROM generate_series(1, 6) AS i;
BEGIN;
UPDATE stand SET ttl = '1 s' WHERE id = 1;
UPDATE stand SET ttl = '10 h' WHERE id = 2;
SELECT sweeper.touch('stand', 1), sweeper.touch('stand', 2);
ROLLBACK;
BEGIN;
SAVEPOINT s;
UPDATE stand SET ttl = '1 s' WHERE id = 3;
SELECT sweeper.touch('stand', 3);
ROLLBACK TO s;
COMMIT;
BEGIN;
UPDATE stand SET ttl = '5 h' WHERE id = 4;
SELECT sweeper.touch('stand', 4);
SAVEPOINT s;
UPDATE stand SET ttl = '1 s' WHERE id = 4;
SELECT sweeper.touch('stand', 4);
ROLLBACK TO s;
COMMIT;
BEGIN;
INSERT INTO stand VALUES (7, '5 h');
SAVEPOINT s;
UPDATE stand SET ttl = '1 s' WHERE id = 7;
SELECT sweeper.touch('stand', 7);
ROLLBACK TO s;
COMMIT;
SELECT id FROM stand WHERE NOT sweeper.touch('stand', id);
CALL sweeper.sweep('stand') \gset
SELECT id, ttl, round(extract(epoch FROM d - now()) / 3600, 1) AS hours FROM stand ORDER BY id;
-- one made longer counts from the commit on
INSERT INTO stand VALUES (9, '30 min', true, now() + interval '6 min');
BEGIN;
UPDATE stand SET ttl = '1 h' WHERE id = 9;
SELECT sweeper.touch('stand', 9);
COMMIT;
CALL sweeper.sweep('stand') \gset
SELECT round(extract(epoch FROM d - now()) / 3600, 1) AS hours FROM stand WHERE id = 9;
-- what the filter excludes is gone, and one that a transaction lets in and out again
INSERT INTO stand VALUES (8, '1 h', false);
BEGIN;
UPDATE stand SET open = true WHERE id = 8;
SELECT sweeper.touch('stand', 8);
ROLLBACK;
SELECT sweeper.touch('stand', 8);
-- nor does one count by settings that may be undone
BEGIN;
SELECT FROM sweeper.alter_policy('stand', ttl => '1 s');
SAVEPOINT s;
SELECT sweeper.touch('stand', 5);
ROLLBACK;
BEGIN;
SELECT count(*) = 1 AS registered FROM sweeper.register('passer_by', policy => 'other', deadline => 'd', ttl => '1 hour', heartbeats => true);
SELECT sweeper.touch('other', 1);
ROLLBACK;
SELECT sweeper.touch('stand', 5);
-- heartbeats from within a heartbeat: of a trigger, where the table has changed meanwhile
CREATE FUNCTION keep_alive() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.id > 21 THEN
        EXECUTE format('GRANT %s ON stand TO PUBLIC', CASE NEW.id % 2 WHEN 0 THEN 'SELECT' ELSE 'INSERT' END);
        IF sweeper.touch('stand', NEW.id - 1) IS NULL THEN RAISE 'unknown'; END IF;
    END IF;
    RETURN NEW; END $$;
CREATE TRIGGER keep_alive BEFORE UPDATE ON stand FOR EACH ROW EXECUTE FUNCTION keep_alive();
INSERT INTO stand SELECT i, '1 h', true, now() + interval '1 min' FROM generate_series(21, 26) AS i;
SELECT sweeper.touch('stand', 26);
SELECT array_agg(id ORDER BY id) FROM stand WHERE id > 20 AND d > now() + interval '30 min';
SELECT sweeper.unregister('stand');
DROP TABLE stand, passer_by;
DROP FUNCTION keep_alive;
-- a table that has grown is not read from end to end for each heartbeat
CREATE TABLE ward (id int PRIMARY KEY, d timestamptz NOT NULL DEFAULT now() + interval '20 min') WITH (autovacuum_enabled = false);
CREATE INDEX ON ward (d);
SELECT FROM sweeper.register('ward', deadline => 'd', ttl => '1 hour', heartbeats => true, check_every => '0');
INSERT INTO ward SELECT i FROM generate_series(1, 50) AS i;
ANALYZE ward;
BEGIN;
SELECT bool_and(sweeper.touch('ward', i)) FROM generate_series(1, 3) AS i;
SELECT seq_scan > 0 AS when_small FROM pg_stat_xact_user_tables WHERE relname = 'ward';
COMMIT;
INSERT INTO ward SELECT i FROM generate_series(51, 20000) AS i;
-- a plan is kept for a second
SELECT FROM pg_sleep(1.1);
BEGIN;
SELECT bool_and(sweeper.touch('ward', i)) FROM generate_series(11, 13) AS i;
SELECT seq_scan FROM pg_stat_xact_user_tables WHERE relname = 'ward';
COMMIT;
SELECT sweeper.unregister('ward');
DROP TABLE ward;
-- a deadline that is taken away and given back earlier: the application's word counts
CREATE TABLE perch (id int PRIMARY KEY, d timestamptz);
CREATE INDEX ON perch (d);
SELECT FROM sweeper.register('perch', deadline => 'd', ttl => '1 hour', heartbeats => true, check_every => '0', fuse_fraction => 1);
INSERT INTO perch SELECT i, now() + interval '50 min' FROM generate_series(1, 3) AS i;
SELECT bool_and(sweeper.touch('perch', id)) FROM perch;
BEGIN;
UPDATE perch SET d = NULL WHERE id = 1;
SELECT sweeper.touch('perch', 1);
COMMIT;
UPDATE perch SET d = NULL WHERE id = 2;
SELECT sweeper.touch('perch', 2);
UPDATE perch SET d = now() - interval '1 min';
CALL sweeper.sweep('perch') \gset
SELECT count(*) FROM perch;
SELECT sweeper.unregister('perch');
DROP TABLE perch;
-- triggers that leave something to be checked elsewhere
CREATE TABLE nest (id int PRIMARY KEY, n int, d timestamptz);
CREATE INDEX ON nest (d);
SELECT FROM sweeper.register('nest', deadline => 'd', ttl => '1 hour', heartbeats => true, check_every => '0', fuse_fraction => 1);
CREATE TABLE bird (id int PRIMARY KEY);
CREATE TABLE seen (bird int REFERENCES bird DEFERRABLE INITIALLY DEFERRED);
CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO seen VALUES (NEW.n); RETURN NEW; END $$;
CREATE TRIGGER see BEFORE UPDATE ON nest FOR EACH ROW EXECUTE FUNCTION see();
\set SHOW_CONTEXT never
INSERT INTO bird VALUES (7);
INSERT INTO nest VALUES (2, 7, now() + interval '1 min'), (3, 8, now() + interval '1 min');
SELECT sweeper.touch('nest', 2);
SELECT sweeper.touch('nest', 3);
SELECT id, d > now() + interval '55 min' AS written FROM nest WHERE id > 1 ORDER BY id;
SELECT sweeper.unregister('nest');
\set SHOW_CONTEXT errors
DROP TABLE nest, seen, bird;
DROP FUNCTION see;
-- A row is locked: the pass writes the rows beside it, also where row security is forced on the owner.  A prepared transaction
-- holds the lock.
CREATE ROLE regress_booth;
CREATE TABLE booth (id int PRIMARY KEY, d timestamptz NOT NULL);
CREATE INDEX ON booth (d);
ALTER TABLE booth ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE booth OWNER TO regress_booth;
SELECT FROM sweeper.register('booth', deadline => 'd', ttl => '1 hour', heartbeats => true, check_every => '0', start => 'now');
INSERT INTO booth SELECT i, now() + interval '12 min' FROM generate_series(1, 3) AS i;
SELECT * FROM sweeper.touch_many('booth', '{1,2,3}');
BEGIN;
SELECT id FROM booth WHERE id = 2 FOR UPDATE;
PREPARE TRANSACTION 'regress_booth';
CALL sweeper.sweep('booth') \gset
SELECT id, d > now() + interval '50 min' AS written FROM booth ORDER BY id;
ROLLBACK PREPARED 'regress_booth';
SELECT sweeper.unregister('booth');
SELECT id, d > now() + interval '50 min' AS written FROM booth ORDER BY id;
DROP TABLE booth;
DROP ROLE regress_booth;
-- a new session does not wait for an index that is made again, where memory knows the session
CREATE TABLE quay (id int PRIMARY KEY, d timestamptz NOT NULL, n int);
CREATE INDEX quay_n ON quay (n);
INSERT INTO quay VALUES (1, now() + interval '1 h');
SELECT state FROM sweeper.register('quay', deadline => 'd', ttl => '1 h', heartbeats => true, check_every => '0');
SELECT sweeper.touch('quay', 1);
BEGIN;
REINDEX INDEX quay_n;
PREPARE TRANSACTION 'regress_quay';
\c -
SET statement_timeout = '20 s';
SELECT sweeper.touch('quay', 1);
RESET statement_timeout;
ROLLBACK PREPARED 'regress_quay';
SELECT sweeper.unregister('quay');
DROP TABLE quay;
