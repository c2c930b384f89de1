/*
 * column_names.h
 *		The columns that a policy names, by the names that they have now.
 */
#ifndef SSW_COLUMN_NAMES_H
#define SSW_COLUMN_NAMES_H

#include "utils/array.h"

#include "policy/policy_struct.h"

extern void ssw_columns_follow(SswPolicy *p, ArrayType *columns);

#endif							/* SSW_COLUMN_NAMES_H */
