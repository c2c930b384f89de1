/*
 * identity.h
 *		The gate for users' code; run code as another role, and come back.
 */
#ifndef SSW_IDENTITY_H
#define SSW_IDENTITY_H

#include "base/session_trust.h"

typedef struct SswIdentity
{
	Oid			userid;
	int			sec_context;
	int			guc_level;
	MemoryContext portals;		/* newer ones were opened since; or null */
	bool		restricted;		/* is it a gate? */
} SswIdentity;

/* What runs inside of the gate. */
typedef void (*SswGated) (void *arg);

extern void ssw_gate(Oid owner, const char *search_path, SswGated call, void *arg);
extern void ssw_gate_unpinned(Oid owner, const char *search_path, SswGated call, void *arg);
extern void ssw_gate_require(void);
extern void ssw_identity_become_owner(Oid owner, const char *search_path, SswIdentity *save);
extern void ssw_identity_become_extension(SswIdentity *save);
extern void ssw_identity_pin_text(void);
extern void ssw_identity_pin_process(void);
extern void ssw_identity_lock_timeout(int ms);
extern int	ssw_identity_pin(const char *name, const char *value);
extern char *ssw_identity_actor(void);
extern void ssw_identity_restore(const SswIdentity *save);
extern char *ssw_identity_other_version(void);
extern bool ssw_identity_owns_extension(void);
extern Oid	ssw_relation_owner(Oid relid);

#endif							/* SSW_IDENTITY_H */
