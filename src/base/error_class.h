/*
 * error_class.h
 *		Errors that were caught, and what an SQLSTATE says of a row, or of its policy.
 */
#ifndef SSW_ERROR_CLASS_H
#define SSW_ERROR_CLASS_H

/* A BEFORE trigger kept the row. */
#define ERRCODE_SSW_SUPPRESSED				MAKE_SQLSTATE('S','W','0','0','2')

typedef enum SswFailureClass
{
	SSW_FAIL_ROW,				/* the row's own: retried, then quarantined */
	SSW_FAIL_TRANSIENT,			/* deadlock, time-out, resources: retried */
	SSW_FAIL_LOCKED,			/* a lock was not granted: retried */
	SSW_FAIL_POLICY				/* unless other rows go, the policy cannot
								 * work: back off */
} SswFailureClass;

extern int	ssw_error_ours(int sqlerrcode);
extern bool ssw_error_is_ours(const ErrorData *e, int sqlerrcode);
extern ErrorData *ssw_error_catch(void);
extern SswFailureClass ssw_error_classify(int sqlerrcode);

#endif							/* SSW_ERROR_CLASS_H */
