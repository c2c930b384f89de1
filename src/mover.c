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
 * Shares nothing but the tables; two that move the same rows wait for each other,
 * and the second finds them gone.  A crash leaves what was not moved where it was.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/namespace.h"
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
#include "utils/varlena.h"

#include "action.h"
#include "failure.h"
#include "identity.h"
#include "mover.h"
#include "plan.h"
#include "sql.h"
#include "stmt.h"

/* Places of rows that are read at a time. */
#define MAX_PLACES		50000
#define MOVE_LOCK_TIMEOUT	"500ms"
#define MOVE_TRIES	5
#define FIRST_REST_MS	50

/* What a role has appended to a table. */
typedef struct Stream
{
	Datum		streams;		/* int[]: those of append_stream */
	Oid			relid;			/* invalid: the table is gone */
	char	   *relation;
	int			batch;			/* rows of one transaction */
} Stream;

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

/* Insert rows that name the same columns, as the role. */
static void
insert_alike(const Stream *s, const char *columns, Datum *rows, int n)
{
	const char *relation = ssw_stmt_relation(s->relid);
	StringInfoData values;
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
	if (!SplitIdentifierString(pstrdup(columns), ',', &names))
		elog(ERROR, "columns of an appended row cannot be read: %s", columns);
	foreach(lc, names)
		appendStringInfo(&values, "%sr.%s", values.len ? ", " : "", quote_identifier(lfirst(lc)));
	array = PointerGetDatum(construct_array(rows, n, JSONBOID, -1, false, TYPALIGN_INT));
	ssw_sql_exec(psprintf("INSERT INTO %s (%s) SELECT %s FROM pg_catalog.unnest($1) WITH ORDINALITY AS d (j, n)"
						  " CROSS JOIN LATERAL pg_catalog.jsonb_populate_record(NULL::%s, d.j) AS r ORDER BY d.n",
						  relation, columns, values.data, relation),
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

/* Move the rows, in a transaction of its own; an error is returned in cxt, else null. */
static ErrorData *
move(const Stream *s, const ItemPointerData *tids, int n, MemoryContext cxt)
{
	static const char *const sql =
	"WITH gone AS (DELETE FROM sweeper.append_row WHERE ctid = ANY ($1) AND stream = ANY ($2) RETURNING id, row_data)"
	" SELECT row_data FROM gone ORDER BY id";
	ErrorData  *volatile error = NULL;

	PG_TRY();
	{
		Oid			types[] = {TIDARRAYOID, INT4ARRAYOID};
		Datum		values[2];
		SswIdentity save;
		uint64		rows;
		Datum	   *data;

		ssw_sql_start_transaction();
		ssw_sql_begin();
		values[0] = ssw_action_tid_array(tids, n);
		values[1] = s->streams;
		ssw_identity_become_extension(&save);
		rows = ssw_plan_execute(sql, 2, types, values, NULL, false);
		ssw_identity_restore(&save);
		data = palloc((rows + 1) * sizeof(Datum));
		for (uint64 i = 0; i < rows; i++)
		{
			bool		isnull;

			data[i] = PointerGetDatum(PG_DETOAST_DATUM_COPY(SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, 1, &isnull)));
		}
		if (!OidIsValid(s->relid))
			ereport(ERROR,
					(errcode(ERRCODE_UNDEFINED_TABLE), errmsg("relation %s does not exist any more", s->relation)));
		insert_all(s, data, rows);
		ssw_action_constraints_immediate();
		ssw_sql_end();
		ssw_sql_commit();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(cxt);
		error = CopyErrorData();
		FlushErrorState();
		ssw_sql_abort();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(cxt);
	return error;
}

/* Rows that cannot be written. */
static void
set_aside(const Stream *s, const ItemPointerData *tids, int n, const ErrorData *e)
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
	ssw_plan_execute(sql, 4, types, values, NULL, false);
	ssw_sql_end();
	ssw_identity_restore(&save);
	ssw_sql_commit();
}

/* Wait a little before a row is tried again; false: there is no time. */
static bool
rest(int tries, bool (*must_stop) (void))
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, FIRST_REST_MS << tries, PG_WAIT_EXTENSION);
	ResetLatch(MyLatch);
	return !must_stop();
}

/* Move one row.  Somebody's lock is waited for as long as it takes; what conflicts again and again does so for ever. */
static ErrorData *
move_one(const Stream *s, const ItemPointerData *tid, MemoryContext cxt, bool (*must_stop) (void))
{
	ErrorData  *e;
	int			tries = 0;

	do
		e = move(s, tid, 1, cxt);
	while (e && ERRCODE_TO_CATEGORY(e->sqlerrcode) == ERRCODE_TRANSACTION_ROLLBACK && ++tries < MOVE_TRIES && rest(tries, must_stop));
	return e;
}

