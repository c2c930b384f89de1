/*
 * store_scan.h
 *		All heartbeats of a policy, or of a database.
 */
#ifndef SSW_STORE_SCAN_H
#define SSW_STORE_SCAN_H

#include "heartbeat/store.h"

extern bool ssw_store_look_all(Oid database, int policy_id);
extern void ssw_store_void(Oid database, int policy_id);
extern void ssw_store_forget_policy(Oid database, int policy_id);
extern void ssw_store_forget(Oid database);

#endif							/* SSW_STORE_SCAN_H */
