/*
 * clock.h
 *		Helpers of clock.c that registration uses too.
 */
#ifndef SSW_CLOCK_H
#define SSW_CLOCK_H

#include "nodes/nodes.h"
#include "utils/rel.h"

extern Node *ssw_clock_parse(Relation rel, const char *field, const char *text);
extern AttrNumber ssw_clock_column(Relation rel, const char *field, const char *name);

/* advice.c: errdetail with what the newest rows would mean */
extern int	ssw_clock_candidates(Relation rel, const char *sql, Oid type);

#endif							/* SSW_CLOCK_H */
