/*
 * job.h
 *		Jobs and providers: what workers offer.
 */
#ifndef SSW_JOB_H
#define SSW_JOB_H

#include "fmgr.h"

extern void ssw_job_delete_orphans(Datum jobs);

#endif							/* SSW_JOB_H */
