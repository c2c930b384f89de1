/*
 * remote.h
 *		Statements for the other nodes of a Citus cluster.
 */
#ifndef SSW_CITUS_REMOTE_H
#define SSW_CITUS_REMOTE_H

extern void ssw_citus_remote_init(void);

#endif							/* SSW_CITUS_REMOTE_H */
