/*
 * register_checks.h
 *		What register and alter_policy check alike.
 */
#ifndef SSW_REGISTER_CHECKS_H
#define SSW_REGISTER_CHECKS_H

#include "commands/preview.h"
#include "policy/policy.h"

extern void ssw_register_name_taken(const char *name, const char *argument, const char *relation);
extern void ssw_register_table_gone(const SswPolicy *p);
extern void ssw_register_check_spelling(const char *name, const char *argument);
extern void ssw_register_check_name(const char *name, const char *argument);
extern void ssw_register_identity(SswPolicy *p, Relation rel);
extern SswPreview *ssw_register_look(SswPolicy *p, Relation rel, const char **held);

#endif							/* SSW_REGISTER_CHECKS_H */
