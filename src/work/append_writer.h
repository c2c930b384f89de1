/*
 * append_writer.h
 *		Write appended rows to their tables.
 */
#ifndef SSW_APPEND_WRITER_H
#define SSW_APPEND_WRITER_H

extern void ssw_append_writer_run(Oid owner, bool (*must_stop) (void));

#endif							/* SSW_APPEND_WRITER_H */
