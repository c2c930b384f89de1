/*
 * progress.h
 *		What the worker of a task says while it runs.
 */
#ifndef SSW_PROGRESS_H
#define SSW_PROGRESS_H

#include "utils/uuid.h"

extern void ssw_progress_write(Datum task);

#endif							/* SSW_PROGRESS_H */
