-- Every form of deadline finds exactly its dead rows, and uses an index.
\set VERBOSITY terse
-- 1: timestamptz
CREATE TABLE form (id text PRIMARY KEY, d timestamptz);
CREATE INDEX ON form (d);
INSERT INTO form VALUES ('dead', now() - '1 s'::interval), ('live', now() + '1 h'::interval), ('never', 'infinity'), ('none', NULL), ('old', '-infinity');
SELECT index_used FROM sweeper.register('form', policy => 'f', deadline => 'd', check_every => '0', start => 'now');
CALL sweeper.sweep('f') \gset
SELECT string_agg(id, ' ' ORDER BY id) AS left_over FROM form;
SELECT sweeper.unregister('f'); DROP TABLE form;
-- 2, 3: local time, in UTC and elsewhere
CREATE TABLE form (id text PRIMARY KEY, d timestamp);
CREATE INDEX ON form (d);
INSERT INTO form VALUES ('dead', now() AT TIME ZONE 'Asia/Tokyo' - '1 s'::interval), ('live', now() AT TIME ZONE 'Asia/Tokyo' + '1 min'::interval);
SELECT index_used FROM sweeper.register('form', policy => 'f', deadline => 'd', timezone => 'Asia/Tokyo', check_every => '0', start => 'now');
CALL sweeper.sweep('f') \gset
SELECT string_agg(id, ' ' ORDER BY id) AS left_over FROM form;
SELECT sweeper.unregister('f'); DROP TABLE form;
-- 4, 5: epoch in three units and four types
CREATE TABLE form (id text PRIMARY KEY, d int);
CREATE INDEX ON form (d);
INSERT INTO form VALUES ('dead', extract(epoch FROM now())::int - 2), ('live', extract(epoch FROM now())::int + 60), ('far', 2147483647);
SELECT index_used FROM sweeper.register('form', policy => 'f', deadline => 'd', unit => 's', check_every => '0', start => 'now');
CALL sweeper.sweep('f') \gset
SELECT string_agg(id, ' ' ORDER BY id) AS left_over FROM form;
SELECT sweeper.unregister('f'); DROP TABLE form;
CREATE TABLE form (id text PRIMARY KEY, d bigint);
CREATE INDEX ON form (d);
INSERT INTO form VALUES ('dead', extract(epoch FROM now()) * 1000 - 2000), ('live', extract(epoch FROM now()) * 1000 + 60000);
SELECT index_used FROM sweeper.register('form', policy => 'f', deadline => 'd', unit => 'ms', check_every => '0', start => 'now');
CALL sweeper.sweep('f') \gset
SELECT string_agg(id, ' ' ORDER BY id) AS left_over FROM form;
SELECT sweeper.unregister('f'); DROP TABLE form;
CREATE TABLE form (id text PRIMARY KEY, d numeric);
CREATE INDEX ON form (d);
INSERT INTO form VALUES ('dead', extract(epoch FROM now()) * 1000000 - 2), ('live', extract(epoch FROM now()) * 1000000 + 60000000);
SELECT index_used FROM sweeper.register('form', policy => 'f', deadline => 'd', unit => 'us', check_every => '0', start => 'now');
CALL sweeper.sweep('f') \gset
SELECT string_agg(id, ' ' ORDER BY id) AS left_over FROM form;
SELECT sweeper.unregister('f'); DROP TABLE form;
CREATE TABLE form (id text PRIMARY KEY, d float8);
CREATE INDEX ON form (d);
INSERT INTO form VALUES ('dead', extract(epoch FROM now()) - 0.5), ('live', extract(epoch FROM now()) + 60);
SELECT index_used FROM sweeper.register('form', policy => 'f', deadline => 'd', unit => 's', check_every => '0', start => 'now');
CALL sweeper.sweep('f') \gset
SELECT string_agg(id, ' ' ORDER BY id) AS left_over FROM form;
SELECT sweeper.unregister('f'); DROP TABLE form;
-- date: at the start of the day, in the zone
CREATE TABLE form (id text PRIMARY KEY, d date);
CREATE INDEX ON form (d);
INSERT INTO form VALUES ('dead', (now() AT TIME ZONE 'UTC')::date), ('live', (now() AT TIME ZONE 'UTC')::date + 1);
SELECT index_used FROM sweeper.register('form', policy => 'f', deadline => 'd', timezone => 'UTC', check_every => '0', start => 'now');
CALL sweeper.sweep('f') \gset
SELECT string_agg(id, ' ' ORDER BY id) AS left_over FROM form;
SELECT sweeper.unregister('f'); DROP TABLE form;
-- 8: two clocks, fixed ones, each by its index
CREATE TABLE form (id text PRIMARY KEY, d timestamptz, c timestamptz);
CREATE INDEX form_d ON form (d);
CREATE INDEX form_c ON form (c);
INSERT INTO form VALUES ('by d', now() - '1 s'::interval, now()), ('by age', now() + '1 h'::interval, now() - '2 days'::interval), ('live', now() + '1 h'::interval, now());
SELECT index_used FROM sweeper.register('form', policy => 'f', deadline => 'd', created => 'c', max_age => '1 day', check_every => '0', start => 'now');
CALL sweeper.sweep('f') \gset
SELECT string_agg(id, ' ' ORDER BY id) AS left_over FROM form;
SELECT key, cleanup_type FROM sweeper.cleanup_event WHERE policy = 'f' AND key LIKE 'by%' ORDER BY key;
SELECT sweeper.unregister('f'); DROP TABLE form;
-- 9: filter; 11: null expires; 15: keyword and quoted names, composite key
CREATE TABLE "Form ""x""" (a int, "b C" text, "timestamp" timestamptz, "user" text, PRIMARY KEY (a, "b C"));
INSERT INTO "Form ""x""" VALUES (1, 'dead, "q"', now() - '1 s'::interval, 'x'), (2, 'kept', now() - '1 s'::interval, 'y'), (3, 'null', NULL, 'x');
SELECT relation, index_used FROM sweeper.register('"Form ""x"""', policy => 'f', deadline => 'timestamp', filter => '"user" = ''x''', on_null => 'expire', check_every => '0', start => 'now');
CALL sweeper.sweep('f') \gset
SELECT a, "b C" FROM "Form ""x""";
SELECT key FROM sweeper.cleanup_event WHERE policy = 'f' AND relation LIKE '%x%' ORDER BY key;
SELECT sweeper.unregister('f'); DROP TABLE "Form ""x""";
-- 14: an expression, with its index
CREATE TABLE form (id text PRIMARY KEY, j jsonb, created_at timestamp, expires_in int);
CREATE INDEX form_expr ON form ((created_at + make_interval(secs => expires_in)));
INSERT INTO form VALUES ('dead', '{}', now() AT TIME ZONE 'UTC' - '2 min'::interval, 60), ('live', '{}', now() AT TIME ZONE 'UTC' - '2 min'::interval, 600), ('never', '{}', now() AT TIME ZONE 'UTC', NULL);
SELECT index_used FROM sweeper.register('form', policy => 'f', deadline => 'created_at + make_interval(secs => expires_in)', timezone => 'UTC', check_every => '0', start => 'now');
CALL sweeper.sweep('f') \gset
SELECT string_agg(id, ' ' ORDER BY id) AS left_over FROM form;
SELECT sweeper.unregister('f'); DROP TABLE form;
-- no index: told, with the statement
\set VERBOSITY default
CREATE TABLE form (id text PRIMARY KEY, d timestamptz);
INSERT INTO form VALUES ('dead', now() - '1 s'::interval), ('live', now() + '1 h'::interval);
SELECT index_used, advice FROM sweeper.register('form', policy => 'f', deadline => 'd', check_every => '0', start => 'now');
CALL sweeper.sweep('f') \gset
SELECT string_agg(id, ' ' ORDER BY id) AS left_over FROM form;
SELECT sweeper.unregister('f'); DROP TABLE form;
-- What each form of deadline means: which rows preview() finds dead, and by which index.
CREATE SCHEMA forms;
SET search_path = forms, public;
SET timezone = 'UTC';
\set VERBOSITY terse
-- Found rows of a dry run: "dead keys | index".
CREATE FUNCTION found(rel regclass, args text, OUT dead text, OUT index_used text) LANGUAGE plpgsql AS $$
DECLARE r record;
BEGIN
    EXECUTE format('SELECT * FROM sweeper.register(%L, %s, dry_run => true)', rel, args) INTO r;
    SELECT string_agg(k, ' ' ORDER BY k) INTO dead FROM unnest(r.sample_keys) AS k;
    IF r.dead_estimate <> cardinality(r.sample_keys) OR NOT r.exact THEN
        dead := dead || ' but counted ' || r.dead_estimate;
    END IF;
    index_used := r.index_used;
