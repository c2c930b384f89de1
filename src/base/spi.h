/*
 * spi.h
 *		SPI scope and small statement helpers.
 */
#ifndef SSW_SPI_H
#define SSW_SPI_H

#include "executor/spi.h"

extern void ssw_sql_begin(void);
extern void ssw_sql_begin_nonatomic(void);
extern void ssw_sql_end(void);

extern SPIPlanPtr ssw_sql_prepare(const char *sql, int nargs, Oid *types, int options);
extern bool ssw_sql_is_restricted(SPIPlanPtr plan);
extern uint64 ssw_sql_exec(const char *sql, int nargs, Oid *types, Datum *values,
						   const char *nulls, bool read_only, long limit);
extern void ssw_sql_send(const char *sql, int nargs, Oid *types, Datum *values,
						 const bool *nulls, DestReceiver *dest);

/* Returns whether what it did stays. */
typedef bool (*SswTry) (void *arg);

extern ErrorData *ssw_sql_try(SswTry call, void *arg);
extern char *ssw_sql_value(HeapTuple tup, TupleDesc desc, int col);
extern Datum ssw_sql_datum(HeapTuple tup, TupleDesc desc, int col, bool *isnull);

/* Transactions of background processes. */
extern void ssw_sql_start_transaction(void);
extern void ssw_sql_commit(void);
extern void ssw_sql_abort(void);

#endif							/* SSW_SPI_H */
