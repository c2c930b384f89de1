-- What is wrong now.

-- pg_partition_tree() would wait for the lock that is looked for.
CREATE FUNCTION sweeper._lock_query(relation text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('WITH RECURSIVE t AS (SELECT %L::regclass::oid AS r UNION SELECT i.inhrelid FROM pg_inherits AS i JOIN t ON i.inhparent = t.r) '
                  'SELECT l.relation::regclass, l.pid, x.gid AS prepared, l.mode, l.granted, coalesce(a.xact_start, x.prepared) AS since, a.query FROM t JOIN pg_locks AS l ON (l.relation = t.r OR l.locktype = ''object'' AND l.classid = ''pg_class''::regclass::oid AND l.objsubid = -1 AND l.objid IN (SELECT policy_id::oid FROM sweeper.policy WHERE relid = t.r)) AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) LEFT JOIN pg_stat_activity AS a USING (pid) LEFT JOIN (pg_locks AS h JOIN pg_prepared_xacts AS x ON x.transaction = h.transactionid) ON l.pid IS NULL AND h.pid IS NULL AND h.virtualtransaction = l.virtualtransaction;', relation)
$$;
COMMENT ON FUNCTION sweeper._lock_query IS 'A statement that shows which transactions lock a relation, a part of it, or a policy of it.';

-- Each part has an index.  A queue is compared with five minutes ago only where a task has waited for so long.
CREATE VIEW sweeper._job_trouble WITH (security_barrier = true) AS
SELECT j.room, j.category, j.name, w.waiting, w.since, b.before, f.failed, f.failed_since, f.last_error,
       w.since < now() - interval '1 min' AND NOT EXISTS (
           SELECT FROM sweeper.job_worker AS o JOIN sweeper.session AS s ON s.session = o.worker AND s.status = 'active' WHERE o.job = j.job) AS without_worker
FROM sweeper.job AS j
LEFT JOIN (SELECT job, count(*) AS waiting, min(enqueued_at) AS since FROM sweeper.task WHERE status = 'enqueued' AND job IS NOT NULL GROUP BY job) AS w USING (job)
LEFT JOIN LATERAL (SELECT count(*) AS before FROM (
        SELECT FROM sweeper.task AS t WHERE t.job = j.job AND t.status = 'enqueued' AND t.enqueued_at <= now() - interval '5 min'
        UNION ALL SELECT FROM sweeper.task AS t WHERE t.job = j.job AND t.status IN ('claimed', 'running') AND t.worker IS NOT NULL
            AND t.enqueued_at <= now() - interval '5 min' AND t.claimed_at > now() - interval '5 min'
        UNION ALL SELECT FROM sweeper.task AS t WHERE t.job = j.job AND t.finished_at > now() - interval '5 min'
            AND t.enqueued_at <= now() - interval '5 min' AND coalesce(t.claimed_at, t.finished_at) > now() - interval '5 min') AS l) AS b ON w.since < now() - interval '5 min'
LEFT JOIN (SELECT job, count(*) FILTER (WHERE status = 'failed') AS failed, min(finished_at) FILTER (WHERE status = 'failed') AS failed_since,
                  (array_agg(error ORDER BY finished_at DESC) FILTER (WHERE status = 'failed'))[1] AS last_error
           FROM (SELECT job, status, error, finished_at FROM sweeper.task WHERE finished_at > now() - interval '1 hour' ORDER BY finished_at DESC LIMIT 1000) AS t
           WHERE job IS NOT NULL
           GROUP BY job HAVING count(*) FILTER (WHERE status = 'failed') >= 5 AND 2 * count(*) FILTER (WHERE status = 'failed') > count(*)) AS f USING (job)
WHERE (w.since < now() - interval '1 min' OR f.failed > 0) AND pg_catalog.has_function_privilege('sweeper._monitor()', 'EXECUTE');
COMMENT ON VIEW sweeper._job_trouble IS 'Jobs whose tasks have waited for a minute, with their number now and five minutes ago, and jobs of whose last tasks most have failed. For monitor.';

CREATE VIEW sweeper._full_pool WITH (security_barrier = true) AS
SELECT p.pool, p.seats, p.live, p.waiting, p.refused, p.last_refused, (SELECT max(s.acquired_at) FROM sweeper.session AS s WHERE s.pool = p.pool AND s.status = 'active') AS since
FROM sweeper.pool_status AS p WHERE p.seats > 0 AND p.free = 0;
COMMENT ON VIEW sweeper._full_pool IS 'Pools all of whose seats are taken, since when no seat has been acquired, and calls that found no seat today.';

CREATE FUNCTION sweeper._task_query(room text, category text, name text, status text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
    SELECT format('SELECT task, owner, enqueued_at, attempt, error FROM sweeper.list_tasks(rooms => ARRAY[%L], categories => ARRAY[%L], names => ARRAY[%L], statuses => ARRAY[%L]);', room, category, name, status)
$$;
COMMENT ON FUNCTION sweeper._task_query IS 'A statement that shows the tasks of a job in a state.';

CREATE VIEW sweeper.problem AS
SELECT p.severity, p.policy, p.problem, p.since, p.detail,
       sweeper._pasteable(p.next_step, coalesce((SELECT format('SELECT * FROM sweeper.policy WHERE policy_id = %s;', o.policy_id) FROM sweeper.policy AS o WHERE o.policy = p.policy),
                                                'SELECT policy, problem, detail FROM sweeper.problem;')) AS next_step
FROM (
SELECT 'critical' AS severity, NULL::text AS policy, 'library not preloaded' AS problem, NULL::timestamptz AS since,
       'Nothing is swept in this server.' AS detail,
       -- a role that cannot see the other libraries would remove them
       coalesce((SELECT format('ALTER SYSTEM SET shared_preload_libraries = %s; -- then restart the server', string_agg(quote_literal(l.name), ', ' ORDER BY l.n))
                 FROM pg_catalog.pg_settings AS s, unnest(array_append(string_to_array(s.setting, ','), 'session_sweeper')) WITH ORDINALITY AS u (name, n)
                 CROSS JOIN LATERAL (SELECT btrim(u.name, ' "') AS name, u.n) AS l
                 WHERE s.name = 'shared_preload_libraries' AND l.name <> '' HAVING count(*) > 0),
                'SHOW shared_preload_libraries; -- as a superuser: add session_sweeper to it, then restart the server') AS next_step
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
SELECT 'warning', NULL, 'database not swept', NULL, format('session_sweeper.databases does not list "%s".', current_database()),
       format('ALTER SYSTEM SET session_sweeper.databases = %L; SELECT pg_reload_conf();',
              concat_ws(', ', nullif(current_setting('session_sweeper.databases', true), ''), quote_ident(current_database())))
FROM sweeper._cluster() AS c WHERE c.preloaded AND NOT c.listed
UNION ALL
SELECT CASE WHEN c.slots_short_since < now() - interval '5 min' OR
                 current_setting('max_worker_processes')::int < 3 + (current_setting('max_logical_replication_workers')::int > 0)::int -- no worker ever has a place
            THEN 'critical' ELSE 'warning' END, NULL, 'worker slots short', c.slots_short_since, 'A process could not be started: all background worker slots are in use. Without a slot for the launcher, a coordinator and a worker nothing expires.',
       format('ALTER SYSTEM SET max_worker_processes = %s; -- then restart the server', current_setting('max_worker_processes')::int + 8)
FROM sweeper._cluster() AS c WHERE c.slots_short_since IS NOT NULL
UNION ALL
SELECT 'warning', NULL, 'heartbeat memory full', c.heartbeats_full_since,
       format('Memory holds %s heartbeats. Those of further sessions write their rows, or fail inside a transaction block.', c.most_heartbeats),
       format('ALTER SYSTEM SET session_sweeper.heartbeat_memory = %L; -- then restart the server', greatest(1, c.most_heartbeats * 136 / 1048576 + 1) || 'MB')
FROM sweeper._cluster() AS c WHERE c.heartbeats_full_since IS NOT NULL
UNION ALL
SELECT 'warning', NULL, 'policy slots short', NULL::timestamptz, format('All %s slots for policies in shared memory are in use, in all databases together. Further policies have no counters, and sweep() refuses them.', current_setting('session_sweeper.max_policies')),
       format('ALTER SYSTEM SET session_sweeper.max_policies = %s; -- then restart the server',
              -- those that have a place, and those of this database that have none
              100 * (1 + (current_setting('session_sweeper.max_policies')::int
                          + (SELECT count(*) FROM sweeper.policy AS p WHERE p.policy_id > 100 AND NOT EXISTS (SELECT FROM sweeper._policy() AS s WHERE s.policy_id = p.policy_id))) / 100))
FROM sweeper._cluster() AS c WHERE c.policies_full
UNION ALL
SELECT 'critical', NULL, 'tasks are not processed', b.work_failing_since, format('Commands, tasks of workers that ended, and appended rows wait: %s.', b.work_error),
       $$SELECT relation::regclass, pid, mode FROM pg_locks WHERE relation IN (SELECT oid FROM pg_class WHERE relnamespace = 'sweeper'::regnamespace::oid); -- look also for triggers on tables of schema sweeper$$
FROM sweeper._database() AS b JOIN pg_catalog.pg_database AS d ON d.oid = b.database
WHERE d.datname = pg_catalog.current_database() AND b.work_failing_since < now() - interval '10 s'
UNION ALL
SELECT 'warning', NULL, 'restart needed', NULL, format('Library %s and SQL %s differ.', v.library, v.sql), 'ALTER EXTENSION session_sweeper UPDATE; -- and restart the server'
FROM sweeper.version() AS v CROSS JOIN sweeper._cluster() AS c WHERE v.library <> v.sql
UNION ALL
SELECT 'critical', nullif(e.policy, ''), 'definitions not shared', e.since,
       format('The other nodes of the cluster do not get changes of %s: %s.', CASE WHEN e.policy = '' THEN 'policies' ELSE 'this policy' END, rtrim(e.error, '.')),
       coalesce(e.next_step, 'SELECT * FROM citus_check_cluster_node_health();')
FROM sweeper.sharing_error AS e WHERE e.sharing
UNION ALL
SELECT 'critical', NULL, 'definitions not shared', NULL, 'Nothing is swept here, so changes of policies reach neither the other nodes of the cluster nor this one.',
       'SELECT * FROM sweeper.problem;'
FROM sweeper._cluster() AS c WHERE c.preloaded AND NOT (c.enabled AND c.listed) AND EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname = 'citus')
UNION ALL
SELECT 'critical', nullif(e.policy, ''), 'definition not applied', e.since, format('This node does not do as the policy on the coordinator says: %s.', rtrim(e.error, '.')),
       coalesce(e.next_step, format('SELECT relation, owner_name, on_expire_name, is_alive_name FROM sweeper.policy WHERE policy = %L; -- on the coordinator', e.policy))
FROM sweeper.sharing_error AS e WHERE NOT e.sharing
UNION ALL
SELECT 'warning', p.policy, 'held: ' || p.held_reason, p.held_at, 'Nothing expires until the policy is resumed.',
       coalesce(sweeper._repair_hint(p.policy_id), CASE WHEN p.held_reason <> 'restored' THEN sweeper._decide(p.policy, p.paused_at IS NOT NULL AND (p.paused_until IS NULL OR p.paused_until > now())) END,
                format('SELECT sweeper.resume(%L);', p.policy))
FROM sweeper.policy AS p WHERE p.held_reason IS NOT NULL
UNION ALL
SELECT CASE WHEN a.paused THEN 'warning' ELSE 'critical' END, p.policy, 'fuse', f.held_at,
       format('%s. These rows are held until %s. %s', f.detail, date_trunc('second', f.held_until),
              CASE WHEN a.paused THEN format('The policy is paused%s: they do not expire before the pause ends.', ' until ' || date_trunc('second', p.paused_until))
                   ELSE 'Then they expire, unless the policy is paused.' END),
       -- a very long name would make the statement as long
       sweeper._decide(p.policy, a.paused, CASE WHEN octet_length(f."group") > 1000 THEN '...' ELSE f."group" END)
FROM sweeper.policy AS p JOIN sweeper.fuse_hold AS f USING (policy_id)
CROSS JOIN LATERAL (SELECT p.paused_at IS NOT NULL AND (p.paused_until IS NULL OR p.paused_until > now()) AS paused) AS a
WHERE f.held_until > clock_timestamp()
UNION ALL
SELECT CASE WHEN p.broken THEN 'critical' ELSE 'warning' END, p.policy, CASE WHEN p.broken THEN 'broken' ELSE 'failing' END,
       p.failing_since, concat_ws(' ', p.last_sqlstate, p.last_error),
       coalesce(sweeper._repair_hint(p.policy_id), sweeper._again(p.policy, p.last_sqlstate))
FROM sweeper.policy AS p JOIN sweeper._state() AS s USING (policy_id) WHERE p.failures > 0 AND s.misfit IS NULL AND s.state <> 'held'
UNION ALL
SELECT 'critical', p.policy, CASE WHEN s.misfit IS NOT NULL THEN 'broken' ELSE s.state END, s.found_since, coalesce(s.misfit, s.reason),
       CASE WHEN s.state = 'read-only' THEN
                 -- our processes are the bootstrap superuser's
                 coalesce((SELECT format('BEGIN READ WRITE; ALTER %s RESET default_transaction_read_only; COMMIT;',
                                         CASE WHEN r.setrole = 0 AND r.setdatabase <> 0 THEN format('DATABASE %I', d.datname)
                                              ELSE 'ROLE ' || coalesce(quote_ident(o.rolname), 'ALL') || coalesce(' IN DATABASE ' || quote_ident(d.datname), '') END)
                           FROM pg_catalog.pg_db_role_setting AS r CROSS JOIN unnest(r.setconfig) AS c
                           LEFT JOIN pg_catalog.pg_database AS d ON d.oid = r.setdatabase LEFT JOIN pg_catalog.pg_roles AS o ON o.oid = r.setrole
                           WHERE r.setrole IN (0, 10) AND (r.setdatabase = 0 OR d.datname = pg_catalog.current_database()) AND c LIKE 'default\_transaction\_read\_only=%'
                           ORDER BY r.setrole DESC, r.setdatabase DESC LIMIT 1),
                          'ALTER SYSTEM SET default_transaction_read_only = off; SELECT pg_reload_conf();')
            WHEN s.misfit IS NOT NULL OR s.state = 'broken' THEN coalesce(sweeper._repair_hint(p.policy_id), sweeper._misfit(p.policy))
            ELSE coalesce(sweeper._repair_hint(p.policy_id), format('SELECT sweeper.resume(%L);', p.policy)) END
FROM sweeper.policy AS p JOIN sweeper._state() AS s USING (policy_id)
-- what eight failures have broken has its row above
WHERE p.held_reason IS NULL AND (s.misfit IS NOT NULL OR s.state IN ('held', 'read-only') OR (s.state = 'broken' AND p.failures = 0))
UNION ALL
SELECT 'warning', l.policy, 'partition of another owner', NULL, format('%s belongs to %s and is not swept.', l.leaf::regclass, pg_catalog.pg_get_userbyid(r.relowner)),
       -- its triggers would run as the other
       format('SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = %L::regclass::oid;', l.leaf::regclass)
       || CASE WHEN l.leaf::regclass::text || l.owner_name ~ '[\r\n]' THEN '' ELSE format(' -- if these may run as role %I: ALTER TABLE %s OWNER TO %1$I;', l.owner_name, l.leaf::regclass) END
FROM (WITH RECURSIVE tree AS (
          SELECT p.policy, p.owner, p.owner_name, i.inhrelid AS leaf FROM sweeper.policy AS p
          JOIN pg_catalog.pg_class AS c ON c.oid = p.relid AND c.relowner = p.owner JOIN pg_catalog.pg_inherits AS i ON i.inhparent = p.relid
          UNION
          SELECT t.policy, t.owner, t.owner_name, i.inhrelid FROM tree AS t JOIN pg_catalog.pg_inherits AS i ON i.inhparent = t.leaf)
      SELECT * FROM tree) AS l JOIN pg_catalog.pg_class AS r ON r.oid = l.leaf
WHERE r.relowner <> l.owner AND r.relkind = 'r'
UNION ALL
SELECT 'warning', p.policy, 'paused for more than a day', p.paused_at, concat_ws(': ', p.paused_by, p.paused_reason),
       CASE WHEN p.held_reason <> 'restored' OR EXISTS (SELECT FROM sweeper.fuse_hold AS f WHERE f.policy_id = p.policy_id AND f.held_until > clock_timestamp())
            THEN sweeper._decide(p.policy, true) ELSE format('SELECT sweeper.resume(%L);', p.policy) END
FROM sweeper.policy AS p WHERE p.paused_at < now() - interval '1 day' AND (p.paused_until IS NULL OR p.paused_until > now())
UNION ALL
SELECT 'warning', p.policy, 'lag above max_lag', l.since,
       format(CASE WHEN s.oldest_due IS NULL THEN 'No pass has run for %s%s.' ELSE 'The oldest dead row is %s late%s.' END,
              date_trunc('second', now() - l.since), CASE WHEN t.state IN ('running', 'locked', 'throttled') THEN ': ' || t.reason END),
       CASE WHEN t.state = 'locked' THEN sweeper._lock_query(p.relation)
            WHEN t.state = 'throttled' AND t.reason LIKE 'max_wal_rate%' THEN
                 format('ALTER SYSTEM SET session_sweeper.max_wal_rate = %L; SELECT pg_reload_conf();', 2 * (SELECT setting::int FROM pg_catalog.pg_settings WHERE name = 'session_sweeper.max_wal_rate') || 'kB')
            WHEN t.state = 'throttled' THEN
                 'SELECT application_name, state, replay_lsn FROM pg_stat_replication UNION ALL SELECT slot_name, wal_status, confirmed_flush_lsn FROM pg_replication_slots;'
            WHEN t.reason LIKE 'rate_limit%' THEN format('SELECT sweeper.alter_policy(%L, rate_limit => %s);', p.policy, 2 * p.rate_limit)
            ELSE format('SELECT * FROM sweeper.stat_progress WHERE policy = %L;', p.policy) END
FROM sweeper.policy AS p JOIN sweeper._policy() AS s USING (policy_id) JOIN sweeper._state() AS t USING (policy_id) CROSS JOIN sweeper._cluster() AS c
-- what is due by an expression a pass alone can tell, and none comes so far; the next look is due after ten check_every at most
CROSS JOIN LATERAL (SELECT coalesce(s.oldest_due, CASE WHEN t.state = 'throttled' THEN greatest(s.last_success, p.last_pass_at, p.registered_at) + 10 * p.check_every END) AS since) AS l
WHERE c.listed AND l.since < now() - p.max_lag AND p.check_every > interval '0' AND p.backlog_before IS NULL AND t.state IN ('waiting', 'grace', 'running', 'locked', 'throttled', 'disabled', 'not running')
UNION ALL
SELECT 'warning', p.policy, 'rows fail again and again', min(f.first_at), format('%s dead rows are tried again; the last error: %s', count(*),
       (SELECT l.message FROM sweeper.failed_row AS l WHERE l.policy = p.policy AND l.state = 'retrying' AND l.class <> 'locked' ORDER BY l.last_at DESC LIMIT 1)),
       format('SELECT * FROM sweeper.failed_row WHERE policy = %L; -- fix what message says; then they expire by themselves, at the next attempt', p.policy)
FROM sweeper.policy AS p JOIN sweeper.failed_row AS f USING (policy_id)
WHERE f.state = 'retrying' AND f.class <> 'locked' AND f.first_at < now() - p.max_lag GROUP BY p.policy
UNION ALL
SELECT 'critical', p.policy, 'not looked at', coalesce(s.last_look, greatest(c.service_start, p.registered_at)),
       'The next look is overdue; the server log may say why.', 'SELECT * FROM sweeper.stat_process;'
FROM sweeper.policy AS p JOIN sweeper._state() AS t USING (policy_id) CROSS JOIN sweeper._cluster() AS c LEFT JOIN sweeper._policy() AS s USING (policy_id)
WHERE p.check_every > interval '0' AND t.state IN ('waiting', 'grace')
  -- looks at a policy without a slot are not recorded: see policy slots short
  AND CASE WHEN s.policy_id IS NOT NULL THEN s.next_look WHEN NOT c.policies_full THEN greatest(c.service_start, p.registered_at) END
      < now() - greatest(10 * p.check_every, interval '1 min')
UNION ALL
SELECT 'warning', p.policy, 'table locked', s.locked_since, 'Another transaction holds a lock on its table, or on a partition or child of it.',
       sweeper._lock_query(p.relation)
FROM sweeper.policy AS p JOIN sweeper._policy() AS s USING (policy_id) CROSS JOIN sweeper._cluster() AS c
WHERE c.enabled AND c.listed AND s.locked_since < now() - interval '1 min'
UNION ALL
SELECT 'warning', p.policy, 'pass waits for a worker', g.waits_since, 'Every worker is busy with other policies.',
       format('ALTER SYSTEM SET session_sweeper.max_workers = %s; SELECT pg_reload_conf();', current_setting('session_sweeper.max_workers')::int + 1)
FROM sweeper.policy AS p JOIN sweeper._progress() AS g USING (policy_id)
WHERE g.waits_since < clock_timestamp() - interval '1 min'
UNION ALL
SELECT 'warning', f.policy, 'quarantined rows', min(f.last_at), format('failed permanently: %s; the last error: %s', count(*),
       (SELECT l.message FROM sweeper.failed_row AS l WHERE l.policy = f.policy AND l.state = 'quarantined' ORDER BY l.last_at DESC LIMIT 1)),
       format('SELECT * FROM sweeper.failed_row WHERE policy = %L; -- fix what message says; then SELECT sweeper.resume(%s);', f.policy,
              CASE WHEN f.policy ~ '[\r\n]' THEN '...' ELSE quote_literal(f.policy) END)
FROM sweeper.failed_row AS f WHERE f.state = 'quarantined' GROUP BY f.policy
UNION ALL
SELECT 'warning', NULL, 'restored rows wait', s.waiting_since, format('Rows that role %s had appended to %s came with a dump: %s. They wait until flush() is called.', s.role, s.relation, s.restored),
       -- its role may have been created again, without its grants
       concat(CASE WHEN r.oid IS NULL THEN format('CREATE ROLE %I LOGIN; ', s.role) END,
              CASE WHEN r.oid IS NULL OR NOT has_schema_privilege(r.oid, 'sweeper', 'USAGE') OR NOT has_function_privilege(r.oid, 'sweeper.flush(regclass)', 'EXECUTE')
                   THEN format('SELECT sweeper.grant_access(%L, ''user''); ', quote_ident(s.role)) END,
              format('SET ROLE %I; CALL sweeper.flush(%L);', s.role, s.relation))
FROM sweeper.append_status AS s LEFT JOIN pg_catalog.pg_roles AS r ON r.rolname = s.role WHERE s.restored > 0
UNION ALL
SELECT 'warning', NULL, 'commands wait', t.since, format('Commands have waited for more than a minute: %s. At most session_sweeper.max_task_workers (%s) run, and fewer than session_sweeper.max_workers (%s).',
              t.commands, current_setting('session_sweeper.max_task_workers', true), current_setting('session_sweeper.max_workers', true)),
       CASE WHEN current_setting('session_sweeper.max_task_workers', true) = '0' THEN 'ALTER SYSTEM RESET session_sweeper.max_task_workers; SELECT pg_reload_conf();'
            WHEN current_setting('session_sweeper.max_workers', true) = '1' THEN 'ALTER SYSTEM SET session_sweeper.max_workers = 2; SELECT pg_reload_conf();'
            ELSE $$SELECT task, owner, summary, started_at FROM sweeper.list_tasks(statuses => '{running}'); -- then SELECT sweeper.cancel_task(...);$$ END
FROM sweeper._waiting_command AS t CROSS JOIN sweeper._cluster() AS c WHERE c.enabled AND c.listed AND t.commands > 0
UNION ALL
SELECT 'warning', NULL, 'appended rows wait', s.due_at, format('Rows that role %s has appended to %s are not written: %s. The server log says why.', s.role, s.relation, s.waiting),
       sweeper._lock_query(s.relation)
FROM sweeper.append_status AS s CROSS JOIN sweeper._cluster() AS c WHERE c.enabled AND c.listed AND s.due_at < now() - interval '1 min'
UNION ALL
SELECT 'warning', NULL, 'appended rows failed', s.failed_since, format('Rows that role %s had appended to %s could not be written: %s; the last error: %s', s.role, s.relation, s.failed, s.last_error),
       concat(CASE WHEN pg_catalog.to_regrole(quote_ident(s.role)) IS NOT NULL THEN format('SET ROLE %I; ', s.role) END,
              format('SELECT * FROM sweeper.append_failed_row WHERE relation = %L; -- then SELECT sweeper.append(relation::regclass, row_data) FROM sweeper.take_append_failed_rows(...);', s.relation))
FROM sweeper.append_status AS s WHERE s.failed > 0
UNION ALL
SELECT 'warning', NULL, CASE t.n WHEN 1 THEN 'tasks without a worker' WHEN 2 THEN 'queue grows' ELSE 'tasks fail again and again' END,
       CASE t.n WHEN 3 THEN j.failed_since ELSE j.since END,
       CASE t.n WHEN 1 THEN format('%s tasks wait for job %s:%s:%s, the oldest for more than a minute, and no living worker offers it.', j.waiting, j.room, j.category, j.name)
            WHEN 2 THEN format('%s tasks of job %s:%s:%s wait, %s more than five minutes ago.', j.waiting, j.room, j.category, j.name, j.waiting - j.before)
            ELSE format('%s of the last tasks of job %s:%s:%s have failed; the last error: %s', j.failed, j.room, j.category, j.name, j.last_error) END,
       CASE t.n WHEN 1 THEN sweeper._task_query(j.room, j.category, j.name, 'enqueued') || ' -- then start a worker that offers the job, or give up its tasks with drop_job()'
            WHEN 2 THEN 'SELECT worker_id, name, registered_at, tasks, jobs FROM sweeper.worker_status; -- then start more workers'
            ELSE sweeper._task_query(j.room, j.category, j.name, 'failed') END
FROM sweeper._job_trouble AS j CROSS JOIN generate_series(1, 3) AS t (n)
WHERE CASE t.n WHEN 1 THEN j.without_worker WHEN 2 THEN NOT j.without_worker AND j.waiting >= j.before + 10 ELSE j.failed > 0 END
UNION ALL
SELECT 'warning', NULL, CASE t.n WHEN 1 THEN 'pool full for long' ELSE 'seats refused' END, CASE t.n WHEN 1 THEN p.since ELSE least(p.since, p.last_refused) END,
       CASE t.n WHEN 1 THEN format('All %s seats of pool %s have been taken for %s.', p.seats, p.pool, date_trunc('second', now() - p.since))
            ELSE format('%s calls have found pool %s full today, the last one %s ago. Its seats: %s, taken: %s, sessions that wait: %s.',
                        p.refused, p.pool, date_trunc('second', greatest(now() - p.last_refused, '0')), p.seats, p.live, p.waiting) END,
       CASE t.n WHEN 1 THEN format('SELECT owner, acquired_at, last_heartbeat, expires_at FROM sweeper.live_session WHERE pool = %L ORDER BY acquired_at;', p.pool)
            ELSE format('SELECT sweeper.alter_pool(%L, seats => %s); -- if there may be so many', p.pool, p.live + p.waiting + 1) END
FROM sweeper._full_pool AS p CROSS JOIN generate_series(1, 2) AS t (n)
WHERE CASE t.n WHEN 1 THEN p.since < now() - interval '15 min' ELSE p.last_refused > now() - interval '5 min' END
UNION ALL
SELECT 'warning', f.policy, 'rows locked for long', min(f.first_at), format('dead rows that other transactions have locked: %s; the last one: %s', count(*),
       (SELECT l.message FROM sweeper.failed_row AS l WHERE l.policy = f.policy AND l.class = 'locked' ORDER BY l.last_at DESC LIMIT 1)),
       'SELECT pid::text AS holder, xact_start AS since, query FROM pg_stat_activity WHERE xact_start IS NOT NULL UNION ALL SELECT gid, prepared, ''prepared transaction'' FROM pg_prepared_xacts ORDER BY since;'
FROM sweeper.failed_row AS f WHERE f.class = 'locked' AND f.first_at < now() - interval '5 min' GROUP BY f.policy) AS p;
COMMENT ON VIEW sweeper.problem IS 'One row for each current problem, with a statement to paste; empty means healthy.';
COMMENT ON COLUMN sweeper.problem.severity IS 'critical: rows that should expire remain, or a person must decide; warning: may become critical.';
COMMENT ON COLUMN sweeper.problem.next_step IS 'A statement to paste. Where a person must decide, it only shows what to look at; the comment after it says what can be done then.';
COMMENT ON COLUMN sweeper.problem.policy IS 'Null if the problem concerns the server or the database.';
COMMENT ON COLUMN sweeper.problem.since IS 'For a policy that does not fit its table and functions: when the coordinator first saw it, since the start of the service. Null when not known: before it has seen it, and for partitions of another owner, policy slots short, and settings.';
