/*
 * command_runner.h
 *		A worker that runs the commands of one role.
 */
#ifndef SSW_COMMAND_RUNNER_H
#define SSW_COMMAND_RUNNER_H

#include "utils/uuid.h"

extern const pg_uuid_t *ssw_runner_task(void);
extern bool ssw_runner_must_stop(void);

#endif							/* SSW_COMMAND_RUNNER_H */
