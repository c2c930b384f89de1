-- Rules for every function, checked for each that pg_proc has.  Those that begin with _ are nobody's to call.
CREATE TEMP VIEW function AS
SELECT p.oid, p.proname AS name, p.prokind AS kind, p.pronargs - p.pronargdefaults AS required, p.pronargs AS args, p.proargnames AS names, p.proargtypes::oid[] AS types,
       obj_description(p.oid, 'pg_proc') AS comment
FROM pg_proc AS p WHERE p.pronamespace = 'sweeper'::regnamespace AND p.proname !~ '^_';
-- no scalar and array overload of the same argument
SELECT a.oid::regprocedure, b.oid::regprocedure
FROM function AS a JOIN function AS b USING (name), generate_series(1, least(a.args, b.args)) AS i JOIN pg_type AS t ON t.typarray > 0
WHERE a.types[i - 1] = t.oid AND b.types[i - 1] = t.typarray;
-- untyped parameters and untyped nulls resolve, with and without what has a default
CREATE FUNCTION pg_temp.unresolved() RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE f record;
BEGIN
    FOR f IN SELECT *, array_to_string(ARRAY(SELECT format(e, i) FROM generate_series(1, n) AS i), ', ') AS list
             FROM function, LATERAL unnest(ARRAY[required, args]) AS n, unnest('{$%s,"NULL"}'::text[]) AS e WHERE kind = 'f' LOOP
        EXECUTE format('PREPARE p AS SELECT * FROM sweeper.%I(%s)', f.name, f.list);
        DEALLOCATE p;
    END LOOP;
EXCEPTION WHEN OTHERS THEN
    RETURN NEXT format('%s(%s): %s', f.name, f.list, SQLERRM);
END $$;
SELECT * FROM pg_temp.unresolved();
-- a null where a value has a meaning is an error that names the argument: where the default is another value, and where there is none
CREATE TABLE x (id int PRIMARY KEY, d timestamptz NOT NULL);
SET client_min_messages = warning;
SELECT FROM sweeper.register('x', deadline => 'd', ttl => '1 min', heartbeats => true, check_every => '0');
SELECT sweeper.create_pool('x');
SELECT session AS seat FROM sweeper.acquire('x') \gset
SELECT set_config('x.session', :'seat', false) IS NOT NULL AS ok;
CREATE FUNCTION pg_temp.takes_null() RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    f record;
    call text;
BEGIN
    FOR f IN
        SELECT v.*, n, v.names[n] AS argument, pg_get_function_arg_default(v.oid, n) AS dflt,
               array_to_string(ARRAY(SELECT format('%I => %s', v.names[i], CASE WHEN i = n THEN 'NULL' ELSE format('%L', CASE format_type(v.types[i - 1], NULL)
                   WHEN 'uuid' THEN current_setting('x.session') WHEN 'uuid[]' THEN '{}' WHEN 'text[]' THEN '{1}' WHEN 'jsonb' THEN '{}' WHEN 'jsonb[]' THEN '{}' WHEN 'interval' THEN '1 s'
                   WHEN 'boolean' THEN 'false' WHEN 'regrole' THEN current_user WHEN 'timestamp with time zone' THEN '2100-01-01' WHEN 'text' THEN 'x' WHEN 'regclass' THEN 'x' ELSE '1' END) END)
                   FROM generate_series(1, v.args) AS i WHERE i <= v.required OR i = n), ', ') AS list
        FROM function AS v, generate_series(1, v.args) AS n
        -- null: nobody yet; no limit, from the start; no
        WHERE (n <= v.required OR pg_get_function_arg_default(v.oid, n) !~ '^NULL') AND (v.name, v.names[n]) NOT IN (('acquire', 'owner'), ('list_tasks', 'max'), ('list_tasks', 'skip'), ('metrics_text', 'pools')) ORDER BY v.name, v.oid::regprocedure::text, n
    LOOP
        call := format('%s sweeper.%I(%s)', CASE f.kind WHEN 'p' THEN 'CALL' ELSE 'SELECT * FROM' END, f.name, f.list);
        BEGIN
            EXECUTE call;
            RETURN NEXT call || ': no error';
        EXCEPTION
            WHEN null_value_not_allowed THEN
                IF SQLERRM !~ ('\m' || f.argument || '\M') THEN RETURN NEXT call || ': ' || SQLERRM; END IF;
            WHEN OTHERS THEN
                RETURN NEXT format('%s: %s %s', call, SQLSTATE, SQLERRM);
        END;
    END LOOP;
END $$;
SELECT * FROM pg_temp.takes_null();
-- the errors of each are listed where the fuzzer reads them (test/fuzz/README.md)
SELECT oid::regprocedure FROM function WHERE comment !~ 'Errors' AND comment !~ '^As \w+\(' AND name <> 'version';
SELECT sweeper.unregister('x'), sweeper.drop_pool('x', force => true);
DROP TABLE x;
