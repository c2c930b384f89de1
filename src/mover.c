/*
 * mover.c
 *		Write appended rows to their tables.
 *
 * Runs in a runner, connected as the role that appended them.  Rows are deleted
 * where append() has put them and inserted into their table in one transaction, so
 * that each is written once; in the order of their numbers.  A batch that fails is
 * tried again by halves, down to the row that cannot be written, which is set aside
 * with its error.
 *
 * Shares SswProc.moves, under SswShared->lock: one process of a role at a time moves
 * rows, lest one overtakes another.  A crash leaves what was not moved where it was.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/latch.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"

#include "action.h"
#include "failure.h"
#include "identity.h"
#include "lostmove.h"
#include "mover.h"
#include "plan.h"
#include "shmem.h"
#include "sql.h"
#include "stmt.h"

/* Places of rows that are read at a time. */
#define MAX_PLACES		50000
#define MOVE_LOCK_TIMEOUT	"100ms"
#define MOVE_TRIES	5
#define FIRST_REST_MS	50
#define MAX_WAITS	12			/* for locks: as many as lead to one row of
								 * many */
#define MOVE_MS		10000		/* for rows that are moved together */
#define BATCH_MS	1000		/* so long a batch should take */
#define BATCH_GROWTH	8

/* What a role has appended to a table. */
typedef struct Stream
{
	Datum		streams;		/* int[]: those of append_stream */
	Oid			relid;			/* invalid: the table is gone */
	char	   *relation;
	int			batch;			/* rows of one transaction */
} Stream;

/* What happens while the rows of a role are moved. */
typedef struct Run
{
	bool		(*must_stop) (void);
	int			turn_ms;		/* of each stream */
	MemoryContext cxt;			/* of a batch */
	int64		moved;
	bool		left;			/* some that are due stay for another time */
	int			waits;			/* for locks or other rows, in vain */
	int			batch;			/* rows that were moved together in good time,
								 * and more */
	bool		singly;			/* one may end its process */
	bool		too_slow;		/* the last batch took its time */
	bool		told;
} Run;

/* The columns that a row names, in the order in which jsonb keeps them. */
static char *
columns_of(Jsonb *row)
{
	StringInfoData buf;
	JsonbIterator *it = JsonbIteratorInit(&row->root);
	JsonbIteratorToken token;
	JsonbValue	v;

	initStringInfo(&buf);
	(void) JsonbIteratorNext(&it, &v, true);
	while ((token = JsonbIteratorNext(&it, &v, true)) != WJB_DONE)
		if (token == WJB_KEY)
			appendStringInfo(&buf, "%s%s", buf.len ? ", " : "", quote_identifier(pnstrdup(v.val.string.val, v.val.string.len)));
	return buf.data;
}

/* A column that is not named has no part in it: its default counts, and its type may refuse nulls. */
static char *
column_type(const Stream *s, char *name)
{
	Oid			type;
	int32		typmod;
	Oid			collation;
	AttrNumber	att = get_attnum(s->relid, name);

	if (att == InvalidAttrNumber)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of relation %s does not exist", name, s->relation)));
	get_atttypetypmodcoll(s->relid, att, &type, &typmod, &collation);
	return format_type_extended(type, typmod, FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY);
}

/* Insert rows that name the same columns, as the role. */
static void
insert_alike(const Stream *s, const char *columns, Datum *rows, int n)
{
	const char *relation = ssw_stmt_relation(s->relid);
	StringInfoData values;
	StringInfoData types;
	List	   *names;
	ListCell   *lc;
	Oid			type = JSONBARRAYOID;
	Datum		array;

	if (columns[0] == '\0')
	{
		for (int i = 0; i < n; i++)
			ssw_sql_exec(psprintf("INSERT INTO %s DEFAULT VALUES", relation), 0, NULL, NULL, NULL, false, 0);
		return;
	}
	initStringInfo(&values);
	initStringInfo(&types);
	if (!SplitIdentifierString(pstrdup(columns), ',', &names))
		elog(ERROR, "columns of an appended row cannot be read: %s", columns);
	foreach(lc, names)
	{
		const char *name = quote_identifier(lfirst(lc));

		appendStringInfo(&values, "%sr.%s", values.len ? ", " : "", name);
		appendStringInfo(&types, "%s%s %s", types.len ? ", " : "", name, column_type(s, lfirst(lc)));
	}
	array = PointerGetDatum(construct_array(rows, n, JSONBOID, -1, false, TYPALIGN_INT));
	ssw_sql_exec(psprintf("INSERT INTO %s (%s) SELECT %s FROM pg_catalog.unnest($1) WITH ORDINALITY AS d (j, n)"
						  " CROSS JOIN LATERAL pg_catalog.jsonb_to_record(d.j) AS r (%s) ORDER BY d.n",
						  relation, columns, values.data, types.data),
				 1, &type, &array, NULL, false, 0);
}

