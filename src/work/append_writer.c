/*
 * append_writer.c
 *		Write appended rows to their tables.
 *
 * Runs in an ordinary worker, to which the coordinator gives an owner of tables
 * (append_demand.c).  One transaction deletes rows where append() has put them
 * (append_queue.c) and inserts them into their table (append_insert.c), so that each is
 * written once, in the order of their numbers.  A batch that fails is tried again in
 * halves, down to the row that cannot be written, which is set aside with its error.
 *
 * Shares nothing itself; see row_in_hand.c.  A crash leaves what was not written where
 * it was.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "base/cached_plan.h"
#include "base/error_class.h"
#include "base/identity.h"
#include "base/locks.h"
#include "base/shmem.h"
#include "base/spi.h"
#include "sweep/row_in_hand.h"
#include "work/append.h"
#include "work/append_demand.h"
#include "work/append_insert.h"
#include "work/append_queue.h"
#include "work/append_writer.h"
#include "work/task_shmem.h"
#include "work/work_state.h"

#define MAX_PLACES		200000	/* of a table, read at once */
#define MOVE_LOCK_TIMEOUT	"100ms"
#define MOVE_TRIES	5
#define MOVE_MS		10000		/* for rows that are written together */
#define BATCH_MS	1000		/* so long a batch should take */
#define BATCH_GROWTH	8
#define TABLE_US	USECS_PER_SEC	/* a turn of a role and table */
#define REFERS_US	(10 * 1000) /* of that, for a row that waits for another */
#define READ_SHARE	4			/* or so many times as long as reading took */
#define REST_US		(500 * 1000)	/* less than it takes until the next look */

typedef struct Trouble
{
	int			stream;
	int			sqlerrcode;		/* that was logged, or 0 */
	TimestampTz rest_until;		/* no more rows could be written: it waits */
} Trouble;

/* What happens while rows that a role appended to a table are written. */
typedef struct Run
{
	bool		(*must_stop) (void);
	MemoryContext cxt;			/* of a batch */
	TimestampTz until;			/* the turn of the role and table */
	bool		left;			/* some stay for another time */
	bool		waiting;		/* for a lock, or for rows that wait */
	int64		reached;		/* the last that was tried */
	bool		too_slow;		/* the last batch took its time */
	bool		table_locked;	/* it found the table locked */
} Run;

/* Run a statement on our own tables, in a transaction of its own: how many rows. */
static uint64
execute_apart(const char *sql, int nargs, Oid *types, Datum *values, const Run *run)
{
	SswIdentity save;
	uint64		n;

	ssw_spi_start_transaction();
	ssw_spi_begin_as_extension(&save);
	n = ssw_plan_execute(sql, nargs, types, values, NULL, false);
	ssw_spi_end_as(&save);
	ssw_spi_commit();
	MemoryContextSwitchTo(run->cxt);
	return n;
}

/* Take the rows from where append() has put them. */
static SswAppendInsertion
take(const SswAppendTarget *t, const SswAppendPlace *places, int n)
{
	SswAppendInsertion in = {.target = t,.rows = palloc(n * sizeof(SswAppendedRow))};

	in.n = ssw_append_queue_take(t, places, n, in.rows);
	ssw_in_hand_set(0, t->stream, in.n == 1 ? in.rows[0].id : 0);
	return in;
}

/* Limit the time from here on.  A process whose code catches the time-out is ended. */
static void
limit_time(bool on)
{
	if (on)
		enable_timeout_after(STATEMENT_TIMEOUT, MOVE_MS);
	else
		disable_timeout(STATEMENT_TIMEOUT, false);
	MySswProc->batch_deadline = on ? GetCurrentTimestamp() + MOVE_MS * INT64CONST(1000) : 0;
}

/* Open and lock the table.  An error when another session holds a lock on it. */
static Relation
open_table(const SswAppendTarget *t, Run *run)
{
	Relation	rel;

	run->table_locked = !ConditionalLockRelationOid(t->relid, RowExclusiveLock);
	if (run->table_locked)
		ereport(ERROR,
				(errcode(ERRCODE_LOCK_NOT_AVAILABLE), errmsg("another session holds a lock on relation %s", t->relation)));
	rel = try_relation_open(t->relid, NoLock);
	if (rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE), errmsg("relation %s no longer exists", t->relation)));
	return rel;
}

