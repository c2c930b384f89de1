-- is_alive that takes many keys at once
CREATE TABLE together (id int PRIMARY KEY, d timestamptz);
CREATE INDEX ON together (d);
CREATE SEQUENCE calls;
-- even keys live, multiples of 7 are unknown
CREATE FUNCTION who_lives(keys text[]) RETURNS boolean[] LANGUAGE plpgsql AS $$ BEGIN
    PERFORM nextval('calls');
    RETURN (SELECT array_agg(CASE WHEN k::int % 7 > 0 THEN k::int % 2 = 0 END ORDER BY n) FROM unnest(keys) WITH ORDINALITY AS u (k, n)); END $$;
INSERT INTO together SELECT i, now() - interval '1 h' FROM generate_series(1, 1000) AS i;
SELECT FROM sweeper.register('together', deadline => 'd', ttl => '1 h', is_alive => 'who_lives(text[])', check_every => '0', start => 'now', fuse_fraction => 1);
CALL sweeper.sweep('together', pass => NULL) \gset
SELECT count(*) FILTER (WHERE id % 7 = 0) AS unknown, count(*) FILTER (WHERE id % 7 > 0 AND id % 2 = 0 AND d > now()) AS living, count(*) FROM together;
SELECT class, message, count(*) FROM sweeper.failed_row GROUP BY 1, 2;
SELECT cleanup_type, count(*) FROM sweeper.cleanup_event WHERE policy = 'together' GROUP BY 1;
-- a slow server may cut the rows into several batches
SELECT last_value < 10 AS calls_for_many, last_value AS calls FROM calls \gset
\echo :calls_for_many
-- nothing is due: not called
DELETE FROM sweeper.failed_row;
DELETE FROM together WHERE id % 7 = 0;
CALL sweeper.sweep('together') \gset
SELECT last_value = :calls AS not_called FROM calls;
-- one key raises an error: the others get their answers
CREATE OR REPLACE FUNCTION who_lives(keys text[]) RETURNS boolean[] LANGUAGE plpgsql AS $$ BEGIN
    IF '33' = ANY (keys) THEN RAISE EXCEPTION 'who is 33?'; END IF;
    RETURN array_fill(false, ARRAY[cardinality(keys)]); END $$;
TRUNCATE together;
INSERT INTO together SELECT i, now() - interval '1 h' FROM generate_series(1, 100) AS i;
CALL sweeper.sweep('together', pass => NULL) \gset
SELECT * FROM together WHERE id <> 33;
SELECT key, class, message FROM sweeper.failed_row;
-- too many answers, no answers: no row ends
DELETE FROM sweeper.failed_row;
CREATE OR REPLACE FUNCTION who_lives(keys text[]) RETURNS boolean[] LANGUAGE sql AS $$ SELECT array_append(array_fill(false, ARRAY[cardinality(keys)]), false) $$;
TRUNCATE together;
INSERT INTO together SELECT i, now() - interval '1 h' FROM generate_series(1, 20) AS i;
CALL sweeper.sweep('together', pass => NULL) \gset
SELECT count(*) FROM together;
SELECT class, sqlstate, message, count(*) FROM sweeper.failed_row GROUP BY 1, 2, 3;
DELETE FROM sweeper.failed_row;
CREATE OR REPLACE FUNCTION who_lives(keys text[]) RETURNS boolean[] LANGUAGE sql AS $$ SELECT NULL::boolean[] $$;
CALL sweeper.sweep('together', pass => NULL) \gset
SELECT count(*) FROM together;
SELECT class, message, count(*) FROM sweeper.failed_row GROUP BY 1, 2;
-- the statement
SELECT line FROM sweeper.explain_sweep('together') AS line WHERE line LIKE '%who_lives%';
SELECT sweeper.unregister('together');
DROP TABLE together;
DROP FUNCTION who_lives;
DROP SEQUENCE calls;
