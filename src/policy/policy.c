/*
 * policy.c
 *		Read rows of sweeper.policy into structs.
 *
 * Runs in any process of a database that has the extension, in a transaction;
 * shares nothing and changes nothing.  A crash leaves nothing behind.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "storage/sinval.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "utils/varlena.h"

#include "base/cached_plan.h"
#include "base/guc.h"
#include "base/identity.h"
#include "base/spi.h"
#include "policy/column_names.h"
#include "policy/policy.h"
#include "policy/policy_hooks.h"

/* Columns of sweeper.policy that come behind those of ssw_fields[]. */
#define STATE_COLUMNS \
	" policy_id, policy, relid, relation, owner, owner_name, system_identifier, database, on_expire_name, is_alive_name," \
	" CASE WHEN paused_until <= pg_catalog.now() THEN NULL ELSE paused_at END, paused_until," \
	" held_reason, f.held_until, failures, broken, retry_at, backlog_before, horizons," \
	" columns, f.next, f.spent, paused_reason, f.detail, last_error, shared_at IS NOT NULL, coalesce(shared_as, policy_id) FROM sweeper.policy AS p CROSS JOIN LATERAL" \
	" (SELECT max(h.held_until) FILTER (WHERE h.\"group\" IS NULL) AS held_until," \
	"  min(h.held_until) FILTER (WHERE h.held_until > pg_catalog.clock_timestamp()) AS next," \
	"  bool_or(h.held_until <= pg_catalog.clock_timestamp()) AS spent," \
	"  pg_catalog.string_agg(h.detail, '; ' ORDER BY h.held_at, h.\"group\") FILTER (WHERE h.held_until > pg_catalog.clock_timestamp()) AS detail" \
	"  FROM sweeper.fuse_hold AS h WHERE h.policy_id = p.policy_id) AS f "

bool		(*ssw_policy_follows) (void) = NULL;

enum
{
	P_ID = SSW_NARGS + 1, P_NAME, P_RELID, P_RELATION, P_OWNER, P_OWNER_NAME, P_SYSID, P_DATABASE,
	P_ON_EXPIRE_NAME, P_IS_ALIVE_NAME, P_PAUSED_AT, P_PAUSED_UNTIL, P_HELD, P_FUSE_UNTIL, P_FAILURES, P_BROKEN, P_RETRY_AT,
	P_BACKLOG_BEFORE, P_HORIZONS, P_COLUMNS, P_FUSE_NEXT, P_FUSE_SPENT, P_PAUSED_REASON, P_FUSE_DETAIL, P_LAST_ERROR, P_FROM_COORDINATOR,
	P_SHARED_AS
};

static TimestampTz
get_time(uint64 row, int col)
{
	return DatumGetTimestampTz(ssw_spi_column(row, col));
}

static void
get_horizons(uint64 row, SswPolicy *p)
{
	Datum		d = ssw_spi_column(row, P_HORIZONS);
	Datum	   *elems;
	int			n;

	if (d == 0)
		return;
	deconstruct_array(DatumGetArrayTypeP(d), TIMESTAMPTZOID, sizeof(TimestampTz), true,
					  TYPALIGN_DOUBLE, &elems, NULL, &n);
	p->nhorizons = Min(n / 2, SSW_MAX_HORIZONS);
	for (int i = 0; i < p->nhorizons; i++)
	{
		p->horizon[i].service = DatumGetTimestampTz(elems[2 * i]);
		p->horizon[i].deadline = DatumGetTimestampTz(elems[2 * i + 1]);
	}
	if (p->nhorizons > 0)
		p->noted_at = DatumGetTimestampTz(elems[n - 1]);
}

