/*
 * definition.h
 *		One definition of a policy for all nodes of a Citus cluster.
 */
#ifndef SSW_CITUS_DEFINITION_H
#define SSW_CITUS_DEFINITION_H

#include "datatype/timestamp.h"

extern TimestampTz ssw_citus_share(uint64 generation, TimestampTz now);
extern void ssw_citus_drop_shared(void);

#endif							/* SSW_CITUS_DEFINITION_H */
