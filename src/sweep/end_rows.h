/*
 * end_rows.h
 *		End rows of a policy in a caller's session, with their evidence.
 */
#ifndef SSW_END_ROWS_H
#define SSW_END_ROWS_H

#include "base/shmem.h"
#include "policy/policy.h"

/* Which rows end, and how. */
typedef struct SswEnd
{
	const char *type;			/* cleanup type of the events */
	const char *reason;			/* or null */
	SswPhase	phase;			/* manual: dead or not; else only those that
								 * are dead by this phase's deadline */
	TimestampTz cutoff;			/* of that deadline */
	bool		skip_locked;	/* leave rows that somebody holds */
	bool		gone;			/* only those whose connections have gone */
	int64		pass;			/* of a worker, or 0 */
} SswEnd;

/* Rows that have been found and are locked. */
typedef struct SswFound SswFound;

extern SswFound *ssw_end_begin(void);
extern void ssw_end_find(SswFound *f, const SswPolicy *p, const SswEnd *e, const char *matches,
						 int nargs, Oid *types, Datum *values);
extern int	ssw_end_count(const SswFound *f);
extern int64 ssw_end_found(SswFound *f, const SswPolicy *p, const SswEnd *e);

#endif							/* SSW_END_ROWS_H */
