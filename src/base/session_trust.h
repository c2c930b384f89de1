/*
 * session_trust.h
 *		What may run as a table's owner in another role's session?
 */
#ifndef SSW_SESSION_TRUST_H
#define SSW_SESSION_TRUST_H

#include "nodes/parsenodes.h"

extern void ssw_trust_enter(Oid user);
extern void ssw_trust_leave(void);
extern bool ssw_trust_is_clean(Oid owner);
extern bool ssw_trust_refuses(Oid owner);
extern bool ssw_trust_is_refusal(const ErrorData *e);
extern void ssw_trust_serve(Oid owner);
extern void ssw_trust_init(void);

#endif							/* SSW_SESSION_TRUST_H */
