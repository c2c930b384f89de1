/*
 * preview.c
 *		What a policy would find and cost now, and what would help it.
 *
 * Runs in the backend that registers a policy or asks for a preview.  All that
 * may run code of the relation's owner is read as that owner, in read-only
 * statements; at most 100,000 entries or one second long each.  Shares and
 * changes nothing; a crash leaves nothing behind.
 */
#include "postgres.h"

#include <math.h>

#include "access/table.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "portability/instr_time.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "base/identity.h"
#include "base/relation_guard.h"
#include "base/spi.h"
#include "commands/preview.h"
#include "commands/sample.h"
#include "policy/index.h"
#include "policy/row_key.h"

#define MAX_ENTRIES		100000
#define MAX_SECONDS		1.0
#define SAMPLE_ROWS		10000
#define FIRST_ROWS		10
#define FETCH_ROWS		1000
/* guess of rows a second, where no rate says it */
#define TYPICAL_RATE	20000

/* What one stream of entries found. */
typedef struct Tally
{
	int64		rows;			/* entries read */
	int64		matched;		/* of these, selected by the filter */
	int64		with_deadline;	/* of these, with a deadline */
	int64		dead;
	int64		absurd;
	bool		complete;		/* neither limit was reached */
} Tally;

/* A row's earliest deadline. */
static char *
due_sql(const SswPolicy *p)
{
	if (p->ndeadlines == 1)
		return p->deadlines[0].due;
	return psprintf("LEAST(%s, %s)", p->deadlines[0].due, p->deadlines[1].due);
}

/* Boolean over t and $1, never null: past a deadline. */
static char *
dead_sql(const SswPolicy *p)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfoString(&buf, "COALESCE(");
	for (int i = 0; i < p->ndeadlines; i++)
		appendStringInfo(&buf, "%s(%s)", i ? " OR " : "", p->deadlines[i].predicate);
	appendStringInfoString(&buf, ", false)");
	if (p->on_null == SSW_NULL_EXPIRE)
		appendStringInfo(&buf, " OR (%s)", p->null_predicate);
	return buf.data;
}

/* Boolean over t: the deadline is one that nobody means.  Infinite is "never". */
static char *
absurd_sql(const SswPolicy *p)
{
	StringInfoData buf;

	initStringInfo(&buf);
	for (int i = 0; i < p->ndeadlines; i++)
		appendStringInfo(&buf, "%sCOALESCE(pg_catalog.isfinite(%s) AND %s NOT BETWEEN pg_catalog.now() - '1827 days'::interval"
						 " AND pg_catalog.now() + '36525 days'::interval, false)",
						 i ? " OR " : "", p->deadlines[i].due, p->deadlines[i].due);
	return buf.data;
}

static char *
filter_sql(const SswPolicy *p)
{
	return p->filter ? psprintf("COALESCE((%s), false)", p->filter) : "true";
}

static bool
get_bool(HeapTuple tup, int col)
{
	bool		isnull;
	Datum		d = SPI_getbinval(tup, SPI_tuptable->tupdesc, col, &isnull);

	return !isnull && DatumGetBool(d);
}

/* Take in one row of: dead, selected, absurd, deadline, key. */
static void
tally_row(SswPreview *v, Tally *t, MemoryContext cxt, HeapTuple tup)
{
	bool		isnull;
	Datum		d;

	t->rows++;
	if (!get_bool(tup, 2))
		return;
	t->matched++;
	d = SPI_getbinval(tup, SPI_tuptable->tupdesc, 4, &isnull);
	if (!isnull)
	{
		TimestampTz due = DatumGetTimestampTz(d);

		t->with_deadline++;
		v->earliest = Min(v->earliest, due);
		v->latest = Max(v->latest, due);
		if (get_bool(tup, 1))
		{
			v->oldest = v->found ? Min(v->oldest, due) : due;
			v->newest = v->found ? Max(v->newest, due) : due;
			v->found = true;
		}
	}
	if (get_bool(tup, 3))
		t->absurd++;
	if (get_bool(tup, 1))
	{
		char	   *key = SPI_getvalue(tup, SPI_tuptable->tupdesc, 5);

		t->dead++;
		if (key && v->nkeys < SSW_PREVIEW_KEYS)
			v->keys[v->nkeys++] = MemoryContextStrdup(cxt, key);
	}
}

