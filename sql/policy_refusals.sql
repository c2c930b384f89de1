-- What cannot be registered: SQLSTATE, message, and what to do instead.
CREATE SCHEMA no;
SET search_path = no, public;
SET timezone = 'UTC'; SET datestyle = 'ISO, YMD'; SET intervalstyle = 'postgres';
-- "SQLSTATE message | detail | hint" of a registration that must fail
CREATE FUNCTION refused(args text, rel text DEFAULT 'no.ok') RETURNS text LANGUAGE plpgsql AS $$
DECLARE state text; message text; detail text; hint text;
BEGIN
    EXECUTE format('SELECT * FROM sweeper.register(%L, %s, dry_run => true)', rel, args);
    RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS state = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN concat_ws(E'\n  ', state || ' ' || message, nullif(detail, ''), nullif(hint, ''));
END $$;
\pset format unaligned
\pset tuples_only on
CREATE TABLE ok (id int PRIMARY KEY, d timestamptz, seen timestamptz, l timestamp, day date, i2 smallint, i4 int, i8 bigint, f4 real, iv interval, t text, b boolean,
    gen timestamptz GENERATED ALWAYS AS (seen) STORED, "expiresAt" timestamptz, payload jsonb);
CREATE INDEX ON ok (d);
INSERT INTO ok (id, d, seen, l, day, i2, i4, i8, t, b) VALUES (1, now(), now(), '2025-06-01 12:00', '2025-06-01', 1, 1748779200, 1748779200000, 'x', true);

-- relations
CREATE VIEW a_view AS SELECT * FROM ok;
CREATE MATERIALIZED VIEW a_matview AS SELECT * FROM ok;
CREATE SEQUENCE a_sequence;
CREATE TYPE a_type AS (d timestamptz);
CREATE FOREIGN DATA WRAPPER regress_fdw;
CREATE SERVER regress_server FOREIGN DATA WRAPPER regress_fdw;
CREATE FOREIGN TABLE a_foreign (d timestamptz) SERVER regress_server;
CREATE TEMP TABLE a_temp (d timestamptz);
CREATE TABLE ruled (id int PRIMARY KEY, d timestamptz, s text);
CREATE INDEX ON ruled (d);
CREATE RULE r AS ON DELETE TO ruled DO INSTEAD NOTHING;
CREATE TABLE parent (id int, d timestamptz) PARTITION BY RANGE (id);
CREATE FOREIGN TABLE leaf PARTITION OF parent FOR VALUES FROM (0) TO (1) SERVER regress_server;
SELECT refused($$deadline => 'd'$$, rel)
FROM unnest('{no.a_view,no.a_matview,no.a_sequence,no.a_type,no.a_foreign,a_temp,no.ok_pkey,pg_catalog.pg_class,information_schema.sql_features,sweeper.policy,no.ruled,no.parent}'::text[]) AS rel;
SELECT refused($$deadline => 'd', action => 'update', set_clause => 's = ''gone''', filter => 'true'$$, 'no.ruled');
SELECT refused($$deadline => 'd'$$, '4294967295');