/* Insert the rows, those that name the same columns and follow each other together. */
static void
insert_all(const Stream *s, Datum *rows, int n)
{
	for (int from = 0; from < n;)
	{
		char	   *columns = columns_of(DatumGetJsonbP(rows[from]));
		int			to = from + 1;

		while (to < n && strcmp(columns, columns_of(DatumGetJsonbP(rows[to]))) == 0)
			to++;
		insert_alike(s, columns, rows + from, to - from);
		from = to;
	}
}

/* Take the rows from where append() has put them; returns how many. */
static int
take(const Stream *s, const ItemPointerData *tids, int n, Datum **data)
{
	static const char *const sql =
	"WITH gone AS (DELETE FROM sweeper.append_row WHERE ctid = ANY ($1) AND stream = ANY ($2) RETURNING id, row_data)"
	" SELECT row_data, id FROM gone ORDER BY id";
	Oid			types[] = {TIDARRAYOID, INT4ARRAYOID};
	Datum		values[2];
	SswIdentity save;
	uint64		rows;

	values[0] = ssw_action_tid_array(tids, n);
	values[1] = s->streams;
	ssw_identity_become_extension(&save);
	rows = ssw_plan_execute(sql, 2, types, values, NULL, false);
	ssw_identity_restore(&save);
	*data = palloc((rows + 1) * sizeof(Datum));
	for (uint64 i = 0; i < rows; i++)
	{
		bool		isnull;

		(*data)[i] = PointerGetDatum(PG_DETOAST_DATUM_COPY(SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull)));
		if (i == 0)
			MySswProc->move_id = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 2, &isnull));
	}
	MySswProc->move_rows = rows;
	return rows;
}

/* From here on for so long: who catches that is ended with his process. */
static void
limit_time(bool on)
{
	if (on)
		enable_timeout_after(STATEMENT_TIMEOUT, MOVE_MS);
	else
		disable_timeout(STATEMENT_TIMEOUT, false);
	MySswProc->batch_deadline = on ? GetCurrentTimestamp() + 2 * MOVE_MS * INT64CONST(1000) : 0;
}

/* Move the rows, in a transaction of its own; an error is returned in the batch's context, else null. */
static ErrorData *
move(const Stream *s, const ItemPointerData *tids, int n, Run *run)
{
	ErrorData  *volatile error = NULL;
	TimestampTz began = GetCurrentTimestamp();

	PG_TRY();
	{
		Datum	   *data;
		int			rows;

		ssw_sql_start_transaction();
		limit_time(true);
		ssw_sql_begin();
		rows = take(s, tids, n, &data);
		if (!OidIsValid(s->relid))
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_TABLE), errmsg("relation %s does not exist any more", s->relation)));
		insert_all(s, data, rows);
		ssw_action_constraints_immediate();
		ssw_sql_end();
		limit_time(false);
		CHECK_FOR_INTERRUPTS();
		MySswProc->move_rows = 0;
		ssw_sql_commit();
		run->moved += rows;
	}
	PG_CATCH();
	{
		MySswProc->move_rows = 0;
		MemoryContextSwitchTo(run->cxt);
		error = CopyErrorData();
		FlushErrorState();
		limit_time(false);
		ssw_sql_abort();
		QueryCancelPending = false;
		run->too_slow = TimestampDifferenceExceeds(began, GetCurrentTimestamp(), MOVE_MS);
	}
	PG_END_TRY();
	MemoryContextSwitchTo(run->cxt);
	return error;
}

