-- How a pass is cut into chunks: ranges of deadlines, ties, rows that fail within a range.
SET client_min_messages = warning;
CREATE TABLE many (id int PRIMARY KEY, d timestamptz, done boolean DEFAULT false);
CREATE INDEX ON many (d);
CREATE VIEW swept AS SELECT count(*) AS events, count(DISTINCT key) AS rows FROM sweeper.cleanup_event
    WHERE policy_id = (SELECT policy_id FROM sweeper.policy WHERE policy = 'many');
-- more rows share a deadline than a chunk can take
INSERT INTO many SELECT i, CASE WHEN i <= 60000 THEN date_trunc('day', now()) - interval '30 d' ELSE now() - i * interval '1 ms' END FROM generate_series(1, 70000) AS i;
ANALYZE many;
SELECT policy FROM sweeper.register('many', deadline => 'd', check_every => '0', start => 'now', fuse_fraction => 1, backlog_rate => 0, batch_size => 7000);
CALL sweeper.sweep('many', pass => NULL) \gset
SELECT expired FROM sweeper.pass WHERE pass = :pass;
SELECT count(*) FROM many;
SELECT * FROM swept;
SELECT sweeper.unregister('many');
-- the same by update, which needs the rows' places
INSERT INTO many SELECT i, CASE WHEN i <= 60000 THEN date_trunc('day', now()) - interval '30 d' ELSE now() - i * interval '1 ms' END FROM generate_series(1, 70000) AS i;
SELECT policy FROM sweeper.register('many', deadline => 'd', filter => 'NOT done', action => 'update', set_clause => 'done = true',
    check_every => '0', start => 'now', fuse_fraction => 1, backlog_rate => 0, max_workers => 2);
CALL sweeper.sweep('many', pass => NULL) \gset
SELECT expired FROM sweeper.pass WHERE pass = :pass;
SELECT count(*), count(*) FILTER (WHERE done) FROM many;
SELECT * FROM swept;
SELECT sweeper.unregister('many');
-- a row of a range that raises, one that is kept by a trigger, one that is held back
TRUNCATE many;
INSERT INTO many SELECT i, now() - i * interval '1 s' FROM generate_series(1, 30000) AS i;
CREATE FUNCTION picky() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF OLD.id = 20000 THEN RAISE EXCEPTION 'not this one'; END IF; RETURN OLD; END $$;
CREATE TRIGGER picky AFTER DELETE ON many FOR EACH ROW WHEN (OLD.id = 20000) EXECUTE FUNCTION picky();
SELECT policy FROM sweeper.register('many', deadline => 'd', check_every => '0', start => 'now', fuse_fraction => 1, backlog_rate => 0);
CALL sweeper.sweep('many', pass => NULL) \gset
SELECT expired, failed FROM sweeper.pass WHERE pass = :pass;
SELECT id FROM many;
SELECT * FROM swept;
SELECT key, class, message FROM sweeper.failed_row WHERE policy = 'many';
-- new rows around a known failure
INSERT INTO many SELECT i, now() - i * interval '1 s' FROM generate_series(40001, 42000) AS i;
CALL sweeper.sweep('many', pass => NULL) \gset
SELECT id FROM many;
DROP TRIGGER picky ON many;
CREATE OR REPLACE FUNCTION picky() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER picky BEFORE DELETE ON many FOR EACH ROW WHEN (OLD.id = 20000) EXECUTE FUNCTION picky();
SELECT sweeper.retry_row('many', '20000');
INSERT INTO many SELECT i, now() - i * interval '1 s' FROM generate_series(50001, 51000) AS i;
CALL sweeper.sweep('many', pass => NULL) \gset
SELECT id FROM many;
SELECT key, class FROM sweeper.failed_row WHERE policy = 'many';
SELECT * FROM swept;
SELECT sweeper.unregister('many');
DROP TABLE many CASCADE;
DROP FUNCTION picky;
-- what falls due later does not wait for the backlog, nor where each row has its own time to live
CREATE TABLE own (id int PRIMARY KEY, seen timestamptz, ttl interval);
INSERT INTO own SELECT i, now() - interval '10 min', interval '1 s' FROM generate_series(1, 2000) AS i;
INSERT INTO own SELECT i, now(), interval '1 h' FROM generate_series(2001, 5000) AS i;
SELECT policy FROM sweeper.register('own', last_seen => 'seen', ttl_column => 'ttl', backlog_rate => 20, start => 'now', check_every => '100 ms');
INSERT INTO own SELECT i, now(), interval '100 ms' FROM generate_series(5001, 5005) AS i;
DO $$ BEGIN
    FOR i IN 1 .. 1000 LOOP
        EXIT WHEN NOT EXISTS (SELECT FROM own WHERE id > 5000);
        PERFORM pg_sleep(0.02);
    END LOOP;
