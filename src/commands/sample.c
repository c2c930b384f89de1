/*
 * sample.c
 *		How many rows a relation has, and some of them to judge it by.
 *
 * Runs in the backend that registers or alters a policy or asks for a preview, in
 * a transaction.  Each leaf is sampled by the server, with its own seed: with one seed
 * the server would look at the same block numbers of each, and see nothing of many
 * small ones.  A sample is the same each time as long as nobody writes.
 *
 * Shares and changes nothing; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xlog.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "commands/sample.h"
#include "lib/stringinfo.h"
#include "optimizer/plancat.h"
#include "storage/bufmgr.h"

#include "base/identity.h"
#include "base/relation_guard.h"
#include "policy/sweep_sql.h"

/* Tables with rows of a relation. */
typedef struct Extent
{
	List	   *leaves;			/* oids, in the server's order */
	double		rows;			/* about */
	bool		analysed;		/* each of them was */
} Extent;

static void
measure(Relation rel, Extent *e)
{
	List	   *all = find_all_inheritors(RelationGetRelid(rel), AccessShareLock, NULL);
	ListCell   *lc;

	*e = (Extent)
	{
		.analysed = true
	};
	foreach(lc, all)
	{
		Relation	leaf = table_open(lfirst_oid(lc), NoLock);

		/* others' are not swept */
		if (leaf->rd_rel->relkind == RELKIND_RELATION && !RELATION_IS_OTHER_TEMP(leaf) &&
			leaf->rd_rel->relowner == rel->rd_rel->relowner)
		{
			BlockNumber blocks;
			BlockNumber pages;
			double		tuples;
			double		allvisible;

			/* the server's own look at a row says the same */
			if (RecoveryInProgress() && !RelationIsPermanent(leaf))
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("cannot access unlogged table \"%s\" on a standby", RelationGetRelationName(leaf)),
						 errhint("Its rows exist on the primary only: call it there.")));
			blocks = RelationGetNumberOfBlocks(leaf);
			estimate_rel_size(leaf, NULL, &pages, &tuples, &allvisible);
			/* to the planner ten pages, when it was never analysed */
			e->rows += pages > blocks ? tuples * blocks / pages : tuples;
			e->analysed = e->analysed && (leaf->rd_rel->relpages > 0 || blocks == 0);
			e->leaves = lappend_oid(e->leaves, lfirst_oid(lc));
		}
		table_close(leaf, NoLock);
	}
}

/* Rows of a relation and its children, about; and was each of them analysed? */
double
ssw_sample_estimate(Relation rel, bool *analysed)
{
	Extent		e;

	measure(rel, &e);
	*analysed = e.analysed;
	return e.rows;
}

/*
 * SELECT of a list over about the wanted number of rows, which are that part of
 * all, or over all (1) when there are not many more.
 */
char	   *
ssw_sample_select(Relation rel, const char *list, const char *where, double rows_wanted, double *part)
{
	Extent		e;
	StringInfoData sql;
	ListCell   *lc;

	measure(rel, &e);
	*part = 1;
	if (e.rows <= rows_wanted * 10)
		return psprintf("SELECT %s FROM %s AS t WHERE %s", list, ssw_guard_table(RelationGetRelid(rel)), where);
	*part = Max(0.00000001, rows_wanted / e.rows);
	initStringInfo(&sql);
	foreach(lc, e.leaves)
		appendStringInfo(&sql, "%sSELECT %s FROM ONLY %s AS t TABLESAMPLE SYSTEM (%.6f) REPEATABLE (%d) WHERE %s", sql.len ? " UNION ALL " : "",
						 list, ssw_guard_table(lfirst_oid(lc)), 100 * *part, foreach_current_index(lc), where);
	return sql.data;
}
