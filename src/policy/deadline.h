/*
 * deadline.h
 *		The deadline of a row as SQL.
 */
#ifndef SSW_DEADLINE_H
#define SSW_DEADLINE_H

#include "policy/policy.h"

/*
 * Fill the fragments from the fields and the relation's columns.
 * ereports, with the SQLSTATE and hint a user of register() should see, when a
 * field does not fit the relation.  The caller holds a lock on rel.
 */
extern void ssw_deadline_build(SswPolicy *p, Relation rel);

#endif							/* SSW_DEADLINE_H */
