-- A table that becomes the target of a subscription is the publisher's to sweep.
SET client_min_messages = error;
CREATE SUBSCRIPTION regress_sub CONNECTION 'dbname=nowhere' PUBLICATION p WITH (connect = false);
RESET client_min_messages;
\set VERBOSITY terse
CREATE TABLE copied (id int PRIMARY KEY, d timestamptz);
CREATE TABLE parts (n int, d timestamptz) PARTITION BY LIST (n);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES IN (1);
CREATE TABLE parts_2 (n int, d timestamptz);
SELECT FROM sweeper.register('copied', deadline => 'd', check_every => '0', start => 'now');
SELECT FROM sweeper.register('parts', deadline => 'd', check_every => '0', start => 'now');
INSERT INTO copied VALUES (1, now() - interval '1 h');
CALL sweeper.sweep('copied', pass => NULL) \gset
SELECT count(*) FROM copied;
INSERT INTO copied VALUES (1, now() - interval '1 h');
INSERT INTO parts_2 VALUES (2, now() - interval '1 h');
INSERT INTO pg_subscription_rel SELECT oid, unnest('{copied,parts_2}'::regclass[]), 'r', NULL FROM pg_subscription;
CALL sweeper.sweep('copied') \gset
CALL sweeper.sweep('parts', pass => NULL) \gset
ALTER TABLE parts ATTACH PARTITION parts_2 FOR VALUES IN (2);
CALL sweeper.sweep('parts') \gset
SELECT (SELECT count(*) FROM copied) AS copied, (SELECT count(*) FROM parts) AS parts;
SELECT policy, problem, detail, next_step FROM sweeper.problem ORDER BY policy;
SELECT policy, state, reason, next_step FROM sweeper.policy_status WHERE policy IN ('copied', 'parts') ORDER BY policy;
SELECT verdict, reason, hint FROM sweeper.explain_row('copied', '1');
SELECT sweeper.expire('copied', '{1}', 'by hand');
-- until it is none any more, or somebody allows it
DELETE FROM pg_subscription_rel WHERE srrelid = 'parts_2'::regclass;
SELECT next_step FROM sweeper.problem WHERE policy = 'copied' \gexec
CALL sweeper.sweep('copied', pass => NULL) \gset
CALL sweeper.sweep('parts', pass => NULL) \gset
SELECT (SELECT count(*) FROM copied) AS copied, (SELECT count(*) FROM parts) AS parts;
SELECT * FROM sweeper.problem;
SELECT sweeper.unregister('copied'), sweeper.unregister('parts');
DROP TABLE copied, parts;
DELETE FROM pg_subscription_rel;
ALTER SUBSCRIPTION regress_sub SET (slot_name = NONE);
DROP SUBSCRIPTION regress_sub;
-- the extension's own tables can be in a publication of all tables
SELECT c.relname FROM pg_class AS c WHERE c.relnamespace = 'sweeper'::regnamespace AND c.relkind = 'r' AND c.relpersistence = 'p' AND c.relreplident = 'd'
    AND NOT EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.oid AND i.indisprimary);
