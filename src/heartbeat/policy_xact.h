/*
 * policy_xact.h
 *		What a transaction does to policies, announced when it commits.
 */
#ifndef SSW_POLICY_XACT_H
#define SSW_POLICY_XACT_H

#include "heartbeat/store_scan.h"

extern void ssw_policy_xact_changed_all(void);
extern void ssw_policy_xact_changed(int policy_id, SswHeartbeatScan entries);
extern bool ssw_policy_xact_any(void);
extern void ssw_policy_xact_extension_created(void);
extern void ssw_policy_xact_commit_prepared(void);

#endif							/* SSW_POLICY_XACT_H */