END $$;

-- numbers: absurd values are nobody's deadline and raise nothing
CREATE TABLE n (id text PRIMARY KEY, i4 int, i8 bigint, num numeric, f8 float8);
INSERT INTO n SELECT k, least(e, 2147483647), e, e, e
FROM (VALUES ('dead', extract(epoch FROM now())::bigint - 5), ('live', extract(epoch FROM now())::bigint + 60)) AS v (k, e);
INSERT INTO n VALUES ('largest', 2147483647, 9223372036854775807, 'Infinity', 'Infinity'), ('none', NULL, NULL, NULL, NULL);
CREATE INDEX n_i4 ON n (i4);
CREATE INDEX n_i8 ON n (i8);
CREATE INDEX n_num ON n (num);
CREATE INDEX n_f8 ON n (f8);
SELECT f.* FROM unnest('{i4,i8,num,f8}'::text[]) WITH ORDINALITY AS c (c, o), found('n', format('deadline => %L, unit => ''s''', c)) AS f ORDER BY o;
INSERT INTO n VALUES ('nan', NULL, -9223372036854775808, 'NaN', 'NaN'), ('huge', NULL, 9223372036854775806, 1e100, 1e300), ('tiny', NULL, -9223372036854775807, -1e100, -1e300);
SELECT f.* FROM unnest('{i8,num,f8}'::text[]) WITH ORDINALITY AS c (c, o), found('n', format('deadline => %L, unit => ''s'', filter => ''id <> ''''x''''''', c)) AS f ORDER BY o;
UPDATE n SET i8 = i8 * 1000, num = num * 1000, f8 = f8 * 1000 WHERE id IN ('dead', 'live');
SELECT f.* FROM unnest('{i8,num,f8}'::text[]) WITH ORDINALITY AS c (c, o), found('n', format('deadline => %L, unit => ''ms''', c)) AS f ORDER BY o;
UPDATE n SET i8 = i8 * 1000, num = num * 1000, f8 = f8 * 1000 WHERE id IN ('dead', 'live');
SELECT f.* FROM unnest('{i8,num,f8}'::text[]) WITH ORDINALITY AS c (c, o), found('n', format('deadline => %L, unit => ''us''', c)) AS f ORDER BY o;
-- activity in numbers: the time to live moves to the bound
SELECT f.* FROM unnest('{i8,num,f8}'::text[]) WITH ORDINALITY AS c (c, o), found('n', format('last_seen => %L, unit => ''us'', ttl => ''20 s'', filter => ''id IN (''''dead'''', ''''live'''')''', c)) AS f ORDER BY o;

