-- The sweeper of a database at a glance, for a terminal: problems first, then the 20
-- policies with most trouble.  In psql:
--
--     { cat monitoring/watch.sql; echo '\watch 1'; } | psql -XqAt DATABASE
--
-- Needs access level monitor.  Rates are counted from one run to the next of the same
-- session, or of the last five seconds of a backlog that is being worked off.  It keeps
-- its last numbers in a setting, watch.last.  "?": the backlog has not been counted.  On
-- a Citus cluster it shows all nodes, and names the node at the end of a line; the first
-- lines are of this server.
SET search_path = pg_catalog, pg_temp; -- no function of another role runs
WITH metric AS MATERIALIZED (SELECT regexp_replace(metric, '^session_sweeper_', '') AS name, labels, value FROM sweeper.metrics),
status AS MATERIALIZED (SELECT * FROM sweeper.policy_status_all),
problem AS MATERIALIZED (SELECT * FROM sweeper.problem_all),
nodes AS (SELECT count(DISTINCT node) > 1 AS many FROM status),
-- of this server with those that a person has ended
ended AS MATERIALIZED (
    SELECT sweeper._node() || ' ' || (labels ->> 'policy') AS id, sum(value) AS n FROM metric WHERE name = 'rows_ended_total' GROUP BY 1
    UNION ALL
    SELECT node || ' ' || policy, expired FROM status WHERE node <> sweeper._node() AND policy IS NOT NULL),
before AS MATERIALIZED (SELECT nullif(current_setting('watch.last', true), '')::jsonb AS last),
seen AS MATERIALIZED (
    SELECT jsonb_build_object('at', extract(epoch FROM clock_timestamp()),
               'heartbeats', sum(value) FILTER (WHERE name = 'heartbeats_total'),
               'ended', (SELECT jsonb_object_agg(id, n) FROM ended)) AS now
    FROM metric),
kept AS MATERIALIZED (SELECT now, last, (now ->> 'at')::float8 - (last ->> 'at')::float8 AS seconds, set_config('watch.last', now::text, false) FROM seen CROSS JOIN before),
cell AS (SELECT CASE WHEN getdatabaseencoding() = 'UTF8' AND pg_client_encoding() = 'UTF8' THEN chr(9608) ELSE '#' END AS dark,
                CASE WHEN getdatabaseencoding() = 'UTF8' AND pg_client_encoding() = 'UTF8' THEN chr(9617) ELSE '.' END AS light),
policy AS (
    SELECT s.node, s.policy, coalesce(nullif(array_to_string(s.brakes, '+'), ''), s.state) AS state, s.workers, s.lag, s.backlog, s.percent, s.eta, n.ended,
           coalesce(s.rows_per_second, greatest(0, n.ended - (k.last -> 'ended' ->> (s.node || ' ' || s.policy))::float8) / k.seconds) AS rate,
           least(1, coalesce(extract(epoch FROM s.lag) / nullif(extract(epoch FROM p.max_lag), 0), 0)) AS late,
           row_number() OVER (ORDER BY s.brakes = '{}' AND s.state = 'waiting', s.lag DESC NULLS LAST, s.backlog DESC NULLS LAST, s.policy LIKE 'sweeper.%', s.policy, s.node) AS place
    FROM status AS s LEFT JOIN sweeper.policy AS p USING (policy) CROSS JOIN kept AS k
    CROSS JOIN LATERAL (SELECT coalesce((k.now -> 'ended' ->> (s.node || ' ' || s.policy))::float8, 0) AS ended) AS n
    WHERE s.policy IS NULL OR s.policy NOT LIKE 'sweeper.%' OR s.lag IS NOT NULL OR s.brakes <> '{}' OR n.ended > 0),
