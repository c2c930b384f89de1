/*
 * candidates.h
 *		Read the next dead rows of a pass, in due order.
 */
#ifndef SSW_CANDIDATES_H
#define SSW_CANDIDATES_H

#include "utils/portal.h"

#include "sweep/batch.h"

typedef struct SswChunk
{
	Oid			leaf;
	SswPhase	phase;
	TimestampTz cutoff;
	MemoryContext cxt;			/* of tids */
	int			n;
	int			nslow;			/* of them, at the end, were slow before */
	ItemPointerData *tids;
	bool		more;			/* there may be more rows behind it */
	bool		backlog;		/* counts for backlog_rate, too */
	bool		by_blocks;		/* all rows of these blocks; tids are not
								 * known */
	SswBlocks	blocks;
} SswChunk;

extern int64 ssw_candidates_limit(SswWork *w);
extern bool ssw_candidates_read_less(SswWork *w);
extern void ssw_candidates_read_more(SswWork *w, TimestampTz start);
extern Portal ssw_candidates_behind(SswWork *w, TimestampTz cutoff);
extern bool ssw_candidates_graced(SswWork *w, const SswChunk *chunk);
extern double ssw_candidates_planned(Portal portal);
extern bool ssw_candidates_collect(SswWork *w, SswChunk *chunk, int64 limit);
extern void ssw_candidates_of_blocks(SswWork *w, SswChunk *chunk);

#endif							/* SSW_CANDIDATES_H */
