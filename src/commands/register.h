/*
 * register.h
 *		Check the arguments of a registration, and carry it out.
 */
#ifndef SSW_REGISTER_H
#define SSW_REGISTER_H

#include "fmgr.h"

#include "commands/args.h"
#include "commands/preview.h"

extern Datum ssw_register_relation(FunctionCallInfo fcinfo, SswArgs *args, Relation rel);

/* parts that alter_policy uses too */
extern void ssw_register_table_gone(const SswPolicy *p);
extern void ssw_register_check_name(const char *name);
extern void ssw_register_identity(SswPolicy *p, Relation rel);
extern SswPreview *ssw_register_look(SswPolicy *p, Relation rel, const char **held);

#endif							/* SSW_REGISTER_H */
