/*
 * index_read.h
 *		Read rows of a table of the extension by texts that an index has.
 */
#ifndef SSW_INDEX_READ_H
#define SSW_INDEX_READ_H

#include "access/genam.h"
#include "access/relscan.h"
#include "executor/tuptable.h"
#include "utils/snapshot.h"

typedef struct SswIndexRead
{
	Relation	table;
	Relation	index;
	Snapshot	snapshot;
	IndexScanDesc scan;
	TupleTableSlot *slot;		/* the row */
} SswIndexRead;

extern void ssw_index_read_begin(SswIndexRead *r, const char *table, int ncolumns, const char *index, const Datum *texts, int n);
extern bool ssw_index_read_next(SswIndexRead *r);
extern void ssw_index_read_end(SswIndexRead *r);

#endif							/* SSW_INDEX_READ_H */
