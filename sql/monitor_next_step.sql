-- The next_step of each broken or held policy, pasted as it is: afterwards a pass goes through, or nothing is registered, or it shows what to correct.
SET client_min_messages = warning;
CREATE ROLE regress_hooker;
CREATE ROLE regress_heir;
GRANT CREATE ON SCHEMA public TO regress_hooker, regress_heir;
CREATE TABLE model (id int PRIMARY KEY, d timestamptz, "Other" int DEFAULT 1, gone boolean DEFAULT true);
SELECT format('CREATE TABLE %I (LIKE model INCLUDING ALL); INSERT INTO %1$I SELECT i, now() - interval %L FROM generate_series(1, 3) AS i', t, '1 h')
FROM unnest('{hook,no_hook,made_again,vital_hook,asked,owned,renamed,quoted,twice,lost_filter,lost_set,lost_deadline,lost_group,lost_capture,dropped}'::text[]) AS t \gexec
CREATE FUNCTION step(text[]) RETURNS void LANGUAGE sql AS 'SELECT';
CREATE FUNCTION step2(text[]) RETURNS void LANGUAGE sql AS 'SELECT';
CREATE FUNCTION step3(text[]) RETURNS void LANGUAGE sql AS 'SELECT';
CREATE FUNCTION step4(text[]) RETURNS void LANGUAGE sql AS 'SELECT';
CREATE FUNCTION alive(text) RETURNS boolean LANGUAGE sql AS 'SELECT false';
ALTER TABLE hook OWNER TO regress_hooker;
ALTER FUNCTION step OWNER TO regress_hooker;
ALTER TABLE owned OWNER TO regress_hooker;
SELECT FROM sweeper.register('hook', deadline => 'd', on_expire => 'step(text[])', check_every => '0', start => 'now');
SELECT FROM sweeper.register('no_hook', deadline => 'd', on_expire => 'step2(text[])', check_every => '0', start => 'now');
SELECT FROM sweeper.register('made_again', deadline => 'd', on_expire => 'step4(text[])', check_every => '0', start => 'now');
SELECT FROM sweeper.register('vital_hook', deadline => 'd', action => 'call', on_expire => 'step3(text[])', check_every => '0', start => 'now');
SELECT FROM sweeper.register('asked', deadline => 'd', ttl => '1 h', is_alive => 'alive(text)', check_every => '0', start => 'now');
SELECT FROM sweeper.register('owned', deadline => 'd', check_every => '0', start => 'now');
SELECT FROM sweeper.register('renamed', deadline => 'd', filter => 'gone AND t.id > 0 AND ''gone'' <> ''''', check_every => '0', start => 'now');
SELECT FROM sweeper.register('quoted', deadline => 'd', action => 'update', set_clause => $$d = 'infinity', "Other" = "Other" + 1$$, check_every => '0', start => 'now');
SELECT FROM sweeper.register('twice', deadline => $$d + interval '1 s'$$, filter => 'gone AND d IS NOT NULL', group_by => '"Other"', check_every => '0', start => 'now');
SELECT FROM sweeper.register('lost_filter', deadline => 'd', filter => 'gone', check_every => '0', start => 'now');
SELECT FROM sweeper.register('lost_set', deadline => 'd', action => 'update', set_clause => $$d = 'infinity', gone = false$$, check_every => '0', start => 'now');
SELECT FROM sweeper.register('lost_deadline', deadline => 'd', check_every => '0', start => 'now');
SELECT FROM sweeper.register('lost_group', deadline => 'd', group_by => 'gone', check_every => '0', start => 'now');
SELECT FROM sweeper.register('lost_capture', deadline => 'd', capture => '{gone}', check_every => '0', start => 'now');
SELECT FROM sweeper.register('dropped', deadline => 'd', check_every => '0', start => 'now');
ALTER FUNCTION step OWNER TO regress_heir;
DROP FUNCTION step2;
DROP FUNCTION step3;
DROP FUNCTION step4;
CREATE FUNCTION step4(text[]) RETURNS void LANGUAGE sql AS 'SELECT';
DROP FUNCTION alive;
ALTER TABLE owned OWNER TO regress_heir;
ALTER TABLE renamed RENAME gone TO "Gone";
ALTER TABLE quoted RENAME "Other" TO another;
ALTER TABLE twice RENAME d TO due;
ALTER TABLE twice RENAME gone TO over;
ALTER TABLE twice DROP COLUMN "Other";
ALTER TABLE lost_filter DROP COLUMN gone;
ALTER TABLE lost_set DROP COLUMN gone;
ALTER TABLE lost_deadline DROP COLUMN d;
ALTER TABLE lost_group DROP COLUMN gone;
ALTER TABLE lost_capture DROP COLUMN gone;
DROP TABLE dropped;
-- who asks for a pass waits until the coordinator has seen it
\set ON_ERROR_STOP off
\set VERBOSITY terse
\o /dev/null
SELECT format('CALL sweeper.sweep(%L, pass => NULL)', policy) FROM sweeper.policy WHERE policy NOT LIKE 'sweeper.%' ORDER BY policy \gexec
\o
SELECT policy, problem, detail FROM sweeper.problem ORDER BY policy;
-- since the coordinator first saw it
SELECT policy, problem FROM sweeper.problem WHERE since IS NULL OR since NOT BETWEEN now() - interval '1 h' AND now();
SELECT policy, next_step FROM sweeper.problem ORDER BY policy;
SELECT p.policy FROM sweeper.problem AS p JOIN sweeper.policy_status AS s USING (policy) WHERE s.next_step IS DISTINCT FROM p.next_step;
-- one state wherever it is read, also where a brake is lifted and the coordinator does not know of it yet
SELECT state, problem, s.reason = p.detail AS same FROM sweeper.policy_status AS s JOIN sweeper.problem AS p USING (policy) WHERE policy = 'owned';
BEGIN;
SELECT sweeper.resume('owned');
SELECT s.state, s.reason, s.brakes, p.problem, v.state AS previewed FROM sweeper.policy_status AS s LEFT JOIN sweeper.problem AS p USING (policy), sweeper.preview('owned') AS v WHERE s.policy = 'owned';
ROLLBACK;
-- and no operator of another role runs
\set ECHO none
\i test/trap_operators.sql
\set ECHO all
SET search_path = public, trap;
SELECT 1::oid = 1;
SELECT next_step FROM sweeper.problem WHERE policy <> 'owned' ORDER BY policy \gexec
SELECT sweeper._lock_query('renamed') \gexec
RESET search_path;
DROP SCHEMA trap CASCADE;
SELECT policy, problem, detail FROM sweeper.problem ORDER BY policy;
-- expressions are corrected by hand; and somebody decides that a function of another role may run as the owner, and that the new one takes the policy
ALTER FUNCTION step OWNER TO regress_hooker;
SELECT sweeper.resume('hook'), sweeper.resume('owned');
SELECT sweeper.alter_policy('renamed', filter => '"Gone" AND t.id > 0'), sweeper.alter_policy('quoted', set_clause => $$d = 'infinity', another = another + 1$$),
    sweeper.alter_policy('twice', deadline => $$due + interval '1 s'$$, filter => 'over AND due IS NOT NULL', reset => '{group_by}'),
    sweeper.alter_policy('lost_capture', reset => '{capture}'), sweeper.alter_policy('lost_group', reset => '{group_by}');
\o /dev/null
SELECT format('CALL sweeper.sweep(%L, pass => NULL)', policy) FROM sweeper.policy WHERE policy NOT LIKE 'sweeper.%' ORDER BY policy \gexec
\o
SELECT policy, expired FROM sweeper.pass WHERE policy_id IN (SELECT policy_id FROM sweeper.policy WHERE policy NOT LIKE 'sweeper.%') AND status = 'done' ORDER BY policy;
SELECT policy, filter, set_clause, deadline FROM sweeper.policy WHERE policy NOT LIKE 'sweeper.%' AND (filter IS NOT NULL OR set_clause IS NOT NULL) ORDER BY policy;
SELECT sweeper.unregister(policy) FROM sweeper.policy WHERE policy NOT LIKE 'sweeper.%';
DROP TABLE model, hook, no_hook, made_again, vital_hook, asked, owned, renamed, quoted, twice, lost_filter, lost_set, lost_deadline, lost_group, lost_capture;
DROP OWNED BY regress_hooker, regress_heir CASCADE;
DROP ROLE regress_hooker, regress_heir;
