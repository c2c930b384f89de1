-- A table changes hands: the code of its policy never runs as the new owner before that owner agrees.
SET client_min_messages = warning;
CREATE ROLE regress_giver;
CREATE ROLE regress_taker;
CREATE ROLE regress_warden;
GRANT CREATE ON SCHEMA public TO regress_giver, regress_taker;
SELECT sweeper.grant_access('regress_giver', 'user');
SELECT sweeper.grant_access('regress_taker', 'user');
SELECT sweeper.grant_access('regress_warden', 'admin');
SET ROLE regress_giver;
CREATE TABLE ran (who text);
GRANT INSERT ON ran TO regress_taker;
CREATE FUNCTION spy(int) RETURNS boolean LANGUAGE plpgsql STABLE AS $$ BEGIN
    IF current_user <> 'regress_giver' THEN RAISE EXCEPTION 'spy ran as %', current_user; END IF; RETURN true; END $$;
CREATE TABLE bait (id int PRIMARY KEY, d timestamptz);
INSERT INTO bait VALUES (1, now() - '1 min'::interval);
SELECT state FROM sweeper.register('bait', deadline => 'd', filter => 'spy(id)', check_every => '0');
-- a trigger of the giver's that resumes it in a worker, whose session is a superuser's
CREATE FUNCTION resume_bait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM sweeper.resume('bait'); RETURN OLD; END $$;
CREATE TABLE vehicle (id int PRIMARY KEY, d timestamptz);
INSERT INTO vehicle VALUES (1, now() - '1 min'::interval);
CREATE TRIGGER t BEFORE DELETE ON vehicle FOR EACH ROW EXECUTE FUNCTION resume_bait();
SELECT state FROM sweeper.register('vehicle', deadline => 'd', check_every => '0');
RESET ROLE;
ALTER TABLE bait OWNER TO regress_taker;
-- both of them see that it is held, and what the new owner can do; others do not
SET ROLE regress_taker;
SELECT policy, state, reason, next_step FROM sweeper.policy_status WHERE policy NOT LIKE 'sweeper.%';
SELECT policy, problem, next_step FROM sweeper.problem;
SELECT verdict, hint FROM sweeper.explain_row('bait', '1');
SET ROLE regress_giver;
SELECT policy, problem, detail, next_step FROM sweeper.problem;
RESET ROLE;
CREATE ROLE regress_third;
SELECT sweeper.grant_access('regress_third', 'user');
SET ROLE regress_third;
SELECT count(*) FROM sweeper.problem;
SELECT count(*) FROM sweeper.policy_status;
RESET ROLE;
SELECT sweeper.revoke_access('regress_third');
DROP ROLE regress_third;
SET ROLE regress_giver;
SELECT sweeper.preview('bait');
SELECT * FROM sweeper.explain_sweep('bait');
SELECT verdict FROM sweeper.explain_row('bait', '1');
SELECT sweeper.alter_policy('bait', filter => 'true');
SELECT sweeper.resume('bait');
CALL sweeper.sweep('vehicle') \gset
SELECT count(*) FROM vehicle;
RESET ROLE;
-- nor is the rights of the session's user enough
SET ROLE regress_warden;
SELECT sweeper.resume('bait');
SELECT sweeper.resume_all();
RESET ROLE;
SELECT owner_name FROM sweeper.policy WHERE policy = 'bait';
SELECT count(*) FROM bait;
-- another session: this one has run code of other owners
\c -
SET client_min_messages = warning;
-- the new owner agrees; then it is the new owner's affair
SET ROLE regress_taker;
SELECT sweeper.resume('bait');
SELECT sweeper.preview('bait');
RESET ROLE;
-- a restored policy: its oids mean nothing, and neither an admin nor its role of that number may bind it to another role's table
ALTER FUNCTION spy(int) OWNER TO regress_taker;
CREATE OR REPLACE FUNCTION spy(int) RETURNS boolean LANGUAGE sql STABLE AS 'SELECT true';
UPDATE sweeper.policy SET system_identifier = 1, owner = 'regress_giver'::regrole, owner_name = 'regress_lost', relid = 'vehicle'::regclass, held_reason = 'backlog' WHERE policy = 'bait';
SET ROLE regress_giver;
SELECT count(*) FROM sweeper.policy WHERE policy = 'bait';
SELECT count(*) FROM sweeper.cleanup_event WHERE policy = 'bait';
SELECT sweeper.preview('bait');
SELECT sweeper.unregister('bait');
SELECT sweeper.resume('bait');
SET ROLE regress_warden;
SELECT sweeper.preview('bait');
SELECT sweeper.resume('bait');
SELECT sweeper.resume_all();
SET ROLE regress_taker;
SELECT sweeper.resume('bait');
CALL sweeper.sweep('bait') \gset
SELECT count(*) FROM bait;
RESET ROLE;
SELECT relid::regclass, owner_name, held_reason FROM sweeper.policy WHERE policy = 'bait';
-- a renamed table keeps its policy; what a dump finds under the old name is somebody else's
SET ROLE regress_giver;
CREATE TABLE plain (id int PRIMARY KEY, d timestamptz);
SELECT policy FROM sweeper.register('plain', deadline => 'd', check_every => '50 ms');
ALTER TABLE plain RENAME TO "Renamed";
RESET ROLE;
DO $$ BEGIN
    FOR i IN 1 .. 1000 LOOP
        EXIT WHEN (SELECT relation = 'public."Renamed"' FROM sweeper.policy WHERE policy = 'plain');
        PERFORM pg_sleep(0.02);
    END LOOP;
