/*
 * cleanup_counters.h
 *		How many rows of a policy ended, by the type of their end.
 */
#ifndef SSW_CLEANUP_COUNTERS_H
#define SSW_CLEANUP_COUNTERS_H

extern void ssw_cleanup_counters_add(int policy_id, const char *cleanup_type, int64 n);

#endif							/* SSW_CLEANUP_COUNTERS_H */
