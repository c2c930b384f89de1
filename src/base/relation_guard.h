/*
 * relation_guard.h
 *		Does a statement run on the tables, functions, operators and types that it means?
 */
#ifndef SSW_RELATION_GUARD_H
#define SSW_RELATION_GUARD_H

extern char *ssw_meant_table(Oid relid);
extern char *ssw_meant_function(Oid func);
extern char *ssw_meant_operator(Oid op);
extern char *ssw_meant_type(Oid type, int32 typmod);
extern char *ssw_meant_plain(const char *sql);
extern void ssw_meant_init(void);

#endif							/* SSW_RELATION_GUARD_H */
