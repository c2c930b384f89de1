/*
 * relation_guard.h
 *		Does a statement run on the tables, functions, operators and types that it means?
 */
#ifndef SSW_RELATION_GUARD_H
#define SSW_RELATION_GUARD_H

extern char *ssw_guard_relation(Oid relid);
extern char *ssw_guard_table(Oid relid);
extern char *ssw_guard_function(Oid func);
extern char *ssw_guard_operator(Oid op);
extern char *ssw_guard_type(Oid type, int32 typmod);
extern char *ssw_guard_statement(const char *sql);
extern char *ssw_guard_plain(const char *sql);
extern void ssw_guard_init(void);

#endif							/* SSW_RELATION_GUARD_H */