/* Whose expression it is that fails. */
static void
stream_error_callback(void *arg)
{
	const SswPolicy *p = arg;

	errcontext("counting the rows of %s that policy \"%s\" would end", p->relation, p->name);
}

/* Stream a query with $1 the cutoff, within the limits. */
static Tally
stream(const SswPolicy *p, SswPreview *v, MemoryContext cxt, const char *sql)
{
	Oid			type = TIMESTAMPTZOID;
	Datum		value = TimestampTzGetDatum(GetCurrentTimestamp() - p->keep_for_us);
	Portal		portal;
	Tally		t = {0};
	uint64		rows = FIRST_ROWS;	/* to fetch; more when they come fast */
	instr_time	start;
	instr_time	now;
	ErrorContextCallback callback = {error_context_stack, stream_error_callback, unconstify(SswPolicy *, p)};

	error_context_stack = &callback;
	INSTR_TIME_SET_CURRENT(start);
	portal = SPI_cursor_open(NULL, ssw_spi_prepare(sql, 1, &type, CURSOR_OPT_FAST_PLAN | CURSOR_OPT_NO_SCROLL),
							 &value, NULL, true);
	for (;;)
	{
		SPI_cursor_fetch(portal, true, rows);
		for (uint64 i = 0; i < SPI_processed; i++)
			tally_row(v, &t, cxt, SPI_tuptable->vals[i]);
		t.complete = SPI_processed < rows;
		SPI_freetuptable(SPI_tuptable);
		INSTR_TIME_SET_CURRENT(now);
		INSTR_TIME_SUBTRACT(now, start);
		if (t.complete || t.rows >= MAX_ENTRIES || INSTR_TIME_GET_DOUBLE(now) > MAX_SECONDS)
			break;
		if (INSTR_TIME_GET_DOUBLE(now) < MAX_SECONDS / 10)
			rows = Min(2 * rows, FETCH_ROWS);
		CHECK_FOR_INTERRUPTS();
	}
	SPI_cursor_close(portal);
	error_context_stack = callback.previous;
	return t;
}

/* All rows of a small relation, or a sample of a large one. */
static void
look_at_sample(const SswPolicy *p, Relation rel, SswPreview *v, MemoryContext cxt)
{
	bool		analysed;
	double		estimate = ssw_sample_estimate(rel, &analysed);
	double		part;
	char	   *list = psprintf("%s, %s, %s, %s, %s", dead_sql(p), filter_sql(p), absurd_sql(p), due_sql(p), p->key_text);
	Tally		t = stream(p, v, cxt, ssw_sample_select(rel, list, SAMPLE_ROWS, &part));

	/* no row is nothing to judge by */
	if (t.rows == 0 && part < 1)
	{
		part = 1;
		t = stream(p, v, cxt, psprintf("SELECT %s FROM %s AS t", list, ssw_guard_table(RelationGetRelid(rel))));
	}

	/*
	 * The planner may guess how full a page is, or know it from long ago. The
	 * sample has seen it, but of few pages.
	 */
	if (t.complete && part < 1 && (!analysed || fabs(t.rows / part - estimate) > estimate / 2))
		estimate = t.rows / part;
	v->exact = t.complete && part == 1;
	v->rows = v->exact || t.rows == 0 ? t.matched :
		(int64) (Max(estimate, t.rows) * t.matched / t.rows);
	v->dead = v->exact || t.rows == 0 ? t.dead :
		(int64) (Max(estimate, t.rows) * t.dead / t.rows);
	if (t.matched > 0)
		v->sample_dead = (double) t.dead / t.matched;
	if (t.with_deadline > 0)
		v->sample_absurd = (double) t.absurd / t.with_deadline;
}

