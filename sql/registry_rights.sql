-- Who may do what to pools and sessions, and what is said to the others.
SET client_min_messages = warning;
SET timezone = 'UTC';
SET intervalstyle = 'postgres';
SELECT sweeper.alter_policy('sweeper.session', check_every => '0');
CREATE FUNCTION try(variadic statements text[]) RETURNS TABLE (statement text, code text, message text, detail text, hint text) LANGUAGE plpgsql AS $$
BEGIN
    FOREACH statement IN ARRAY statements LOOP
        code := '-'; message := 'went through'; detail := NULL; hint := NULL;
        BEGIN
            EXECUTE statement;
        EXCEPTION WHEN OTHERS THEN
            GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
        END;
        statement := left(statement, 75);
        RETURN NEXT;
    END LOOP;
END $$;
SELECT sweeper.create_pool('shop', 5);
\x on
SELECT * FROM try(
    $$SELECT sweeper.create_pool(NULL)$$, $$SELECT sweeper.create_pool('')$$, $$SELECT sweeper.create_pool(repeat('x', 256))$$,
    $$SELECT sweeper.create_pool('shop')$$, $$SELECT sweeper.create_pool('a', -1)$$, $$SELECT sweeper.create_pool('a', ttl => NULL)$$,
    $$SELECT sweeper.create_pool('a', ttl => '0')$$, $$SELECT sweeper.create_pool('a', ttl => '1 month')$$, $$SELECT sweeper.create_pool('a', max_ttl => '-1 s')$$,
    $$SELECT sweeper.create_pool('a', ttl => '1 h', max_ttl => '1 min')$$, $$SELECT sweeper.create_pool('a', max_per_owner => 0)$$,
    $$SELECT sweeper.create_pool('a', notify_channel => repeat('c', 64))$$, $$SELECT sweeper.create_pool('a', notify_channel => '')$$,
    $$SELECT sweeper.create_pool('a', metadata => NULL)$$, $$SELECT sweeper.create_pool('a', metadata => '[1]')$$);
SELECT * FROM try(
    $$SELECT sweeper.alter_pool(NULL)$$, $$SELECT sweeper.alter_pool('nil', seats => 1)$$, $$SELECT sweeper.alter_pool('shop', seats => -1)$$,
    $$SELECT sweeper.alter_pool('shop', reset => NULL)$$, $$SELECT sweeper.alter_pool('shop', reset => '{NULL}')$$, $$SELECT sweeper.alter_pool('shop', reset => '{pool}')$$,
    $$SELECT sweeper.alter_pool('shop', seats => 1, reset => '{seats}')$$, $$SELECT sweeper.alter_pool('shop', max_ttl => '1 s')$$,
    $$SELECT sweeper.drop_pool(NULL)$$, $$SELECT sweeper.drop_pool('shop', NULL)$$, $$SELECT sweeper.drop_pool('nil')$$);
SELECT * FROM try(
    $$SELECT sweeper.acquire(NULL)$$, $$SELECT sweeper.acquire('nil')$$, $$SELECT sweeper.acquire('shop', '')$$, $$SELECT sweeper.acquire('shop', repeat('o', 1025))$$,
    $$SELECT sweeper.acquire('shop', ttl => '-1 s')$$, $$SELECT sweeper.acquire('shop', ttl => '1 year')$$, $$SELECT sweeper.acquire('shop', metadata => NULL)$$,
    $$SELECT sweeper.acquire('shop', metadata => '1')$$, $$SELECT sweeper.acquire('shop', takeover => NULL)$$, $$SELECT sweeper.acquire('shop', NULL, takeover => true)$$,
    $$SELECT sweeper.release(NULL)$$, $$SELECT sweeper.claim_session(NULL, 'a')$$, $$SELECT sweeper.claim_session(gen_random_uuid(), NULL)$$,
    $$SELECT sweeper.claim_session(gen_random_uuid(), '')$$, $$SELECT sweeper.acquire('shop', 'ann')$$, $$SELECT sweeper.drop_pool('shop')$$);
