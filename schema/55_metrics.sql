-- What a monitoring system scrapes.  Nothing here reads a swept table.

-- The metrics themselves are a table in src/monitor/metrics.c.
CREATE FUNCTION sweeper._metric_families(OUT family text, OUT type text, OUT help text) RETURNS SETOF record
LANGUAGE c IMMUTABLE PARALLEL SAFE ROWS 40 AS 'MODULE_PATHNAME', 'ssw_metric_families';
COMMENT ON FUNCTION sweeper._metric_families IS 'Names, Prometheus types and texts of the metrics.';
CREATE FUNCTION sweeper._metrics(pools boolean, OUT metric text, OUT type text, OUT labels jsonb, OUT value float8, OUT family text, OUT help text) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 200 SET search_path = pg_catalog, pg_temp SET jit = off AS 'MODULE_PATHNAME', 'ssw_metrics';
COMMENT ON FUNCTION sweeper._metrics IS 'The series of all metrics, with the rights of the reader. pools: seats and sessions of each pool instead of their sum.';

-- A histogram of single counts as Prometheus has it: up to each bound, and all of them.
CREATE FUNCTION sweeper._metric_histogram(bounds float8[], counts bigint[], sum float8, OUT suffix text, OUT le text, OUT value float8) RETURNS SETOF record
LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 12 SET search_path = pg_catalog, pg_temp AS $$
    SELECT '_bucket', CASE WHEN b.bound = 'Infinity' THEN '+Inf' ELSE b.bound::text END, pg_catalog.sum(b.n) OVER (ORDER BY b.bound)::float8
    FROM unnest(bounds, counts) AS b (bound, n)
    UNION ALL SELECT '_sum', NULL, sum
    UNION ALL SELECT '_count', NULL, (SELECT pg_catalog.sum(n) FROM unnest(counts) AS c (n))::float8
$$;
COMMENT ON FUNCTION sweeper._metric_histogram IS 'The series of a histogram, from counts up to each bound.';

-- Each part has an index: tasks of workers that wait, or are held, commands, and what ended lately.
CREATE VIEW sweeper._metric_task WITH (security_barrier = true) AS
SELECT t.ended, t.status, coalesce(c.n, 0) AS n
FROM (SELECT false AS ended, unnest('{allocated,enqueued,claimed,running}'::text[]) AS status
      UNION ALL SELECT true, unnest('{completed,failed,cancelled,dropped}'::text[])) AS t
LEFT JOIN (SELECT a.ended, a.status, sum(a.n) AS n
           FROM (SELECT false AS ended, 'enqueued' AS status, count(*) AS n FROM sweeper.task WHERE status = 'enqueued' AND job IS NOT NULL AND command IS NULL
                 UNION ALL SELECT false, status, count(*) FROM sweeper.task WHERE status IN ('claimed', 'running') AND worker IS NOT NULL AND command IS NULL GROUP BY status
                 UNION ALL SELECT false, 'allocated', count(*) FROM sweeper.task WHERE status = 'allocated' AND command IS NULL
                 UNION ALL SELECT false, status, count(*) FROM sweeper.task WHERE command IS NOT NULL AND finished_at IS NULL GROUP BY status
                 UNION ALL SELECT true, status, count(*) FROM sweeper.task WHERE finished_at > now() - interval '1 hour' GROUP BY status) AS a
           GROUP BY a.ended, a.status) AS c USING (ended, status)
WHERE pg_catalog.has_function_privilege('sweeper._monitor()', 'EXECUTE');
COMMENT ON VIEW sweeper._metric_task IS 'Tasks by state; of ended tasks, those of the last hour. For monitor.';

CREATE VIEW sweeper.metrics WITH (security_invoker = true) AS SELECT * FROM sweeper._metrics(false);
COMMENT ON VIEW sweeper.metrics IS 'The metrics for Prometheus, one row per series, of the policies that the reader may see. Counters are since stat_reset(), or the last start of the server; heartbeats, tracked sessions and processes are those of the server.';
COMMENT ON COLUMN sweeper.metrics.family IS 'The metric without the suffix of a histogram.';

CREATE FUNCTION sweeper._metric_text(name text, labels jsonb, value float8) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT name || coalesce('{' || (SELECT string_agg(format('%s="%s"', l.key, replace(replace(replace(l.value, '\', '\\'), '"', '\"'), E'\n', '\n')), ',' ORDER BY l.key)
                                    FROM jsonb_each_text(labels) AS l) || '}', '') || ' ' ||
           CASE value WHEN 'Infinity' THEN '+Inf' WHEN '-Infinity' THEN '-Inf' ELSE value::text END
$$;
COMMENT ON FUNCTION sweeper._metric_text IS 'A line of the Prometheus exposition.';

CREATE FUNCTION sweeper.metrics_text(pools boolean DEFAULT false) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp SET jit = off AS $$
    SELECT string_agg(t.text, '' ORDER BY t.family)
    FROM (SELECT m.family, format(E'# HELP %1$s %2$s\n# TYPE %1$s %3$s\n', m.family, m.help, m.type) ||
                 string_agg(sweeper._metric_text(m.metric, m.labels, m.value) || E'\n', ''
                            ORDER BY m.labels - 'le', m.metric, CASE m.labels ->> 'le' WHEN '+Inf' THEN 'Infinity' ELSE m.labels ->> 'le' END::float8) AS text
          FROM sweeper._metrics(metrics_text.pools) AS m GROUP BY m.family, m.help, m.type) AS t
$$;
COMMENT ON FUNCTION sweeper.metrics_text IS
'View metrics in the text format of Prometheus. pools: seats and ended sessions of each pool, in a label, instead of their sum; where pools are many, so are these. Errors: 42501 not granted, 22004 null.';