/* The built-in retention policies take their time from settings. */
static void
apply_retention(SswPolicy *p)
{
	int			minutes;

	if (strcmp(p->name, "sweeper.cleanup_event") == 0 || strcmp(p->name, "sweeper.ended_session") == 0)
		minutes = ssw_cleanup_event_retention;
	else if (strcmp(p->name, "sweeper.usage_event") == 0)
		minutes = ssw_usage_event_retention;
	else if (strcmp(p->name, "sweeper.pass") == 0)
		minutes = ssw_pass_retention;
	else if (strcmp(p->name, "sweeper.finished_task") == 0)
		minutes = ssw_task_retention;
	else if (strcmp(p->name, "sweeper.consumed_task") == 0)
		minutes = Min(ssw_task_retention, 24 * 60);
	else
		return;
	p->keep_for_us = minutes * USECS_PER_MINUTE;

	/*
	 * what is kept for long may stay a little longer: a look costs an idle
	 * database a turn
	 */
	p->check_every_us = Max(p->check_every_us, Min(p->keep_for_us / 1000, USECS_PER_HOUR));
	if (minutes == 0)
		p->off = true;
}

/* Was the row written in another cluster or database? */
static bool
is_from_elsewhere(const SswPolicy *p)
{
	return p->system_identifier != GetSystemIdentifier() || p->database != MyDatabaseId;
}

/* The results are in CurrentMemoryContext. */
static SswPolicy *
read_row(uint64 row)
{
	SswPolicy  *p = palloc0(sizeof(SswPolicy));

	for (int i = 0; i < SSW_NARGS; i++)
	{
		bool		isnull;
		Datum		value = SPI_getbinval(SPI_tuptable->vals[row], SPI_tuptable->tupdesc, i + 1, &isnull);

		ssw_field_set(p, &ssw_fields[i], value, isnull);
	}
	p->id = DatumGetInt32(ssw_spi_column(row, P_ID));
	p->name = ssw_spi_text(row, P_NAME);
	p->registry = strcmp(p->name, SSW_SESSION_POLICY) == 0;
	p->hooks = ssw_policy_hooks_find(p->id);
	p->filter_indexed = p->id >= SSW_SESSION_POLICY_ID && p->id <= SSW_LAST_TASK_POLICY_ID;
	p->relid = DatumGetObjectId(ssw_spi_column(row, P_RELID));
	p->relation = ssw_spi_text(row, P_RELATION);
	p->owner = DatumGetObjectId(ssw_spi_column(row, P_OWNER));
	p->owner_name = ssw_spi_text(row, P_OWNER_NAME);
	p->system_identifier = (uint64) DatumGetInt64(ssw_spi_column(row, P_SYSID));
	p->database = DatumGetObjectId(ssw_spi_column(row, P_DATABASE));
	p->on_expire_name = ssw_spi_text(row, P_ON_EXPIRE_NAME);
	p->is_alive_name = ssw_spi_text(row, P_IS_ALIVE_NAME);
	p->paused_at = get_time(row, P_PAUSED_AT);
	p->paused_until = get_time(row, P_PAUSED_UNTIL);
	p->held_reason = ssw_spi_text(row, P_HELD);
	p->fuse_until = get_time(row, P_FUSE_UNTIL);
	p->fuse_next = get_time(row, P_FUSE_NEXT);
	p->fuse_spent = DatumGetBool(ssw_spi_column(row, P_FUSE_SPENT));
	p->paused_reason = ssw_spi_text(row, P_PAUSED_REASON);
	p->fuse_detail = ssw_spi_text(row, P_FUSE_DETAIL);
	p->last_error = ssw_spi_text(row, P_LAST_ERROR);
	p->from_coordinator = DatumGetBool(ssw_spi_column(row, P_FROM_COORDINATOR));
	p->shared_as = DatumGetInt32(ssw_spi_column(row, P_SHARED_AS));
	p->failures = DatumGetInt32(ssw_spi_column(row, P_FAILURES));
	p->broken = DatumGetBool(ssw_spi_column(row, P_BROKEN));
	p->retry_at = get_time(row, P_RETRY_AT);
	p->backlog_before = get_time(row, P_BACKLOG_BEFORE);
	get_horizons(row, p);
	if (!is_from_elsewhere(p))
		ssw_columns_follow(p, DatumGetArrayTypeP(ssw_spi_column(row, P_COLUMNS)));
	apply_retention(p);
	return p;
}

