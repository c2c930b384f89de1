/*
 * policy_row.c
 *		What the coordinator writes to the extension's own tables.
 *
 * Runs in the coordinator, inside its transactions, as the extension's owner.
 * Facts that must outlive a crash are here: closed passes, brakes, failures,
 * the grace horizon.  Shares nothing else.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/identity.h"
#include "base/locks.h"
#include "base/spi.h"
#include "grace/service_log.h"
#include "sweep/failed_row.h"
#include "process/policy_row.h"

#define FAIL_BASE_US	(1 * USECS_PER_SEC)
#define FAIL_MAX_US		(10 * USECS_PER_MINUTE)
/* what may pass by itself is tried more often */
#define TRANSIENT_MAX_US	USECS_PER_MINUTE
#define BROKEN_AFTER	8

/*
 * Run a statement on a policy's row, unless another session is changing that policy now.
 * That session may hold the policy's lock for long, and all other policies would wait
 * with the coordinator.  What is not written is found out again.
 */
static bool
run_policy(int policy_id, const char *sql, int nargs, Oid *types, Datum *values)
{
	if (!ssw_lock_policy_batch_conditional(policy_id))
		return false;
	(void) ssw_spi_exec_as_extension(sql, nargs, types, values, NULL, false);
	return true;
}

/* Add a pass's counts to its row. */
void
ssw_policy_row_close_pass(SswWatch *w, const SswPass *pass)
{
	Oid			types[] = {INT8OID, TEXTOID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID, INT8OID,
	INT4OID, INT8OID, TEXTOID, TEXTOID, FLOAT8OID};
	bool		failed = pass->sqlerrcode != 0;
	char		nulls[14] = "             ";
	Datum		values[13];
	int64		us = pass->started_at ? GetCurrentTimestamp() - pass->started_at : 0;

	values[0] = Int64GetDatum(pass->pass_id);
	values[1] = CStringGetTextDatum(w->policy && pass->end == SSW_END_FAILED ? "failed" : "done");
	values[2] = Int64GetDatum(pass->expired);
	values[3] = Int64GetDatum(pass->refreshed);
	values[4] = Int64GetDatum(pass->repaired);
	values[5] = Int64GetDatum(pass->failed);
	values[6] = Int64GetDatum(pass->skipped);
	values[7] = Int64GetDatum(pass->batches);
	values[8] = Int32GetDatum(pass->max_workers_seen);
	values[9] = Int64GetDatum(pass->max_lag_us);
	values[10] = CStringGetTextDatum(failed ? unpack_sql_state(pass->sqlerrcode) : "");
	values[11] = CStringGetTextDatum(pass->message);
	values[12] = Float8GetDatum(Max(0, us) / 1e6);
	nulls[10] = failed ? ' ' : 'n';
	nulls[11] = pass->message[0] ? ' ' : 'n';
	(void) ssw_spi_exec_as_extension("UPDATE sweeper.pass SET status = $2, finished_at = pg_catalog.clock_timestamp(), expired = expired + $3, refreshed = refreshed + $4,"
									 " repaired = repaired + $5, failed = failed + $6, skipped = skipped + $7, batches = batches + $8,"
									 " workers = greatest(workers, $9), max_lag = greatest(max_lag, $10 * '1 microsecond'::pg_catalog.interval),"
									 " sqlstate = $11, error = $12, seconds = seconds + $13 WHERE pass = $1",
									 13, types, values, nulls, false);
}

/*
 * Close rows of passes that nobody runs any more, from their events.  What was
 * written may be more: a policy without audit has none.
 */
void
ssw_policy_row_abandon(void)
{
	(void) ssw_spi_exec_as_extension("UPDATE sweeper.pass AS p SET status = 'abandoned', finished_at = pg_catalog.clock_timestamp(),"
									 " expired = greatest(p.expired, (SELECT pg_catalog.sum(e.count) FROM sweeper.cleanup_event AS e"
									 " WHERE e.cleaned_at >= p.started_at AND e.pass = p.pass)) WHERE p.status = 'running'",
									 0, NULL, NULL, NULL, false);
}

