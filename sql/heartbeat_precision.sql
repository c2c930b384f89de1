-- Whatever a column can hold, the deadline that is written is never before the heartbeat and one time to live, and not later than it must.
SET client_min_messages = warning;
CREATE TABLE kind (policy text, type text, written text, read text, grain interval, more text);
INSERT INTO kind VALUES
    ('k1', 'timestamptz', '%s', 'd', '0', 'deadline => ''d'''),
    ('k2', 'timestamptz(0)', '%s', 'd', '1 s', 'deadline => ''d'''),
    ('k3', 'timestamp(3)', '%s AT TIME ZONE ''Asia/Tokyo''', 'd AT TIME ZONE ''Asia/Tokyo''', '1 ms', 'deadline => ''d'', timezone => ''Asia/Tokyo'''),
    ('k4', 'bigint', 'extract(epoch FROM %s) * 1000', 'to_timestamp(d / 1000.0)', '1 ms', 'deadline => ''d'', unit => ''ms'''),
    ('k5', 'int', 'extract(epoch FROM %s)', 'to_timestamp(d)', '1 s', 'deadline => ''d'', unit => ''s'''),
    ('k6', 'float8', 'extract(epoch FROM %s)', 'to_timestamp(d)', '0', 'deadline => ''d'', unit => ''s'''),
    ('k7', 'numeric', 'extract(epoch FROM %s)', 'to_timestamp(d)', '0', 'deadline => ''d'', unit => ''s'''),
    ('k8', 'numeric(14,1)', 'extract(epoch FROM %s)', 'to_timestamp(d)', '100 ms', 'deadline => ''d'', unit => ''s'''),
    ('k9', 'date', '(%s AT TIME ZONE ''UTC'')::date', 'd::timestamp AT TIME ZONE ''UTC''', '1 day', 'deadline => ''d'', timezone => ''UTC'''),
    ('l1', 'timestamptz(0)', '%s - interval ''960 h''', 'd + ttl', '1 s', 'last_seen => ''d'''),
    ('l2', 'int', 'extract(epoch FROM %s - interval ''960 h'')', 'to_timestamp(d) + ttl', '1 s', 'last_seen => ''d'', unit => ''s''');
CREATE FUNCTION each(statement text, args text[] DEFAULT '{}') RETURNS void LANGUAGE plpgsql AS $$
DECLARE k kind;
BEGIN
    FOR k IN TABLE kind ORDER BY policy LOOP
        EXECUTE format(statement, k.policy, k.type, k.read, k.more, format(k.written, '(now() + $1[1]::interval)'), k.grain) USING args;
    END LOOP;
END $$;
SELECT each($$CREATE TABLE %1$s (id int PRIMARY KEY, d %2$s, ttl interval, beat timestamptz, way text)$$);
SELECT each($$CREATE INDEX ON %1$s (d)$$);
CREATE FUNCTION reg() RETURNS void LANGUAGE sql AS $f$
    SELECT each($$SELECT FROM sweeper.register('%1$s', %4$s, ttl => '1 h', ttl_column => 'ttl', on_null => 'repair', heartbeats => true,
        check_every => '0', start => 'now', fuse_fraction => 1)$$)
$f$;
-- ten rows whose times to live end at ten parts of a second, with a deadline at that distance; heard of now
CREATE FUNCTION hear(way text, distance text) RETURNS void LANGUAGE sql AS $f$
    SELECT each($$INSERT INTO %1$s SELECT (SELECT count(*) FROM %1$s) + i, %5$s, make_interval(hours => 960, secs => i * 0.097), clock_timestamp(), $1[2]
        FROM generate_series(1, 10) AS i$$, ARRAY[distance, way])
$f$;
CREATE FUNCTION beat(way text) RETURNS void LANGUAGE sql AS $f$
    SELECT each($$DO 'BEGIN IF EXISTS (SELECT FROM sweeper.touch_many(''%1$s'', ARRAY(SELECT id::text FROM %1$s WHERE way = ''$$ || way || $$''))) THEN RAISE ''gone''; END IF; END'$$)
$f$;
SELECT string_agg(format($$SELECT way, %L AS type, %s AS due, beat + ttl AS promised, %L::interval AS grain FROM %I$$, policy || ' ' || type, read, grain, policy), ' UNION ALL ' ORDER BY policy) AS rows
FROM kind \gset
CREATE VIEW written AS :rows;
-- beat is before the heartbeats; what they and the tests take is less than a minute
CREATE VIEW result AS SELECT type, way, count(*) FILTER (WHERE due < promised OR due IS NULL) AS early,
    count(*) FILTER (WHERE due > promised + grain + interval '5 min') AS late FROM written GROUP BY type, way;
SELECT reg();
-- the heartbeat itself writes what is overdue, as it does where memory is full; a pass writes what is near, and what has no deadline
SELECT hear('written at once', '-1 h'), hear('by a pass', '120 h'), hear('without deadline', NULL);
SELECT beat('written at once'), beat('by a pass');
CALL sweeper.sweep('k1') \gset
CALL sweeper.sweep('k2') \gset
CALL sweeper.sweep('k3') \gset
CALL sweeper.sweep('k4') \gset
CALL sweeper.sweep('k5') \gset
CALL sweeper.sweep('k6') \gset
CALL sweeper.sweep('k7') \gset
CALL sweeper.sweep('k8') \gset
CALL sweeper.sweep('k9') \gset
CALL sweeper.sweep('l1') \gset
CALL sweeper.sweep('l2') \gset
-- when heartbeats are taken away
SELECT hear('by alter_policy', '960 h');
SELECT beat('by alter_policy');
SELECT each($$SELECT FROM sweeper.alter_policy('%1$s', heartbeats => false, reset => '{ttl_column}')$$);
SELECT each($$SELECT sweeper.unregister('%1$s')$$), reg();
SELECT hear('by unregister', '960 h');
SELECT beat('by unregister');
SELECT each($$SELECT sweeper.unregister('%1$s')$$);
SELECT way, count(*) AS types, sum(early) AS early, sum(late) AS late FROM result GROUP BY way ORDER BY way;
SELECT * FROM result WHERE early > 0 OR late > 0 ORDER BY type, way;
SELECT each('DROP TABLE %1$s CASCADE');
-- a column that rounds to tens of seconds is no deadline
CREATE TABLE k (id int PRIMARY KEY, d numeric(14,-1));
SELECT sweeper.register('k', deadline => 'd', unit => 's');
DROP TABLE k, kind;
DROP FUNCTION each, reg, hear, beat;
