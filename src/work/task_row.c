/*
 * task_row.c
 *		The states of a task, the steps between them, and what else is written to its row.
 *
 * A trigger of sweeper.task allows only the steps that are listed here; what changes a task
 * without a statement (own_row.c) checks its step itself.  The trigger is C, and its
 * conditions are no expressions of the catalog, because each statement would read and
 * prepare those again.  Progress and comments are written wherever tasks change, in that
 * transaction, as the extension's owner.
 *
 * Shares nothing; reads progress from memory (task_shmem.c).  A crash, or a
 * rollback, undoes what was written.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/rel.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#include "base/cached_plan.h"
#include "base/identity.h"
#include "base/shmem.h"
#include "base/spi.h"
#include "work/task_row.h"
#include "work/task_shmem.h"

PG_FUNCTION_INFO_V1(ssw_task_transition);
PG_FUNCTION_INFO_V1(ssw_task_progress_seen);

typedef struct Transitions
{
	const char *from;
	const char *to[8];
} Transitions;

static const Transitions transitions[] = {
	{"allocated", {"enqueued", "cancelled", "dropped"}},
	{"enqueued", {"claimed", "running", "cancelled", "dropped"}},
	{"claimed", {"running", "failed", "cancelled", "dropped", "allocated"}},
	{"running", {"completed", "failed", "cancelled", "dropped", "allocated"}},
	{"completed", {0}}, {"failed", {"enqueued"}}, {"cancelled", {0}}, {"dropped", {0}},
};

static const Transitions *
find(const char *status)
{
	for (int i = 0; i < lengthof(transitions); i++)
		if (strcmp(transitions[i].from, status) == 0)
			return &transitions[i];
	ereport(ERROR,
			(errcode(ERRCODE_CHECK_VIOLATION), errmsg("a task cannot be \"%s\"", status)));
}

/* All states, for people. */
char	   *
ssw_task_row_states(void)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (int i = 0; i < lengthof(transitions); i++)
		appendStringInfo(&buf, "%s%s", i > 0 ? ", " : "", transitions[i].from);
	return buf.data;
}

static bool
leads_to(const Transitions *t, const char *status)
{
	for (int i = 0; i < lengthof(t->to) && t->to[i]; i++)
		if (strcmp(t->to[i], status) == 0)
			return true;
	return false;
}

static char *
status_of(HeapTuple tup, Relation rel)
{
	bool		isnull;
	Datum		value = SPI_getbinval(tup, RelationGetDescr(rel), SPI_fnumber(RelationGetDescr(rel), "status"), &isnull);

	return isnull ? pstrdup("") : TextDatumGetCString(value);
}

/* An error unless a task may go from one state to the other. */
void
ssw_task_row_check_step(const char *from, const char *to)
{
	if (strcmp(from, to) != 0 && !leads_to(find(from), to))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("a task that is %s cannot become %s", from, to),
				 strcmp(from, "claimed") == 0 ?
				 errhint("Start it first: sweeper.start_task(), or claim(..., start => true).") : 0));
}

/* _task_transition(), before a task is inserted, or its status written. */
Datum
ssw_task_transition(PG_FUNCTION_ARGS)
{
	TriggerData *t = (TriggerData *) fcinfo->context;
	bool		is_update;
	HeapTuple	next;
	char	   *to;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_BEFORE(t->tg_event) || !TRIGGER_FIRED_FOR_ROW(t->tg_event) ||
		TRIGGER_FIRED_BY_DELETE(t->tg_event) ||
		SPI_gettypeid(RelationGetDescr(t->tg_relation), SPI_fnumber(RelationGetDescr(t->tg_relation), "status")) != TEXTOID)
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("sweeper._task_transition() is only for sweeper.task, before a row is inserted or updated")));
	is_update = TRIGGER_FIRED_BY_UPDATE(t->tg_event);
	next = is_update ? t->tg_newtuple : t->tg_trigtuple;
	to = status_of(next, t->tg_relation);
	if (!is_update)
	{
		(void) find(to);
		return PointerGetDatum(next);
	}
	ssw_task_row_check_step(status_of(t->tg_trigtuple, t->tg_relation), to);
	return PointerGetDatum(next);
}

static void
execute(const char *sql, int nargs, Oid *types, Datum *values)
{
	SswIdentity save;

	ssw_spi_begin_as_extension(&save);
	ssw_plan_execute(sql, nargs, types, values, NULL, false);
	ssw_spi_end_as(&save);
}

/* Write the worker's report to the row. */
void
ssw_task_row_said(Datum task, const SswProgress *p)
{
	static const char *const sql =
	"UPDATE sweeper.task SET progress_at = clock_timestamp(), done = CASE WHEN $2 THEN $3 ELSE done END,"
	" total = CASE WHEN $4 THEN $5 ELSE total END, message = coalesce($6, message) WHERE task = $1";
	Oid			types[] = {UUIDOID, BOOLOID, INT8OID, BOOLOID, INT8OID, TEXTOID};
	Datum		values[] = {task, BoolGetDatum(p->has_done), Int64GetDatum(p->done), BoolGetDatum(p->has_total),
	Int64GetDatum(p->total), p->message[0] ? CStringGetTextDatum(p->message) : (Datum) 0};

	execute(sql, 6, types, values);
}

/* The task changes: write its worker's last report to the row. */
void
ssw_task_row_progress(Datum task)
{
	SswProgressKey key = {.database = MyDatabaseId,.task = *DatumGetUUIDP(task)};
	SswProgress p;

	if (ssw_task_shmem_find(&key, &p))
		ssw_task_row_said(task, &p);
}

/* Record what a role did to the task, and why. */
void
ssw_task_row_comment(Datum task, const char *actor, const char *comment)
{
	Oid			types[] = {UUIDOID, TEXTOID, TEXTOID};
	Datum		values[] = {task, CStringGetTextDatum(actor), CStringGetTextDatum(comment)};

	execute("INSERT INTO sweeper.task_comment (task, actor, comment) VALUES ($1, $2, $3)", 3, types, values);
}

/* _task_progress(task) → progress_at, done, total, message, as memory knows them; else nulls. */
Datum
ssw_task_progress_seen(PG_FUNCTION_ARGS)
{
	SswProgressKey key = {.database = MyDatabaseId,.task = *PG_GETARG_UUID_P(0)};
	SswProgress p;
	TupleDesc	desc;
	Datum		v[4] = {0};
	bool		isnull[4] = {true, true, true, true};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	if (ssw_shmem_available() && ssw_task_shmem_find(&key, &p))
	{
		isnull[0] = p.at == 0;
		v[0] = TimestampTzGetDatum(p.at);
		isnull[1] = !p.has_done;
		v[1] = Int64GetDatum(p.done);
		isnull[2] = !p.has_total;
		v[2] = Int64GetDatum(p.total);
		isnull[3] = p.message[0] == '\0';
		v[3] = isnull[3] ? (Datum) 0 : CStringGetTextDatum(p.message);
	}
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), v, isnull)));
}