-- nothing is written where nothing can be
BEGIN TRANSACTION READ ONLY;
SELECT * FROM try($$SELECT sweeper.acquire('shop')$$, $$SELECT sweeper.release(gen_random_uuid())$$, $$SELECT sweeper.claim_session(gen_random_uuid(), 'a')$$,
    $$SELECT sweeper.create_pool('a')$$, $$SELECT sweeper.alter_pool('shop')$$, $$SELECT sweeper.drop_pool('shop')$$);
COMMIT;
\x off
-- what was changed, by whom
SELECT sweeper.alter_pool('shop', seats => 7, ttl => '1 min', max_ttl => '1 day', max_per_owner => 2, notify_channel => 'c', metadata => '{"a": 1}');
SELECT pool, seats, ttl, max_ttl, max_per_owner, notify_channel, metadata, created_by = session_user AS mine FROM sweeper.pool_status WHERE pool = 'shop';
SELECT sweeper.alter_pool('shop', reset => '{seats,ttl,max_ttl,max_per_owner,notify_channel,metadata}');
SELECT pool, seats, ttl, max_ttl, max_per_owner, notify_channel, metadata FROM sweeper.pool_status WHERE pool = 'shop';
SELECT change, changed_by = session_user AS by_me, old -> 'seats' AS seats_before, new -> 'seats' AS seats FROM sweeper.policy_change WHERE policy = 'sweeper.session' AND change LIKE '%pool' AND 'shop' IN (old ->> 'pool', new ->> 'pool') ORDER BY changed_at;
-- as clients call them
PREPARE acquire AS SELECT count(*) FROM sweeper.acquire($1, $2, $3, $4, $5);
EXECUTE acquire('shop', 'bob', '1 min', '{}', 'false');
PREPARE release AS SELECT sweeper.release($1);
EXECUTE release('00000000-0000-0000-0000-000000000000');
PREPARE claim AS SELECT sweeper.claim_session($1, $2);
EXECUTE claim('00000000-0000-0000-0000-000000000000', 'ann');
PREPARE create_pool AS SELECT sweeper.create_pool($1, $2, $3);
EXECUTE create_pool('spare', '1', '1 min');
SELECT (sweeper.acquire('spare')).seats_used;
SELECT owner = session_user AS owner FROM sweeper.live_session WHERE pool = 'spare';
SELECT sweeper.drop_pool('spare', true);
-- levels: nobody, users, who watches, who manages
CREATE ROLE regress_nobody;
CREATE ROLE regress_user_1;
CREATE ROLE regress_user_2;
CREATE ROLE regress_watch;
CREATE ROLE regress_boss;
SELECT sweeper.grant_access('regress_user_1', 'user'), sweeper.grant_access('regress_user_2', 'user'), sweeper.grant_access('regress_watch', 'monitor'), sweeper.grant_access('regress_boss', 'admin');
SELECT p.proname, array_agg(substr(r.rolname, 9) ORDER BY r.rolname) AS may
FROM pg_proc AS p JOIN pg_roles AS r ON r.rolname LIKE 'regress\_%' AND has_function_privilege(r.oid, p.oid, 'EXECUTE')
WHERE p.pronamespace = 'sweeper'::regnamespace AND p.proname IN ('create_pool', 'alter_pool', 'drop_pool', 'acquire', 'release', 'claim_session') GROUP BY 1 ORDER BY 1;
-- who may write to a relation may lock it, and all that a view reads: no level has more than SELECT
SELECT r.rolname, c.relname FROM pg_class AS c JOIN pg_roles AS r ON r.rolname IN ('regress_nobody', 'regress_user_1', 'regress_watch', 'regress_boss')
WHERE c.relnamespace = 'sweeper'::regnamespace
    AND CASE WHEN c.relkind = 'S' THEN has_sequence_privilege(r.oid, c.oid, 'USAGE, UPDATE')
             WHEN c.relkind IN ('r', 'v', 'm', 'p', 'f') THEN has_table_privilege(r.oid, c.oid, 'DELETE, TRUNCATE, REFERENCES, TRIGGER') OR has_any_column_privilege(r.oid, c.oid, 'INSERT, UPDATE') END;
