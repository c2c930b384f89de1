/*
 * session.h
 *		The registry's sessions: the policy that sweeps them, and how they end.
 */
#ifndef SSW_SESSION_H
#define SSW_SESSION_H

#include "fmgr.h"

#include "sweep/end_rows.h"

/* Cleanup types, as in the evidence. */
#define SSW_RELEASED	"released"
#define SSW_EXPIRED		"expired"
#define SSW_ZOMBIE		"zombie"
#define SSW_DISCONNECTED "disconnected"

extern void ssw_session_check_writable(const char *function);
extern void ssw_session_lock_pool(const char *pool);
extern int64 ssw_session_end(const SswEnd *e, const char *matches, int nargs, Oid *types, Datum *values);
extern int64 ssw_session_end_dead(Datum pool, Datum owner, bool skip_locked);
extern char *ssw_session_owner(FunctionCallInfo fcinfo, int arg, const char *name);

#endif							/* SSW_SESSION_H */
