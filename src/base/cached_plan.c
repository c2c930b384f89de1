/*
 * cached_plan.c
 *		Kept plans of our statements on swept tables.
 *
 * Runs in any process, within an SPI connection, as the relation's owner or the
 * extension's.  A statement is analysed by ssw_spi_prepare(), so that row security
 * does not hide the owner's rows from it, and runs without that exemption.  So a
 * plan that the server would have to analyse again is made again.  So is one that is
 * older than a second: its tables may have grown, and a plan that is right for a small
 * table is too slow for a large one.
 *
 * Shares nothing; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_class.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/plancache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/cached_plan.h"
#include "base/spi.h"

#define PLAN_CACHE	32
#define PLAN_LIFE_MS	1000

typedef struct KeptPlan
{
	char	   *sql;			/* null: free */
	Oid			userid;			/* row security depends on it */
	SPIPlanPtr	plan;
	TimestampTz made_at;
} KeptPlan;

static KeptPlan plans[PLAN_CACHE];
static int	next_plan = 0;

/* Statements can run code that runs statements; what runs is not freed. */
static int	depth = 0;
static List *unused = NIL;		/* in TopMemoryContext */

static bool
has_types(SPIPlanPtr plan, int nargs, Oid *types)
{
	if (SPI_getargcount(plan) != nargs)
		return false;
	for (int i = 0; i < nargs; i++)
		if (SPI_getargtypeid(plan, i) != types[i])
			return false;
	return true;
}

static void
forget(KeptPlan *k)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);

	if (k->sql)
	{
		unused = lappend(unused, k->plan);
		pfree(k->sql);
		k->sql = NULL;
	}
	MemoryContextSwitchTo(old);
}

static void
free_unused(void)
{
	while (depth == 0 && unused != NIL)
	{
		SPI_freeplan(linitial(unused));
		unused = list_delete_first(unused);
	}
}

static SPIPlanPtr
find(const char *sql, int nargs, Oid *types)
{
	for (int i = 0; i < PLAN_CACHE; i++)
	{
		KeptPlan   *k = &plans[i];

		if (k->sql == NULL || k->userid != GetUserId() || strcmp(k->sql, sql) != 0 || !has_types(k->plan, nargs, types))
			continue;
		if (SPI_plan_is_valid(k->plan) && !TimestampDifferenceExceeds(k->made_at, GetCurrentTimestamp(), PLAN_LIFE_MS))
			return k->plan;
		forget(k);
	}
	return NULL;
}

/* The planner must know the values, to choose the partitions that a statement locks. */
static void
plan_each_time_if_partitioned(SPIPlanPtr plan)
{
	CachedPlanSource *source = linitial(SPI_plan_get_plan_sources(plan));
	ListCell   *lc;

	foreach(lc, linitial_node(Query, source->query_list)->rtable)
		if (lfirst_node(RangeTblEntry, lc)->relkind == RELKIND_PARTITIONED_TABLE)
		source->cursor_options = CURSOR_OPT_CUSTOM_PLAN;
}

/* A kept plan of a statement, generic except for partitions. */
static SPIPlanPtr
keep(const char *sql, int nargs, Oid *types)
{
	KeptPlan   *k;
	SPIPlanPtr	plan = find(sql, nargs, types);

	free_unused();
	if (plan)
		return plan;
	plan = ssw_spi_prepare(sql, nargs, types, CURSOR_OPT_GENERIC_PLAN);
	plan_each_time_if_partitioned(plan);
	if (SPI_keepplan(plan) != 0)
		elog(ERROR, "could not keep statement: %s", sql);
	k = &plans[next_plan];
	next_plan = (next_plan + 1) % PLAN_CACHE;
	forget(k);
	k->plan = plan;
	k->userid = GetUserId();
	k->sql = MemoryContextStrdup(TopMemoryContext, sql);
	k->made_at = GetCurrentTimestamp();
	return plan;
}

/* It was analysed again between two looks: what it did is rolled back. */
static void
check(SPIPlanPtr plan)
{
	if (!ssw_spi_is_restricted(plan))
		return;
	for (int i = 0; i < PLAN_CACHE; i++)
		if (plans[i].sql && plans[i].plan == plan)
			forget(&plans[i]);
	ereport(ERROR,
			(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
			 errmsg("a table or function of the policy was altered meanwhile"),
			 errhint("Try again.")));
}

/* Run it; with a snapshot, by that, and to read only if it is said so. */
static uint64
run(SPIPlanPtr plan, const SPIExecuteOptions *options, Datum *values, Snapshot snapshot, bool read_only)
{
	int			outer = depth;
	int			rc;

	PG_TRY();
	{
		depth = outer + 1;
		if (options)
			rc = SPI_execute_plan_extended(plan, options);
		else
			rc = SPI_execute_snapshot(plan, values, NULL, snapshot, InvalidSnapshot, read_only, true, 0);
		if (rc < 0)
			elog(ERROR, "statement failed with SPI code %d", rc);
		check(plan);
	}
	PG_FINALLY();
	{
		depth = outer;
	}
	PG_END_TRY();
	return SPI_processed;
}

/* Run a statement; with dest its rows go there, else to SPI_tuptable. */
uint64
ssw_plan_execute(const char *sql, int nargs, Oid *types, Datum *values, DestReceiver *dest, bool read_only)
{
	SPIExecuteOptions options = {.params = ssw_spi_params(nargs, types, values, NULL),.read_only = read_only,.dest = dest};

	return run(keep(sql, nargs, types), &options, values, InvalidSnapshot, false);
}

/* The same; at every isolation level it sees what is committed now. */
uint64
ssw_plan_execute_fresh(const char *sql, int nargs, Oid *types, Datum *values)
{
	return run(keep(sql, nargs, types), NULL, values, IsolationUsesXactSnapshot() ? GetLatestSnapshot() : InvalidSnapshot, false);
}

/* The same; it sees what is committed now, and nothing that this transaction has done. */
uint64
ssw_plan_execute_as_others(const char *sql, int nargs, Oid *types, Datum *values)
{
	uint64		n;

	PushCopiedSnapshot(GetLatestSnapshot());
	GetActiveSnapshot()->curcid = FirstCommandId;
	n = run(keep(sql, nargs, types), NULL, values, GetActiveSnapshot(), true);
	PopActiveSnapshot();
	return n;
}

/* Have the planner read places of the heap, until AtEOXact_GUC() of the level returned. */
int
ssw_plan_prefer_places(void)
{
	static const char *const others[] = {"enable_seqscan", "enable_indexscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin"};
	int			level = NewGUCNestLevel();

	for (int i = 0; i < lengthof(others); i++)
		(void) set_config_option(others[i], "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	return level;
}

/*
 * Plan a statement on places of the heap so that it reads those only.  The
 * planner does not know how few they are; and it must plan now, not while the
 * statement runs triggers whose plans are theirs.
 */
void
ssw_plan_by_place(const char *sql, int nargs, Oid *types)
{
	int			outer = depth;
	SPIPlanPtr	kept;
	int			level;

	if (find(sql, nargs, types))
		return;
	level = ssw_plan_prefer_places();
	kept = keep(sql, nargs, types);
	PG_TRY();
	{
		CachedPlan *plan;

		/* an immutable function is folded, and may call our functions */
		depth = outer + 1;
		plan = SPI_plan_get_cached_plan(kept);
		if (plan)
			ReleaseCachedPlan(plan, CurrentResourceOwner);
	}
	PG_FINALLY();
	{
		depth = outer;
	}
	PG_END_TRY();
	AtEOXact_GUC(true, level);
}
