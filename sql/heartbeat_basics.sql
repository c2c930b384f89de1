-- Heartbeats: rows live by them, without being written.
CREATE TABLE basket (id uuid PRIMARY KEY, who text, expires_at timestamptz NOT NULL);
CREATE INDEX ON basket (expires_at);
SELECT state FROM sweeper.register('basket', deadline => 'expires_at', ttl => '1 hour', heartbeats => true, check_every => '0', fuse_fraction => 1);
INSERT INTO basket SELECT md5(i::text)::uuid, 'u' || i, now() + interval '14 min' FROM generate_series(1, 5) AS i;
SELECT sweeper.touch('basket', md5('1')::uuid), sweeper.touch('basket', upper(md5('2')::uuid::text)), sweeper.touch('basket', md5('9')::uuid);
-- nothing was written
SELECT count(*) FROM basket WHERE expires_at > now() + interval '15 min';
SELECT sweeper.touch('basket', md5('1')::uuid) FROM generate_series(1, 3);
-- a pass looks ahead and writes the rows of those alive
CALL sweeper.sweep('basket') \gset
SELECT who, expires_at > now() + interval '59 min' AS prolonged FROM basket ORDER BY who;
SELECT expired, refreshed FROM sweeper.stat_policy WHERE policy = 'basket';
-- near its deadline a heartbeat writes its row itself
UPDATE basket SET expires_at = now() + interval '2 min' WHERE who = 'u3';
SELECT sweeper.touch('basket', md5('3')::uuid);
SELECT expires_at > now() + interval '59 min' AS prolonged FROM basket WHERE who = 'u3';
-- the application ends a session by writing its row
UPDATE basket SET expires_at = now() - interval '1 min' WHERE who IN ('u1', 'u4');
SELECT sweeper.is_live('basket', md5('1')::uuid::text), sweeper.is_live('basket', md5('2')::uuid::text);
CALL sweeper.sweep('basket') \gset
SELECT who FROM basket ORDER BY who;
SELECT sweeper.touch('basket', md5('1')::uuid);
SELECT cleanup_type, count(*) FROM sweeper.cleanup_event WHERE policy = 'basket' GROUP BY 1;
SELECT sweeper.unregister('basket');
DROP TABLE basket;
-- who takes heartbeats away has what they said written to the rows
CREATE TABLE crate (id int PRIMARY KEY, other int UNIQUE NOT NULL, d timestamptz NOT NULL);
INSERT INTO crate SELECT i, i + 10, now() FROM generate_series(1, 3) AS i;
CREATE FUNCTION beat() RETURNS void LANGUAGE sql AS $$
    UPDATE crate SET d = now() + interval '20 min';
    SELECT FROM sweeper.register('crate', deadline => 'd', ttl => '1 hour', heartbeats => true, check_every => '0');