/* Write the rows, in a transaction of their own; an error is returned in the batch's context, else null. */
static ErrorData *
move(const SswAppendTarget *t, const SswAppendPlace *places, int n, Run *run)
{
	ErrorData  *volatile error = NULL;
	TimestampTz began = GetCurrentTimestamp();

	PG_TRY();
	{
		Relation	rel;
		SswAppendInsertion in;

		ssw_spi_start_transaction();
		limit_time(true);
		(void) ssw_lock_extension(true);
		rel = open_table(t, run);
		ssw_spi_begin();
		in = take(t, places, n);
		ssw_append_insert_check(t, rel->rd_rel->relowner, in.rows, in.n);
		ssw_append_check_partitions(rel, AccessShareLock);

		/* names in triggers are looked up in the schema of the table */
		ssw_gate(rel->rd_rel->relowner,
				 psprintf("pg_catalog, %s, pg_temp", quote_identifier(get_namespace_name(RelationGetNamespace(rel)))),
				 ssw_append_insert, &in);
		ssw_spi_end();
		relation_close(rel, NoLock);
		limit_time(false);
		CHECK_FOR_INTERRUPTS();
		ssw_in_hand_clear();
		ssw_spi_commit();
	}
	PG_CATCH();
	{
		ssw_in_hand_clear();
		MemoryContextSwitchTo(run->cxt);
		error = ssw_error_catch();
		limit_time(false);
		ssw_spi_abort();
		QueryCancelPending = false;
		run->too_slow = TimestampDifferenceExceeds(began, GetCurrentTimestamp(), MOVE_MS);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(run->cxt);
	return error;
}

/* A row that cannot be written.  The table may have been rewritten since: the row has another place then, and is tried again. */
static void
set_aside(const SswAppendTarget *t, const SswAppendPlace *place, int sqlerrcode, const char *message, const Run *run)
{
	static const char *const sql =
	"WITH gone AS (DELETE FROM sweeper.append_row AS r USING sweeper.append_stream AS s WHERE r.ctid = $1 AND r.id = $5 AND s.stream = r.stream AND s.relid = $2"
	" RETURNING r.id, r.stream, r.row_data)"
	" INSERT INTO sweeper.append_failed (id, stream, row_data, sqlstate, error) SELECT id, stream, row_data, $3, $4 FROM gone";
	Oid			types[] = {TIDOID, OIDOID, TEXTOID, TEXTOID, INT8OID};
	Datum		values[] = {PointerGetDatum(&place->tid), ObjectIdGetDatum(t->relid), CStringGetTextDatum(unpack_sql_state(sqlerrcode)),
	CStringGetTextDatum(message), Int64GetDatum(place->id)};

	(void) execute_apart(sql, 5, types, values, run);
}

/* A conflict with others, or a cancel: what a few tries do not get past is the row's own. */
static bool
may_pass(const ErrorData *e)
{
	return ERRCODE_TO_CATEGORY(e->sqlerrcode) == ERRCODE_TRANSACTION_ROLLBACK || e->sqlerrcode == ERRCODE_QUERY_CANCELED;
}

/* Is the error the row's, which another try would bring again? */
static bool
is_of_row(const ErrorData *e)
{
	switch (ssw_error_classify(e->sqlerrcode))
	{
		case SSW_FAIL_ROW:
		case SSW_FAIL_POLICY:
			return ERRCODE_TO_CATEGORY(e->sqlerrcode) != ERRCODE_INSUFFICIENT_RESOURCES && e->sqlerrcode != ERRCODE_READ_ONLY_SQL_TRANSACTION;
		default:
			return may_pass(e);
	}
}

/*
 * Does a row refer to a table of older rows, appended but not yet written?  Of such rows as
 * are written in one of the next turns, or also of others?
 */
static bool
refers_to(const SswAppendTarget *t, const SswAppendPlace *place, bool soon, Run *run)
{
	static const char *const sql =
	"SELECT FROM sweeper.append_row AS r JOIN sweeper._append_stream AS s USING (stream)"
	" WHERE s.here AND r.id < (SELECT q.id FROM sweeper.append_row AS q WHERE q.ctid = $2 AND q.id = $3)"
	" AND s.relid IN (SELECT c.confrelid FROM pg_catalog.pg_constraint AS c WHERE c.conrelid = $1 AND c.contype = 'f')"
	" AND (NOT $4 OR NOT s.waiting AND r.appended_at + s.flush_every <= pg_catalog.now()) LIMIT 1";
	Oid			types[] = {OIDOID, TIDOID, INT8OID, BOOLOID};
	Datum		values[] = {ObjectIdGetDatum(t->relid), PointerGetDatum(&place->tid), Int64GetDatum(place->id), BoolGetDatum(soon)};

	return execute_apart(sql, 4, types, values, run) > 0;
}

/* The last error of a role's rows for a table, as this worker knows it. */
static Trouble *
trouble_of(const SswAppendTarget *t)
{
	static Trouble last[16];
	Trouble    *trouble = &last[t->stream % lengthof(last)];

	if (trouble->stream != t->stream)
		memset(trouble, 0, sizeof(Trouble));
	trouble->stream = t->stream;
	return trouble;
}

/* The rows are tried again later.  This worker logs each error of a role's rows for a table once. */
static void
leave(const SswAppendTarget *t, const ErrorData *e, bool next_may_work, Run *run)
{
	Trouble    *trouble = trouble_of(t);

	if (!run->left && trouble->sqlerrcode != e->sqlerrcode)
		ereport(LOG,
				(errcode(e->sqlerrcode),
				 errmsg("could not write rows appended to %s: %s", t->relation, e->message),
				 errdetail("It is tried again about once per second. This process does not log the same error again.")));
	run->left = run->waiting = true;
	trouble->sqlerrcode = e->sqlerrcode;
	trouble->rest_until = next_may_work ? 0 : GetCurrentTimestamp() + REST_US;
}

/* Write them together, or in halves; false: try no others of the table now. */
static bool
move_in_halves(const SswAppendTarget *t, const SswAppendPlace *places, int n, Run *run)
{
	ErrorData  *e = move(t, places, n, run);
	SswFailureClass failure;
	bool		in_time;
	bool		next_may_work;

	for (int tries = 1; e && n == 1 && may_pass(e) && !run->too_slow && !run->must_stop() && tries < MOVE_TRIES; tries++)
		e = move(t, places, n, run);
	if (e == NULL)
	{
		run->reached = places[n - 1].id;
		return true;
	}
	failure = ssw_error_classify(e->sqlerrcode);
	in_time = GetCurrentTimestamp() < run->until;
	/* a single row that is too slow would be too slow each time */
	if (run->must_stop() && (n > 1 || !run->too_slow))
		return false;
	if (run->table_locked || (failure == SSW_FAIL_LOCKED && n > 1 && !in_time))
	{
		leave(t, e, false, run);
		return false;
	}
	if (n > 1 && (is_of_row(e) || failure == SSW_FAIL_TRANSIENT || failure == SSW_FAIL_LOCKED))
		return move_in_halves(t, places, n / 2, run) && move_in_halves(t, places + n / 2, n - n / 2, run);
	if (e->sqlerrcode == ERRCODE_FOREIGN_KEY_VIOLATION && refers_to(t, places, false, run))
	{
		run->left = true;
		/* no later row overtakes it then */
		if (refers_to(t, places, true, run))
			return false;
		run->waiting = true;
		run->reached = places->id;
		run->until -= REFERS_US;
		return in_time;
	}
	if (is_of_row(e))
	{
		set_aside(t, places, e->sqlerrcode, e->message, run);
		run->reached = places->id;
		return true;
	}
	/* the next rows may work, unless the error is the table's or the server's */
	next_may_work = failure == SSW_FAIL_TRANSIENT || failure == SSW_FAIL_LOCKED;
	leave(t, e, next_may_work && in_time, run);
	if (next_may_work)
		run->reached = places->id;
	return next_may_work && in_time;
}

/* May anything be written in this transaction? */
static bool
is_possible(void)
{
	return !XactReadOnly && ssw_lock_extension(false) && OidIsValid(get_extension_oid(SSW_EXTENSION, true)) && !ssw_identity_other_version();
}

/* The owner's tables that have due rows, and the oldest rows of each. */
static List *
read_targets(Oid owner, MemoryContext cxt)
{
	List	   *result = NIL;
	SswIdentity save;

	ssw_spi_start_transaction();
	if (is_possible())
	{
		ssw_spi_begin_as_extension(&save);
		result = ssw_append_queue_read(owner, ssw_work_read(MyDatabaseId).flush_up_to, MAX_PLACES, cxt);
		ssw_spi_end_as(&save);
	}
	ssw_spi_commit();
	MemoryContextSwitchTo(cxt);
	return result;
}

/* How many of the next rows a transaction takes: not more than its memory holds. */
static int
count_batch(const SswAppendTarget *t, int from, int most)
{
	int64		bytes = 0;
	int			n = 0;

	while (n < most && from + n < t->n && (n == 0 || bytes + t->places[from + n].bytes <= SSW_BATCH_BYTES))
		bytes += t->places[from + n++].bytes;
	return n;
}

/* Note whether rows wait, and where the next turn begins, unless somebody has just locked the streams. */
static void
resume_after(const SswAppendTarget *t, bool waiting, int64 id, const Run *run)
{
	static const char *const sql =
	"UPDATE sweeper.append_stream SET resume_after = $1, waiting = $4 WHERE stream IN"
	" (SELECT stream FROM sweeper.append_stream WHERE relid = $2 AND role_oid = $3 FOR UPDATE SKIP LOCKED)";
	Oid			types[] = {INT8OID, OIDOID, OIDOID, BOOLOID};
	Datum		values[] = {Int64GetDatum(id), ObjectIdGetDatum(t->relid), ObjectIdGetDatum(t->role), BoolGetDatum(waiting)};

	if (id != t->resume_after || waiting != t->waiting)
		(void) execute_apart(sql, 4, types, values, run);
}

/*
 * Write the rows that one role appended to a table, for about so long; true: there may be
 * more at once.  Rows that wait for locks, or for other rows, take that time.  If it was not
 * enough to try all rows, the next turn begins behind the row at which this one ended, so
 * that rows behind are written soon.
 */
static bool
move_target(const SswAppendTarget *t, int64 us, Run *run)
{
	bool		singly = ssw_in_hand_singly(0, t->stream);
	int			batch = 1;
	int			from = 0;
	bool		all;
	bool		waiting;

	if (GetCurrentTimestamp() < trouble_of(t)->rest_until)
		return false;
	pgstat_report_activity(STATE_RUNNING, psprintf("rows appended to %s", t->relation));
	run->until = GetCurrentTimestamp() + us;
	run->left = run->waiting = false;
	run->reached = t->resume_after;
	while (from < t->n && !run->must_stop() && GetCurrentTimestamp() < run->until)
	{
		TimestampTz began = GetCurrentTimestamp();
		int			rows = count_batch(t, from, singly ? 1 : batch);
		double		most;

		MemoryContextReset(run->cxt);
		MemoryContextSwitchTo(run->cxt);
		if (singly && ssw_in_hand_deaths(0, t->stream, t->places[from].id) >= SSW_MAX_DEATHS)
			set_aside(t, t->places + from, ERRCODE_ADMIN_SHUTDOWN, "the process that wrote the row was ended", run);
		else if (!move_in_halves(t, t->places + from, rows, run))
			break;
		from += rows;
		/* triggers may be slow: batches grow while they are fast */
		most = (double) rows * BATCH_MS * 1000 / Max(1, GetCurrentTimestamp() - began);
		batch = Max(1, Min(Min(most, (double) rows * BATCH_GROWTH), t->batch));
	}
	all = from == t->n && !run->left;
	waiting = run->waiting || (t->waiting && from < t->n);
	resume_after(t, waiting, waiting && from < t->n ? run->reached : 0, run);
	if (all)
	{
		trouble_of(t)->sqlerrcode = 0;
		if (singly)
			ssw_in_hand_forget(0, t->stream);
	}
	return !run->left && from > 0 && (from < t->n || t->n == MAX_PLACES);
}

/*
 * Write what was appended to this owner's tables and is due.  An error of our own tables,
 * as when the disk is full, is logged.  The coordinator gives what is left to a worker again.
 */
void
ssw_append_writer_run(Oid owner, bool (*must_stop) (void))
{
	MemoryContext cxt = AllocSetContextCreate(TopMemoryContext, "appended rows", ALLOCSET_DEFAULT_SIZES);
	Run			run = {.must_stop = must_stop,.cxt = AllocSetContextCreate(cxt, "batch", ALLOCSET_DEFAULT_SIZES)};
	volatile bool more = false;

	SetConfigOption("lock_timeout", MOVE_LOCK_TIMEOUT, PGC_SUSET, PGC_S_OVERRIDE);
	PG_TRY();
	{
		TimestampTz began = GetCurrentTimestamp();
		List	   *targets = read_targets(owner, cxt);
		int64		us = Max(TABLE_US, READ_SHARE * (GetCurrentTimestamp() - began));
		ListCell   *lc;

		foreach(lc, targets)
			if (must_stop() || move_target(lfirst(lc), us, &run))
			more = true;
	}
	PG_CATCH();
	{
		more = false;
		MemoryContextSwitchTo(cxt);
		EmitErrorReport();
		FlushErrorState();
		ssw_spi_abort();
	}
	PG_END_TRY();
	pgstat_report_activity(STATE_IDLE, NULL);
	if (more)
		ssw_append_demand_left(owner);
	ssw_task_shmem_tell();
	MemoryContextSwitchTo(TopMemoryContext);
	MemoryContextDelete(cxt);
}
