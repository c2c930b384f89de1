/*
 * route.h
 *		Heartbeats for rows in shards of Citus: which node they go to, and whether one counts.
 */
#ifndef SSW_CITUS_ROUTE_H
#define SSW_CITUS_ROUTE_H

extern void ssw_citus_route_init(void);

#endif							/* SSW_CITUS_ROUTE_H */