$$;
SELECT beat();
SELECT sweeper.touch('crate', 1), sweeper.touch('crate', 3);
SELECT id FROM crate WHERE d > now() + interval '55 min';
SELECT sweeper.unregister('crate');
SELECT id FROM crate WHERE d > now() + interval '55 min' ORDER BY id;
SELECT beat();
SELECT sweeper.touch('crate', 1), sweeper.touch('crate', 3);
SELECT FROM sweeper.alter_policy('crate', key => '{other}');
SELECT id FROM crate WHERE d > now() + interval '55 min' ORDER BY id;
UPDATE crate SET d = now() + interval '20 min';
SELECT sweeper.touch('crate', 12), sweeper.touch('crate', 13);
SELECT FROM sweeper.alter_policy('crate', heartbeats => false);
SELECT id FROM crate WHERE d > now() + interval '55 min' ORDER BY id;
SELECT sweeper.unregister('crate');
-- what cannot be written holds nobody up
SELECT beat();
SELECT sweeper.touch('crate', 1);
CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not now'; END $$;
CREATE TRIGGER no BEFORE UPDATE ON crate FOR EACH ROW EXECUTE FUNCTION no();
SELECT sweeper.unregister('crate');
SELECT count(*) FROM sweeper.policy WHERE policy = 'crate';
DROP TABLE crate;
DROP FUNCTION beat, no;
-- of many, one whose row cannot be written, or that is no key, keeps no other from being heard
CREATE TABLE crate (id int PRIMARY KEY, d timestamptz);
CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not now'; END $$;
CREATE TRIGGER no BEFORE UPDATE ON crate FOR EACH ROW WHEN (old.id = 1) EXECUTE FUNCTION no();
SELECT FROM sweeper.register('crate', deadline => 'd', ttl => '1 hour', heartbeats => true, check_every => '0');
INSERT INTO crate SELECT i, now() + interval '1 min' FROM generate_series(1, 3) AS i;
SELECT * FROM sweeper.touch_many('crate', '{1,x,2,9,99999999999,3}');
SELECT id, d > now() + interval '55 min' AS written FROM crate ORDER BY id;
-- memory knows two of them by now
SELECT * FROM sweeper.touch_many('crate', '{x,1,2,3,9}');
SELECT sweeper.unregister('crate');
DROP TABLE crate;
DROP FUNCTION no;
-- the caller's deferred constraints stay deferred, unless the heartbeat itself leaves something to be checked
CREATE TABLE crate (id int PRIMARY KEY, d timestamptz);
CREATE TABLE parent (id int PRIMARY KEY);
CREATE TABLE child (id int REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
INSERT INTO crate VALUES (1, now() + interval '1 min');
SELECT FROM sweeper.register('crate', deadline => 'd', ttl => '1 hour', heartbeats => true, check_every => '0');
BEGIN;
INSERT INTO child VALUES (1);
SELECT sweeper.touch('crate', 1);
INSERT INTO child VALUES (2);
INSERT INTO parent VALUES (1), (2);
COMMIT;
SELECT d > now() + interval '55 min' AS written FROM crate;
CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'as %', current_user; RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER late AFTER UPDATE ON crate DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION late();
CREATE ROLE regress_beater;
SELECT sweeper.grant_access('regress_beater', 'user');
GRANT SELECT, UPDATE ON crate TO regress_beater;
INSERT INTO crate VALUES (2, now() + interval '1 min');
SET ROLE regress_beater;
SELECT sweeper.touch('crate', 2);
RESET ROLE;
SELECT sweeper.unregister('crate');
SELECT sweeper.revoke_access('regress_beater');
DROP TABLE crate, child, parent;
DROP FUNCTION late;
DROP ROLE regress_beater;
-- a row that says that it lives for ever does
CREATE TABLE eternal (id int PRIMARY KEY, d timestamptz);
SELECT FROM sweeper.register('eternal', deadline => 'd', ttl => '1 hour', heartbeats => true, check_every => '0');
INSERT INTO eternal VALUES (1, NULL), (2, 'infinity');
SELECT sweeper.touch('eternal', id) FROM eternal ORDER BY id;
TABLE eternal;
SELECT sweeper.unregister('eternal');
DROP TABLE eternal;
-- where null means dead, a heartbeat that may be rolled back promises nothing
CREATE TABLE nil (id int PRIMARY KEY, d timestamptz);
SELECT FROM sweeper.register('nil', deadline => 'd', ttl => '1 hour', on_null => 'expire', heartbeats => true, check_every => '0', fuse_fraction => 1);
INSERT INTO nil VALUES (1, NULL), (2, NULL);
SELECT sweeper.touch('nil', 1);
BEGIN;
SELECT sweeper.touch('nil', 2);
ROLLBACK;
SELECT id, sweeper.is_live('nil', id::text) FROM nil ORDER BY id;
CALL sweeper.sweep('nil') \gset
SELECT id, d > now() + interval '59 min' AS written FROM nil ORDER BY id;
SELECT sweeper.unregister('nil');
DROP TABLE nil;
