/*
 * deadline.h
 *		The deadline of a row as SQL.
 */
#ifndef SSW_DEADLINE_H
#define SSW_DEADLINE_H

#include "policy/policy.h"

/*
 * What a value of that type, in a column or expression of that argument, means is not
 * known: raise an error with the completed call.  Set when the library is loaded.
 */
typedef void (*SswDeadlineAsk) (const SswPolicy *p, Relation rel, const char *field, const char *sql, Oid type);
extern SswDeadlineAsk ssw_deadline_ask_unit;
extern SswDeadlineAsk ssw_deadline_ask_zone;

/*
 * Fill the fragments from the fields and the relation's columns.
 * ereports, with the SQLSTATE and hint a user of register() should see, when a
 * field does not fit the relation.  The caller holds a lock on rel.
 */
extern void ssw_deadline_build(SswPolicy *p, Relation rel);

#endif							/* SSW_DEADLINE_H */
