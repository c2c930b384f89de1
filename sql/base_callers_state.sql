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
-- it was told at registration
SET SESSION AUTHORIZATION state_owner;
SELECT advice FROM sweeper.preview('state');
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

-- whatever the caller's session has analysed with other names in mind: domains, casts, indexes, partition keys, functions
SET SESSION AUTHORIZATION state_owner;
CREATE FUNCTION state_o.valid(v text) RETURNS boolean LANGUAGE sql AS 'SELECT length(v) > 0';
CREATE DOMAIN state_o.code AS text CHECK (state_o.valid(VALUE));
CREATE TABLE state_o.keyed (id state_o.code PRIMARY KEY, d timestamptz DEFAULT now() + interval '1 h');
CREATE TABLE state_o.noted (id text PRIMARY KEY, d timestamptz DEFAULT now() + interval '1 h', note text DEFAULT 'n');
CREATE TABLE state_o.parent (id text PRIMARY KEY, d timestamptz DEFAULT now() + interval '1 h');
CREATE TABLE state_o.referred (LIKE state_o.parent INCLUDING ALL);
CREATE TABLE state_o.child (id int, f state_o.code REFERENCES state_o.parent ON DELETE SET NULL, n text DEFAULT 'n' CHECK (n::state_o.code IS NOT NULL));
CREATE TABLE state_o.number (i int PRIMARY KEY);
CREATE TYPE state_o.word AS ENUM ('one', 'two');
CREATE FUNCTION state_o.of_word(state_o.word) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ DECLARE v text; BEGIN v := 'x'; RETURN 1; END $$;
CREATE CAST (state_o.word AS int) WITH FUNCTION state_o.of_word(state_o.word) AS IMPLICIT;
CREATE TABLE state_o.worded (id text PRIMARY KEY, d timestamptz DEFAULT now() + interval '1 h', w state_o.word DEFAULT 'one' REFERENCES state_o.number);
INSERT INTO state_o.number VALUES (1);
INSERT INTO state_o.keyed SELECT i FROM generate_series(1, 9) AS i;
INSERT INTO state_o.noted SELECT i FROM generate_series(1, 9) AS i;
INSERT INTO state_o.parent SELECT i FROM generate_series(1, 9) AS i;
INSERT INTO state_o.referred SELECT i FROM generate_series(1, 9) AS i;
INSERT INTO state_o.child SELECT i, i FROM generate_series(1, 9) AS i;
INSERT INTO state_o.worded SELECT i FROM generate_series(1, 9) AS i;
GRANT SELECT, REFERENCES ON state_o.number TO state_caller;
GRANT SELECT, REFERENCES ON state_o.referred TO state_other;
SELECT FROM sweeper.register('state_o.keyed', 'keyed', deadline => 'd', ttl => '1 h', heartbeats => true, check_every => '0', start => 'paused');
SELECT FROM sweeper.register('state_o.noted', 'noted', deadline => 'd', ttl => '1 h', filter => 'note::state_o.code IS NOT NULL', heartbeats => true, check_every => '0', start => 'paused');
SELECT FROM sweeper.register('state_o.noted', 'literal', deadline => 'd', filter => $$note = ANY ('{n}'::state_o.code[]::text[])$$, check_every => '0', start => 'paused');
SELECT FROM sweeper.register('state_o.parent', 'parent', deadline => 'd', check_every => '0', start => 'paused');
SELECT FROM sweeper.register('state_o.referred', 'referred', deadline => 'd', check_every => '0', start => 'paused');
SELECT FROM sweeper.register('state_o.worded', 'worded', deadline => 'd', ttl => '1 h', action => 'update', set_clause => $$d = NULL, w = 'two'$$, check_every => '0', start => 'paused');
INSERT INTO state_o.part SELECT i FROM generate_series(11, 13) AS i;
SELECT FROM sweeper.register('state_o.part', 'part_update', deadline => 'd', action => 'update', set_clause => 'd = NULL', check_every => '0', start => 'paused');
SELECT sweeper.grant_access('state_caller', 'user', p) FROM unnest('{part_update,keyed,noted,literal,parent,referred,worded}'::text[]) AS p;
-- a table of a third role refers to the owner's, and a superuser's function is its trigger
SET SESSION AUTHORIZATION state_other;
CREATE DOMAIN state_x.code AS pg_catalog.text;
SET search_path = state_x;
CREATE FUNCTION state_x.helper() RETURNS text LANGUAGE plpgsql AS $$ DECLARE v code; BEGIN v := 'x'; RETURN v; END $$;
CREATE TABLE state_x.child (f text REFERENCES state_o.referred ON DELETE CASCADE);
INSERT INTO state_x.child VALUES ('7'), ('8');
RESET search_path;
CREATE FUNCTION state_x.gone() RETURNS trigger LANGUAGE plpgsql SET search_path = state_x AS $$ BEGIN PERFORM helper(); RETURN OLD; END $$;
CREATE TRIGGER gone BEFORE DELETE ON state_x.child FOR EACH ROW EXECUTE FUNCTION state_x.gone();
RESET SESSION AUTHORIZATION;
CREATE SCHEMA state_s;
GRANT USAGE ON SCHEMA state_s TO PUBLIC;
CREATE DOMAIN state_s.code AS pg_catalog.text;
SET search_path = state_s;
CREATE FUNCTION state_s.tool() RETURNS text LANGUAGE plpgsql AS $$ DECLARE v code; BEGIN v := 'x'; RETURN v; END $$;
CREATE FUNCTION state_s.watch() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = state_s AS $$ BEGIN PERFORM tool(); RETURN OLD; END $$;
RESET search_path;
SET SESSION AUTHORIZATION state_owner;
CREATE TABLE state_o.watched (id text PRIMARY KEY, d timestamptz DEFAULT now() + interval '1 h');
INSERT INTO state_o.watched SELECT i FROM generate_series(1, 9) AS i;
CREATE TRIGGER watch BEFORE DELETE ON state_o.watched FOR EACH ROW EXECUTE FUNCTION state_s.watch();
SELECT FROM sweeper.register('state_o.watched', 'watched', deadline => 'd', check_every => '0', start => 'paused');
SELECT sweeper.grant_access('state_caller', 'user', 'watched');
SET SESSION AUTHORIZATION state_caller;
CREATE FUNCTION state_c.length(text) RETURNS int LANGUAGE sql AS $$ SELECT state_c.note('SQL function')::int $$;
CREATE DOMAIN state_c.code AS pg_catalog.text CHECK (state_c.note('PL/pgSQL function'));
CREATE DOMAIN state_c.text AS pg_catalog.text CHECK (state_c.note('cast'));
CREATE FUNCTION state_c.modulo(int, int) RETURNS int LANGUAGE sql AS $$ SELECT state_c.note('operator')::int $$;
CREATE OPERATOR state_c.% (leftarg = int, rightarg = int, procedure = state_c.modulo);
CREATE TABLE state_c.words (id int, w state_o.word REFERENCES state_o.number);
INSERT INTO state_c.words VALUES (1, 'one');
CREATE PROCEDURE state_c.attack(call pg_catalog.text) LANGUAGE plpgsql AS $$
DECLARE
    warm pg_catalog.text;
    answer pg_catalog.text;
