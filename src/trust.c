/*
 * trust.c
 *		What may run as a table's owner in somebody else's session?
 *
 * Runs in callers' sessions and workers, inside of the gate.  A process keeps what it
 * has analysed: functions of PL/pgSQL with the types that the search_path of then gave
 * their names, expressions of indexes and domains with SQL functions inlined, functions
 * of range types.  Whoever uses the session can have all of that mean something else
 * before the gate runs it as the owner, and there is no way to make it forgotten.  So
 * in a session of a role that is not the owner's, code of users does not run at all.
 *
 * Shares nothing; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/parallel.h"
#include "access/relation.h"
#include "access/xact.h"
#include "catalog/partition.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_language.h"
#include "catalog/pg_partitioned_table.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "compat.h"
#include "ssw.h"
#include "trust.h"

static needs_fmgr_hook_type prev_needs_fmgr = NULL;
static fmgr_hook_type prev_fmgr = NULL;

/* As whom the innermost gate runs code. */
static SswGateUser gate;

/* The role, other than superusers, whose code this process has run in gates; and were there several? */
static Oid	code_of = InvalidOid;
static bool code_of_several = false;

/* After an error the last gate is not restored: it is not that of this transaction. */
static bool
is_open(void)
{
	return OidIsValid(gate.user) && gate.lxid == ssw_lxid() && InSecurityRestrictedOperation();
}

/* Does code of that role run in the gate?  Of one whose level has ended by an error, nobody knows what it was inside of. */
static bool
is_in_gate(Oid user)
{
	return IsParallelWorker() || (is_open() && (user == gate.user || gate.level > GetCurrentTransactionNestLevel()));
}

/* A gate opens, as that role; what it is inside of. */
SswGateUser
ssw_trust_enter(Oid user)
{
	SswGateUser outer = {0};

	if (is_open())
		outer = gate;
	gate.user = user;
	gate.lxid = ssw_lxid();
	gate.level = GetCurrentTransactionNestLevel();
	if (user != code_of && !superuser_arg(user))
	{
		code_of_several = code_of_several || OidIsValid(code_of);
		code_of = user;
	}
	return outer;
}

void
ssw_trust_leave(SswGateUser outer)
{
	gate = outer;
}

/* Has this process run no code of another role? */
bool
ssw_trust_is_clean(Oid owner)
{
	return !code_of_several && (!OidIsValid(code_of) || code_of == owner);
}

/* Does nobody use this session who could turn what it keeps against the owner? */
bool
ssw_trust_session(Oid owner)
{
	return ssw_trust_is_clean(owner) && (superuser_arg(GetSessionUserId()) || is_member_of_role(GetSessionUserId(), owner));
}

static void
refuse(const char *what, Oid owner)
{
	char	   *owner_name = GetUserNameFromId(owner, false);
	char	   *session = GetUserNameFromId(GetSessionUserId(), false);

	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("%s cannot run as role \"%s\" in this session of role \"%s\"", what, owner_name, session),
			 ssw_trust_is_clean(owner) ?
			 errdetail("What it does depends on what the session did before, and that role is no member of the other.") :
			 errdetail("What it does depends on what the session did before, and it has run code of another role."),
			 ssw_trust_is_clean(owner) ?
			 errhint("If that role may act as the other: GRANT %s TO %s;", quote_identifier(owner_name), quote_identifier(session)) :
			 errhint("Call this function in a new session.")));
}

/* Written in PL/pgSQL, SQL or the like, by users. */
static bool
is_users(Oid func, void *context)
{
	HeapTuple	tup;
	Oid			language;

	if (func < FirstNormalObjectId)
		return false;
	tup = SearchSysCache1(PROCOID, ObjectIdGetDatum(func));
	if (!HeapTupleIsValid(tup))
		return false;
	language = ((Form_pg_proc) GETSTRUCT(tup))->prolang;
	ReleaseSysCache(tup);
	return language != INTERNALlanguageId && language != ClanguageId;
}

