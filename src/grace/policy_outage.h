/*
 * policy_outage.h
 *		Times in which nobody could write the rows of a policy.
 */
#ifndef SSW_POLICY_OUTAGE_H
#define SSW_POLICY_OUTAGE_H

#include "policy/policy.h"

/* Why rows cannot be written. */
typedef enum SswBlock
{
	SSW_BLOCK_NONE,
	SSW_BLOCK_LOCK,				/* somebody holds a lock on the table */
	SSW_BLOCK_OTHER				/* passes fail, or the database is read-only */
} SswBlock;

extern bool ssw_outage_watches(const SswPolicy *p);
extern TimestampTz ssw_outage_look(const SswPolicy *p, SswBlock block, TimestampTz now, TimestampTz *blocked_since);
extern void ssw_outage_note(Oid dboid, int policy_id, TimestampTz since, TimestampTz until);
extern bool ssw_outage_last(int policy_id, TimestampTz now, TimestampTz *since, TimestampTz *until);

#endif							/* SSW_POLICY_OUTAGE_H */
