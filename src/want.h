/*
 * want.h
 *		For which role a runner is wanted.
 */
#ifndef SSW_WANT_H
#define SSW_WANT_H

#include "datatype/timestamp.h"

extern void ssw_want_runner(const Oid *roles, int n, TimestampTz now);
extern void ssw_want_none(void);
extern bool ssw_want_cannot_start(void);

#endif							/* SSW_WANT_H */
