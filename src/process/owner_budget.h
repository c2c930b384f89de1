/*
 * owner_budget.h
 *		Looks at policies, for which each owner has so much time in a round.
 */
#ifndef SSW_OWNER_BUDGET_H
#define SSW_OWNER_BUDGET_H

#include "process/watched_policy.h"

/* False: there was no room for a pass that it wants. */
typedef bool (*SswLook) (SswWatch *w, TimestampTz now);

/*
 * Look at each, beginning with number *first, which is then that of the first one that was
 * left out, or had no room.  False: some were left out, and the next round must come at once.
 */
extern bool ssw_owner_budget_each(List *watches, int *first, SswLook look, TimestampTz now);

#endif							/* SSW_OWNER_BUDGET_H */
