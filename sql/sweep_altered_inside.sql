-- Code of the owner's that analyses, truncates or alters the table in the batch itself.
SET client_min_messages = warning;
CREATE TABLE noted (id int PRIMARY KEY, d timestamptz);
CREATE INDEX ON noted (d);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    ANALYZE noted;
    IF OLD.id = 7 THEN RAISE EXCEPTION 'row % is refused', OLD.id; END IF;
    RETURN OLD; END $$;
CREATE TRIGGER note BEFORE DELETE ON noted FOR EACH ROW EXECUTE FUNCTION note();
INSERT INTO noted SELECT i, now() - interval '1 h' FROM generate_series(1, 20) AS i;
SELECT FROM sweeper.register('noted', deadline => 'd', check_every => '0', start => 'now', fuse_fraction => 1, max_retries => 0);
-- the bad row is found, as without ANALYZE
CALL sweeper.sweep('noted', timeout => '20 s', pass => NULL) \gset
SELECT id FROM noted;
SELECT key, state, message FROM sweeper.failed_row;
SELECT expired, failed FROM sweeper.pass WHERE pass = :pass;
-- in many batches, which are one pass
INSERT INTO noted SELECT i, now() - interval '1 h' FROM generate_series(101, 600) AS i;
SELECT FROM sweeper.alter_policy('noted', batch_size => 100);
CALL sweeper.sweep('noted', timeout => '20 s', pass => NULL) \gset
SELECT count(*), (SELECT expired FROM sweeper.pass WHERE pass = :pass) FROM noted;
SELECT sweeper.unregister('noted');
DROP TABLE noted;
-- TRUNCATE by on_expire leaves nothing to the action: the policy says so
CREATE TABLE cut (id int PRIMARY KEY, d timestamptz);
CREATE FUNCTION cut(text[]) RETURNS void LANGUAGE sql AS 'TRUNCATE cut';
INSERT INTO cut SELECT i, now() - interval '1 h' FROM generate_series(1, 20) AS i;
SELECT FROM sweeper.register('cut', deadline => 'd', on_expire => 'cut(text[])', check_every => '0', start => 'now', fuse_fraction => 1);
CALL sweeper.sweep('cut', timeout => '20 s') \gset
SELECT count(*), (SELECT last_error FROM sweeper.policy_status WHERE policy = 'cut') FROM cut;
SELECT problem, detail FROM sweeper.problem WHERE policy = 'cut';
SELECT sweeper.unregister('cut');
DROP TABLE cut;
-- a hook that adds a column each time ends each pass, but rows go
CREATE TABLE grows (id int PRIMARY KEY, d timestamptz);
CREATE SEQUENCE grown;
CREATE FUNCTION grow(text[]) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
    EXECUTE format('ALTER TABLE grows ADD COLUMN c%s int', nextval('grown')); END $$;
INSERT INTO grows SELECT i, now() - interval '1 h' FROM generate_series(1, 30) AS i;
SELECT FROM sweeper.register('grows', deadline => 'd', on_expire => 'grow(text[])', batch_size => 10, check_every => '0', start => 'now', fuse_fraction => 1);
CALL sweeper.sweep('grows', timeout => '20 s') \gset
SELECT count(*) FROM grows;
SELECT sweeper.unregister('grows');
DROP TABLE grows;
DROP SEQUENCE grown;
DROP FUNCTION note, cut, grow;
