/*
 * sample.c
 *		How many rows a relation has, and some of them to judge it by.
 *
 * Runs in the backend that registers or alters a policy or asks for a preview, in
 * a transaction.  A plain table is sampled by the server.  That would look at the
 * same block numbers of every partition, so that of many small ones it saw few, or
 * none: theirs are taken as one row of pages, which is read at places that are
 * evenly apart.  A sample is the same each time as long as nobody writes.
 *
 * Shares and changes nothing; a crash leaves nothing behind.
 */
#include "postgres.h"

#include <math.h>

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

/* So many pages or more of partitions are read, a few at each of so many places. */
#define PLACES	100

/* Tables with rows of a relation, in the server's order. */
typedef struct Extent
{
	int			n;
	Oid		   *leaf;
	uint64	   *end;			/* pages of all up to this one */
	double		rows;			/* about */
	bool		analysed;		/* each of them was */
} Extent;

static void
measure(Relation rel, Extent *e)
{
	List	   *all = find_all_inheritors(RelationGetRelid(rel), AccessShareLock, NULL);
	ListCell   *lc;

	memset(e, 0, sizeof(Extent));
	e->leaf = palloc(list_length(all) * sizeof(Oid));
	e->end = palloc(list_length(all) * sizeof(uint64));
	e->analysed = true;
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
						 errhint("Its rows are on the primary alone: ask there.")));
			blocks = RelationGetNumberOfBlocks(leaf);
			estimate_rel_size(leaf, NULL, &pages, &tuples, &allvisible);
			/* to the planner ten pages, when it was never analysed */
			e->rows += pages > blocks ? tuples * blocks / pages : tuples;
			e->analysed = e->analysed && (leaf->rd_rel->relpages > 0 || blocks == 0);
			e->leaf[e->n] = lfirst_oid(lc);
			e->end[e->n] = blocks + (e->n > 0 ? e->end[e->n - 1] : 0);
			e->n++;
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

/* SELECT over pages at places that are evenly apart; and their part of all pages. */
static char *
select_places(const Extent *e, const char *list, const char *where, double rows_wanted, double *part)
{
	uint64		pages = e->end[e->n - 1];
	uint64		places = Min(PLACES, pages);
	uint64		each = Max(1, (uint64) ceil(pages * rows_wanted / e->rows / places));
	uint64		read = 0;
	int			leaf = 0;
	StringInfoData sql;

	initStringInfo(&sql);
	for (uint64 i = 0; i < places; i++)
	{
		uint64		at = (2 * i + 1) * pages / (2 * places);
		uint64		first;
		uint64		end;

		while (at >= e->end[leaf])
			leaf++;
		first = at - (leaf > 0 ? e->end[leaf - 1] : 0);
		end = first + Min(each, e->end[leaf] - at);
		appendStringInfo(&sql, "%sSELECT %s FROM ONLY %s AS t WHERE %s"
						 " AND t.ctid " SSW_OP(">=") " '(" UINT64_FORMAT ",0)'::pg_catalog.tid"
						 " AND t.ctid " SSW_OP("<") " '(" UINT64_FORMAT ",0)'::pg_catalog.tid",
						 i > 0 ? " UNION ALL " : "", list, ssw_guard_table(e->leaf[leaf]), where, first, end);
		read += end - first;
	}
	*part = (double) read / pages;
	return sql.data;
}

/*
 * SELECT of a list over about the wanted number of rows, which are that part of
 * all, or over all (1) when there are not many more.
 */
char	   *
ssw_sample_select(Relation rel, const char *list, const char *where, double rows_wanted, double *part)
{
	char	   *name = ssw_guard_table(RelationGetRelid(rel));
	Extent		e;

	measure(rel, &e);
	*part = 1;
	if (e.rows <= rows_wanted * 10)
		return psprintf("SELECT %s FROM %s AS t WHERE %s", list, name, where);
	if (rel->rd_rel->relhassubclass)
		return select_places(&e, list, where, rows_wanted, part);
	*part = Max(0.00000001, rows_wanted / e.rows);
	return psprintf("SELECT %s FROM %s AS t TABLESAMPLE SYSTEM (%.6f) REPEATABLE (1) WHERE %s", list, name, 100 * *part, where);
}
