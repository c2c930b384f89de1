-- Every verdict of explain_row, and what goes with it.
SET client_min_messages = warning;
-- alive, due, no deadline, excluded by filter, expired, not found
CREATE TABLE s (id int PRIMARY KEY, d timestamptz, open boolean NOT NULL DEFAULT true);
CREATE INDEX ON s (d);
SELECT state FROM sweeper.register('s', deadline => 'd', filter => 'open', check_every => '0', start => 'now');
INSERT INTO s VALUES (1, '2100-01-01', true), (2, '2001-02-03', true), (3, NULL, true), (4, '2001-02-03', false), (5, 'infinity', true), (6, '-infinity', true);
SELECT k, found, state, deadline, verdict, reason, hint
FROM unnest(ARRAY['1', '2', '3', '4', '5', '6', '7', 'x']) AS k, sweeper.explain_row('s', k);
CALL sweeper.sweep('s') \gset
SELECT k, found, deadline, verdict, reason, ended_at > '2020-01-01' AS ended, cleanup_type
FROM unnest(ARRAY['2', ' 02', '3', '4']) AS k, sweeper.explain_row('s', k);
-- the last life counts: a new row of the same key is alive
INSERT INTO s VALUES (2, '2100-01-01');
SELECT found, verdict, ended_at FROM sweeper.explain_row('s', '2');
-- nulls that end, nulls that are repaired
SELECT sweeper.alter_policy('s', on_null => 'expire');
SELECT verdict, deadline, hint FROM sweeper.explain_row('s', '3');
SELECT sweeper.alter_policy('s', on_null => 'repair', ttl => '1 h');
SELECT verdict, reason, hint FROM sweeper.explain_row('s', '3');
SELECT sweeper.alter_policy('s', reset => '{on_null,ttl}');
-- in retention
INSERT INTO s VALUES (10, now() - '1 min'::interval), (11, now() - '2 h'::interval);
SELECT sweeper.alter_policy('s', keep_for => '1 h');
SELECT k, verdict, reason FROM unnest(ARRAY['10', '11']) AS k, sweeper.explain_row('s', k);
SELECT sweeper.alter_policy('s', reset => '{keep_for}');
-- paused: only the dead are
SELECT sweeper.pause('s', 'for a test');
SELECT k, state, verdict, reason, hint FROM unnest(ARRAY['1', '11']) AS k, sweeper.explain_row('s', k);
SELECT sweeper.resume('s');
-- held
UPDATE sweeper.policy SET held_reason = 'backlog', held_at = now() WHERE policy = 's';
SELECT state, verdict, reason, hint FROM sweeper.explain_row('s', '11');
SELECT sweeper.resume('s');
-- locked: by whoever changes or holds the row, in a subtransaction too
BEGIN;
SELECT id FROM s WHERE id = 11 FOR KEY SHARE;
SELECT verdict, reason, blocked_by = ARRAY[pg_backend_pid()] AS by_me FROM sweeper.explain_row('s', '11');
ROLLBACK;
BEGIN;
SAVEPOINT a;
SELECT id FROM s WHERE id = 11 FOR SHARE;
SAVEPOINT b;
SELECT id FROM s WHERE id = 11 FOR UPDATE;
SELECT verdict, blocked_by = ARRAY[pg_backend_pid()] AS by_me FROM sweeper.explain_row('s', '11');
ROLLBACK TO a;
SELECT verdict, blocked_by FROM sweeper.explain_row('s', '11');
ROLLBACK;
-- it locks nothing itself, changes nothing, and may be asked in a read-only transaction
BEGIN READ ONLY;
SELECT verdict FROM sweeper.explain_row('s', '11');
SELECT count(*) FROM pg_locks WHERE relation = 's'::regclass AND pid = pg_backend_pid();
SELECT pg_current_xact_id_if_assigned() IS NULL AS no_xid;
COMMIT;
-- quarantined, and failed but tried again; a changed row is as new
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one'; END $$;
CREATE TRIGGER refuse BEFORE DELETE ON s FOR EACH ROW WHEN (OLD.id = 11) EXECUTE FUNCTION refuse();
CALL sweeper.sweep('s') \gset
SELECT verdict, reason, attempts, next_attempt IS NOT NULL AS again, last_error, hint FROM sweeper.explain_row('s', '11');
SELECT sweeper.alter_policy('s', max_retries => 0);
SELECT sweeper.retry_row('s', '11');
CALL sweeper.sweep('s') \gset
SELECT verdict, reason, attempts, next_attempt, last_error, hint FROM sweeper.explain_row('s', '11');
UPDATE s SET d = now() - '1 min'::interval WHERE id = 11;
SELECT verdict, attempts, last_error FROM sweeper.explain_row('s', '11');
DROP TRIGGER refuse ON s;
CALL sweeper.sweep('s') \gset
SELECT verdict FROM sweeper.explain_row('s', '11');
-- check unknown
CREATE FUNCTION cannot_tell(key text) RETURNS boolean LANGUAGE sql STABLE AS 'SELECT NULL::boolean';
SELECT sweeper.alter_policy('s', is_alive => 'cannot_tell(text)', ttl => '1 h', max_retries => 3);
INSERT INTO s VALUES (12, now() - '1 min'::interval);
SELECT verdict, reason FROM sweeper.explain_row('s', '12');
CALL sweeper.sweep('s') \gset
SELECT verdict, reason, attempts, next_attempt IS NOT NULL AS again, hint FROM sweeper.explain_row('s', '12');
SELECT sweeper.alter_policy('s', reset => '{is_alive,ttl}');
-- held by fuse
DELETE FROM s;
CALL sweeper.sweep('s') \gset
INSERT INTO s SELECT i, now() - '1 min'::interval FROM generate_series(101, 301) AS i;
CALL sweeper.sweep('s') \gset
SELECT state, verdict, reason, hint FROM sweeper.explain_row('s', '101');
SELECT sweeper.resume('s');
CALL sweeper.sweep('s') \gset
SELECT verdict, cleanup_type FROM sweeper.explain_row('s', '101');
-- in grace: since the start less than the row's own time to live has passed
CREATE TABLE a (id uuid PRIMARY KEY, seen timestamptz, ttl interval);
SELECT state FROM sweeper.register('a', last_seen => 'seen', ttl_column => 'ttl', check_every => '0', start => 'now');
INSERT INTO a VALUES ('6ba7b810-9dad-11d1-80b4-00c04fd430c8', '2001-02-03', '1 day'), ('6ba7b811-9dad-11d1-80b4-00c04fd430c8', now(), '1 day'),
    ('6ba7b812-9dad-11d1-80b4-00c04fd430c8', '2001-02-03', NULL);
