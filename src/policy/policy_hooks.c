/*
 * policy_hooks.c
 *		What the built-in policies do besides what every policy does.
 *
 * registry/ and work/ register their hooks when the library is loaded; the engine
 * calls them through the policy.  The list belongs to the process; nothing is
 * shared, and a crash leaves nothing behind.
 */
#include "postgres.h"

#include "base/shmem.h"
#include "policy/policy_hooks.h"

/* Built-in policies have the first numbers. */
static SswPolicyHooks *first[SSW_LAST_BUILTIN + 1];

void
ssw_policy_hooks_add(SswPolicyHooks *hooks)
{
	Assert(hooks->policy_id >= 0 && hooks->policy_id < lengthof(first));
	hooks->next = first[hooks->policy_id];
	first[hooks->policy_id] = hooks;
}

/* The first of them, or null. */
const SswPolicyHooks *
ssw_policy_hooks_find(int policy_id)
{
	return policy_id >= 0 && policy_id < lengthof(first) ? first[policy_id] : NULL;
}
