/*
 * alive_by_heartbeat.h
 *		Which rows of a batch are alive by their heartbeats.
 */
#ifndef SSW_ALIVE_BY_HEARTBEAT_H
#define SSW_ALIVE_BY_HEARTBEAT_H

#include "heartbeat/store.h"
#include "sweep/row_action.h"

extern bool ssw_alive_holds(const SswPolicy *p, Oid shard, const char *key, TimestampTz due, TimestampTz cutoff);
extern bool ssw_alive_wanted(const SswPolicy *p, Oid shard, const char *key, TimestampTz due, TimestampTz cutoff);
extern uint64 ssw_alive_act_on_dead(const SswTarget *t, const ItemPointerData *tids, int n, SswSink *sink);
extern uint64 ssw_alive_prolong(const SswTarget *t, const SPITupleTable *rows, uint64 n);

#endif							/* SSW_ALIVE_BY_HEARTBEAT_H */