/* Rows that cannot be written. */
static void
set_aside(const Stream *s, const ItemPointerData *tids, int n, const ErrorData *e, Run *run)
{
	static const char *const sql =
	"WITH gone AS (DELETE FROM sweeper.append_row WHERE ctid = ANY ($1) AND stream = ANY ($2) RETURNING id, stream, row_data)"
	" INSERT INTO sweeper.append_failed (id, stream, row_data, sqlstate, error) SELECT id, stream, row_data, $3, $4 FROM gone";
	Oid			types[] = {TIDARRAYOID, INT4ARRAYOID, TEXTOID, TEXTOID};
	Datum		values[4];
	SswIdentity save;

	ssw_sql_start_transaction();
	values[0] = ssw_action_tid_array(tids, n);
	values[1] = s->streams;
	values[2] = CStringGetTextDatum(unpack_sql_state(e->sqlerrcode));
	values[3] = CStringGetTextDatum(e->message ? e->message : "unknown error");
	ssw_identity_become_extension(&save);
	ssw_sql_begin();
	run->moved += ssw_plan_execute(sql, 4, types, values, NULL, false);
	ssw_sql_end();
	ssw_identity_restore(&save);
	ssw_sql_commit();
	MemoryContextSwitchTo(run->cxt);
}

/* Wait a little before a row is tried again; false: there is no time. */
static bool
rest(int tries, const Run *run)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, FIRST_REST_MS << tries, PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	return !run->must_stop();
}

/* Move one row.  What conflicts again and again does so for ever. */
static ErrorData *
move_one(const Stream *s, const ItemPointerData *tid, Run *run)
{
	ErrorData  *e;
	int			tries = 0;

	do
		e = move(s, tid, 1, run);
	while (e && ERRCODE_TO_CATEGORY(e->sqlerrcode) == ERRCODE_TRANSACTION_ROLLBACK && ++tries < MOVE_TRIES && rest(tries, run));
	return e;
}

/* Is the error the row's, which another try would bring again? */
static bool
is_of_row(const ErrorData *e, const Run *run)
{
	switch (ssw_failure_classify(e->sqlerrcode))
	{
		case SSW_FAIL_ROW:
		case SSW_FAIL_POLICY:
			return ERRCODE_TO_CATEGORY(e->sqlerrcode) != ERRCODE_INSUFFICIENT_RESOURCES;
		default:
			return ERRCODE_TO_CATEGORY(e->sqlerrcode) == ERRCODE_TRANSACTION_ROLLBACK ||
				(e->sqlerrcode == ERRCODE_QUERY_CANCELED && run->too_slow);
	}
}

/* Does a row refer to one that was appended before, and is still to be written? */
static bool
refers_to_waiting(const Stream *s, const ItemPointerData *tid, const ErrorData *e, Run *run)
{
	static const char *const sql =
	"SELECT FROM sweeper.append_row AS r JOIN sweeper._append_stream AS s USING (stream)"
	" WHERE s.here AND s.role_oid = $1 AND s.relid <> $2 AND r.id < (SELECT q.id FROM sweeper.append_row AS q WHERE q.ctid = $3)"
	" AND s.relid IN (SELECT c.confrelid FROM pg_catalog.pg_constraint AS c WHERE c.conrelid = $2 AND c.contype = 'f') LIMIT 1";
	Oid			types[] = {OIDOID, OIDOID, TIDOID};
	Datum		values[] = {ObjectIdGetDatum(GetUserId()), ObjectIdGetDatum(s->relid), PointerGetDatum(tid)};
	SswIdentity save;
	bool		found;

	if (e->sqlerrcode != ERRCODE_FOREIGN_KEY_VIOLATION)
		return false;
	ssw_sql_start_transaction();
	ssw_identity_become_extension(&save);
	ssw_sql_begin();
	found = ssw_plan_execute(sql, 3, types, values, NULL, true) > 0;
	ssw_sql_end();
	ssw_identity_restore(&save);
	ssw_sql_commit();
	MemoryContextSwitchTo(run->cxt);
	return found;
}

/* They stay for another time; told once. */
static void
leave(const Stream *s, const ErrorData *e, Run *run)
{
	run->left = true;
	if (!run->told)
		ereport(LOG,
				(errcode(e->sqlerrcode),
				 errmsg("could not write rows appended to %s: %s", s->relation, e->message),
				 errdetail("It is tried again.")));
	run->told = true;
}

