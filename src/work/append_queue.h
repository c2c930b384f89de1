/*
 * append_queue.h
 *		Appended rows, where append() has put them.
 */
#ifndef SSW_APPEND_QUEUE_H
#define SSW_APPEND_QUEUE_H

#include "nodes/pg_list.h"
#include "storage/itemptr.h"
#include "utils/jsonb.h"

/* Where a row is, and how large; its number distinguishes it from a later one in that place. */
typedef struct SswAppendPlace
{
	int64		id;
	ItemPointerData tid;
	int			bytes;
} SswAppendPlace;

/* A table of the owner, a role, and its rows that wait for the table, in the order in which they are written. */
typedef struct SswAppendTarget
{
	Oid			relid;
	Oid			role;
	int			stream;			/* the first of the role's streams */
	char	   *relation;
	bool		waiting;		/* for locks, or for rows that wait */
	int64		resume_after;	/* then: where the last turn ended, or 0 */
	uint32		rank;			/* and it is behind others */
	int			batch;			/* at most so many in one transaction */
	bool		due;
	int			n;
	int			room;
	SswAppendPlace *places;
	struct SswAppendStream *streams;	/* of all targets */
	int			nstreams;
} SswAppendTarget;

typedef struct SswAppendedRow
{
	Jsonb	   *data;
	Oid			owner;			/* of the table at that time */
	int64		id;
} SswAppendedRow;

extern List *ssw_append_queue_read(Oid owner, int64 up_to, int most, MemoryContext cxt);
extern int	ssw_append_queue_take(const SswAppendTarget *t, const SswAppendPlace *places, int n, SswAppendedRow *rows);

#endif							/* SSW_APPEND_QUEUE_H */
