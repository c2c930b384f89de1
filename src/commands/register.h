/*
 * register.h
 *		Check the arguments of a registration, and carry it out.
 */
#ifndef SSW_REGISTER_H
#define SSW_REGISTER_H

#include "fmgr.h"

#include "commands/args.h"

extern Datum ssw_register_relation(FunctionCallInfo fcinfo, SswArgs *args, Relation rel);

#endif							/* SSW_REGISTER_H */
