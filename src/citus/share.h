/*
 * share.h
 *		When a node shares the definitions of policies, or applies shared ones.
 */
#ifndef SSW_CITUS_SHARE_H
#define SSW_CITUS_SHARE_H

#include "datatype/timestamp.h"

extern TimestampTz ssw_citus_share(uint64 generation, TimestampTz now);
extern void ssw_citus_drop_shared(void);

#endif							/* SSW_CITUS_SHARE_H */