-- timestamps: extremes are infinite, a domain is as good as its type
CREATE DOMAIN moment AS timestamptz CHECK (VALUE IS NOT NULL);
CREATE TABLE ts (id text PRIMARY KEY, z timestamptz, l timestamp, d date, m moment);
INSERT INTO ts VALUES
    ('dead', now() - interval '5 s', now() - interval '5 s', now() - interval '2 days', now() - interval '5 s'),
    ('live', now() + interval '1 min', now() + interval '1 min', now() + interval '2 days', now() + interval '1 min'),
    ('inf', 'infinity', 'infinity', 'infinity', 'infinity'),
    ('-inf', '-infinity', '-infinity', '-infinity', '-infinity'),
    ('max', '294276-12-31 23:59:59+00', '294276-12-31 23:59:59', '5874897-12-31', '294276-12-31 23:59:59+00'),
    ('min', '4713-01-01 BC', '4714-11-24 00:00:00 BC', '4714-11-24 BC', '4713-01-01 BC');
CREATE INDEX ts_z ON ts (z);
CREATE INDEX ts_l ON ts (l);
CREATE INDEX ts_d ON ts (d);
CREATE INDEX ts_m ON ts (m);
SELECT f.* FROM unnest('{z,l,d,m}'::text[]) WITH ORDINALITY AS c (c, o), found('ts', format('deadline => %L, timezone => ''Asia/Tokyo''', c)) AS f ORDER BY o;
SELECT f.* FROM unnest('{z,l,d,m}'::text[]) WITH ORDINALITY AS c (c, o), found('ts', format('last_seen => %L, ttl => ''73000 days'', timezone => ''UTC''', c)) AS f ORDER BY o;
SELECT f.* FROM unnest('{z,l,m}'::text[]) WITH ORDINALITY AS c (c, o), found('ts', format('last_seen => %L, ttl => ''2 s'', timezone => ''UTC''', c)) AS f ORDER BY o;
-- a date of activity counts until its end, a date as deadline from its begin
TRUNCATE ts;
INSERT INTO ts (id, d, m) SELECT i::text, now()::date + i, now() FROM generate_series(-2, 1) AS i;
SELECT dead FROM found('ts', $$deadline => 'd', timezone => 'UTC'$$);
SELECT dead FROM found('ts', $$last_seen => 'd', ttl => '1 s', timezone => 'UTC'$$);

