-- Calendars through pg_cron.

CREATE FUNCTION sweeper.schedule(policy text, schedule text) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_schedule';
COMMENT ON FUNCTION sweeper.schedule IS
'Creates or changes a job of pg_cron in this database that requests a pass over the policy; returns its number in cron.job. schedule: as pg_cron reads it (minute hour day month weekday, in cron.timezone). The job belongs to the caller and runs with the caller''s rights; a superuser is refused. Give the policy check_every => ''0'' if it must not be swept at other times. After renaming the policy, schedule it again; before unregister(), unschedule it. Errors: 42704 no such policy, 42501 neither its owner nor level admin, a superuser, or no right to schema cron, 0A000 pg_cron is in another database: the hint is the statement to run there, 55000 pg_cron is not loaded or not installed, 25006 read-only transaction or standby, 22004 null; and the error of pg_cron for an invalid schedule.';
CREATE FUNCTION sweeper.unschedule(policy text) RETURNS boolean
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_unschedule';
COMMENT ON FUNCTION sweeper.unschedule IS
'Removes the caller''s job for a policy, which may no longer exist. False if there is no job. Errors: those of schedule() that are about pg_cron, 22004 null.';
