/*
 * policy_xact.h
 *		What a transaction does to policies, announced when it commits.
 */
#ifndef SSW_POLICY_XACT_H
#define SSW_POLICY_XACT_H

/* Wake this database's coordinator when the current transaction commits. */
extern void ssw_policy_xact_changed_all(void);
extern void ssw_policy_xact_changed(int policy_id);
extern void ssw_policy_xact_altered(int policy_id, bool redefined);
extern void ssw_policy_xact_gone(int policy_id);
extern bool ssw_policy_xact_any(void);

/* Announce that this database has the extension, at commit. */
extern void ssw_policy_xact_extension_created(void);

#endif							/* SSW_POLICY_XACT_H */
