/*
 * file.h
 *		Heartbeats over a restart, and those that nobody needs any more.
 */
#ifndef SSW_FILE_H
#define SSW_FILE_H

extern bool ssw_file_load(bool first);
extern void ssw_file_write(void);
extern void ssw_file_clean(void);

#endif							/* SSW_FILE_H */
