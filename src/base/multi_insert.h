/*
 * multi_insert.h
 *		Add rows to a table of the evidence, many at once.
 */
#ifndef SSW_MULTI_INSERT_H
#define SSW_MULTI_INSERT_H

#include "executor/tuptable.h"

typedef struct SswAppend SswAppend;

extern Oid	ssw_append_relation(const char *name);
extern SswAppend *ssw_append_open(const char *table, int ncolumns, AttrNumber time);
extern TupleTableSlot *ssw_append_slot(SswAppend *a);
extern void ssw_append_row(SswAppend *a);
extern void ssw_append_close(SswAppend *a);

#endif							/* SSW_MULTI_INSERT_H */
