-- What a monitoring system scrapes.  Nothing here reads a swept table.

CREATE FUNCTION sweeper._metric_families(OUT family text, OUT type text, OUT help text) RETURNS SETOF record
LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 40 SET search_path = pg_catalog, pg_temp AS $$
    SELECT 'session_sweeper_' || f.name, f.type, f.help FROM (VALUES
        ('enabled', 'gauge', 'Is the launcher running, and session_sweeper.enabled on?'),
        ('database_listed', 'gauge', 'Does session_sweeper.databases list this database? Else nothing is swept there, on purpose.'),
        ('in_recovery', 'gauge', 'Is this a standby? Nothing is swept there.'),
        ('looks_total', 'counter', 'Looks at policies; most find nothing and are no pass.'),
        ('passes_total', 'counter', 'Passes that did something.'),
        ('failed_passes_total', 'counter', 'Passes that failed for what is the policy''s.'),
        ('fuse_trips_total', 'counter', 'Passes that the fuse held.'),
        ('rows_ended_total', 'counter', 'Rows ended, by the type of the cleanup event.'),
        ('rows_refreshed_total', 'counter', 'Rows prolonged by heartbeats or checks.'),
        ('rows_repaired_total', 'counter', 'Rows without a deadline that were given one.'),
        ('rows_failed_total', 'counter', 'Rows that could not be ended, each time.'),
        ('rows_skipped_total', 'counter', 'Rows left for later because somebody held them or a trigger kept them.'),
        ('rows_quarantined', 'gauge', 'Rows that failed for good and are not tried again.'),
        ('rows_retrying', 'gauge', 'Rows that failed and are tried again.'),
        ('pass_duration_seconds', 'histogram', 'Duration of passes.'),
        ('lag_seconds', 'histogram', 'Time from a row''s due time to the commit of its end.'),
        ('overdue_seconds', 'gauge', 'How long the oldest row known to be due has waited; 0 when none was; none of a policy that cannot be looked at, or has not been, while none is known.'),
        ('max_lag_seconds', 'gauge', 'What is overdue for longer is a problem; not of policies looked at only when asked, nor before the backlog of registration is gone, nor in a database that is not listed.'),
        ('backlog_rows', 'gauge', 'Due rows, as far as they are counted.'),
        ('brake', 'gauge', 'Is the brake on (1) or not (0)?'),
        ('last_look_timestamp_seconds', 'gauge', 'When the policy was last looked at.'),
        ('last_success_timestamp_seconds', 'gauge', 'When a look at the policy last went well: a pass went through, or nothing was due.'),
        ('heartbeats_total', 'counter', 'Heartbeats of the cluster: fast from memory, slow with a look at the row, written with its row, gone, and error, which says nothing.'),
        ('heartbeats_without_room_total', 'counter', 'Heartbeats of the cluster for which memory had no room.'),
        ('notifications_skipped_total', 'counter', 'Notifications left out while the notification queue of the cluster was more than half full.'),
        ('tracked_sessions', 'gauge', 'Sessions of the cluster that memory knows.'),
        ('tracked_sessions_max', 'gauge', 'Sessions of the cluster that memory has room for.'),
        ('seats', 'gauge', 'Seats of the pool.'),
        ('seats_used', 'gauge', 'Seats taken, in all pools or in one.'),
        ('seats_over', 'gauge', 'Sessions beyond the seats, in all pools or in one.'),
        ('tasks', 'gauge', 'Tasks that have not ended, by state.'),
        ('tasks_ended_hour', 'gauge', 'Tasks that ended within the last hour, by state.'),
        ('appended_rows', 'gauge', 'Appended rows that wait to be written.'),
        ('appended_rows_failed', 'gauge', 'Appended rows that could not be written.'),
        ('appended_rows_overdue_seconds', 'gauge', 'How long the oldest appended row that is due has waited since; 0 when none is.'),
        ('processes', 'gauge', 'Processes of the cluster, by kind.'),
        ('worker_slots_short', 'gauge', 'Did a process find no background worker slot, when last tried?'),
        ('problems', 'gauge', 'Rows of view problem, by severity.')) AS f (name, type, help)
$$;
COMMENT ON FUNCTION sweeper._metric_families IS 'Names, Prometheus types and texts of the metrics.';

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
                 UNION ALL SELECT false, status, count(*) FROM sweeper.task WHERE command IS NOT NULL AND finished_at IS NULL GROUP BY status
                 UNION ALL SELECT true, status, count(*) FROM sweeper.task WHERE finished_at > now() - interval '1 hour' GROUP BY status) AS a
           GROUP BY a.ended, a.status) AS c USING (ended, status)
WHERE pg_catalog.has_function_privilege('sweeper._monitor()', 'EXECUTE');
COMMENT ON VIEW sweeper._metric_task IS 'Tasks by state, those that ended of the last hour; for monitor.';

