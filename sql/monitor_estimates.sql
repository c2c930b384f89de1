-- No view, and no text of metrics, looks so costly that the server would compile
-- it first: that takes seconds, and they are read each few.
SHOW jit_above_cost;
CREATE FUNCTION estimate(query text) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE plan json;
BEGIN
    EXECUTE 'EXPLAIN (FORMAT json) ' || query INTO plan;
    RETURN plan -> 0 -> 'Plan' ->> 'Total Cost';
END $$;
SELECT viewname, estimate('TABLE sweeper.' || viewname) AS cost FROM pg_views
WHERE schemaname = 'sweeper' AND estimate('TABLE sweeper.' || viewname) > current_setting('jit_above_cost')::float8 ORDER BY 1;
DROP FUNCTION estimate(text);