BEGIN
    PERFORM set_config('search_path', 'state_c, pg_catalog', false), set_config('constraint_exclusion', 'on', false);
    FOREACH warm IN ARRAY ARRAY['SELECT ''x''::state_o.code', 'SELECT FROM state_o.indexed', 'SELECT FROM state_o.divided', 'SELECT FROM state_o.part WHERE id = 1',
        'SELECT state_x.helper()', 'SELECT state_s.tool()', 'SELECT ''one''::state_o.word::int', 'UPDATE state_c.words SET w = ''two'''] LOOP
        BEGIN EXECUTE warm; EXCEPTION WHEN OTHERS THEN NULL; END;
    END LOOP;
    PERFORM set_config('search_path', '"$user", public', false);
    BEGIN EXECUTE 'SELECT ' || call INTO answer; EXCEPTION WHEN OTHERS THEN answer := SQLSTATE || ' ' || SQLERRM; END;
    RAISE NOTICE '%: %', call, answer;
END $$;
SET client_min_messages = notice;
CALL state_c.attack($$sweeper.expire('keyed', '{1}')$$);
CALL state_c.attack($$sweeper.touch('keyed', '2')$$);
CALL state_c.attack($$state FROM sweeper.explain_row('keyed', '3')$$);
CALL state_c.attack($$sweeper.touch('noted', '1')$$);
CALL state_c.attack($$sweeper.expire('noted', '{2}')$$);
CALL state_c.attack($$sweeper.is_live('noted', '3')$$);
CALL state_c.attack($$sweeper.expire('literal', '{4}')$$);
CALL state_c.attack($$sweeper.expire('parent', '{1}')$$);
CALL state_c.attack($$sweeper.expire('referred', '{7}')$$);
CALL state_c.attack($$sweeper.expire('watched', '{1}')$$);
CALL state_c.attack($$sweeper.expire('worded', '{1}')$$);
CALL state_c.attack($$sweeper.touch('indexed', '1')$$);
CALL state_c.attack($$sweeper.expire('indexed', '{1}')$$);
CALL state_c.attack($$sweeper.touch('part', '1')$$);
CALL state_c.attack($$sweeper.expire('part', '{1}')$$);
CALL state_c.attack($$sweeper.expire('part_update', '{11}')$$);
SELECT place, who, count(*) FROM state_c.ran WHERE who <> 'state_caller' GROUP BY 1, 2 ORDER BY 1, 2;
SET client_min_messages = warning;
\c -
SET client_min_messages = warning;

