/*
 * stmt.h
 *		The SQL of a pass over one leaf, built from a policy's fragments.
 */
#ifndef SSW_STMT_H
#define SSW_STMT_H

#include "policy.h"
#include "shmem.h"

/* Parameters common to all statements of a pass. */
#define SSW_P_CUTOFF	1		/* timestamptz: the clock's cutoff */
#define SSW_P_SERVICE	2		/* timestamptz: start of service, for row ttls */
#define SSW_P_TIDS		3		/* tid[]: the rows */

/* Result columns of the row action, in order. */
enum
{
	SSW_R_KEY = 1,				/* text, hashed where the policy says so */
	SSW_R_DUE,					/* timestamptz */
	SSW_R_SEEN,					/* timestamptz */
	SSW_R_GROUP,				/* text */
	SSW_R_META,					/* jsonb */
	SSW_R_STILL_DEAD,			/* boolean; for update */
	SSW_R_NCOLS = SSW_R_STILL_DEAD
};

extern char *ssw_stmt_relation(Oid relid);
extern char *ssw_stmt_dead(const SswPolicy *p, SswPhase phase, bool service);
extern char *ssw_stmt_sort(const SswPolicy *p, SswPhase phase);
extern Oid	ssw_stmt_sort_type(const SswPolicy *p, SswPhase phase);
extern char *ssw_stmt_collect(const SswPolicy *p, Oid leaf, SswPhase phase,
							  bool cursor, bool with_key);
extern char *ssw_stmt_probe(const SswPolicy *p, Oid leaf, SswPhase phase, bool low);
extern char *ssw_stmt_action(const SswPolicy *p, Oid leaf, SswPhase phase, bool skip_locked);
extern char *ssw_stmt_lock(const SswPolicy *p, Oid leaf, SswPhase phase, bool skip_locked);
extern char *ssw_stmt_hook(const SswPolicy *p, Oid leaf);
extern char *ssw_stmt_refresh(const SswPolicy *p, Oid leaf, SswPhase phase);
extern char *ssw_stmt_repair(const SswPolicy *p, Oid leaf, int limit);
extern char *ssw_stmt_missing(const SswPolicy *p, Oid leaf, SswPhase phase, bool lock);

#endif							/* SSW_STMT_H */
