-- Operators that any role with a schema in the path can make: where no operator of pg_catalog takes exactly these types, such a
-- one runs instead, with the rights of the person who pastes the statement.  A statement with one of these fails before it begins.
CREATE SCHEMA trap;
DO $$
DECLARE
    types text[] := '{oid,smallint,int,bigint,text,name,"\"char\"",regclass,regproc,regrole,regnamespace,xid,uuid,timestamptz,interval,jsonb}';
    op record;
BEGIN
    FOR op IN
        SELECT o.name, 'trap' || o.n AS trap, l.type AS l, r.type AS r, CASE o.name WHEN '||' THEN 'text' ELSE 'boolean' END AS result
        FROM unnest('{=,<>,<,>,~,||}'::text[]) WITH ORDINALITY AS o (name, n), unnest(types) AS l (type), unnest(types) AS r (type)
        WHERE to_regoperator(format('pg_catalog.%s(%s,%s)', o.name, l.type, r.type)) IS NULL
    LOOP
        EXECUTE format('CREATE FUNCTION trap.%I(%s, %s) RETURNS %s LANGUAGE internal AS ''textcat''', op.trap, op.l, op.r, op.result);
        EXECUTE format('CREATE OPERATOR trap.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = trap.%I)', op.name, op.l, op.r, op.trap);
    END LOOP;
    -- so that the executor does not find them, whether or not a row comes to the operator
    UPDATE pg_proc SET prosrc = format('%s(%s), of another role', proname, pg_get_function_arguments(oid)) WHERE pronamespace = 'trap'::regnamespace;
END
$$;
