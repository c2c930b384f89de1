/*
 * sample.c
 *		How many rows a relation has, and some of them to judge it by.
 *
 * Runs in the backend that registers or alters a policy or asks for a preview, in
 * a transaction.  Shares and changes nothing; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "access/table.h"
#include "access/xlog.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "optimizer/plancat.h"
#include "storage/bufmgr.h"

#include "base/relation_guard.h"
#include "commands/sample.h"

/* Rows of a relation and its children, about; *analysed (or null): by VACUUM or ANALYZE, not by a guess at their width. */
double
ssw_sample_estimate(Relation rel, bool *analysed)
{
	List	   *all = find_all_inheritors(RelationGetRelid(rel), AccessShareLock, NULL);
	ListCell   *lc;
	double		rows = 0;

	if (analysed)
		*analysed = true;
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
			if (analysed && leaf->rd_rel->reltuples < 0)
				*analysed = false;
			/* to the planner ten pages, when it was never analysed */
			rows += pages > blocks ? tuples * blocks / pages : tuples;
		}
		table_close(leaf, NoLock);
	}
	return rows;
}

/*
 * SELECT of a list over about the wanted number of rows, which are that part of all, or
 * over all (1) when there are not many more.  The server samples each leaf by itself.
 */
char	   *
ssw_sample_select(Relation rel, const char *list, double rows_wanted, double *part)
{
	double		rows = ssw_sample_estimate(rel, NULL);
	char	   *name = ssw_guard_table(RelationGetRelid(rel));

	*part = rows <= rows_wanted * 10 ? 1 : Max(0.00000001, rows_wanted / rows);
	if (*part == 1)
		return psprintf("SELECT %s FROM %s AS t", list, name);
	return psprintf("SELECT %s FROM %s AS t TABLESAMPLE SYSTEM (%.6f)", list, name, 100 * *part);
}
