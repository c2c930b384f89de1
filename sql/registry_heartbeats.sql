-- Sessions of the registry live by their heartbeats.
SELECT sweeper.create_pool('bay', seats => 2, ttl => '1 hour');
SELECT sweeper.pause('sweeper.session', 'passes come when asked for');
SELECT session AS ann FROM sweeper.acquire('bay', 'ann') \gset
SELECT session AS bob FROM sweeper.acquire('bay', 'bob') \gset
SELECT sweeper.heartbeat(:'ann'), sweeper.heartbeat('00000000-0000-4000-8000-000000000000'), sweeper.is_live(:'ann');
PREPARE hb AS SELECT sweeper.heartbeat($1);
EXECUTE hb (:'ann');
SELECT sweeper.heartbeat(NULL);
SELECT count(*) FROM sweeper.heartbeat_many(ARRAY[:'ann', :'bob']::uuid[]);
SELECT session, state FROM sweeper.heartbeat_many(ARRAY[:'ann', '00000000-0000-4000-8000-000000000000']::uuid[]);
SELECT sweeper.heartbeat_many(ARRAY[:'ann', NULL]::uuid[]);
BEGIN READ ONLY;
SELECT sweeper.heartbeat(:'ann');
ROLLBACK;
SELECT p.next_expiry = min(l.expires_at) AS known, p.next_expiry > min(s.expires_at) AS later_than_rows
FROM sweeper.pool_status AS p JOIN sweeper.live_session AS l USING (pool) JOIN sweeper.session AS s USING (pool) WHERE p.pool = 'bay' GROUP BY p.next_expiry;
-- bob's row is set back by hand; of ann memory knows more than her row
UPDATE sweeper.session SET acquired_at = acquired_at - interval '2 h', last_seen_at = last_seen_at - interval '2 h', expires_at = expires_at - interval '2 h' WHERE pool = 'bay' AND owner = 'bob';
SELECT owner, last_heartbeat > now() - interval '1 min' AS heard_of, expires_at > now() + interval '59 min' AS lives FROM sweeper.live_session WHERE pool = 'bay' AND owner = 'ann';
SELECT seats_used FROM sweeper.acquire('bay', 'eve');
-- the row wins over heartbeats that came before, and bob's seat is eve's
SELECT owner, status, ended_at IS NOT NULL AS ended FROM sweeper.session WHERE pool = 'bay' ORDER BY owner;
SELECT sweeper.heartbeat(:'bob'), sweeper.is_live(:'bob');
-- release ends what heartbeats hold
SELECT sweeper.release(:'ann'), sweeper.release(:'ann'), sweeper.heartbeat(:'ann');
SELECT owner, cleanup_type, hours < 0.1 AS short FROM sweeper.usage_event WHERE pool = 'bay' ORDER BY owner;
-- undone with its transaction, an end has not been
SELECT session AS eve FROM sweeper.session WHERE pool = 'bay' AND owner = 'eve' \gset
SELECT sweeper.heartbeat(:'eve');
BEGIN;
SELECT sweeper.release(:'eve');
SELECT sweeper.heartbeat(:'eve');
ROLLBACK;
SELECT sweeper.heartbeat(:'eve'), sweeper.is_live(:'eve');
-- the laptop that sleeps for eight hours: its session is gone, and it takes a new one
UPDATE sweeper.session SET acquired_at = acquired_at - interval '9 h', last_seen_at = last_seen_at - interval '8 h', expires_at = now() - interval '7 h' WHERE pool = 'bay' AND owner = 'eve';
SELECT sweeper.resume('sweeper.session');
CALL sweeper.sweep('sweeper.session') \gset
SELECT sweeper.heartbeat(:'eve');
SELECT owner, status FROM sweeper.session WHERE session = :'eve';
SELECT seats_used, session <> :'eve' AS new FROM sweeper.acquire('bay', 'eve');
-- a session that the same statement has taken lives
SELECT sweeper.is_live(session), (sweeper.explain_row('sweeper.session', session::text)).found, sweeper.heartbeat(session) FROM sweeper.acquire('bay', 'fay');
SELECT sweeper.drop_pool('bay', force => true);