-- a time to live of the row's own, in all ways to write it
CREATE TABLE own (id text PRIMARY KEY, z timestamptz, l timestamp, ms bigint, s int, ttl_ms bigint, iv interval);
INSERT INTO own SELECT k, now() - ago, now() - ago, extract(epoch FROM now() - ago) * 1000, s, s * 1000::bigint, make_interval(secs => s)
FROM (VALUES ('dead', interval '2 min', 60), ('live', '2 min', 600), ('new', '5 s', 60), ('none', '2 min', NULL), ('zero', '2 min', 0), ('negative', '2 min', -1)) AS v (k, ago, s);
INSERT INTO own VALUES ('absurd', now() - interval '2 min', now() - interval '2 min', extract(epoch FROM now()) * 1000, 2147483647, 9223372036854775807, '178000000 years');
SELECT v.args, f.* FROM (VALUES (1, $$last_seen => 'z', ttl_column => 's'$$), (2, $$last_seen => 'z', ttl_column => 's', ttl => '90 s'$$),
    (3, $$last_seen => 'z', ttl_column => 'iv'$$), (4, $$last_seen => 'z', ttl_column => 'ttl_ms', unit => 'ms'$$),
    (5, $$last_seen => 'l', ttl_column => 's', timezone => 'UTC'$$), (6, $$last_seen => 'l', ttl_column => 'iv', timezone => 'UTC', on_null => 'expire'$$),
    (7, $$last_seen => 'ms', ttl_column => 's', unit => 'ms'$$), (8, $$last_seen => 'to_timestamp(ms / 1000.0)', ttl_column => 'ttl_ms', unit => 'ms'$$)) AS v (o, args),
    found('own', v.args) AS f ORDER BY o;