/* Move them together, or by halves; false: no others of the stream now. */
static bool
move_by_halves(const Stream *s, const ItemPointerData *tids, int n, Run *run)
{
	ErrorData  *e = n > 1 ? move(s, tids, n, run) : move_one(s, tids, run);
	SswFailureClass failure;

	if (e == NULL)
		return true;
	failure = ssw_failure_classify(e->sqlerrcode);
	/* one row that takes all the time there is would do so in each turn */
	if ((run->must_stop() && (n > 1 || !run->too_slow)) || (MySswProc->terminating && !run->too_slow))
		return false;
	if (failure == SSW_FAIL_LOCKED && ++run->waits > MAX_WAITS)
	{
		leave(s, e, run);
		return false;
	}
	if (n > 1 && OidIsValid(s->relid) && (is_of_row(e, run) || failure == SSW_FAIL_TRANSIENT || failure == SSW_FAIL_LOCKED))
		return move_by_halves(s, tids, n / 2, run) && move_by_halves(s, tids + n / 2, n - n / 2, run);
	if (n == 1 && refers_to_waiting(s, tids, e, run))
	{
		run->left = true;
		return ++run->waits <= MAX_WAITS;
	}
	if (is_of_row(e, run))
	{
		set_aside(s, tids, n, e, run);
		return true;
	}
	leave(s, e, run);
	/* the others go on, unless it is the table's or the server's trouble */
	return n == 1 && (failure == SSW_FAIL_TRANSIENT || failure == SSW_FAIL_LOCKED);
}

/* The streams of this role whose rows are due, or that have some up to that number. */
static List *
read_streams(int64 up_to, MemoryContext cxt)
{
	static const char *const sql =
	"SELECT array_agg(s.stream), s.relid, s.relation, min(s.flush_rows) FROM sweeper._append_waiting AS s"
	" WHERE s.here AND s.role_oid = $1 GROUP BY 2, 3 HAVING bool_or(s.due OR s.first <= $2) ORDER BY min(s.first)";
	Oid			types[] = {OIDOID, INT8OID};
	Datum		values[2];
	SswIdentity save;
	List	   *result = NIL;
	uint64		n;
	MemoryContext old;

	ssw_sql_start_transaction();
	values[0] = ObjectIdGetDatum(GetUserId());
	values[1] = Int64GetDatum(up_to);
	ssw_identity_become_extension(&save);
	ssw_sql_begin();
	n = ssw_plan_execute(sql, 2, types, values, NULL, false);
	old = MemoryContextSwitchTo(cxt);
	for (uint64 i = 0; i < n; i++)
	{
		HeapTuple	tup = SPI_tuptable->vals[i];
		TupleDesc	desc = SPI_tuptable->tupdesc;
		Stream	   *s = palloc0(sizeof(Stream));
		bool		isnull;

		s->streams = datumCopy(SPI_getbinval(tup, desc, 1, &isnull), false, -1);
		s->relid = DatumGetObjectId(SPI_getbinval(tup, desc, 2, &isnull));
		s->relation = MemoryContextStrdup(cxt, SPI_getvalue(tup, desc, 3));
		s->batch = DatumGetInt32(SPI_getbinval(tup, desc, 4, &isnull));
		if (get_rel_name(s->relid) == NULL)
			s->relid = InvalidOid;
		result = lappend(result, s);
	}
	MemoryContextSwitchTo(old);
	ssw_sql_end();
	ssw_identity_restore(&save);
	ssw_sql_commit();
	return result;
}

/* Where the oldest of its rows are. */
static int
read_places(const Stream *s, ItemPointerData **tids, MemoryContext cxt)
{
	Oid			types[] = {INT4ARRAYOID, INT4OID};
	Datum		values[] = {s->streams, Int32GetDatum(MAX_PLACES)};
	SswIdentity save;
	int			n;

	ssw_sql_start_transaction();
	ssw_identity_become_extension(&save);
	ssw_sql_begin();
	n = ssw_plan_execute("SELECT ctid FROM sweeper.append_row WHERE stream = ANY ($1) ORDER BY id LIMIT $2", 2, types, values, NULL, false);
	*tids = MemoryContextAlloc(cxt, (n + 1) * sizeof(ItemPointerData));
	for (int i = 0; i < n; i++)
	{
		bool		isnull;

		(*tids)[i] = *(ItemPointer) DatumGetPointer(SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull));
	}
	ssw_sql_end();
	ssw_identity_restore(&save);
	ssw_sql_commit();
	MemoryContextSwitchTo(cxt);
	return n;
}

