-- What is counted of pools: today, by day and month, and with each event.
SET client_min_messages = warning;
SELECT sweeper.alter_policy('sweeper.session', check_every => '0');
SELECT sweeper.create_pool('cad', 3, max_per_owner => 2), sweeper.create_pool('any');
CREATE VIEW today AS SELECT pool, seats, live, waiting, refused, peak_today FROM sweeper.pool_status ORDER BY pool;
SELECT * FROM today;
SELECT seats_used FROM sweeper.acquire('cad', 'ann') AS a UNION ALL SELECT seats_used FROM sweeper.acquire('cad', 'bob') UNION ALL SELECT seats_used FROM sweeper.acquire('any', 'ann');
SELECT seats_used FROM sweeper.acquire('cad', 'ann');
-- full, or as many as an owner may have; a take-over is no refusal
SELECT count(*) FROM sweeper.acquire('cad', 'carl');
SELECT count(*) FROM sweeper.acquire('cad', 'ann');
SELECT seats_used FROM sweeper.acquire('cad', 'bob', takeover => true);
SELECT * FROM today;
-- a rollback undoes an acquire, and not that there was no seat
BEGIN;
SELECT sweeper.alter_pool('cad', seats => 9);
SELECT seats_used FROM sweeper.acquire('cad', 'dora');
-- one that its owner has enough of is no seat that is missing
SELECT count(*) FROM sweeper.acquire('cad', 'ann');
ROLLBACK;
SELECT sweeper.alter_pool('cad', seats => 4);
SELECT count(*) FROM sweeper.acquire('cad', 'ann');
CALL sweeper.acquire_wait('cad', 'ann', '0');
SELECT sweeper.alter_pool('cad', seats => 3);
SELECT * FROM today;
CALL sweeper.acquire_wait('cad', 'carl', '0');
CALL sweeper.acquire_wait('cad', 'ann', '0');
SELECT * FROM today;
-- the most of the day stays
SELECT count(*) FROM (SELECT sweeper.release(session) FROM sweeper.live_session WHERE pool = 'any' OR owner = 'bob') AS r;
SELECT * FROM today;
-- the audit: who, and the seats in use after it; of several at once, after each
UPDATE sweeper.session SET acquired_at = now() - interval '3 h', last_seen_at = now() - interval '2 h', expires_at = now() - interval '1 h' WHERE status = 'active';
CALL sweeper.sweep('sweeper.session', pass => NULL) \gset
SELECT s.pool, s.owner, s.acquired_by = session_user AS by_me, s.seats_used AS acquired, e.cleanup_type, e.actor = session_user AS ended_by_me, e.metadata FROM sweeper.session AS s JOIN sweeper.cleanup_event AS e ON e.key = s.session::text
ORDER BY s.fence;
SELECT session FROM sweeper.acquire('cad', 'ann') \gset
SELECT sweeper.expire('sweeper.session', ARRAY[:'session'], 'fired');
SELECT metadata, reason FROM sweeper.cleanup_event WHERE key = :'session';
SELECT count(*) FROM sweeper.acquire('cad', 'a') AS a, sweeper.acquire('any', 'b') AS b, sweeper.acquire('cad', 'c') AS c, sweeper.acquire('any', 'd') AS d;
SELECT sweeper.expire('sweeper.session', array_agg(session::text), 'both pools') FROM sweeper.live_session;
SELECT "group", metadata FROM sweeper.cleanup_event WHERE reason = 'both pools' ORDER BY 1, 2;
-- by month
SELECT sweeper.drop_pool('cad'), sweeper.drop_pool('any');
INSERT INTO sweeper.pool_day (day, pool, seats, acquired, refused, peak, zombie, released) VALUES
    ('2001-01-30', 'cad', 5, 40, 0, 4, 1, 39), ('2001-01-31', 'cad', 5, 50, 3, 5, 2, 48), ('2001-02-01', 'cad', 3, 10, 9, 5, 0, 10), ('2001-02-02', 'cad', NULL, 7, 0, 7, 7, 0),
    ('2001-02-02', 'sweeper.worker', NULL, 1, 0, 1, 1, 0);
SELECT * FROM sweeper.pool_month WHERE month < '2002-01-01';
SELECT max(value) FILTER (WHERE labels ->> 'pool' = 'cad' AND metric ~ 'refused') >= 12 AS refused, max(value) FILTER (WHERE labels @> '{"policy": "sweeper.session", "pool": "cad", "type": "zombie"}') >= 10 AS zombies,
    count(*) FILTER (WHERE labels ->> 'policy' = 'sweeper.session' AND metric = 'session_sweeper_rows_ended_total' AND NOT labels ? 'pool') AS without_pool
FROM sweeper._metrics(true) WHERE family ~ 'rows_ended|seats';
DELETE FROM sweeper.pool_day WHERE day < '2002-01-01';
-- who sees it: as the numbers of pool_status
CREATE ROLE regress_reader;
SET ROLE regress_reader;
SELECT count(*) FROM sweeper.pool_day;
RESET ROLE;
SELECT sweeper.grant_access('regress_reader', 'user');
SET ROLE regress_reader;
SELECT count(*) >= 0 AS days FROM sweeper.pool_day;
SELECT count(*) >= 0 AS months FROM sweeper.pool_month;
SELECT count(*) >= 0 AS now FROM sweeper.pool_status;
DELETE FROM sweeper.pool_day;
RESET ROLE;
SELECT sweeper.revoke_access('regress_reader');
DROP ROLE regress_reader;
DROP VIEW today;
SELECT sweeper.alter_policy('sweeper.session', reset => '{check_every}');