CREATE VIEW sweeper.metrics WITH (security_invoker = true) AS
WITH stat AS MATERIALIZED (SELECT p.policy, s.* FROM sweeper.policy AS p JOIN sweeper._policy() AS s USING (policy_id)),
     -- between two tries it is waiting, and locked all the same
     status AS MATERIALIZED (SELECT t.policy, t.lag, t.next_due, t.state, t.backlog, t.last_look, t.last_success,
                                    t.brakes || CASE WHEN t.state IN ('throttled', 'outside window', 'read-only') THEN ARRAY[t.state] END
                                             || CASE WHEN s.locked_since IS NOT NULL AND c.enabled AND c.listed THEN '{locked}'::text[] END AS brakes
                             FROM sweeper.policy_status AS t LEFT JOIN stat AS s USING (policy) CROSS JOIN sweeper._cluster() AS c),
     cluster AS MATERIALIZED (SELECT * FROM sweeper._cluster()),
series (name, suffix, labels, value) AS (
    SELECT v.name, '', '{}'::jsonb, v.value::int::float8
    FROM cluster CROSS JOIN LATERAL (VALUES ('enabled', enabled AND launcher_pid IS NOT NULL), ('database_listed', listed), ('in_recovery', in_recovery),
        ('worker_slots_short', slots_short_since IS NOT NULL)) AS v (name, value)
    UNION ALL
    SELECT v.name, '', jsonb_build_object('policy', s.policy), v.value
    FROM stat AS s CROSS JOIN LATERAL (VALUES ('looks_total', s.looks), ('passes_total', s.passes), ('failed_passes_total', s.failed_passes),
        ('fuse_trips_total', s.fuse_trips), ('rows_refreshed_total', s.refreshed), ('rows_repaired_total', s.repaired),
        ('rows_failed_total', s.failed), ('rows_skipped_total', s.skipped)) AS v (name, value)
    UNION ALL
    SELECT 'rows_ended_total', '', jsonb_build_object('policy', s.policy, 'type', e.type), e.n
    FROM stat AS s CROSS JOIN LATERAL unnest('{zombie,expired,released,disconnected,manual}'::text[], s.ended) AS e (type, n)
    WHERE e.n > 0 OR e.type IN ('zombie', 'expired')
    UNION ALL
    SELECT 'pass_duration_seconds', h.suffix, jsonb_strip_nulls(jsonb_build_object('policy', s.policy, 'le', h.le)), h.value
    FROM stat AS s CROSS JOIN LATERAL sweeper._metric_histogram('{0.1,0.5,1,2.5,5,10,30,60,Infinity}', s.duration_histogram, s.duration_seconds) AS h
    UNION ALL
    SELECT 'lag_seconds', h.suffix, jsonb_strip_nulls(jsonb_build_object('policy', s.policy, 'le', h.le)), h.value
    FROM stat AS s CROSS JOIN LATERAL sweeper._metric_histogram('{0.1,0.25,0.5,1,2.5,5,10,60,300,Infinity}', s.lag_histogram, s.lag_seconds) AS h
    UNION ALL
    SELECT v.name, '', jsonb_build_object('policy', s.policy), v.value
    FROM status AS s CROSS JOIN LATERAL (VALUES ('overdue_seconds', CASE WHEN s.lag IS NOT NULL THEN extract(epoch FROM s.lag)::float8
             WHEN s.next_due IS NOT NULL OR s.last_look IS NOT NULL AND s.state IN ('waiting', 'running', 'grace') THEN 0 END), ('backlog_rows', s.backlog),
        ('last_look_timestamp_seconds', extract(epoch FROM s.last_look)::float8),
        ('last_success_timestamp_seconds', extract(epoch FROM s.last_success)::float8)) AS v (name, value)
    WHERE v.value IS NOT NULL
    UNION ALL
    SELECT 'max_lag_seconds', '', jsonb_build_object('policy', policy), extract(epoch FROM max_lag)::float8
    FROM sweeper.policy CROSS JOIN cluster WHERE listed AND check_every > interval '0' AND backlog_before IS NULL
    UNION ALL
    SELECT 'brake', '', jsonb_build_object('policy', s.policy, 'brake', b.brake), (b.brake = ANY (s.brakes))::int
    FROM status AS s CROSS JOIN unnest('{paused,held,fuse,failing,broken,throttled,outside window,locked,read-only}'::text[]) AS b (brake)
    UNION ALL
    SELECT CASE f.state WHEN 'quarantined' THEN 'rows_quarantined' ELSE 'rows_retrying' END, '', jsonb_build_object('policy', s.policy),
           coalesce(r.n, 0)
    FROM status AS s CROSS JOIN unnest('{quarantined,retrying}'::text[]) AS f (state)
    LEFT JOIN (SELECT policy, state, count(*) AS n FROM sweeper.failed_row GROUP BY 1, 2) AS r ON r.policy = s.policy AND r.state = f.state
    UNION ALL
    SELECT 'heartbeats_total', '', jsonb_build_object('result', h.result), h.n
    FROM cluster CROSS JOIN LATERAL unnest('{fast,slow,written,gone,error}'::text[], heartbeat_counts) AS h (result, n) WHERE h.n IS NOT NULL
    UNION ALL
    SELECT v.name, '', '{}', v.value
    FROM cluster CROSS JOIN LATERAL (VALUES ('heartbeats_without_room_total', heartbeats_refused), ('notifications_skipped_total', notifications_skipped), ('tracked_sessions', heartbeats),
        ('tracked_sessions_max', most_heartbeats)) AS v (name, value) WHERE v.value IS NOT NULL
    UNION ALL
    SELECT v.name, '', '{}', v.value
    FROM (SELECT coalesce(sum(live), 0) AS live, coalesce(sum(over_by), 0) AS over FROM sweeper.pool_status) AS p
    CROSS JOIN LATERAL (VALUES ('seats_used', p.live), ('seats_over', p.over)) AS v (name, value)
    UNION ALL
    SELECT 'tasks', '', jsonb_build_object('status', t.status), t.n FROM sweeper._metric_task AS t WHERE NOT t.ended
    UNION ALL
    SELECT 'tasks_ended_hour', '', jsonb_build_object('status', t.status), t.n FROM sweeper._metric_task AS t WHERE t.ended
    UNION ALL
    SELECT v.name, '', '{}', v.value
    FROM (SELECT coalesce(sum(waiting), 0) AS waiting, coalesce(sum(failed), 0) AS failed, greatest(0, extract(epoch FROM now() - min(due_at))) AS overdue FROM sweeper.append_status) AS a
    CROSS JOIN LATERAL (VALUES ('appended_rows', a.waiting), ('appended_rows_failed', a.failed), ('appended_rows_overdue_seconds', coalesce(a.overdue, 0))) AS v (name, value)
    UNION ALL
    SELECT 'processes', '', jsonb_build_object('kind', k.kind), (SELECT count(*) FROM sweeper._process() AS q WHERE q.kind = k.kind)
    FROM unnest('{launcher,coordinator,worker}'::text[]) AS k (kind)
    UNION ALL
    SELECT 'problems', '', jsonb_build_object('severity', s.severity), coalesce(p.n, 0)
    FROM unnest('{critical,warning}'::text[]) AS s (severity)
    LEFT JOIN (SELECT severity, count(*) AS n FROM sweeper.problem GROUP BY 1) AS p USING (severity))
