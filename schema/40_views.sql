-- Observation.  None of these reads a swept table.

CREATE VIEW sweeper.policy_status AS
SELECT p.policy, p.relation,
       CASE WHEN NOT c.preloaded OR c.launcher_pid IS NULL THEN 'not running'
            WHEN NOT c.enabled THEN 'disabled'
            WHEN p.paused_at IS NOT NULL AND (p.paused_until IS NULL OR p.paused_until > now()) THEN 'paused'
            WHEN p.held_reason IS NOT NULL THEN 'held'
            WHEN p.fuse_until > now() THEN 'fuse'
            WHEN p.broken THEN 'broken'
            WHEN p.failures > 0 THEN 'failing'
            -- the coordinator may not have seen yet that these are lifted
            WHEN s.state IN ('paused', 'fuse', 'failing') THEN 'waiting'
            -- a look that has found nothing yet
            WHEN s.state = 'running' AND g.pass IS NULL THEN 'waiting'
            ELSE coalesce(s.state, 'waiting') END AS state,
       array_remove(ARRAY[
            CASE WHEN p.paused_at IS NOT NULL AND (p.paused_until IS NULL OR p.paused_until > now()) THEN 'paused' END,
            CASE WHEN p.held_reason IS NOT NULL THEN 'held' END,
            CASE WHEN p.fuse_until > now() THEN 'fuse' END,
            CASE WHEN p.broken THEN 'broken' WHEN p.failures > 0 THEN 'failing' END], NULL) AS brakes,
       coalesce(nullif(concat_ws('; ', p.held_reason, p.paused_reason,
            CASE WHEN p.fuse_until > now() THEN p.fuse_detail END,
            CASE WHEN p.failures > 0 THEN p.last_error END), ''), s.reason) AS reason,
       s.last_look, s.next_look, p.last_pass_at, s.oldest_due AS next_due,
       CASE WHEN s.oldest_due < now() THEN now() - s.oldest_due END AS lag,
       coalesce(g.workers, 0) AS workers,
       coalesce(s.expired, 0) AS expired,
       p.last_error
FROM sweeper.policy AS p
CROSS JOIN sweeper._cluster() AS c
LEFT JOIN sweeper._policy() AS s USING (policy_id)
LEFT JOIN sweeper._progress() AS g USING (policy_id);
COMMENT ON VIEW sweeper.policy_status IS 'One row a policy: its state, the brakes on it and why, when it looks next, lag now, workers on it, rows expired since stat_reset().';

CREATE VIEW sweeper.stat_progress AS
SELECT p.policy, g.pass, g.phase, g.started_at, clock_timestamp() - g.started_at AS elapsed, g.done, g.total,
       round((g.done / greatest(extract(epoch FROM clock_timestamp() - g.started_at), 0.001))::numeric, 1) AS rows_per_second,
       g.expired, g.refreshed, g.repaired, g.failed, g.skipped, g.batches, g.workers, g.max_lag
FROM sweeper._progress() AS g JOIN sweeper.policy AS p USING (policy_id);
COMMENT ON VIEW sweeper.stat_progress IS 'Running passes: rows done, rows found so far (total grows while the pass reads on), rates and counts.';

CREATE VIEW sweeper.stat_process AS
SELECT 'session_sweeper ' || q.kind AS backend_type, q.pid, d.datname AS database, q.state,
       CASE WHEN d.datname = current_database() THEN p.policy END AS policy, q.rows, q.started_at, q.state_since
FROM sweeper._process() AS q
LEFT JOIN pg_catalog.pg_database AS d ON d.oid = q.database
LEFT JOIN sweeper.policy AS p ON p.policy_id = q.policy_id AND d.datname = current_database();
COMMENT ON VIEW sweeper.stat_process IS 'Processes of session_sweeper in the cluster.';

CREATE VIEW sweeper.stat_policy AS
SELECT p.policy, s.stats_since, s.looks, s.passes, s.batches, s.expired, s.refreshed, s.repaired, s.failed, s.skipped,
       s.failed_passes, s.fuse_trips, s.max_lag, s.busy_seconds, s.duration_seconds,
       ARRAY[0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 'Infinity']::float8[] AS duration_bounds, s.duration_histogram,
       s.lag_seconds, ARRAY[0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 300, 'Infinity']::float8[] AS lag_bounds, s.lag_histogram
FROM sweeper.policy AS p JOIN sweeper._policy() AS s USING (policy_id);
COMMENT ON VIEW sweeper.stat_policy IS 'Counters of each policy since stat_reset(), with histograms of pass duration and of lag (upper bounds in seconds).';

CREATE VIEW sweeper.problem AS
SELECT 'critical' AS severity, NULL::text AS policy, 'library not preloaded' AS problem, NULL::timestamptz AS since,
       'No sweep runs in this server.' AS detail, $$ALTER SYSTEM SET shared_preload_libraries = 'session_sweeper'; -- then restart the server$$ AS next_step
FROM sweeper._cluster() AS c WHERE NOT c.preloaded
UNION ALL
SELECT 'critical', NULL, 'launcher not running', NULL, 'The launcher has no process; the server log says why.',
       $$SELECT * FROM sweeper.stat_process;$$
