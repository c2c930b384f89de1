-- What heartbeats said is in the rows when they are taken away, whatever the rows say.
CREATE TABLE crate (id int PRIMARY KEY, d timestamptz(0), n int NOT NULL DEFAULT 0);
CREATE INDEX ON crate (d);
CREATE FUNCTION fill(text DEFAULT 'true') RETURNS void LANGUAGE sql AS $$
    INSERT INTO crate VALUES (1, now() + interval '12 min'), (2, NULL), (3, '-infinity'), (4, 'infinity'), (5, now() + interval '3 h'),
        (6, now() + interval '20 min') ON CONFLICT (id) DO UPDATE SET d = excluded.d;
    SELECT FROM sweeper.register('crate', deadline => 'd', ttl => '1 hour', heartbeats => true, check_every => '0', filter => $1);
$$;
CREATE VIEW said AS SELECT id, CASE WHEN isfinite(d) THEN date_trunc('hour', d - now() + interval '30 min')::text ELSE d::text END AS about FROM crate;
SELECT fill(); SELECT key, state FROM sweeper.touch_many('crate', '{1,4,5}');
SELECT sweeper.unregister('crate');
-- null and -infinity are no deadlines to prolong, and no reason to end anything here
SELECT * FROM said ORDER BY id;
SELECT fill(); SELECT key, state FROM sweeper.touch_many('crate', '{1,4,5}');
SELECT FROM sweeper.alter_policy('crate', heartbeats => false);
SELECT * FROM said ORDER BY id;
SELECT sweeper.unregister('crate');
-- a heartbeat that its row denies: the application has set the deadline back
SELECT fill(); SELECT key, state FROM sweeper.touch_many('crate', '{1,4,5}');
UPDATE crate SET d = '-infinity' WHERE id = 1;
UPDATE crate SET d = now() + interval '10 min' WHERE id = 5;
SELECT sweeper.unregister('crate');
SELECT * FROM said WHERE id IN (1, 5) ORDER BY id;
-- or has set it beyond all times
SELECT fill(); SELECT key, state FROM sweeper.touch_many('crate', '{1,4,5}');
UPDATE crate SET d = 'infinity' WHERE id = 1;
SELECT sweeper.unregister('crate');
SELECT * FROM said WHERE id = 1;
-- what was said before is not held against what is registered anew
SELECT fill(); SELECT key, state FROM sweeper.touch_many('crate', '{1,4,5}');
SELECT FROM sweeper.alter_policy('crate', heartbeats => false);
UPDATE crate SET d = now() - interval '1 min' WHERE id = 1;
SELECT FROM sweeper.alter_policy('crate', heartbeats => true);
SELECT sweeper.is_live('crate', '1');
SELECT sweeper.unregister('crate');
-- an undone end of a policy is none
SELECT fill(); SELECT key, state FROM sweeper.touch_many('crate', '{1,4,5}');
BEGIN;
SAVEPOINT s;
SELECT sweeper.unregister('crate');
ROLLBACK TO s;
SELECT FROM sweeper.alter_policy('crate', max_lag => '1 h');
COMMIT;
CALL sweeper.sweep('crate') \gset
SELECT * FROM said WHERE id = 1;
SELECT sweeper.unregister('crate');
-- a trigger that keeps a row from being written holds nobody up, and is told
SELECT fill(); SELECT key, state FROM sweeper.touch_many('crate', '{1,4,5}');
UPDATE crate SET d = now() + interval '20 min' WHERE id = 6;
SELECT sweeper.touch('crate', 6);
CREATE FUNCTION keep_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER keep_row BEFORE UPDATE ON crate FOR EACH ROW WHEN (old.id = 6) EXECUTE FUNCTION keep_row();
SELECT sweeper.unregister('crate');
SELECT * FROM said WHERE id IN (1, 6) ORDER BY id;
DROP TRIGGER keep_row ON crate;
-- rows that the filter excludes are not written, and not told of
SELECT fill('n = 0'); SELECT key, state FROM sweeper.touch_many('crate', '{1,4,5}');
UPDATE crate SET n = 1 WHERE id = 1;
SELECT sweeper.unregister('crate');
SELECT * FROM said WHERE id IN (1, 5) ORDER BY id;
DROP VIEW said;
DROP TABLE crate;
DROP FUNCTION fill, keep_row;
-- partitions of another owner are not swept, and keep nobody else's rows from being written
CREATE ROLE regress_crate;
CREATE TABLE crate (id int PRIMARY KEY, d timestamptz NOT NULL) PARTITION BY RANGE (id);
CREATE INDEX ON crate (d);
CREATE TABLE crate_low PARTITION OF crate FOR VALUES FROM (0) TO (10);
CREATE TABLE crate_high PARTITION OF crate FOR VALUES FROM (10) TO (20);
INSERT INTO crate SELECT i, now() + interval '20 min' FROM unnest(ARRAY[1, 11]) AS i;
SELECT FROM sweeper.register('crate', deadline => 'd', ttl => '1 hour', heartbeats => true, check_every => '0');
SELECT sweeper.touch('crate', 1);
ALTER TABLE crate_high OWNER TO regress_crate;
SELECT sweeper.touch('crate', 11);
SELECT sweeper.unregister('crate');
SELECT id FROM crate WHERE d > now() + interval '55 min';
DROP TABLE crate;
DROP ROLE regress_crate;
-- where the filter names a column that has another name, nothing is written, and that is told; so is what cannot be written
CREATE TABLE named (id int PRIMARY KEY, seen timestamptz, kind int NOT NULL DEFAULT 0);
CREATE INDEX ON named (seen);
SELECT FROM sweeper.register('named', last_seen => 'seen', ttl => '1 h', heartbeats => true, check_every => '0', filter => 'kind = 0', start => 'now');
INSERT INTO named SELECT i, now() - interval '50 min' FROM generate_series(1, 3) AS i;
SELECT key, state FROM sweeper.touch_many('named', '{1,2,3}');
UPDATE named SET kind = 1 WHERE id = 3;
BEGIN;
ALTER TABLE named RENAME kind TO sort;
ALTER TABLE named ADD kind int NOT NULL DEFAULT 1;
COMMIT;
SELECT sweeper.touch('named', 3);
SELECT sweeper.is_live('named', '3');
SELECT sweeper.unregister('named');
SELECT id, now() - seen < interval '10 min' AS said FROM named ORDER BY id;
UPDATE named SET seen = now() - interval '50 min';
SELECT FROM sweeper.register('named', last_seen => 'seen', ttl => '1 h', heartbeats => true, check_every => '0', filter => 'kind = 1', start => 'now');
SELECT sweeper.touch('named', 1);
ALTER TABLE named DROP COLUMN kind;
SELECT sweeper.unregister('named');
SELECT FROM sweeper.register('named', last_seen => 'seen', ttl => '1 h', heartbeats => true, check_every => '0', start => 'now');
SELECT sweeper.touch('named', 1);
CREATE ROLE regress_settled;
ALTER TABLE named OWNER TO regress_settled;
SELECT sweeper.unregister('named');
DROP TABLE named;
DROP ROLE regress_settled;
-- a session that may not write the rows: refused, and the heartbeats stay, for a session that may
CREATE ROLE regress_keeper;
CREATE ROLE regress_helper;
GRANT CREATE ON SCHEMA public TO regress_keeper;
SELECT sweeper.grant_access('regress_keeper', 'user');
CREATE TABLE kept (id int PRIMARY KEY, d timestamptz NOT NULL);
CREATE INDEX ON kept (d);
CREATE FUNCTION helped() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN new; END $$;
ALTER FUNCTION helped OWNER TO regress_helper;
CREATE TRIGGER helped BEFORE UPDATE ON kept FOR EACH ROW EXECUTE FUNCTION helped();
ALTER TABLE kept OWNER TO regress_keeper;
INSERT INTO kept VALUES (1, now() + interval '20 min');
SET SESSION AUTHORIZATION regress_keeper;
SELECT FROM sweeper.register('kept', deadline => 'd', ttl => '1 hour', heartbeats => true, check_every => '0', start => 'now');
SELECT sweeper.touch('kept', 1);
\set VERBOSITY terse
BEGIN READ ONLY;
SELECT sweeper.unregister('kept');
ROLLBACK;
RESET SESSION AUTHORIZATION;
SELECT sweeper.unregister('kept');
\set VERBOSITY default
SELECT d > now() + interval '50 min' AS written FROM kept;
SET SESSION AUTHORIZATION regress_keeper;
SELECT sweeper.unregister('kept');
SELECT d > now() + interval '50 min' AS written FROM kept;
RESET SESSION AUTHORIZATION;
DROP TABLE kept;
DROP FUNCTION helped;
SELECT sweeper.revoke_access('regress_keeper');
REVOKE CREATE ON SCHEMA public FROM regress_keeper;
DROP ROLE regress_keeper, regress_helper;
