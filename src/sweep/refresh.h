/*
 * refresh.h
 *		Which rows of a batch are alive by their heartbeats.
 */
#ifndef SSW_REFRESH_H
#define SSW_REFRESH_H

#include "heartbeat/store.h"
#include "sweep/row_action.h"

extern bool ssw_refresh_holds(const SswPolicy *p, const char *key, TimestampTz due, TimestampTz cutoff);
extern bool ssw_refresh_wanted(const SswPolicy *p, const char *key, TimestampTz due, TimestampTz cutoff);
extern uint64 ssw_refresh_run(const SswTarget *t, const ItemPointerData *tids, int n, SswSink *sink);
extern uint64 ssw_refresh_prolong(const SswTarget *t, const SPITupleTable *rows, uint64 n);

#endif							/* SSW_REFRESH_H */
