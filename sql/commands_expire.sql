-- expire() and expire_group(): end named rows now, dead or not, in the caller's transaction.
SET client_min_messages = warning;
SET timezone = 'UTC';
CREATE TABLE seat (id int PRIMARY KEY, tenant int, status text DEFAULT 'on', expires timestamptz DEFAULT '2100-01-01');
CREATE INDEX ON seat (tenant);
INSERT INTO seat (id, tenant) SELECT i, i % 3 FROM generate_series(1, 12) AS i;
UPDATE seat SET status = 'off' WHERE id = 12;
SELECT policy FROM sweeper.register('seat', deadline => 'expires', filter => 'status = ''on''', group_by => 'tenant', capture => '{tenant}', check_every => '0');
-- by key: live rows too, duplicates once, missing and excluded ones not at all
SELECT sweeper.expire('seat', '{1,2,2,99,12}', 'fired');
SELECT key, "group", cleanup_type, reason, actor = session_user AS actor, deadline, pass, metadata FROM sweeper.cleanup_event WHERE policy = 'seat' ORDER BY key;
SELECT sweeper.expire('seat', '{1}', 'again'), sweeper.expire('seat', '{}', 'nothing');
-- the caller's rollback takes all of it back
BEGIN;
SELECT sweeper.expire('seat', '{3}', 'oops');
SELECT count(*) FROM seat WHERE id = 3;
ROLLBACK;
SELECT count(*) FROM seat WHERE id = 3;
SELECT count(*) FROM sweeper.cleanup_event WHERE policy = 'seat' AND key = '3';
-- a group: a plain column is compared as its own type
SELECT sweeper.expire_group('seat', ' 01', 'licence ended');
SELECT array_agg(id ORDER BY id) FROM seat;
SELECT sweeper.expire_group('seat', '7', 'no such tenant');
SELECT sweeper.alter_policy('seat', group_by => '''tenant '' || tenant');
SELECT sweeper.expire_group('seat', 'tenant 2', 'licence ended');
SELECT array_agg(id ORDER BY id) FROM seat;
SELECT "group", count(*) FROM sweeper.cleanup_event WHERE policy = 'seat' GROUP BY 1 ORDER BY 1;
-- as clients call them, and with what is no key
PREPARE e AS SELECT sweeper.expire($1, $2, $3);
EXECUTE e('seat', '{9}', 'prepared');
DO $$ DECLARE c text; BEGIN
    FOREACH c IN ARRAY ARRAY[
        $c$SELECT sweeper.expire('seat', '{x}', 'r')$c$,
        $c$SELECT sweeper.expire('seat', '{3,NULL}', 'r')$c$,
        $c$SELECT sweeper.expire('seat', NULL, 'r')$c$,
        $c$SELECT sweeper.expire(NULL, '{3}', 'r')$c$,
        $c$SELECT sweeper.expire('nobody', '{3}', 'r')$c$,
        $c$SELECT sweeper.expire_group('seat', NULL, 'r')$c$,
        $c$SELECT sweeper.expire_group(NULL, 'x', 'r')$c$]
    LOOP
        BEGIN EXECUTE c; RAISE WARNING 'went through: %', c;
        EXCEPTION WHEN OTHERS THEN RAISE WARNING '% %', SQLSTATE, SQLERRM; END;
    END LOOP;
END $$;
SELECT array_agg(id ORDER BY id) FROM seat;
BEGIN TRANSACTION READ ONLY;
SELECT sweeper.expire('seat', '{3}', 'r');
ROLLBACK;
SELECT sweeper.alter_policy('seat', reset => '{group_by}');
SELECT sweeper.expire_group('seat', '1', 'no group');
-- paused: people still may
SELECT sweeper.pause('seat');
SELECT sweeper.expire('seat', '{3}', 'paused');
-- what was done stays on record
SELECT sweeper.expire('sweeper.cleanup_event', '{"(0,1)"}', 'hush');
SELECT sweeper.expire('sweeper.pass', '{1}', 'hush');
-- composite keys, partitions, update, a hook that archives
CREATE TABLE part (a text, b int, seen timestamptz DEFAULT now(), PRIMARY KEY (a, b)) PARTITION BY LIST (b);
CREATE TABLE part_1 PARTITION OF part FOR VALUES IN (1);
CREATE TABLE part_2 PARTITION OF part FOR VALUES IN (2);
INSERT INTO part SELECT a, b FROM unnest(ARRAY['x', 'y,"z"']) AS a, generate_series(1, 2) AS b;
CREATE TABLE gone (LIKE part);
CREATE FUNCTION archive(part[]) RETURNS void LANGUAGE sql AS 'INSERT INTO gone SELECT * FROM unnest($1)';
SELECT policy FROM sweeper.register('part', last_seen => 'seen', ttl => '1 d', on_expire => 'archive(part[])', check_every => '0');
SELECT sweeper.expire('part', ARRAY['(x,1)', '("y,""z""",2)'], 'both');
SELECT a, b FROM part ORDER BY 1, 2;
SELECT a, b FROM gone ORDER BY 1, 2;
SELECT key, last_seen IS NOT NULL AS seen FROM sweeper.cleanup_event WHERE policy = 'part' AND cleanup_type = 'manual' ORDER BY key;
SELECT sweeper.expire('part', '{x}', 'half a key');
SELECT sweeper.expire('part', '{(x,1)}', 'not quoted');
SELECT sweeper.alter_policy('part', action => 'update', set_clause => 'seen = NULL', reset => '{on_expire}');
SELECT sweeper.expire('part', '{"(x,2)"}', 'marked');
SELECT a, b, seen IS NULL AS marked FROM part ORDER BY 1, 2;
-- keys are written and read alike, whatever the session's settings
CREATE TABLE timed (at timestamptz, span interval, d timestamptz, PRIMARY KEY (at, span));
INSERT INTO timed VALUES ('2026-01-02 03:04:05+00', '1 day 02:00', now() + '1 h'), ('2026-02-02 03:04:05+00', '1 day 02:00', now() - '1 h'::interval);
SELECT policy FROM sweeper.register('timed', deadline => 'd', check_every => '0');
SET timezone = 'Asia/Tokyo'; SET datestyle = 'German'; SET intervalstyle = 'iso_8601';
SELECT sweeper.expire('timed', '{"(\"2026-01-02 03:04:05+00\",\"1 day 02:00:00\")"}', 'spelled like an event');
SHOW timezone;
CALL sweeper.sweep('timed', pass => NULL) \gset
SELECT key FROM sweeper.cleanup_event WHERE policy = 'timed' ORDER BY key;
RESET timezone; RESET datestyle; RESET intervalstyle; SET timezone = 'UTC';
SELECT sweeper.unregister('timed');
DROP TABLE timed;
-- no key: the physical row
CREATE TABLE loose (d timestamptz);
INSERT INTO loose VALUES (now()), (now());
SELECT policy FROM sweeper.register('loose', deadline => 'd', keep_for => '1 d', check_every => '0');
SELECT sweeper.expire('loose', '{"(0,2)"}', 'one');
SELECT count(*) FROM loose;
-- in one of several partitions that is no key
CREATE TABLE looser (d timestamptz) PARTITION BY RANGE (d);
CREATE TABLE looser_1 PARTITION OF looser DEFAULT;
SELECT policy FROM sweeper.register('looser', deadline => 'd', check_every => '0');
SELECT sweeper.expire('looser', '{"(0,1)"}', 'r');
SELECT sweeper.unregister('looser');
DROP TABLE looser;
-- somebody else's code runs as somebody else, and nothing of it is left for the caller's commit
CREATE ROLE regress_tenant;
CREATE ROLE regress_operator;
GRANT CREATE ON SCHEMA public TO regress_tenant;
SELECT sweeper.grant_access('regress_tenant', 'user');
SELECT sweeper.grant_access('regress_operator', 'admin');
SET ROLE regress_tenant;
CREATE TABLE trap (id int PRIMARY KEY, d timestamptz);
INSERT INTO trap SELECT i, '2100-01-01' FROM generate_series(1, 3) AS i;
CREATE TABLE log (who name, path text);
CREATE FUNCTION spring() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO public.log VALUES (current_user, current_setting('search_path')); PERFORM set_config('search_path', 'evil', false); RETURN NULL; END $$;
CREATE TRIGGER now AFTER DELETE ON trap FOR EACH ROW EXECUTE FUNCTION spring();
CREATE CONSTRAINT TRIGGER late AFTER DELETE ON trap DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION spring();
SELECT policy FROM sweeper.register('trap', deadline => 'd', check_every => '0');
SELECT sweeper.expire('seat', '{6}', 'not mine');
RESET ROLE;
SHOW search_path;
BEGIN;
SELECT sweeper.expire('trap', '{1}', 'by a superuser');
COMMIT;
SHOW search_path;
SET ROLE regress_operator;
SELECT sweeper.expire('trap', '{2}', 'by an admin');
DELETE FROM trap;
SELECT sweeper.revoke_access('regress_tenant');
RESET ROLE;
SELECT * FROM log;
-- a hook that was handed over is not called
CREATE FUNCTION theirs(text[]) RETURNS void LANGUAGE sql AS 'SELECT';
ALTER FUNCTION theirs OWNER TO regress_tenant;
SET ROLE regress_tenant;
SELECT sweeper.alter_policy('trap', on_expire => 'theirs(text[])');
RESET ROLE;
ALTER FUNCTION theirs OWNER TO regress_operator;
SELECT sweeper.expire('trap', '{3}', 'r');
UPDATE trap SET d = now() - '1 h'::interval;
\set VERBOSITY terse
CALL sweeper.sweep('trap') \gset
\set VERBOSITY default
DROP TABLE trap, log, seat, part, gone, loose CASCADE;
SELECT sweeper.unregister(policy) FROM sweeper.policy WHERE policy IN ('trap', 'seat', 'part', 'loose') ORDER BY policy;
SELECT sweeper.revoke_access('regress_operator');
DROP OWNED BY regress_tenant, regress_operator;
DROP ROLE regress_tenant, regress_operator;
