/*
 * multi_insert.h
 *		Add rows to a table of the evidence, many at once.
 */
#ifndef SSW_MULTI_INSERT_H
#define SSW_MULTI_INSERT_H

#include "executor/tuptable.h"

typedef struct SswMultiInsert SswMultiInsert;

extern Oid	ssw_multi_insert_relation(const char *name);
extern SswMultiInsert *ssw_multi_insert_open(const char *table, int ncolumns, AttrNumber time);
extern TupleTableSlot *ssw_multi_insert_slot(SswMultiInsert *a);
extern void ssw_multi_insert_row(SswMultiInsert *a);
extern void ssw_multi_insert_close(SswMultiInsert *a);

#endif							/* SSW_MULTI_INSERT_H */
