/*
 * unit_guess.h
 *		What a number or a time without a zone may mean.
 */
#ifndef SSW_UNIT_GUESS_H
#define SSW_UNIT_GUESS_H

#include "commands/preview.h"

/* Ereport what a column could mean, with the completed call */
extern void ssw_advice_need_unit(const SswPolicy *p, Relation rel, const char *field,
								 const char *sql, Oid type);
extern char *ssw_advice_application_timezone(Oid owner);
extern List *ssw_advice_zones(Oid owner);
extern void ssw_advice_need_timezone(const SswPolicy *p, Relation rel, const char *field,
									 const char *sql, Oid type);
extern void ssw_advice_lifetimes(const SswPolicy *p, Relation rel);

#endif							/* SSW_UNIT_GUESS_H */
