/*
 * batch.h
 *		The frame of one batch: its locks, limits, size and counts.
 */
#ifndef SSW_BATCH_H
#define SSW_BATCH_H

#include "base/identity.h"
#include "sweep/failed_row.h"
#include "sweep/row_action.h"

/* A batch aims at so long. */
#define SSW_BATCH_TARGET_US	(200 * 1000)

/* What the texts of a policy mean depends on this of its relation; see batch.c. */
typedef struct SswShape SswShape;

/* Parts of a batch. */
typedef enum SswStep
{
	SSW_STEP_BEGIN,				/* up to its lock on the leaf */
	SSW_STEP_ROWS,				/* code of users runs on rows */
	SSW_STEP_EVIDENCE			/* the rows have ended */
} SswStep;

/* A worker's part of a pass. */
typedef struct SswWork
{
	SswPolicy  *policy;
	SswPass    *pass;			/* shared */
	SswTarget	target;
	const char *cleanup_type;
	const char *reason;
	SswFailures *failures;
	MemoryContext batch_cxt;	/* reset before each transaction */
	int64		prolonged;		/* rows alive by heartbeats, in this batch */
	uint64		succeeded;		/* rows, by this worker in this pass */
	int64		held;			/* rows that somebody holds, in this batch */
	int64		left;			/* the same, in this chunk */
	int			unhandled;		/* chunks that were not handled to the end */
	int64		nfailed;		/* rows, not added to the pass yet */
	int			excluded;		/* the same, by the collector */
	int			streak;			/* rows that failed alike since the last
								 * success */
	int			streak_code;	/* their SQLSTATE */
	bool		singly;			/* a row may end its worker: each has its own
								 * batch, which shows the row */
	SswShape   *shape;			/* of the relation, when the policy was loaded */
	SswStep		step;			/* so far the batch came */
	bool		answered;		/* is_alive has given an answer */
	int64		unanswered;		/* rows without one, not added to the pass yet */
	uint32		check_list;		/* from which it pulls rows for is_alive */
	bool		unhurried;		/* a slow row is tried with all its time */
	bool		failed;			/* the policy as a whole; leave the pass */
	bool		out_of_time;	/* not all rows at fault could be found */
	ErrorData  *error;			/* of the last failed transaction */
	bool		interrupted;	/* it was cancelled by others: no row's fault */
	Oid			file;			/* of the leaf that the batch locked, or
								 * invalid */
	int64		slow_us;		/* it was cancelled after so long, or 0 */
} SswWork;

extern void ssw_batch_end_pass(SswPass *pass, SswPassEnd end, int sqlerrcode, const char *message);
extern int	ssw_batch_rows(SswWork *w);
extern void ssw_batch_set_rows(SswWork *w, int rows);
extern void ssw_batch_fail(SswWork *w, const ErrorData *e);
extern const char *ssw_batch_slow_class(SswWork *w);
extern void ssw_batch_took(SswWork *w, int64 us);
extern void ssw_batch_hurry(SswWork *w);
extern bool ssw_batch_more_patience(SswWork *w);
extern void ssw_batch_set_limit(int64 us);
extern void ssw_batch_arm(SswWork *w);
extern void ssw_batch_note_shape(SswWork *w, Relation rel);
extern bool ssw_batch_begin(SswWork *w);
extern Oid	ssw_batch_begin_read(SswWork *w, Oid leaf, SswIdentity *save);
extern void ssw_batch_end_read(SswWork *w, const SswIdentity *save);
extern void ssw_batch_open_pass(SswWork *w);
extern void ssw_batch_disarm(void);
extern bool ssw_batch_must_stop(SswWork *w);
extern void ssw_batch_save_error(SswWork *w);
extern void ssw_batch_end(SswWork *w, SswSink *sink, TimestampTz start, int n, uint64 rows, int missing);

#endif							/* SSW_BATCH_H */
