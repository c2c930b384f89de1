/*
 * written_tables.h
 *		Which tables may have rows that no look has seen.
 */
#ifndef SSW_WRITTEN_TABLES_H
#define SSW_WRITTEN_TABLES_H

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"

#include "process/watched_policy.h"

extern void ssw_written_watch(List *policies);
extern uint64 ssw_written_count(Oid relid);
extern bool ssw_written_tells(const SswWatch *w);
extern void ssw_written_note(SswWatch *w, TimestampTz now);
extern void ssw_written_sleep(List *watches, TimestampTz next, TimestampTz now);
extern TimestampTz ssw_written_look(TimestampTz now);

#endif							/* SSW_WRITTEN_TABLES_H */