/* The policy as a whole failed: back off, further each time. */
void
ssw_policy_row_failed(SswWatch *w, const SswPass *pass)
{
	int			failures = w->policy->failures + 1;
	SswFailureClass class = ssw_error_classify(pass->sqlerrcode);
	TimestampTz retry = GetCurrentTimestamp() +
	ssw_failed_row_backoff_us(failures, FAIL_BASE_US,
							  class == SSW_FAIL_TRANSIENT ? TRANSIENT_MAX_US : FAIL_MAX_US);
	Oid			types[] = {INT4OID, INT4OID, BOOLOID, TIMESTAMPTZOID, TEXTOID, TEXTOID};
	Datum		values[] = {Int32GetDatum(w->policy_id), Int32GetDatum(failures), BoolGetDatum(failures >= BROKEN_AFTER),
	TimestampTzGetDatum(retry), CStringGetTextDatum(pass->message), CStringGetTextDatum(unpack_sql_state(pass->sqlerrcode))};

	run_policy(w->policy_id, "UPDATE sweeper.policy SET failures = $2, broken = $3, retry_at = $4, last_error = $5,"
			   " last_sqlstate = $6, failing_since = coalesce(failing_since, pg_catalog.clock_timestamp())"
			   " WHERE policy_id = $1", 6, types, values);
	w->policy->failures = failures;
	w->policy->broken = failures >= BROKEN_AFTER;
	w->policy->retry_at = retry;
	ereport(failures == 1 ? WARNING : LOG,
			(errcode(pass->sqlerrcode),
			 errmsg("session_sweeper policy \"%s\" failed: %s", w->policy->name, pass->message),
			 errdetail("No row was quarantined; the policy is tried again in %d s (failure %d).",
					   (int) ((retry - GetCurrentTimestamp()) / USECS_PER_SEC) + 1, failures),
			 errhint("Fix the cause, then SELECT sweeper.resume(%s);",
					 quote_literal_cstr(w->policy->name))));
}

/* A pass went through, and with it the backlog: lift what failures left, note the time. */
void
ssw_policy_row_succeeded(SswWatch *w)
{
	Oid			type = INT4OID;
	Datum		value = Int32GetDatum(w->policy_id);

	run_policy(w->policy_id, "UPDATE sweeper.policy SET failures = 0, broken = false, retry_at = NULL, failing_since = NULL,"
			   " last_pass_at = pg_catalog.clock_timestamp(), backlog_before = NULL WHERE policy_id = $1",
			   1, &type, &value);
	w->policy->failures = 0;
	w->policy->broken = false;
	w->policy->retry_at = 0;
	w->policy->backlog_before = 0;
}

/* Nothing would trip the fuse: what has been held before then may trip it again. */
void
ssw_policy_row_rearm(SswWatch *w, TimestampTz before)
{
	Oid			types[] = {INT4OID, TIMESTAMPTZOID};
	Datum		values[] = {Int32GetDatum(w->policy_id), TimestampTzGetDatum(before)};

	if (!w->policy->fuse_spent)
		return;
	run_policy(w->policy_id, "DELETE FROM sweeper.fuse_hold WHERE policy_id = $1 AND held_until <= $2", 2, types, values);
	w->policy->fuse_spent = false;
}

/*
 * Hold a policy that was restored until somebody resumes it, unless somebody just has.
 * False when somebody changes it: also for a moment after the commit that woke us.
 */
bool
ssw_policy_row_hold(const SswPolicy *p)
{
	Oid			types[] = {INT4OID, INT8OID, OIDOID, OIDOID};
	Datum		values[] = {Int32GetDatum(p->id), Int64GetDatum((int64) p->system_identifier), ObjectIdGetDatum(p->database), ObjectIdGetDatum(p->relid)};

	return run_policy(p->id, "UPDATE sweeper.policy SET held_reason = 'restored', held_at = pg_catalog.clock_timestamp()"
					  " WHERE policy_id = $1 AND held_reason IS NULL AND system_identifier = $2 AND database = $3 AND relid = $4",
					  4, types, values);
}

/*
 * The same objects in a cluster that pg_upgrade made: note its identity.  How long
 * there was no service nobody knows here: as after a crash.
 */
void
ssw_policy_row_restamp(const SswPolicy *p)
{
	Oid			types[] = {INT4OID, INT8OID, OIDOID, TIMESTAMPTZOID};
	Datum		values[] = {Int32GetDatum(p->id), Int64GetDatum((int64) ssw_service_system_identifier()),
	ObjectIdGetDatum(MyDatabaseId), TimestampTzGetDatum(ssw_service_began())};

	run_policy(p->id, "UPDATE sweeper.policy SET system_identifier = $2, database = $3,"
			   " on_expire = pg_catalog.to_regprocedure(on_expire_name), is_alive = pg_catalog.to_regprocedure(is_alive_name),"
			   " horizons = ARRAY[$4, '-infinity', pg_catalog.clock_timestamp()]"
			   " WHERE policy_id = $1", 4, types, values);
	(void) ssw_spi_exec_as_extension("UPDATE sweeper.service_mark SET clusters = clusters || $1 WHERE NOT $1 = ANY (clusters)",
									 1, &types[1], &values[1], NULL, false);
}

