-- Every form of deadline finds exactly its dead rows, and uses an index.
\set VERBOSITY terse
-- 1: timestamptz
CREATE TABLE form (id text PRIMARY KEY, d timestamptz);
CREATE INDEX ON form (d);
INSERT INTO form VALUES ('dead', now() - '1 s'::interval), ('live', now() + '1 h'::interval), ('never', 'infinity'), ('none', NULL), ('old', '-infinity');
SELECT index_used FROM sweeper.register('form', policy => 'f', deadline => 'd', check_every => '0', start => 'now');
CALL sweeper.sweep('f'); SELECT string_agg(id, ' ' ORDER BY id) AS left_over FROM form;
SELECT sweeper.unregister('f'); DROP TABLE form;
-- 2, 3: local time, in UTC and elsewhere
CREATE TABLE form (id text PRIMARY KEY, d timestamp);
CREATE INDEX ON form (d);
INSERT INTO form VALUES ('dead', now() AT TIME ZONE 'Asia/Tokyo' - '1 s'::interval), ('live', now() AT TIME ZONE 'Asia/Tokyo' + '1 min'::interval);
SELECT index_used FROM sweeper.register('form', policy => 'f', deadline => 'd', timezone => 'Asia/Tokyo', check_every => '0', start => 'now');
CALL sweeper.sweep('f'); SELECT string_agg(id, ' ' ORDER BY id) AS left_over FROM form;
SELECT sweeper.unregister('f'); DROP TABLE form;
-- 4, 5: epoch in three units and four types
CREATE TABLE form (id text PRIMARY KEY, d int);
CREATE INDEX ON form (d);
INSERT INTO form VALUES ('dead', extract(epoch FROM now())::int - 2), ('live', extract(epoch FROM now())::int + 60), ('far', 2147483647);
SELECT index_used FROM sweeper.register('form', policy => 'f', deadline => 'd', unit => 's', check_every => '0', start => 'now');
CALL sweeper.sweep('f'); SELECT string_agg(id, ' ' ORDER BY id) AS left_over FROM form;
SELECT sweeper.unregister('f'); DROP TABLE form;
CREATE TABLE form (id text PRIMARY KEY, d bigint);
CREATE INDEX ON form (d);
INSERT INTO form VALUES ('dead', extract(epoch FROM now()) * 1000 - 2000), ('live', extract(epoch FROM now()) * 1000 + 60000);
SELECT index_used FROM sweeper.register('form', policy => 'f', deadline => 'd', unit => 'ms', check_every => '0', start => 'now');
CALL sweeper.sweep('f'); SELECT string_agg(id, ' ' ORDER BY id) AS left_over FROM form;
SELECT sweeper.unregister('f'); DROP TABLE form;
CREATE TABLE form (id text PRIMARY KEY, d numeric);
CREATE INDEX ON form (d);
INSERT INTO form VALUES ('dead', extract(epoch FROM now()) * 1000000 - 2), ('live', extract(epoch FROM now()) * 1000000 + 60000000);
SELECT index_used FROM sweeper.register('form', policy => 'f', deadline => 'd', unit => 'us', check_every => '0', start => 'now');
CALL sweeper.sweep('f'); SELECT string_agg(id, ' ' ORDER BY id) AS left_over FROM form;
SELECT sweeper.unregister('f'); DROP TABLE form;
CREATE TABLE form (id text PRIMARY KEY, d float8);
CREATE INDEX ON form (d);
INSERT INTO form VALUES ('dead', extract(epoch FROM now()) - 0.5), ('live', extract(epoch FROM now()) + 60);
SELECT index_used FROM sweeper.register('form', policy => 'f', deadline => 'd', unit => 's', check_every => '0', start => 'now');
CALL sweeper.sweep('f'); SELECT string_agg(id, ' ' ORDER BY id) AS left_over FROM form;
SELECT sweeper.unregister('f'); DROP TABLE form;
-- date: at the start of the day, in the zone
CREATE TABLE form (id text PRIMARY KEY, d date);
CREATE INDEX ON form (d);
INSERT INTO form VALUES ('dead', (now() AT TIME ZONE 'UTC')::date), ('live', (now() AT TIME ZONE 'UTC')::date + 1);
SELECT index_used FROM sweeper.register('form', policy => 'f', deadline => 'd', timezone => 'UTC', check_every => '0', start => 'now');
CALL sweeper.sweep('f'); SELECT string_agg(id, ' ' ORDER BY id) AS left_over FROM form;
SELECT sweeper.unregister('f'); DROP TABLE form;
-- 8: two clocks, fixed ones, each by its index
CREATE TABLE form (id text PRIMARY KEY, d timestamptz, c timestamptz);
CREATE INDEX form_d ON form (d);
CREATE INDEX form_c ON form (c);
INSERT INTO form VALUES ('by d', now() - '1 s'::interval, now()), ('by age', now() + '1 h'::interval, now() - '2 days'::interval), ('live', now() + '1 h'::interval, now());
SELECT index_used FROM sweeper.register('form', policy => 'f', deadline => 'd', created => 'c', max_age => '1 day', check_every => '0', start => 'now');
CALL sweeper.sweep('f'); SELECT string_agg(id, ' ' ORDER BY id) AS left_over FROM form;
SELECT key, cleanup_type FROM sweeper.cleanup_event WHERE policy = 'f' AND key LIKE 'by%' ORDER BY key;
SELECT sweeper.unregister('f'); DROP TABLE form;
-- 9: filter; 11: null expires; 15: keyword and quoted names, composite key
CREATE TABLE "Form ""x""" (a int, "b C" text, "timestamp" timestamptz, "user" text, PRIMARY KEY (a, "b C"));
INSERT INTO "Form ""x""" VALUES (1, 'dead, "q"', now() - '1 s'::interval, 'x'), (2, 'kept', now() - '1 s'::interval, 'y'), (3, 'null', NULL, 'x');
SELECT relation, index_used FROM sweeper.register('"Form ""x"""', policy => 'f', deadline => 'timestamp', filter => '"user" = ''x''', on_null => 'expire', check_every => '0', start => 'now');
CALL sweeper.sweep('f'); SELECT a, "b C" FROM "Form ""x""";
SELECT key FROM sweeper.cleanup_event WHERE policy = 'f' AND relation LIKE '%x%' ORDER BY key;
SELECT sweeper.unregister('f'); DROP TABLE "Form ""x""";
-- 14: an expression, with its index
CREATE TABLE form (id text PRIMARY KEY, j jsonb, created_at timestamp, expires_in int);
CREATE INDEX form_expr ON form ((created_at + make_interval(secs => expires_in)));
INSERT INTO form VALUES ('dead', '{}', now() AT TIME ZONE 'UTC' - '2 min'::interval, 60), ('live', '{}', now() AT TIME ZONE 'UTC' - '2 min'::interval, 600), ('never', '{}', now() AT TIME ZONE 'UTC', NULL);
SELECT index_used FROM sweeper.register('form', policy => 'f', deadline => 'created_at + make_interval(secs => expires_in)', timezone => 'UTC', check_every => '0', start => 'now');
CALL sweeper.sweep('f'); SELECT string_agg(id, ' ' ORDER BY id) AS left_over FROM form;
SELECT sweeper.unregister('f'); DROP TABLE form;
-- no index: told, with the statement
\set VERBOSITY default
CREATE TABLE form (id text PRIMARY KEY, d timestamptz);
INSERT INTO form VALUES ('dead', now() - '1 s'::interval), ('live', now() + '1 h'::interval);
SELECT index_used, advice FROM sweeper.register('form', policy => 'f', deadline => 'd', check_every => '0', start => 'now');
CALL sweeper.sweep('f'); SELECT string_agg(id, ' ' ORDER BY id) AS left_over FROM form;
SELECT sweeper.unregister('f'); DROP TABLE form;