FROM sweeper._cluster() AS c WHERE c.preloaded AND c.launcher_pid IS NULL AND NOT c.in_recovery
UNION ALL
SELECT 'warning', NULL, 'disabled', NULL, 'session_sweeper.enabled is off.',
       $$ALTER SYSTEM SET session_sweeper.enabled = on; SELECT pg_reload_conf();$$
FROM sweeper._cluster() AS c WHERE c.preloaded AND NOT c.enabled
UNION ALL
SELECT 'warning', NULL, 'worker slots short', c.slots_short_since, 'A process could not be started: all background worker slots are in use.',
       format('ALTER SYSTEM SET max_worker_processes = %s; -- then restart the server', current_setting('max_worker_processes')::int + 8)
FROM sweeper._cluster() AS c WHERE c.slots_short_since IS NOT NULL
UNION ALL
SELECT 'warning', NULL, 'restart needed', NULL, format('Library %s and SQL %s differ.', v.library, v.sql), 'ALTER EXTENSION session_sweeper UPDATE; -- and restart the server'
FROM sweeper.version() AS v CROSS JOIN sweeper._cluster() AS c WHERE v.library <> v.sql
UNION ALL
SELECT 'warning', p.policy, 'held: ' || p.held_reason, p.held_at, 'Nothing is removed until somebody confirms.',
       format('SELECT sweeper.resume(%L);', p.policy)
FROM sweeper.policy AS p WHERE p.held_reason IS NOT NULL
UNION ALL
SELECT 'critical', p.policy, 'fuse', p.fuse_at, p.fuse_detail, format('SELECT sweeper.resume(%L);', p.policy)
FROM sweeper.policy AS p WHERE p.fuse_until > now()
UNION ALL
SELECT CASE WHEN p.broken THEN 'critical' ELSE 'warning' END, p.policy, CASE WHEN p.broken THEN 'broken' ELSE 'failing' END,
       p.failing_since, concat_ws(' ', p.last_sqlstate, p.last_error), format('SELECT sweeper.resume(%L);', p.policy)
FROM sweeper.policy AS p WHERE p.failures > 0
UNION ALL
SELECT 'critical', p.policy, s.state, NULL, s.reason, format('SELECT sweeper.resume(%L);', p.policy)
FROM sweeper.policy AS p JOIN sweeper._policy() AS s USING (policy_id)
WHERE p.failures = 0 AND p.held_reason IS NULL AND s.state IN ('broken', 'held', 'read-only')
UNION ALL
SELECT 'warning', p.policy, 'paused for more than a day', p.paused_at, concat_ws(': ', p.paused_by, p.paused_reason),
       format('SELECT sweeper.resume(%L);', p.policy)
FROM sweeper.policy AS p WHERE p.paused_at < now() - interval '1 day' AND (p.paused_until IS NULL OR p.paused_until > now())
UNION ALL
SELECT 'warning', p.policy, 'lag above max_lag', s.oldest_due, format('The oldest dead row is %s late.', date_trunc('second', now() - s.oldest_due)),
       format('SELECT * FROM sweeper.stat_progress WHERE policy = %L;', p.policy)
FROM sweeper.policy AS p JOIN sweeper._policy() AS s USING (policy_id)
WHERE s.oldest_due < now() - p.max_lag AND p.backlog_before IS NULL AND s.state IN ('waiting', 'running')
UNION ALL
SELECT 'warning', f.policy, 'quarantined rows', min(f.last_at), format('%s rows failed for good; the last error: %s', count(*), max(f.message)),
       format('SELECT * FROM sweeper.failed_row WHERE policy = %L;', f.policy)
FROM sweeper.failed_row AS f WHERE f.state = 'quarantined' GROUP BY f.policy
UNION ALL
SELECT 'warning', f.policy, 'rows locked for long', min(f.first_at), format('%s dead rows are held by other transactions.', count(*)),
       'SELECT pid, xact_start, query FROM pg_stat_activity ORDER BY xact_start;'
FROM sweeper.failed_row AS f WHERE f.class = 'locked' AND f.first_at < now() - interval '5 min' GROUP BY f.policy;
COMMENT ON VIEW sweeper.problem IS 'One row for each present trouble, with a statement to paste; empty means healthy.';

CREATE VIEW sweeper.stat_cleanup_daily AS
SELECT date_trunc('day', e.cleaned_at) AS day, e.policy, e.cleanup_type, sum(e.count) AS cleaned, count(DISTINCT e."group") AS groups
FROM sweeper.cleanup_event AS e WHERE e.cleaned_at > now() - interval '7 days' GROUP BY 1, 2, 3;
COMMENT ON VIEW sweeper.stat_cleanup_daily IS 'Rows cleaned a day, policy and cleanup type, and how many groups they belong to; the last seven days.';

CREATE VIEW sweeper.stat_cleanup_lag AS
SELECT e.policy, count(*) AS rows, avg(e.cleaned_at - e.deadline) AS avg_after_deadline,
       avg(e.cleaned_at - e.last_seen) AS avg_after_last_seen, max(e.cleaned_at - e.deadline) AS max_after_deadline
FROM sweeper.cleanup_event AS e WHERE e.cleaned_at > now() - interval '7 days' GROUP BY e.policy;
COMMENT ON VIEW sweeper.stat_cleanup_lag IS 'How long after deadline and last activity rows were cleaned; the last seven days.';