END $$;
SELECT count(*) FILTER (WHERE id > 5000) AS fresh, count(*) FILTER (WHERE id <= 2000) > 1500 AS backlog_goes_slowly FROM own;
SELECT sweeper.unregister('own');
DROP TABLE own;
-- a great many that lie anywhere: block by block, each once, and a bad one costs its neighbours nothing
CREATE TABLE heap (id int PRIMARY KEY, d timestamptz NOT NULL);
INSERT INTO heap SELECT i, now() + CASE WHEN i <= 40000 THEN -1 ELSE 1 END * (3600 + (i * 7919::bigint) % 100003) * interval '1 s'
FROM generate_series(1, 60000) AS i ORDER BY (i * 104729::bigint) % 60013;
CREATE INDEX ON heap (d);
VACUUM ANALYZE heap;
CREATE TABLE swept_by (backend int, xid xid8, id int, block bigint);
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF OLD.id = 30000 THEN RAISE EXCEPTION 'not this one'; END IF;
    INSERT INTO public.swept_by VALUES (pg_backend_pid(), pg_current_xact_id(), OLD.id, (OLD.ctid::text::point)[0]);
    RETURN OLD; END $$;
CREATE TRIGGER note AFTER DELETE ON heap FOR EACH ROW EXECUTE FUNCTION note();
SELECT policy FROM sweeper.register('heap', deadline => 'd', check_every => '0', start => 'now', fuse_fraction => 1, max_workers => 2, batch_size => 2000);
CALL sweeper.sweep('heap', pass => NULL) \gset
SELECT expired, failed FROM sweeper.pass WHERE pass = :pass;
SELECT count(*), min(id) FROM heap WHERE id <= 40000;
SELECT count(*), count(DISTINCT id) FROM swept_by;
SELECT count(*), count(DISTINCT key) FROM sweeper.cleanup_event WHERE policy = 'heap';
SELECT key, message FROM sweeper.failed_row WHERE policy = 'heap';
-- the larger transactions kept to a part of the heap
SELECT count(*) > 0 AS by_blocks FROM (SELECT max(block) - min(block) AS width, count(*) FROM swept_by GROUP BY xid) AS x,
    (SELECT max(block) AS blocks FROM swept_by) AS h WHERE count > 1000 AND width < blocks * 0.8;
-- and none is much larger than asked for
SELECT max(count) < 3000 AS small FROM (SELECT count(*) FROM swept_by GROUP BY xid) AS x;
SELECT sweeper.unregister('heap');
DROP TABLE heap, swept_by;
DROP FUNCTION note;
-- where finding takes longer than the hard limit, less is looked for at a time
CREATE TABLE laborious (id int PRIMARY KEY, d timestamptz);
CREATE INDEX ON laborious (d);
CREATE FUNCTION ponder(int) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN PERFORM pg_sleep(0.005); RETURN true; END $$;
INSERT INTO laborious SELECT i, now() - interval '1 h' + i * interval '1 s' FROM generate_series(1, 300) AS i;
SELECT FROM sweeper.register('laborious', deadline => 'd', filter => 'ponder(id)', soft_time_limit => '0.9 s', hard_time_limit => '1 s', check_every => '50 ms',
    start => 'now', backlog_rate => 0, fuse_fraction => 1, max_workers => 1);
