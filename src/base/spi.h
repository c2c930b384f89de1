/*
 * spi.h
 *		SPI scope and small statement helpers.
 */
#ifndef SSW_SPI_H
#define SSW_SPI_H

#include "access/xact.h"
#include "executor/spi.h"

#include "base/identity.h"

extern void ssw_spi_refuse_parallel(void);
extern void ssw_spi_refuse_read_only(const char *function);
extern void ssw_spi_begin(void);
extern void ssw_spi_begin_nonatomic(void);
extern void ssw_spi_begin_as_extension(SswIdentity *save);
extern void ssw_spi_begin_as_owner(Oid owner, const char *search_path, SswIdentity *save);
extern void ssw_spi_end(void);
extern void ssw_spi_end_as(const SswIdentity *save);

extern SPIPlanPtr ssw_spi_prepare(const char *sql, int nargs, Oid *types, int options);
extern bool ssw_spi_is_restricted(SPIPlanPtr plan);
extern uint64 ssw_spi_exec(const char *sql, int nargs, Oid *types, Datum *values,
						   const char *nulls, bool read_only, long limit);
extern uint64 ssw_spi_exec_as_extension(const char *sql, int nargs, Oid *types, Datum *values,
										const char *nulls, bool read_only);
extern char *ssw_spi_text_as_extension(const char *sql, int nargs, Oid *types, Datum *values, bool read_only);
extern ParamListInfo ssw_spi_params(int nargs, Oid *types, Datum *values, const bool *nulls);
extern void ssw_spi_send(const char *sql, int nargs, Oid *types, Datum *values,
						 const bool *nulls, DestReceiver *dest);

/* Returns whether what it did stays. */
typedef bool (*SswTry) (void *arg);

extern ErrorData *ssw_spi_try(SswTry call, void *arg);
extern Datum ssw_spi_column(uint64 row, int col);
extern char *ssw_spi_text(uint64 row, int col);

/* Transactions of background processes. */
extern void ssw_spi_start_transaction(void);
extern void ssw_spi_commit(void);
extern void ssw_spi_abort(void);

#endif							/* SSW_SPI_H */
