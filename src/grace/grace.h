/*
 * grace.h
 *		Time credited after an outage, to policies whose rows depend on activity.
 */
#ifndef SSW_GRACE_H
#define SSW_GRACE_H

#include "policy/policy.h"

extern int64 ssw_grace_credit(const SswPolicy *p, int which, TimestampTz cutoff, TimestampTz now);
extern TimestampTz ssw_grace_cutoff_of_row(const SswPolicy *p, int64 ttl, TimestampTz now);
extern void ssw_grace_cutoffs(const SswPolicy *p, TimestampTz now, TimestampTz *cutoffs);
extern void ssw_grace_rows(SswPolicy *p);
extern char *ssw_grace_row_due(const SswPolicy *p);
extern bool ssw_grace_note(SswPolicy *p, TimestampTz now);

#endif							/* SSW_GRACE_H */