/*
 * Count the dead of a large relation through the indexes of its deadlines; the
 * filter becomes a condition only where the index needs it, so that the rows
 * it drops count as entries too.
 */
static void
count_by_index(const SswPolicy *p, Relation rel, SswPreview *v, MemoryContext cxt)
{
	char	   *name = ssw_guard_table(RelationGetRelid(rel));
	int64		dead = 0;
	bool		complete = true;

	if (p->on_null == SSW_NULL_EXPIRE)
		return;
	for (int i = 0; i < p->ndeadlines; i++)
		if (!OidIsValid(ssw_index_find(rel, p->deadlines[i].sort, p->filter)))
			return;
	v->nkeys = 0;
	for (int i = 0; i < p->ndeadlines; i++)
	{
		const SswDeadline *c = &p->deadlines[i];
		bool		needs_filter = p->filter && !OidIsValid(ssw_index_find(rel, c->sort, NULL));
		char	   *counts = i == 0 ? "true" :
		psprintf("NOT COALESCE((%s), false)", p->deadlines[0].predicate);
		Tally		t = stream(p, v, cxt,
							   psprintf("SELECT %s, %s, false, %s, %s FROM %s AS t WHERE %s%s%s ORDER BY %s",
										counts, filter_sql(p), c->due, p->key_text, name, c->predicate,
										needs_filter ? " AND " : "", needs_filter ? filter_sql(p) : "", c->sort));

		dead += t.dead;
		complete = complete && t.complete;
	}
	v->exact = complete;
	v->dead = complete ? dead : Max(dead, v->dead);
	v->rows = Max(v->rows, v->dead);
}

static void
add_advice(SswPreview *v, MemoryContext cxt, bool missing_index, const char *text)
{
	MemoryContext old = MemoryContextSwitchTo(cxt);

	v->advice = lappend(v->advice, pstrdup(text));
	if (missing_index)
		v->missing = lappend(v->missing, pstrdup(text));
	MemoryContextSwitchTo(old);
}

/* Say which index would find the dead rows of each deadline. */
static void
advise_index(const SswPolicy *p, Relation rel, SswPreview *v, MemoryContext cxt)
{
	for (int i = 0; i < p->ndeadlines; i++)
	{
		const SswDeadline *c = &p->deadlines[i];
		const char *wanted = i == 0 && p->index_sort ? p->index_sort : c->sort;
		Oid			index = ssw_index_find(rel, c->sort, p->filter);
		char	   *statement;

		if (i == 0)
			v->index = index;
		if (OidIsValid(index) && wanted != c->sort && strcmp(wanted, c->sort) != 0)
			index = InvalidOid;
		if (OidIsValid(index))
			continue;
		statement = ssw_index_statement(rel, wanted);
		if (statement)
			add_advice(v, cxt, true, statement);
		else
			add_advice(v, cxt, false,
					   "No index can serve the deadline, because its expression is not immutable: each look reads the whole table.");
	}
}

/*
 * What foreign keys do to a deletion: child rows that go too, missing indexes,
 * children that hold their parent.
 */
