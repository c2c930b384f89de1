-- Control characters are keys and commands to a terminal.  Our functions take no name with them; next steps and the watch do not hand on those of other names, values and errors.
SET client_min_messages = warning;
CREATE FUNCTION refused(call text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    message text;
    hint text;
BEGIN
    EXECUTE 'SELECT FROM ' || call;
    RETURN 'ACCEPTED';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, hint = PG_EXCEPTION_HINT;
    RETURN concat_ws(' / ', SQLSTATE, message, hint);
END $$;
CREATE TABLE plain (id int PRIMARY KEY, d timestamptz);
CREATE TABLE U&"q\0003" (id int PRIMARY KEY, d timestamptz);
SELECT sweeper.register_worker('w') AS w \gset
SELECT FROM sweeper.register('plain', deadline => 'd', check_every => '0');
SELECT call, refused(format(call, bad, :'w')) FROM (VALUES (1, E'q\x03\nALTER ROLE mallory SUPERUSER; --')) AS b (n, bad), unnest(ARRAY[
    $$sweeper.register('plain', policy => %L, deadline => 'd')$$,
    $$sweeper.register('plain', policy => %L, deadline => 'd', if_exists => 'alter')$$,
    $$sweeper.register('plain', policy => %L, deadline => 'd', dry_run => true)$$,
    $$sweeper.alter_policy('plain', new_name => %L)$$,
    $$sweeper.create_pool(%L)$$,
    $$sweeper.create_pool(%L, if_exists => 'alter')$$,
    $$sweeper.register_worker(%L)$$,
    $$sweeper.acquire('sweeper.worker', %L)$$,
    $$sweeper.register_job(%2$L, %1$L, 'c', 'n')$$,
    $$sweeper.register_job(%2$L, 'r', %1$L, 'n')$$,
    $$sweeper.register_job(%2$L, 'r', 'c', %1$L)$$,
    $$sweeper.create_job(%L, 'c', 'n')$$,
    $$sweeper.create_job('r', %L, 'n')$$,
    $$sweeper.create_job('r', 'c', %L)$$,
    $$sweeper.register_provider(%2$L, %1$L, 'c', 'n')$$,
    $$sweeper.submit(%L, 'c', 'n')$$,
    $$sweeper.submit('r', %L, 'n')$$,
    $$sweeper.submit('r', 'c', %L)$$,
    $$sweeper.submit('r', 'c', 'n', origin => %L)$$,
    $$sweeper.submit_many('r', 'c', %L, '{1}')$$]) WITH ORDINALITY AS c (call, i) ORDER BY i;
-- by default a policy has the name of its table
SELECT refused(format($$sweeper.register(%L, deadline => 'd')$$, quote_ident(E'q\x03')));
-- each such character, at any place
SELECT string_agg(to_hex(i), ' ' ORDER BY i) AS accepted FROM generate_series(1, 260) AS i
WHERE (i < 33 OR i > 125) AND refused(format($$sweeper.create_job('é' || chr(%s) || 'é', 'c', 'n')$$, i)) = 'ACCEPTED' AND i NOT BETWEEN 161 AND 255;
-- a value is not a name
SELECT FROM sweeper.submit('r', 'c', 'n', '"x"', unique_key => E'a\tb');
SELECT FROM sweeper.pause('plain', E'two\nlines');

-- of a group, a partition, a function: the next step is another one
SELECT E'\x03\x1b[2K\r' || chr(155) || E'\nforged' AS bad \gset
CREATE FUNCTION run(statement text, bad text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN EXECUTE format(statement, bad); END $$;
CREATE ROLE regress_other;
CREATE TABLE grouped (id int PRIMARY KEY, d timestamptz, g text);
SELECT FROM sweeper.register('grouped', deadline => 'd', group_by => 'g', check_every => '0', start => 'now');
INSERT INTO grouped SELECT i, now() - interval '1 h', :'bad' FROM generate_series(1, 400) AS i;
CALL sweeper.sweep('grouped', pass => NULL) \gset
CREATE TABLE parent (id int PRIMARY KEY, d timestamptz);
SELECT FROM sweeper.register('parent', deadline => 'd', check_every => '0');
SELECT FROM run('CREATE TABLE %1$I () INHERITS (parent); ALTER TABLE %1$I OWNER TO regress_other', :'bad');
CREATE TABLE hooked (id int PRIMARY KEY, d timestamptz);
SELECT FROM run('CREATE FUNCTION %I(text[]) RETURNS void LANGUAGE sql AS ''''', :'bad');
SELECT FROM sweeper.register('hooked', deadline => 'd', action => 'call', on_expire => quote_ident(:'bad') || '(text[])', check_every => '0', start => 'now');
SELECT FROM run('ALTER FUNCTION %I(text[]) OWNER TO regress_other', :'bad');
SELECT policy, problem, regexp_replace(next_step, '\d{3,}', 'N') AS next_step FROM sweeper.problem WHERE policy IN ('grouped', 'parent', 'hooked') ORDER BY 1, 2;
SELECT policy, state, regexp_replace(next_step, '\d{3,}', 'N') AS next_step FROM sweeper.policy_status WHERE policy IN ('grouped', 'parent', 'hooked') ORDER BY 1;
-- which is one to paste
CREATE FUNCTION found(step text) RETURNS text LANGUAGE plpgsql AS $$ DECLARE p text; BEGIN EXECUTE format('SELECT policy FROM (%s) AS p', split_part(step, ';', 1)) INTO p; RETURN p; END $$;
SELECT policy, found(next_step) FROM sweeper.problem WHERE policy IN ('grouped', 'parent', 'hooked') ORDER BY 1;
-- a line break in a quoted name is none of the terminal's
SELECT sweeper._pasteable(E'SELECT ''a\nb'';', 'SELECT 1;'), sweeper._pasteable(E'SELECT ''a\tb'';', 'SELECT 1;'), sweeper._pasteable(NULL, 'SELECT 1;') IS NULL AS nothing;

-- a watch has the lines that it makes, whatever an event or an error says
CREATE TABLE keyed (k text PRIMARY KEY, d timestamptz);
INSERT INTO keyed VALUES (:'bad');
SELECT FROM sweeper.register('keyed', deadline => 'd', check_every => '0');
SELECT sweeper.expire('keyed', ARRAY[:'bad'], 'because' || :'bad');
\set watch `sed -n '/^WITH/,$ { s/;$//; p; }' monitoring/watch.sql`
SELECT count(*) FILTER (WHERE line ~ '^\n') AS sections, count(*) FILTER (WHERE ltrim(line, E'\n') ~ '[\u0001-\u001f\u007f-\u009f]') AS forged,
       string_agg(regexp_replace(line, '^\S+ +', ''), ', ') FILTER (WHERE line ~ ' keyed .*manual') AS event FROM (:watch) AS w (line);

SELECT count(sweeper.unregister(policy)) FROM sweeper.policy WHERE policy NOT LIKE 'sweeper.%';
SELECT sweeper.release(:'w');
SELECT FROM run('DROP FUNCTION %I(text[])', :'bad');
DROP TABLE parent CASCADE;
DROP ROLE regress_other;