CALL sweeper.sweep('a') \gset
SELECT k, found, deadline > now() AS later, last_seen IS NOT NULL AS seen, verdict, reason, hint
FROM unnest(ARRAY['6BA7B810-9dad-11d1-80b4-00c04fd430c8', '6ba7b811-9dad-11d1-80b4-00c04fd430c8', '6ba7b812-9dad-11d1-80b4-00c04fd430c8']) AS k,
     sweeper.explain_row('a', k);
-- composite keys, quoted names, partitions, no key
CREATE TABLE "P q" ("a B" int, c text, d timestamptz, PRIMARY KEY ("a B", c)) PARTITION BY LIST ("a B");
CREATE TABLE p1 PARTITION OF "P q" FOR VALUES IN (1);
CREATE TABLE p2 PARTITION OF "P q" FOR VALUES IN (2);
SELECT policy FROM sweeper.register('"P q"', policy => 'parts', deadline => 'd', check_every => '0', start => 'now');
INSERT INTO "P q" VALUES (1, 'x, "y" \ )', '2100-01-01'), (2, '', '2001-02-03');
SELECT ROW("a B", c)::text AS k, e.found, e.verdict FROM "P q", LATERAL sweeper.explain_row('parts', ROW("a B", c)::text) AS e ORDER BY 1;
SELECT k, found, verdict, reason FROM unnest(ARRAY['(1,x)', '( 1 , x)', '1', '(1)', '(1,x', '(1,x,y)', '(1,"x")z', '(,x)', '(a,x)', '']) AS k,
    sweeper.explain_row('parts', k);
