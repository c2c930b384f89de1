/*
 * pace.h
 *		How fast a policy's rows can be handled, as its workers learn.
 */
#ifndef SSW_PACE_H
#define SSW_PACE_H

#include "base/shmem.h"

extern SswPace ssw_pace_get(int policy_id);
extern void ssw_pace_set(int policy_id, const SswPace *pace);

#endif							/* SSW_PACE_H */
