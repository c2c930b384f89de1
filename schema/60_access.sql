-- Access: what each role may see and do.

-- Two concurrent grants would conflict in the catalog.
CREATE FUNCTION sweeper._lock_access(role regrole) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    patience text := current_setting('lock_timeout');
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles AS r WHERE r.oid = role) THEN
        RAISE EXCEPTION 'role with OID % does not exist', role::oid USING ERRCODE = 'undefined_object';
    END IF;
    -- a role that may grant one policy can hold this lock for any time
    PERFORM set_config('lock_timeout', CASE patience WHEN '0' THEN '2s' ELSE patience END, true);
    BEGIN
        LOCK TABLE sweeper.preset IN SHARE ROW EXCLUSIVE MODE;
    EXCEPTION WHEN lock_not_available THEN
        RAISE EXCEPTION 'could not lock the access rights of session_sweeper within %', current_setting('lock_timeout') USING ERRCODE = 'lock_not_available',
            DETAIL = 'Another transaction that grants or revokes access has not ended.',
            HINT = format('Try again after it has ended, or set lock_timeout to wait longer. To find it: %s', sweeper._lock_query('sweeper.preset'));
    END;
    PERFORM set_config('lock_timeout', patience, true);
END
$$;
COMMENT ON FUNCTION sweeper._lock_access(regrole) IS
'Checks that the role exists, and makes other transactions that grant or revoke wait. Errors: 42704 no such role, 55P03 another transaction that grants or revokes has not ended within lock_timeout, 2 s if that is 0.';

