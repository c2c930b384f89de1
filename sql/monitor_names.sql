-- Whatever things are called, what a view, a hint or explain_sweep gives to paste is code of ours: a newline in a name ends no comment, and a quote no text.
SET client_min_messages = warning;
SELECT E'x"\n;SELECT ''pasted''; --' AS odd \gset
-- what is outside of quotes and comments, and a word for a newline there or in a comment
CREATE FUNCTION pasted(statement text) RETURNS text LANGUAGE plpgsql STRICT AS $$
DECLARE
    c text;
    inside text := '';
    code text := '';
BEGIN
    FOREACH c IN ARRAY string_to_array(statement, NULL) LOOP
        IF inside = '' AND c IN ('''', '"') THEN
            inside := c;
        ELSIF inside = c THEN
            inside := '';
        ELSIF inside = '' AND right(code, 1) || c = '--' THEN
            inside := '--';
        ELSIF inside IN ('', '--') AND c IN (E'\n', E'\r') THEN
            RETURN 'A NEWLINE: ' || statement;
        ELSIF inside = '' THEN
            code := code || c;
        END IF;
    END LOOP;
    RETURN CASE WHEN code ~ 'pasted' OR inside IN ('''', '"') THEN 'A QUOTE: ' || statement ELSE regexp_replace(code, '[0-9]+', 'N', 'g') END;
END $$;
SELECT pasted(E'SELECT ''a\n''; -- b'), pasted(E'SELECT 1; -- "a\nb"'), pasted(E'SELECT 1;\nSELECT 2'), pasted('SELECT ''a'' || pasted');

-- a policy for each state, with odd names of the policy (which has no newline), the table, its schema, columns, functions, group and owner
CREATE ROLE :"odd";
CREATE SCHEMA :"odd";
GRANT ALL ON SCHEMA :"odd" TO :"odd";
SELECT format('SET search_path = %I, public', :'odd') \gexec
CREATE FUNCTION make(state text, odd text, arguments text DEFAULT '') RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    relation text := quote_ident(state || odd);
BEGIN
    EXECUTE format('CREATE TABLE %1$s (%2$I int PRIMARY KEY, %3$I timestamptz, %4$I text, %5$I int)', relation, 'id' || odd, 'd' || odd, 'g' || odd, 'n' || odd);
    EXECUTE format('INSERT INTO %s SELECT i, now() - %L::interval, %L FROM generate_series(1, 400) AS i', relation, CASE WHEN state = 'held' THEN '1 h' ELSE '-1 h' END, 'g' || odd);
    EXECUTE format('SELECT FROM sweeper.register(%L::regclass, policy => %L, deadline => %L, group_by => %L, check_every => ''0'' %s)',
                   relation, state || replace(odd, E'\n', ''), 'd' || odd, 'g' || odd, arguments);
END $$;
SELECT format('CREATE FUNCTION %I(text[]) RETURNS void LANGUAGE plpgsql AS $f$ BEGIN RAISE ''%%'', $1 USING HINT = $1; END $f$;', f || :'odd') FROM unnest('{dropped,again,other,raises}'::text[]) AS f \gexec
CREATE FUNCTION hook(f text, odd text) RETURNS text LANGUAGE sql AS $$ SELECT format(', fuse_fraction => 1, on_expire => %L', quote_ident(f || odd) || '(text[])') $$;
SELECT make('held', :'odd'), make('fuse', :'odd'), make('paused', :'odd'), make('owned', :'odd'), make('gone', :'odd'), make('renamed', :'odd'),
    make('filtered', :'odd', format(', filter => %L', quote_ident('n' || :'odd') || ' > 0')), make('dropped', :'odd', hook('dropped', :'odd')), make('again', :'odd', hook('again', :'odd')),
    make('other', :'odd', hook('other', :'odd')), make('raises', :'odd', hook('raises', :'odd')), make('called', :'odd', hook('dropped', :'odd') || ', action => ''call''');
SELECT format('UPDATE %I.%I SET %I = now();', :'odd', f || :'odd', 'd' || :'odd') FROM unnest('{fuse,raises}'::text[]) AS f \gexec
SELECT sweeper.pause(policy) FROM sweeper.policy WHERE policy LIKE 'paused%';
UPDATE sweeper.policy SET paused_at = now() - interval '2 days' WHERE policy LIKE 'paused%';
SELECT format('DROP FUNCTION %1$I(text[]); DROP FUNCTION %2$I(text[]); CREATE FUNCTION %2$I(text[]) RETURNS void LANGUAGE sql AS ''''; ALTER FUNCTION %3$I(text[]) OWNER TO %4$I;',
    'dropped' || :'odd', 'again' || :'odd', 'other' || :'odd', :'odd') \gexec
SELECT format('ALTER TABLE %1$I OWNER TO %4$I; DROP TABLE %2$I; ALTER TABLE %3$I RENAME TO %5$I; CREATE TABLE %3$I (LIKE %5$I);', 'owned' || :'odd', 'gone' || :'odd', 'renamed' || :'odd', :'odd', 'another' || :'odd') \gexec
SELECT format('ALTER TABLE %I RENAME %I TO %I;', 'filtered' || :'odd', 'n' || :'odd', 'm' || :'odd') \gexec
CREATE TABLE parent (id int PRIMARY KEY, d timestamptz);
SELECT format('CREATE TABLE %I () INHERITS (parent);', 'child' || :'odd') \gexec
SELECT FROM sweeper.register('parent', policy => 'parent', deadline => 'd', check_every => '0');
SELECT format('ALTER TABLE %I OWNER TO %I;', 'child' || :'odd', :'odd') \gexec
\set VERBOSITY terse
\o /dev/null
SELECT format('CALL sweeper.sweep(%L, pass => NULL)', policy) FROM sweeper.policy WHERE policy NOT LIKE 'sweeper.%' AND policy NOT LIKE 'fuse%' ORDER BY policy \gexec
SELECT format('CALL sweeper.sweep(%L, pass => NULL)', policy) FROM sweeper.policy WHERE policy LIKE 'fuse%' \gexec
\o
SELECT DISTINCT split_part(policy, 'x"', 1) AS policy, problem, pasted(next_step) FROM sweeper.problem WHERE policy NOT LIKE 'sweeper.%' ORDER BY 1, 2;
SELECT split_part(policy, 'x"', 1) AS policy, pasted(next_step) FROM sweeper.policy_status WHERE policy NOT LIKE 'sweeper.%' ORDER BY 1;
SELECT split_part(policy, 'x"', 1) AS policy, verdict, pasted(hint) FROM sweeper.policy CROSS JOIN LATERAL sweeper.explain_row(policy, '1') WHERE policy NOT LIKE 'sweeper.%' AND policy !~ '^(gone|renamed|raises)' ORDER BY 1;
SELECT split_part(policy, 'x"', 1) AS policy, pasted(line) FROM sweeper.policy CROSS JOIN LATERAL sweeper.explain_sweep(policy) AS line WHERE policy ~ '^(held|parent)' AND line ~ '^-- ' ORDER BY 1;
SELECT split_part(policy, 'x"', 1) AS policy, pasted(advice) FROM sweeper.policy CROSS JOIN LATERAL unnest((sweeper.preview(policy)).advice) AS advice WHERE policy ~ '^(held|fuse|paused|raises)' ORDER BY 1;

SELECT count(sweeper.unregister(policy)) FROM sweeper.policy WHERE policy NOT LIKE 'sweeper.%';
SET search_path = public;
DROP SCHEMA :"odd" CASCADE;
DROP ROLE :"odd";
DROP FUNCTION pasted;