SELECT f.family || s.suffix AS metric, f.type, s.labels || jsonb_build_object('datname', current_database()) AS labels, s.value::float8 AS value, f.family, f.help
FROM series AS s JOIN sweeper._metric_families() AS f ON f.family = 'session_sweeper_' || s.name;
COMMENT ON VIEW sweeper.metrics IS 'What Prometheus is told, a row a series; of policies that the reader may see. Counters are since stat_reset(), or the last start of the server; heartbeats, tracked sessions and processes are those of the cluster.';
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
    WITH series AS (
        SELECT m.family, m.metric, m.labels, m.value FROM sweeper.metrics AS m
        -- sums over a family count nobody twice
        WHERE NOT (metrics_text.pools AND m.family IN ('session_sweeper_seats_used', 'session_sweeper_seats_over'))
        UNION ALL
        SELECT f.family, f.family, jsonb_build_object('pool', p.pool, 'datname', current_database()), v.value
        FROM sweeper.pool_status AS p
        CROSS JOIN LATERAL (VALUES ('seats', p.seats::float8), ('seats_used', p.live), ('seats_over', p.over_by)) AS v (name, value)
        JOIN sweeper._metric_families() AS f ON f.family = 'session_sweeper_' || v.name
        WHERE metrics_text.pools AND v.value IS NOT NULL)
    SELECT string_agg(t.text, '' ORDER BY t.family)
    FROM (SELECT f.family, format(E'# HELP %1$s %2$s\n# TYPE %1$s %3$s\n', f.family, f.help, f.type) ||
                 string_agg(sweeper._metric_text(s.metric, s.labels, s.value) || E'\n', ''
                            ORDER BY s.labels - 'le', s.metric, CASE s.labels ->> 'le' WHEN '+Inf' THEN 'Infinity' ELSE s.labels ->> 'le' END::float8) AS text
          FROM sweeper._metric_families() AS f JOIN series AS s USING (family) GROUP BY f.family, f.help, f.type) AS t
$$;
COMMENT ON FUNCTION sweeper.metrics_text IS
'View metrics in the text format of Prometheus. pools: seats of each pool, in a label, instead of their sum; where pools are many, so are these. Errors: 42501 not granted.';
