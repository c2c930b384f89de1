/*
 * cleanup_event.h
 *		What a batch did: event rows and notifications of its transaction.
 */
#ifndef SSW_CLEANUP_EVENT_H
#define SSW_CLEANUP_EVENT_H

#include "base/shmem.h"
#include "policy/policy.h"
#include "policy/policy_hooks.h"
#include "tcop/dest.h"

typedef struct SswSink SswSink;

extern SswSink *ssw_cleanup_event_begin(const SswPolicy *p, int64 pass_id, const char *cleanup_type,
										const char *reason, const char *actor);
extern DestReceiver *ssw_cleanup_event_receiver(SswSink *sink);
extern void ssw_cleanup_event_of_shard(SswSink *sink, Oid shard);
extern bool ssw_cleanup_event_still_dead(SswSink *sink);
extern void ssw_cleanup_event_end(SswSink *sink);
extern int	ssw_cleanup_event_type(const char *name);
extern int	ssw_cleanup_event_group(const SswEndedRow *rows, int n);
extern void ssw_cleanup_event_lags(SswSink *sink, TimestampTz commit, int64 *max_lag_us,
								   double *sum, int64 *hist);

#endif							/* SSW_CLEANUP_EVENT_H */
