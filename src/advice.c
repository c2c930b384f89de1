/*
 * advice.c
 *		What a policy would find and cost, for register() and preview().
 *
 * Runs in the caller's session, in its transaction.  Everything that may run
 * the owner's code (filter, expressions, domains) is read as the relation's
 * owner.  Shares nothing; changes nothing.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "optimizer/plancat.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/timestamp.h"

#include "advice.h"
#include "clock.h"
#include "identity.h"
#include "pass.h"
#include "sql.h"
#include "stmt.h"

#define COUNT_MAX		100000
#define SMALL_TABLE		50000
#define SAMPLE_ROWS		1000

/*
 * errdetail: what the newest value would mean in each unit or zone.  Called as
 * part of an ereport; reads as the relation's owner.
 */
int
ssw_clock_candidates(Relation rel, const char *sql, Oid type)
{
	SswIdentity save;
	StringInfoData q;
	char	   *text = NULL;

	initStringInfo(&q);
	if (type == TIMESTAMPOID || type == DATEOID)
		appendStringInfo(&q, "SELECT pg_catalog.format('The newest value is %%s; it is now %%s in UTC and %%s in %%s.', v,"
						 " pg_catalog.date_trunc('second', pg_catalog.timezone('UTC', pg_catalog.now())),"
						 " pg_catalog.date_trunc('second', pg_catalog.timezone(pg_catalog.current_setting('TimeZone'), pg_catalog.now())),"
						 " pg_catalog.current_setting('TimeZone')) FROM (SELECT %s AS v FROM %s AS t WHERE %s IS NOT NULL"
						 " ORDER BY 1 DESC LIMIT 1) AS n",
						 sql, ssw_stmt_relation(RelationGetRelid(rel)), sql);
	else
		appendStringInfo(&q, "SELECT 'The newest value is ' || v || ': ' || (SELECT pg_catalog.string_agg(pg_catalog.format('%%s in %%s',"
						 " CASE WHEN v / f NOT BETWEEN -60000000000 AND 9000000000000 THEN 'no date'"
						 " ELSE pg_catalog.to_char(pg_catalog.timezone('UTC', pg_catalog.to_timestamp((v / f)::pg_catalog.float8)), 'YYYY-MM-DD') END, u), ', ')"
						 " FROM (VALUES ('s', 1.0), ('ms', 1000.0), ('us', 1000000.0)) AS c (u, f)) || '.'"
						 " FROM (SELECT (%s)::pg_catalog.numeric AS v FROM %s AS t WHERE %s IS NOT NULL ORDER BY 1 DESC LIMIT 1) AS n",
						 sql, ssw_stmt_relation(RelationGetRelid(rel)), sql);
	ssw_identity_become_owner(rel->rd_rel->relowner, "pg_catalog, pg_temp", &save);
	ssw_sql_begin();
	if (ssw_sql_exec(q.data, 0, NULL, NULL, NULL, false, 1) > 0)
	{
		char	   *value = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);

		text = value ? SPI_palloc(strlen(value) + 1) : NULL;
		if (text)
			strcpy(text, value);
	}
	ssw_sql_end();
	ssw_identity_restore(&save);
	return errdetail("%s", text ? text : "The relation has no rows to judge by.");
}

static void
estimate_rows(SswPreview *v, List *leaves)
{
	ListCell   *lc;

	foreach(lc, leaves)
	{
		Relation	rel = table_open(lfirst_oid(lc), AccessShareLock);
		BlockNumber pages;
		double		tuples,
					allvisible;

		estimate_rel_size(rel, NULL, &pages, &tuples, &allvisible);
		v->rows += (int64) tuples;
		table_close(rel, NoLock);
	}
}

static void
clock_params(SswPolicy *p, Oid *types, Datum *values, int64 limit)
{
	types[0] = types[1] = TIMESTAMPTZOID;
	types[2] = INT4OID;
	types[3] = INT4OID;
	types[4] = INT8OID;
	memset(values, 0, 5 * sizeof(Datum));
	values[0] = TimestampTzGetDatum(GetCurrentTimestamp() - p->keep_for_us);
	values[1] = TimestampTzGetDatum(DT_NOBEGIN);
	values[4] = Int64GetDatum(limit);
}

