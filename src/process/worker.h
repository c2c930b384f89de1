/*
 * worker.h
 *		Reload of settings, in workers and in the coordinator.
 */
#ifndef SSW_WORKER_H
#define SSW_WORKER_H

extern bool ssw_worker_reload(void);

#endif							/* SSW_WORKER_H */
