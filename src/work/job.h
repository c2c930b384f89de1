/*
 * job.h
 *		Jobs and providers: what workers offer.
 */
#ifndef SSW_JOB_H
#define SSW_JOB_H

#include "work/caller.h"

extern Datum ssw_job_hold(const SswCaller *c, Datum *names);

#endif							/* SSW_JOB_H */