END $$;
SELECT relation, owner_name FROM sweeper.policy WHERE policy = 'plain';
CREATE TABLE plain (id int PRIMARY KEY, d timestamptz);
UPDATE sweeper.policy SET system_identifier = 1, relation = 'public.plain' WHERE policy = 'plain';
SET ROLE regress_giver;
SELECT sweeper.resume('plain');
RESET ROLE;
DROP TABLE plain;
SELECT sweeper.unregister(policy) FROM sweeper.policy WHERE policy NOT LIKE 'sweeper.%';
SELECT sweeper.revoke_access(r::regrole) FROM unnest('{regress_giver,regress_taker,regress_warden}'::text[]) AS r;
DROP OWNED BY regress_giver, regress_taker, regress_warden CASCADE;
DROP ROLE regress_giver, regress_taker, regress_warden;
-- columns that swap names: a plain field follows, an expression would mean another column
CREATE TABLE swap (id int PRIMARY KEY, d timestamptz, a boolean DEFAULT false, b boolean DEFAULT true, other int);
INSERT INTO swap SELECT i, now() - '1 min'::interval FROM generate_series(1, 5) AS i;
SELECT FROM sweeper.register('swap', deadline => 'd', filter => 'a IS TRUE', check_every => '0', start => 'now');
BEGIN;
ALTER TABLE swap RENAME other TO another;
ALTER TABLE swap RENAME d TO due;
COMMIT;
CALL sweeper.sweep('swap', pass => NULL) \gset
BEGIN;
ALTER TABLE swap RENAME a TO tmp;
ALTER TABLE swap RENAME b TO a;
ALTER TABLE swap RENAME tmp TO b;
COMMIT;
CALL sweeper.sweep('swap') \gset
SELECT count(*) FROM swap;
SELECT verdict, reason FROM sweeper.explain_row('swap', '1');
SELECT sweeper.expire('swap', '{1}', 'by hand');
SELECT next_step FROM sweeper.problem WHERE policy = 'swap';
SELECT sweeper.alter_policy('swap', filter => 'b');
CALL sweeper.sweep('swap', pass => NULL) \gset
SELECT count(*) FROM swap;
-- a filter that is only a column is followed, too
ALTER TABLE swap RENAME b TO c;
CALL sweeper.sweep('swap', pass => NULL) \gset
SELECT count(*) FROM swap;
SELECT sweeper.alter_policy('swap', filter => 'a');
CALL sweeper.sweep('swap', pass => NULL) \gset
SELECT count(*) FROM swap;
SELECT sweeper.unregister('swap');
DROP TABLE swap;
-- a table with partitions changes hands as a whole: that alone is told, and the whole can be looked at before it is agreed to
CREATE ROLE regress_heir;
CREATE ROLE regress_second;
GRANT ALL ON SCHEMA public TO regress_heir;
CREATE TABLE estate (id int PRIMARY KEY, d timestamptz) PARTITION BY RANGE (id);
CREATE TABLE estate_1 PARTITION OF estate FOR VALUES FROM (0) TO (10);
CREATE INDEX ON estate (d);
INSERT INTO estate VALUES (1, now() + '1 h'::interval);
SELECT policy FROM sweeper.register('estate', deadline => 'd', check_every => '1 h', start => 'paused');
BEGIN;
ALTER TABLE estate OWNER TO regress_heir;
ALTER TABLE estate_1 OWNER TO regress_heir;
COMMIT;
SELECT sweeper.resume('estate');
BEGIN;
ALTER TABLE estate OWNER TO regress_second;
ALTER TABLE estate_1 OWNER TO regress_second;
COMMIT;
DO $$ BEGIN
    FOR i IN 1 .. 600 LOOP
        EXIT WHEN (SELECT state = 'held' FROM sweeper.policy_status WHERE policy = 'estate');
        PERFORM pg_sleep(0.05);
    END LOOP;