-- owners
CREATE ROLE regress_owner;
CREATE ROLE regress_member IN ROLE regress_owner;
CREATE ROLE regress_stranger;
GRANT ALL ON SCHEMA no TO regress_owner, regress_stranger;
SELECT FROM sweeper.grant_access('regress_owner', 'user');
SELECT FROM sweeper.grant_access('regress_member', 'user');
SELECT FROM sweeper.grant_access('regress_stranger', 'user');
CREATE FUNCTION others(text[]) RETURNS void LANGUAGE sql AS '';
ALTER FUNCTION others OWNER TO regress_stranger;
CREATE FUNCTION supers(text[]) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION alive(text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION rows_of_ok(ok[]) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION rows_of_ruled(ruled[]) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION alive_int(int) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION alive_set(text) RETURNS SETOF boolean LANGUAGE sql AS 'SELECT true';
CREATE PROCEDURE proc(text[]) LANGUAGE sql AS '';
REVOKE EXECUTE ON FUNCTION supers FROM PUBLIC;
ALTER TABLE ok OWNER TO regress_owner;
SET ROLE regress_stranger;
SELECT refused($$deadline => 'd'$$);
SET ROLE regress_member;
SELECT refused($$deadline => 'd'$$);
RESET ROLE;
SELECT h, refused(format($$deadline => 'd', on_expire => %L$$, h)) FROM unnest('{others(text[]),supers(text[]),rows_of_ok(ok[]),rows_of_ruled(ruled[]),alive(text),proc(text[]),max(int)}'::text[]) AS h;
SELECT h, refused(format($$last_seen => 'seen', ttl => '1 h', is_alive => %L$$, h)) FROM unnest('{alive(text),alive_int(int),alive_set(text),others(text[])}'::text[]) AS h;
CREATE TABLE tree (id int, d timestamptz) PARTITION BY RANGE (id);
CREATE TABLE branch PARTITION OF tree FOR VALUES FROM (0) TO (1);
ALTER TABLE tree OWNER TO regress_owner;
ALTER TABLE branch OWNER TO regress_stranger;
SELECT refused($$deadline => 'd'$$, 'no.tree');
CREATE TABLE inherited (id int, d timestamptz);
CREATE TABLE heir () INHERITS (inherited);
ALTER TABLE inherited OWNER TO regress_owner;
ALTER TABLE heir OWNER TO regress_stranger;
SELECT refused($$deadline => 'd'$$, 'no.inherited');

-- targets of a subscription
SET client_min_messages = error;
CREATE SUBSCRIPTION regress_sub CONNECTION 'dbname=nowhere' PUBLICATION p WITH (connect = false);
RESET client_min_messages;
INSERT INTO pg_subscription_rel SELECT oid, 'ok'::regclass, 'r', NULL FROM pg_subscription;
SELECT refused($$deadline => 'd'$$);
SELECT refused($$deadline => 'd', allow_replicated => true$$);
DELETE FROM pg_subscription_rel;
ALTER SUBSCRIPTION regress_sub SET (slot_name = NONE);
DROP SUBSCRIPTION regress_sub;
-- published, and no replica identity to delete by
CREATE TABLE published (id int, d timestamptz);
SET client_min_messages = error;
CREATE PUBLICATION regress_pub FOR TABLE published;
RESET client_min_messages;
SELECT refused($$deadline => 'd'$$, 'no.published');
ALTER TABLE published REPLICA IDENTITY FULL;
SELECT refused($$deadline => 'd'$$, 'no.published');
DROP PUBLICATION regress_pub;

-- columns and types
SELECT c, refused(format('deadline => %L', c)) FROM unnest('{D,expiresAt,expiresat,"\"expiresAt\"",expires_at,xyz,t,b,iv,i2,f4,payload,ctid,ok,t.d,no.ok.d,d AS x,*,""}'::text[]) AS c;
SELECT refused($$deadline => 'i4', unit => 'ms'$$);
SELECT refused($$deadline => 'i4'$$);
SELECT refused($$deadline => 'i8', keep_for => '1 h', policy => 'it''s'$$);
SELECT refused($$deadline => 'l', audit => 'hash'$$);
SET timezone = 'America/New_York';
SELECT refused($$last_seen => 'l', ttl => '1 h', key => '{id}'$$);
SET timezone = 'UTC';
SELECT refused($$deadline => 'day'$$);
SELECT refused($$last_seen => 'seen', ttl_column => 't'$$);
SELECT refused($$last_seen => 'seen', ttl_column => 'ivv'$$);
SELECT refused($$deadline => 'd', created => 'seen + ''1 s''', max_age => '1 h'$$);
SELECT refused($$deadline => 'd', capture => '{t,tt}'$$);
SELECT refused($$deadline => 'd', group_by => 'tt'$$);
SELECT refused($$deadline => 'd', group_by => 'User'$$);
SELECT refused($$deadline => 'd', group_by => '''all'''$$);
CREATE TABLE empty (id int, n bigint, l timestamp);
SELECT refused($$deadline => 'n'$$, 'no.empty');
SELECT refused($$deadline => 'l'$$, 'no.empty');
SELECT z, refused(format($$deadline => 'l', timezone => %L$$, z)) FROM unnest('{Mars/Olympus,UTC+3,+03,Etc/GMT+3,europe/berlin}'::text[]) AS z;
-- implausible
SELECT left(refused($$deadline => 'i8', unit => 's'$$), 56);
SELECT left(refused($$deadline => 'i8', unit => 'us'$$), 56);
SELECT left(refused($$last_seen => 'l', ttl => '70000 days', timezone => 'UTC'$$), 56);

-- expressions: exactly one, of the row, not volatile
SELECT f, refused(format($$deadline => 'd', filter => %L$$, f)) FROM unnest(ARRAY['true) or (true', 'true; DROP TABLE no.ok', 'true, true', 'true --', 'true /*', 'b /* c */', 'b -- c', 'true AS x',
    'b FROM no.ok', 'true UNION SELECT true', 'true WHERE true', 'true LIMIT 1', 'DISTINCT b', 't', '1', 'id IN (SELECT 1)', 'count(*) > 0', 'generate_series(1, 2) > 0', 'row_number() OVER () > 1',
    'random() < 1', 'd < clock_timestamp()', 'd < now()', '$1', 'nope(id)', 'tt = ''x''', 'b AND b', 'no.ok.b', 'ok.b', 't.b', '', ' ']) AS f;
SELECT f, refused(format('deadline => %L', f)) FROM unnest(ARRAY['d + random() * interval ''1 s''', 'max(d)', '(SELECT now())', 'd, d', 'd + ', 'now()', '''2030-01-01''::timestamptz', '''2030-01-01''', 'CASE WHEN b THEN d END']) AS f;
SELECT f, refused(format($$deadline => 'd', action => 'update', filter => 'true', set_clause => %L$$, f)) FROM unnest(ARRAY['t = ''x''', 't = ''x'', b = false', '(t, b) = (''x'', false)', 't = $1', '(t, b) = (SELECT ($2)::text, false)', 't = ''x'' WHERE false', 't = ''x'' FROM pg_class',
    't = ''x'' RETURNING 1', 't = ''x''; DROP TABLE no.ok', 't = ''x'' --', 't = ''x'' /*', 'tt = 1', 'b = 5', 't', 'id = $1', 'gen = now()', '']) AS f;

-- arguments by themselves and together
SELECT a, refused(a) FROM unnest(ARRAY[
    $$deadline => 'd', last_seen => 'seen', ttl => '1 h'$$, $$ttl => '1 h'$$, $$last_seen => 'seen'$$, $$last_seen => 'seen', ttl => '0'$$, $$last_seen => 'seen', ttl => '-1 s'$$,
    $$last_seen => 'seen', ttl => '1 month'$$, $$last_seen => 'seen', ttl => '300 years'$$, $$last_seen => 'seen', ttl => '80000 days'$$, $$last_seen => 'seen', ttl => '1 day'$$,
    $$deadline => 'd', ttl_column => 'iv'$$, $$deadline => 'd', keep_for => '-1 s'$$, $$deadline => 'd', created => 'seen'$$, $$deadline => 'd', max_age => '1 h'$$,
    $$deadline => 'd', unit => 'minutes'$$, $$deadline => 'd', on_null => 'delete'$$, $$deadline => 'd', on_null => 'repair'$$, $$deadline => 'd', on_null => 'repair', ttl => '1 h'$$,
    $$deadline => 'gen', on_null => 'repair', ttl => '1 h'$$, $$deadline => 'coalesce(d, seen)', on_null => 'repair', ttl => '1 h'$$, $$deadline => 'd', is_alive => 'no.alive(text)'$$,
    $$deadline => 'd', action => 'archive'$$, $$deadline => 'd', action => 'update'$$, $$deadline => 'd', set_clause => 'b = true'$$, $$deadline => 'd', action => 'call'$$,
    $$deadline => 'd', audit => 'full'$$, $$deadline => 'd', audit => NULL$$, $$deadline => 'd', notify_keys => true$$, $$deadline => 'd', notify_channel => repeat('x', 64)$$,
    $$deadline => 'd', check_every => '-1 s'$$, $$deadline => 'd', check_every => '0'$$, $$deadline => 'd', max_lag => '0'$$, $$deadline => 'd', batch_size => -1$$, $$deadline => 'd', batch_size => 2000000$$,
    $$deadline => 'd', max_workers => -1$$, $$deadline => 'd', rate_limit => -1$$, $$deadline => 'd', backlog_rate => -1$$, $$deadline => 'd', soft_time_limit => '1 min'$$, $$deadline => 'd', hard_time_limit => '0'$$, $$deadline => 'd', hard_time_limit => '10 min 1 s'$$,
    $$deadline => 'd', lock_timeout => '1 s'$$, $$deadline => 'd', lock_timeout => '0'$$, $$deadline => 'd', max_retries => -1$$, $$deadline => 'd', fuse_fraction => 'NaN'$$, $$deadline => 'd', fuse_fraction => 1.1$$,
    $$deadline => 'd', fuse_min => -1$$, $$deadline => 'd', heartbeats => true$$, $$deadline => 'd', search_path => 'a b'$$, $$deadline => 'd', start => 'later'$$, $$deadline => 'd', start => NULL$$,
    $$deadline => 'd', policy => ''$$, $$deadline => 'd', policy => 'sweeper.x'$$, $$deadline => 'd', key => '{t}'$$]) AS a;
SELECT refused($$deadline => 'd'$$, NULL);
-- every process that sweeps reads them
SELECT a, refused(format($$deadline => 'd', %I => repeat('x', 16385)$$, a))
FROM unnest('{last_seen,ttl_column,created,unit,timezone,filter,on_null,action,set_clause,group_by,audit,notify_channel,search_path,maintenance_window}'::text[]) AS a;
SELECT refused($$deadline => repeat('x', 16385)$$), refused($$deadline => 'd', capture => array_fill('id'::text, ARRAY[3000])$$), refused($$deadline => 'd', filter => repeat(' ', 16381) || 'nope'$$);
-- nothing was registered, nothing dropped
SELECT count(*) FROM sweeper.policy WHERE policy NOT LIKE 'sweeper.%';
SELECT count(*) FROM ok;
\pset tuples_only off
\pset format aligned
RESET search_path;
SET client_min_messages = warning;
DROP SCHEMA no CASCADE;
DROP FOREIGN DATA WRAPPER regress_fdw CASCADE;
SELECT FROM sweeper.revoke_access('regress_owner');
SELECT FROM sweeper.revoke_access('regress_member');
SELECT FROM sweeper.revoke_access('regress_stranger');
DROP ROLE regress_owner, regress_member, regress_stranger;
RESET client_min_messages;
-- a unit that some rows contradict
CREATE TABLE odd (id int PRIMARY KEY, n bigint);
INSERT INTO odd VALUES (1, 0), (2, 86400), (3, 4102444800);
SELECT sweeper.register('odd', deadline => 'n', unit => 's');
DROP TABLE odd;
-- Policies that exist: a taken name gives a free one; bad input of other functions is an error, and nothing changes.
CREATE TABLE ok (id int PRIMARY KEY, d timestamptz);
SELECT state FROM sweeper.register('ok', deadline => 'd', check_every => '0', start => 'paused');
SELECT sweeper.register('ok', deadline => 'd');
SELECT sweeper.pause(NULL);
SELECT sweeper.pause('nope');
SELECT sweeper.pause('ok', until => now() - interval '1 s');
SELECT sweeper.retry_row('ok', 'x');
SELECT sweeper.alter_policy('ok', reset => '{nope}');
SELECT sweeper.alter_policy('ok', deadline => 'nope');
SELECT deadline FROM sweeper.policy WHERE policy = 'ok';
CALL sweeper.sweep('ok') \gset
SELECT sweeper.resume('ok');
BEGIN; CALL sweeper.sweep('ok'); ROLLBACK;
SELECT sweeper.unregister('ok');
SELECT count(*) FROM sweeper.policy WHERE policy NOT LIKE 'sweeper.%';
DROP TABLE ok;
-- a unique index identifies rows only by the equality that the key is compared with
CREATE COLLATION anycase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE folded (id text COLLATE anycase NOT NULL, d timestamptz);
CREATE UNIQUE INDEX ON folded (id COLLATE "C");
SELECT FROM sweeper.register('folded', key => '{id}', deadline => 'd');
SELECT (sweeper.register('folded', deadline => 'd', check_every => '0')).policy;
SELECT key FROM sweeper.policy WHERE policy = 'folded';
SELECT sweeper.unregister('folded');
CREATE UNIQUE INDEX ON folded (id);
SELECT (sweeper.register('folded', deadline => 'd', check_every => '0')).policy;
SELECT key FROM sweeper.policy WHERE policy = 'folded';
SELECT sweeper.unregister('folded');
CREATE TABLE patterned (k varchar NOT NULL, d timestamptz);
CREATE UNIQUE INDEX ON patterned (k varchar_pattern_ops);
SELECT (sweeper.register('patterned', deadline => 'd', check_every => '0')).policy;
SELECT key FROM sweeper.policy WHERE policy = 'patterned';
SELECT sweeper.unregister('patterned');
DROP TABLE folded, patterned;
DROP COLLATION anycase;
-- a column that may hold nulls is no part of a key, also where a constraint for new rows says otherwise (PostgreSQL 18)
CREATE TABLE halfway (a uuid, b uuid NOT NULL, d timestamptz, UNIQUE (a, b));
CREATE INDEX ON halfway (d);
INSERT INTO halfway VALUES (NULL, '00000000-0000-0000-0000-000000000001', now());
DO $$ BEGIN
    IF current_setting('server_version_num')::int >= 180000 THEN
        EXECUTE 'ALTER TABLE halfway ADD CONSTRAINT later NOT NULL a NOT VALID';
    END IF;
END $$;
SELECT FROM sweeper.register('halfway', deadline => 'd', check_every => '0', start => 'now');
SELECT key FROM sweeper.policy WHERE policy = 'halfway';
CALL sweeper.sweep('halfway', pass => NULL) \gset
SELECT key FROM sweeper.cleanup_event WHERE policy = 'halfway';
SELECT sweeper.unregister('halfway');
DROP TABLE halfway;
