-- Brakes, and passes on request.

CREATE FUNCTION sweeper.pause(policy text, reason text DEFAULT NULL, until timestamptz DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_pause';
CREATE FUNCTION sweeper.pause_all(reason text DEFAULT NULL, until timestamptz DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_pause_all';
CREATE FUNCTION sweeper.resume(policy text, group_value text DEFAULT NULL) RETURNS text[]
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_resume';
CREATE FUNCTION sweeper.resume_all(OUT policy text, OUT lifted text[]) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_resume_all';
CREATE FUNCTION sweeper.retry_row(policy text, key text) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_retry_row';
CREATE FUNCTION sweeper.expire(policy text, keys text[], reason text DEFAULT NULL) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_expire';
CREATE FUNCTION sweeper._expire_here(policy text, key_and_reason text[], place text) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_expire_here';
CREATE FUNCTION sweeper.expire_group(policy text, group_value text, reason text DEFAULT NULL) RETURNS bigint
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_expire_group';
CREATE PROCEDURE sweeper.sweep(policy text, wait boolean DEFAULT true, timeout interval DEFAULT '10 min',
                               force boolean DEFAULT false, INOUT pass bigint DEFAULT NULL)
LANGUAGE c AS 'MODULE_PATHNAME', 'ssw_sweep';

COMMENT ON FUNCTION sweeper.pause IS
'Stops a policy, at commit, until resume() or the given time. The running batch is cancelled; a worker that ignores that is terminated 2 s later. It does not wait for transactions that ended rows by a call. Errors: 54000 reason is too long, 42704 no such policy, 42501 neither its owner nor admin, 22023 until is past, 55P03 a transaction that changes the policy stays open for longer than lock_timeout, or, if that is 0, than a batch may take.';
COMMENT ON FUNCTION sweeper.pause_all IS
'Stops every policy that the caller may pause, as pause() does. A WARNING names each that another transaction changes at the moment. Errors: 54000 reason is too long, 22023 until is past.';
COMMENT ON FUNCTION sweeper.resume IS
'Releases every brake on a policy that the caller may release (paused, the reason of a hold, owner, fuse, failing, broken, quarantine) and returns their names. group_value: releases only the hold of the fuse on that group, as named in table fuse_hold. Errors: 42704 no such policy, or the fuse does not hold that group, 42501 not allowed, 55000 a superuser owns the table now and another role defined the policy''s code: register it again, 55P03 a transaction that ended rows of the policy by a call stays open, for longer than the session''s lock_timeout, or, if that is 0, than the policy''s; or a transaction locks the table.';
COMMENT ON FUNCTION sweeper.resume_all IS
'Releases the brakes on every policy that the caller may resume. Returns a row for each that had some: its name and the brakes. A WARNING names each policy that keeps all of its brakes, because somebody should look first: it is held as assumed or backlog, its fuse holds rows, or its table has another owner or does not exist. Errors: as resume().';
COMMENT ON FUNCTION sweeper.retry_row IS
'Tries a failed or quarantined row again at the next look. If several partitions or children have one with this key, it tries all of them. Errors: P0002 no such failed row, 42704 no such policy, 42501 not allowed, 55P03 as pause().';
COMMENT ON FUNCTION sweeper.expire IS
'Ends the rows with these keys now, dead or not, in the caller''s transaction, and returns how many. The policy''s action and hooks run as the table''s owner; events have type manual. Keys are given as text, a composite one as (a,b). If child tables have rows with the same key, all of them are ended. Rows that the filter excludes stay. Makes deferred constraints immediate for the rest of the transaction. Errors: 54000 reason is too long, 42704 no such policy, 42501 neither its owner, nor admin, nor user of the policy, 22004 null argument, 22P02 a text that is no key, 25006 read-only transaction, 55P03 as resume(), 55000 restored, hook not the owner''s, heartbeats and not preloaded, or a distributed table and not the coordinator of the cluster; and what the action raises.';
COMMENT ON FUNCTION sweeper._expire_here IS 'expire() of one key on this node of a Citus cluster; expire() on the coordinator calls it on the node that has the row. place: the table and its key there. Errors: as expire(); 55000 if the policy of this name is of another table or key here.';
COMMENT ON FUNCTION sweeper.expire_group IS
'Ends all rows of a group of the policy (its group_by, as text) now, as expire() does, and returns how many. Events have type manual. The groups of sweeper.session are pools; its events have type expired, because the licence has ended. Errors: as expire(); 55000 the policy has no group_by.';
COMMENT ON PROCEDURE sweeper.sweep IS
'Runs a pass now, without rate limits, and returns its number in table pass, or null if nothing was due. With force the fuse does not check, and no index entry is skipped; a hold of the fuse still needs resume(). Outside of a transaction block it waits for the end, at most timeout. Errors: 42704 no such policy, 42501 not its owner and without level admin, 22023 timeout, 25001 inside a block, 55000 the policy is paused, held or disabled, or session_sweeper.databases does not list the database, 57014 not done in time.';

CREATE FUNCTION sweeper._process(OUT kind text, OUT pid int, OUT database oid, OUT state text, OUT policy_id int,
    OUT "rows" bigint, OUT started_at timestamptz, OUT state_since timestamptz) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 10 AS 'MODULE_PATHNAME', 'ssw_stat_process';
CREATE FUNCTION sweeper._progress(OUT policy_id int, OUT pass bigint, OUT phase text, OUT started_at timestamptz,
    OUT done bigint, OUT rows_left bigint, OUT rate float8, OUT pace float8, OUT forced boolean, OUT expired bigint, OUT refreshed bigint,
    OUT repaired bigint, OUT failed bigint, OUT skipped bigint, OUT batches bigint, OUT workers int, OUT max_lag interval, OUT waits_since timestamptz) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 2 AS 'MODULE_PATHNAME', 'ssw_stat_progress';
CREATE FUNCTION sweeper._window_opens(maintenance_window text, at timestamptz) RETURNS timestamptz
LANGUAGE c STABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME', 'ssw_window_opens_sql';
CREATE FUNCTION sweeper._policy(OUT policy_id int, OUT state text, OUT last_look timestamptz,
    OUT next_look timestamptz, OUT oldest_due timestamptz, OUT stats_since timestamptz, OUT looks bigint, OUT passes bigint,
    OUT batches bigint, OUT expired bigint, OUT refreshed bigint, OUT repaired bigint, OUT failed bigint, OUT skipped bigint,
    OUT failed_passes bigint, OUT fuse_trips bigint, OUT max_lag interval, OUT busy_seconds float8, OUT duration_histogram bigint[],
    OUT duration_seconds float8, OUT lag_histogram bigint[], OUT lag_seconds float8, OUT ended bigint[],
    OUT last_pass bigint, OUT last_success timestamptz, OUT locked_since timestamptz,
    OUT duration_bounds float8[], OUT lag_bounds float8[], OUT due_rows bigint) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 20 AS 'MODULE_PATHNAME', 'ssw_stat_policy';
CREATE FUNCTION sweeper._state(OUT policy_id int, OUT state text, OUT reason text, OUT brakes text[], OUT misfit text, OUT found_since timestamptz) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 20 AS 'MODULE_PATHNAME', 'ssw_stat_state';
CREATE FUNCTION sweeper._cluster(OUT preloaded boolean, OUT enabled boolean, OUT in_recovery boolean, OUT launcher_pid int,
    OUT service_start timestamptz, OUT slots_short_since timestamptz, OUT listed boolean,
    OUT heartbeats bigint, OUT most_heartbeats bigint, OUT heartbeats_refused bigint, OUT heartbeats_full_since timestamptz,
    OUT policies_full boolean, OUT heartbeat_counts bigint[], OUT notifications_skipped bigint) RETURNS SETOF record
LANGUAGE c VOLATILE PARALLEL RESTRICTED ROWS 1 AS 'MODULE_PATHNAME', 'ssw_stat_cluster';
CREATE FUNCTION sweeper.stat_reset(policy text DEFAULT NULL) RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_stat_reset';
CREATE FUNCTION sweeper._library(OUT library text, OUT restart_needed boolean) RETURNS record
LANGUAGE c VOLATILE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'ssw_version';
CREATE FUNCTION sweeper.version(OUT library text, OUT sql text, OUT restart_needed boolean) RETURNS record
LANGUAGE sql VOLATILE PARALLEL RESTRICTED SET search_path = pg_catalog, pg_temp AS $$
    SELECT l.library, e.extversion, l.restart_needed OR l.library <> e.extversion
    FROM sweeper._library() AS l, pg_catalog.pg_extension AS e WHERE e.extname = 'session_sweeper'
$$;
CREATE FUNCTION sweeper._announce() RETURNS void
LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'ssw_announce';
CREATE FUNCTION sweeper._user() RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT true';
CREATE FUNCTION sweeper._monitor() RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT true';
CREATE FUNCTION sweeper._admin() RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT true';

COMMENT ON FUNCTION sweeper._process IS 'Processes of session_sweeper in this server, from shared memory; see view stat_process.';
COMMENT ON FUNCTION sweeper._window_opens IS
'The first time from a given one on at which a maintenance window is open: that time, or a later minute. Null if not within nine days. Errors: 22023 no window.';
COMMENT ON FUNCTION sweeper._progress IS 'Running passes of this database, and policies with rows that are being worked off, from shared memory; see view stat_progress. pace: the last rate that was not 0. forced: rates do not limit it. waits_since: its pass has no worker.';
COMMENT ON FUNCTION sweeper._policy IS 'Counters and state of the policies of this database, from shared memory; see views policy_status and stat_policy.';
COMMENT ON FUNCTION sweeper._cluster IS
'One row about the server, from shared memory. Library: preloaded, enabled, in recovery, the launcher, the start of service. Shortages: since when process slots are short (for at least five seconds), whether the slots of policies are used up. Heartbeats: how many memory holds and can hold, how many found no room, since when it is full, and counts by result: fast, slow, written, gone, error. listed: session_sweeper.databases includes this database. Also the number of skipped notifications.';
COMMENT ON FUNCTION sweeper.stat_reset IS 'Sets the counters of a policy to zero, or of all when null. Errors: 55000 library not preloaded, 42704 no such policy, 42501 not allowed.';
COMMENT ON FUNCTION sweeper._library IS 'Version of the loaded library, and whether it was loaded without preload.';
COMMENT ON FUNCTION sweeper.version IS 'Versions of library and SQL; restart_needed when they differ or the library is not preloaded.';
COMMENT ON FUNCTION sweeper._announce IS 'Notifies the launcher, at commit, that this database has the extension; the extension script calls it.';
COMMENT ON FUNCTION sweeper._user IS 'The right to execute it is access level user for all policies and pools; see grant_access().';
COMMENT ON FUNCTION sweeper._monitor IS 'The right to execute it is access level monitor; see grant_access().';
COMMENT ON FUNCTION sweeper._admin IS 'The right to execute it is access level admin; see grant_access().';
