/*
 * written_tables.h
 *		Which databases may have rows that no coordinator has seen.
 */
#ifndef SSW_WRITTEN_TABLES_H
#define SSW_WRITTEN_TABLES_H

#include "datatype/timestamp.h"
#include "nodes/pg_list.h"

extern void ssw_written_watch(List *policies);
extern uint64 ssw_written_count(Oid relid);
extern TimestampTz ssw_written_look(TimestampTz now);

#endif							/* SSW_WRITTEN_TABLES_H */
