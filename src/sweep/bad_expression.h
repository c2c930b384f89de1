/*
 * bad_expression.h
 *		Rows whose deadline, filter or group cannot be computed.
 */
#ifndef SSW_BAD_EXPRESSION_H
#define SSW_BAD_EXPRESSION_H

#include "sweep/batch.h"

extern bool ssw_bad_expression_leave_out(SswWork *w, MemoryContext cxt);

#endif							/* SSW_BAD_EXPRESSION_H */