static List *
load(const char *where, int nargs, Oid *types, Datum *values)
{
	MemoryContext cxt = CurrentMemoryContext;
	SswIdentity save;
	StringInfoData sql;
	List	   *result = NIL;
	uint64		as_of = SharedInvalidMessageCounter;
	uint64		n;

	initStringInfo(&sql);
	for (int i = 0; i < SSW_NARGS; i++)
		appendStringInfo(&sql, "%s%s", i ? ", " : "SELECT ", ssw_fields[i].name);
	appendStringInfo(&sql, "," STATE_COLUMNS "%s", where);
	ssw_spi_begin_as_extension(&save);
	/* as they are now, whatever the caller's snapshot shows */
	CommandCounterIncrement();
	PushActiveSnapshot(GetLatestSnapshot());
	n = ssw_plan_execute(sql.data, nargs, types, values, NULL, true);
	PopActiveSnapshot();
	for (uint64 i = 0; i < n; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(cxt);
		SswPolicy  *p = read_row(i);

		p->as_of = as_of;
		result = lappend(result, p);
		MemoryContextSwitchTo(old);
	}
	ssw_spi_end_as(&save);
	return result;
}

/* Every policy of this database, by id, in CurrentMemoryContext. */
List	   *
ssw_policy_load_all(void)
{
	return load("ORDER BY policy_id", 0, NULL, NULL);
}

/* One policy by id, or null. */
SswPolicy  *
ssw_policy_load(int policy_id)
{
	Oid			type = INT4OID;
	Datum		value = Int32GetDatum(policy_id);
	List	   *l = load("WHERE policy_id = $1", 1, &type, &value);

	return l ? linitial(l) : NULL;
}

/* The policy as it is now, of the same relation; an error when it is gone. */
SswPolicy  *
ssw_policy_again(const SswPolicy *p)
{
	SswPolicy  *present = ssw_policy_load(p->id);

	if (present == NULL || present->relid != p->relid)
		ereport(ERROR,
				(errcode(ERRCODE_T_R_SERIALIZATION_FAILURE),
				 errmsg("policy \"%s\" was altered meanwhile", p->name),
				 errhint("Try again.")));
	return present;
}

/*
 * The policy, for a caller who has locked its relation since it was read: until then
 * columns could be renamed.
 */
SswPolicy  *
ssw_policy_present(SswPolicy *p)
{
	return p->as_of == SharedInvalidMessageCounter ? p : ssw_policy_again(p);
}

static void
raise_missing(const char *name)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_OBJECT),
			 ssw_policy_follows() ? errmsg("policy \"%s\" does not exist on this node, or not yet", name) : errmsg("policy \"%s\" does not exist", name),
			 ssw_policy_follows() ? errdetail("If it was just registered on the coordinator of the cluster, its definition has not reached this node yet.") : 0,
			 ssw_policy_follows() ? errhint("Its sessions are not gone: try again in a second.") :
			 errhint("SELECT policy FROM sweeper.policy_status; lists the policies you may see.")));
}

/* One policy by name; without missing_ok a missing one is an error. */
SswPolicy  *
ssw_policy_find(const char *name, bool missing_ok)
{
	Oid			type = TEXTOID;
	Datum		value = CStringGetTextDatum(name);
	List	   *l = load("WHERE policy = $1", 1, &type, &value);

	if (l == NIL && !missing_ok)
		raise_missing(name);
	return l ? linitial(l) : NULL;
}

/* The table that has the name of the policy's relation; invalid when none has. */
static Oid
relation_of_name(const SswPolicy *p)
{
	List	   *names = textToQualifiedNameList(cstring_to_text(p->relation));
	Oid			relid = get_relname_relid(strVal(lsecond(names)), get_namespace_oid(strVal(linitial(names)), true));
	char		kind = get_rel_relkind(relid);

	/* a view may stand in for a table that was renamed */
	return kind == RELKIND_RELATION || kind == RELKIND_PARTITIONED_TABLE ? relid : InvalidOid;
}

/*
 * Do its oids say nothing?  The row comes from elsewhere; or the owner has another
 * table of that name: a dump was restored over the original, or a new one was put in
 * its place by renaming both.
 */