static void
count_dead(SswPolicy *p, SswPreview *v, List *leaves)
{
	Oid			types[5];
	Datum		values[5];
	ListCell   *lc;
	bool		isnull;

	foreach(lc, leaves)
		for (int i = 0; i < p->nclocks && v->dead < COUNT_MAX; i++)
		{
			clock_params(p, types, values, COUNT_MAX - v->dead);
			ssw_sql_exec(ssw_stmt_count(p, lfirst_oid(lc), SSW_PHASE_CLOCK_1 + i, false),
						 5, types, values, "  nn ", false, 1);
			v->dead += DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
		}
	v->exact = v->dead < COUNT_MAX;
}

/* Oldest and newest deadlines, and how many of them are dead or absurd. */
static void
sample(SswPolicy *p, SswPreview *v, List *leaves)
{
	TimestampTz now = GetCurrentTimestamp();
	int			dead = 0;
	int			absurd = 0;
	ListCell   *lc;

	foreach(lc, leaves)
	{
		char	   *rel = ssw_stmt_relation(lfirst_oid(lc));
		char	   *filter = p->filter ? psprintf(" WHERE (%s)", p->filter) : "";
		char	   *q = psprintf("SELECT %s FROM ONLY %s AS t%s LIMIT %d", p->clock[0].due, rel, filter,
								 SAMPLE_ROWS);
		uint64		n = ssw_sql_exec(q, 0, NULL, NULL, NULL, false, 0);

		for (uint64 i = 0; i < n; i++)
		{
			bool		isnull;
			TimestampTz due = DatumGetTimestampTz(SPI_getbinval(SPI_tuptable->vals[i],
																SPI_tuptable->tupdesc, 1, &isnull));

			if (isnull)
				continue;
			v->sampled++;
			if (due + p->keep_for_us <= now || TIMESTAMP_IS_NOBEGIN(due))
				dead++;
			if (TIMESTAMP_IS_NOEND(due))
				continue;
			if (due < now - 5 * 366 * USECS_PER_DAY || due > now + 100 * 366 * USECS_PER_DAY)
				absurd++;
			if (v->oldest == 0 || due < v->oldest)
				v->oldest = due;
			if (v->newest == 0 || due > v->newest)
				v->newest = due;
		}
	}
	if (v->sampled > 0)
	{
		v->sample_dead = (double) dead / v->sampled;
		v->sample_absurd = (double) absurd / v->sampled;
	}
}

static void
sample_keys(SswPolicy *p, SswPreview *v, List *leaves, MemoryContext cxt)
{
	Oid			types[5];
	Datum		values[5];
	ArrayBuildState *keys = initArrayResult(TEXTOID, cxt, false);

	if (leaves != NIL)
	{
		uint64		n;

		clock_params(p, types, values, 3);
		n = ssw_sql_exec(ssw_stmt_collect(p, linitial_oid(leaves), SSW_PHASE_CLOCK_1, false, true),
						 5, types, values, "  nn ", false, 0);
		for (uint64 i = 0; i < n; i++)
		{
			bool		isnull;
			Datum		key = SPI_getbinval(SPI_tuptable->vals[i], SPI_tuptable->tupdesc, SSW_C_KEY, &isnull);

			keys = accumArrayResult(keys, key, isnull, TEXTOID, cxt);
		}
	}
	v->sample_keys = makeArrayResult(keys, cxt);
}

