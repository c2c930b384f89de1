-- What a role of a low level keeps locked in a transaction that does not end: others get an error soon, and its hint finds the holder, also a prepared one.
SET client_min_messages = warning;
CREATE ROLE lasting_owner;
CREATE ROLE lasting_other;
CREATE ROLE "Lasting Capital";
SELECT sweeper.grant_access('lasting_owner', 'user'), sweeper.grant_access('"Lasting Capital"', 'user');
-- the error of a statement, and whom the statement in its hint names
CREATE FUNCTION hinted(command text) RETURNS TABLE (error text, holders text) LANGUAGE plpgsql AS $$
DECLARE
    hint text;
BEGIN
    EXECUTE command;
    error := 'went through';
    RETURN NEXT;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS hint = PG_EXCEPTION_HINT;
    error := SQLSTATE || ' ' || SQLERRM;
    EXECUTE format($q$SELECT string_agg(to_jsonb(h)->>'prepared', ' ') FROM (%s) AS h$q$, coalesce(rtrim(substring(hint FROM '(?:SELECT|WITH) .*;'), ';'), 'SELECT 1')) INTO holders;
    RETURN NEXT;
END $$;
CREATE TABLE lasting (id int PRIMARY KEY, d timestamptz);
ALTER TABLE lasting OWNER TO lasting_owner;
SET ROLE lasting_owner;
SELECT policy FROM sweeper.register('lasting', deadline => 'd', check_every => '0');
-- access
BEGIN;
SELECT sweeper.grant_access('lasting_other', 'user', policy => 'lasting');
PREPARE TRANSACTION 'lasting grant';
RESET ROLE;
SELECT * FROM hinted('SELECT sweeper.revoke_access(''lasting_owner'')');
SET lock_timeout = '50ms';
SELECT * FROM hinted('SELECT sweeper.grant_access(''lasting_other'', ''monitor'')');
SHOW lock_timeout;
COMMIT PREPARED 'lasting grant';
SELECT * FROM hinted('SELECT sweeper.grant_access(''lasting_other'', ''user'')');
SHOW lock_timeout;
-- a policy
SET ROLE lasting_other;
BEGIN;
SELECT sweeper.expire('lasting', '{5}');
PREPARE TRANSACTION 'lasting expire';
SET ROLE lasting_owner;
SELECT * FROM hinted('SELECT sweeper.resume(''lasting'')');
RESET ROLE;
COMMIT PREPARED 'lasting expire';
-- a locked row; then a policy that a prepared transaction changes: the statement of view problem finds the transaction
INSERT INTO lasting VALUES (6, now());
BEGIN;
SELECT id FROM lasting FOR UPDATE;
PREPARE TRANSACTION 'lasting row';
RESET lock_timeout;
SELECT error FROM hinted('SELECT sweeper.expire(''lasting'', ''{6}'')');
SET lock_timeout = '50ms';
ROLLBACK PREPARED 'lasting row';
BEGIN;
SELECT sweeper.alter_policy('lasting', max_lag => '2 min');
PREPARE TRANSACTION 'lasting change';
SELECT sweeper._lock_query('public.lasting') AS query \gset
CREATE TEMP TABLE holders AS :query
SELECT DISTINCT prepared FROM holders;
COMMIT PREPARED 'lasting change';
-- a pool with a limit, and the pool of workers, which has none
SELECT sweeper.create_pool('lasting', 5);
SET ROLE lasting_other;
BEGIN;
SELECT count(*) FROM sweeper.acquire('lasting');
SELECT sweeper.register_worker('one') IS NOT NULL AS registered;
PREPARE TRANSACTION 'lasting seat';
SET ROLE lasting_owner;
SELECT * FROM hinted('SELECT sweeper.acquire(''lasting'')');
SELECT * FROM hinted('SELECT sweeper.register_worker(''two'')');
RESET ROLE;
ROLLBACK PREPARED 'lasting seat';
SELECT sweeper.drop_pool('lasting');
RESET lock_timeout;
-- hints that name roles quote them
SET ROLE "Lasting Capital";
SELECT sweeper.pause('lasting');
SELECT sweeper.preview('lasting');
SELECT sweeper.expire('lasting', '{1}');
SELECT sweeper.register_job(gen_random_uuid(), '@global', 'a', 'b');
RESET ROLE;
-- each level reads every view that it has: no view asks for a function that it has not
SELECT sweeper.revoke_access(r) FROM unnest('{lasting_owner,lasting_other,"\"Lasting Capital\""}'::regrole[]) AS r \g /dev/null
CREATE FUNCTION unreadable(reader regrole, level text) RETURNS TABLE (name name, error text) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM sweeper.grant_access(reader, level);
    FOR name IN SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = 'sweeper'::regnamespace AND c.relkind IN ('r', 'v') ORDER BY 1 LOOP
        IF has_table_privilege(reader, format('sweeper.%I', name), 'SELECT') THEN
            EXECUTE format('SET LOCAL ROLE %s', reader);
            BEGIN
                EXECUTE format('SELECT count(r::text) FROM sweeper.%I AS r', name);
            EXCEPTION WHEN OTHERS THEN
                error := SQLERRM;
                RETURN NEXT;
            END;
            RESET ROLE;
        ELSIF name NOT LIKE '\_%' AND EXISTS (SELECT FROM pg_class AS c WHERE c.oid = format('sweeper.%I', name)::regclass AND c.relkind = 'v') THEN
            error := 'not for ' || level;
            RETURN NEXT;
        END IF;
    END LOOP;
    PERFORM sweeper.revoke_access(reader);
END $$;
SELECT sweeper.create_pool('lasting', 5);
SELECT count(*) FROM sweeper.acquire('lasting');
SELECT sweeper.submit_sql('SELECT 1') IS NOT NULL AS submitted;
SELECT l.level, u.* FROM unnest('{user,monitor,admin}'::text[]) WITH ORDINALITY AS l (level, n), unreadable('lasting_other', l.level) AS u ORDER BY n, name;
SELECT sweeper.drop_pool('lasting', force => true);
DROP FUNCTION hinted, unreadable;
SELECT sweeper.unregister('lasting');
DROP TABLE lasting;
DROP ROLE lasting_owner, lasting_other, "Lasting Capital";
