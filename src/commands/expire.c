/*
 * expire.c
 *		expire() and expire_group(): end named rows now.
 *
 * Runs in the caller's session and transaction (see end_rows.c); whether the rows are
 * dead does not matter.  Shares nothing; works without the background processes.
 * A crash, or the caller's rollback, undoes all of it.
 *
 * Lock order: extension object, policy, relation, rows; as in a batch.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "storage/proc.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/argument_checks.h"
#include "base/deferred.h"
#include "base/identity.h"
#include "base/locks.h"
#include "base/spi.h"
#include "commands/expire_at_nodes.h"
#include "monitor/all_nodes.h"
#include "policy/deadline.h"
#include "policy/policy_rights.h"
#include "policy/repair_hint.h"
#include "policy/row_key.h"
#include "sweep/end_rows.h"
#include "sweep/row_action.h"

PG_FUNCTION_INFO_V1(ssw_expire);
PG_FUNCTION_INFO_V1(ssw_expire_here);
PG_FUNCTION_INFO_V1(ssw_expire_group);

/* What expire() does with rows, and expire_group(). */
typedef struct Wanted
{
	ArrayType  *keys;			/* null: of the group */
	char	   *group;
	SswEnd		end;
	SswPolicy  *policy;			/* as it is under the relation's lock */
	Relation	rel;
	SswFound   *found;
} Wanted;

static void
find_by_keys(const SswPolicy *p, const Wanted *w, SswFound *found)
{
	char	   *matches = NULL;
	Datum	   *elems;
	int			n;

	deconstruct_array(w->keys, TEXTOID, -1, false, TYPALIGN_INT, &elems, NULL, &n);
	for (int i = 0; i < n; i++)
	{
		Oid			types[SSW_KEY_MAX];
		Datum		values[SSW_KEY_MAX];
		char	   *key = TextDatumGetCString(elems[i]);
		int			nvalues = ssw_key_params(p, key, types, values);

		if (matches == NULL)
			matches = ssw_key_matches(p, 1);
		ssw_end_find(found, p, &w->end, matches, nvalues, types, values);
	}
}

/* A plain column is compared as its own type, so that an index on it serves. */
static void
find_by_group(const SswPolicy *p, const Wanted *w, SswFound *found)
{
	AttrNumber	attnum = get_attnum(p->relid, p->group_by);
	Oid			type = TEXTOID;
	Datum		value;
	const char *matches;

	if (attnum > 0)
	{
		Oid			input,
					ioparam;

		type = get_atttype(p->relid, attnum);
		getTypeInputInfo(type, &input, &ioparam);
		value = OidInputFunctionCall(input, w->group, ioparam, -1);
		matches = psprintf("t.%s %s $1", quote_identifier(p->group_by), ssw_key_equals(type));
	}
	else
	{
		value = CStringGetTextDatum(w->group);
		matches = psprintf("%s OPERATOR(pg_catalog.=) $1", p->group_text);
	}
	ssw_end_find(found, p, &w->end, matches, 1, &type, &value);
}

/* May rows of the policy be ended now? */
static void
check_usable(const SswPolicy *p)
{
	char	   *trouble = ssw_policy_unusable(p);

	if (trouble)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot expire rows of policy \"%s\": %s", p->name, trouble),
				 errhint("If this is intended: %s", ssw_repair_hint_or_resume(p, NULL))));
	trouble = ssw_policy_hook_trouble(p);
	if (trouble)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot expire rows of policy \"%s\": %s", p->name, trouble),
				 errhint("Give the function to role \"%s\", or name another with sweeper.alter_policy().", p->owner_name)));
}

/* The policy, locked against changes, if rows may be ended by hand now. */
static SswPolicy *
lock_policy(FunctionCallInfo fcinfo, SswRight right)
{
	SswPolicy  *p;

	ssw_spi_refuse_read_only("sweeper.expire()");
	(void) ssw_lock_extension(true);
	p = ssw_rights_locked(PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0), right, RowShareLock);
	if (strncmp(p->name, SSW_SCHEMA ".", strlen(SSW_SCHEMA ".")) == 0 && p->audit == SSW_AUDIT_NONE)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot expire rows of policy \"%s\": they are evidence", p->name),
				 errhint("They are deleted after the time that the retention settings give.")));
	if (p->heartbeats)
		ssw_shmem_require();
	check_usable(p);
	return p;
}

/* Can rows be named in this way? */
static void
check_wanted(const SswPolicy *p, const Wanted *w, Relation rel)
{
	if (w->keys && p->nkeys == 0 && rel->rd_rel->relhassubclass)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("policy \"%s\" has no key", p->name),
				 errdetail("Rows of different partitions may have the same ctid."),
				 errhint("Give it one: SELECT sweeper.alter_policy(%s, key => '{...}');", quote_literal_cstr(p->name))));
}

