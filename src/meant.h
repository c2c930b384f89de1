/*
 * meant.h
 *		Does a statement run on the tables and functions that it means?
 */
#ifndef SSW_MEANT_H
#define SSW_MEANT_H

extern char *ssw_meant_schema(Oid schema);
extern char *ssw_meant_table(Oid relid);
extern char *ssw_meant_function(Oid func);
extern char *ssw_meant_type(Oid type, int32 typmod);
extern void ssw_meant_rename(const char *schema);
extern char *ssw_meant_plain(const char *sql);
extern void ssw_meant_init(void);

#endif							/* SSW_MEANT_H */
