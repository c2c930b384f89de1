/*
 * worker.h
 *		What the coordinator shares with the worker.
 */
#ifndef SSW_WORKER_H
#define SSW_WORKER_H

extern void ssw_worker_reload(void);

#endif							/* SSW_WORKER_H */
