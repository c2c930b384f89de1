/*
 * meant.h
 *		Does a statement run on the tables that it means?
 */
#ifndef SSW_MEANT_H
#define SSW_MEANT_H

extern char *ssw_meant(const char *name, Oid relid);
extern char *ssw_meant_plain(const char *sql);
extern void ssw_meant_init(void);

#endif							/* SSW_MEANT_H */
