-- Errors that pass by themselves: a few are tried again, and when all rows have them the policy backs off.
SET client_min_messages = warning;
CREATE TABLE remote (id int PRIMARY KEY, d timestamptz);
CREATE INDEX ON remote (d);
CREATE SEQUENCE tries;
CREATE FUNCTION call_remote() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM nextval('tries');
    IF OLD.id > 0 THEN RAISE EXCEPTION 'remote is down' USING ERRCODE = '08001'; END IF;
    RETURN OLD; END $$;
CREATE TRIGGER call_remote BEFORE DELETE ON remote FOR EACH ROW EXECUTE FUNCTION call_remote();
INSERT INTO remote SELECT i, now() - interval '1 h' FROM generate_series(1, 5000) AS i;
SELECT FROM sweeper.register('remote', deadline => 'd', check_every => '0', start => 'now', fuse_fraction => 1);
CALL sweeper.sweep('remote') \gset
SELECT count(*), (SELECT count(*) FROM sweeper.failed_row) AS failed, (SELECT last_value < 200 FROM tries) AS few_tries FROM remote;
SELECT brakes, reason FROM sweeper.policy_status WHERE policy = 'remote';
SELECT problem, detail, next_step FROM sweeper.problem;
-- the same, one row a batch
SELECT sweeper.resume('remote'), sweeper.alter_policy('remote', batch_size => 1);
CALL sweeper.sweep('remote') \gset
SELECT count(*), (SELECT count(*) FROM sweeper.failed_row) AS failed, (SELECT last_value < 400 FROM tries) AS few_tries FROM remote;
SELECT brakes, reason FROM sweeper.policy_status WHERE policy = 'remote';
-- a few among good rows: tried again, never quarantined, and no brake
SELECT sweeper.resume('remote'), sweeper.alter_policy('remote', max_retries => 0, reset => '{batch_size}');
UPDATE remote SET id = -id WHERE id > 20;
CALL sweeper.sweep('remote', pass => NULL) \gset
SELECT count(*), min(id), max(id) FROM remote;
SELECT class, state, sqlstate, count(*) FROM sweeper.failed_row GROUP BY 1, 2, 3;
SELECT brakes, reason, next_step, lag BETWEEN interval '1 h' AND interval '2 h' AS late, now() - next_due = lag AS since_due,
       now() - oldest_deadline = lag AS of_deadline, backlog
FROM sweeper.policy_status WHERE policy = 'remote';
SELECT problem FROM sweeper.problem;
-- in time it is a problem
UPDATE sweeper.failed_row SET first_at = now() - interval '2 min';
SELECT severity, policy, problem, since < now() - interval '1 min' AS for_long, detail, next_step FROM sweeper.problem;
-- the disk is full, which others that have gone do not make the row's fault
CREATE OR REPLACE FUNCTION call_remote() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF OLD.id > 0 THEN RAISE EXCEPTION 'could not extend file' USING ERRCODE = 'disk_full'; END IF;
    RETURN OLD; END $$;
INSERT INTO remote SELECT -i, now() - interval '2 h' FROM generate_series(1, 50) AS i;
UPDATE sweeper.failed_row SET next_attempt = now();
CALL sweeper.sweep('remote', pass => NULL) \gset
SELECT count(*), min(id) FROM remote;
SELECT class, state, sqlstate, count(*) FROM sweeper.failed_row GROUP BY 1, 2, 3;
-- it is over when they go
UPDATE sweeper.failed_row SET next_attempt = now();
UPDATE remote SET id = -id;
CALL sweeper.sweep('remote', pass => NULL) \gset
SELECT count(*) FROM remote;
SELECT lag, next_due, backlog FROM sweeper.policy_status WHERE policy = 'remote';
SELECT * FROM sweeper.problem;
SELECT sweeper.unregister('remote');
-- nobody answers whether rows live
CREATE FUNCTION ask_remote(key text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
    RAISE EXCEPTION 'remote is down' USING ERRCODE = '08001'; END $$;
INSERT INTO remote SELECT i, now() - interval '1 h' FROM generate_series(1, 50) AS i;
SELECT FROM sweeper.register('remote', deadline => 'd', ttl => '1 min', is_alive => 'ask_remote(text)', check_every => '0', start => 'now', max_retries => 0, fuse_fraction => 1);
CALL sweeper.sweep('remote') \gset
SELECT count(*), (SELECT count(*) FROM sweeper.failed_row) AS failed FROM remote;
SELECT brakes, reason FROM sweeper.policy_status WHERE policy = 'remote';
SELECT sweeper.unregister('remote');
DROP TABLE remote;
DROP SEQUENCE tries;
DROP FUNCTION call_remote, ask_remote;
