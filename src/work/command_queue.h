/*
 * command_queue.h
 *		Commands of submit_sql(): which of them wait, and which lost their runner.
 */
#ifndef SSW_COMMAND_QUEUE_H
#define SSW_COMMAND_QUEUE_H

#include "datatype/timestamp.h"

/* Why an attempt failed whose runner was ended. */
#define SSW_RUNNER_ENDED		"the process that ran it was ended"

/* What a command raises that stops because task_progress() was false. */
#define ERRCODE_SSW_STOPPED		MAKE_SQLSTATE('S','W','0','0','6')

extern char *ssw_queue_incarnation(void);
extern char *ssw_queue_machine(void);
extern bool ssw_queue_end(Datum task, int attempt, const char *status, const char *error, const char *comment);
extern TimestampTz ssw_queue_round(TimestampTz now);

#endif							/* SSW_COMMAND_QUEUE_H */
