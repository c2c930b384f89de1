/*
 * unit_guess.h
 *		What a number or a time without a zone may mean.
 */
#ifndef SSW_UNIT_GUESS_H
#define SSW_UNIT_GUESS_H

#include "commands/preview.h"

extern void ssw_unit_guess_init(void);
extern char *ssw_unit_guess_application_timezone(Oid owner);

#endif							/* SSW_UNIT_GUESS_H */
