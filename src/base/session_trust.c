/*
 * session_trust.c
 *		What may run as a table's owner in another role's session?
 *
 * Runs in callers' sessions and workers, inside of the gate.  A process keeps what it
 * has analysed: functions of PL/pgSQL with the types that the search_path of then gave
 * their names, expressions of indexes and domains with SQL functions inlined, functions
 * of range types and of casts.  The user of the session can make that mean something
 * else before the gate runs it as the owner; and the owner's code can do the same to
 * functions that the session's user calls later.  There is no way to make all of it
 * forgotten.  So code of users, other than in C, runs
 *
 * - in sessions of the owner itself, which workers become, each that of one owner only;
 * - in sessions of superusers and of members of the owner: what the owner owns;
 * - in others: not at all.  What can be forgotten is, and the rest is refused.
 *
 * Shares nothing; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/xact.h"
#include "catalog/partition.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_language.h"
#include "catalog/pg_partitioned_table.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_range.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/nodeFuncs.h"
#include "optimizer/planner.h"
#include "utils/builtins.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "base/compat.h"
#include "base/session_trust.h"
#include "base/ssw.h"

static needs_fmgr_hook_type prev_needs_fmgr = NULL;
static fmgr_hook_type prev_fmgr = NULL;
static planner_hook_type prev_planner = NULL;

/* Whose functions may run in a gate. */
typedef enum Runs
{
	RUNS_NOBODYS,
	RUNS_OWNERS,
	RUNS_EVERYBODYS
} Runs;

/* An open gate: the role as which it runs code, and the level of its subtransaction. */
typedef struct Gate
{
	int			level;
	Oid			user;
} Gate;

/* The innermost is last.  After an error in a gate the end of the subtransaction closes it. */
static List *gates = NIL;

/* The role, other than superusers, whose code this process has run in gates; and were there several? */
static Oid	code_of = InvalidOid;
static bool code_of_several = false;

/* As whom does a gate run code here?  Invalid: none does. */
static Oid
gate_owner(void)
{
	return gates && InSecurityRestrictedOperation() ? ((Gate *) llast(gates))->user : InvalidOid;
}

/* Whose functions run as that owner in this process? */
static Runs
who_runs(Oid owner)
{
	Oid			session = GetSessionUserId();

	if (session == owner)
		return RUNS_EVERYBODYS;
	if (!superuser_arg(session) && !ssw_may_become(session, owner))
		return RUNS_NOBODYS;
	return superuser_arg(owner) ? RUNS_EVERYBODYS : RUNS_OWNERS;
}

/* Must no users' code run as that owner in this session? */
bool
ssw_trust_refuses(Oid owner)
{
	return who_runs(owner) == RUNS_NOBODYS;
}

/* Is this inside of a gate in which no users' code runs? */
static bool
is_refused_here(void)
{
	return OidIsValid(gate_owner()) && ssw_trust_refuses(gate_owner());
}

/* A gate opens, as that role. */
void
ssw_trust_enter(Oid user)
{
	MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);
	Gate	   *gate = palloc(sizeof(Gate));

	gate->user = user;
	gate->level = GetCurrentTransactionNestLevel();
	gates = lappend(gates, gate);
	MemoryContextSwitchTo(old);
	if (user != code_of && !superuser_arg(user))
	{
		code_of_several = code_of_several || OidIsValid(code_of);
		code_of = user;
	}

	/*
	 * checks of domains are read and planned again, and so is what foreign
	 * keys execute
	 */
	if (ssw_trust_refuses(user))
	{
		CallSyscacheCallbacks(CONSTROID, 0);
		CallSyscacheCallbacks(OPEROID, 0);
	}
}

/* The innermost closes. */
void
ssw_trust_leave(void)
{
	pfree(llast(gates));
	gates = list_delete_last(gates);
}

static void
subxact_ends(SubXactEvent event, SubTransactionId id, SubTransactionId parent, void *arg)
{
	if (event == SUBXACT_EVENT_ABORT_SUB)
		while (gates && ((Gate *) llast(gates))->level >= GetCurrentTransactionNestLevel())
			ssw_trust_leave();
}

/* The list is the transaction's. */
static void
xact_ends(XactEvent event, void *arg)
{
	gates = NIL;
}

/*
 * A worker is about to run code of that owner, and of no other from then on: it is
 * its session, also for functions that ask whose it is.
 */
void
ssw_trust_serve(Oid owner)
{
	if (GetSessionUserId() != owner)
		SetSessionAuthorization(owner, superuser_arg(owner));
}

