-- Which keys, policies and callers heartbeats are for, and what everybody else is told.
SET client_min_messages = warning;
CREATE FUNCTION try(command text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    result text;
BEGIN
    EXECUTE command INTO result;
    RETURN coalesce(result, 'null');
EXCEPTION WHEN OTHERS THEN
    RETURN sqlstate || ': ' || sqlerrm;
END $$;

-- Every spelling of a key reaches the same session
CREATE TABLE by_uuid (k uuid PRIMARY KEY, d timestamptz NOT NULL DEFAULT now() + interval '50 min');
CREATE TABLE by_int (k int PRIMARY KEY, d timestamptz NOT NULL DEFAULT now() + interval '50 min');
CREATE TABLE by_big (k bigint PRIMARY KEY, d timestamptz NOT NULL DEFAULT now() + interval '50 min');
CREATE TABLE by_small (k smallint PRIMARY KEY, d timestamptz NOT NULL DEFAULT now() + interval '50 min');
CREATE TABLE by_text (k text PRIMARY KEY, d timestamptz NOT NULL DEFAULT now() + interval '50 min');
CREATE TABLE by_char (k char(8) PRIMARY KEY, d timestamptz NOT NULL DEFAULT now() + interval '50 min');
CREATE TABLE by_date (k date PRIMARY KEY, d timestamptz NOT NULL DEFAULT now() + interval '50 min');
CREATE TABLE by_time (k timestamptz PRIMARY KEY, d timestamptz NOT NULL DEFAULT now() + interval '50 min');
CREATE TABLE by_bytes (k bytea PRIMARY KEY, d timestamptz NOT NULL DEFAULT now() + interval '50 min');
CREATE TABLE by_bool (k boolean PRIMARY KEY, d timestamptz NOT NULL DEFAULT now() + interval '50 min');
CREATE TYPE colour AS ENUM ('red', 'Green');
CREATE TABLE by_enum (k colour PRIMARY KEY, d timestamptz NOT NULL DEFAULT now() + interval '50 min');
CREATE DOMAIN token AS text CHECK (length(value) > 2);
CREATE TABLE by_domain (k token PRIMARY KEY, d timestamptz NOT NULL DEFAULT now() + interval '50 min');
CREATE TABLE by_two (a int, b text, d timestamptz NOT NULL DEFAULT now() + interval '50 min', PRIMARY KEY (a, b));
CREATE TABLE by_dates (a date, b char(4), d timestamptz NOT NULL DEFAULT now() + interval '50 min', PRIMARY KEY (b, a));
SELECT count(*) FROM unnest('{by_uuid,by_int,by_big,by_small,by_text,by_char,by_date,by_time,by_bytes,by_bool,by_enum,by_domain,by_two,by_dates}'::regclass[]) AS r,
    LATERAL sweeper.register(r, deadline => 'd', ttl => '1 hour', heartbeats => true, check_every => '0', fuse_fraction => 1) AS p;
INSERT INTO by_uuid VALUES ('0f3a5b6c-7d8e-4f90-a1b2-c3d4e5f60718');
INSERT INTO by_int VALUES (7), (-3);
INSERT INTO by_big VALUES (7), (9000000000);
INSERT INTO by_small VALUES (7);
INSERT INTO by_text VALUES ('Abc'), (' x '), ('');
INSERT INTO by_char VALUES ('ab');
INSERT INTO by_date VALUES ('2024-03-05');
INSERT INTO by_time VALUES ('2024-03-05 12:00+00');
INSERT INTO by_bytes VALUES ('\x00ff');
INSERT INTO by_bool VALUES (true);
INSERT INTO by_enum VALUES ('Green');
INSERT INTO by_domain VALUES ('abc');
INSERT INTO by_two VALUES (7, 'a,b "c"'), (8, '');
INSERT INTO by_dates VALUES ('2024-03-05', 'x');
SET DateStyle = 'German'; SET TimeZone = 'Asia/Tokyo'; SET bytea_output = 'escape';
SELECT sweeper.touch('by_uuid', '0F3A5B6C7D8E4F90A1B2C3D4E5F60718'), sweeper.touch('by_int', '007'), sweeper.touch('by_int', ' -3 '),
    sweeper.touch('by_big', '+7'), sweeper.touch('by_big', 9000000000), sweeper.touch('by_small', '07'), sweeper.touch('by_text', 'Abc'),
    sweeper.touch('by_text', ' x '), sweeper.touch('by_text', ''), sweeper.touch('by_char', 'ab      ');
SELECT sweeper.touch('by_date', '2024-03-05'), sweeper.touch('by_time', '2024-03-05 21:00+09'), sweeper.touch('by_bytes', '\000\377'), sweeper.touch('by_bool', 'yes'),
    sweeper.touch('by_enum', 'Green'), sweeper.touch('by_domain', 'abc'), sweeper.touch('by_two', '(007,"a,b ""c""")'), sweeper.touch('by_two', '(8,"")'),
    sweeper.touch('by_dates', '("x   ",2024-03-05)');
RESET DateStyle; RESET TimeZone; RESET bytea_output;
DELETE FROM by_uuid; DELETE FROM by_int; DELETE FROM by_big; DELETE FROM by_small; DELETE FROM by_text; DELETE FROM by_char; DELETE FROM by_date;
DELETE FROM by_time; DELETE FROM by_bytes; DELETE FROM by_bool; DELETE FROM by_enum; DELETE FROM by_domain; DELETE FROM by_two; DELETE FROM by_dates;
-- the rows are gone, and memory does not know that: whatever is true now was found there
SELECT sweeper.touch('by_uuid', '{0f3a5b6c-7d8e-4f90-a1b2-c3d4e5f60718}'), sweeper.touch('by_uuid', '0f3a5b6c-7d8e-4f90-a1b2-c3d4e5f60718'::uuid),
    sweeper.touch('by_int', 7), sweeper.touch('by_int', '-03'), sweeper.touch('by_big', 7), sweeper.touch('by_big', '9000000000'), sweeper.touch('by_small', 7),
    sweeper.touch('by_text', 'Abc'), sweeper.touch('by_text', ' x '), sweeper.touch('by_text', ''), sweeper.touch('by_char', 'ab');
SELECT sweeper.touch('by_date', '2024-03-05'), sweeper.touch('by_date', 'March 5, 2024'), sweeper.touch('by_time', '2024-03-05 13:00+01'), sweeper.touch('by_bytes', '\x00FF'),
    sweeper.touch('by_bool', 'on'), sweeper.touch('by_enum', 'Green'), sweeper.touch('by_domain', 'abc'), sweeper.touch('by_two', '( 7,a\,b \"c\")'),
    sweeper.touch('by_dates', '(x,2024-03-05)');
-- evidence has the text that memory has: the type's output, and char(n) without its padding
INSERT INTO by_dates VALUES ('2024-03-05', 'x');
INSERT INTO by_char VALUES ('ab');
INSERT INTO by_bool VALUES (true);
INSERT INTO by_enum VALUES ('Green');
SELECT sweeper.expire('by_dates', '{"(x,2024-03-05)"}') AS dates, sweeper.expire('by_char', '{ab}') AS char, sweeper.expire('by_bool', '{yes}') AS bool, sweeper.expire('by_enum', '{Green}') AS enum;
SELECT policy, key FROM sweeper.cleanup_event WHERE policy IN ('by_dates', 'by_char', 'by_bool', 'by_enum') ORDER BY 1;
-- a key's text is read in ISO style and UTC, as evidence has it, whatever the session has
INSERT INTO by_time VALUES ('2026-02-01 05:00+00');
SET DateStyle = 'SQL, DMY'; SET TimeZone = 'America/New_York';
SELECT sweeper.touch('by_time', '2026-02-01 05:00'), sweeper.is_live('by_time', '2026-02-01 05:00');
SELECT * FROM sweeper.touch_many('by_time', '{2026-02-01 05:00,2026-02-02 05:00,31.31.2026}');
SELECT found, verdict FROM sweeper.explain_row('by_time', '2026-02-01 05:00');
SELECT sweeper.expire('by_time', '{2026-02-01 05:00}');
RESET DateStyle; RESET TimeZone;
SELECT key FROM sweeper.cleanup_event WHERE policy = 'by_time';
-- a key that is null since is no session's, and holds up nobody
CREATE TABLE by_null (k uuid NOT NULL UNIQUE, n int, d timestamptz NOT NULL DEFAULT now() - interval '50 min');
SELECT FROM sweeper.register('by_null', deadline => 'd', ttl => '1 hour', heartbeats => true, check_every => '0', fuse_fraction => 1, start => 'now');
ALTER TABLE by_null ALTER k DROP NOT NULL;
INSERT INTO by_null VALUES (NULL, 1), ('0f3a5b6c-7d8e-4f90-a1b2-c3d4e5f60718', 2), (NULL, 3);
CALL sweeper.sweep('by_null') \gset
SELECT n FROM by_null;
SELECT sweeper.unregister('by_null');
DROP TABLE by_null;
-- others are other sessions
SELECT sweeper.touch('by_text', 'abc'), sweeper.touch('by_text', 'x'), sweeper.touch('by_int', 70), sweeper.touch('by_big', 8), sweeper.touch('by_char', ' ab'),
    sweeper.touch('by_date', '2024-05-03'), sweeper.touch('by_bool', 'off'), sweeper.touch('by_two', '(7,"a,b c")');

-- How clients call it: literals, untyped parameters, prepared or not
PREPARE beat AS SELECT sweeper.touch('by_int', $1);
INSERT INTO by_int VALUES (7);
EXECUTE beat('7');
EXECUTE beat('007');
PREPARE beats AS SELECT * FROM sweeper.touch_many('by_int', $1);
EXECUTE beats('{7,8,007,9}');
PREPARE two AS SELECT sweeper.touch($1, $2), sweeper.is_live($1, $2);
EXECUTE two('by_int', '07');
SELECT * FROM sweeper.touch_many('by_int', '{}');
SELECT key, state FROM sweeper.touch_many('by_two', '{"(7,x)","(8,y)"}');
SELECT * FROM sweeper.touch_many('by_text', '{" x ",y,null2,y}');

-- What is no key, and what is no call
SELECT c, try(c) FROM unnest(ARRAY[
    $$SELECT sweeper.touch('by_int', 'seven')$$, $$SELECT sweeper.touch('by_int', 9000000000)$$, $$SELECT sweeper.touch('by_uuid', 7)$$,
    $$SELECT sweeper.touch('by_two', '7')$$, $$SELECT sweeper.touch('by_two', '(1,2,3)')$$, $$SELECT sweeper.touch('by_enum', 'green')$$,
    $$SELECT sweeper.touch('by_date', '2024-02-30')$$, $$SELECT sweeper.touch('by_int', '')$$,
    $$SELECT sweeper.touch(null, '7')$$, $$SELECT sweeper.touch('by_int', null::text)$$, $$SELECT sweeper.touch('nobody', 7)$$,
    $$SELECT * FROM sweeper.touch_many('by_int', null)$$, $$SELECT * FROM sweeper.touch_many('by_int', '{7,null}')$$, $$SELECT * FROM sweeper.touch_many('by_int', '{7,x}')$$,
    $$SELECT sweeper.is_live('by_int', null)$$, $$SELECT sweeper.is_live(null, '7')$$, $$SELECT sweeper.is_live('by_int', 'x')$$, $$SELECT sweeper.is_live('nobody', '7')$$]) AS c;
-- a bad key: how it is written
SELECT sweeper.touch('by_uuid', 'x');
SELECT sweeper.touch('by_two', '(1)');
BEGIN READ ONLY;
SELECT sweeper.touch('by_int', 7);
ROLLBACK;
BEGIN READ ONLY;
SELECT sweeper.is_live('by_int', '7');
COMMIT;

-- Keys whose equal values print differently cannot be; nor can policies without a time to live, or a column to write
CREATE TABLE by_numeric (k numeric PRIMARY KEY, d timestamptz NOT NULL);
CREATE TABLE by_float (k float8 PRIMARY KEY, d timestamptz NOT NULL);
CREATE TABLE by_interval (k interval PRIMARY KEY, d timestamptz NOT NULL);
CREATE TABLE by_json (k jsonb PRIMARY KEY, d timestamptz NOT NULL);
CREATE COLLATION any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE by_any_case (k text COLLATE any_case PRIMARY KEY, d timestamptz NOT NULL);
CREATE TABLE by_one_bad (a int, k numeric, d timestamptz NOT NULL, PRIMARY KEY (a, k));
CREATE TABLE no_key (k int, d timestamptz NOT NULL);
CREATE TABLE plain (k int PRIMARY KEY, d timestamptz NOT NULL, seen timestamptz);
CREATE FUNCTION lives(text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
SELECT r, try(format($$SELECT state FROM sweeper.register(%L, deadline => 'd', ttl => '1 hour', heartbeats => true)$$, r))
    FROM unnest('{by_numeric,by_float,by_interval,by_json,by_any_case,by_one_bad,no_key}'::text[]) AS r;
SELECT try($$SELECT state FROM sweeper.register('plain', deadline => 'd', heartbeats => true)$$);
SELECT try($$SELECT state FROM sweeper.register('plain', deadline => 'd + interval ''1 min''', ttl => '1 hour', heartbeats => true)$$);
SELECT try($$SELECT state FROM sweeper.register('plain', deadline => 'd', ttl => '1 hour', is_alive => 'lives(text)', heartbeats => true)$$);
-- and the same when a policy is altered
SELECT state FROM sweeper.register('by_numeric', deadline => 'd', ttl => '1 hour', check_every => '0');
SELECT state FROM sweeper.register('plain', deadline => 'd', check_every => '0');
SELECT try($$SELECT sweeper.alter_policy('by_numeric', heartbeats => true)$$), try($$SELECT sweeper.alter_policy('plain', heartbeats => true)$$);
SELECT try($$SELECT sweeper.touch('plain', 1)$$);
SELECT sweeper.alter_policy('plain', ttl => '1 hour', heartbeats => true);
INSERT INTO plain VALUES (1, now() + interval '50 min');
SELECT sweeper.touch('plain', 1), sweeper.touch('plain', 2);
SELECT try($$SELECT sweeper.alter_policy('plain', reset => '{ttl}')$$), try($$SELECT sweeper.alter_policy('plain', is_alive => 'lives(text)')$$);

-- Rights: level user, and UPDATE on the table
CREATE ROLE beat_nobody; CREATE ROLE beat_reader; CREATE ROLE beat_writer;
SELECT sweeper.grant_access('beat_reader', 'user'), sweeper.grant_access('beat_writer', 'user');
GRANT SELECT ON plain TO beat_nobody, beat_reader; GRANT UPDATE ON plain TO beat_nobody, beat_writer;
SET ROLE beat_nobody;
SELECT try($$SELECT sweeper.touch('plain', 1)$$);
SET ROLE beat_reader;
SELECT try($$SELECT sweeper.touch('plain', 1)$$), try($$SELECT sweeper.is_live('plain', '1')$$);
SET ROLE beat_writer;
SELECT try($$SELECT sweeper.touch('plain', 1)$$), try($$SELECT sweeper.touch('plain', 2)$$), try($$SELECT sweeper.is_live('plain', '1')$$);
-- a right that is taken away counts at once, although memory knows the session
RESET ROLE; REVOKE UPDATE ON plain FROM beat_writer; SET ROLE beat_writer;
SELECT try($$SELECT sweeper.touch('plain', 1)$$);
RESET ROLE;
SELECT sweeper.revoke_access('beat_reader'), sweeper.revoke_access('beat_writer');
REVOKE ALL ON plain FROM beat_nobody, beat_reader, beat_writer;
DROP ROLE beat_nobody, beat_reader, beat_writer;

-- Ways to say when a row is dead.  Row 1 is due soon and rescued by a pass, 2 is overdue and writes itself, 3 is overdue and goes.
CREATE TABLE w_seen (id int PRIMARY KEY, seen timestamptz);
CREATE TABLE w_own (id int PRIMARY KEY, seen timestamptz, ttl interval DEFAULT '1 hour');
CREATE TABLE w_both (id int PRIMARY KEY, d timestamptz, ttl interval DEFAULT '1 hour');
CREATE TABLE w_epoch (id int PRIMARY KEY, d bigint);
CREATE TABLE w_ms (id int PRIMARY KEY, d bigint);
CREATE TABLE w_local (id int PRIMARY KEY, d timestamp);
CREATE TABLE w_parts (id int PRIMARY KEY, d timestamptz) PARTITION BY RANGE (id);
CREATE TABLE w_part1 PARTITION OF w_parts FOR VALUES FROM (1) TO (2);
CREATE TABLE w_part2 PARTITION OF w_parts FOR VALUES FROM (2) TO (9);
INSERT INTO w_seen SELECT i, now() - ago FROM unnest('{50 min,65 min,65 min}'::interval[]) WITH ORDINALITY AS u (ago, i);
INSERT INTO w_own SELECT id, seen FROM w_seen;
INSERT INTO w_both SELECT id, seen + interval '1 hour' FROM w_seen;
INSERT INTO w_parts SELECT id, seen + interval '1 hour' FROM w_seen;
INSERT INTO w_local SELECT id, (seen + interval '1 hour') AT TIME ZONE 'Asia/Tokyo' FROM w_seen;
INSERT INTO w_epoch SELECT id, extract(epoch FROM seen + interval '1 hour') FROM w_seen;
INSERT INTO w_ms SELECT id, 1000 * extract(epoch FROM seen + interval '1 hour') FROM w_seen;
SELECT count(*) FROM sweeper.register('w_seen', last_seen => 'seen', ttl => '1 hour', heartbeats => true, check_every => '0', fuse_fraction => 1) AS a,
    sweeper.register('w_own', last_seen => 'seen', ttl_column => 'ttl', heartbeats => true, check_every => '0', fuse_fraction => 1) AS b,
    sweeper.register('w_both', deadline => 'd', ttl_column => 'ttl', heartbeats => true, check_every => '0', fuse_fraction => 1) AS c,
    sweeper.register('w_epoch', deadline => 'd', unit => 's', ttl => '1 hour', heartbeats => true, check_every => '0', fuse_fraction => 1) AS d,
    sweeper.register('w_ms', deadline => 'd', unit => 'ms', ttl => '1 hour', heartbeats => true, check_every => '0', fuse_fraction => 1) AS e,
    sweeper.register('w_local', deadline => 'd', timezone => 'Asia/Tokyo', ttl => '1 hour', heartbeats => true, check_every => '0', fuse_fraction => 1) AS f,
    sweeper.register('w_parts', deadline => 'd', ttl => '1 hour', heartbeats => true, check_every => '0', fuse_fraction => 1) AS g;
CREATE VIEW w AS
    SELECT 'w_seen' AS w, id, seen + interval '1 hour' AS due FROM w_seen UNION ALL SELECT 'w_own', id, seen + ttl FROM w_own UNION ALL
    SELECT 'w_both', id, d FROM w_both UNION ALL SELECT 'w_epoch', id, to_timestamp(d) FROM w_epoch UNION ALL SELECT 'w_ms', id, to_timestamp(d / 1000.0) FROM w_ms UNION ALL
    SELECT 'w_local', id, d AT TIME ZONE 'Asia/Tokyo' FROM w_local UNION ALL SELECT 'w_parts', id, d FROM w_parts;
-- a pass of the coordinator may refresh rows at any time
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT w, sweeper.touch(w, 1), sweeper.touch(w, 2), sweeper.touch(w, 4) AS none FROM (SELECT DISTINCT w FROM w) AS s ORDER BY w;
SELECT w, array_agg(id ORDER BY id) FILTER (WHERE due > now() + interval '59 min') AS written, array_agg(id ORDER BY id) FILTER (WHERE sweeper.is_live(w, id::text)) AS live FROM w GROUP BY w ORDER BY w;
COMMIT;
CALL sweeper.sweep('w_seen') \gset
CALL sweeper.sweep('w_own') \gset
CALL sweeper.sweep('w_both') \gset
CALL sweeper.sweep('w_epoch') \gset
CALL sweeper.sweep('w_ms') \gset
CALL sweeper.sweep('w_local') \gset
CALL sweeper.sweep('w_parts') \gset
SELECT w, array_agg(id ORDER BY id) FILTER (WHERE due > now() + interval '59 min') AS written, array_agg(id ORDER BY id) AS there FROM w GROUP BY w ORDER BY w;
-- a row's own time to live, also when it is none
UPDATE w_own SET ttl = '2 hours' WHERE id = 2;
INSERT INTO w_both VALUES (5, now() + interval '10 min', '3 hours'), (6, now() + interval '10 min', null), (7, now() - interval '1 min', '0'), (8, 'infinity', '1 hour');
SELECT i, sweeper.touch('w_both', i) FROM generate_series(5, 8) AS i;
CALL sweeper.sweep('w_both') \gset
SELECT id, d > now() + interval '2 hours 59 min' AS three FROM w_both WHERE id > 4 ORDER BY id;

-- The filter, the absolute limit and the time that the dead are kept: a heartbeat prolongs none of them
CREATE TABLE limited (id int PRIMARY KEY, d timestamptz, made timestamptz DEFAULT now(), swept boolean DEFAULT true);
SELECT state FROM sweeper.register('limited', deadline => 'd', ttl => '1 hour', created => 'made', max_age => '1 day', filter => 'swept', keep_for => '10 min',
    heartbeats => true, check_every => '0', fuse_fraction => 1);
INSERT INTO limited VALUES (1, now() + interval '5 min', now() - interval '2 days', true), (2, now() + interval '5 min', now(), false), (3, now() - interval '5 min', now(), true),
    (4, now() - interval '15 min', now(), true), (5, now() + interval '5 min', now(), true), (6, now() + interval '50 min', now() - interval '25 h', true);
SELECT i, sweeper.touch('limited', i), sweeper.is_live('limited', i::text) FROM generate_series(1, 6) AS i;
CALL sweeper.sweep('limited') \gset
SELECT id, d > now() + interval '59 min' AS prolonged FROM limited ORDER BY id;
SELECT i, sweeper.touch('limited', i) FROM generate_series(1, 6) AS i;
-- one that memory knows is held to its limit, too
UPDATE limited SET made = now() - interval '2 days' WHERE id = 5;
CALL sweeper.sweep('limited') \gset
SELECT sweeper.touch('limited', 5), count(*) FROM limited WHERE id = 5;

-- A table that cannot be written as it is
CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER keep BEFORE UPDATE ON plain FOR EACH ROW EXECUTE FUNCTION keep();
INSERT INTO plain VALUES (3, now() - interval '1 s');
SELECT try($$SELECT sweeper.touch('plain', 3)$$);
DROP TRIGGER keep ON plain;
SELECT sweeper.touch('plain', 3);
-- a paused policy takes heartbeats, one whose table is another's does not
SELECT sweeper.pause('plain');
SELECT sweeper.touch('plain', 3);
SELECT sweeper.resume('plain');
CREATE ROLE beat_owner;
ALTER TABLE plain OWNER TO beat_owner;
SELECT try($$SELECT sweeper.touch('plain', 3)$$), try($$SELECT sweeper.is_live('plain', '3')$$);
DROP TABLE plain;
SELECT try($$SELECT sweeper.touch('plain', 3)$$);
DROP ROLE beat_owner;
-- dead rows that are kept are dead, also where each has a time to live of its own
CREATE TABLE kept (id int PRIMARY KEY, seen timestamptz, ttl interval);
SELECT state FROM sweeper.register('kept', last_seen => 'seen', ttl_column => 'ttl', keep_for => '10 min', check_every => '0', start => 'now');
INSERT INTO kept VALUES (1, now() - interval '5 min', '1 min'), (2, now(), '1 min');
SELECT id, sweeper.is_live('kept', id::text) FROM kept ORDER BY id;
SELECT sweeper.unregister('kept');
DROP TABLE kept;
SELECT count(sweeper.unregister(policy)) > 20 AS unregistered FROM sweeper.policy WHERE heartbeats AND policy ~ '^(by_|w_|limited|plain)' OR policy = 'by_numeric';
-- a key that heartbeats would change is none
CREATE TABLE shifting (id int, d timestamptz, PRIMARY KEY (id, d));
SELECT FROM sweeper.register('shifting', deadline => 'd', ttl => '1 h', heartbeats => true);
DROP TABLE shifting;