/* The index that the planner would use to find dead rows, if any. */
static Oid
index_used(SswPolicy *p, Oid leaf)
{
	Oid			types[5];
	Datum		values[5];
	char	   *plan;
	char	   *name;
	char	   *end;
	int			level = NewGUCNestLevel();
	Oid			result = InvalidOid;

	(void) set_config_option("enable_seqscan", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	(void) set_config_option("enable_sort", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	clock_params(p, types, values, 1);
	ssw_sql_exec(psprintf("EXPLAIN (FORMAT JSON) %s",
						  ssw_stmt_collect(p, leaf, SSW_PHASE_CLOCK_1, false, false)),
				 5, types, values, "  nn ", false, 0);
	plan = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);
	AtEOXact_GUC(false, level);
	name = strstr(plan, "\"Index Name\": \"");
	if (name && strstr(plan, "\"Index Cond\"") != NULL)
	{
		name += strlen("\"Index Name\": \"");
		end = strchr(name, '"');
		if (end)
			result = get_relname_relid(pnstrdup(name, end - name), get_rel_namespace(leaf));
	}
	return result;
}

/* Child rows that go with each parent, from the foreign keys' statistics. */
static double
cascade_rows(SswPolicy *p, char **missing_index)
{
	Oid			type = OIDOID;
	Datum		value = ObjectIdGetDatum(p->relid);
	double		total = 0;
	uint64		n;

	*missing_index = NULL;
	n = ssw_sql_exec("SELECT c.reltuples / greatest(r.reltuples, 1), f.conrelid::pg_catalog.regclass::pg_catalog.text,"
					 " f.confdeltype = 'c', (SELECT pg_catalog.string_agg(pg_catalog.quote_ident(a.attname), ', ')"
					 " FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = f.conrelid AND a.attnum = ANY (f.conkey)),"
					 " EXISTS (SELECT FROM pg_catalog.pg_index AS i WHERE i.indrelid = f.conrelid AND i.indisvalid"
					 " AND i.indkey[0] = f.conkey[1])"
					 " FROM pg_catalog.pg_constraint AS f JOIN pg_catalog.pg_class AS c ON c.oid = f.conrelid"
					 " JOIN pg_catalog.pg_class AS r ON r.oid = f.confrelid"
					 " WHERE f.contype = 'f' AND f.confrelid = $1 AND f.conparentid = 0", 1, &type, &value, NULL, false, 0);
	for (uint64 i = 0; i < n; i++)
	{
		HeapTuple	tup = SPI_tuptable->vals[i];
		TupleDesc	desc = SPI_tuptable->tupdesc;
		bool		isnull;

		if (strcmp(SPI_getvalue(tup, desc, 3), "t") == 0)
			total += Max(0, DatumGetFloat4(SPI_getbinval(tup, desc, 1, &isnull)));
		if (strcmp(SPI_getvalue(tup, desc, 5), "f") == 0)
			*missing_index = psprintf("CREATE INDEX CONCURRENTLY ON %s (%s);",
									  SPI_getvalue(tup, desc, 2), SPI_getvalue(tup, desc, 4));
	}
	return total;
}

static char *
create_index(SswPolicy *p, int i)
{
	SswClock   *c = &p->clock[i];
	char	   *column = c->attnum ? pstrdup(quote_identifier(get_attname(p->relid, c->attnum, false))) :
		psprintf("(%s)", c->sort);

	return psprintf("CREATE INDEX CONCURRENTLY ON %s (%s);", ssw_stmt_relation(p->relid), column);
}

/* Look at the relation of a built policy.  Results in CurrentMemoryContext. */
SswPreview *
ssw_advice_preview(SswPolicy *p)
{
	SswPreview *v = palloc0(sizeof(SswPreview));
	MemoryContext cxt = CurrentMemoryContext;
	List	   *leaves = ssw_pass_leaves(p->relid);
	SswIdentity save;
	char	   *missing = NULL;
	char	   *child = NULL;

	estimate_rows(v, leaves);
	ssw_identity_become_owner(p->owner, p->search_path, &save);
	ssw_sql_begin();
	sample(p, v, leaves);
	count_dead(p, v, leaves);
	if (leaves != NIL)
	{
		v->index = index_used(p, linitial_oid(leaves));
		if (!OidIsValid(v->index))
			missing = create_index(p, 0);
	}
	v->cascade_rows = cascade_rows(p, &child);
	sample_keys(p, v, leaves, cxt);
	if (missing)
		missing = MemoryContextStrdup(cxt, missing);
	if (child)
		child = MemoryContextStrdup(cxt, child);
	ssw_sql_end();
	/* SPI has its own context; what outlives it is made here */
	if (missing)
		v->advice = lappend(v->advice, missing);
	if (child)
		v->advice = lappend(v->advice, child);
	ssw_identity_restore(&save);
	if (v->exact && v->dead > v->rows)
		v->rows = v->dead;
	return v;
}
