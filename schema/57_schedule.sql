-- Calendars through pg_cron, and maintenance.

CREATE FUNCTION sweeper.schedule(policy text, schedule text) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_schedule';
COMMENT ON FUNCTION sweeper.schedule IS
'Makes, or changes, a job of pg_cron that asks for a pass over the policy; returns its number in cron.job. schedule: as pg_cron takes it (minute hour day month weekday, in cron.timezone). The job belongs to the caller and runs with his rights. Give the policy check_every => ''0'' where it should go at no other time; after a new name, schedule it again, and unschedule before unregister. Where pg_cron is in another database, the job stays though the caller''s transaction is rolled back. Errors: 42704 no such policy, 42501 not its owner and without level admin, or not granted cron.schedule_in_database, 55000 pg_cron is not loaded or not installed, 08006 the caller may not connect to its database, 53000 no process for that, 55P03 somebody holds the table of pg_cron for more than five seconds (who calls meanwhile waits for his turn), 22P05 the encoding of its database lacks a character, 0A000 it cannot be told the name of this one, 25006 read-only transaction or standby, 22004 null; and what pg_cron says of a schedule that is none.';
CREATE FUNCTION sweeper.unschedule(policy text) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_unschedule';
COMMENT ON FUNCTION sweeper.unschedule IS
'Removes the caller''s job for a policy, which may be gone; false when there is none. Errors: those of schedule() that are about pg_cron, 22004 null.';

CREATE FUNCTION sweeper.schedule_maintenance(schedule text DEFAULT '17 3 * * *') RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_schedule_maintenance';
COMMENT ON FUNCTION sweeper.schedule_maintenance IS
'Makes, or changes, a job of pg_cron that calls maintain(); from now on history is trimmed only then, not a little all the time. Returns the number of the job. Errors: 42501 without level admin, and those of schedule().';
CREATE FUNCTION sweeper.unschedule_maintenance() RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_unschedule_maintenance';
COMMENT ON FUNCTION sweeper.unschedule_maintenance IS
'Removes the caller''s job for maintenance; false when there is none. From now on history is trimmed a little all the time; also, with a NOTICE, where pg_cron cannot be asked. Errors: 42501 without level admin, 55000 library not preloaded.';

CREATE FUNCTION sweeper.maintain() RETURNS bigint
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    today date := (now() AT TIME ZONE 'UTC')::date;
    since date;
    n bigint;
    history text;
    pass bigint;
BEGIN
    -- one at a time; who comes second finds nothing to do
    LOCK TABLE sweeper.cleanup_day IN SHARE ROW EXCLUSIVE MODE;
    -- a transaction that was open over midnight adds to a day that is summed up
    SELECT max(d.day) - 6 INTO since FROM sweeper.cleanup_day AS d;
    INSERT INTO sweeper.cleanup_day AS d
    SELECT e.day, e.policy_id, e.policy, e.pool, e.cleanup_type, sum(e.count), count(DISTINCT e."group"),
           count(e.after_deadline), sum(e.after_deadline), max(e.after_deadline), count(e.after_last_seen), sum(e.after_last_seen)
    FROM (SELECT (cleaned_at AT TIME ZONE 'UTC')::date AS day, policy_id, policy, cleanup_type, count, "group",
                 CASE WHEN policy = 'sweeper.session' THEN coalesce("group", '') ELSE '' END AS pool,
                 CASE WHEN isfinite(deadline) AND deadline <= cleaned_at THEN cleaned_at - deadline END AS after_deadline,
                 CASE WHEN isfinite(last_seen) THEN cleaned_at - last_seen END AS after_last_seen
          FROM sweeper.cleanup_event
          WHERE cleaned_at < today::timestamp AT TIME ZONE 'UTC' AND (since IS NULL OR cleaned_at >= since::timestamp AT TIME ZONE 'UTC')) AS e
    GROUP BY e.day, e.policy_id, e.policy, e.pool, e.cleanup_type
    -- not less: events may be gone
    ON CONFLICT (day, policy_id, policy, pool, cleanup_type) DO UPDATE
    SET cleaned = excluded.cleaned, groups = excluded.groups, after_deadline_count = excluded.after_deadline_count,
        after_deadline = excluded.after_deadline, max_after_deadline = excluded.max_after_deadline,
        after_last_seen_count = excluded.after_last_seen_count, after_last_seen = excluded.after_last_seen
    WHERE excluded.cleaned > d.cleaned;
    GET DIAGNOSTICS n = ROW_COUNT;
    FOR history IN SELECT p.policy FROM sweeper.policy AS p JOIN sweeper.policy_status AS s USING (policy)
                   WHERE p.policy LIKE 'sweeper.%' AND p.action = 'delete' AND s.state NOT IN ('held', 'paused', 'broken') LOOP
        BEGIN
            CALL sweeper.sweep(history, wait => false, pass => pass);
        EXCEPTION WHEN object_not_in_prerequisite_state THEN
            -- held, as the coordinator has not told yet; that is no reason to leave the others
            IF NOT (SELECT c.preloaded FROM sweeper._cluster() AS c) THEN RAISE; END IF;
        END;
    END LOOP;
    RETURN n;
END
$$;
COMMENT ON FUNCTION sweeper.maintain IS
'Sums up the events of days that are over (in UTC) in table cleanup_day, and asks for passes that trim history; returns how many rows of cleanup_day it added or changed: events of transactions that were open over midnight are added within a week. What schedule_maintenance() calls each day. Errors: 55000 library not preloaded, 25006 on a standby.';
COMMENT ON TABLE sweeper.cleanup_day IS 'Events of days that are over, a row for each day (UTC), policy, cleanup type and, of sessions, pool; written by maintain(), and kept when the events go.';