-- nor does an owner's code leave anything for functions that a superuser calls later in the same session; and one's own always run
CREATE TABLE state_s.fails (id int PRIMARY KEY, d timestamptz DEFAULT now() + interval '1 h');
SELECT FROM sweeper.register('state_s.fails', 'fails', deadline => 'd', filter => '1 / (id - 2) IS NOT NULL', check_every => '0', start => 'paused');
INSERT INTO state_s.fails VALUES (1), (2);
SELECT sweeper.grant_access('state_caller', 'user', 'fails');
SET SESSION AUTHORIZATION state_caller;
CREATE TABLE state_c.own (id int PRIMARY KEY, d timestamptz DEFAULT now() + interval '1 h');
INSERT INTO state_c.own VALUES (1), (2), (3);
CREATE FUNCTION state_c.poison() RETURNS trigger LANGUAGE plpgsql SET search_path = state_c, pg_catalog AS $$ BEGIN
    -- also after the gate of another owner has failed within this one
    BEGIN PERFORM sweeper.expire('fails', '{2}'); EXCEPTION WHEN division_by_zero THEN NULL; END;
    BEGIN BEGIN BEGIN PERFORM state_s.tool(); EXCEPTION WHEN division_by_zero THEN NULL; END; EXCEPTION WHEN division_by_zero THEN NULL; END; EXCEPTION WHEN division_by_zero THEN NULL; END;
    RETURN OLD; END $$;
CREATE TRIGGER poison BEFORE DELETE ON state_c.own FOR EACH ROW WHEN (OLD.id < 3) EXECUTE FUNCTION state_c.poison();
CREATE FUNCTION state_c.keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN OLD; END $$;
CREATE TRIGGER keep BEFORE DELETE ON state_c.own FOR EACH ROW EXECUTE FUNCTION state_c.keep();
SELECT FROM sweeper.register('state_c.own', 'own', deadline => 'd', check_every => '0', start => 'paused');
RESET SESSION AUTHORIZATION;
SELECT sweeper.expire('own', '{1}');
SELECT sweeper.expire('own', '{3}');
SET search_path = state_s, pg_catalog;
SELECT state_s.tool();
RESET search_path;
SET SESSION AUTHORIZATION state_caller;
SELECT sweeper.touch('plain', '3'), sweeper.expire('own', '{2}');
RESET SESSION AUTHORIZATION;
SELECT place, who, count(*) FROM state_c.ran WHERE who <> 'state_caller' GROUP BY 1, 2 ORDER BY 1, 2;
-- a worker's session is the owner's
SET SESSION AUTHORIZATION state_caller;
CREATE TABLE state_c.served (id int PRIMARY KEY, d timestamptz);
CREATE TABLE state_c.server (who text);
CREATE FUNCTION state_c.serve() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO state_c.server VALUES (concat_ws(' ', current_user, session_user, current_setting('is_superuser'))); RETURN OLD; END $$;
CREATE TRIGGER serve BEFORE DELETE ON state_c.served FOR EACH ROW EXECUTE FUNCTION state_c.serve();
INSERT INTO state_c.served VALUES (1, now());
SELECT FROM sweeper.register('state_c.served', 'served', deadline => 'd', check_every => '0', start => 'now');
RESET SESSION AUTHORIZATION;
CALL sweeper.sweep('served', pass => NULL) \gset
SELECT * FROM state_c.server;
-- functions of several owners run in one session of a superuser
SELECT sweeper.expire('state', '{2}');
\c -
SET client_min_messages = warning;
SELECT sweeper.unregister(p) FROM unnest('{state,plain,indexed,typed,part,keyed,noted,literal,parent,referred,worded,watched,own,served,fails,part_update}'::text[]) AS p;
SELECT sweeper.revoke_access(r) FROM unnest('{state_owner,state_caller,state_other}'::regrole[]) AS r;
DROP SCHEMA state_s CASCADE;
DROP OWNED BY state_owner, state_caller, state_other CASCADE;
DROP ROLE state_owner, state_caller, state_other;
