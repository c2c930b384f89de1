/*
 * unit_guess.h
 *		What a number or a time without a zone may mean.
 */
#ifndef SSW_UNIT_GUESS_H
#define SSW_UNIT_GUESS_H

extern void ssw_unit_guess_init(void);

#endif							/* SSW_UNIT_GUESS_H */