static void
advise_children(const SswPolicy *p, Relation rel, SswPreview *v, MemoryContext cxt)
{
	Oid			type = OIDOID;
	Datum		value = ObjectIdGetDatum(RelationGetRelid(rel));
	double		parents;
	uint64		n;

	if (p->action != SSW_ACTION_DELETE)
		return;
	parents = ssw_sample_estimate(rel, NULL);
	parents = Max(parents, 1);
	n = ssw_spi_exec("SELECT f.conrelid, f.confdeltype IN ('c', 'n', 'd'), pg_catalog.quote_ident(f.conname),"
					 " pg_catalog.format('%I.%I', s.nspname, c.relname),"
					 " (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(a.attname), ', ' ORDER BY k.n)"
					 "  FROM pg_catalog.unnest(f.conkey) WITH ORDINALITY AS k (attnum, n)"
					 "  JOIN pg_catalog.pg_attribute AS a ON a.attrelid = f.conrelid AND a.attnum = k.attnum),"
					 " EXISTS (SELECT FROM pg_catalog.pg_index AS i WHERE i.indrelid = f.conrelid AND i.indisvalid"
					 "  AND i.indkey[0] = ANY (f.conkey))"
					 " FROM pg_catalog.pg_constraint AS f JOIN pg_catalog.pg_class AS c ON c.oid = f.conrelid"
					 " JOIN pg_catalog.pg_namespace AS s ON s.oid = c.relnamespace"
					 " WHERE f.contype = 'f' AND f.confrelid = $1 AND f.conparentid = 0 ORDER BY 4, 3",
					 1, &type, &value, NULL, true, 0);
	for (uint64 i = 0; i < n; i++)
	{
		HeapTuple	tup = SPI_tuptable->vals[i];
		TupleDesc	desc = SPI_tuptable->tupdesc;
		bool		isnull;
		Oid			child = DatumGetObjectId(SPI_getbinval(tup, desc, 1, &isnull));

		if (get_bool(tup, 2))
		{
			Relation	c = try_table_open(child, AccessShareLock);

			if (c == NULL)
				continue;		/* dropped meanwhile */
			v->cascade_rows += ssw_sample_estimate(c, NULL) / parents;
			table_close(c, NoLock);
		}
		else
			add_advice(v, cxt, false,
					   psprintf("Rows that %s still refers to cannot be deleted, unless on_expire deletes the referring rows first: its foreign key %s has no ON DELETE action.",
								SPI_getvalue(tup, desc, 4), SPI_getvalue(tup, desc, 3)));
		if (!get_bool(tup, 6))
			add_advice(v, cxt, false,
					   psprintf("CREATE INDEX CONCURRENTLY ON %s (%s);",
								SPI_getvalue(tup, desc, 4), SPI_getvalue(tup, desc, 5)));
	}
}

typedef struct Preview
{
	SswPolicy  *policy;
	Relation	rel;
	bool		advise;
	bool		count;
	SswPreview *result;
} Preview;

/* In a subtransaction: look at the relation of a built policy, or only at its definition, or only at rows. */
static bool
look(void *arg)
{
	Preview    *want = arg;
	SswPolicy  *p = want->policy;
	SswPreview *v = want->result = palloc0(sizeof(SswPreview));
	MemoryContext cxt = CurrentMemoryContext;
	SswIdentity save;

	/* keys and expressions as in a pass */
	ssw_spi_begin_as_owner(p->owner, p->search_path, &save);
	v->exact = true;
	v->earliest = DT_NOEND;
	v->latest = DT_NOBEGIN;
	if (want->advise)
		advise_index(p, want->rel, v, cxt);
	if (want->count)
		look_at_sample(p, want->rel, v, cxt);
	if (!v->exact)
		count_by_index(p, want->rel, v, cxt);
	if (want->advise)
		advise_children(p, want->rel, v, cxt);
	if (want->advise && p->nkeys == 0)
		add_advice(v, cxt, false,
				   "There is no key, so events identify rows by ctid: give the table a primary key, or name the columns of a unique index in key.");
	ssw_spi_end_as(&save);
	return true;
}

/* Look at a relation with the policy's columns: at its definition, and at its rows. */
SswPreview *
ssw_preview_part(SswPolicy *p, Relation rel, bool advise, bool count)
{
	Preview		v = {.policy = p,.rel = rel,.advise = advise,.count = count};
	ErrorData  *error = ssw_spi_try(look, &v);

	if (error == NULL)
		return v.result;
	/* a message may have what the row has */
	if (p->audit == SSW_AUDIT_HASH && p->args == NULL && ERRCODE_TO_CATEGORY(error->sqlerrcode) != ERRCODE_OPERATOR_INTERVENTION)
		ereport(ERROR,
				(errcode(error->sqlerrcode),
				 errmsg("cannot preview policy \"%s\": SQLSTATE %s", p->name, unpack_sql_state(error->sqlerrcode)),
				 errdetail("The message is not shown: keys of this policy are credentials."),
				 errhint("Evaluate its deadline and its filter in a SELECT on the table, as the table's owner.")));
	if (ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_CONNECTION_EXCEPTION && error->hint == NULL)
		error->hint = psprintf("Rows of other nodes are read as the table's owner: role \"%s\" must be able to log in on every node.",
							   GetUserNameFromId(p->owner, false));
	ReThrowError(error);
	return NULL;
}