line (section, rank, text) AS (
    SELECT 1, 0::float8, format('session_sweeper in %s at %s: %s', current_database(), clock_timestamp()::time(0),
        CASE WHEN (SELECT value FROM metric WHERE name = 'in_recovery') = 1 THEN 'a standby' WHEN (SELECT value FROM metric WHERE name = 'enabled') = 1 THEN 'on' ELSE 'OFF' END)
    UNION ALL
    SELECT 1, 1, format('%s   heartbeats %s, %s of %s sessions tracked   seats used %s',
        (SELECT string_agg(value || ' ' || (labels ->> 'kind'), ', ' ORDER BY labels ->> 'kind') FROM metric WHERE name = 'processes'),
        coalesce(round((((now ->> 'heartbeats')::float8 - (last ->> 'heartbeats')::float8) / seconds)::numeric) || '/s', now ->> 'heartbeats'),
        (SELECT value FROM metric WHERE name = 'tracked_sessions'), (SELECT value FROM metric WHERE name = 'tracked_sessions_max'),
        (SELECT value FROM metric WHERE name = 'seats_used'))
        || coalesce((SELECT '   tasks ' || string_agg(value || ' ' || (labels ->> 'status'), ', ' ORDER BY labels ->> 'status') FROM metric WHERE name = 'tasks'), '')
    FROM kept
    UNION ALL
    SELECT 2, '-Infinity', 'problems' || CASE WHEN NOT EXISTS (SELECT FROM problem) THEN ': none' ELSE '' END
    UNION ALL
    SELECT 2, CASE severity WHEN 'critical' THEN 0 ELSE 1 END, format('%-8s  %-20s %-24s %s', severity, left(coalesce(policy, ''), 20), problem, next_step) || CASE WHEN many THEN ' -- ' || node ELSE '' END
    FROM problem CROSS JOIN nodes
    UNION ALL
    SELECT 3, '-Infinity', format('%-20s %-10s %-31s %-27s %8s %9s %9s %8s', 'policy', 'state', 'lag, as a part of max_lag', 'done of the backlog', 'left', 'time left', 'ended', 'a second')
    UNION ALL
    SELECT 3, place,
           format('%-20s %-10s %s %-10s %s %6s %8s %9s %9s %8s', left(coalesce(policy, ''), 20), left(state, 10),
                  repeat(dark, ceil(20 * late)::int) || repeat(light, 20 - ceil(20 * late)::int), coalesce(date_trunc('second', lag)::text, '-'),
                  repeat(dark, floor(coalesce(percent, 0) / 5)::int) || repeat(light, 20 - floor(coalesce(percent, 0) / 5)::int), coalesce(percent || '%', '-'),
                  coalesce(backlog::text, '?'), coalesce(date_trunc('second', eta)::text, '-'), ended, coalesce(round(rate::numeric, 1)::text, '-')) || CASE WHEN many THEN '  ' || node ELSE '' END
    FROM policy CROSS JOIN cell CROSS JOIN nodes WHERE place <= 20
    UNION ALL
    SELECT 3, 'Infinity', format('... and %s more', count(*)) FROM policy WHERE place > 20 HAVING count(*) > 0
    UNION ALL
    SELECT 4, '-Infinity', 'last events'
    UNION ALL
    SELECT 4, -extract(epoch FROM cleaned_at), rtrim(format('%s  %-20s %-13s %-24s %s', to_char(cleaned_at, 'HH24:MI:SS.MS'), left(policy, 20), cleaned.type,
           left(CASE WHEN n > 1 THEN n || ' rows' ELSE key END, 24), left(reason, 40)))
    FROM (SELECT cleaned_at, policy, cleanup_type AS type, sum(count) AS n, min(key) AS key, min(reason) AS reason
          FROM (SELECT * FROM sweeper.cleanup_event_all WHERE cleaned_at > now() - interval '1 min' ORDER BY cleaned_at DESC LIMIT 5000) AS e
          GROUP BY 1, 2, 3 ORDER BY 1 DESC LIMIT 6) AS cleaned)
-- psql -A prints names and errors as they are: their control characters would write lines of others
SELECT CASE WHEN rank = '-Infinity' THEN E'\n' ELSE '' END || regexp_replace(text, '[\u0001-\u001f\u007f-\u009f]', '?', 'g') FROM line ORDER BY section, rank, text;
