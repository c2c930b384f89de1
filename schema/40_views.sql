-- Observation.  None of these reads a swept table but explain_row(), which reads one row by its key.

CREATE FUNCTION sweeper.explain_row(policy text, key text, OUT found boolean, OUT state text, OUT deadline timestamptz,
    OUT last_seen timestamptz, OUT last_heartbeat timestamptz, OUT verdict text, OUT reason text, OUT attempts int,
    OUT next_attempt timestamptz, OUT last_error text, OUT blocked_by int[], OUT ended_at timestamptz,
    OUT cleanup_type text, OUT hint text) RETURNS record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_explain_row';
CREATE FUNCTION sweeper.explain_sweep(policy text) RETURNS SETOF text
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_explain_sweep';
CREATE FUNCTION sweeper._database(OUT database oid, OUT state text, OUT next_due timestamptz,
    OUT work_failing_since timestamptz, OUT work_error text) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL RESTRICTED ROWS 4 AS 'MODULE_PATHNAME', 'ssw_stat_database';
CREATE FUNCTION sweeper._repair_hint(policy_id int) RETURNS text
LANGUAGE c STRICT VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_repair_hint_sql';

COMMENT ON FUNCTION sweeper.explain_row IS
'Shows why a row of a policy still exists, or does not. key is a text; a composite key is a row: (a,b).
verdict: alive, due, in grace, held by fuse, held, paused, locked, check unknown, quarantined, excluded by filter, no deadline, in retention, expired, not found, or unknown, because a node of a cluster does not answer. reason has details, hint is a statement to paste.
found: null if the row could not be read. state: the policy''s. last_heartbeat: from memory; it counts if it keeps the row longer than its deadline. attempts to last_error: the row''s failures. blocked_by: pids that lock it (0: a prepared transaction). ended_at and cleanup_type: of its cleanup event.
Reads one row as the table''s owner; changes and locks nothing. Errors: 42704 no such policy, 42501 not its owner and without level monitor, 22004 null.';
COMMENT ON FUNCTION sweeper.explain_sweep IS
'The statements that a pass over the policy runs on its table, and their plans, for at most eight leaves. It runs none of them, though a plan may call immutable functions in them.
A pass has variants of them, which are not shown: for ranges of rows, around hooks, after failures, in the middle of a pass, and while rows are held.
Parameters: $1 cutoff, $2 cutoff without grace, $3 rows, $4 keys, $5 now (find: $3 and $4 cursor, $5 limit; refresh: $4 rows, $5 their last heartbeats, $6 new and $7 old deadlines).
Errors: 42704 no such policy, 42501 not its owner and without level monitor, 55000 the relation no longer exists, or has another owner.';
COMMENT ON FUNCTION sweeper._database IS
'Databases that the launcher knows, from shared memory: whether it has the extension, when its coordinator is next due, since when its tasks fail to be processed, and the error.';
COMMENT ON FUNCTION sweeper._state IS
'State of each policy that the reader may see, and the reason, as in policy_status, problem and metrics. brakes: those that resume() releases. misfit: why the policy does not fit its table and functions. found_since: when the coordinator first found the policy in that state; null if it has not yet.';
COMMENT ON FUNCTION sweeper._repair_hint IS
'A statement after which a policy fits its table and functions again; null when it does already, or the caller may not see it.';

