-- Code of a table's owner runs with the owner's rights, never more.
SET client_min_messages = warning;
CREATE ROLE regress_mallory;
CREATE ROLE regress_watcher;
CREATE ROLE regress_chief;
GRANT CREATE ON SCHEMA public TO regress_mallory;
-- without a level nothing is callable
SET ROLE regress_mallory;
SELECT sweeper.pause_all();
RESET ROLE;
SELECT sweeper.grant_access('regress_mallory', 'user');
SELECT sweeper.grant_access('regress_watcher', 'monitor');
SELECT sweeper.grant_access('regress_chief', 'admin');
SELECT sweeper.grant_access('regress_chief', 'root');
CREATE TABLE mine (id int PRIMARY KEY, d timestamptz);
SET ROLE regress_mallory;
SELECT sweeper.register('mine', deadline => 'd');
CREATE TABLE evil (id int PRIMARY KEY, d timestamptz);
CREATE TABLE seen (who text, path text, what text);
INSERT INTO evil VALUES (1, now() - '1 min'::interval), (2, now() - '1 min'::interval);
CREATE FUNCTION try(sql text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
    EXECUTE sql; RETURN 'succeeded'; EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE; END $$;
CREATE FUNCTION attack() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO public.seen SELECT current_user, current_setting('search_path'), what || ': ' || public.try(what) FROM unnest(ARRAY[
        'ALTER ROLE regress_mallory SUPERUSER', 'SET ROLE postgres', 'SET SESSION AUTHORIZATION postgres', 'RESET SESSION AUTHORIZATION',
        'INSERT INTO sweeper.cleanup_event (id, cleaned_at, policy_id, policy, relation, cleanup_type) VALUES (1, now(), 1, '''', '''', '''')',
        'UPDATE sweeper.policy SET owner = 10', 'CREATE TEMP TABLE t (x int)', 'COPY public.seen TO PROGRAM ''true''',
        'DECLARE c CURSOR WITH HOLD FOR SELECT 1', 'SET lock_timeout = ''1 h''', 'SELECT pg_advisory_lock(4711)']) AS what;
    RETURN OLD; END $$;
CREATE TRIGGER attack BEFORE DELETE ON evil FOR EACH ROW WHEN (OLD.id = 1) EXECUTE FUNCTION attack();
SELECT state FROM sweeper.register('evil', deadline => 'd', check_every => '0');
CALL sweeper.sweep('evil') \gset
SELECT * FROM seen;
SELECT count(*) FROM evil;
RESET ROLE;
-- what it set and locked is gone
SELECT rolsuper FROM pg_roles WHERE rolname = 'regress_mallory';
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory';
-- an index expression, a filter function and a row-security policy run as the owner too
SET ROLE regress_mallory;
CREATE TABLE who (place text, name text);
CREATE FUNCTION tell(place text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$ BEGIN
    IF current_user <> 'regress_mallory' THEN RAISE EXCEPTION '% ran as %', place, current_user; END IF; RETURN true; END $$;
CREATE FUNCTION tell_i(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN
    IF current_user <> 'regress_mallory' THEN RAISE EXCEPTION 'index ran as %', current_user; END IF; RETURN $1; END $$;
CREATE DOMAIN told AS timestamptz CHECK (tell('domain'));
CREATE TABLE sly (id int PRIMARY KEY, d told, u int);
CREATE INDEX ON sly (tell_i(u)) WHERE tell_i(1) = 1;
ALTER TABLE sly ENABLE ROW LEVEL SECURITY;
ALTER TABLE sly FORCE ROW LEVEL SECURITY;
CREATE POLICY p ON sly USING (tell('row security'));
CREATE FUNCTION hook(text[]) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM public.tell('hook'); END $$;
INSERT INTO sly VALUES (1, now() - '1 min'::interval, 1), (2, now() + '1 h'::interval, 1);
SELECT state FROM sweeper.register('sly', deadline => 'd', filter => 'tell(''filter'')', on_expire => 'hook(text[])', check_every => '0', action => 'update', set_clause => 'd = now() + ''1 h''::interval, u = u + 1');
CALL sweeper.sweep('sly') \gset
SELECT id, u FROM sly ORDER BY id;
SELECT * FROM sweeper.problem WHERE policy = 'sly';
SELECT policy, key, class, message FROM sweeper.failed_row;
RESET ROLE;
-- a hook that somebody else owns is refused
CREATE FUNCTION others_hook(text[]) RETURNS void LANGUAGE sql AS 'SELECT';
ALTER FUNCTION others_hook OWNER TO regress_chief;
SET ROLE regress_mallory;
SELECT sweeper.alter_policy('sly', on_expire => 'others_hook(text[])');
-- each sees and changes its own
RESET ROLE;
SELECT state FROM sweeper.register('mine', deadline => 'd', check_every => '0');
SET ROLE regress_mallory;
SELECT policy FROM sweeper.policy_status ORDER BY policy;
SELECT count(*) FROM sweeper.cleanup_event WHERE policy = 'evil';
SELECT sweeper.pause('mine');
SELECT sweeper.preview('mine');
SELECT sweeper.unregister('mine');
UPDATE sweeper.policy SET held_reason = NULL;
SET ROLE regress_watcher;
SELECT policy FROM sweeper.policy_status ORDER BY policy;
SELECT sweeper.pause('mine');
SET ROLE regress_chief;
SELECT sweeper.pause('mine');
SELECT sweeper.resume('mine');
SELECT sweeper.alter_policy('mine', rate_limit => 100);
SELECT sweeper.alter_policy('mine', filter => 'true');
SELECT sweeper.unregister('mine');
RESET ROLE;
-- a leaf of another owner is left alone, and the others go on
CREATE TABLE tree (id int PRIMARY KEY, d timestamptz) PARTITION BY LIST (id);
CREATE TABLE leaf_1 PARTITION OF tree FOR VALUES IN (1);
CREATE TABLE leaf_2 PARTITION OF tree FOR VALUES IN (2);
ALTER TABLE tree OWNER TO regress_mallory;
ALTER TABLE leaf_1 OWNER TO regress_mallory;
ALTER TABLE leaf_2 OWNER TO regress_mallory;
INSERT INTO tree SELECT i, now() - '1 min'::interval FROM generate_series(1, 2) AS i;
SET ROLE regress_mallory;
SELECT policy FROM sweeper.register('tree', deadline => 'd', check_every => '0');
RESET ROLE;
CREATE FUNCTION grab() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'run as %', current_user; RETURN OLD; END $$;
CREATE TRIGGER grab BEFORE DELETE ON leaf_2 FOR EACH ROW EXECUTE FUNCTION grab();
ALTER TABLE leaf_2 OWNER TO regress_watcher;
CALL sweeper.sweep('tree', pass => NULL) \gset
SELECT tableoid::regclass, id FROM tree;
SELECT severity, problem, detail, next_step FROM sweeper.problem WHERE policy = 'tree';
SELECT verdict, reason, hint FROM sweeper.explain_row('tree', '2');
UPDATE leaf_2 SET d = NULL;
SELECT verdict, reason FROM sweeper.explain_row('tree', '2');
UPDATE leaf_2 SET d = now() - '1 min'::interval;
SELECT sweeper.expire('tree', '{2}', 'by hand');
ALTER TABLE leaf_2 OWNER TO regress_mallory;
DROP TRIGGER grab ON leaf_2;
DROP FUNCTION grab;
CALL sweeper.sweep('tree', pass => NULL) \gset
SELECT count(*) FROM tree;
SELECT count(*) FROM sweeper.problem WHERE policy = 'tree';
SELECT sweeper.unregister('tree');
DROP TABLE tree;
-- advice to paste has no code of the owner's, which would run as whoever pastes it
CREATE SCHEMA lure;
GRANT USAGE, CREATE ON SCHEMA lure TO regress_mallory;
SET ROLE regress_mallory;
CREATE FUNCTION lure.check(text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN true; END $$;
CREATE FUNCTION lure.later(timestamptz) RETURNS timestamptz LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN $1; END';
CREATE DOMAIN lure.d AS text CHECK (lure.check(VALUE));
CREATE TABLE lure.t (id int PRIMARY KEY, d timestamptz, e timestamptz);
SET client_min_messages = error;
SELECT f, r.advice FROM unnest(ARRAY['coalesce(d, e)', 'lure.later(d)', 'CASE WHEN ''{x}''::lure.d[] IS NOT NULL THEN d ELSE e END', 'CASE WHEN ''x''::lure.d IS NOT NULL THEN d END']) AS f,
    LATERAL sweeper.register('lure.t', deadline => f, dry_run => true) AS r;
SET client_min_messages = warning;
DROP TABLE lure.t;
DROP DOMAIN lure.d;
DROP FUNCTION lure.check, lure.later;
RESET ROLE;
DROP SCHEMA lure;
-- an operator that somebody else puts in a schema of the policy's search_path is never taken for ours
CREATE SCHEMA common;
GRANT USAGE, CREATE ON SCHEMA common TO regress_mallory;
SET ROLE regress_mallory;
CREATE FUNCTION common.trap(varchar, varchar) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION 'the trap ran as %', current_user; END $$;
CREATE FUNCTION common.trap(date, date) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION 'the trap ran as %', current_user; END $$;
CREATE OPERATOR common.= (LEFTARG = varchar, RIGHTARG = varchar, FUNCTION = common.trap);
CREATE OPERATOR common.<= (LEFTARG = date, RIGHTARG = date, FUNCTION = common.trap);
CREATE OPERATOR common.> (LEFTARG = date, RIGHTARG = date, FUNCTION = common.trap);
RESET ROLE;
-- another session: this one has run code of other owners
\c -
SET client_min_messages = warning;
CREATE TABLE django (session_key varchar(40) PRIMARY KEY, d date, who varchar(10));
CREATE INDEX ON django (d);
INSERT INTO django SELECT i, current_date - 10 + 20 * (i % 2), 'u' || i % 3 FROM generate_series(1, 20) AS i;
CREATE FUNCTION farewell(text[]) RETURNS void LANGUAGE sql AS $$ SELECT $$;
SET search_path = common, pg_catalog, public;
SELECT session_key FROM public.django WHERE session_key = '1'::varchar;
SELECT FROM sweeper.register('public.django', deadline => 'd', group_by => 'who', on_expire => 'public.farewell(text[])', check_every => '0', fuse_fraction => 1, timezone => 'UTC');
RESET search_path;
SELECT verdict FROM sweeper.explain_row('django', '2');
SELECT sweeper.expire('django', '{1}', 'by hand');
SELECT sweeper.expire_group('django', 'u0', 'by hand');
CALL sweeper.sweep('django', pass => NULL) \gset
SELECT count(*) FROM django;
SELECT detail FROM sweeper.problem WHERE policy = 'django';
SELECT sweeper.unregister('django');
DROP TABLE django;
DROP FUNCTION farewell;
DROP SCHEMA common CASCADE;
-- what a table's owner does in a worker, or in somebody's session, is booked as the owner's
SET ROLE regress_mallory;
CREATE TABLE m1 (id int PRIMARY KEY, d timestamptz);
CREATE TABLE m2 (id int PRIMARY KEY, d timestamptz);
INSERT INTO m1 VALUES (1, now()), (2, now() + interval '1 h');
INSERT INTO m2 SELECT i, now() + interval '1 h' FROM generate_series(1, 2) AS i;
CREATE FUNCTION forge() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM sweeper.expire('m2', ARRAY[OLD.id::text], 'by order of the DBA'), sweeper.alter_policy('m2', max_workers => 1 + OLD.id);
    RETURN OLD; END $$;
CREATE TRIGGER forge BEFORE DELETE ON m1 FOR EACH ROW EXECUTE FUNCTION forge();
SELECT FROM sweeper.register('m1', deadline => 'd', check_every => '0');
SELECT FROM sweeper.register('m2', deadline => 'd', check_every => '0');
RESET ROLE;
CALL sweeper.sweep('m1', pass => NULL) \gset
SELECT sweeper.expire('m1', '{2}', 'mine');
SELECT key, actor FROM sweeper.cleanup_event WHERE policy = 'm2' ORDER BY key;
SELECT actor = session_user AS mine FROM sweeper.cleanup_event WHERE policy = 'm1' AND key = '2';
SELECT DISTINCT changed_by FROM sweeper.policy_change WHERE policy = 'm2' AND change = 'alter';
DROP TABLE m1, m2;
DROP FUNCTION forge;
SELECT sweeper.unregister('m1'), sweeper.unregister('m2');
-- the table owner's code is held back by row security of others, as ever; our statements are not by the owner's own
CREATE ROLE regress_victim;
CREATE SCHEMA victim AUTHORIZATION regress_victim;
GRANT USAGE ON SCHEMA victim TO regress_mallory;
SET ROLE regress_victim;
CREATE TABLE victim.note (reader text, word text);
INSERT INTO victim.note VALUES ('regress_victim', 'secret'), ('all', 'public');
CREATE POLICY p ON victim.note USING (reader = 'all');
ALTER TABLE victim.note ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE FUNCTION victim.words() RETURNS text LANGUAGE plpgsql SECURITY DEFINER SET search_path = '' AS $$ BEGIN
    RETURN (SELECT string_agg(word, ' ') FROM victim.note); END $$;
CREATE VIEW victim.shown AS SELECT word FROM victim.note;
GRANT SELECT ON victim.shown TO regress_mallory;
SET ROLE regress_mallory;
CREATE TABLE loot (place text, words text);
CREATE FUNCTION blind(at text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN
    RETURN victim.words() = 'public' AND (SELECT string_agg(word, ' ') FROM victim.shown) = 'public'; END $$;
CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO loot VALUES ('function', victim.words()), ('view', (SELECT string_agg(word, ' ') FROM victim.shown));
    RETURN OLD; END $$;
CREATE TABLE trap (id int PRIMARY KEY, d timestamptz);
CREATE INDEX ON trap (d);
CREATE POLICY none ON trap USING (false);
CREATE TRIGGER look BEFORE DELETE ON trap FOR EACH ROW EXECUTE FUNCTION look();
ALTER TABLE trap ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY come ON trap FOR INSERT WITH CHECK (true);
INSERT INTO trap VALUES (1, now()), (2, now() + interval '1 h');
SET SESSION AUTHORIZATION regress_mallory;
SELECT FROM sweeper.register('trap', deadline => 'd', filter => 'blind(''when it is planned'') AND blind(id::text)', check_every => '0', start => 'now');
SELECT sweeper.expire('trap', '{2}', 'mine');
RESET SESSION AUTHORIZATION;
CALL sweeper.sweep('trap', pass => NULL) \gset
-- nor are subqueries that they wrote
SET ROLE regress_mallory;
CREATE TABLE bag (id int PRIMARY KEY, d timestamptz, words text);
CREATE INDEX ON bag (d);
CREATE POLICY later ON bag USING (id > 1) WITH CHECK (d IS NOT NULL);
INSERT INTO bag VALUES (1, now()), (2, now());
ALTER TABLE bag ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
SELECT FROM sweeper.register('bag', deadline => 'd', action => 'update', check_every => '0', start => 'now',
    set_clause => 'd = NULL, words = concat_ws('' '', (SELECT string_agg(word, '' '') FROM victim.shown), (SELECT count(*) FROM bag))');
RESET ROLE;
CALL sweeper.sweep('bag', pass => NULL) \gset
SELECT * FROM bag ORDER BY id;
SELECT sweeper.unregister('bag');
DROP TABLE bag;
-- a hook of rows gets all that go
SET SESSION AUTHORIZATION regress_mallory;
CREATE TABLE crate (id int PRIMARY KEY, d timestamptz);
CREATE INDEX ON crate (d);
INSERT INTO crate SELECT i, now() FROM generate_series(1, 3) AS i;
CREATE POLICY none ON crate USING (current_setting('regress.tenant', true) = 'x');
ALTER TABLE crate ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE FUNCTION pack(crate[]) RETURNS void LANGUAGE sql AS $$ INSERT INTO loot SELECT 'crate', r.id::text FROM unnest($1) AS r $$;
SELECT FROM sweeper.register('crate', deadline => 'd', on_expire => 'pack(crate[])', check_every => '0', start => 'now');
RESET SESSION AUTHORIZATION;
CALL sweeper.sweep('crate', pass => NULL) \gset
SELECT sweeper.unregister('crate');
DROP FUNCTION pack(crate[]);
DROP TABLE crate;
SELECT place, words, count(*) FROM loot GROUP BY 1, 2 ORDER BY 1, 2;
SELECT id FROM trap;
SELECT sweeper.unregister('trap');
DROP TABLE trap, loot;
DROP FUNCTION look(), blind(text);
DROP OWNED BY regress_victim CASCADE;
DROP ROLE regress_victim;
-- a key that is a credential is hashed wherever it is kept
CREATE TABLE secret (token text PRIMARY KEY, d timestamptz);
CREATE FUNCTION cling() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no: %', OLD.token; END $$;
CREATE TRIGGER cling BEFORE DELETE ON secret FOR EACH ROW WHEN (OLD.token = 'open sesame') EXECUTE FUNCTION cling();
INSERT INTO secret VALUES ('open sesame', now() - interval '2 s'), ('other', now() - interval '1 s');
SELECT FROM sweeper.register('secret', deadline => 'd', audit => 'hash', check_every => '0', max_retries => 0);
CALL sweeper.sweep('secret', pass => NULL) \gset
SELECT key = encode(sha256('open sesame'), 'hex') AS hashed FROM sweeper.failed_row WHERE policy = 'secret';
SELECT verdict, reason FROM sweeper.explain_row('secret', 'open sesame');
INSERT INTO secret VALUES ('third', now());
CALL sweeper.sweep('secret', pass => NULL) \gset
SELECT token FROM secret;
SELECT sweeper.retry_row('secret', 'open sesame');
SELECT state FROM sweeper.failed_row WHERE policy = 'secret';
-- nor is there one in what is told of the policy as a whole
CREATE OR REPLACE FUNCTION cling() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no: %', upper(OLD.token); END $$;
DROP TRIGGER cling ON secret;
CREATE TRIGGER cling BEFORE DELETE ON secret FOR EACH ROW EXECUTE FUNCTION cling();
INSERT INTO secret SELECT 'sesame ' || i, now() FROM generate_series(1, 20) AS i;
CALL sweeper.sweep('secret', pass => NULL) \gset
SELECT error FROM sweeper.pass WHERE policy = 'secret' AND status = 'failed';
SELECT state, reason, last_error FROM sweeper.policy_status WHERE policy = 'secret';
SELECT problem, detail FROM sweeper.problem WHERE policy = 'secret';
SELECT sweeper.unregister('secret');
DROP TABLE secret;
DROP FUNCTION cling;
-- who lacks a right is given the statement that gives it
CREATE FUNCTION hint_of(sql text, OUT message text, OUT detail text, OUT hint text) LANGUAGE plpgsql AS $$ BEGIN
    EXECUTE sql; message := 'succeeded'; EXCEPTION WHEN insufficient_privilege THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT; END $$;
SELECT E'it''s\n"odd"' AS odd, 'it''s "odd"' AS policy, E'regress\n"poor"' AS poor \gset
CREATE ROLE :"poor";
SELECT sweeper.grant_access(quote_ident(:'poor')::regrole, 'user');
CREATE SCHEMA :"odd";
CREATE TABLE :"odd".:"odd" (id int PRIMARY KEY, d timestamptz);
ALTER TABLE :"odd".:"odd" OWNER TO regress_mallory;
GRANT USAGE ON SCHEMA :"odd" TO regress_mallory;
INSERT INTO :"odd".:"odd" VALUES (1, now() + interval '1 h');
SELECT count(*) FROM sweeper.register(format('%1$I.%1$I', :'odd')::regclass, policy => :'policy', deadline => 'd', ttl => '1 h', heartbeats => true, check_every => '0');
-- before the schema can be used, no name in it can
SELECT format('%1$I.%1$I', :'odd')::regclass::oid AS relid \gset
CREATE PROCEDURE follow(call text, way int) LANGUAGE plpgsql AS $$ DECLARE h record; BEGIN
    EXECUTE format('SET LOCAL ROLE %I', E'regress\n"poor"');
    SELECT * INTO h FROM public.hint_of('SELECT ' || call);
    RESET ROLE;
    RAISE WARNING '% / % / %', h.message, h.detail, h.hint;
    IF h.hint IS NULL THEN RETURN; END IF;
    -- the first statement of the hint, or the last
    EXECUTE CASE way WHEN 1 THEN substring(h.hint, '(?:SELECT|GRANT)[^;]*;') ELSE substring(h.hint, 'GRANT [A-Z]+ ON .*;') END;
    EXECUTE format('SET LOCAL ROLE %I', E'regress\n"poor"');
    SELECT * INTO h FROM public.hint_of('SELECT ' || call);
    RESET ROLE;
    RAISE WARNING 'then: %', concat_ws(' / ', h.message, h.hint); END $$;
CALL follow(format('sweeper.append(%s, %L)', :'relid', '{"id": 2}'), 1);
CALL follow(format('sweeper.append(%s, %L)', :'relid', '{"id": 2}'), 1);
CALL follow(format('sweeper.touch(%L, %L)', :'policy', '1'), 2);
CALL follow(format('sweeper.is_live(%L, %L)', :'policy', '1'), 2);
REVOKE ALL ON TABLE :"odd".:"odd" FROM :"poor";
CALL follow(format('sweeper.touch_many(%L, %L)', :'policy', '{1}'), 1);
SELECT sweeper.revoke_access(quote_ident(:'poor')::regrole, policy => :'policy');
CALL follow(format('sweeper.is_live(%L, %L)', :'policy', '1'), 1);
SET ROLE :"poor";
\set VERBOSITY default
SELECT sweeper.alter_append(:relid, flush_rows => 7);
RESET ROLE;
\o /dev/null
SELECT sweeper.unregister(:'policy');
\o
DROP SCHEMA :"odd" CASCADE;
DROP OWNED BY :"poor";
DROP ROLE :"poor";
DROP PROCEDURE follow;
DROP FUNCTION hint_of;
-- no function is PUBLIC's
SELECT p.proname FROM pg_proc AS p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
WHERE p.pronamespace = 'sweeper'::regnamespace AND a.grantee = 0;
-- pg_write_all_data writes nothing that says what runs as whom
SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = 'sweeper'::regnamespace
    AND (c.relkind = 'r' AND NOT c.relrowsecurity OR c.relkind = 'v' AND pg_relation_is_updatable(c.oid, false) NOT IN (0, 1 << 4)); -- DELETE of what the reader may see
\set VERBOSITY terse
GRANT pg_write_all_data TO regress_mallory;
SET ROLE regress_mallory;
INSERT INTO sweeper.task (task, command, owner, owner_oid, status) VALUES (gen_random_uuid(), 'ALTER ROLE regress_mallory SUPERUSER', 'postgres', 10, 'enqueued');
UPDATE sweeper._append_stream SET role_oid = 10;
INSERT INTO sweeper.preset (preset, columns, key, settings, note, hook) VALUES ('x', '{}', '{}', '{}', '', 'ALTER ROLE regress_mallory SUPERUSER');
RESET ROLE;
REVOKE pg_write_all_data FROM regress_mallory;
\set VERBOSITY default
SELECT sweeper.unregister(policy) FROM sweeper.policy WHERE policy NOT LIKE 'sweeper.%';
SELECT sweeper.revoke_access(r::regrole) FROM unnest('{regress_mallory,regress_watcher,regress_chief}'::text[]) AS r;
DROP OWNED BY regress_mallory, regress_watcher, regress_chief CASCADE;
DROP TABLE mine;
DROP ROLE regress_mallory, regress_watcher, regress_chief;
-- nor anybody's by ALTER DEFAULT PRIVILEGES
SELECT current_database() AS here \gset
CREATE ROLE regress_app;
CREATE DATABASE regress_sweeper_defaults;
\c regress_sweeper_defaults
ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO regress_app;
ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO regress_app;
ALTER DEFAULT PRIVILEGES GRANT ALL ON ROUTINES TO regress_app;
ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO regress_app;
CREATE EXTENSION session_sweeper;
SELECT kind, name, grantee::regrole FROM (
    SELECT 'function', p.proname, p.proowner, p.proacl FROM pg_proc AS p WHERE p.pronamespace = 'sweeper'::regnamespace
    UNION ALL SELECT 'relation', c.relname, c.relowner, c.relacl FROM pg_class AS c WHERE c.relnamespace = 'sweeper'::regnamespace
    UNION ALL SELECT 'schema', n.nspname, n.nspowner, n.nspacl FROM pg_namespace AS n WHERE n.nspname = 'sweeper') AS o (kind, name, owner, acl),
    aclexplode(acl) AS a WHERE a.grantee <> o.owner;
SELECT sweeper.grant_access('regress_app', 'user');
SELECT has_function_privilege('regress_app', 'sweeper._admin()', 'EXECUTE') AS admin, has_table_privilege('regress_app', 'sweeper.policy', 'TRIGGER') AS trigger;
\c :here
DROP DATABASE regress_sweeper_defaults;
DROP ROLE regress_app;
