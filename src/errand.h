/*
 * errand.h
 *		A statement in another database of the cluster.
 */
#ifndef SSW_ERRAND_H
#define SSW_ERRAND_H

extern int64 ssw_errand_run(Oid database, const char *extension, const char *sql, int nargs, const char *const *args);

#endif							/* SSW_ERRAND_H */
