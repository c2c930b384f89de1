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
-- a call of function f with what it requires, and argument n
CREATE FUNCTION pg_temp.call(f oid, n int, value text) RETURNS text LANGUAGE sql AS $$
SELECT format('%s sweeper.%I(%s)', CASE kind WHEN 'p' THEN 'CALL' ELSE 'SELECT * FROM' END, name, array_to_string(ARRAY(
    SELECT format('%I => %L::%s', names[i], CASE WHEN i = n THEN value ELSE CASE format_type(types[i - 1], NULL)
        WHEN 'uuid' THEN current_setting('x.session') WHEN 'uuid[]' THEN '{}' WHEN 'text[]' THEN '{1}' WHEN 'jsonb' THEN '{}' WHEN 'jsonb[]' THEN '{}' WHEN 'interval' THEN '1 s'
        WHEN 'boolean' THEN 'false' WHEN 'regrole' THEN current_user WHEN 'timestamp with time zone' THEN '2100-01-01' WHEN 'text' THEN 'x' WHEN 'regclass' THEN 'x' ELSE '1' END END,
        format_type(types[i - 1], NULL))
    FROM generate_series(1, args) AS i WHERE i <= required OR i = n), ', '))
FROM function WHERE oid = f
$$;
CREATE FUNCTION pg_temp.takes_null() RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    f record;
BEGIN
    FOR f IN
        SELECT v.names[n] AS argument, pg_temp.call(v.oid, n, NULL)
        FROM function AS v, generate_series(1, v.args) AS n
        -- null: nobody yet; no limit, from the start
        WHERE (n <= v.required OR pg_get_function_arg_default(v.oid, n) !~ '^NULL') AND (v.name, v.names[n]) NOT IN (('acquire', 'owner'), ('list_tasks', 'max'), ('list_tasks', 'skip')) ORDER BY v.name, v.oid::regprocedure::text, n
    LOOP
        BEGIN
            EXECUTE f.call;
            RETURN NEXT f.call || ': no error';
        EXCEPTION
            WHEN null_value_not_allowed THEN
                IF SQLERRM !~ ('\m' || f.argument || '\M') THEN RETURN NEXT f.call || ': ' || SQLERRM; END IF;
            WHEN OTHERS THEN
                RETURN NEXT format('%s: %s %s', f.call, SQLSTATE, SQLERRM);
        END;
    END LOOP;
END $$;
SELECT * FROM pg_temp.takes_null();
-- an extreme value is refused with an error that says so (25: a procedure in a transaction; 54: too long), or accepted: then it is in this list.  Names may consist of spaces, as in PostgreSQL.
CREATE FUNCTION pg_temp.takes_extremes(OUT call text, OUT function text, OUT argument text, OUT value text, OUT error text) RETURNS SETOF record LANGUAGE plpgsql AS $$
BEGIN
    FOR call, function, argument, value IN
        SELECT pg_temp.call(v.oid, n, x), v.name, v.names[n], CASE WHEN length(x) > 99 THEN 'long' ELSE quote_literal(x) END
        FROM function AS v, generate_series(1, v.args) AS n, (VALUES
            ('text', ARRAY['', repeat('x', 100000)]), ('text[]', '{"{}","{\"\"}"}'), ('integer', '{-2147483648,-1,0,2147483647}'), ('bigint', '{-9223372036854775808,-1,0,9223372036854775807}'),
            ('real', '{-1,0,Infinity,NaN}'), ('interval', '{-1 s,0,1 us,73001 days,-178000000 years}'), ('timestamp with time zone', '{-infinity,infinity}'), ('jsonb', '{"null",[],1}'),
            ('jsonb[]', '{"{null}","{NULL}"}'), ('uuid', '{00000000-0000-0000-0000-000000000000}'), ('uuid[]', '{"{NULL}"}'),
            ('regclass', '{0,pg_class,x_pkey}'), ('regrole', '{0}'), ('regprocedure', '{0,now()}')) AS t (type, extremes), unnest(extremes::text[]) AS x
        WHERE format_type(v.types[n - 1], NULL) = type ORDER BY v.name, v.oid::regprocedure::text, n, x COLLATE "C"
    LOOP
        BEGIN
            EXECUTE call;
            RAISE SQLSTATE 'ZZ000';
        EXCEPTION WHEN OTHERS THEN
            CONTINUE WHEN SQLSTATE ~ '^(22|25|42|54|55|0A)|P0002' AND SQLERRM !~ 'LIMIT|OFFSET|cache lookup|sweeper\._';
            error := CASE WHEN SQLSTATE <> 'ZZ000' THEN SQLSTATE || ' ' || SQLERRM END;
        END;
        RETURN NEXT;
    END LOOP;
END $$;
CREATE TEMP TABLE extreme AS SELECT * FROM pg_temp.takes_extremes();
SELECT call, error FROM extreme WHERE error IS NOT NULL;
SELECT function, value, string_agg(argument, ', ' ORDER BY argument COLLATE "C") AS accepted FROM extreme WHERE error IS NULL GROUP BY 1, 2 ORDER BY function COLLATE "C", value COLLATE "C";
-- where nothing can be written, the error names the function, not a statement that the caller did not write
CREATE FUNCTION pg_temp.reads_only(OUT call text, OUT error text) RETURNS SETOF record LANGUAGE plpgsql AS $$
BEGIN
    FOR call IN SELECT pg_temp.call(v.oid, 0, NULL) FROM function AS v ORDER BY v.name, v.oid::regprocedure::text LOOP
        BEGIN
            SET LOCAL transaction_read_only = on;
            EXECUTE call;
            RAISE SQLSTATE 'ZZ000';
        EXCEPTION WHEN OTHERS THEN
            error := SQLERRM;
            CONTINUE WHEN SQLSTATE <> '25006' OR error ~ '^cannot execute (sweeper\.|REVOKE )';
        END;
        RETURN NEXT;
    END LOOP;
END $$;
SELECT * FROM pg_temp.reads_only();
-- the errors of each are listed where the fuzzer reads them (test/fuzz/README.md)
SELECT oid::regprocedure FROM function WHERE comment !~ 'Errors' AND comment !~ '^As \w+\(' AND name <> 'version';
SELECT sweeper.unregister('x'), sweeper.drop_pool('x', force => true);
DROP TABLE x;
