-- A table that was dropped and made anew, as a restore over the original does, is held until somebody resumes it.
SET client_min_messages = warning;
CREATE ROLE regress_other;
CREATE TABLE anew (id int PRIMARY KEY, d timestamptz);
CREATE FUNCTION before_end(text[]) RETURNS void LANGUAGE sql AS 'SELECT';
SELECT FROM sweeper.register('anew', deadline => 'd', on_expire => 'before_end(text[])', capture => '{id}', check_every => '0', start => 'now');
\set VERBOSITY terse
BEGIN;
DROP TABLE anew;
DROP FUNCTION before_end;
CREATE FUNCTION before_end(text[]) RETURNS void LANGUAGE sql AS 'SELECT';
CREATE TABLE anew (d timestamptz, id int PRIMARY KEY);
COMMIT;
INSERT INTO anew SELECT now() - interval '1 h', i FROM generate_series(1, 3) AS i;
-- when another policy has been looked at, the coordinator has seen it
CALL sweeper.sweep('sweeper.pass', pass => NULL) \gset
SELECT policy, problem, detail, next_step FROM sweeper.problem;
CALL sweeper.sweep('anew') \gset
SELECT state, reason, next_step FROM sweeper.policy_status WHERE policy = 'anew';
SELECT verdict, reason, hint FROM sweeper.explain_row('anew', '1');
SELECT sweeper.expire('anew', '{1}', 'by hand');
SELECT * FROM sweeper.preview('anew');
SELECT sweeper.pause('anew');
SELECT state, next_step FROM sweeper.policy_status WHERE policy = 'anew';
SELECT count(*) FROM anew;
SELECT sweeper.resume('anew');
CALL sweeper.sweep('anew', pass => NULL) \gset
SELECT * FROM sweeper.problem;
SELECT count(*) FROM anew;
SELECT key, metadata FROM sweeper.cleanup_event WHERE policy = 'anew' ORDER BY key;
SELECT relid = 'anew'::regclass AS bound, on_expire = 'before_end(text[])'::regprocedure AS hook_bound FROM sweeper.policy WHERE policy = 'anew';
-- one of somebody else's is another table
BEGIN;
DROP TABLE anew;
CREATE TABLE anew (id int PRIMARY KEY, d timestamptz);
ALTER TABLE anew OWNER TO regress_other;
COMMIT;
CALL sweeper.sweep('anew') \gset
SELECT policy, problem, detail, next_step FROM sweeper.problem;
SELECT sweeper.unregister('anew');
DROP TABLE anew;
DROP FUNCTION before_end;
DROP ROLE regress_other;
