-- Retention of the evidence, by ordinary policies.  They write no audit; their
-- time comes from session_sweeper.cleanup_event_retention, which holds for ended
-- sessions too, .pass_retention and .usage_event_retention.  The filter has a worker look for what is due, which the BRIN
-- index serves well; the oldest event it cannot find.

INSERT INTO sweeper.policy (policy, relid, relation, owner, owner_name, system_identifier, database, key, deadline,
    keep_for, filter, on_null, action, audit, notify_keys, check_every, max_lag, batch_size, max_workers, rate_limit,
    backlog_rate, soft_time_limit, hard_time_limit, lock_timeout, max_retries, fuse_fraction, fuse_min, heartbeats,
    search_path, allow_replicated, columns)
SELECT v.policy, v.relation::regclass, v.relation, r.oid, r.rolname, s.system_identifier, d.oid, v.key, v.deadline,
       v.keep_for, v.filter, 'ignore', 'delete', 'none', false, interval '1 min', interval '1 day', 0, 1, 0,
       0, interval '50 s', interval '55 s', interval '100 ms', 3, 1, 100, false,
       'pg_catalog, pg_temp', true, '{}'
FROM (VALUES ('sweeper.cleanup_event', 'sweeper.cleanup_event', '{}'::text[], 'cleaned_at', interval '90 days', 'cleaned_at IS NOT NULL'),
             ('sweeper.pass', 'sweeper.pass', '{pass}'::text[], 'started_at', interval '30 days', NULL),
             ('sweeper.usage_event', 'sweeper.usage_event', '{}'::text[], 'recorded_at', interval '0', 'recorded_at IS NOT NULL'),
             ('sweeper.ended_session', 'sweeper.session', '{session}'::text[], 'released_at', interval '90 days', 'status <> ''active''')) AS v (policy, relation, key, deadline, keep_for, filter),
     pg_catalog.pg_control_system() AS s, pg_catalog.pg_database AS d, pg_catalog.pg_roles AS r
WHERE d.datname = pg_catalog.current_database() AND r.rolname = current_user;

-- The sessions of the registry.  A heartbeat moves expires_at by the row's own ttl.  The end of
-- a session is the last evidence that it lived.  $5 is now.
INSERT INTO sweeper.policy (policy_id, policy, relid, relation, owner, owner_name, system_identifier, database, key, deadline, ttl, ttl_column,
    created, max_age, keep_for, filter, on_null, action, set_clause, group_by, audit, notify_keys, check_every, max_lag, batch_size,
    max_workers, rate_limit, backlog_rate, soft_time_limit, hard_time_limit, lock_timeout, max_retries, fuse_fraction, fuse_min,
    heartbeats, search_path, allow_replicated, columns)
SELECT 50, 'sweeper.session', 'sweeper.session'::regclass, 'sweeper.session', r.oid, r.rolname, s.system_identifier, d.oid, '{session}',
       'expires_at', interval '6 min', 'ttl', 'ends_at', interval '0', interval '0', 'status = ''active''', 'repair', 'update',
       'status = ''expired'', released_at = $5, ended_at = GREATEST(t.acquired_at, LEAST(t.ends_at,'
       ' CASE WHEN t.expires_at OPERATOR(pg_catalog.<=) $5 THEN GREATEST(t.last_seen_at, sweeper._last_heartbeat(t.session)) ELSE $5 END))',
       'pool', 'row', false, interval '1 s', interval '1 min', 0, 1, 0, 0, interval '50 s', interval '55 s', interval '500 ms', 3,
       0.5, 100, true, 'pg_catalog, pg_temp', true, '{}'
FROM pg_catalog.pg_control_system() AS s, pg_catalog.pg_database AS d, pg_catalog.pg_roles AS r
WHERE d.datname = pg_catalog.current_database() AND r.rolname = current_user;

-- Ended tasks are deleted, sooner if their owners have read the result.  The filters are those of the indexes, so that the
-- coordinator can probe them.
INSERT INTO sweeper.policy (policy_id, policy, relid, relation, owner, owner_name, system_identifier, database, key, deadline,
    keep_for, filter, on_null, action, set_clause, audit, notify_keys, check_every, max_lag, batch_size, max_workers, rate_limit,
    backlog_rate, soft_time_limit, hard_time_limit, lock_timeout, max_retries, fuse_fraction, fuse_min, heartbeats,
    search_path, allow_replicated, columns)
SELECT v.id, v.policy, 'sweeper.task'::regclass, 'sweeper.task', r.oid, r.rolname, s.system_identifier, d.oid, '{task}', v.deadline,
       v.keep_for, v.deadline || ' IS NOT NULL', 'ignore', 'delete', NULL, 'none', false, interval '1 min', interval '1 day', 0, 1, 0,
       0, interval '50 s', interval '55 s', interval '100 ms', 3, 1, 100, false, 'pg_catalog, pg_temp', true, '{}'
FROM (VALUES (52, 'sweeper.finished_task', 'finished_at', interval '7 days'), (53, 'sweeper.consumed_task', 'consumed_at', interval '1 day'))
         AS v (id, policy, deadline, keep_for),
     pg_catalog.pg_control_system() AS s, pg_catalog.pg_database AS d, pg_catalog.pg_roles AS r
WHERE d.datname = pg_catalog.current_database() AND r.rolname = current_user;

SELECT pg_catalog.setval('sweeper.policy_policy_id_seq', 100);
SELECT pg_catalog.pg_extension_config_dump('sweeper.policy', 'WHERE policy NOT LIKE ''sweeper.%''');