SET ROLE regress_nobody;
SELECT sweeper.acquire('shop');
SET ROLE regress_user_1;
SELECT sweeper.create_pool('mine');
-- a user has no right on the tables, and needs none
SELECT session AS mine, fence > 0 AS fence FROM sweeper.acquire('shop', 'u1', metadata => '{"secret": 1}') \gset
UPDATE sweeper.session SET owner = 'me';
INSERT INTO sweeper.pool (pool) VALUES ('x');
DELETE FROM sweeper.usage_event;
SELECT setval('sweeper.fence_seq', 1);
SELECT count(*) = 1 AS mine FROM sweeper.live_session;
SELECT pool, live FROM sweeper.pool_status WHERE pool = 'shop';
-- others do not see the session, but who knows the id may end it
SET ROLE regress_user_2;
SELECT count(*) FROM sweeper.live_session;
SELECT count(*) FROM sweeper.session;
SELECT count(*) FROM sweeper.cleanup_event WHERE policy = 'sweeper.session';
SELECT count(*) FROM sweeper.usage_event;
SELECT sweeper.expire('sweeper.session', '{00000000-0000-0000-0000-000000000000}', 'not mine');
SET ROLE regress_watch;
SELECT count(*) FROM sweeper.live_session WHERE owner = 'u1';
SELECT sweeper.release(:'mine');
SET ROLE regress_user_2;
SELECT sweeper.release(:'mine');
SET ROLE regress_watch;
SELECT owner, cleanup_type, actor = session_user AS actor FROM sweeper.cleanup_event WHERE policy = 'sweeper.session' AND key = :'mine';
SELECT owner, pool FROM sweeper.usage_event WHERE session = :'mine';
-- members of the role that acquired it see it
RESET ROLE;
GRANT regress_user_1 TO regress_user_2;
SET ROLE regress_user_1;
SELECT count(*) FROM sweeper.acquire('shop', 'u1');
SET ROLE regress_user_2;
SELECT owner, acquired_by FROM sweeper.live_session;
SET ROLE regress_boss;
SELECT sweeper.create_pool('boss', 1);
SELECT sweeper.alter_pool('boss', seats => 2);
SELECT sweeper.drop_pool('boss');
SELECT sweeper.expire_group('sweeper.session', 'shop', 'closing time') > 0 AS ended;
SELECT actor = session_user AS actor FROM sweeper.cleanup_event WHERE policy = 'sweeper.session' AND reason = 'closing time' LIMIT 1;
RESET ROLE;
-- level user of one policy or pool alone: whoever owns the one, or administers the other, gives it
CREATE ROLE regress_owner;
CREATE ROLE regress_client;
CREATE ROLE regress_member IN ROLE regress_client;
SELECT sweeper.grant_access('regress_owner', 'user');
GRANT CREATE ON SCHEMA public TO regress_owner;
SELECT sweeper.create_pool('club'), sweeper.create_pool('closed');
SET ROLE regress_owner;
CREATE TABLE lease (id int PRIMARY KEY, d timestamptz NOT NULL DEFAULT now() + interval '1 h');
INSERT INTO lease SELECT i FROM generate_series(1, 4) AS i;
ALTER TABLE lease ENABLE ROW LEVEL SECURITY;
SELECT FROM sweeper.register('lease', deadline => 'd', ttl => '1 h', heartbeats => true, check_every => '0');
SELECT sweeper.grant_access('regress_client', 'user', policy => 'lease');
SELECT sweeper.grant_access('regress_client', 'user');
SELECT sweeper.grant_access('regress_client', 'user', pool => 'club');
SELECT sweeper.grant_access('regress_client', 'user', policy => 'sweeper.session');
SELECT sweeper.grant_access('regress_client', 'monitor', policy => 'lease');
SELECT sweeper.grant_access('regress_client', 'user', policy => 'lease', pool => 'club');
SELECT sweeper.grant_access('regress_client', 'user', policy => 'nobody');
SET ROLE regress_boss;
SELECT sweeper.grant_access('regress_client', 'user', pool => 'club');
SELECT sweeper.grant_access('regress_client', 'user', pool => 'nobody');
SELECT sweeper.grant_access('regress_client', 'admin');
-- members have it, too
SET ROLE regress_member;
SELECT sweeper.touch('lease', 1), sweeper.is_live('lease', '2'), sweeper.expire('lease', '{3}', 'done') AS expired;
SELECT key, state FROM sweeper.touch_many('lease', '{1,2,3}');
SELECT found, verdict FROM sweeper.explain_row('lease', '1');
SELECT count(*) AS seat FROM sweeper.acquire('club', 'x');
SELECT sweeper.acquire('closed', 'x');
SELECT sweeper.expire('sweeper.session', '{}', 'all');
SELECT sweeper.expire_group('lease', '1', 'all');
SELECT sweeper.pause('lease');
SELECT sweeper.grant_access('regress_member', 'user', policy => 'lease');
SELECT sweeper._set_access('regress_member'::regrole::oid, '_admin', true);
SELECT count(*) FROM lease;
-- it goes as it came, with the policy, or the pool: another of the name begins without
SET ROLE regress_owner;
SELECT sweeper.revoke_access('regress_client', policy => 'lease');
SET ROLE regress_member;
SELECT sweeper.touch('lease', 1);
RESET ROLE;
SELECT sweeper.grant_access('regress_client', 'user', policy => 'lease');
SELECT sweeper.drop_pool('club', true), sweeper.create_pool('club'), sweeper.unregister('lease');
SELECT proname FROM pg_proc WHERE pronamespace = 'sweeper'::regnamespace AND proname LIKE '\_user\_of%';
SET ROLE regress_member;
SELECT sweeper.acquire('club', 'x');
RESET ROLE;
SELECT sweeper.drop_pool('club', true), sweeper.drop_pool('closed', true);
DROP TABLE lease;
SELECT sweeper.revoke_access('regress_client'), sweeper.revoke_access('regress_owner');
REVOKE CREATE ON SCHEMA public FROM regress_owner;
DROP ROLE regress_member, regress_client, regress_owner;
-- objects of the caller's are not what our statements mean
CREATE SCHEMA evil;
CREATE FUNCTION evil.gen_random_uuid() RETURNS uuid LANGUAGE sql AS $$SELECT '00000000-0000-0000-0000-000000000000'::uuid$$;
CREATE FUNCTION evil.eq(uuid, uuid) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE OPERATOR evil.= (LEFTARG = uuid, RIGHTARG = uuid, FUNCTION = evil.eq);
SET search_path = evil, pg_catalog;
SELECT sweeper.alter_pool('shop', seats => 1);
SELECT session AS s, seats_used FROM sweeper.acquire('shop', 'ann') \gset
SELECT count(*) FROM sweeper.acquire('shop', 'bob');
SELECT sweeper.release('11111111-1111-1111-1111-111111111111'), sweeper.release(:'s');
RESET search_path;
DROP SCHEMA evil CASCADE;
-- constraints of the caller's stay deferred
CREATE TABLE a (id int PRIMARY KEY);
CREATE TABLE b (a int REFERENCES a DEFERRABLE INITIALLY DEFERRED);
BEGIN;
INSERT INTO b VALUES (1);
SELECT sweeper.release(session) FROM sweeper.acquire('shop', 'ann');
INSERT INTO a VALUES (1);
COMMIT;
DROP TABLE a, b;
-- the policy is built in: only how often and how much it sweeps can be changed
SELECT sweeper.alter_policy('sweeper.session', filter => 'false');
SELECT sweeper.unregister('sweeper.session');
SELECT sweeper.alter_policy('sweeper.session', lock_timeout => '300 ms', max_workers => 2);
SELECT sweeper.alter_policy('sweeper.session', lock_timeout => '500 ms', max_workers => 1);
-- what changes it is noticed by who keeps it
SELECT session AS s FROM sweeper.acquire('shop', 'ann') \gset
SELECT sweeper.pause('sweeper.session', 'maintenance');
SELECT sweeper.release(:'s');
SELECT sweeper.resume('sweeper.session');
SELECT session AS s FROM sweeper.acquire('shop', 'ann') \gset
BEGIN;
SELECT sweeper.alter_policy('sweeper.session', lock_timeout => '400 ms');
UPDATE sweeper.policy SET database = 1 WHERE policy = 'sweeper.session';
SELECT sweeper.release(:'s');
ROLLBACK;
SELECT sweeper.release(:'s');
SELECT sweeper.drop_pool('shop', true);
DROP FUNCTION try;
SELECT sweeper.alter_policy('sweeper.session', reset => '{check_every}');
DROP OWNED BY regress_nobody, regress_user_1, regress_user_2, regress_watch, regress_boss;
DROP ROLE regress_nobody, regress_user_1, regress_user_2, regress_watch, regress_boss;
-- whom a restored schema has given access to a pool of that name
CREATE ROLE regress_early;
SELECT sweeper._set_access('regress_early'::regrole::oid, '_user_of_pool_' || left(encode(sha256('dock'), 'hex'), 48), true);
SELECT sweeper.create_pool('dock', 1);
SET ROLE regress_early;
SELECT session FROM sweeper.acquire('dock');
RESET ROLE;
SELECT sweeper.drop_pool('dock', force => true);
SELECT sweeper.revoke_access('regress_early');
DROP OWNED BY regress_early;
DROP ROLE regress_early;
-- with the last policy or pool, and without a level, nothing is left to call
CREATE ROLE regress_late;
CREATE VIEW callable AS SELECT p.oid::regprocedure AS function FROM pg_proc AS p, aclexplode(p.proacl) AS a
    WHERE p.pronamespace = 'sweeper'::regnamespace AND a.grantee = (SELECT r.oid FROM pg_roles AS r WHERE r.rolname = 'regress_late') AND p.proname NOT LIKE '\_user\_of\_%';
