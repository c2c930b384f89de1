/*
 * worker.h
 *		What the coordinator shares with the worker.
 */
#ifndef SSW_WORKER_H
#define SSW_WORKER_H

extern bool ssw_worker_reload(void);

#endif							/* SSW_WORKER_H */