/* Has this process run no code of another role? */
bool
ssw_trust_is_clean(Oid owner)
{
	return !code_of_several && (!OidIsValid(code_of) || code_of == owner);
}

/* Only the server and its modules can raise an error in this format: users' code has "%s". */
static const char refusal[] = "%s cannot run as role \"%s\" in this session of role \"%s\"";

static void
refuse_to_run(const char *what)
{
	Oid			owner = gate_owner();
	char	   *owner_name = GetUserNameFromId(owner, false);

	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg(refusal, what, owner_name, GetUserNameFromId(GetSessionUserId(), false)),
			 errdetail("In a session of another role, only functions of the table's owner run, and only if that role is a superuser or a member of the owner's role."),
			 errhint("Leave the row to a sweep, or connect as role \"%s\".", owner_name)));
}

/* Is that such an error?  It says something of the session, and nothing of others. */
bool
ssw_trust_is_refusal(const ErrorData *e)
{
	return e->message_id && strcmp(e->message_id, refusal) == 0;
}

/* Written in PL/pgSQL, SQL or the like, by users, other than that role. */
static bool
is_users_but(Oid func, Oid role)
{
	HeapTuple	tup;
	Form_pg_proc form;
	bool		result;

	if (func < FirstNormalObjectId)
		return false;
	tup = SearchSysCache1(PROCOID, ObjectIdGetDatum(func));
	if (!HeapTupleIsValid(tup))
		return false;
	form = (Form_pg_proc) GETSTRUCT(tup);
	result = form->prolang != INTERNALlanguageId && form->prolang != ClanguageId && form->proowner != role;
	ReleaseSysCache(tup);
	return result;
}

/* By users at all. */
static bool
is_users(Oid func, void *context)
{
	return is_users_but(func, InvalidOid);
}

static bool
may_not_run(Oid func)
{
	Runs		runs;

	if (func < FirstNormalObjectId || !OidIsValid(gate_owner()))
		return false;
	runs = who_runs(gate_owner());
	return runs != RUNS_EVERYBODYS && is_users_but(func, runs == RUNS_OWNERS ? gate_owner() : InvalidOid);
}

/* Asked when a function is looked up, or to be inlined: what must not run is not, and its calls pass by fmgr(). */
static bool
needs_fmgr(Oid func)
{
	return may_not_run(func) || (prev_needs_fmgr && prev_needs_fmgr(func));
}

static void
fmgr(FmgrHookEventType event, FmgrInfo * flinfo, Datum *private)
{
	if (event == FHET_START && may_not_run(flinfo->fn_oid))
		refuse_to_run(psprintf("function %s", format_procedure_qualified(flinfo->fn_oid)));
	if (prev_fmgr)
		prev_fmgr(event, flinfo, private);
}

/* Has the session nothing planned of that index or table now? */
static bool
is_forgotten(Oid relid)
{
	Relation	rel;
	bool		result;

	RelationCacheInvalidateEntry(relid);
	rel = RelationIdGetRelation(relid);
	result = rel == NULL || (rel->rd_indexprs == NIL && rel->rd_indpred == NIL && rel->rd_partkey == NULL && rel->rd_partcheck == NIL);
	if (rel)
		RelationClose(rel);
	return result;
}