CALL sweeper.sweep('parts') \gset
SELECT found, verdict FROM sweeper.explain_row('parts', '(2,"")');
CREATE TABLE nokey (d timestamptz);
SELECT policy FROM sweeper.register('nokey', deadline => 'd', check_every => '0', start => 'now');
INSERT INTO nokey VALUES ('2100-01-01'), ('2001-02-03');
SELECT k, found, verdict, reason FROM unnest(ARRAY['(0,1)', '(0,2)', '(0,3)', 'a']) AS k, sweeper.explain_row('nokey', k);
-- two clocks: either ends it
CREATE TABLE two (id text PRIMARY KEY, d timestamptz, c timestamptz);
SELECT policy FROM sweeper.register('two', deadline => 'd', created => 'c', max_age => '1 h', check_every => '0', start => 'now');
INSERT INTO two VALUES ('both', '2100-01-01', now()), ('first', '2001-02-03', now()), ('age', '2100-01-01', '2001-02-03'), ('age only', NULL, '2001-02-03');
SELECT id, verdict, deadline < now() AS passed FROM two, LATERAL sweeper.explain_row('two', id) ORDER BY id;
-- what the audit knows: hashed keys are found again, counts are not
SELECT sweeper.alter_policy('two', audit => 'hash');
CALL sweeper.sweep('two') \gset
SELECT verdict, cleanup_type FROM sweeper.explain_row('two', 'first');
SELECT sweeper.alter_policy('two', audit => 'count');
INSERT INTO two VALUES ('second', '2001-02-03', now());
CALL sweeper.sweep('two') \gset
SELECT verdict, reason FROM sweeper.explain_row('two', 'second');
-- action update: the row stays, its end is known
CREATE TABLE u (id int PRIMARY KEY, d timestamptz, status text DEFAULT 'active');
SELECT policy FROM sweeper.register('u', deadline => 'd', action => 'update', set_clause => 'status = ''expired''', filter => 'status = ''active''', check_every => '0', start => 'now');
INSERT INTO u VALUES (1, now() - '1 min'::interval);
CALL sweeper.sweep('u') \gset
SELECT found, verdict, reason, cleanup_type FROM sweeper.explain_row('u', '1');
-- a row that cannot be read; a relation that is gone
ALTER TABLE u DROP COLUMN status;
SELECT found, verdict, reason, hint FROM sweeper.explain_row('u', '1');
DROP TABLE u;
SELECT found, state, verdict, reason, hint FROM sweeper.explain_row('u', '1');
-- errors
SELECT * FROM sweeper.explain_row(NULL, '1');
SELECT * FROM sweeper.explain_row('s', NULL);
SELECT * FROM sweeper.explain_row('none', '1');
PREPARE e AS SELECT verdict FROM sweeper.explain_row($1, $2);
EXECUTE e('s', '12345');
-- rights: the owner, monitor, nobody else; the owner's code runs as the owner
CREATE ROLE regress_explain_owner;
CREATE ROLE regress_explain_monitor;
CREATE ROLE regress_explain_nobody;
GRANT CREATE ON SCHEMA public TO regress_explain_owner;
SELECT sweeper.grant_access('regress_explain_owner', 'user'), sweeper.grant_access('regress_explain_monitor', 'monitor');
GRANT USAGE ON SCHEMA sweeper TO regress_explain_nobody;
GRANT EXECUTE ON FUNCTION sweeper.explain_row, sweeper.explain_sweep TO regress_explain_owner, regress_explain_monitor, regress_explain_nobody;
SET ROLE regress_explain_owner;
CREATE TABLE mine (id int PRIMARY KEY, d timestamptz);
CREATE FUNCTION who(int) RETURNS boolean LANGUAGE plpgsql STABLE AS $$ BEGIN RAISE WARNING 'as %', current_user; RETURN true; END $$;
SELECT policy FROM sweeper.register('mine', deadline => 'd', filter => 'who(id)', check_every => '0', start => 'paused');
INSERT INTO mine VALUES (1, now() - '1 min'::interval);
SELECT verdict FROM sweeper.explain_row('mine', '1');
SET ROLE regress_explain_monitor;
SELECT verdict FROM sweeper.explain_row('mine', '1');
SELECT current_user;
SELECT count(*) > 0 AS lines FROM sweeper.explain_sweep('mine');
SET ROLE regress_explain_nobody;
SELECT verdict FROM sweeper.explain_row('mine', '1');
SELECT * FROM sweeper.explain_sweep('mine');
RESET ROLE;
-- the relation's owner changed: nobody's code runs for the other
ALTER TABLE mine OWNER TO CURRENT_USER;
SELECT found, verdict, reason = format('the relation''s owner changed from "regress_explain_owner" to "%s"', current_user) AS says_so FROM sweeper.explain_row('mine', '1');
SELECT count(*) FROM sweeper.explain_sweep('u');
-- explain_sweep: statements and plans, nothing run
-- another session: this one has run code of other owners
\c -
SET client_min_messages = warning;
SET enable_seqscan = off;
SELECT regexp_replace(l, '(cost=|rows=|width=).*|\([0-9]+,[0-9]+\)|''[0-9]{4}-[^'']*''', '', 'g') AS line FROM sweeper.explain_sweep('s') AS l
WHERE l !~ '(Cond|Filter|Sort|Recheck|Result|Bitmap|TID|Index|Disabled|InitPlan|Subquery|Function)' ;
RESET enable_seqscan;
SELECT count(*) FROM sweeper.explain_sweep('parts') AS l WHERE l LIKE '-- %';
-- what a pass runs: heartbeats, is_alive, repair, hooks, two clocks; each has a plan
CREATE TABLE steps (id int PRIMARY KEY, seen timestamptz, made timestamptz NOT NULL DEFAULT now(), done boolean);
CREATE INDEX ON steps (seen);
CREATE FUNCTION step_alive(text) RETURNS boolean LANGUAGE sql AS 'SELECT true';
CREATE FUNCTION step_hook(text[]) RETURNS void LANGUAGE sql AS 'SELECT';
SELECT FROM sweeper.register('steps', policy => 'beats', last_seen => 'seen', ttl => '20 s', heartbeats => true, on_null => 'repair', check_every => '0');
SELECT FROM sweeper.register('steps', policy => 'asks', last_seen => 'seen', ttl => '20 s', created => 'made', max_age => '1 day', is_alive => 'step_alive(text)', check_every => '0');
SELECT FROM sweeper.register('steps', policy => 'calls', deadline => 'seen', action => 'call', on_expire => 'step_hook(text[])', filter => 'NOT done', check_every => '0');
CREATE FUNCTION steps(policy text) RETURNS TABLE (step text, planned boolean) LANGUAGE sql AS $$
    SELECT substr((array_agg(l ORDER BY n))[1], 4), bool_or(l ~ '^    .*cost=') FROM (
        SELECT l, n, count(*) FILTER (WHERE l LIKE '-- %') OVER (ORDER BY n) AS g FROM sweeper.explain_sweep(policy) WITH ORDINALITY AS e (l, n)) AS e
    GROUP BY g ORDER BY g
