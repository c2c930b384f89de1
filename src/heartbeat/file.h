/*
 * file.h
 *		Heartbeats over a restart, and those that nobody needs any more.
 */
#ifndef SSW_FILE_H
#define SSW_FILE_H

extern bool ssw_keep_load(bool first);
extern void ssw_keep_write(void);
extern void ssw_keep_clean(void);
extern void ssw_keep_set_back(void);

#endif							/* SSW_FILE_H */
