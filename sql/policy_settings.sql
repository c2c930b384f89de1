-- What a policy says means the same in the session that registers it, in others and in a pass; else it is refused.
SET client_min_messages = warning;
SET escape_string_warning = off;
CREATE TABLE se (id int PRIMARY KEY, usr text, tags text[], note text, d timestamptz);
CREATE INDEX ON se (d);
INSERT INTO se VALUES (1, $$DOM\svc$$, '{a,NULL}', NULL, now() - interval '1 h'), (2, 'bob', '{a}', NULL, now() - interval '1 h'),
    (3, NULL, '{a}', NULL, now() - interval '1 h');
CREATE FUNCTION try(setting text, value text, args text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    dead bigint; detail text;
BEGIN
    PERFORM set_config(setting, value, true);
    EXECUTE format('SELECT dead_estimate FROM sweeper.register(%L, deadline => %L, %s, dry_run => true)', 'se', 'd', args) INTO dead;
    PERFORM set_config(setting, current_setting('try.' || setting), true);
    RETURN dead || ' dead';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;
    RETURN SQLERRM || ': ' || detail;
END $$;
SELECT count(set_config('try.' || name, setting, false)) > 0 AS saved FROM pg_settings WHERE context = 'user';
SELECT setting, value, args, try(setting, value, args) FROM (VALUES
    ('standard_conforming_strings', 'on', $a$filter => $f$usr <> 'DOM\\svc'$f$$a$),
    ('standard_conforming_strings', 'off', $a$filter => $f$usr <> 'DOM\\svc'$f$$a$),
    ('standard_conforming_strings', 'off', $a$filter => $f$usr <> E'DOM\\svc'$f$$a$),
    ('standard_conforming_strings', 'off', $a$filter => $f$usr <> 'bob'$f$$a$),
    ('standard_conforming_strings', 'off', $a$group_by => $f$usr || 'a\\b'$f$$a$),
    ('backslash_quote', 'off', $a$filter => $f$usr <> E'it\'s'$f$$a$),
    ('transform_null_equals', 'on', $a$filter => 'NOT (usr = NULL)'$a$),
    ('transform_null_equals', 'on', $a$filter => 'usr IS NOT NULL'$a$),
    ('array_nulls', 'off', $a$filter => $f$tags <> '{a,NULL}'$f$$a$),
    ('array_nulls', 'off', $a$filter => $f$tags <> '{a}'$f$$a$),
    ('timezone', 'Europe/Berlin', $a$group_by => 'd::date'$a$),
    ('datestyle', 'SQL, DMY', $a$group_by => $f$d < '01/02/03 00:00+0'$f$$a$),
    ('quote_all_identifiers', 'on', $a$filter => $f$usr <> 'bob'$f$$a$)) AS v (setting, value, args);
-- a filter of the standard protects the same row in a session that reads strings in the old way
SELECT FROM sweeper.register('se', deadline => 'd', filter => $$usr <> 'DOM\svc' AND tags <> '{a,NULL}' AND (usr <> NULL) IS NULL$$,
                             group_by => $$usr || '\x'$$, check_every => '0', start => 'now', fuse_fraction => 1);
SET standard_conforming_strings = off;
SET transform_null_equals = on;
SET array_nulls = off;
SELECT dead_estimate, sample_keys FROM sweeper.preview('se');
SELECT verdict FROM sweeper.explain_row('se', '1');
SELECT count(*) > 1 AS explained, bool_or(position($$'DOM\svc'$$ IN x) > 0) AS filtered FROM sweeper.explain_sweep('se') AS x;
SELECT sweeper.expire('se', '{1}', 'protected'), sweeper.expire('se', '{2}', 'not protected');
SELECT key, "group" FROM sweeper.cleanup_event WHERE policy = 'se';
RESET standard_conforming_strings;
RESET transform_null_equals;
RESET array_nulls;
-- and in a pass, whatever the database has
SELECT current_database() AS db \gset
ALTER DATABASE :"db" SET standard_conforming_strings = off;
ALTER DATABASE :"db" SET transform_null_equals = on;
ALTER DATABASE :"db" SET array_nulls = off;
SET client_min_messages = error; -- some may have left by themselves
SELECT count(pg_terminate_backend(pid, 60000)) >= 0 AS ended FROM pg_stat_activity
WHERE datname = current_database() AND backend_type IN ('session_sweeper coordinator', 'session_sweeper worker');
INSERT INTO se VALUES (2, 'bob', '{a}', NULL, now() - interval '1 h');
CALL sweeper.sweep('se') \gset
SELECT id FROM se ORDER BY id;
SELECT key, "group" FROM sweeper.cleanup_event WHERE policy = 'se' ORDER BY id;
ALTER DATABASE :"db" RESET standard_conforming_strings;
ALTER DATABASE :"db" RESET transform_null_equals;
ALTER DATABASE :"db" RESET array_nulls;
SELECT count(pg_terminate_backend(pid, 60000)) >= 0 AS ended FROM pg_stat_activity
WHERE datname = current_database() AND backend_type IN ('session_sweeper coordinator', 'session_sweeper worker');
SELECT sweeper.unregister('se');
-- names are kept as they are, whatever the session quotes
SET quote_all_identifiers = on;
CREATE FUNCTION gone(text[]) RETURNS void LANGUAGE sql AS '';
SELECT policy, relation FROM sweeper.register('se', deadline => 'd', on_expire => 'gone(text[])', check_every => '0');
SELECT policy, relation, on_expire_name FROM sweeper.policy WHERE relid = 'se'::regclass;
SELECT sweeper.alter_policy('se', on_expire => 'gone(text[])');
SELECT relation, on_expire_name FROM sweeper.policy WHERE relid = 'se'::regclass;
RESET quote_all_identifiers;
SELECT sweeper.unregister('se');
DROP TABLE se;
DROP FUNCTION try, gone;
-- row security that is forced hides nothing from the sweep, also where a session would rather have an error
CREATE ROLE owns_secret;
GRANT USAGE ON SCHEMA sweeper TO owns_secret;
GRANT CREATE ON SCHEMA public TO owns_secret;
SELECT sweeper.grant_access('owns_secret', 'user');
SET ROLE owns_secret;
CREATE TABLE secret (id int PRIMARY KEY, d timestamptz, n bigint);
CREATE INDEX ON secret (d);
INSERT INTO secret SELECT i, now() + interval '1 h', extract(epoch FROM now()) + 3600 FROM generate_series(1, 3) AS i;
ALTER TABLE secret ENABLE ROW LEVEL SECURITY;
ALTER TABLE secret FORCE ROW LEVEL SECURITY;
CREATE POLICY odd ON secret USING (id % 2 = 1);
SET row_security = off;
SELECT count(*) FROM secret;
SELECT rows_estimate, exact FROM sweeper.register('secret', deadline => 'd', ttl => '1 h', heartbeats => true, check_every => '0');
\set VERBOSITY terse
SELECT rows_estimate, exact FROM sweeper.register('secret', 'number', deadline => 'n', check_every => '0');
\set VERBOSITY default
SELECT rows_estimate, exact FROM sweeper.register('secret', 'number', deadline => 'n', unit => 's', check_every => '0');
SELECT rows_estimate, exact FROM sweeper.preview('secret');
SELECT sweeper.touch('secret', 1) AS seen, sweeper.touch('secret', 2) AS hidden;
SELECT sweeper.is_live('secret', '1'), sweeper.is_live('secret', '2');
SELECT verdict FROM sweeper.explain_row('secret', '2');
SELECT count(*) > 1 AS explained FROM sweeper.explain_sweep('secret');
SELECT sweeper.alter_policy('secret', filter => 'id > 0');
SELECT sweeper.expire('secret', '{1,2}', 'by hand');
SELECT sweeper.alter_policy('secret', heartbeats => false);
SELECT sweeper.unregister('secret'), sweeper.unregister('number');
RESET row_security;
SELECT count(*) FROM secret;
DROP TABLE secret;
RESET ROLE;
SELECT sweeper.revoke_access('owns_secret');
DROP OWNED BY owns_secret;
DROP ROLE owns_secret;
-- nor does it where another transaction holds a row
CREATE ROLE owns_shelf;
CREATE TABLE shelf (id int PRIMARY KEY, d timestamptz);
CREATE INDEX ON shelf (d);
ALTER TABLE shelf ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
ALTER TABLE shelf OWNER TO owns_shelf;
INSERT INTO shelf SELECT i, now() - interval '1 min' FROM generate_series(1, 50) AS i;
SELECT state FROM sweeper.register('shelf', deadline => 'd', check_every => '0', start => 'now', fuse_fraction => 1, max_retries => 0);
BEGIN;
SELECT id FROM shelf WHERE id = 1 FOR UPDATE;
PREPARE TRANSACTION 'regress_shelf';
CALL sweeper.sweep('shelf') \gset
SELECT id FROM shelf;
ROLLBACK PREPARED 'regress_shelf';
SELECT key, class FROM sweeper.failed_row WHERE policy = 'shelf';
SELECT sweeper.unregister('shelf');
DROP TABLE shelf;
DROP ROLE owns_shelf;