CREATE FUNCTION sweeper._revoke_all(function text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET citus.enable_ddl_propagation = off AS $$
DECLARE
    grantee text;
BEGIN
    FOR grantee IN SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END
        FROM pg_proc AS p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
        WHERE p.oid = to_regprocedure(function) AND a.grantee <> p.proowner
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM %s', function, grantee);
    END LOOP;
END
$$;
-- What was dropped, or has another owner, has no users.
CREATE FUNCTION sweeper._forget_access(marker text) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET citus.enable_ddl_propagation = off AS $$
DECLARE
    name text := format('sweeper.%I()', marker);
    patience text := current_setting('lock_timeout');
BEGIN
    -- another transaction may just give it to a role; who gives that of a policy waits for the policy, which our caller has locked
    BEGIN
        PERFORM sweeper._lock_access(quote_ident(current_user)::regrole);
    EXCEPTION WHEN lock_not_available THEN
        IF marker NOT LIKE '\_user\_of\_policy\_%' THEN
            RAISE;
        END IF;
    END;
    -- who takes every access from a role changes this function, too
    PERFORM set_config('lock_timeout', CASE patience WHEN '0' THEN '2s' ELSE patience END, true);
    PERFORM sweeper._revoke_all(name);
    BEGIN
        EXECUTE format('DROP FUNCTION IF EXISTS %s', name);
    EXCEPTION WHEN dependent_objects_still_exist THEN
        -- any role can make a view of it
        NULL;
    END;
    PERFORM set_config('lock_timeout', patience, true);
END
$$;
-- Level user of one policy or pool is the right to execute a function that stands for it: membership, DROP ROLE and pg_dump treat
-- it as any other right.  It does not belong to the extension, so that it is dumped; it is dropped with the extension, on which its caller
-- makes it depend.
-- Access is given on each node of a Citus cluster, which would send only a part of it to the other nodes: it knows the schema, and not its members.
CREATE FUNCTION sweeper._set_access(role oid, marker text, granted boolean) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET citus.enable_ddl_propagation = off AS $$
DECLARE
    name text := format('sweeper.%I()', marker);
    kind text := CASE WHEN marker LIKE '\_user\_of\_policy\_%' THEN '\_user\_of\_policy\_%' ELSE '\_user\_of\_pool\_%' END;
    calls text := CASE WHEN kind = '\_user\_of\_policy\_%' THEN
        'sweeper.touch(text, text), sweeper.touch(text, bigint), sweeper.touch(text, uuid), sweeper._touch_here(text, text, text), sweeper._touch_many_here(text, text[], text), sweeper._touch_many_rows(text, text[], text), sweeper.touch_many(text, text[]), sweeper.is_live(text, text), sweeper._is_live_here(text, text, text), sweeper.expire(text, text[], text), sweeper._expire_here(text, text[], text), sweeper.explain_row(text, text)'
        ELSE 'sweeper.acquire, sweeper.acquire_wait, sweeper.release, sweeper.heartbeat(uuid), sweeper.heartbeat_many(uuid[]), sweeper.attach(uuid), sweeper.is_live(uuid), sweeper.claim_session' END;
BEGIN
    IF marker NOT LIKE '\_user\_of\_%' THEN
        RAISE EXCEPTION '"%" is not the function of a policy or pool', marker USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM sweeper._lock_access(role);
    IF NOT granted THEN
        IF to_regprocedure(name) IS NOT NULL THEN
            EXECUTE format('REVOKE ALL ON FUNCTION %s FROM %s', name, role::regrole);
        END IF;
        -- with the last one, and without a level, it calls nothing more
        IF NOT EXISTS (SELECT FROM pg_proc AS p, aclexplode(p.proacl) AS a WHERE p.pronamespace = 'sweeper'::regnamespace::oid AND a.grantee = role
                       AND (p.proname IN ('_user', '_monitor', '_admin') OR p.proname LIKE kind)) THEN
            EXECUTE format('REVOKE EXECUTE ON ROUTINE %s FROM %s', calls, role::regrole);
        END IF;
        RETURN;
    END IF;
    IF to_regprocedure(name) IS NULL THEN
        EXECUTE format('CREATE FUNCTION %s RETURNS void LANGUAGE sql AS %L', name, '');
        -- nor have roles that ALTER DEFAULT PRIVILEGES names
        PERFORM sweeper._revoke_all(name);
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA sweeper TO %s', role::regrole);
    EXECUTE format('GRANT EXECUTE ON ROUTINE %s, %s TO %s', name, calls, role::regrole);
END
$$;
CREATE FUNCTION sweeper._give_access(role oid, policy text, pool text, granted boolean) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_give_access';
CREATE FUNCTION sweeper._may_give_levels() RETURNS void
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT (SELECT pg_has_role(e.extowner, 'USAGE') FROM pg_extension AS e WHERE e.extname = 'session_sweeper') THEN
        RAISE EXCEPTION 'permission denied for the access levels of session_sweeper' USING ERRCODE = 'insufficient_privilege',
            HINT = 'Only the owner of the extension gives and takes them. The owner of a policy can give the level of that policy: name the policy.';
    END IF;
END
$$;
CREATE FUNCTION sweeper.grant_access(role regrole, level text, policy text DEFAULT NULL, pool text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET citus.enable_ddl_propagation = off AS $$
BEGIN
    IF role IS NULL OR level IS NULL THEN
        RAISE EXCEPTION 'role and level must not be null' USING ERRCODE = 'null_value_not_allowed';
    END IF;
    IF level NOT IN ('user', 'monitor', 'admin') THEN
        RAISE EXCEPTION 'level must not be "%"', level USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Use one of "user", "monitor", "admin".';
    END IF;
    IF policy IS NOT NULL OR pool IS NOT NULL THEN
        IF level <> 'user' THEN
            RAISE EXCEPTION 'level "%" cannot be granted for one policy or pool', level USING ERRCODE = 'invalid_parameter_value',
                HINT = 'For one policy or pool, only level "user" exists.';
        END IF;
        PERFORM sweeper._give_access(role, policy, pool, true);
        RETURN;
    END IF;
    PERFORM sweeper._may_give_levels();
    PERFORM sweeper._lock_access(role);
    EXECUTE format('GRANT USAGE ON SCHEMA sweeper TO %s', role);
    EXECUTE format('GRANT SELECT ON sweeper.policy, sweeper.policy_change, sweeper.pass, sweeper.cleanup_event,
        sweeper.failed_row, sweeper.fuse_hold, sweeper.sharing_error, sweeper.policy_status, sweeper.stat_progress, sweeper.stat_process, sweeper.stat_policy,
        sweeper.problem, sweeper.stat_cleanup_daily, sweeper.stat_cleanup_lag, sweeper.preset, sweeper.adoptable,
        sweeper.pool, sweeper.session, sweeper.usage_event, sweeper.pool_day, sweeper.pool_month, sweeper.pool_status, sweeper.live_session, sweeper.stat_pool_cleanup,
        sweeper.job_status, sweeper.worker_status, sweeper.provider_status,
        sweeper.policy_status_all, sweeper.problem_all, sweeper.stat_progress_all, sweeper.pass_all, sweeper.cleanup_event_all,
        sweeper.append_status, sweeper.append_failed_row, sweeper.metrics, sweeper._metric_task, sweeper._waiting_command, sweeper._job_trouble, sweeper._full_pool TO %s', role);
    EXECUTE format('GRANT EXECUTE ON FUNCTION sweeper._process(), sweeper._progress(), sweeper._policy(), sweeper._state(), sweeper._cluster(),
        sweeper._library(), sweeper.version(), sweeper.explain_row(text, text), sweeper.explain_sweep(text), sweeper.preview(text), sweeper._matches(oid, text[], text[]), sweeper._surplus(oid, text[], text[]), sweeper._indexed(oid, text), sweeper._presets(oid), sweeper._repair_hint(int), sweeper._misfit(text), sweeper._again(text, text), sweeper._decide(text, boolean, text), sweeper._pasteable(text, text), sweeper._lock_query(text), sweeper._task_query(text, text, text, text), sweeper._last_heartbeat(uuid), sweeper._dead_sessions(), sweeper._node(), sweeper._node_rows(text), sweeper._other_nodes(text), sweeper._database(), sweeper._pool_counts(), sweeper._waiting(text),
        sweeper.metrics_text(boolean), sweeper._metrics(boolean), sweeper._metric_families(), sweeper._metric_histogram(float8[], bigint[], float8), sweeper._metric_text(text, jsonb, float8) TO %s', role);
    IF level = 'monitor' THEN
        EXECUTE format('GRANT EXECUTE ON FUNCTION sweeper._monitor(), sweeper.get_task, sweeper.list_tasks, sweeper._task_progress(uuid) TO %s', role);
        EXECUTE format('GRANT SELECT ON sweeper.task_info, sweeper.task_detail, sweeper.stat_task TO %s', role);
        RETURN;
    END IF;
    EXECUTE format('GRANT EXECUTE ON FUNCTION sweeper._user(), sweeper.grant_access, sweeper.revoke_access, sweeper._give_access, sweeper._may_give_levels, sweeper.register, sweeper.alter_policy, sweeper.adopt, sweeper.unregister(text),
        sweeper.pause(text, text, timestamptz), sweeper.resume(text, text), sweeper.pause_all(text, timestamptz), sweeper.resume_all(),
        sweeper.retry_row(text, text), sweeper.stat_reset(text),
        sweeper.expire(text, text[], text), sweeper._expire_here(text, text[], text), sweeper.expire_group(text, text, text),
        sweeper.touch(text, text), sweeper.touch(text, bigint), sweeper.touch(text, uuid), sweeper._touch_here(text, text, text), sweeper._touch_many_here(text, text[], text), sweeper._touch_many_rows(text, text[], text), sweeper.touch_many(text, text[]),
        sweeper.is_live(text, text), sweeper._is_live_here(text, text, text), sweeper.is_live(uuid), sweeper.heartbeat(uuid), sweeper.heartbeat_many(uuid[]), sweeper.attach(uuid),
        sweeper.acquire, sweeper.release, sweeper.claim_session,
        sweeper.register_worker, sweeper.register_job, sweeper.create_job, sweeper.drop_job, sweeper.register_provider, sweeper.unregister_provider, sweeper.submit, sweeper.submit_many, sweeper.submit_sql, sweeper.claim,
        sweeper.start_task, sweeper.task_progress, sweeper.finish_task, sweeper.cancel_task, sweeper.retry_task, sweeper.get_task, sweeper.list_tasks,
        sweeper.append, sweeper.append_many, sweeper.alter_append, sweeper.take_append_failed_rows, sweeper.schedule, sweeper.unschedule TO %s', role);
    EXECUTE format('GRANT EXECUTE ON PROCEDURE sweeper.sweep, sweeper.flush, sweeper.acquire_wait, sweeper.claim_wait, sweeper.wait_for_task TO %s', role);
    IF level = 'admin' THEN
        EXECUTE format('GRANT EXECUTE ON FUNCTION sweeper._admin(), sweeper._monitor(),
            sweeper.create_pool, sweeper.alter_pool, sweeper.drop_pool TO %s', role);
    END IF;
END
$$;
CREATE FUNCTION sweeper.revoke_access(role regrole, policy text DEFAULT NULL, pool text DEFAULT NULL) RETURNS void
LANGUAGE plpgsql VOLATILE SET search_path = pg_catalog, pg_temp SET citus.enable_ddl_propagation = off AS $$
BEGIN
    IF role IS NULL THEN
        RAISE EXCEPTION 'role must not be null' USING ERRCODE = 'null_value_not_allowed';
    END IF;
    IF policy IS NOT NULL OR pool IS NOT NULL THEN
        PERFORM sweeper._give_access(role, policy, pool, false);
        RETURN;
    END IF;
    PERFORM sweeper._may_give_levels();
    PERFORM sweeper._lock_access(role);
    EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA sweeper FROM %s', role);
    EXECUTE format('REVOKE ALL ON ALL ROUTINES IN SCHEMA sweeper FROM %s', role);
    EXECUTE format('REVOKE ALL ON SCHEMA sweeper FROM %s', role);
END
$$;
COMMENT ON FUNCTION sweeper.grant_access IS
'Gives a role an access level. Run by the extension''s owner. user: register its own tables and control those policies, send heartbeats, acquire and release sessions, be a worker, submit tasks, append rows. monitor: see everything. admin: also pause, resume and limit any policy, but change no code; create, alter and drop pools, and end any session.
With a policy or a pool, gives level user for that policy or pool only: touch(), is_live(), expire() and explain_row() for its rows, without rights on the table and regardless of its row security; or acquire() and acquire_wait() in that pool. Run by the policy''s owner or level admin, for a pool by level admin.
Errors: 22023 unknown level, or a policy and a pool, 42704 no such role, policy or pool, 42501 not allowed, 22004 null, 55P03 another transaction that grants or revokes has not ended within lock_timeout, 2 s if that is 0.';
COMMENT ON FUNCTION sweeper.revoke_access IS
'Takes every access level from a role, also those of policies and pools. Run by the extension''s owner. With a policy or a pool, takes that level alone; run by a role that may give it. Errors: as grant_access().';
COMMENT ON FUNCTION sweeper._give_access IS 'Gives or takes level user of a policy or a pool. Errors: as grant_access().';
COMMENT ON FUNCTION sweeper._revoke_all IS 'Takes every right on a function from all roles but its owner.';
COMMENT ON FUNCTION sweeper._forget_access IS 'Drops the function that stands for a policy or a pool; where a view or another function uses it, nobody may execute it any more. Called as the extension''s owner. Errors: 55P03 another transaction gives or takes access.';
COMMENT ON FUNCTION sweeper._set_access IS 'Gives or takes the right to execute the function that stands for a policy or a pool; called by _give_access(), as the extension''s owner. Errors: 22023 another function, 42704 no such role, 22004 null.';
COMMENT ON FUNCTION sweeper._may_give_levels IS 'Raises an error unless the caller may give access levels. Errors: 42501.';

ALTER TABLE sweeper.policy ENABLE ROW LEVEL SECURITY;
ALTER TABLE sweeper.policy_change ENABLE ROW LEVEL SECURITY;
ALTER TABLE sweeper.pass ENABLE ROW LEVEL SECURITY;
ALTER TABLE sweeper.cleanup_event ENABLE ROW LEVEL SECURITY;
ALTER TABLE sweeper.failed_row ENABLE ROW LEVEL SECURITY;
ALTER TABLE sweeper.fuse_hold ENABLE ROW LEVEL SECURITY;
ALTER TABLE sweeper.sharing_error ENABLE ROW LEVEL SECURITY;
ALTER TABLE sweeper.session ENABLE ROW LEVEL SECURITY;
ALTER TABLE sweeper.usage_event ENABLE ROW LEVEL SECURITY;
CREATE POLICY visible ON sweeper.policy FOR SELECT
    -- after a restore into another cluster the OIDs may be those of another role and table
    USING (pg_catalog.pg_has_role(CASE WHEN system_identifier = (SELECT c.system_identifier FROM pg_catalog.pg_control_system() AS c) THEN owner
                                       ELSE pg_catalog.to_regrole(pg_catalog.quote_ident(owner_name))::oid END, 'USAGE')
           OR pg_catalog.has_function_privilege('sweeper._monitor()', 'EXECUTE')
           -- its owner of today must find out why nothing expires
           OR pg_catalog.pg_has_role((SELECT r.relowner FROM pg_catalog.pg_class AS r WHERE r.oid = relid
                                      AND system_identifier = (SELECT c.system_identifier FROM pg_catalog.pg_control_system() AS c)), 'USAGE'));
CREATE POLICY visible ON sweeper.policy_change FOR SELECT
    USING (policy_id IN (SELECT p.policy_id FROM sweeper.policy AS p) OR pg_catalog.has_function_privilege('sweeper._monitor()', 'EXECUTE'));
CREATE POLICY visible ON sweeper.pass FOR SELECT
    USING (policy_id IN (SELECT p.policy_id FROM sweeper.policy AS p) OR pg_catalog.has_function_privilege('sweeper._monitor()', 'EXECUTE'));
CREATE POLICY visible ON sweeper.cleanup_event FOR SELECT
    USING (policy_id IN (SELECT p.policy_id FROM sweeper.policy AS p) OR pg_catalog.has_function_privilege('sweeper._monitor()', 'EXECUTE'));
CREATE POLICY visible ON sweeper.failed_row FOR SELECT
    USING (policy_id IN (SELECT p.policy_id FROM sweeper.policy AS p) OR pg_catalog.has_function_privilege('sweeper._monitor()', 'EXECUTE'));
CREATE POLICY visible ON sweeper.fuse_hold FOR SELECT
    USING (policy_id IN (SELECT p.policy_id FROM sweeper.policy AS p) OR pg_catalog.has_function_privilege('sweeper._monitor()', 'EXECUTE'));
CREATE POLICY visible ON sweeper.sharing_error FOR SELECT
    USING (policy = '' OR policy IN (SELECT p.policy FROM sweeper.policy AS p) OR pg_catalog.has_function_privilege('sweeper._monitor()', 'EXECUTE'));
CREATE POLICY visible ON sweeper.session FOR SELECT
    USING (pg_catalog.pg_has_role(pg_catalog.to_regrole(pg_catalog.quote_ident(acquired_by))::oid, 'USAGE')
           OR pg_catalog.has_function_privilege('sweeper._monitor()', 'EXECUTE'));
CREATE POLICY visible ON sweeper.usage_event FOR SELECT
    USING (pg_catalog.has_function_privilege('sweeper._monitor()', 'EXECUTE'));

-- Members of pg_write_all_data may write every table without row security, and every updatable view; these tables decide
-- which code runs as which role.
ALTER TABLE sweeper.shared_policy ENABLE ROW LEVEL SECURITY;
ALTER TABLE sweeper.shard_arrival ENABLE ROW LEVEL SECURITY;
ALTER TABLE sweeper.preset ENABLE ROW LEVEL SECURITY;
ALTER TABLE sweeper.service_mark ENABLE ROW LEVEL SECURITY;
ALTER TABLE sweeper.pool ENABLE ROW LEVEL SECURITY;
ALTER TABLE sweeper.pool_day ENABLE ROW LEVEL SECURITY;
ALTER TABLE sweeper.job ENABLE ROW LEVEL SECURITY;
ALTER TABLE sweeper.job_worker ENABLE ROW LEVEL SECURITY;
ALTER TABLE sweeper.provider ENABLE ROW LEVEL SECURITY;
ALTER TABLE sweeper.task ENABLE ROW LEVEL SECURITY;
ALTER TABLE sweeper.task_comment ENABLE ROW LEVEL SECURITY;
ALTER TABLE sweeper.append_stream ENABLE ROW LEVEL SECURITY;
ALTER TABLE sweeper.append_row ENABLE ROW LEVEL SECURITY;
ALTER TABLE sweeper.append_failed ENABLE ROW LEVEL SECURITY;
CREATE POLICY visible ON sweeper.preset FOR SELECT USING (true);
CREATE POLICY visible ON sweeper.pool FOR SELECT USING (true);
CREATE POLICY visible ON sweeper.pool_day FOR SELECT USING (true);

ALTER VIEW sweeper.policy_status SET (security_invoker = true);
ALTER VIEW sweeper.stat_progress SET (security_invoker = true);
ALTER VIEW sweeper.stat_process SET (security_invoker = true);
ALTER VIEW sweeper.stat_policy SET (security_invoker = true);
ALTER VIEW sweeper.problem SET (security_invoker = true);
ALTER VIEW sweeper.policy_status_all SET (security_invoker = true);
ALTER VIEW sweeper.problem_all SET (security_invoker = true);
ALTER VIEW sweeper.stat_progress_all SET (security_invoker = true);
ALTER VIEW sweeper.pass_all SET (security_invoker = true);
ALTER VIEW sweeper.cleanup_event_all SET (security_invoker = true);
ALTER VIEW sweeper.stat_cleanup_daily SET (security_invoker = true);
ALTER VIEW sweeper.stat_cleanup_lag SET (security_invoker = true);

-- No role has rights by default: not PUBLIC, and not roles that ALTER DEFAULT PRIVILEGES names.  An update script ends with this, too.
DO $$
DECLARE
    grantee text;
BEGIN
    FOR grantee IN
        SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::pg_catalog.regrole::text END
        FROM (SELECT coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner)), p.proowner FROM pg_catalog.pg_proc AS p
              WHERE p.pronamespace = 'sweeper'::pg_catalog.regnamespace
              UNION ALL
              SELECT c.relacl, c.relowner FROM pg_catalog.pg_class AS c WHERE c.relnamespace = 'sweeper'::pg_catalog.regnamespace
              UNION ALL
              SELECT n.nspacl, n.nspowner FROM pg_catalog.pg_namespace AS n WHERE n.nspname = 'sweeper') AS o (acl, owner),
            pg_catalog.aclexplode(o.acl) AS a
        WHERE a.grantee <> o.owner
    LOOP
        EXECUTE format('REVOKE ALL ON ALL TABLES IN SCHEMA sweeper FROM %s', grantee);
        EXECUTE format('REVOKE ALL ON ALL SEQUENCES IN SCHEMA sweeper FROM %s', grantee);
        EXECUTE format('REVOKE ALL ON ALL ROUTINES IN SCHEMA sweeper FROM %s', grantee);
        EXECUTE format('REVOKE ALL ON SCHEMA sweeper FROM %s', grantee);
    END LOOP;
END
$$;
SELECT sweeper._announce();