-- the index that is advised for it is used
\set VERBOSITY default
SELECT advice FROM sweeper.register('own', last_seen => 'z', ttl_column => 's', dry_run => true);
SELECT advice FROM sweeper.register('own', last_seen => 'l', ttl_column => 's', timezone => 'Europe/Berlin', ttl => '1 h', dry_run => true);
SELECT advice FROM sweeper.register('own', last_seen => 'ms', ttl_column => 's', unit => 'ms', dry_run => true);
\set VERBOSITY terse
DELETE FROM own WHERE id = 'absurd';
CREATE INDEX own_z ON own (((z AT TIME ZONE 'UTC') + make_interval(secs => s)));
CREATE INDEX own_l ON own ((l + make_interval(secs => s::double precision)));
CREATE INDEX own_ms ON own (((to_timestamp(ms::double precision / 1000) AT TIME ZONE 'UTC') + make_interval(secs => s)));
SELECT f.* FROM (VALUES (1, $$last_seen => 'z', ttl_column => 's'$$), (2, $$last_seen => 'l', ttl_column => 's', timezone => 'UTC'$$),
    (3, $$last_seen => 'ms', ttl_column => 's', unit => 'ms'$$)) AS v (o, args), found('own', v.args) AS f ORDER BY o;

-- local time: the repeated hour of autumn is late by up to an hour, never early; spring loses nothing
CREATE TABLE dst (id text PRIMARY KEY, l timestamp);
CREATE INDEX dst_l ON dst (l);
CREATE FUNCTION dead_at(at timestamptz) RETURNS text LANGUAGE plpgsql AS $$
DECLARE r record;
BEGIN
    -- keep_for moves the cutoff back to that instant
    EXECUTE format('SELECT * FROM sweeper.register(''dst'', deadline => ''l'', timezone => ''Europe/Berlin'', keep_for => %L, dry_run => true)', now() - at) INTO r;
    RETURN (SELECT string_agg(k, ' ' ORDER BY k) FROM unnest(r.sample_keys) AS k);
END $$;
INSERT INTO dst VALUES ('01:50', '2025-10-26 01:50'), ('02:10', '2025-10-26 02:10'), ('02:50', '2025-10-26 02:50'), ('03:10', '2025-10-26 03:10');
SELECT at AS utc, dead_at(at) FROM (VALUES (timestamptz '2025-10-25 23:55+00'), ('2025-10-26 00:15+00'), ('2025-10-26 00:55+00'),
    ('2025-10-26 01:15+00'), ('2025-10-26 01:55+00'), ('2025-10-26 02:15+00')) AS v (at);

-- two clocks, each with its own index
CREATE TABLE two (id text PRIMARY KEY, seen timestamptz, created timestamp);
INSERT INTO two VALUES ('idle', now() - interval '2 h', now() - interval '3 h'), ('old', now(), now() - interval '2 days'), ('both', now() - interval '2 h', now() - interval '2 days'), ('live', now(), now());
CREATE INDEX two_seen ON two (seen);
SELECT f.* FROM found('two', $$last_seen => 'seen', ttl => '1 h', created => 'created', max_age => '1 day', timezone => 'UTC'$$) AS f;
CREATE INDEX two_created ON two (created);
SELECT f.* FROM found('two', $$last_seen => 'seen', ttl => '1 h', created => 'created', max_age => '1 day', timezone => 'UTC'$$) AS f;

-- an index that the filter makes usable; one whose predicate it does not imply
CREATE TABLE tenant (id text PRIMARY KEY, nid int NOT NULL, active boolean, expires timestamptz);
INSERT INTO tenant VALUES ('a', 1, true, now() - interval '1 min'), ('b', 2, true, now() - interval '1 min'), ('c', 1, false, now() - interval '1 min');
CREATE INDEX tenant_nid ON tenant (nid, expires);
SELECT * FROM found('tenant', $$deadline => 'expires'$$);
SELECT * FROM found('tenant', $$deadline => 'expires', filter => 'nid = 1'$$);
SELECT * FROM found('tenant', $$deadline => 'expires', filter => 'nid = 1 AND active'$$);
DROP INDEX tenant_nid;
CREATE INDEX tenant_active ON tenant (expires) WHERE active;
SELECT * FROM found('tenant', $$deadline => 'expires'$$);
SELECT * FROM found('tenant', $$deadline => 'expires', filter => 'active'$$);
CREATE INDEX tenant_not_null ON tenant (expires DESC NULLS LAST) WHERE expires IS NOT NULL;
SELECT * FROM found('tenant', $$deadline => 'expires'$$);

