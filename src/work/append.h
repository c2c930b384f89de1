/*
 * append.h
 *		Who may append rows to a table, and which columns rows name.
 */
#ifndef SSW_APPEND_H
#define SSW_APPEND_H

#include "nodes/pg_list.h"
#include "utils/jsonb.h"
#include "utils/rel.h"

extern void ssw_append_check_rights(Oid relid, Oid role, List *columns);
extern bool ssw_append_same_columns(Jsonb *a, Jsonb *b);
extern List *ssw_append_columns(Jsonb *row);
extern void ssw_append_check_partitions(Relation rel, LOCKMODE mode);

#endif							/* SSW_APPEND_H */