/* Look at the relation of a built policy.  The result is in CurrentMemoryContext. */
SswPreview *
ssw_preview_run(SswPolicy *p, Relation rel)
{
	return ssw_preview_part(p, rel, true, true);
}

/* Refuse what is more likely a wrong unit, zone or column than a deadline. */
void
ssw_preview_check_plausible(const SswPolicy *p, const SswPreview *v)
{
	if (v->sample_absurd <= 0.5)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("deadlines of %s are implausible", p->relation),
			 errdetail("%d %% of the rows that were read would have a deadline more than five years ago or more than a hundred years ahead, between %s and %s.",
					   (int) rint(v->sample_absurd * 100),
					   pstrdup(timestamptz_to_str(v->earliest)), pstrdup(timestamptz_to_str(v->latest))),
			 errhint("Check %s%s, or exclude such rows by filter.",
					 p->last_seen ? "last_seen and ttl" : "deadline",
					 p->unit ? " and unit" : p->timezone ? " and timezone" : "")));
}

static double
estimated_seconds(const SswPolicy *p, const SswPreview *v)
{
	double		rate = TYPICAL_RATE / (1 + v->cascade_rows);

	if (p->backlog_rate > 0)
		rate = Min(rate, p->backlog_rate);
	if (p->rate_limit > 0)
		rate = Min(rate, p->rate_limit);
	return v->dead / rate;
}

static Datum
rounded(double value)
{
	return DirectFunctionCall2(numeric_round,
							   DirectFunctionCall1(float8_numeric, Float8GetDatum(value)),
							   Int32GetDatum(1));
}

/* The row that register, adopt and preview return. */
Datum
ssw_preview_row(FunctionCallInfo fcinfo, const SswPolicy *p, const SswPreview *v, const char *state)
{
	TupleDesc	desc;
	Datum		values[13];
	bool		nulls[13] = {0};
	Datum		keys[SSW_PREVIEW_KEYS];
	ArrayBuildState *advice = initArrayResult(TEXTOID, CurrentMemoryContext, false);
	ListCell   *lc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE || desc->natts != lengthof(values))
		elog(ERROR, "return type must be sweeper.preview_result");
	for (int i = 0; i < v->nkeys; i++)
		keys[i] = CStringGetTextDatum(v->keys_shown ? v->keys[i] : ssw_key_shown(p, v->keys[i]));
	foreach(lc, v->advice)
		advice = accumArrayResult(advice, CStringGetTextDatum(lfirst(lc)), false, TEXTOID,
								  CurrentMemoryContext);
	values[0] = CStringGetTextDatum(p->name);
	values[1] = CStringGetTextDatum(p->relation);
	values[2] = CStringGetTextDatum(state);
	values[3] = Int64GetDatum(v->rows);
	values[4] = Int64GetDatum(v->dead);
	values[5] = BoolGetDatum(v->exact);
	values[6] = TimestampTzGetDatum(v->oldest);
	values[7] = TimestampTzGetDatum(v->newest);
	nulls[6] = nulls[7] = !v->found;
	values[8] = ObjectIdGetDatum(v->index);
	nulls[8] = !OidIsValid(v->index);
	values[9] = rounded(v->cascade_rows);
	values[10] = rounded(estimated_seconds(p, v));
	values[11] = PointerGetDatum(construct_array(keys, v->nkeys, TEXTOID, -1, false, TYPALIGN_INT));
	values[12] = makeArrayResult(advice, CurrentMemoryContext);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls));
}
