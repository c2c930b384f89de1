-- Keys that are credentials, in a database that takes bytes that are characters of no encoding.
SELECT current_database() AS db \gset
CREATE DATABASE ascii ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0;
\c ascii
SET client_min_messages = warning;
CREATE EXTENSION session_sweeper;
CREATE TABLE bytes (k text PRIMARY KEY, d timestamptz);
CREATE INDEX ON bytes (d);
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF OLD.k = E'bad\xe9' THEN RAISE EXCEPTION 'no'; END IF; RETURN OLD; END $$;
CREATE TRIGGER refuse BEFORE DELETE ON bytes FOR EACH ROW EXECUTE FUNCTION refuse();
INSERT INTO bytes SELECT 'k' || i, now() - interval '1 h' FROM generate_series(1, 20) AS i;
INSERT INTO bytes VALUES (E'caf\xe9', now() - interval '1 h'), (E'bad\xe9', now() - interval '1 h'), (E'by hand\xe9', 'infinity');
SELECT dead_estimate FROM sweeper.register('bytes', deadline => 'd', audit => 'hash', check_every => '0', start => 'now', fuse_fraction => 1, max_retries => 0);
CALL sweeper.sweep('bytes', pass => NULL) \gset
SELECT translate(k, E'\xe9', '*') AS k FROM bytes ORDER BY 1;
SELECT count(*), bool_or(key = encode(sha256(convert_to(E'caf\xe9', 'SQL_ASCII')), 'hex')) AS hashed FROM sweeper.cleanup_event WHERE policy = 'bytes';
SELECT class, state, key = encode(sha256(convert_to(E'bad\xe9', 'SQL_ASCII')), 'hex') AS hashed FROM sweeper.failed_row;
SELECT verdict FROM sweeper.explain_row('bytes', E'caf\xe9') UNION ALL SELECT verdict FROM sweeper.explain_row('bytes', E'bad\xe9');
SELECT sweeper.retry_row('bytes', E'bad\xe9');
SELECT state FROM sweeper.failed_row;
SELECT sweeper.expire('bytes', ARRAY[E'by hand\xe9'], 'by hand');
SELECT verdict FROM sweeper.explain_row('bytes', E'by hand\xe9');
-- known failures are told from others by the same hash
DROP TRIGGER refuse ON bytes;
CALL sweeper.sweep('bytes', pass => NULL) \gset
SELECT count(*), (SELECT count(*) FROM sweeper.failed_row) FROM bytes;
DROP EXTENSION session_sweeper;
\c :db
DROP DATABASE ascii;
