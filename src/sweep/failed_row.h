/*
 * failed_row.h
 *		Rows that could not be handled: what class of failure, when again.
 */
#ifndef SSW_FAILED_ROW_H
#define SSW_FAILED_ROW_H

#include "base/error_class.h"
#include "policy/policy.h"
#include "sweep/row_action.h"

/* So many rows must fail, and none succeed, to doubt the policy. */
#define SSW_DOUBT	10

typedef struct SswFailures SswFailures;

extern const char *ssw_failed_row_text(const SswPolicy *p, const ErrorData *e);
extern int64 ssw_failed_row_backoff_us(int attempts, int64 base_us, int64 max_us);

extern SswFailures *ssw_failed_row_load(const SswPolicy *p);
extern int	ssw_failed_row_count(SswFailures *f);
extern Datum ssw_failed_row_keys(SswFailures *f);
extern bool ssw_failed_row_excluded(SswFailures *f, Oid leaf, const SswRow *row, bool *slow);
extern TimestampTz ssw_failed_row_next_attempt(SswFailures *f);

/* Class of a row that was set aside, and is to be tried alone: that is no attempt. */
#define SSW_FAIL_SET_ASIDE	"set aside"
/* Class of a row that has ended its workers, and is quarantined at once; see row_in_hand.c. */
#define SSW_FAIL_DEADLY		"deadly"

extern bool ssw_failed_row_add(SswFailures *f, Oid leaf, const SswRow *row, const char *class, int sqlerrcode,
							   const char *message, Datum blocked_by);
extern int	ssw_failed_row_pending(SswFailures *f);
extern int	ssw_failed_row_same_code(SswFailures *f);
extern void ssw_failed_row_last(const SswFailures *f, ErrorData *error);
extern void ssw_failed_row_discard(SswFailures *f);
extern void ssw_failed_row_met(SswFailures *f, uint64 salt, uint64 *bits);
extern void ssw_failed_row_flush(SswFailures *f, bool purge, uint64 salt, const uint64 *bits);

#endif							/* SSW_FAILED_ROW_H */