SELECT sweeper.create_pool('dock', 1), sweeper.create_pool('quay', 1);
CREATE TABLE ship (id int PRIMARY KEY, d timestamptz);
CREATE INDEX ON ship (d);
SELECT FROM sweeper.register('ship', deadline => 'd', check_every => '0');
SELECT sweeper.grant_access('regress_late', 'user', pool => 'dock'), sweeper.grant_access('regress_late', 'user', pool => 'quay'),
    sweeper.grant_access('regress_late', 'user', policy => 'ship');
SELECT sweeper.revoke_access('regress_late', pool => 'dock');
SELECT function FROM callable ORDER BY function::text;
SELECT sweeper.revoke_access('regress_late', pool => 'quay');
SELECT function FROM callable ORDER BY function::text;
SELECT sweeper.grant_access('regress_late', 'monitor'), sweeper.revoke_access('regress_late', policy => 'ship');
SELECT function FROM callable WHERE function::text ~ 'explain_row|touch';
SELECT sweeper.revoke_access('regress_late');
SELECT function FROM callable;
SELECT sweeper.unregister('ship'), sweeper.drop_pool('dock'), sweeper.drop_pool('quay');
DROP TABLE ship;
DROP VIEW callable;
DROP OWNED BY regress_late;
DROP ROLE regress_late;
-- Views that read as the extension's owner: a cheap function in a condition must not be shown rows, or columns, that the view leaves out.
-- Those of this list hide nothing from roles that may read them: level monitor, or all readers.
SELECT c.relname FROM pg_class AS c WHERE c.relkind = 'v' AND c.relnamespace = 'sweeper'::regnamespace
    AND NOT coalesce(c.reloptions && '{security_barrier=true,security_invoker=true}', false)
    AND pg_get_viewdef(c.oid) !~ 'OFFSET 0;$' ORDER BY 1;
