/*
 * append.h
 *		Who may append rows to a table.
 */
#ifndef SSW_APPEND_H
#define SSW_APPEND_H

#include "nodes/pg_list.h"
#include "utils/rel.h"

extern void ssw_append_check_rights(Oid relid, Oid role, List *columns);
extern void ssw_append_check_partitions(Relation rel, LOCKMODE mode);

#endif							/* SSW_APPEND_H */