/* The relation, or its owner, has another name now. */
void
ssw_policy_row_renamed(const SswPolicy *p)
{
	Oid			types[] = {INT4OID, TEXTOID, TEXTOID};
	Datum		values[] = {Int32GetDatum(p->id), CStringGetTextDatum(p->relation), CStringGetTextDatum(p->owner_name)};

	run_policy(p->id, "UPDATE sweeper.policy SET relation = $2, owner_name = $3 WHERE policy_id = $1", 3, types, values);
}

/*
 * Columns have other names now, and a dump has only names: write today's.  The caller
 * holds a lock on the relation.
 */
void
ssw_policy_row_columns(const SswPolicy *p)
{
	Oid			type = INT4OID;
	Datum		value = Int32GetDatum(p->id);

	run_policy(p->id, "UPDATE sweeper.policy SET"
			   " key = ARRAY(SELECT sweeper._column_now(relid, columns, c) FROM pg_catalog.unnest(key) WITH ORDINALITY AS k (c, n) ORDER BY n),"
			   " capture = CASE WHEN capture IS NOT NULL THEN"
			   "  ARRAY(SELECT sweeper._column_now(relid, columns, c) FROM pg_catalog.unnest(capture) WITH ORDINALITY AS k (c, n) ORDER BY n) END,"
			   " deadline = sweeper._column_now(relid, columns, deadline), last_seen = sweeper._column_now(relid, columns, last_seen),"
			   " ttl_column = sweeper._column_now(relid, columns, ttl_column), created = sweeper._column_now(relid, columns, created),"
			   " group_by = sweeper._column_now(relid, columns, group_by), filter = sweeper._column_now(relid, columns, filter),"
			   " columns = sweeper._columns(relid) WHERE policy_id = $1", 1, &type, &value);
}

/* Write how far starts of service have judged. */
void
ssw_policy_row_horizons(const SswPolicy *p)
{
	Oid			types[] = {INT4OID, TIMESTAMPTZARRAYOID};
	Datum		elems[2 * SSW_MAX_HORIZONS + 1];
	Datum		values[2];

	for (int i = 0; i < p->nhorizons; i++)
	{
		elems[2 * i] = TimestampTzGetDatum(p->horizon[i].service);
		elems[2 * i + 1] = TimestampTzGetDatum(p->horizon[i].deadline);
	}
	values[0] = Int32GetDatum(p->id);
	elems[2 * p->nhorizons] = TimestampTzGetDatum(p->noted_at);
	values[1] = PointerGetDatum(construct_array(elems, p->nhorizons > 0 ? 2 * p->nhorizons + 1 : 0,
												TIMESTAMPTZOID, sizeof(TimestampTz), true, TYPALIGN_DOUBLE));
	run_policy(p->id, "UPDATE sweeper.policy SET horizons = $2 WHERE policy_id = $1", 2, types, values);
}

/* Has this database, with its files and oids, been in that cluster? */
bool
ssw_policy_row_was_in(uint64 system_identifier)
{
	Oid			type = INT8OID;
	Datum		value = Int64GetDatum((int64) system_identifier);

	return ssw_spi_exec_as_extension("SELECT 1 FROM sweeper.service_mark WHERE $1 = ANY (clusters)", 1, &type, &value, NULL, true) > 0;
}

/* When this database was last looked at; with write, now. */
TimestampTz
ssw_policy_row_mark(bool write)
{
	SswIdentity save;
	TimestampTz at = 0;
	bool		isnull;

	ssw_spi_begin_as_extension(&save);
	if (ssw_spi_exec("SELECT looked_at FROM sweeper.service_mark", 0, NULL, NULL, NULL, true, 1) > 0)
		at = DatumGetTimestampTz(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	if (write)
		ssw_spi_exec("UPDATE sweeper.service_mark SET looked_at = pg_catalog.clock_timestamp()",
					 0, NULL, NULL, NULL, false, 0);
	ssw_spi_end_as(&save);
	return at;
}

/* Nobody looked for longer than max_gap: an operator must confirm. */
void
ssw_policy_row_long_gap(void)
{
	/* one that somebody is changing is in that person's hands */
	(void) ssw_spi_exec_as_extension("UPDATE sweeper.policy SET held_reason = 'long gap', held_at = pg_catalog.clock_timestamp()"
									 " WHERE policy_id IN (SELECT policy_id FROM sweeper.policy WHERE held_reason IS NULL"
									 " AND policy NOT LIKE 'sweeper.%' FOR NO KEY UPDATE SKIP LOCKED)", 0, NULL, NULL, NULL, false);
}