DO $$ BEGIN FOR i IN 1 .. 6000 LOOP EXIT WHEN NOT EXISTS (SELECT FROM laborious); PERFORM pg_sleep(0.05); COMMIT; END LOOP; END $$;
SELECT count(*) FROM laborious;
SELECT sweeper.unregister('laborious');
DROP TABLE laborious;
DROP FUNCTION ponder;
-- what is captured of wide rows, or are their groups, is kept in memory for a part of them at a time
CREATE TABLE wide (id int PRIMARY KEY, d timestamptz, page text);
INSERT INTO wide SELECT i, now(), repeat('x', 5000000) FROM generate_series(1, 30) AS i;
SELECT FROM sweeper.register('wide', deadline => 'd', capture => '{page}', check_every => '0', start => 'now', backlog_rate => 0, fuse_fraction => 1);
CALL sweeper.sweep('wide', pass => NULL) \gset
SELECT expired, failed, batches > 1 AS parts FROM sweeper.pass WHERE pass = :pass;
SELECT count(*), sum(length(metadata::text)) > 150000000 AS all FROM sweeper.cleanup_event WHERE policy = 'wide';
SELECT sweeper.unregister('wide');
SELECT FROM sweeper.register('wide', deadline => 'd', group_by => 'page', check_every => '0', start => 'now', backlog_rate => 0, fuse_fraction => 1);
INSERT INTO wide SELECT i, now(), repeat('x', 5000000) FROM generate_series(31, 60) AS i;
CALL sweeper.sweep('wide', pass => NULL) \gset
SELECT expired, failed, batches > 1 AS parts FROM sweeper.pass WHERE pass = :pass;
DELETE FROM sweeper.cleanup_event WHERE policy = 'wide';
SELECT sweeper.unregister('wide');
DROP TABLE wide;
-- under a rate too, whatever the order of its index
CREATE TABLE desc_ties (id int PRIMARY KEY, d timestamptz);
CREATE INDEX ON desc_ties (d DESC);
INSERT INTO desc_ties SELECT i, now() - interval '1 h' FROM generate_series(1, 1000) AS i;
SELECT FROM sweeper.register('desc_ties', deadline => 'd', start => 'now', backlog_rate => 2000, batch_size => 100, check_every => '50 ms');
DO $$ BEGIN
    FOR i IN 1 .. 2000 LOOP
        EXIT WHEN (SELECT backlog_before IS NULL OR EXISTS (SELECT FROM sweeper.fuse_hold) FROM sweeper.policy WHERE policy = 'desc_ties');
        COMMIT;
        PERFORM pg_sleep(0.01);
    END LOOP;
END $$;
SELECT count(*), (SELECT held_until FROM sweeper.fuse_hold) FROM desc_ties;
-- and where those come first that cannot go
CREATE FUNCTION stays() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'not that one'; END $$;
CREATE TRIGGER stays BEFORE DELETE ON desc_ties FOR EACH ROW WHEN (OLD.id > 180) EXECUTE FUNCTION stays();
SELECT sweeper.alter_policy('desc_ties', rate_limit => 200, fuse_fraction => 1, max_retries => 0);
INSERT INTO desc_ties SELECT i, date_trunc('day', now()) FROM generate_series(1, 480) AS i;
DO $$ BEGIN
    FOR i IN 1 .. 3000 LOOP
        EXIT WHEN (SELECT count(*) FROM desc_ties) = 300;
        COMMIT;
        PERFORM pg_sleep(0.01);
    END LOOP;
END $$;
SELECT count(*), min(id) FROM desc_ties;
SELECT sweeper.unregister('desc_ties');
DROP TABLE desc_ties;
DROP FUNCTION stays;
