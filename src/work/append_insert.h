/*
 * append_insert.h
 *		Insert appended rows into their table.
 */
#ifndef SSW_APPEND_INSERT_H
#define SSW_APPEND_INSERT_H

#include "work/append_queue.h"

/* Rows to insert, as the owner of their table. */
typedef struct SswAppendInsertion
{
	const SswAppendTarget *target;
	SswAppendedRow *rows;
	int			n;
} SswAppendInsertion;

extern void ssw_append_insert_check(const SswAppendTarget *t, Oid owner, const SswAppendedRow *rows, int n);

/* in the gate */
extern void ssw_append_insert(void *arg);

#endif							/* SSW_APPEND_INSERT_H */
