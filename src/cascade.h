/*
 * cascade.h
 *		What ends with a worker.
 */
#ifndef SSW_CASCADE_H
#define SSW_CASCADE_H

#include "utils/uuid.h"

extern void ssw_cascade(const pg_uuid_t * workers, int n);

#endif							/* SSW_CASCADE_H */
