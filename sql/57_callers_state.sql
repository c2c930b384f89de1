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

CREATE TABLE state_o.plain (id int PRIMARY KEY, d timestamptz DEFAULT now() + interval '1 h', g int UNIQUE DEFERRABLE INITIALLY DEFERRED);
INSERT INTO state_o.plain VALUES (1), (3);
INSERT INTO state_o.plain VALUES (2, NULL);
CREATE FUNCTION state_o.norm(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT $1 % 10';
CREATE TABLE state_o.indexed (id int PRIMARY KEY, d timestamptz DEFAULT now() + interval '1 h');
CREATE INDEX ON state_o.indexed (state_o.norm(id));
CREATE DOMAIN state_o.moment AS timestamptz CHECK (VALUE > '2000-01-01');
CREATE TABLE state_o.typed (id int PRIMARY KEY, d state_o.moment DEFAULT now() + interval '1 h');
CREATE TABLE state_o.divided (id int NOT NULL, d timestamptz DEFAULT now() + interval '1 h') PARTITION BY LIST (state_o.norm(id));
CREATE TABLE state_o.part PARTITION OF state_o.divided (PRIMARY KEY (id)) FOR VALUES IN (1, 2, 3);
INSERT INTO state_o.indexed VALUES (1);
INSERT INTO state_o.part VALUES (1);
INSERT INTO state_o.typed VALUES (1);
SELECT p.state FROM unnest('{plain,indexed,typed,part}'::text[]) AS t, sweeper.register(('state_o.' || t)::regclass, t, deadline => 'd', ttl => '1 h', on_null => 'expire', heartbeats => true, check_every => '0', start => 'paused') AS p;
SELECT sweeper.grant_access('state_caller', 'user', p) FROM unnest('{plain,indexed,typed,part}'::text[]) AS p;
SET SESSION AUTHORIZATION state_caller;
-- what this session may have changed does not run as the owner
SELECT sweeper.expire('state', '{1}');
SELECT sweeper.touch('state', '3');
SELECT found, state, reason FROM sweeper.explain_row('state', '3');
SELECT sweeper.touch('indexed', '1');
SELECT sweeper.touch('typed', '1');
SELECT sweeper.touch('part', '1');
-- where there is nothing of the kind, it may
SELECT sweeper.touch('plain', '1'), sweeper.is_live('plain', '1');
-- deferred triggers that defer again
BEGIN;
INSERT INTO state_c.df VALUES (1);
SELECT sweeper.expire('plain', '{1}');
ROLLBACK;
CREATE FUNCTION state_c.beat() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN INSERT INTO state_c.df VALUES (1); RETURN sweeper.touch('plain', '2'); END $$;
SELECT state_c.beat();
-- those that do not are the caller's own affair
BEGIN;
INSERT INTO state_c.df VALUES (4);
SELECT sweeper.expire('plain', '{1}');
ROLLBACK;
-- in a session of a member it runs
RESET SESSION AUTHORIZATION;
GRANT state_owner TO state_caller;
SET SESSION AUTHORIZATION state_caller;
SELECT sweeper.expire('state', '{1}'), sweeper.touch('state', '3'), sweeper.touch('indexed', '1'), sweeper.touch('typed', '1');
RESET SESSION AUTHORIZATION;
REVOKE state_owner FROM state_caller;
SELECT * FROM state_o.audit ORDER BY id;
SELECT place, who, count(*) FROM state_c.ran WHERE who <> 'state_caller' GROUP BY 1, 2 ORDER BY 1, 2;

-- a process that has run code of one owner runs none of another
SET ROLE state_other;
CREATE TABLE state_x.x (id int PRIMARY KEY, d timestamptz DEFAULT now() + interval '1 h');
INSERT INTO state_x.x VALUES (1);
CREATE FUNCTION state_x.keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER keep BEFORE DELETE ON state_x.x FOR EACH ROW EXECUTE FUNCTION state_x.keep();
SELECT FROM sweeper.register('state_x.x', 'other', deadline => 'd', check_every => '0', start => 'now');
RESET ROLE;
SELECT sweeper.expire('other', '{1}');
\c -
SELECT sweeper.expire('other', '{1}');
\c -
SET client_min_messages = warning;
SELECT sweeper.unregister(p) FROM unnest('{state,plain,indexed,typed,part,other}'::text[]) AS p;
SELECT sweeper.revoke_access(r) FROM unnest('{state_owner,state_caller,state_other}'::regrole[]) AS r;
DROP OWNED BY state_owner, state_caller, state_other CASCADE;
DROP ROLE state_owner, state_caller, state_other;