END $$;
SELECT problem FROM sweeper.problem WHERE policy = 'estate';
SELECT state, brakes FROM sweeper.policy_status WHERE policy = 'estate';
SELECT dead_estimate FROM sweeper.preview('estate');
BEGIN;
SELECT sweeper.resume('estate');
SELECT dead_estimate FROM sweeper.preview('estate');
ROLLBACK;
SELECT state FROM sweeper.policy_status WHERE policy = 'estate';
SELECT sweeper.unregister('estate');
DROP TABLE estate;
DROP OWNED BY regress_heir, regress_second;
DROP ROLE regress_heir, regress_second;
-- another session: this one has run code of other owners
\c -
SET client_min_messages = warning;
-- a superuser has the table now: code that another role defined never runs as that one, whoever asks, restored or not
CREATE ROLE regress_mallory;
GRANT CREATE ON SCHEMA public TO regress_mallory;
SELECT sweeper.grant_access('regress_mallory', 'user');
SET ROLE regress_mallory;
CREATE TABLE trojan (id int PRIMARY KEY, d timestamptz);
INSERT INTO trojan VALUES (1, now() - '1 min'::interval);
CREATE FUNCTION horse() RETURNS text LANGUAGE plpgsql AS $$ BEGIN IF current_user <> 'regress_mallory' THEN RAISE EXCEPTION 'ran as %', current_user; END IF; RETURN ''; END $$;
CREATE FUNCTION horse_filter(int) RETURNS boolean STABLE LANGUAGE plpgsql AS $$ BEGIN RETURN horse() = ''; END $$;
CREATE FUNCTION horse_alive(text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RETURN horse() = 'x'; END $$;
CREATE FUNCTION horse_end(text[]) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM horse(); END $$;
CREATE FUNCTION horse_trigger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM horse(); RETURN OLD; END $$;
CREATE TRIGGER "the trigger" BEFORE DELETE ON trojan FOR EACH ROW EXECUTE FUNCTION horse_trigger();
SELECT FROM sweeper.register('trojan', deadline => 'd', ttl => '1 h', filter => 'horse_filter(id)', is_alive => 'horse_alive(text)', on_expire => 'horse_end(text[])', check_every => '1 h', start => 'paused');
RESET ROLE;
ALTER TABLE trojan OWNER TO CURRENT_USER;
\set SHOW_CONTEXT never
SELECT sweeper.resume('trojan');
SET client_min_messages = warning;
SELECT sweeper.alter_policy('trojan', filter => 'true');
SELECT sweeper.expire('trojan', '{1}', 'by hand');
SELECT dead_estimate FROM sweeper.preview('trojan');
SELECT verdict, hint FROM sweeper.explain_row('trojan', '1');
UPDATE sweeper.policy SET system_identifier = 1, held_reason = 'restored' WHERE policy = 'trojan';
SELECT sweeper.resume('trojan');
SELECT next_step FROM sweeper.problem WHERE policy = 'trojan';
SELECT next_step FROM sweeper.problem WHERE policy = 'trojan' \gexec
SELECT count(*) FROM trojan;
DROP TABLE trojan;
SELECT sweeper.revoke_access('regress_mallory');
DROP OWNED BY regress_mallory;
DROP ROLE regress_mallory;
-- a role that has lost a table has no say any more, nor have roles that it gave access
SET client_min_messages = warning;
CREATE ROLE regress_before;
CREATE ROLE regress_after;
CREATE ROLE regress_friend;
SELECT sweeper.grant_access(r, 'user') FROM unnest('{regress_before,regress_after}'::regrole[]) AS r;
GRANT USAGE ON SCHEMA sweeper TO regress_friend;
GRANT CREATE ON SCHEMA public TO regress_before;
CREATE TABLE estate (id int PRIMARY KEY, d timestamptz);
ALTER TABLE estate OWNER TO regress_before;
SET ROLE regress_before;
SELECT state FROM sweeper.register('estate', deadline => 'd', check_every => '0');
SELECT sweeper.grant_access('regress_friend', 'user', policy => 'estate');
-- any role can make something that depends on what stands for the policy
DO $$ BEGIN EXECUTE format('CREATE FUNCTION veto() RETURNS void BEGIN ATOMIC SELECT sweeper._user_of_policy_%s(); END', (SELECT policy_id FROM sweeper.policy WHERE policy = 'estate')); END $$;
RESET ROLE;
ALTER TABLE estate OWNER TO regress_after;
INSERT INTO estate VALUES (1, 'infinity');
SET ROLE regress_before;
\set VERBOSITY terse
SELECT sweeper.grant_access('regress_before', 'user', policy => 'estate');
SELECT sweeper.alter_policy('estate', fuse_fraction => 1);
SELECT sweeper.pause('estate');
SELECT sweeper.expire('estate', '{1}');
SELECT sweeper.unregister('estate');
RESET ROLE;
SET ROLE regress_after;
SELECT sweeper.resume('estate');
RESET ROLE;
SET ROLE regress_friend;
SELECT sweeper.expire('estate', '{1}');
RESET ROLE;
SELECT count(*) FROM estate;
-- whom a restored schema has given access to a policy of that number
SELECT policy_id AS estate FROM sweeper.policy WHERE policy = 'estate' \gset
SELECT sweeper.unregister('estate');
SELECT sweeper._set_access('regress_friend'::regrole::oid, '_user_of_policy_' || :estate + 1, true);
SELECT state FROM sweeper.register('estate', deadline => 'd', check_every => '0');
SET ROLE regress_friend;
SELECT sweeper.expire('estate', '{1}');
RESET ROLE;
\set VERBOSITY default
SELECT policy_id = :estate + 1 AS next FROM sweeper.policy WHERE policy = 'estate';
SELECT sweeper.unregister('estate');
DROP TABLE estate;
-- restored, with another owner
CREATE TABLE heirloom (id int PRIMARY KEY, d timestamptz);
INSERT INTO heirloom VALUES (1, 'infinity');
ALTER TABLE heirloom OWNER TO regress_before;
SELECT state FROM sweeper.register('heirloom', deadline => 'd', check_every => '0');
SELECT sweeper.grant_access('regress_friend', 'user', policy => 'heirloom');
ALTER TABLE heirloom OWNER TO regress_after;
UPDATE sweeper.policy SET system_identifier = 1 WHERE policy = 'heirloom';
SELECT sweeper.resume('heirloom');
SET ROLE regress_friend;
SELECT sweeper.expire('heirloom', '{1}');
RESET ROLE;
SELECT sweeper.unregister('heirloom');
DROP TABLE heirloom;
SELECT sweeper.revoke_access(r) FROM unnest('{regress_before,regress_after}'::regrole[]) AS r;
SELECT sweeper.revoke_access('regress_friend');
REVOKE USAGE ON SCHEMA sweeper FROM regress_friend;
DROP OWNED BY regress_before, regress_after, regress_friend CASCADE;
DROP ROLE regress_before, regress_after, regress_friend;
