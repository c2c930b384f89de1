/*
 * mend.h
 *		A statement that makes a policy fit its table and functions again.
 */
#ifndef SSW_MEND_H
#define SSW_MEND_H

#include "policy.h"

extern char *ssw_mend(const SswPolicy *p);
extern char *ssw_mend_or_resume(const SswPolicy *p);

#endif							/* SSW_MEND_H */