bool
ssw_policy_is_foreign(const SswPolicy *p)
{
	Oid			named = relation_of_name(p);

	return is_from_elsewhere(p) || (named != p->relid && ssw_relation_owner(named) == p->owner);
}

/* The policy's relation as it is here and now: after a restore, the one of its name. */
Oid
ssw_policy_relation_now(const SswPolicy *p)
{
	return ssw_policy_is_foreign(p) ? relation_of_name(p) : p->relid;
}

/*
 * The relation's owner, when it is not the role whose code the policy holds: a role
 * that resumes the policy then makes that code run as the new owner.
 */
Oid
ssw_policy_new_owner(const SswPolicy *p)
{
	Oid			owner = ssw_relation_owner(ssw_policy_relation_now(p));
	Oid			was = ssw_policy_is_foreign(p) ? get_role_oid(p->owner_name, true) : p->owner;

	return owner == was ? InvalidOid : owner;
}

/*
 * Does a superuser own the relation now, whose policy holds another role's code?  That
 * never runs as a superuser: the policy is registered again.  Built-in ones hold ours.
 */
bool
ssw_policy_is_lost(const SswPolicy *p)
{
	Oid			owner = ssw_policy_new_owner(p);

	return OidIsValid(owner) && superuser_arg(owner) && strncmp(p->name, SSW_BUILTIN_PREFIX, strlen(SSW_BUILTIN_PREFIX)) != 0;
}

/*
 * Why nothing of the policy may be run now, in its owner's name or another's;
 * null when it may.  Its code is that of the owner who registered it, so it
 * never runs as the relation's owner of today.
 */
char	   *
ssw_policy_unusable(const SswPolicy *p)
{
	Oid			owner = ssw_relation_owner(p->relid);

	if (is_from_elsewhere(p))
		return pstrdup("the policy was restored from another cluster or database");
	if (ssw_policy_is_foreign(p))
		return OidIsValid(owner) ? psprintf("relation %s is another table: the policy's table was renamed to \"%s\"", p->relation, get_rel_name(p->relid)) :
			psprintf("relation %s was dropped and created again", p->relation);
	if (!OidIsValid(owner))
		return psprintf("relation %s does not exist", p->relation);
	if (owner != p->owner)
		return psprintf("the relation's owner changed from \"%s\" to \"%s\"", p->owner_name,
						GetUserNameFromId(owner, false));
	return p->stale_detail;
}

/* The function that has a hook's name and arguments now; or invalid. */
Oid
ssw_policy_hook_now(const char *name)
{
	LOCAL_FCINFO(fcinfo, 1);
	Datum		func;

	InitFunctionCallInfoData(*fcinfo, NULL, 1, InvalidOid, NULL, NULL);
	fcinfo->args[0].value = CStringGetTextDatum(name);
	fcinfo->args[0].isnull = false;
	func = to_regprocedure(fcinfo);
	return fcinfo->isnull ? InvalidOid : DatumGetObjectId(func);
}

/* Why a hook must not be called: it is gone, or belongs to another role; or null. */
static char *
hook_trouble(const SswPolicy *p, Oid func, const char *name)
{
	HeapTuple	tup;
	Oid			owner;

	if (name == NULL)
		return NULL;
	tup = SearchSysCache1(PROCOID, ObjectIdGetDatum(func));
	if (!HeapTupleIsValid(tup))
		return psprintf(OidIsValid(ssw_policy_hook_now(name)) ? "function %s was dropped and created again" : "function %s does not exist", name);
	owner = ((Form_pg_proc) GETSTRUCT(tup))->proowner;
	ReleaseSysCache(tup);
	if (owner != p->owner && !superuser_arg(owner))
		return psprintf("function %s belongs to another role", name);
	return NULL;
}

/*
 * Why one of the policy's hooks must not be called, or null.  A function can be
 * replaced or handed over at any time, so everybody asks before a pass.
 */
char	   *
ssw_policy_hook_trouble(const SswPolicy *p)
{
	char	   *trouble = hook_trouble(p, p->on_expire, p->on_expire_name);

	return trouble ? trouble : hook_trouble(p, p->is_alive, p->is_alive_name);
}
