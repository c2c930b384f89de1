-- What the caller's session holds does not run as the owner of a table: deferred triggers, temporary objects, compiled
-- functions, cursors.  Whose session it is counts, not the current role.
\set VERBOSITY terse
SET client_min_messages = warning;
CREATE ROLE state_owner;
CREATE ROLE state_caller;
CREATE ROLE state_other;
CREATE SCHEMA state_o AUTHORIZATION state_owner;
CREATE SCHEMA state_c AUTHORIZATION state_caller;
CREATE SCHEMA state_x AUTHORIZATION state_other;
GRANT USAGE ON SCHEMA state_o, state_c, state_x TO PUBLIC;
SELECT sweeper.grant_access(r, 'user') FROM unnest('{state_owner,state_caller,state_other}'::regrole[]) AS r;
-- the caller's code says who runs it
SET ROLE state_caller;
CREATE TABLE state_c.ran (place text, who text);
CREATE TABLE state_c.df (i int);
GRANT ALL ON state_c.ran, state_c.df TO PUBLIC;
CREATE FUNCTION state_c.note(place text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN INSERT INTO state_c.ran VALUES (place, current_user); RETURN true; END $$;
CREATE FUNCTION state_c.requeue() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    PERFORM state_c.note('deferred trigger');
    IF NEW.i < 2 THEN SET CONSTRAINTS ALL DEFERRED; INSERT INTO state_c.df VALUES (NEW.i + 1); END IF;
    RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER requeue AFTER INSERT ON state_c.df DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION state_c.requeue();
CREATE FUNCTION state_c.fired() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM state_c.note('temporary table'); RETURN NEW; END $$;
-- the owner's functions have a search_path of their own, or a filter calls one
SET ROLE state_owner;
CREATE TABLE state_o.audit (id int, who text);
CREATE TABLE state_o.cfg (k int);
INSERT INTO state_o.cfg VALUES (1);
GRANT SELECT ON state_o.cfg TO state_caller;
CREATE TABLE state_o.s (id int PRIMARY KEY, d timestamptz, g int UNIQUE DEFERRABLE INITIALLY DEFERRED);
INSERT INTO state_o.s SELECT i, CASE WHEN i < 5 THEN now() + interval '1 h' END, i FROM generate_series(1, 6) AS i;
CREATE FUNCTION state_o.audited() RETURNS trigger LANGUAGE plpgsql SET search_path = state_o AS $$ BEGIN INSERT INTO audit VALUES (OLD.id, current_user); RETURN OLD; END $$;
CREATE TRIGGER audited AFTER DELETE ON state_o.s FOR EACH ROW EXECUTE FUNCTION state_o.audited();
CREATE FUNCTION state_o.ok(int) RETURNS boolean STABLE LANGUAGE plpgsql AS $$ DECLARE v text; b bool; BEGIN v := 'x'; b := EXISTS (SELECT FROM state_o.cfg WHERE k <= $1); RETURN b; END $$;
SELECT FROM sweeper.register('state_o.s', 'state', deadline => 'd', ttl => '1 h', on_null => 'expire', filter => 'state_o.ok(id)', heartbeats => true, check_every => '0', start => 'now');
SELECT sweeper.grant_access('state_caller', 'user', 'state');

SET SESSION AUTHORIZATION state_caller;
-- functions of the owner whose names this session could have mean something else
SELECT sweeper.expire('state', '{1}');
SELECT sweeper.touch('state', '3');
RESET SESSION AUTHORIZATION;
ALTER FUNCTION state_o.ok(int) SET search_path = state_o, pg_temp;
SET SESSION AUTHORIZATION state_caller;
SELECT sweeper.expire('state', '{1}');
RESET SESSION AUTHORIZATION;
ALTER FUNCTION state_o.audited() SET search_path = state_o, pg_temp;
SET SESSION AUTHORIZATION state_caller;
-- deferred triggers that defer again
BEGIN;
INSERT INTO state_c.df VALUES (1);
SELECT sweeper.expire('state', '{1}');
ROLLBACK;
CREATE FUNCTION state_c.beat() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN INSERT INTO state_c.df VALUES (1); RETURN sweeper.touch('state', '6'); END $$;
SELECT state_c.beat();
-- those that do not are the caller's own affair
BEGIN;
INSERT INTO state_c.df VALUES (4);
SELECT sweeper.expire('state', '{1}');
ROLLBACK;
-- temporary objects come last then; and types of variables are those of that path, though the session has called the function before
CREATE TEMPORARY TABLE audit (id int, who text);
CREATE TRIGGER fired BEFORE INSERT ON audit FOR EACH ROW EXECUTE FUNCTION state_c.fired();
CREATE TEMPORARY VIEW cfg AS SELECT 1 AS k WHERE state_c.note('temporary view');
CREATE DOMAIN state_c.text AS pg_catalog.text CHECK (state_c.note('domain'));
CREATE DOMAIN pg_temp.bool AS pg_catalog.bool CHECK (state_c.note('temporary domain'));
GRANT ALL ON audit, cfg TO PUBLIC;
SET search_path = state_c, pg_catalog;
SELECT state_o.ok(1);
RESET search_path;
SELECT sweeper.expire('state', '{2}'), sweeper.touch('state', '3'), sweeper.is_live('state', '3');
SELECT verdict FROM sweeper.explain_row('state', '3');
SELECT * FROM pg_temp.audit;
RESET SESSION AUTHORIZATION;
SELECT * FROM state_o.audit ORDER BY id;
SELECT place, who, count(*) FROM state_c.ran WHERE who <> 'state_caller' GROUP BY 1, 2 ORDER BY 1, 2;

-- a gate inside another: the other owner's trigger puts a query of its own into a cursor of the outer one
SET ROLE state_other;
CREATE TABLE state_x.x (id int PRIMARY KEY, d timestamptz DEFAULT now() + interval '1 h');
INSERT INTO state_x.x VALUES (1);
CREATE TABLE state_x.ran (who text);
GRANT ALL ON state_x.ran TO PUBLIC;
CREATE FUNCTION state_x.sing() RETURNS int LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$ BEGIN INSERT INTO state_x.ran VALUES (current_user); RETURN 1; END $$;
CREATE FUNCTION state_x.swap() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$ DECLARE c refcursor := 'outer_cursor'; BEGIN
    CLOSE c; OPEN c FOR SELECT state_x.sing(); RETURN OLD; END $$;
CREATE TRIGGER swap BEFORE DELETE ON state_x.x FOR EACH ROW EXECUTE FUNCTION state_x.swap();
SELECT FROM sweeper.register('state_x.x', 'inner', deadline => 'd', check_every => '0', start => 'now');
SELECT sweeper.grant_access('state_owner', 'user', 'inner');
SET ROLE state_owner;
CREATE TABLE state_o.y (id int PRIMARY KEY, d timestamptz DEFAULT now() + interval '1 h');
INSERT INTO state_o.y VALUES (1);
CREATE FUNCTION state_o.nested() RETURNS trigger LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$ DECLARE c refcursor := 'outer_cursor'; n int; BEGIN
    OPEN c FOR SELECT 2; PERFORM sweeper.expire('inner', '{1}'); FETCH c INTO n; RETURN OLD; END $$;
CREATE TRIGGER nested BEFORE DELETE ON state_o.y FOR EACH ROW EXECUTE FUNCTION state_o.nested();
SELECT FROM sweeper.register('state_o.y', 'outer', deadline => 'd', check_every => '0', start => 'now');
SELECT sweeper.expire('outer', '{1}');
SELECT count(*) FROM state_x.ran;
RESET ROLE;
SELECT sweeper.unregister(p) FROM unnest('{state,inner,outer}'::text[]) AS p;
DROP TABLE pg_temp.audit;
DROP VIEW pg_temp.cfg;
SELECT sweeper.revoke_access(r) FROM unnest('{state_owner,state_caller,state_other}'::regrole[]) AS r;
DROP OWNED BY state_owner, state_caller, state_other CASCADE;
DROP ROLE state_owner, state_caller, state_other;
