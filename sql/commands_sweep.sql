-- CALL sweep: what it answers, and what it refuses.
SET client_min_messages = warning;
CREATE TABLE w (id int PRIMARY KEY, d timestamptz);
-- a policy of this transaction does not exist yet for anybody else
BEGIN;
SELECT policy FROM sweeper.register('w', deadline => 'd', check_every => '0');
CALL sweeper.sweep('w', wait => false) \gset
ROLLBACK;
SELECT policy FROM sweeper.register('w', deadline => 'd', check_every => '0');
BEGIN;
SELECT sweeper.alter_policy('w', max_retries => 0);
SAVEPOINT s;
CALL sweeper.sweep('w', wait => false) \gset
ROLLBACK;
-- nothing due: null
CALL sweeper.sweep('w');
-- a pass that failed says why
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM * FROM no_such_table; RETURN OLD; END $$;
CREATE TRIGGER refuse BEFORE DELETE ON w FOR EACH ROW EXECUTE FUNCTION refuse();
INSERT INTO w SELECT i, now() - '1 h'::interval FROM generate_series(1, 20) AS i;
CALL sweeper.sweep('w') \gset
CALL sweeper.sweep('w') \gset
DROP TRIGGER refuse ON w;
SELECT sweeper.resume('w');
CALL sweeper.sweep('w', pass => NULL) \gset
SELECT expired, status FROM sweeper.pass WHERE pass = :pass;
SELECT sweeper.unregister('w');
DROP TABLE w;
DROP FUNCTION refuse;
-- arguments without a meaning
CREATE TABLE w (id int PRIMARY KEY, d timestamptz);
SELECT policy FROM sweeper.register('w', deadline => 'd', check_every => '0');
CALL sweeper.sweep('w', wait => NULL);
CALL sweeper.sweep('w', timeout => NULL);
CALL sweeper.sweep('w', force => NULL);
CALL sweeper.sweep('w', timeout => '0');
CALL sweeper.sweep('w', timeout => '1000000 years');
CALL sweeper.sweep('w', timeout => '1000000 days');
SELECT sweeper.unregister('w');
DROP TABLE w;
-- what was unregistered gives its place in shared memory back
CREATE TABLE w (id int PRIMARY KEY, d timestamptz);
DO $$
DECLARE pass bigint;
BEGIN
    FOR i IN 1..25 LOOP
        PERFORM sweeper.register('w', policy => 'w' || j, deadline => 'd', check_every => '0') FROM generate_series(1, 50) AS j;
        COMMIT;
        CALL sweeper.sweep('w50', pass => pass);
        PERFORM sweeper.unregister('w' || j) FROM generate_series(1, 50) AS j;
        COMMIT;
    END LOOP;
END $$;
SELECT policy FROM sweeper.register('w', deadline => 'd', check_every => '0');
INSERT INTO w VALUES (1, now() - '1 h'::interval);
CALL sweeper.sweep('w', pass => NULL) \gset
SELECT expired FROM sweeper.stat_policy WHERE policy = 'w';
SELECT sweeper.unregister('w');
DROP TABLE w;
-- a policy that is registered while the others are read is not taken for one that is gone
DO $$
BEGIN
    FOR i IN 1..10 LOOP
        EXECUTE format('CREATE TABLE held%s (id int PRIMARY KEY, d timestamptz)', i);
        PERFORM sweeper.register('held' || i, deadline => 'd', check_every => '0');
    END LOOP;
END $$;
BEGIN;
LOCK TABLE held1, held2, held3, held4, held5, held6, held7, held8, held9, held10;
PREPARE TRANSACTION 'slow reading';
CREATE TABLE w (id int PRIMARY KEY, d timestamptz);
DO $$
DECLARE pass bigint;
BEGIN
    FOR i IN 1..20 LOOP
        PERFORM sweeper.register('w', deadline => 'd', check_every => '0');
        COMMIT;
        CALL sweeper.sweep('w', pass => pass);
        PERFORM sweeper.unregister('w');
        COMMIT;
    END LOOP;
END $$;
DROP TABLE w;
COMMIT PREPARED 'slow reading';
-- a look that meets many dead index entries does not make the next ones blind
CREATE TABLE crowd (id int PRIMARY KEY, d timestamptz);
CREATE INDEX ON crowd (d);
INSERT INTO crowd SELECT i, now() + CASE WHEN i > 100000 THEN interval '1 day' ELSE interval '-1 day' END FROM generate_series(1, 100100) AS i;
SELECT FROM sweeper.register('crowd', deadline => 'd', check_every => '0', start => 'now', fuse_fraction => 1, backlog_rate => 0);
CALL sweeper.sweep('crowd', pass => NULL) \gset
CALL sweeper.sweep('crowd', pass => NULL);
UPDATE crowd SET d = now() WHERE id = 100001;
CALL sweeper.sweep('crowd', pass => NULL) \gset
SELECT expired FROM sweeper.pass WHERE pass = :pass;
SELECT sweeper.unregister('crowd');
DROP TABLE crowd;