$$;
SELECT p.policy, s.* FROM unnest('{s,beats,asks,calls}'::text[]) AS p (policy), steps(p.policy) AS s;
SELECT l FROM sweeper.explain_sweep('beats') AS l WHERE l LIKE 'UPDATE%';
-- a refresh reads the rows by their places
SELECT bool_or(l LIKE '%Tid Scan on steps t%') AS by_place FROM sweeper.explain_sweep('beats') WITH ORDINALITY AS e (l, n)
WHERE n BETWEEN (SELECT n FROM sweeper.explain_sweep('beats') WITH ORDINALITY AS x (l, n) WHERE l LIKE '-- deadline: refresh%')
            AND (SELECT n FROM sweeper.explain_sweep('beats') WITH ORDINALITY AS x (l, n) WHERE l LIKE '-- deadline: delete%');
SELECT count(*) FROM steps;
SELECT sweeper.unregister(policy) FROM sweeper.policy WHERE policy IN ('beats', 'asks', 'calls');
DROP FUNCTION steps, step_alive, step_hook;
DROP TABLE steps;
-- none of this left a trace of the reader
SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND relation IN ('s'::regclass, 'a'::regclass);
SELECT sweeper.unregister(policy) FROM sweeper.policy WHERE policy IN ('s', 'a', 'parts', 'nokey', 'two', 'u', 'mine') ORDER BY policy;
DROP TABLE mine;
DROP FUNCTION who;
REVOKE CREATE ON SCHEMA public FROM regress_explain_owner;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA sweeper FROM regress_explain_owner, regress_explain_monitor, regress_explain_nobody;
SELECT sweeper.revoke_access('regress_explain_owner'), sweeper.revoke_access('regress_explain_monitor'), sweeper.revoke_access('regress_explain_nobody');
DROP ROLE regress_explain_owner, regress_explain_monitor, regress_explain_nobody;
DROP TABLE s, a, "P q", nokey, two;
DROP FUNCTION refuse, cannot_tell;
-- another spelling of a key is the same key: for retry_row, too
CREATE TABLE spelled (id numeric PRIMARY KEY, d timestamptz);
INSERT INTO spelled SELECT i + 0.50, now() - interval '1 h' FROM generate_series(1, 5) AS i;
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF OLD.id = 1.5 THEN RAISE EXCEPTION 'not this one'; END IF; RETURN OLD; END $$;
CREATE TRIGGER refuse BEFORE DELETE ON spelled FOR EACH ROW EXECUTE FUNCTION refuse();
SELECT FROM sweeper.register('spelled', deadline => 'd', check_every => '0', start => 'now', max_retries => 0);
CALL sweeper.sweep('spelled') \gset
SELECT key, verdict, attempts, last_error, hint FROM unnest('{1.50,1.5,001.5}'::text[]) AS key, sweeper.explain_row('spelled', key);
SELECT sweeper.retry_row('spelled', '1.50');
SELECT key, state FROM sweeper.failed_row WHERE policy = 'spelled';
SELECT sweeper.retry_row('spelled', '2.5');
SELECT sweeper.retry_row('spelled', 'none');
SELECT sweeper.unregister('spelled');
DROP TABLE spelled;
DROP FUNCTION refuse;
-- heartbeats: what memory knows counts, until the application says otherwise
CREATE TABLE beaten (id int PRIMARY KEY, ttl interval, d timestamptz);
CREATE INDEX ON beaten (d);
SELECT FROM sweeper.register('beaten', deadline => 'd', ttl => '1 h', ttl_column => 'ttl', heartbeats => true, check_every => '0', start => 'now', fuse_fraction => 1);
INSERT INTO beaten VALUES (1, NULL, now() + '10 min'::interval), (2, '20 s', now() + '2 s'::interval), (3, NULL, now() + '10 min'::interval), (4, NULL, now() - '1 min'::interval);
SELECT id, sweeper.touch('beaten', id) FROM beaten WHERE id < 4;
UPDATE beaten SET d = now() - '1 min'::interval WHERE id = 3;
DO $$ BEGIN WHILE clock_timestamp() <= (SELECT d FROM beaten WHERE id = 2) LOOP PERFORM pg_sleep(0.05); END LOOP; END $$;
SELECT id, deadline = d AS is_of_row, last_heartbeat BETWEEN now() - '1 min'::interval AND now() AS heard_of, verdict, reason
FROM beaten, sweeper.explain_row('beaten', id::text) ORDER BY id;
SELECT id, sweeper.is_live('beaten', id::text) FROM beaten ORDER BY id;
CALL sweeper.sweep('beaten') \gset
SELECT key, last_seen BETWEEN now() - '1 min'::interval AND now() AS heard_of FROM sweeper.cleanup_event WHERE policy = 'beaten' ORDER BY key;
SELECT FROM sweeper.unregister('beaten');
DROP TABLE beaten;
-- a policy that does not fit its table any more: every place says so, and what to do
CREATE FUNCTION comes_to(name text, wanted text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE s text;
BEGIN
    FOR i IN 1 .. 600 LOOP
        SELECT state INTO s FROM sweeper.policy_status WHERE policy = name;
        EXIT WHEN s = wanted;
        PERFORM pg_sleep(0.05);
    END LOOP;
    RETURN s;
END $$;
CREATE TABLE misfit (id int PRIMARY KEY, d timestamptz);
CREATE INDEX ON misfit (d);
INSERT INTO misfit VALUES (1, now() + '1 h'::interval);
SELECT FROM sweeper.register('misfit', deadline => 'd', check_every => '1 h');
DO $$ BEGIN
    FOR i IN 1 .. 600 LOOP
        EXIT WHEN (SELECT last_look IS NOT NULL FROM sweeper.policy_status WHERE policy = 'misfit');
        PERFORM pg_sleep(0.05);
    END LOOP;
END $$;
ALTER TABLE misfit ALTER d TYPE timestamp;
SELECT comes_to('misfit', 'broken');
SELECT verdict, reason, hint FROM sweeper.explain_row('misfit', '1');
SELECT brakes, reason, next_step FROM sweeper.policy_status WHERE policy = 'misfit';
SELECT problem, next_step FROM sweeper.problem WHERE policy = 'misfit';
SELECT value FROM sweeper.metrics WHERE family = 'session_sweeper_brake' AND labels @> '{"policy": "misfit", "brake": "broken"}';
ALTER TABLE misfit ALTER d TYPE float8 USING 1;
SELECT next_step FROM sweeper.policy_status WHERE policy = 'misfit';
ALTER TABLE misfit ALTER d TYPE text;
SELECT next_step FROM sweeper.policy_status WHERE policy = 'misfit';
ALTER TABLE misfit ALTER d TYPE timestamp USING now() + '1 day';
SELECT sweeper.alter_policy('misfit', timezone => 'UTC');
SELECT comes_to('misfit', 'waiting');
SELECT sweeper.unregister('misfit');
-- nor does it try again in vain for ever without a word of what it names
CREATE FUNCTION fits(int) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT true';
ALTER TABLE misfit ALTER d TYPE timestamptz USING now();
SELECT FROM sweeper.register('misfit', deadline => 'd', filter => 'fits(id)', check_every => '1 s', start => 'paused');
DROP FUNCTION fits;
SELECT sweeper.resume('misfit');
SELECT comes_to('misfit', 'failing');
SELECT next_step FROM sweeper.policy_status WHERE policy = 'misfit';
SELECT next_step FROM sweeper.problem WHERE policy = 'misfit';
SELECT sweeper.unregister('misfit');
DROP TABLE misfit;
DROP FUNCTION comes_to;
-- a partitioned table is not counted as one of its leaves: eight of nine are shown
CREATE TABLE wide (id int, d timestamptz) PARTITION BY LIST (id);
CREATE INDEX ON wide (d);
SELECT format('CREATE TABLE wide_%1$s PARTITION OF wide FOR VALUES IN (%1$s)', i) FROM generate_series(1, 9) AS i \gexec
SELECT FROM sweeper.register('wide', deadline => 'd', start => 'paused');
SELECT count(*) FILTER (WHERE l LIKE '-- %: delete%') AS shown, max(l) FILTER (WHERE l LIKE '-- and %') AS others FROM sweeper.explain_sweep('wide') AS l;
SELECT sweeper.unregister('wide');
DROP TABLE wide;