/* Is the error the row's, which another try would bring again? */
static bool
is_of_row(const ErrorData *e)
{
	switch (ssw_failure_classify(e->sqlerrcode))
	{
		case SSW_FAIL_ROW:
		case SSW_FAIL_POLICY:
			return ERRCODE_TO_CATEGORY(e->sqlerrcode) != ERRCODE_INSUFFICIENT_RESOURCES;
		default:
			return ERRCODE_TO_CATEGORY(e->sqlerrcode) == ERRCODE_TRANSACTION_ROLLBACK;
	}
}

/* Move them together, or by halves; false: not now. */
static bool
move_by_halves(const Stream *s, const ItemPointerData *tids, int n, MemoryContext cxt, bool (*must_stop) (void))
{
	ErrorData  *e = n > 1 ? move(s, tids, n, cxt) : move_one(s, tids, cxt, must_stop);
	SswFailureClass failure;

	if (e == NULL)
		return true;
	failure = ssw_failure_classify(e->sqlerrcode);
	if (must_stop())
		return false;
	if (n > 1 && OidIsValid(s->relid) && (is_of_row(e) || failure == SSW_FAIL_TRANSIENT))
		return move_by_halves(s, tids, n / 2, cxt, must_stop) && move_by_halves(s, tids + n / 2, n - n / 2, cxt, must_stop);
	if (is_of_row(e))
	{
		set_aside(s, tids, n, e);
		MemoryContextSwitchTo(cxt);
		return true;
	}
	ereport(LOG,
			(errcode(e->sqlerrcode),
			 errmsg("could not write rows appended to %s: %s", s->relation, e->message),
			 errdetail("It is tried again.")));
	/* the others go on */
	return n == 1 && failure == SSW_FAIL_TRANSIENT;
}

/* The streams of this role whose rows are due, or that have some up to that number. */
static List *
read_streams(int64 up_to, MemoryContext cxt)
{
	static const char *const sql =
	"SELECT array_agg(s.stream), s.relid, s.relation, min(s.flush_rows), s.system_identifier = $2 AND s.database = $3 FROM sweeper._append_waiting AS s"
	" WHERE s.role = $1 AND (s.role_oid = $5 OR s.system_identifier <> $2) GROUP BY 2, 3, 5 HAVING bool_or(s.due OR s.first <= $4) ORDER BY min(s.stream)";
	Oid			types[] = {TEXTOID, INT8OID, OIDOID, INT8OID, OIDOID};
	Datum		values[5];
	SswIdentity save;
	List	   *result = NIL;
	uint64		n;
	MemoryContext old;

	ssw_sql_start_transaction();
	values[0] = CStringGetTextDatum(GetUserNameFromId(GetUserId(), false));
	values[1] = Int64GetDatum((int64) GetSystemIdentifier());
	values[2] = ObjectIdGetDatum(MyDatabaseId);
	values[3] = Int64GetDatum(up_to);
	values[4] = ObjectIdGetDatum(GetUserId());
	ssw_identity_become_extension(&save);
	ssw_sql_begin();
	n = ssw_plan_execute(sql, 5, types, values, NULL, false);
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
		/* restored elsewhere: by name */
		if (!DatumGetBool(SPI_getbinval(tup, desc, 5, &isnull)))
			s->relid = RangeVarGetRelid(makeRangeVarFromNameList(textToQualifiedNameList(cstring_to_text(s->relation))), NoLock, true);
		else if (get_rel_name(s->relid) == NULL)
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

/* Move what is due, or has numbers up to that one, as far as there is time; returns how many rows went. */
static int64
move_streams(int64 up_to, bool (*must_stop) (void), MemoryContext cxt)
{
	MemoryContext batch_cxt = AllocSetContextCreate(cxt, "batch", ALLOCSET_DEFAULT_SIZES);
	int64		total = 0;
	List	   *streams = read_streams(up_to, cxt);
	ListCell   *lc;

	foreach(lc, streams)
	{
		const Stream *s = lfirst(lc);
		ItemPointerData *tids;
		int			n = read_places(s, &tids, cxt);

		for (int from = 0; from < n && !must_stop(); from += s->batch)
		{
			int			size = Min(s->batch, n - from);

			MemoryContextReset(batch_cxt);
			if (!move_by_halves(s, tids + from, size, batch_cxt, must_stop))
				break;
			total += size;
		}
		MemoryContextSwitchTo(cxt);
	}
	return total;
}

/*
 * Move what this role has appended and is due, or has numbers up to that one, unless
 * it must stop; returns how many rows went.  An error of our own tables, as of a
 * disk that is full, is reported: the coordinator has it tried again.
 */
int64
ssw_mover_run(int64 up_to, bool (*must_stop) (void))
{
	MemoryContext cxt = AllocSetContextCreate(TopMemoryContext, "appended rows", ALLOCSET_DEFAULT_SIZES);
	volatile int64 total = 0;

	/* the owner of a table may hold it for ever */
	SetConfigOption("lock_timeout", MOVE_LOCK_TIMEOUT, PGC_USERSET, PGC_S_SESSION);
	PG_TRY();
	{
		total = move_streams(up_to, must_stop, cxt);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(cxt);
		EmitErrorReport();
		FlushErrorState();
		ssw_sql_abort();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(TopMemoryContext);
	MemoryContextDelete(cxt);
	return total;
}