-- expressions: a stable one works without an index, an immutable one with its own; derived from another table
CREATE TABLE token (session text, refreshed timestamptz);
INSERT INTO token VALUES ('a', now() - interval '2 h'), ('a', now() - interval '1 min'), ('b', now() - interval '2 h');
CREATE FUNCTION newest(text) RETURNS timestamptz LANGUAGE sql STABLE AS 'SELECT max(refreshed) FROM forms.token WHERE session = $1';
CREATE TABLE derived (id text PRIMARY KEY, payload jsonb, "when" timestamptz);
INSERT INTO derived VALUES ('a', '{"exp": 1}', now() - interval '1 min'), ('b', jsonb_build_object('exp', extract(epoch FROM now() + interval '1 h')::bigint), now());
\set VERBOSITY default
SELECT dead_estimate, sample_keys, advice FROM sweeper.register('derived', last_seen => 'newest(id)', ttl => '1 h', dry_run => true);
SELECT dead_estimate, sample_keys, advice FROM sweeper.register('derived', deadline => '(payload ->> ''exp'')::bigint', unit => 's', filter => 'id <> ''a''', dry_run => true);
\set VERBOSITY terse
CREATE INDEX derived_exp ON derived (((payload ->> 'exp')::bigint));
SELECT * FROM found('derived', $$deadline => '(payload ->> ''exp'')::bigint', unit => 's', filter => 'id <> ''a'''$$);
SELECT * FROM found('derived', $$deadline => '"when" + interval ''30 s'''$$);
-- partitions: an index on the parent, or on each leaf
CREATE TABLE part (id int, expires timestamptz) PARTITION BY RANGE (id);
CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (10);
CREATE TABLE part_2 PARTITION OF part FOR VALUES FROM (10) TO (20);
INSERT INTO part SELECT i, now() + (i - 5) * interval '1 min' FROM generate_series(1, 19) AS i;
\set VERBOSITY default
SELECT rows_estimate, dead_estimate, index_used FROM sweeper.register('part', deadline => 'expires', dry_run => true);
\set VERBOSITY terse
CREATE INDEX ON part_1 (expires);
SELECT rows_estimate, dead_estimate, index_used FROM sweeper.register('part', deadline => 'expires', dry_run => true);
CREATE INDEX ON part_2 (expires);
SELECT rows_estimate, dead_estimate, index_used FROM sweeper.register('part', deadline => 'expires', dry_run => true);
SELECT policy FROM sweeper.policy WHERE policy NOT LIKE 'sweeper.%';
RESET search_path;
\set VERBOSITY terse
SET client_min_messages = warning;
DROP SCHEMA forms CASCADE;
-- a ttl_column that is a number beside a number of milliseconds is in seconds; beside a time it has the unit
RESET client_min_messages;
CREATE TABLE lifetimes (id int PRIMARY KEY, last_ms bigint, ttl_ms int, ttl_s int);
INSERT INTO lifetimes SELECT i, extract(epoch FROM now() - interval '1 h') * 1000, 1800000, 1800 FROM generate_series(1, 5) AS i;
\set VERBOSITY default
SELECT dead_estimate FROM sweeper.register('lifetimes', last_seen => 'last_ms', ttl_column => 'ttl_ms', unit => 'ms', dry_run => true);
SET client_min_messages = warning;
SELECT dead_estimate FROM sweeper.register('lifetimes', last_seen => 'to_timestamp(last_ms / 1000.0)', ttl_column => 'ttl_ms', unit => 'ms', dry_run => true);
SET client_min_messages = notice;
SELECT dead_estimate FROM sweeper.register('lifetimes', last_seen => 'last_ms', ttl_column => 'ttl_s', unit => 'ms', dry_run => true);
SET client_min_messages = warning;
DROP TABLE lifetimes;
