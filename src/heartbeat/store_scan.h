/*
 * store_scan.h
 *		All heartbeats of a policy, or of a database.
 */
#ifndef SSW_STORE_SCAN_H
#define SSW_STORE_SCAN_H

#include "heartbeat/store.h"

/* What becomes of the entries. */
typedef enum SswHeartbeatScan
{
	SSW_SCAN_NOTHING,
	SSW_SCAN_LOOK,				/* heartbeats hold, but the next ones look at
								 * their rows */
	SSW_SCAN_VOID,				/* and what rows said of their deadlines
								 * before has another meaning now */
	SSW_SCAN_REMOVE
} SswHeartbeatScan;

extern bool ssw_store_scan(Oid database, int policy_id, SswHeartbeatScan what);
extern void ssw_store_forget(Oid database);

#endif							/* SSW_STORE_SCAN_H */
