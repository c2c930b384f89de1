-- What one policy carries over from before, or from row to row.
SET client_min_messages = warning;
-- what alter_policy makes dead counts for the fuse, also while rows that were dead at registration are still there
CREATE TABLE shrunk (id int PRIMARY KEY, seen timestamptz);
CREATE INDEX ON shrunk (seen);
INSERT INTO shrunk SELECT i, now() - CASE WHEN i = 1 THEN interval '20 h' WHEN i <= 200 THEN interval '1 h' ELSE interval '0' END FROM generate_series(1, 500) AS i;
SELECT FROM sweeper.register('shrunk', last_seen => 'seen', ttl => '8 h', check_every => '0', start => 'now', fuse_fraction => 0.3);
SELECT sweeper.alter_policy('shrunk', ttl => '8 min');
CALL sweeper.sweep('shrunk');
SELECT count(*) FROM shrunk;
SELECT sweeper.unregister('shrunk');
DROP TABLE shrunk;
-- what an error says of a credential is not kept
CREATE TABLE levels (id int PRIMARY KEY, v text, d timestamptz);
CREATE INDEX ON levels (d);
SELECT FROM sweeper.register('levels', deadline => 'd', filter => 'v::int = 1', audit => 'hash', check_every => '0', start => 'now', fuse_fraction => 1);
INSERT INTO levels SELECT i, CASE WHEN i > 50 THEN 'junk' ELSE '1' END, now() + CASE WHEN i > 51 THEN interval '10 years' ELSE interval '-1 h' END
FROM generate_series(1, 60) AS i;
ANALYZE levels;
CALL sweeper.sweep('levels', pass => NULL) \gset
SELECT count(*) FILTER (WHERE id <= 50) AS good, count(*) FILTER (WHERE id = 51) AS bad, count(*) FILTER (WHERE id > 51) AS living FROM levels;
SELECT key = encode(sha256('51'), 'hex') AS hashed, class, sqlstate, message FROM sweeper.failed_row WHERE policy = 'levels';
-- nor shown to whoever previews, whatever it says
ALTER TABLE levels ADD token text DEFAULT 'secret';
CREATE FUNCTION tells(text) RETURNS boolean STABLE LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'token %', $1; END $$;
SELECT sweeper.preview('levels');
SELECT sweeper.unregister('levels');
SELECT FROM sweeper.register('levels', deadline => 'd', audit => 'hash', check_every => '0', start => 'paused');
UPDATE sweeper.policy SET filter = 'tells(token)' WHERE policy = 'levels';
SELECT sweeper.preview('levels');
SELECT sweeper.unregister('levels');
DROP FUNCTION tells;
DROP TABLE levels;
-- locks that an expression takes go with the pass, also when it finds nothing to do
CREATE FUNCTION locks(int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM pg_advisory_lock(4343); RETURN false; END $$;
CREATE TABLE locking (id int PRIMARY KEY, d timestamptz);
INSERT INTO locking VALUES (1, now() - interval '1 h');
SELECT FROM sweeper.register('locking', deadline => 'd', filter => 'locks(id)', check_every => '0', start => 'now');
SELECT pg_advisory_unlock_all();
CALL sweeper.sweep('locking', pass => NULL) \gset
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 4343;
SELECT sweeper.unregister('locking');
DROP TABLE locking;
DROP FUNCTION locks;
-- what problem says to paste is one statement, whatever a policy is called
CREATE TABLE renamed_lines (id int PRIMARY KEY, d timestamptz, e timestamptz);
SELECT FROM sweeper.register('renamed_lines', policy => 'two''s; SELECT ''lines''; --', deadline => 'd', check_every => '0', start => 'now');
ALTER TABLE renamed_lines DROP COLUMN d;
CALL sweeper.sweep('two''s; SELECT ''lines''; --');
SELECT next_step FROM sweeper.problem WHERE policy LIKE 'two%' \gexec
SELECT sweeper.unregister(policy) FROM sweeper.policy WHERE policy LIKE 'two%';
DROP TABLE renamed_lines;
CREATE TABLE hooked (id int PRIMARY KEY, d timestamptz);
CREATE FUNCTION "f
; SELECT 'lines'; --"(text[]) RETURNS void LANGUAGE sql AS '';
SELECT FROM sweeper.register('hooked', deadline => 'd', action => 'call', on_expire => E'"f\n; SELECT \'lines\'; --"(text[])', check_every => '0', start => 'now');
DROP FUNCTION "f
; SELECT 'lines'; --"(text[]);
\set VERBOSITY terse
CALL sweeper.sweep('hooked');
\set VERBOSITY default
SELECT next_step FROM sweeper.problem WHERE policy = 'hooked' \gexec
DROP TABLE hooked;
-- a name that can be written in several ways
CREATE TABLE renamed_quoted (id int PRIMARY KEY, d timestamptz, "keep""it" boolean);
INSERT INTO renamed_quoted VALUES (1, now() - interval '1 h', true);
SELECT FROM sweeper.register('renamed_quoted', deadline => 'd', filter => 'NOT "keep""it"', check_every => '0', start => 'now');
ALTER TABLE renamed_quoted RENAME "keep""it" TO kept;
ALTER TABLE renamed_quoted ADD "keep""it" boolean DEFAULT false;
CALL sweeper.sweep('renamed_quoted');
SELECT count(*) FROM renamed_quoted;
SELECT sweeper.unregister('renamed_quoted');
DROP TABLE renamed_quoted;
