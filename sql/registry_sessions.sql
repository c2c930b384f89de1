-- Pools, seats and sessions: who gets one, how it ends, what stays on record.
SET client_min_messages = warning;
SET timezone = 'UTC';
SET intervalstyle = 'postgres';
-- time is moved by hand, and nobody sweeps but who is told to
SELECT sweeper.alter_policy('sweeper.session', check_every => '0');
CREATE FUNCTION age_all(by interval, whose text DEFAULT '%') RETURNS void LANGUAGE sql AS
    'UPDATE sweeper.session SET acquired_at = acquired_at - by, last_seen_at = last_seen_at - by, expires_at = expires_at - by, ends_at = ends_at - by WHERE status = ''active'' AND owner LIKE whose';
CREATE VIEW ends AS SELECT s.pool, s.owner, s.status, e.cleanup_type, e.reason, e.owner = s.owner AS same_owner, coalesce(e.actor = session_user, false) AS actor, round(u.hours, 2) AS hours,
    s.ended_at = u.ended_at AND s.acquired_at = u.acquired_at AND u.id = e.id AND u.cleanup_type = e.cleanup_type AS same,
    s.released_at IS NOT NULL AND s.ended_at <= s.released_at AS released
    FROM sweeper.session AS s JOIN sweeper.cleanup_event AS e ON e.policy = 'sweeper.session' AND e.key = s.session::text LEFT JOIN sweeper.usage_event AS u USING (session);
