-- Recognising session tables: overrides, doubts, and what is said about it.
SET timezone = 'UTC'; SET datestyle = 'ISO, YMD'; SET intervalstyle = 'postgres';
CREATE SCHEMA shop;
SET search_path = shop, public;
SELECT preset, columns, key, settings FROM sweeper.preset WHERE preset IN ('connect_pg_simple', 'django', 'spring_session') ORDER BY preset;
CREATE TABLE "Sessions" (sid varchar NOT NULL COLLATE "default" PRIMARY KEY, sess jsonb NOT NULL, expire timestamp(6) NOT NULL);
CREATE INDEX ON "Sessions" (expire);
INSERT INTO "Sessions" SELECT i::text, '{}', now() + (i - 4) * interval '1 min' FROM generate_series(1, 10) AS i;
CREATE TABLE no_key (sid varchar NOT NULL, sess json NOT NULL, expire timestamp NOT NULL);
CREATE TABLE naive (session_key varchar(40) PRIMARY KEY, session_data text, expire_date date);
CREATE TABLE spring_session (primary_id char(36) PRIMARY KEY, session_id char(36) NOT NULL UNIQUE, creation_time bigint NOT NULL, last_access_time bigint NOT NULL,
    max_inactive_interval int NOT NULL, expiry_time bigint NOT NULL, principal_name varchar(100));
CREATE TABLE spring_session_attributes (session_primary_id char(36) NOT NULL REFERENCES spring_session ON DELETE CASCADE, attribute_name varchar(200) NOT NULL,
    attribute_bytes bytea NOT NULL, PRIMARY KEY (session_primary_id, attribute_name));
SELECT relation, preset, registered FROM sweeper.adoptable WHERE relation::text NOT LIKE 'public.%' ORDER BY 1;
-- a dry run says all of it and writes nothing; keys are shown hashed
SELECT policy, state, dead_estimate, length(sample_keys[1]) AS digits FROM sweeper.adopt('"Sessions"', dry_run => true);
SELECT registered FROM sweeper.adoptable WHERE relation = '"Sessions"'::regclass;
-- the zone set for the owner, or for the database, or given
DO $$ BEGIN EXECUTE format('ALTER ROLE %I IN DATABASE %I SET timezone = ''Asia/Tokyo''', (SELECT rolname FROM pg_roles WHERE oid = (SELECT relowner FROM pg_class WHERE oid = 'shop."Sessions"'::regclass)), current_database()); END $$;
SELECT dead_estimate FROM sweeper.adopt('"Sessions"', dry_run => true);
SELECT dead_estimate FROM sweeper.adopt('"Sessions"', timezone => 'America/New_York', dry_run => true);
\set VERBOSITY terse
SELECT sweeper.register('"Sessions"', deadline => 'expire');
\set VERBOSITY default
DO $$ BEGIN EXECUTE format('ALTER ROLE %I IN DATABASE %I RESET timezone', (SELECT rolname FROM pg_roles WHERE oid = (SELECT relowner FROM pg_class WHERE oid = 'shop."Sessions"'::regclass)), current_database()); END $$;
-- overrides
SELECT policy, state FROM sweeper.adopt('"Sessions"', policy => 'shop', audit => 'row', keep_for => '1 h', check_every => '0', start => 'paused');
SELECT deadline, timezone, audit, keep_for, check_every, key FROM sweeper.policy WHERE policy = 'shop';
SELECT relation FROM sweeper.adoptable WHERE registered AND relation = '"Sessions"'::regclass;
SELECT sweeper.adopt('"Sessions"', policy => 'shop');
SELECT sweeper.unregister('shop');
INSERT INTO spring_session SELECT i, i, e, e, 1800, e + 1800000, NULL FROM generate_series(1, 5) AS i, LATERAL (SELECT (extract(epoch FROM now()) * 1000)::bigint - i * 1000000 AS e) AS e;
INSERT INTO spring_session_attributes SELECT i, a, '' FROM generate_series(1, 5) AS i, unnest('{x,y}'::text[]) AS a;
CREATE INDEX ON spring_session (expiry_time);
SELECT dead_estimate, cascade_rows_per_parent > 0 AS cascades, index_used FROM sweeper.adopt('spring_session', start => 'paused');
SELECT deadline, unit, audit, key FROM sweeper.policy WHERE policy = 'shop.spring_session';
-- activity instead of the preset's deadline
SELECT dead_estimate FROM sweeper.adopt('spring_session', policy => 'idle', last_seen => 'last_access_time', ttl_column => 'max_inactive_interval', dry_run => true);
-- doubts
SELECT sweeper.adopt('no_key');
SELECT sweeper.adopt('naive');
SELECT sweeper.adopt('naive', preset => 'django');
SELECT sweeper.adopt('naive', preset => 'djanko');
SELECT sweeper.adopt(NULL);
SELECT sweeper.adopt('sweeper.adoptable');
BEGIN;
INSERT INTO sweeper.preset SELECT 'house_sessions', columns, key, settings, 'our own sessions' FROM sweeper.preset WHERE preset = 'connect_pg_simple';
SELECT relation, preset FROM sweeper.adoptable WHERE relation = '"Sessions"'::regclass ORDER BY 2;
SAVEPOINT s;
SELECT sweeper.adopt('"Sessions"');
ROLLBACK TO s;
SELECT state FROM sweeper.adopt('"Sessions"', preset => 'house_sessions');
ROLLBACK;
CREATE ROLE regress_guest;
CREATE ROLE regress_host;
ALTER TABLE "Sessions" OWNER TO regress_host;
GRANT USAGE ON SCHEMA shop TO regress_guest;
SELECT FROM sweeper.grant_access('regress_guest', 'user');
SET ROLE regress_guest;
SELECT sweeper.adopt('"Sessions"');
RESET ROLE;
SELECT FROM sweeper.revoke_access('regress_guest');
REVOKE ALL ON SCHEMA shop FROM regress_guest;
SELECT sweeper.unregister('shop.spring_session');
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA shop CASCADE;
DROP ROLE regress_guest, regress_host;
