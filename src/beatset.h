/*
 * beatset.h
 *		All heartbeats of a policy, or of a database.
 */
#ifndef SSW_BEATSET_H
#define SSW_BEATSET_H

#include "beats.h"

extern bool ssw_beats_look_all(Oid database, int policy_id);
extern void ssw_beats_void(Oid database, int policy_id);
extern void ssw_beats_forget_policy(Oid database, int policy_id);
extern void ssw_beats_forget(Oid database);

#endif							/* SSW_BEATSET_H */