/* What a SECURITY DEFINER function does is up to its definer, here as anywhere. */
static void
check_called(Oid func)
{
	Oid			user = GetUserId();

	if (func >= FirstNormalObjectId && InSecurityRestrictedOperation() && is_in_gate(user) &&
		!ssw_trust_session(user) && is_users(func, NULL))
		refuse(psprintf("function %s", format_procedure_qualified(func)), user);
}

/* Asked when a function without settings of its own is looked up to be called. */
static bool
needs_fmgr(Oid func)
{
	check_called(func);
	return prev_needs_fmgr && prev_needs_fmgr(func);
}

/* Others are called with an event. */
static void
fmgr(FmgrHookEventType event, FmgrInfo * flinfo, Datum *private)
{
	if (event == FHET_START)
		check_called(flinfo->fn_oid);
	if (prev_fmgr)
		prev_fmgr(event, flinfo, private);
}

void
ssw_trust_init(void)
{
	prev_needs_fmgr = needs_fmgr_hook;
	needs_fmgr_hook = needs_fmgr;
	prev_fmgr = fmgr_hook;
	fmgr_hook = fmgr;
}

/* Can a value of the type run code of users that the session keeps? */
static bool
keeps_code(Oid type)
{
	Oid			element = get_element_type(type);
	char		kind = get_typtype(OidIsValid(element) ? element : type);

	return type >= FirstNormalObjectId && kind != TYPTYPE_BASE && kind != TYPTYPE_ENUM;
}

static bool
calls_users(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, List))
		return expression_tree_walker(node, calls_users, context);
	return keeps_code(exprType(node)) || check_functions_in_node(node, is_users, context) || expression_tree_walker(node, calls_users, context);
}

/* Expressions as they are stored: planned ones are what the session keeps. */
static bool
stored_calls_users(int cache, Oid oid, AttrNumber attribute)
{
	HeapTuple	tup = SearchSysCache1(cache, ObjectIdGetDatum(oid));
	bool		isnull = true;
	Datum		d = HeapTupleIsValid(tup) ? SysCacheGetAttr(cache, tup, attribute, &isnull) : (Datum) 0;
	bool		found = !isnull && calls_users(stringToNode(TextDatumGetCString(d)), NULL);

	if (HeapTupleIsValid(tup))
		ReleaseSysCache(tup);
	return found;
}

/* By what a table is divided is computed in its partitions, too. */
static void
check_partition_key(Oid relid, Oid owner)
{
	if (stored_calls_users(PARTRELID, relid, Anum_pg_partitioned_table_partexprs))
		refuse(psprintf("code of the partition key of \"%s\"", get_rel_name(relid)), owner);
}

static void
check_one(Oid relid, Oid owner)
{
	Relation	rel = try_relation_open(relid, AccessShareLock);
	ListCell   *lc;

	if (rel == NULL)
		return;
	for (int i = 0; i < RelationGetNumberOfAttributes(rel); i++)
	{
		Form_pg_attribute att = TupleDescAttr(RelationGetDescr(rel), i);

		if (!att->attisdropped && keeps_code(att->atttypid))
			refuse(psprintf("code of type %s of column \"%s\"", format_type_be(att->atttypid), NameStr(att->attname)), owner);
	}
	foreach(lc, RelationGetIndexList(rel))
		if (stored_calls_users(INDEXRELID, lfirst_oid(lc), Anum_pg_index_indexprs) ||
			stored_calls_users(INDEXRELID, lfirst_oid(lc), Anum_pg_index_indpred))
		refuse(psprintf("code of index \"%s\"", get_rel_name(lfirst_oid(lc))), owner);
	relation_close(rel, NoLock);
	check_partition_key(relid, owner);
}

/* Before a statement on a table, in the gate: does the session keep code of the table that it may have changed? */
void
ssw_trust_table(Oid relid)
{
	Oid			owner = GetUserId();
	ListCell   *lc;

	if (!is_open() || ssw_trust_session(owner))
		return;
	foreach(lc, find_all_inheritors(relid, NoLock, NULL))
		check_one(lfirst_oid(lc), owner);
	if (get_rel_relispartition(relid))
		foreach(lc, get_partition_ancestors(relid))
			check_partition_key(lfirst_oid(lc), owner);
}