-- a seat, another, and then it is full
SELECT sweeper.create_pool('lic', 2, notify_channel => 'seat_ends', metadata => '{"product": "cad"}');
SELECT session IS NOT NULL AS session, fence >> 40 AS timeline, expires_at - now() BETWEEN '5 min' AND '6 min 1 s' AS expires, ttl, heartbeat_every, taken_over, seats, seats_used FROM sweeper.acquire('lic', 'ann');
SELECT fence AS first FROM sweeper.live_session WHERE owner = 'ann' \gset
SELECT fence - :first AS n, taken_over, seats, seats_used, ttl, heartbeat_every FROM sweeper.acquire('lic', 'bob', ttl => '90 s', metadata => '{"machine": "b1"}');
SELECT * FROM sweeper.acquire('lic', 'carl');
SELECT pool, seats, live, free, over_by, ttl, max_ttl, owners, notify_channel, metadata FROM sweeper.pool_status;
SELECT pool, owner, acquired_by = current_user AS mine, ttl, last_heartbeat = acquired_at AS fresh, ends_at, metadata FROM sweeper.live_session ORDER BY owner;
-- released once; the seat is free at once, and fences go on
SELECT session AS ann FROM sweeper.live_session WHERE owner = 'ann' \gset
SELECT sweeper.release(:'ann');
SELECT sweeper.release(:'ann'), sweeper.release(gen_random_uuid());
SELECT fence - :first AS n, seats_used FROM sweeper.acquire('lic', 'carl');
SELECT * FROM ends;
-- the caller's rollback gives it back, and the seat too
SELECT session AS bob FROM sweeper.live_session WHERE owner = 'bob' \gset
BEGIN;
SELECT sweeper.release(:'bob');
SELECT seats_used FROM sweeper.acquire('lic', 'dora');
ROLLBACK;
SELECT owner FROM sweeper.live_session ORDER BY owner;
BEGIN;
SAVEPOINT a;
SELECT sweeper.release(:'bob');
ROLLBACK TO a;
SELECT count(*) FROM sweeper.acquire('lic', 'dora');
COMMIT;
-- more than once in a transaction
BEGIN;
SELECT sweeper.release(:'bob'), sweeper.release(:'bob');
SELECT count(*) FROM sweeper.acquire('lic', 'bob');
SELECT count(*) FROM sweeper.acquire('lic', 'bob');
COMMIT;
-- the dead do not hold seats: what is billed ends with the last sign of life
SELECT age_all('2 h', 'bob');
SELECT owner, live_session.expires_at < now() AS overdue FROM sweeper.live_session ORDER BY owner;
SELECT seats_used FROM sweeper.acquire('lic', 'emil');
SELECT * FROM ends WHERE owner = 'bob' ORDER BY hours, cleanup_type;
-- not only when the pool is full
SELECT sweeper.alter_pool('lic', seats => 10);
SELECT age_all('1 h');
UPDATE sweeper.session SET last_seen_at = acquired_at + interval '30 min' WHERE status = 'active';
SELECT seats_used FROM sweeper.acquire('lic', 'ann');
SELECT owner, cleanup_type, hours, same, released FROM ends WHERE owner IN ('carl', 'emil') ORDER BY owner;
-- a pass does the same
SELECT age_all('1 h');
CALL sweeper.sweep('sweeper.session', pass => NULL) \gset
SELECT owner, status, cleanup_type, hours, same, actor FROM ends WHERE owner = 'ann' ORDER BY cleanup_type;
SELECT policy, key = :'ann' AS ann, "group", cleanup_type, deadline - last_seen AS ttl, deadline > cleaned_at AS before_its_time FROM sweeper.cleanup_event WHERE policy = 'sweeper.session' AND owner = 'ann' ORDER BY cleanup_type;
-- by hand: one user out, a licence that ended, the pool
SELECT count(*) FROM sweeper.acquire('lic', 'ann') AS a, sweeper.acquire('lic', 'bob') AS b, sweeper.acquire('lic', 'carl') AS c;
SELECT sweeper.expire('sweeper.session', array_agg(session::text), 'fired') FROM sweeper.live_session WHERE owner = 'ann';
SELECT sweeper.expire_group('sweeper.session', 'lic', 'licence ended');
SELECT owner, status, cleanup_type, reason, same, released FROM ends WHERE reason IS NOT NULL AND cleanup_type <> 'zombie' ORDER BY owner;
SELECT sweeper.expire_group('sweeper.session', 'lic', 'licence ended');
-- absolute limit: a session that is kept alive ends all the same, and then it did
SELECT sweeper.create_pool('kiosk', max_ttl => '8 h', ttl => '1 h');
SELECT expires_at - now() < '61 min' AS expires, seats, seats_used FROM sweeper.acquire('kiosk', 'walk-in');
SELECT ends_at - acquired_at AS at_most FROM sweeper.live_session;
SELECT age_all('10 h');
UPDATE sweeper.session SET last_seen_at = now(), expires_at = now() + ttl WHERE status = 'active';
CALL sweeper.sweep('sweeper.session', pass => NULL) \gset
SELECT * FROM ends WHERE pool = 'kiosk';
SELECT sweeper.alter_pool('kiosk', ttl => '1 min', max_ttl => '10 min');
SELECT expires_at - now() < '11 min' AS capped, ttl FROM sweeper.acquire('kiosk', 'walk-in', ttl => '20 h');
SELECT sweeper.drop_pool('kiosk', force => true);
-- no more than an owner may; takeover ends the oldest of one's own
SELECT sweeper.create_pool('desk', 3, max_per_owner => 1);
SELECT fence & 1048575 > 0 AS first FROM sweeper.acquire('desk', 'ann');
SELECT count(*) FROM sweeper.acquire('desk', 'ann');
SELECT taken_over, seats_used FROM sweeper.acquire('desk', 'ann', takeover => true);
SELECT owner, status, cleanup_type, reason FROM ends WHERE pool = 'desk';
-- not when there is room
SELECT sweeper.alter_pool('desk', reset => '{max_per_owner}');
SELECT taken_over, seats_used FROM sweeper.acquire('desk', 'ann', takeover => true);
SELECT taken_over, seats_used FROM sweeper.acquire('desk', 'bob', takeover => true);
-- full: the oldest of two; who has none gets none, and nobody is ended for nothing
SELECT fence AS oldest FROM sweeper.live_session WHERE pool = 'desk' ORDER BY fence LIMIT 1 \gset
SELECT taken_over, seats_used FROM sweeper.acquire('desk', 'ann', takeover => true);
SELECT count(*) FROM sweeper.live_session WHERE fence = :oldest;
SELECT count(*) FROM sweeper.acquire('desk', 'carl', takeover => true);
SELECT owner, count(*) FROM sweeper.live_session WHERE pool = 'desk' GROUP BY 1 ORDER BY 1;
-- fewer seats: nobody is ended, nobody acquires until it fits
SELECT sweeper.alter_pool('desk', seats => 1);
SELECT seats, live, free, over_by FROM sweeper.pool_status WHERE pool = 'desk';
SELECT count(*) FROM sweeper.acquire('desk', 'bob', takeover => true);
SELECT count(*) FROM (SELECT sweeper.release(session) AS done FROM sweeper.live_session WHERE owner = 'ann' AND pool = 'desk') AS r WHERE done;
SELECT count(*) FROM sweeper.acquire('desk', 'ann');
SELECT taken_over, seats, seats_used FROM sweeper.acquire('desk', 'bob', takeover => true);
SELECT seats, live, free, over_by FROM sweeper.pool_status WHERE pool = 'desk';
-- fewer an owner: as many as needed
SELECT sweeper.alter_pool('desk', seats => 9);
SELECT count(*) FROM sweeper.acquire('desk', 'bob') AS a, sweeper.acquire('desk', 'bob') AS b, sweeper.acquire('desk', 'ann') AS c;
SELECT sweeper.alter_pool('desk', max_per_owner => 1);
SELECT taken_over, seats_used FROM sweeper.acquire('desk', 'bob', takeover => true);
-- no seats at all
SELECT sweeper.alter_pool('desk', seats => 0);
SELECT count(*) FROM sweeper.acquire('desk', 'eve');
SELECT sweeper.drop_pool('desk', force => true);
SELECT owner, status, cleanup_type, reason, same FROM ends WHERE reason = 'pool dropped' ORDER BY owner;
-- a pool made again does not repeat a fence
SELECT max(fence) AS highest FROM sweeper.session WHERE pool = 'desk' \gset
SELECT sweeper.create_pool('desk');
SELECT fence > :highest AS higher, seats, seats_used FROM sweeper.acquire('desk', 'ann');
SELECT sweeper.drop_pool('desk');
SELECT age_all('1 d', 'ann');
SELECT sweeper.drop_pool('desk');
-- a session nobody has claimed
SELECT sweeper.create_pool('web', max_per_owner => 2);
SELECT session AS s1 FROM sweeper.acquire('web', NULL) \gset
SELECT session AS s2 FROM sweeper.acquire('web', owner => NULL) \gset
SELECT session AS s3 FROM sweeper.acquire('web', NULL) \gset
SELECT owner, pool FROM sweeper.live_session WHERE pool = 'web';
SELECT sweeper.claim_session(:'s1', 'ann'), sweeper.claim_session(:'s1', 'bob'), sweeper.claim_session(:'s1', 'ann');
SELECT sweeper.claim_session(:'s2', 'ann');
SELECT sweeper.claim_session(:'s3', 'ann');
SELECT age_all('1 h', 'ann');
SELECT sweeper.claim_session(:'s3', 'ann');
SELECT sweeper.claim_session(:'s1', 'ann') IS NULL AS gone, sweeper.claim_session(gen_random_uuid(), 'ann') IS NULL AS unknown;
SELECT sweeper.release(:'s3');
SELECT session AS s4 FROM sweeper.acquire('web', NULL) \gset
SELECT sweeper.release(:'s4');
SELECT owner, cleanup_type, owner IS NULL OR same_owner AS same_owner, same FROM ends WHERE pool = 'web' ORDER BY owner, cleanup_type;
-- the laptop that sleeps for 8 hours
SELECT session AS laptop, fence AS before FROM sweeper.acquire('web', 'laptop') \gset
SELECT age_all('8 h', 'laptop');
CALL sweeper.sweep('sweeper.session', pass => NULL) \gset
SELECT sweeper.release(:'laptop'), sweeper.claim_session(:'laptop', 'laptop') IS NULL AS gone;
SELECT session <> :'laptop' AS another, fence > :before AS later, taken_over FROM sweeper.acquire('web', 'laptop');
SELECT cleanup_type, hours, same FROM ends WHERE owner = 'laptop';
SELECT verdict, ended_at IS NOT NULL AS ended, cleanup_type FROM sweeper.explain_row('sweeper.session', :'laptop');
SELECT verdict, reason FROM sweeper.explain_row('sweeper.session', (SELECT session::text FROM sweeper.live_session WHERE owner = 'laptop'));
-- a session without expiry is given one, and that is on record
UPDATE sweeper.session SET expires_at = NULL WHERE owner = 'laptop' AND status = 'active';
SELECT seats, live, free, over_by, next_expiry FROM sweeper.pool_status WHERE pool = 'web';
CALL sweeper.sweep('sweeper.session', pass => NULL) \gset
SELECT expires_at - now() BETWEEN '5 min' AND '6 min' AS repaired FROM sweeper.live_session WHERE owner = 'laptop';
SELECT status, repaired, expired FROM sweeper.pass WHERE policy = 'sweeper.session' ORDER BY pass DESC LIMIT 1;
SELECT repaired FROM sweeper.stat_policy WHERE policy = 'sweeper.session';
-- how pools ended their sessions
SELECT rank, pool, ended, zombies, released, expired, manual, percent FROM sweeper.stat_pool_cleanup;
SELECT cleanup_type, cleaned, groups FROM sweeper.stat_cleanup_daily WHERE policy = 'sweeper.session' ORDER BY 1;
SELECT cleanup_type, rows, minutes_after_last_seen > 60 AS minutes, avg_after_deadline > '1 h' AS late FROM sweeper.stat_cleanup_lag WHERE policy = 'sweeper.session' AND cleanup_type IN ('zombie', 'released') ORDER BY 1;
-- every session that ended has one event and one usage row
SELECT count(*) FILTER (WHERE s.status = 'active' AND (e.n > 0 OR u.n > 0)) AS too_many, count(*) FILTER (WHERE s.status <> 'active' AND (e.n <> 1 OR u.n <> 1)) AS wrong
FROM sweeper.session AS s, LATERAL (SELECT count(*) AS n FROM sweeper.cleanup_event WHERE key = s.session::text) AS e, LATERAL (SELECT count(*) AS n FROM sweeper.usage_event AS x WHERE x.session = s.session) AS u;
-- kept for as long as the settings say
UPDATE sweeper.session SET released_at = now() - interval '91 days' WHERE status <> 'active' AND pool = 'kiosk';
CALL sweeper.sweep('sweeper.ended_session', pass => NULL) \gset
SELECT pool, count(*) > 0 AS kept FROM sweeper.session WHERE pool IN ('kiosk', 'lic') GROUP BY 1;
SELECT count(*) FROM sweeper.usage_event WHERE pool = 'kiosk';
SELECT sweeper.drop_pool(pool, force => true) FROM sweeper.pool_status ORDER BY pool;
SELECT sweeper.alter_policy('sweeper.session', reset => '{check_every}');
DROP VIEW ends;
DROP FUNCTION age_all;
-- a pool that is created again, as a migration does: unchanged, changed, back to the defaults
DELETE FROM sweeper.policy_change WHERE change LIKE '%\_pool';
SELECT sweeper.create_pool('again', 3, max_ttl => '1 h', if_exists => 'alter'), sweeper.create_pool('again', 3, ttl => '360 s', max_ttl => '60 min', if_exists => 'alter');
SELECT seats_used FROM sweeper.acquire('again', 'ann');
SELECT sweeper.create_pool('again', 2, notify_channel => 'ends', if_exists => 'alter');
SELECT sweeper.create_pool('again', 2, ttl => '1 h', max_ttl => '1 min', if_exists => 'alter');
SELECT sweeper.create_pool('again', 2, if_exists => 'replace');
SELECT sweeper.create_pool('again', 2, if_exists => NULL);
SELECT sweeper.create_pool('again', 2);
SELECT sweeper.create_pool('sweeper.worker', if_exists => 'alter');
SELECT change, old ->> 'seats' AS old_seats, new - '{created_at,created_by}'::text[] AS new FROM sweeper.policy_change WHERE change LIKE '%\_pool' ORDER BY changed_at;
SELECT seats, live FROM sweeper.pool_status WHERE pool = 'again';
SELECT sweeper.drop_pool('again', force => true);

-- Without its policy no session can be used; that is an error, not a crash.
BEGIN;
SELECT sweeper.alter_policy('sweeper.session', lock_timeout => '400 ms');
DELETE FROM sweeper.policy WHERE policy = 'sweeper.session';
SELECT sweeper.claim_session('00000000-0000-4000-8000-000000000000', 'x');
ROLLBACK;
-- statistics have each acquire at its commit, so that a policy which is looked at rarely ends the session in time
SELECT sweeper.create_pool('reported');
SELECT pg_stat_get_tuples_inserted('sweeper.session'::regclass) AS reported \gset
SELECT session IS NOT NULL AS given FROM sweeper.acquire('reported');
SELECT session IS NOT NULL AS given FROM sweeper.acquire('reported');
SELECT pg_stat_get_tuples_inserted('sweeper.session'::regclass) - :reported AS reported;
