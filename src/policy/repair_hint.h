/*
 * repair_hint.h
 *		A statement that makes a policy fit its table and functions again.
 */
#ifndef SSW_REPAIR_HINT_H
#define SSW_REPAIR_HINT_H

#include "policy/policy.h"

extern char *ssw_repair_with_comment(char *statement, const char *next);
extern char *ssw_repair_hint(const SswPolicy *p);
extern char *ssw_repair_hint_or_resume(const SswPolicy *p, const char *group);

#endif							/* SSW_REPAIR_HINT_H */
