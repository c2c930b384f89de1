/*
 * sweep_request.h
 *		The coordinator's side of CALL sweep: what was asked, what is answered.
 */
#ifndef SSW_SWEEP_REQUEST_H
#define SSW_SWEEP_REQUEST_H

#include "process/watched_policy.h"

extern uint64 ssw_request_pending(SswWatch *w, const uint64 *current);
extern void ssw_request_complete(SswWatch *w, uint64 request, int64 pass_id, int code, const char *message);
extern void ssw_request_complete_with(SswWatch *w, uint64 request, const SswPass *pass);
extern void ssw_request_answer(List *watches);

#endif							/* SSW_SWEEP_REQUEST_H */
