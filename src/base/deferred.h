/*
 * deferred.h
 *		Deferred triggers, which must not fire as another role.
 */
#ifndef SSW_DEFERRED_H
#define SSW_DEFERRED_H

extern void ssw_deferred_fire(void);
extern void ssw_deferred_settle_callers(Oid owner);

#endif							/* SSW_DEFERRED_H */
