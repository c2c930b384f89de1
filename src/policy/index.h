/*
 * index.h
 *		Which index serves a deadline, and which one would.
 */
#ifndef SSW_INDEX_H
#define SSW_INDEX_H

#include "policy/policy.h"

extern Oid	ssw_index_find(Relation rel, const char *sort, const char *filter);
extern Oid	ssw_index_to_read(Relation rel, const SswPolicy *p);
extern List *ssw_index_key(Relation rel, char **key, int nkeys);
extern char *ssw_index_statement(Relation rel, const char *sort);

#endif							/* SSW_INDEX_H */
