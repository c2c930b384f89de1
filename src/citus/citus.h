/*
 * citus.h
 *		Tables whose rows are in shards of Citus.
 */
#ifndef SSW_CITUS_H
#define SSW_CITUS_H

extern void ssw_citus_init(void);

#endif							/* SSW_CITUS_H */
