/*
 * heartbeat_sql.h
 *		Heartbeats of sessions, for our own code.
 */
#ifndef SSW_HEARTBEAT_SQL_H
#define SSW_HEARTBEAT_SQL_H

#include "utils/uuid.h"

extern bool ssw_heartbeat_of(const pg_uuid_t *session);

#endif							/* SSW_HEARTBEAT_SQL_H */