CREATE FUNCTION sweeper._misfit(policy text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('SELECT * FROM sweeper.policy WHERE policy = %1$L; -- then, with what fits: SELECT sweeper.alter_policy(%2$s, ...);',
                  policy, CASE WHEN policy ~ '[\r\n]' THEN '...' ELSE quote_literal(policy) END)
$$;
COMMENT ON FUNCTION sweeper._misfit IS 'What to do if no statement is known after which a policy fits its table and functions again.';

CREATE FUNCTION sweeper._again(policy text, sqlstate text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('SELECT sweeper.resume(%L);', policy)
        || CASE WHEN sqlstate IN ('42703', '42883', '42804', '42P01') THEN ' -- when there is what the error names; or give the policy what there is, with sweeper.alter_policy()'
                WHEN sqlstate = '42501' THEN ' -- after a GRANT, to the role that owns the table, of the right that the error names'
                WHEN sqlstate = '53100' THEN ' -- when there is room: a disk of the server is full' ELSE ' -- when the cause of the error is gone' END
$$;
COMMENT ON FUNCTION sweeper._again IS 'What an operator can do if a policy fails with that error.';

CREATE FUNCTION sweeper._decide(policy text, paused boolean, "group" text DEFAULT NULL) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('SELECT * FROM sweeper.preview(%1$L); -- then SELECT sweeper.resume(%2$s);%3$s',
                  policy, CASE WHEN concat(policy, "group") ~ '[\r\n]' THEN '...' ELSE concat_ws(', ', quote_literal(policy), CASE WHEN NOT paused THEN quote_literal("group") END) END,
                  CASE WHEN paused THEN ' which ends the pause, too'
                       ELSE format(' or SELECT sweeper.pause(%s);', CASE WHEN policy ~ '[\r\n]' THEN '...' ELSE quote_literal(policy) END) END)
$$;
COMMENT ON FUNCTION sweeper._decide IS 'What a person looks at before rows expire that a hold protects, and how to end the hold.';

-- In a name or a value that is quoted, a line break is a line break; any other such character is a key to a terminal, and may end the quote.
CREATE FUNCTION sweeper._pasteable(next_step text, otherwise text) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT CASE WHEN next_step ~ '[\u0001-\u0009\u000b-\u001f\u007f-\u009f]'
                THEN otherwise || ' -- the next step itself has control characters, which a terminal would obey' ELSE next_step END
$$;
COMMENT ON FUNCTION sweeper._pasteable IS 'The statement, or the other one if it has control characters.';

-- What is due is worked off in as many passes as it takes.
CREATE VIEW sweeper.stat_progress AS
SELECT p.policy, g.pass, g.phase, g.started_at, clock_timestamp() - g.started_at AS elapsed, g.done, g.rows_left,
       -- 100 only at the end
       trunc(100.0 * g.done / nullif(g.done + g.rows_left, 0), 1) AS percent,
       round(g.rate::numeric, 1) AS rows_per_second,
       -- before the first row, by the limit; no limit says when rows that fail are done
       CASE WHEN p.failures = 0 AND (g.done > 0 OR NOT (g.failed + g.skipped > 0
                 OR EXISTS (SELECT FROM sweeper.failed_row AS r WHERE r.policy_id = p.policy_id AND r.state = 'retrying')))
            THEN make_interval(secs => g.rows_left / least(coalesce(nullif(g.rate, 0), nullif(g.pace, 0), l.rows_per_second), l.rows_per_second)) END AS eta,
       g.expired, g.refreshed, g.repaired, g.failed, g.skipped, g.batches, g.workers, g.max_lag
FROM sweeper._progress() AS g
JOIN sweeper.policy AS p USING (policy_id)
CROSS JOIN LATERAL (SELECT CASE WHEN NOT g.forced THEN least(nullif(p.rate_limit, 0), CASE WHEN p.backlog_before IS NOT NULL THEN nullif(p.backlog_rate, 0) END) END
                           AS rows_per_second) AS l;
COMMENT ON VIEW sweeper.stat_progress IS 'Running passes, and policies whose due rows take several passes: what is done and left, how fast it goes, and when it is done.';
COMMENT ON COLUMN sweeper.stat_progress.pass IS 'Its row in table pass, or that of the last pass; null until the first row is found.';
COMMENT ON COLUMN sweeper.stat_progress.phase IS 'What the running pass reads: deadline, maximum age, nulls or end; or waiting: no pass runs now, because of a rate limit or a brake.';
COMMENT ON COLUMN sweeper.stat_progress.started_at IS 'When the first row was found, by this pass or by an earlier one. What follows counts from then on.';
COMMENT ON COLUMN sweeper.stat_progress.rows_left IS 'Due rows that are left, about. They are counted at the beginning and again from time to time. Null until the first row is found.';
COMMENT ON COLUMN sweeper.stat_progress.percent IS 'done, as a part of done and rows_left.';
COMMENT ON COLUMN sweeper.stat_progress.rows_per_second IS 'Rate of the last five seconds in which the policy could run. Time under a brake does not count.';
COMMENT ON COLUMN sweeper.stat_progress.eta IS 'Time left: rows_left at that rate, or at the limit that holds now, if that is lower. While no row is handled, the last rate counts. Null until the first row is found, while no rate is known, and while rows or the policy fail and none was processed.';

CREATE VIEW sweeper.policy_status AS
SELECT b.policy, b.relation, b.state, b.brakes,
       b.reason,
       b.last_look, b.next_look, b.last_pass_at, greatest(b.last_success, b.last_pass_at) AS last_success, b.oldest_due AS next_due,
       CASE WHEN b.oldest_due <= now() THEN b.oldest_due - b.keep_for END AS oldest_deadline,
       CASE WHEN b.oldest_due <= now() THEN now() - b.oldest_due END AS lag,
       CASE WHEN b.rows_left IS NOT NULL THEN b.rows_left
            -- at least these
            WHEN b.oldest_due <= now() THEN greatest(1, b.retrying, b.counted)
            WHEN b.counted IS NOT NULL THEN b.counted
            WHEN b.last_look IS NOT NULL AND (b.oldest_due IS NOT NULL OR b.state NOT IN ('throttled', 'outside window', 'paused', 'held', 'fuse')) THEN 0 END AS backlog,
       b.done, b.percent, b.rows_per_second, b.eta,
       coalesce(b.workers, 0) AS workers,
       coalesce(b.expired, 0) AS expired,
       b.last_error,
       sweeper._pasteable(CASE WHEN b.state = 'disabled' THEN 'ALTER SYSTEM SET session_sweeper.enabled = on; SELECT pg_reload_conf();'
            WHEN b.state = 'broken' AND b.failures = 0 THEN coalesce(sweeper._repair_hint(b.policy_id), sweeper._misfit(b.policy))
            WHEN b.state IN ('failing', 'broken') THEN coalesce(sweeper._repair_hint(b.policy_id), sweeper._again(b.policy, b.last_sqlstate))
            WHEN b.state IN ('not running', 'restart needed', 'read-only') THEN 'SELECT * FROM sweeper.problem;'
            WHEN b.state IN ('held', 'paused', 'fuse') OR 'fuse' = ANY (b.brakes) THEN
                 coalesce(CASE WHEN b.gone OR b.state = 'held' THEN sweeper._repair_hint(b.policy_id) END,
                          CASE WHEN coalesce(b.held_reason, CASE WHEN 'fuse' = ANY (b.brakes) THEN 'fuse' END) <> 'restored' THEN sweeper._decide(b.policy, b.state = 'paused') END,
                          format('SELECT sweeper.resume(%L);', b.policy)) END,
            format('SELECT * FROM sweeper.policy WHERE policy_id = %s;', b.policy_id)) AS next_step
FROM (SELECT p.*, t.state, t.reason, t.brakes, s.last_look, s.next_look, s.last_success, least(s.oldest_due, f.oldest_due) AS oldest_due, s.expired,
             f.retrying,
             -- while a brake is on: in an index, at registration, or by the fuse
             CASE WHEN t.state NOT IN ('waiting', 'running', 'grace') OR h.rows > 0 THEN greatest(coalesce(s.due_rows, CASE WHEN p.backlog_before IS NOT NULL THEN p.backlog_rows END), h.rows) END AS counted,
             g.done, g.rows_left, g.percent, g.rows_per_second, g.eta, g.workers,
             NOT EXISTS (SELECT FROM pg_catalog.pg_class AS r WHERE r.oid = p.relid) AS gone
      FROM sweeper.policy AS p
      JOIN sweeper._state() AS t USING (policy_id)
      LEFT JOIN sweeper._policy() AS s USING (policy_id)
      LEFT JOIN sweeper.stat_progress AS g USING (policy)
      -- rows that wait for their next attempt are late, too
      CROSS JOIN LATERAL (SELECT min(r.deadline) FILTER (WHERE isfinite(r.deadline) AND r.deadline <= now()) + p.keep_for AS oldest_due, count(*) AS retrying FROM sweeper.failed_row AS r
                          WHERE r.policy_id = p.policy_id AND r.state = 'retrying') AS f
      CROSS JOIN LATERAL (SELECT sum(o.rows)::bigint AS rows FROM sweeper.fuse_hold AS o WHERE o.policy_id = p.policy_id AND o.held_until > clock_timestamp()) AS h) AS b
-- those of users first
ORDER BY b.policy_id <= 100, b.policy;
COMMENT ON VIEW sweeper.policy_status IS 'One row per policy: its state, its brakes and the reason, the next look, the lag now, its backlog and the time left for it, its workers, rows expired since stat_reset(), and the next step.';
COMMENT ON COLUMN sweeper.policy_status.state IS 'The first that applies: standby, not running, restart needed (library and SQL have different versions), disabled, paused, held, fuse, broken, failing, off (a built-in policy whose retention is 0), read-only, locked, outside window, throttled (by max_wal_rate or max_replica_lag), running, grace, waiting (no pass and no brake: nothing is due, or due rows that failed or are locked wait for their next attempt).';
COMMENT ON COLUMN sweeper.policy_status.reason IS 'Why it is in that state; null if the state says all.';
COMMENT ON COLUMN sweeper.policy_status.brakes IS 'Every brake that is on; "fuse" even if it holds only some groups. resume() lifts them, except "broken" while the policy does not fit its table and functions: see next_step.';
COMMENT ON COLUMN sweeper.policy_status.last_pass_at IS 'When a pass that did something last completed.';
COMMENT ON COLUMN sweeper.policy_status.last_success IS 'When a look last succeeded: its pass completed, or nothing was due. A restart of the server forgets looks that found nothing.';
COMMENT ON COLUMN sweeper.policy_status.next_due IS 'When the earliest row known falls due, or did, keep_for and grace included; null when none is known. With a filter it may be a row that the filter leaves out.';
COMMENT ON COLUMN sweeper.policy_status.oldest_deadline IS 'Deadline of the oldest row that is due; null when none is.';
COMMENT ON COLUMN sweeper.policy_status.lag IS 'How long the oldest row known to be due has waited; null when none is known.';
COMMENT ON COLUMN sweeper.policy_status.backlog IS 'Approximate number of due rows that are not processed yet. They are counted while they are worked off; before that it is a lower bound. While a brake is on, entries of an index are counted; without such an index, what registration or the fuse has counted. Null if nothing is known: there was no look yet, or the policy is paused or held and only a pass can find what is due.';
COMMENT ON COLUMN sweeper.policy_status.done IS 'Rows processed since the backlog was found; null when nothing is being worked off. So are percent, rows_per_second and eta: see stat_progress.';
COMMENT ON COLUMN sweeper.policy_status.workers IS 'Workers that work on the policy now.';
COMMENT ON COLUMN sweeper.policy_status.last_error IS 'The last failure of the policy as a whole; it stays after the policy works again.';
COMMENT ON COLUMN sweeper.policy_status.next_step IS 'A statement to paste; null when nothing is wrong. See problem.';

CREATE VIEW sweeper.stat_process AS
SELECT 'session_sweeper ' || q.kind AS backend_type, q.pid, d.datname AS database, q.state, p.policy, g.pass, q.rows,
       q.started_at, q.state_since
FROM sweeper._process() AS q
LEFT JOIN pg_catalog.pg_database AS d ON d.oid = q.database
LEFT JOIN sweeper.policy AS p ON p.policy_id = q.policy_id
LEFT JOIN sweeper._progress() AS g ON g.policy_id = q.policy_id;
COMMENT ON VIEW sweeper.stat_process IS 'Processes of session_sweeper in this server. What they work on is shown only for this database.';
COMMENT ON COLUMN sweeper.stat_process.state IS 'starting, idle or busy.';
COMMENT ON COLUMN sweeper.stat_process.rows IS 'Rows acted on since the process started.';

CREATE VIEW sweeper.stat_policy AS
SELECT p.policy, s.stats_since, s.looks, s.passes, s.batches, s.expired, s.refreshed, s.repaired, s.failed, s.skipped,
       s.failed_passes, s.fuse_trips, s.max_lag, s.busy_seconds, s.duration_seconds,
       s.duration_bounds, s.duration_histogram, s.lag_seconds, s.lag_bounds, s.lag_histogram
FROM sweeper.policy AS p JOIN sweeper._policy() AS s USING (policy_id);
COMMENT ON VIEW sweeper.stat_policy IS 'Counters of each policy since stat_reset() or the last start, with histograms of pass duration and of lag.';
COMMENT ON COLUMN sweeper.stat_policy.looks IS 'Number of looks; most find nothing, so no pass follows.';
COMMENT ON COLUMN sweeper.stat_policy.skipped IS 'Rows left for later because they were locked or a trigger kept them.';
COMMENT ON COLUMN sweeper.stat_policy.max_lag IS 'The longest time from the moment a row was due to the commit that expired it.';
COMMENT ON COLUMN sweeper.stat_policy.busy_seconds IS 'Time in batches, over all workers.';
COMMENT ON COLUMN sweeper.stat_policy.duration_seconds IS 'Sum of the durations of its passes.';
COMMENT ON COLUMN sweeper.stat_policy.duration_histogram IS 'Passes up to each of duration_bounds (seconds), each counted once.';
COMMENT ON COLUMN sweeper.stat_policy.lag_seconds IS 'Sum of the lags of its expired rows.';
COMMENT ON COLUMN sweeper.stat_policy.lag_histogram IS 'Rows expired with a lag up to each of lag_bounds (seconds), each counted once.';

CREATE VIEW sweeper.stat_cleanup_daily AS
SELECT d.day, d.policy, d.cleanup_type, sum(d.cleaned)::bigint AS cleaned, sum(d.groups)::bigint AS groups,
       round(100.0 * sum(d.cleaned) / sum(sum(d.cleaned)) OVER (PARTITION BY d.day), 2) AS percent
FROM (SELECT date_trunc('day', e.cleaned_at) AS day, e.policy, e.cleanup_type, sum(e.count) AS cleaned, count(DISTINCT e."group") AS groups
      FROM sweeper.cleanup_event AS e WHERE e.cleaned_at >= now() - interval '7 days' GROUP BY 1, 2, 3) AS d
GROUP BY d.day, d.policy, d.cleanup_type;
COMMENT ON VIEW sweeper.stat_cleanup_daily IS 'Rows expired for each day, policy and cleanup type, and how many groups they belong to; the last seven days.';
COMMENT ON COLUMN sweeper.stat_cleanup_daily.day IS 'Start of the day in the reader''s time zone.';
COMMENT ON COLUMN sweeper.stat_cleanup_daily.percent IS 'Share of all rows that expired on that day and that the reader may see.';

CREATE VIEW sweeper.stat_cleanup_lag AS
SELECT e.policy, e.cleanup_type, sum(e.count)::bigint AS rows, justify_hours(make_interval(secs => avg(extract(epoch FROM e.after_deadline)))) AS avg_after_deadline,
       justify_hours(make_interval(secs => avg(extract(epoch FROM e.after_last_seen)))) AS avg_after_last_seen,
       round((avg(extract(epoch FROM e.after_last_seen)) / 60)::numeric, 2) AS minutes_after_last_seen, max(e.after_deadline) AS max_after_deadline
FROM (SELECT policy, cleanup_type, count, CASE WHEN isfinite(deadline) AND deadline <= cleaned_at THEN cleaned_at - deadline END AS after_deadline,
             CASE WHEN isfinite(last_seen) THEN cleaned_at - last_seen END AS after_last_seen
      FROM sweeper.cleanup_event WHERE cleaned_at >= now() - interval '7 days') AS e
GROUP BY e.policy, e.cleanup_type;
COMMENT ON VIEW sweeper.stat_cleanup_lag IS 'How long after their deadline and last activity rows were expired, by policy and cleanup type; the last seven days.';
COMMENT ON COLUMN sweeper.stat_cleanup_lag.rows IS 'Rows expired; the averages are over those whose events have the time.';
COMMENT ON COLUMN sweeper.stat_cleanup_lag.avg_after_deadline IS 'Of rows whose deadline had passed; keep_for is part of it.';
COMMENT ON COLUMN sweeper.stat_cleanup_lag.minutes_after_last_seen IS 'avg_after_last_seen in minutes.';