/* Can an index on values of the type run code of users?  Of ranges, the session keeps what compares them. */
static bool
keeps_code(Oid type)
{
	Oid			element = get_base_element_type(type);
	HeapTuple	tup;
	bool		found;

	if (OidIsValid(element))
		type = element;
	type = getBaseType(type);
	if (get_typtype(type) == TYPTYPE_MULTIRANGE)
		type = get_multirange_range(type);
	tup = SearchSysCache1(RANGETYPE, ObjectIdGetDatum(type));
	if (!HeapTupleIsValid(tup))
		return false;
	found = is_users(((Form_pg_range) GETSTRUCT(tup))->rngsubdiff, NULL);
	ReleaseSysCache(tup);
	return found;
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

/* By what a table is divided is computed for it, and for that partition of it. */
static void
check_partition_key(Oid relid, Oid partition)
{
	if (stored_calls_users(PARTRELID, relid, Anum_pg_partitioned_table_partexprs) && !(is_forgotten(relid) && is_forgotten(partition)))
		refuse_to_run(psprintf("code of the partition key of \"%s\"", get_rel_name(relid)));
}

/* Of keys of different types, the session keeps the functions that convert them. */
static void
check_foreign_keys(Relation rel)
{
	ListCell   *lc;

	foreach(lc, RelationGetFKeyList(rel))
	{
		ForeignKeyCacheInfo *fk = lfirst(lc);

		for (int i = 0; i < fk->nkeys; i++)
		{
			Oid			here = getBaseType(get_atttype(fk->conrelid, fk->conkey[i]));
			Oid			there = getBaseType(get_atttype(fk->confrelid, fk->confkey[i]));

			if (here != there && (here >= FirstNormalObjectId || there >= FirstNormalObjectId))
				refuse_to_run(psprintf("code of types of foreign key \"%s\"", get_constraint_name(fk->conoid)));
		}
	}
}

/* A table's own; adds the tables that change with its rows by foreign keys. */
static void
check_one(Oid relid, List **tables)
{
	Relation	rel = try_relation_open(relid, AccessShareLock);
	List	   *indexes;
	ListCell   *lc;

	if (rel == NULL)
		return;
	for (int i = 0; i < RelationGetNumberOfAttributes(rel); i++)
	{
		Form_pg_attribute att = TupleDescAttr(RelationGetDescr(rel), i);

		if (!att->attisdropped && keeps_code(att->atttypid))
			refuse_to_run(psprintf("code of type %s of column \"%s\"", format_type_be(att->atttypid), NameStr(att->attname)));
	}
	check_foreign_keys(rel);
	for (int i = 0; rel->trigdesc && i < rel->trigdesc->numtriggers; i++)
	{
		Trigger    *t = &rel->trigdesc->triggers[i];

		if (OidIsValid(t->tgconstrrelid) && RI_FKey_trigger_type(t->tgfoid) == RI_TRIGGER_PK)
			*tables = list_append_unique_oid(*tables, t->tgconstrrelid);
	}
	indexes = RelationGetIndexList(rel);
	relation_close(rel, NoLock);
	foreach(lc, indexes)
		if ((stored_calls_users(INDEXRELID, lfirst_oid(lc), Anum_pg_index_indexprs) ||
			 stored_calls_users(INDEXRELID, lfirst_oid(lc), Anum_pg_index_indpred)) && !is_forgotten(lfirst_oid(lc)))
		refuse_to_run(psprintf("code of index \"%s\"", get_rel_name(lfirst_oid(lc))));
	check_partition_key(relid, relid);
}

/* A table, its partitions, and those that change with it. */
static void
check_table(Oid relid)
{
	List	   *tables = list_make1_oid(relid);

	for (int i = 0; i < list_length(tables); i++)
	{
		Oid			table = list_nth_oid(tables, i);
		ListCell   *lc;

		CHECK_FOR_INTERRUPTS();
		check_one(table, &tables);
		tables = list_concat_unique_oid(tables, find_inheritance_children(table, NoLock));
		if (get_rel_relispartition(table))
			foreach(lc, get_partition_ancestors(table))
				check_partition_key(lfirst_oid(lc), table);
	}
}

static bool
check_tables(Node *node, void *context)
{
	if (node == NULL)
		return false;
	if (IsA(node, RangeTblEntry))
	{
		RangeTblEntry *rte = castNode(RangeTblEntry, node);

		if (rte->rtekind == RTE_RELATION && rte->relid >= FirstNormalObjectId)
			check_table(rte->relid);
		return false;
	}
	if (IsA(node, Query))
		return query_tree_walker(castNode(Query, node), check_tables, context, QTW_EXAMINE_RTES_BEFORE);
	return expression_tree_walker(node, check_tables, context);
}

/*
 * Planning is the first that uses what the session keeps of tables, and it is done again
 * after a change of a table.  Parallel workers would not know that they are in a gate.
 */
static PlannedStmt *
planner(Query *query, const char *sql, int options, ParamListInfo params)
{
	if (OidIsValid(gate_owner()) && who_runs(gate_owner()) != RUNS_EVERYBODYS)
		options &= ~CURSOR_OPT_PARALLEL_OK;
	if (is_refused_here())
		(void) check_tables((Node *) query, NULL);
	return prev_planner ? prev_planner(query, sql, options, params) : standard_planner(query, sql, options, params);
}

void
ssw_trust_init(void)
{
	prev_needs_fmgr = needs_fmgr_hook;
	needs_fmgr_hook = needs_fmgr;
	prev_fmgr = fmgr_hook;
	fmgr_hook = fmgr;
	prev_planner = planner_hook;
	planner_hook = planner;
	RegisterSubXactCallback(subxact_ends, NULL);
	RegisterXactCallback(xact_ends, NULL);
}
