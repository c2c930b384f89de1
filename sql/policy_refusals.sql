-- Bad input: a clear error, and nothing changed.
CREATE TABLE ok (id int PRIMARY KEY, d timestamptz, n bigint, l timestamp, t text);
INSERT INTO ok VALUES (1, now(), 1700000000000, '2023-11-14 22:13:20', 'x');
CREATE VIEW v AS SELECT * FROM ok;
CREATE TEMP TABLE tmp (id int PRIMARY KEY, d timestamptz);
SELECT sweeper.register('v', deadline => 'd');
SELECT sweeper.register('tmp', deadline => 'd');
SELECT sweeper.register('pg_catalog.pg_class', deadline => 'relname');
SELECT sweeper.register(NULL, deadline => 'd');
SELECT sweeper.register('ok', deadline => 'dd');
SELECT sweeper.register('ok', deadline => 'D');
SELECT sweeper.register('ok', deadline => 't');
SELECT sweeper.register('ok', deadline => 'd', last_seen => 'd');
SELECT sweeper.register('ok');
SELECT sweeper.register('ok', last_seen => 'd');
SELECT sweeper.register('ok', last_seen => 'd', ttl => '0');
SELECT sweeper.register('ok', last_seen => 'd', ttl => '-1 s');
SELECT sweeper.register('ok', last_seen => 'd', ttl => '1 month');
SELECT sweeper.register('ok', deadline => 'd', ttl_column => 'n');
SELECT sweeper.register('ok', deadline => 'd', created => 'd');
SELECT sweeper.register('ok', deadline => 'd', unit => 'min');
SELECT sweeper.register('ok', deadline => 'd', action => 'drop');
SELECT sweeper.register('ok', deadline => 'd', action => 'update');
SELECT sweeper.register('ok', deadline => 'd', set_clause => 't = 1');
SELECT sweeper.register('ok', deadline => 'd', action => 'update', set_clause => 't = ''x''; DROP TABLE ok');
SELECT sweeper.register('ok', deadline => 'd', action => 'update', set_clause => 'nope = 1');
SELECT sweeper.register('ok', deadline => 'd', action => 'call');
SELECT sweeper.register('ok', deadline => 'd', audit => NULL);
SELECT sweeper.register('ok', deadline => 'd', timezone => 'UTC', filter => 't');
SELECT sweeper.register('ok', deadline => 'd', filter => 'true, true');
SELECT sweeper.register('ok', deadline => 'd', filter => 'true) OR (SELECT true');
SELECT sweeper.register('ok', deadline => 'd', filter => 'true); DROP TABLE ok; SELECT (true');
SELECT sweeper.register('ok', deadline => 'd', filter => 'id IN (SELECT 1)');
SELECT sweeper.register('ok', deadline => 'd', filter => 'random() < 2');
SELECT sweeper.register('ok', deadline => 'd + (clock_timestamp() - clock_timestamp())');
SELECT sweeper.register('ok', deadline => 'd', lock_timeout => '5 s');
SELECT sweeper.register('ok', deadline => 'd', heartbeats => true);
SELECT sweeper.register('ok', deadline => 'd', policy => 'sweeper.mine');
SELECT sweeper.register('ok', deadline => 'd', max_workers => 0);
SELECT sweeper.register('ok', deadline => 'd', fuse_fraction => 1.5);
SELECT sweeper.register('ok', deadline => 'd', on_expire => 'lower(text)');
SELECT sweeper.register('ok', deadline => 'd', is_alive => 'lower(text)');
SELECT sweeper.register('ok', deadline => 'd', start => 'later');
-- a number or a local time without its unit or zone: what the newest row would mean
SELECT sweeper.register('ok', deadline => 'n');
\set VERBOSITY terse
SELECT sweeper.register('ok', deadline => 'l');
\set VERBOSITY default
-- the wrong unit is implausible
\set VERBOSITY terse
SELECT sweeper.register('ok', deadline => 'n', unit => 's');
\set VERBOSITY default
CREATE TABLE odd (id int PRIMARY KEY, n bigint);
INSERT INTO odd VALUES (1, 0), (2, 86400), (3, 4102444800);
SELECT sweeper.register('odd', deadline => 'n', unit => 's');
DROP TABLE odd;
CREATE RULE keep AS ON DELETE TO ok DO INSTEAD NOTHING;
SELECT sweeper.register('ok', deadline => 'd');
DROP RULE keep ON ok;
-- a taken name gives a free one
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
DROP TABLE ok CASCADE;
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