static void
find_rows(void *arg)
{
	Wanted	   *w = arg;

	ssw_deadline_build(w->policy, w->rel);
	check_wanted(w->policy, w, w->rel);
	if (LockTimeout == 0)
		ssw_identity_lock_timeout(w->policy->lock_timeout_ms);
	ssw_spi_begin();
	if (w->keys)
		find_by_keys(w->policy, w, w->found);
	else
		find_by_group(w->policy, w, w->found);
	ssw_spi_end();
}

/*
 * End the rows.  Deferred constraints are made immediate for the rest of the
 * caller's transaction, first and as the caller: what the owner's code leaves
 * behind must not fire at commit as another role.
 */
static int64
expire_rows(SswPolicy *p, Wanted *w)
{
	w->found = ssw_end_begin();
	w->end.phase = SSW_PHASE_MANUAL;
	w->end.cutoff = GetCurrentTimestamp();
	ssw_deferred_settle_callers(p->owner);
	ssw_lock_relation(p->relid, RowExclusiveLock);
	ssw_action_lock_leaf(p, p->relid, RowExclusiveLock);
	w->policy = p = ssw_policy_present(p);
	check_usable(p);
	w->rel = table_open(p->relid, NoLock);
	ssw_gate(p->owner, p->search_path, find_rows, w);
	table_close(w->rel, NoLock);
	return ssw_end_found(w->found, p, &w->end);
}

/* A call on another node would leave rows alive, and return that there are none. */
static int64
expire_everywhere(SswPolicy *p, Wanted *w)
{
	if (p->from_coordinator)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot expire rows of policy \"%s\" on this node", p->name),
				 errdetail("Its table is distributed, and this node is not the cluster's coordinator."),
				 errhint("Call the function on the coordinator, in a statement that reads no distributed table: Citus would send such a statement to another node.")));
	return ssw_nodes->leads(p->relid) ? ssw_expire_at_nodes(p, w->keys, w->group, w->end.reason) : expire_rows(p, w);
}

/* expire(policy, keys, reason) → rows ended. */
Datum
ssw_expire(PG_FUNCTION_ARGS)
{
	SswPolicy  *p = lock_policy(fcinfo, SSW_RIGHT_END_ROW);
	Wanted		w = {.end.type = "manual"};

	ssw_argument_not_null(fcinfo, 1, "keys");
	w.keys = PG_GETARG_ARRAYTYPE_P(1);
	if (array_contains_nulls(w.keys))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("keys must not contain nulls")));
	ssw_argument_bound(fcinfo, 2, "reason", SSW_MAX_TEXT);
	w.end.reason = PG_ARGISNULL(2) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(2));
	PG_RETURN_INT64(expire_everywhere(p, &w));
}

/* _expire_here(policy, {key, reason}, place): the same of a row on this node. */
Datum
ssw_expire_here(PG_FUNCTION_ARGS)
{
	SswPolicy  *p = lock_policy(fcinfo, SSW_RIGHT_END_ROW);
	Wanted		w = {.end.type = "manual"};
	Datum	   *elems;
	bool	   *nulls;
	int			n;

	ssw_argument_not_null(fcinfo, 1, "key_and_reason");
	ssw_argument_bound(fcinfo, 1, "key_and_reason", 2 * SSW_MAX_TEXT);
	ssw_key_check_place(p, fcinfo);
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(1), TEXTOID, -1, false, TYPALIGN_INT, &elems, &nulls, &n);
	if (n != 2 || nulls[0])
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("_expire_here() takes a key and a reason")));
	w.keys = construct_array(elems, 1, TEXTOID, -1, false, TYPALIGN_INT);
	w.end.reason = nulls[1] ? NULL : TextDatumGetCString(elems[1]);
	PG_RETURN_INT64(expire_rows(p, &w));
}

/* expire_group(policy, group_value, reason) → rows ended; of a pool: its licence has. */
Datum
ssw_expire_group(PG_FUNCTION_ARGS)
{
	SswPolicy  *p = lock_policy(fcinfo, SSW_RIGHT_ADMIN);
	Wanted		w = {.end.type = p->registry ? "expired" : "manual"};

	ssw_argument_not_null(fcinfo, 1, "group_value");
	w.group = text_to_cstring(PG_GETARG_TEXT_PP(1));
	ssw_argument_bound(fcinfo, 2, "reason", SSW_MAX_TEXT);
	w.end.reason = PG_ARGISNULL(2) ? NULL : text_to_cstring(PG_GETARG_TEXT_PP(2));
	if (p->group_by == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("policy \"%s\" has no group", p->name),
				 errhint("Give it one: SELECT sweeper.alter_policy(%s, group_by => '...');",
						 quote_literal_cstr(p->name))));
	PG_RETURN_INT64(expire_everywhere(p, &w));
}
