/*
 * row_action.h
 *		The row action on a set of rows, inside a transaction.
 */
#ifndef SSW_ROW_ACTION_H
#define SSW_ROW_ACTION_H

#include "base/cached_plan.h"
#include "sweep/cleanup_event.h"
#include "storage/itemptr.h"

/* An action that leaves its row dead would be repeated forever. */
#define ERRCODE_SSW_ACTION_LEFT_ROW_DEAD	MAKE_SQLSTATE('S','W','0','0','1')
/* Somebody holds the row's lock. */
#define ERRCODE_SSW_LOCKED					MAKE_SQLSTATE('S','W','0','0','3')

/* A heartbeat came while its session was being ended. */
#define ERRCODE_SSW_HEARTBEAT				MAKE_SQLSTATE('S','W','0','0','4')

/* A partition or child is the policy's no more, or a publisher's. */
#define ERRCODE_SSW_LEFT					MAKE_SQLSTATE('S','W','0','0','5')

/* The dead rows of a leaf in blocks [from, to), without those up to a cursor. */
typedef struct SswBlocks
{
	SswCursor	cursor;
	Oid			type;			/* of the deadline, as it sorts */
	Datum		deadline;
	ItemPointerData tid;
	ItemPointerData from;
	ItemPointerData to;
} SswBlocks;

/* What is read of a row that may end. */
typedef struct SswRow
{
	ItemPointerData tid;
	char	   *key;			/* or null */
	bool		has_due;
	TimestampTz due;			/* 0 unless has_due */
} SswRow;

/* Where and when an action takes place. */
typedef struct SswTarget
{
	const SswPolicy *policy;
	Oid			leaf;
	SswPhase	phase;
	TimestampTz cutoff;			/* of this phase's deadline */
	TimestampTz full_cutoff;	/* of the whole pass: now - keep_for */
	bool		skip_locked;
	bool		locked;			/* the rows are locked by this transaction */
	bool		gone;			/* only those whose connections have gone */
	bool		refresh;		/* give a new deadline instead of ending */
	Datum		judged;			/* text[] of row identities, or 0: only those */
	const SswBlocks *blocks;	/* delete these rows; null: those given */
	int64	   *prolonged;		/* counts rows that heartbeats keep alive, or
								 * null */
} SswTarget;

/* Parameters of a statement on rows given by their tids. */
#define SSW_ROW_PARAMS	5
/* The same, on rows in blocks. */
#define SSW_BLOCK_PARAMS	6

extern SswRow ssw_action_read_row(const SPITupleTable *rows, uint64 i);
extern int	ssw_action_rows(const SswTarget *t);
extern uint64 ssw_action_execute(const SswTarget *t, const char *sql, Datum tids, bool by_place, DestReceiver *dest);
extern Datum ssw_action_column(Oid type, int n, int col);
extern Datum ssw_action_tid_array(const ItemPointerData *tids, int n);
extern void ssw_action_block_params(const SswTarget *t, const SswBlocks *b, Oid *types, Datum *values);
extern Oid	ssw_action_lock_leaf(const SswPolicy *p, Oid leaf, LOCKMODE mode);
extern uint64 ssw_action_run(const SswTarget *t, const ItemPointerData *tids, int n, SswSink *sink);

#endif							/* SSW_ROW_ACTION_H */
