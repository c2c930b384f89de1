/*
 * store_scan.h
 *		All heartbeats of a policy, or of a database.
 */
#ifndef SSW_STORE_SCAN_H
#define SSW_STORE_SCAN_H

#include "heartbeat/store.h"

extern bool ssw_beats_look_all(Oid database, int policy_id);
extern void ssw_beats_void(Oid database, int policy_id);
extern void ssw_beats_forget_policy(Oid database, int policy_id);
extern void ssw_beats_forget(Oid database);

#endif							/* SSW_STORE_SCAN_H */
