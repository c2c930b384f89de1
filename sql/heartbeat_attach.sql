-- Sessions attached to a connection: who may, what is undone, what ends with it.
SET client_min_messages = warning;
SET timezone = 'UTC';
SELECT sweeper.alter_policy('sweeper.session', check_every => '0');
SELECT sweeper.create_pool('wire', ttl => '1 h');
CREATE FUNCTION code(statement text, OUT code text, OUT message text, OUT hint text) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE statement;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS code = RETURNED_SQLSTATE, message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
END $$;
-- posts are settled in their order: when the last has ended, those before it have been looked at
CREATE PROCEDURE until_ended(who text) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. 6000 LOOP
        EXIT WHEN NOT EXISTS (SELECT FROM sweeper.session WHERE owner = who AND status = 'active');
        COMMIT;
        PERFORM pg_sleep(0.01);
    END LOOP;
END $$;
CREATE VIEW ends AS SELECT s.owner, s.status, e.cleanup_type, e.actor IS NULL AS no_actor, u.hours >= 0 AS billed, s.ended_at <= s.released_at AS in_order
    FROM sweeper.session AS s LEFT JOIN sweeper.cleanup_event AS e ON e.policy = 'sweeper.session' AND e.key = s.session::text
    LEFT JOIN sweeper.usage_event AS u USING (session) WHERE s.pool = 'wire';
CREATE FUNCTION seat(who text) RETURNS uuid LANGUAGE sql AS $$SELECT session FROM sweeper.acquire('wire', who)$$;
CREATE FUNCTION held(who text) RETURNS uuid LANGUAGE sql AS $$SELECT session FROM sweeper.session WHERE owner = who AND status = 'active'$$;
-- arguments, as clients give them
SELECT * FROM code('SELECT sweeper.attach(NULL)');
SELECT sweeper.attach('00000000-0000-0000-0000-000000000000'), sweeper.attach(gen_random_uuid());
PREPARE attach AS SELECT sweeper.attach($1);
EXECUTE attach('00000000-0000-0000-0000-000000000000');
-- nothing is attached where nothing can be kept
BEGIN READ ONLY;
SELECT * FROM code('SELECT sweeper.attach(gen_random_uuid())');
COMMIT;
-- who may: as heartbeats
CREATE ROLE regress_nobody;
CREATE ROLE regress_user;
CREATE ROLE regress_watch;
SELECT sweeper.grant_access('regress_user', 'user'), sweeper.grant_access('regress_watch', 'monitor');
SELECT p.proname, array_agg(r.rolname ORDER BY r.rolname) AS may FROM pg_proc AS p JOIN pg_roles AS r ON r.rolname LIKE 'regress\_%' AND has_function_privilege(r.oid, p.oid, 'EXECUTE')
WHERE p.oid IN ('sweeper.attach(uuid)'::regprocedure, 'sweeper.heartbeat(uuid)'::regprocedure) GROUP BY 1 ORDER BY 1;
SELECT seat('user') AS id \gset
SET ROLE regress_nobody;
SELECT sweeper.attach(NULL);
SET ROLE regress_user;
SELECT sweeper.attach(:'id');
RESET ROLE;
-- one that has ended is not attached
SELECT sweeper.release(:'id');
SELECT sweeper.attach(:'id');
-- it is a heartbeat
SELECT seat('beat') AS id \gset
UPDATE sweeper.session SET last_seen_at = now() - interval '2 h', expires_at = now() - interval '1 h' WHERE session = :'id';
SELECT sweeper.attach(:'id'), sweeper.is_live(:'id');
CALL sweeper.sweep('sweeper.session');
SELECT status, expires_at > now() + interval '59 min' AS refreshed FROM sweeper.session WHERE session = :'id';
-- a prepared transaction may be committed by anybody
BEGIN;
SELECT sweeper.attach(seat('prepared'));
PREPARE TRANSACTION 'attach';
SELECT held('prepared');
-- undone with its transaction, or its savepoint; not with one that comes later
SELECT seat('rolled back'), seat('savepoint'), seat('released savepoint'), seat('twice'), seat('caught'), seat('first') \g /dev/null
BEGIN;
SELECT sweeper.attach(held('rolled back'));
ROLLBACK;
BEGIN;
SAVEPOINT a;
SELECT sweeper.attach(held('savepoint'));
SAVEPOINT b;
SELECT sweeper.attach(held('savepoint'));
RELEASE b;
ROLLBACK TO a;
SAVEPOINT c;
SELECT sweeper.attach(held('released savepoint'));
SAVEPOINT d;
SELECT sweeper.attach(held('twice'));
RELEASE c;
SAVEPOINT e;
SELECT sweeper.attach(held('twice'));
ROLLBACK TO e;
DO $$
BEGIN
    PERFORM sweeper.attach(held('caught'));
    RAISE division_by_zero;
EXCEPTION WHEN division_by_zero THEN NULL;
END $$;
COMMIT;
-- acquired and attached in one go; nor does the end of the settings end it
BEGIN;
SELECT sweeper.attach(seat('own'));
COMMIT;
DISCARD ALL;
-- many, and again and again
SELECT sum(sweeper.attach(held('first'))::int) AS calls FROM generate_series(1, 100);
SELECT count(*) FILTER (WHERE sweeper.attach(seat('many'))) FROM generate_series(1, 40);
SELECT count(*) FROM generate_series(1, 40) AS i, seat('gone' || left(i::text, 0)) AS s WHERE sweeper.attach(s) AND sweeper.release(s);
\c -
SET timezone = 'UTC';
CALL until_ended('own');
CALL until_ended('many');
SELECT owner, status, cleanup_type, no_actor, billed, in_order, count(*) FROM ends GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1;
-- those of the pass are counted, when it is over
CALL sweeper.sweep('sweeper.session');
SELECT bool_and(p.status = 'done' AND p.expired > 0) AS counted FROM sweeper.pass AS p JOIN sweeper.cleanup_event AS e USING (pass) WHERE e.cleanup_type = 'disconnected';
SELECT sweeper.drop_pool('wire', true);
SELECT sweeper.alter_policy('sweeper.session', reset => '{check_every}');
SELECT sweeper.revoke_access('regress_user'), sweeper.revoke_access('regress_watch');
DROP ROLE regress_nobody, regress_user, regress_watch;
DROP VIEW ends;
DROP FUNCTION code, seat, held;
DROP PROCEDURE until_ended;
