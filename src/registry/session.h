/*
 * session.h
 *		The registry's sessions: the policy that sweeps them, and how they end.
 */
#ifndef SSW_SESSION_H
#define SSW_SESSION_H

#include "fmgr.h"
#include "storage/lockdefs.h"

#include "sweep/end_rows.h"

/* Cleanup types, as in the evidence. */
#define SSW_RELEASED	"released"
#define SSW_EXPIRED		"expired"
#define SSW_ZOMBIE		"zombie"
#define SSW_DISCONNECTED "disconnected"

/* Columns of sweeper.pool, in the order of schema/45_registry.sql. */
enum
{
	SSW_P_POOL, SSW_P_SEATS, SSW_P_TTL, SSW_P_MAX_TTL, SSW_P_MAX_PER_OWNER, SSW_P_CHANNEL, SSW_P_METADATA, SSW_P_CREATED_AT,
	SSW_P_CREATED_BY, SSW_P_NCOLS
};

/* Columns of sweeper.session, in the order of schema/45_registry.sql. */
enum
{
	SSW_S_SESSION, SSW_S_POOL, SSW_S_OWNER, SSW_S_ACQUIRED_BY, SSW_S_TTL, SSW_S_STATUS, SSW_S_ACQUIRED_AT, SSW_S_LAST_SEEN_AT,
	SSW_S_EXPIRES_AT, SSW_S_ENDS_AT, SSW_S_RELEASED_AT, SSW_S_ENDED_AT, SSW_S_FENCE, SSW_S_METADATA, SSW_S_SEATS_USED, SSW_SESSION_COLUMNS
};

extern void ssw_session_lock_pool(const char *pool, LOCKMODE mode);
extern int64 ssw_session_end(const SswEnd *e, const char *matches, int nargs, Oid *types, Datum *values);
extern int64 ssw_session_end_dead(Datum pool, Datum owner, bool skip_locked);
extern char *ssw_session_owner(FunctionCallInfo fcinfo, int arg, const char *name);

#endif							/* SSW_SESSION_H */