/*
 * How many rows to move together after so many that took that time.  What a table's
 * triggers take is known to nobody before, and who waits for his turn waits for a batch.
 */
static int
next_batch(const Stream *s, int rows, int64 took_us)
{
	double		most = (double) rows * BATCH_MS * 1000 / Max(1, took_us);

	return Max(1, Min(Min(most, (double) rows * BATCH_GROWTH), s->batch));
}

/* Move what is due, or has numbers up to that one, as far as there is time. */
static void
move_streams(int64 up_to, MemoryContext cxt, Run *run)
{
	List	   *streams = read_streams(up_to, cxt);
	ListCell   *lc;

	foreach(lc, streams)
	{
		const Stream *s = lfirst(lc);
		ItemPointerData *tids;
		int			n = read_places(s, &tids, cxt);
		TimestampTz until = GetCurrentTimestamp() + run->turn_ms * INT64CONST(1000);

		pgstat_report_activity(STATE_RUNNING, psprintf("rows appended to %s", s->relation));
		run->waits = 0;
		run->batch = 1;
		for (int from = 0, rows; from < n && !run->must_stop() && GetCurrentTimestamp() < until; from += rows)
		{
			TimestampTz began = GetCurrentTimestamp();

			rows = run->singly ? 1 : Min(Min(s->batch, run->batch), n - from);
			MemoryContextReset(run->cxt);
			if (!move_by_halves(s, tids + from, rows, run))
				break;
			run->batch = next_batch(s, rows, GetCurrentTimestamp() - began);
		}
		MemoryContextSwitchTo(cxt);
	}
}

/* Become the one that moves rows of this role; false: another does. */
static bool
begin_moving(void)
{
	bool		taken = false;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	for (int i = 0; i < SswShared->nprocs && !taken; i++)
		taken = SswProcs[i].state != SSW_STATE_FREE && SswProcs[i].moves &&
			SswProcs[i].database == MySswProc->database && SswProcs[i].role == MySswProc->role;
	MySswProc->moves = !taken;
	LWLockRelease(SswShared->lock);
	return !taken;
}

/*
 * Move what this role has appended and is due, or has numbers up to that one, unless
 * it must stop, a table for about so long; true: there may be more at once.  An error of our own tables, as of a
 * disk that is full, is reported: the coordinator has it tried again, as it has what
 * is left.
 */
bool
ssw_mover_run(int64 up_to, bool (*must_stop) (void), int turn_ms)
{
	MemoryContext cxt;
	volatile bool failed = false;
	Run			run = {.must_stop = must_stop,.turn_ms = turn_ms};
	SswLostMove lost;

	if (!begin_moving())
		return false;
	cxt = AllocSetContextCreate(TopMemoryContext, "appended rows", ALLOCSET_DEFAULT_SIZES);
	run.cxt = AllocSetContextCreate(cxt, "batch", ALLOCSET_DEFAULT_SIZES);
	/* the owner of a table may hold it for ever */
	SetConfigOption("lock_timeout", MOVE_LOCK_TIMEOUT, PGC_USERSET, PGC_S_SESSION);
	PG_TRY();
	{
		run.singly = ssw_lostmove_find(&lost);
		if (run.singly)
			ssw_lostmove_set_aside(&lost);
		move_streams(up_to, cxt, &run);
		/* what went by itself was not at fault */
		if (run.singly && !run.left && !must_stop())
			ssw_lostmove_forget(&lost);
	}
	PG_CATCH();
	{
		failed = true;
		MemoryContextSwitchTo(cxt);
		EmitErrorReport();
		FlushErrorState();
		ssw_sql_abort();
	}
	PG_END_TRY();
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	MySswProc->moves = false;
	LWLockRelease(SswShared->lock);
	pgstat_report_activity(STATE_IDLE, NULL);
	MemoryContextSwitchTo(TopMemoryContext);
	MemoryContextDelete(cxt);
	return run.moved > 0 && !run.left && !failed;
}
