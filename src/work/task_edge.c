/*
 * task_edge.c
 *		The states of a task, and the steps between them: here and nowhere else.
 *
 * A trigger of sweeper.task; runs in whatever process writes to it.  Shares nothing;
 * a crash leaves nothing behind.  It is C, and its conditions are no expressions of
 * the catalog, because those are read and prepared anew by each statement.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(ssw_task_edge);

typedef struct Edges
{
	const char *from;
	const char *to[8];
} Edges;

static const Edges edges[] = {
	{"allocated", {"enqueued", "cancelled", "dropped"}},
	{"enqueued", {"claimed", "running", "cancelled", "dropped"}},
	{"claimed", {"running", "enqueued", "failed", "cancelled", "dropped"}},
	{"running", {"completed", "failed", "cancelled", "dropped", "enqueued", "allocated"}},
	{"completed", {0}}, {"failed", {0}}, {"cancelled", {0}}, {"dropped", {0}},
};

static const Edges *
find(const char *status)
{
	for (int i = 0; i < lengthof(edges); i++)
		if (strcmp(edges[i].from, status) == 0)
			return &edges[i];
	ereport(ERROR,
			(errcode(ERRCODE_CHECK_VIOLATION), errmsg("a task cannot be \"%s\"", status)));
}

static bool
leads_to(const Edges *e, const char *status)
{
	for (int i = 0; i < lengthof(e->to) && e->to[i]; i++)
		if (strcmp(e->to[i], status) == 0)
			return true;
	return false;
}

static char *
status_of(HeapTuple tup, Relation rel)
{
	int			col = SPI_fnumber(RelationGetDescr(rel), "status");
	bool		isnull;
	Datum		value;

	if (col <= 0 || SPI_gettypeid(RelationGetDescr(rel), col) != TEXTOID)
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("relation \"%s\" is not of tasks", RelationGetRelationName(rel))));
	value = SPI_getbinval(tup, RelationGetDescr(rel), col, &isnull);
	return isnull ? pstrdup("") : TextDatumGetCString(value);
}

/* _task_edge(), before a task is inserted, or its status written. */
Datum
ssw_task_edge(PG_FUNCTION_ARGS)
{
	TriggerData *t = (TriggerData *) fcinfo->context;
	bool		is_update;
	HeapTuple	next;
	char	   *from;
	char	   *to;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_BEFORE(t->tg_event) || !TRIGGER_FIRED_FOR_ROW(t->tg_event) ||
		TRIGGER_FIRED_BY_DELETE(t->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("sweeper._task_edge() must be called before a row is inserted or updated")));
	is_update = TRIGGER_FIRED_BY_UPDATE(t->tg_event);
	next = is_update ? t->tg_newtuple : t->tg_trigtuple;
	to = status_of(next, t->tg_relation);
	if (!is_update)
	{
		(void) find(to);
		return PointerGetDatum(next);
	}
	from = status_of(t->tg_trigtuple, t->tg_relation);
	if (strcmp(from, to) != 0 && !leads_to(find(from), to))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("a task that is %s cannot become %s", from, to),
				 strcmp(from, "claimed") == 0 ?
				 errhint("Start it first: sweeper.start_task(), or claim(..., start => true).") : 0));
	return PointerGetDatum(next);
}
