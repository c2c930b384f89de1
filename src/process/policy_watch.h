/*
 * policy_watch.h
 *		What keeps passes of a policy from running.
 */
#ifndef SSW_POLICY_WATCH_H
#define SSW_POLICY_WATCH_H

#include "process/watched_policy.h"

/* In a transaction. */
extern void ssw_watch_judge(SswWatch *w, TimestampTz now);
extern void ssw_watch_rejudge(SswWatch *w, TimestampTz now);
extern TimestampTz ssw_watch_blocked(List *watches, TimestampTz now);
extern void ssw_watch_note_lock(SswWatch *w, bool locked, TimestampTz now);
extern void ssw_watch_locked(SswWatch *w);
extern bool ssw_watch_patient(const SswWatch *w, TimestampTz now);
extern void ssw_watch_arrivals(SswWatch *w, TimestampTz now);
extern ErrorData *ssw_watch_probe(SswWatch *w, TimestampTz now);

#endif							/* SSW_POLICY_WATCH_H */
