/*
 * wait.h
 *		Procedures that wait without a transaction.
 */
#ifndef SSW_WAIT_H
#define SSW_WAIT_H

#include "access/tupdesc.h"
#include "fmgr.h"

typedef struct SswWait
{
	/* look, in a transaction of its own; true: it need not wait any longer */
	bool		(*look) (void *arg);
	void		(*sleep) (void *arg, long timeout_ms);	/* until something has
														 * changed */
	void		(*note) (void *arg);	/* what changes from here on ends the
										 * sleep; or null */
	void	   *arg;
} SswWait;

extern void ssw_wait_check_context(FunctionCallInfo fcinfo, const char *procedure, const char *instead);
extern void ssw_wait_until(const SswWait *w, int64 timeout_us);
extern TupleDesc ssw_wait_begin(FunctionCallInfo fcinfo);
extern Datum ssw_wait_end(TupleDesc desc, MemoryContext cxt, bool found);

#endif							/* SSW_WAIT_H */
