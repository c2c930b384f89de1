/*
 * target_check.c
 *		May this relation be swept, with these functions, by this caller?
 *
 * Runs in the backend that registers or alters a policy, as the caller; shares
 * nothing and changes nothing.  A crash leaves nothing behind.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/sysattr.h"
#include "access/table.h"
#include "catalog/catalog.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "miscadmin.h"
#include "nodes/bitmapset.h"
#include "optimizer/optimizer.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/syscache.h"

#include "base/compat.h"
#include "base/identity.h"
#include "base/locks.h"
#include "base/relation_guard.h"
#include "base/spi.h"
#include "commands/args.h"
#include "commands/session_check.h"
#include "commands/target_check.h"
#include "policy/deadline.h"
#include "policy/expr.h"
#include "policy/index.h"
#include "policy/partition.h"
#include "policy/row_key.h"
#include "policy/sweep_sql.h"

static void
check_kind(Relation rel)
{
	char		kind = rel->rd_rel->relkind;
	const char *why = NULL;
	const char *hint = "Register an ordinary, unlogged or partitioned table.";

	if (kind != RELKIND_RELATION && kind != RELKIND_PARTITIONED_TABLE)
		why = "it is not an ordinary or partitioned table";
	else if (rel->rd_rel->relpersistence == RELPERSISTENCE_TEMP)
		why = "it is a temporary table, which no other process can read";
	else if (RelationGetRelid(rel) < FirstNormalObjectId || IsSystemRelation(rel))
		why = "it belongs to the system catalogs";
	else if (RelationGetNamespace(rel) == get_namespace_oid(SSW_SCHEMA, true))
	{
		why = "it belongs to the extension";
		hint = "Its own tables have built-in policies: SELECT policy FROM sweeper.policy_status;";
	}
	if (why)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("cannot sweep \"%s\": %s", RelationGetRelationName(rel), why),
				 errhint("%s", hint)));
}

/* Open a relation that can be swept and belongs to the caller. */
Relation
ssw_target_open(Oid relid)
{
	Relation	rel;

	ssw_lock_relation(relid, AccessShareLock);
	rel = try_relation_open(relid, AccessShareLock);
	if (rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE),
				 errmsg("relation with OID %u does not exist", relid)));
	check_kind(rel);
	if (!object_ownercheck(RelationRelationId, relid, GetUserId()))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be owner of table %s", RelationGetRelationName(rel)),
				 errdetail("It is swept with the rights of its owner."),
				 errhint("Call as a member of role \"%s\".",
						 GetUserNameFromId(rel->rd_rel->relowner, false))));
	return rel;
}

/* Every leaf that is swept must be a table of the same owner, without such rules, that can be changed. */
static void
check_leaves(const SswPolicy *p, Relation rel)
{
	List	   *all = find_all_inheritors(RelationGetRelid(rel), AccessShareLock, NULL);
	ListCell   *lc;

	foreach(lc, all)
	{
		Relation	leaf = table_open(lfirst_oid(lc), NoLock);

		if (leaf->rd_rel->relpersistence == RELPERSISTENCE_TEMP)
		{
			table_close(leaf, NoLock);	/* its session's alone */
			continue;
		}
		if (leaf->rd_rel->relkind == RELKIND_FOREIGN_TABLE)
			ereport(ERROR,
					(errcode(ERRCODE_WRONG_OBJECT_TYPE),
					 errmsg("cannot sweep \"%s\": its partition or child \"%s\" is a foreign table",
							RelationGetRelationName(rel), RelationGetRelationName(leaf)),
					 errhint("Register the other partitions or children by themselves.")));
		ssw_partition_check_rules(p, leaf);
		/* a published table needs a replica identity for this */
		if (leaf->rd_rel->relkind == RELKIND_RELATION && p->action != SSW_ACTION_CALL)
			CheckCmdReplicaIdentity(leaf, p->action == SSW_ACTION_DELETE ? CMD_DELETE : CMD_UPDATE);
		if (leaf->rd_rel->relowner != rel->rd_rel->relowner)
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("cannot sweep \"%s\": its partition or child \"%s\" has another owner",
							RelationGetRelationName(rel), RelationGetRelationName(leaf)),
					 errhint("If its triggers may run as that role: ALTER TABLE %s OWNER TO %s;", ssw_guard_relation(RelationGetRelid(leaf)),
							 quote_identifier(GetUserNameFromId(rel->rd_rel->relowner, false)))));
		table_close(leaf, NoLock);
	}
}

/* What the publisher deletes would be deleted here too, or conflict. */
static void
check_replicated(const SswPolicy *p, Relation rel)
{
	if (OidIsValid(ssw_partition_subscribed(p)))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot sweep \"%s\": it is the target of a subscription",
						RelationGetRelationName(rel)),
				 errdetail("Its rows come from the publisher."),
				 errhint("Sweep it on the publisher, or give allow_replicated => true.")));
}

/* A hook: a function of the owner or a superuser, of the right shape. */
static char *
check_hook(Relation rel, const char *field, Oid func, bool is_alive)
{
	HeapTuple	tup = SearchSysCache1(PROCOID, ObjectIdGetDatum(func));
	Oid			owner = rel->rd_rel->relowner;
	Form_pg_proc proc;
	Oid			arg;
	bool		fits;
	char	   *name;

	if (!HeapTupleIsValid(tup))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("%s: function with OID %u does not exist", field, func)));
	proc = (Form_pg_proc) GETSTRUCT(tup);
	name = format_procedure_qualified(func);
	arg = proc->pronargs == 1 ? proc->proargtypes.values[0] : InvalidOid;
	if (is_alive)
		fits = (arg == TEXTOID && proc->prorettype == BOOLOID) || (arg == TEXTARRAYOID && proc->prorettype == BOOLARRAYOID);
	else
		fits = arg == TEXTARRAYOID || (OidIsValid(arg) && arg == get_array_type(rel->rd_rel->reltype));
	if (!fits || proc->prokind != PROKIND_FUNCTION || proc->proretset)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
				 errmsg("%s must not be %s", field, name),
				 is_alive ? errdetail("It must be a function of text, the key, that returns boolean, or of text[] that returns boolean[].") :
				 errdetail("It must be a function of one argument: text[] (the keys) or %s[] (the rows). It must not return a set.",
						   quote_identifier(RelationGetRelationName(rel))),
				 errhint("Create such a function as the table's owner.")));
	if (proc->proowner != owner && !superuser_arg(proc->proowner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("%s must belong to the table's owner or a superuser", field),
				 errdetail("Function %s belongs to role \"%s\".", name,
						   GetUserNameFromId(proc->proowner, false)),
				 errhint("If it may run as that role: ALTER FUNCTION %s OWNER TO %s;", name,
						 quote_identifier(GetUserNameFromId(owner, false)))));
	if (!DatumGetBool(DirectFunctionCall3(has_function_privilege_id_id, ObjectIdGetDatum(owner),
										  ObjectIdGetDatum(func), CStringGetTextDatum("EXECUTE"))))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for %s", field),
				 errdetail("Role \"%s\" has no EXECUTE right on function %s.",
						   GetUserNameFromId(owner, false), name),
				 errhint("GRANT EXECUTE ON FUNCTION %s TO %s;", name,
						 quote_identifier(GetUserNameFromId(owner, false)))));
	ReleaseSysCache(tup);
	return name;
}

/* Find the key, or check the one that was given. */
static void
check_key(SswPolicy *p, Relation rel)
{
	List	   *names;
	ListCell   *lc;

	if (p->key == NULL)
	{
		names = ssw_index_key(rel, NULL, 0);
		p->key = palloc0(sizeof(char *) * (list_length(names) + 1));
		foreach(lc, names)
			p->key[p->nkeys++] = lfirst(lc);
		return;
	}
	if (p->nkeys > SSW_KEY_MAX)
		ereport(ERROR,
				(errcode(ERRCODE_TOO_MANY_COLUMNS),
				 errmsg("key must not have more than %d columns", SSW_KEY_MAX),
				 errhint("The columns of one unique index are enough.")));
	for (int i = 0; i < p->nkeys; i++)
		(void) ssw_expr_column(rel, "key", p->key[i]);
	if (p->nkeys > 0 && ssw_index_key(rel, p->key, p->nkeys) == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("key does not identify the rows of \"%s\"", RelationGetRelationName(rel)),
				 errdetail("No unique index on columns that are not null covers it."),
				 errhint("Omit key to use the primary key or, if there is none, the physical row (ctid).")));
}

/* Can clients keep the rows alive? */
static void
check_heartbeats(const SswPolicy *p, Relation rel)
{
	ListCell   *lc;

	if (p->nkeys == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("heartbeats need a key"),
				 errdetail("Table \"%s\" has neither a primary key nor a unique index on columns that are not null.",
						   RelationGetRelationName(rel)),
				 errhint("Create one.")));
	for (int i = 0; i < p->nkeys; i++)
	{
		AttrNumber	attnum = get_attnum(p->relid, p->key[i]);
		Form_pg_attribute att = TupleDescAttr(RelationGetDescr(rel), attnum - 1);

		if (!ssw_key_is_canonical(getBaseType(att->atttypid)) ||
			(OidIsValid(att->attcollation) && !get_collation_isdeterministic(att->attcollation)))
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("heartbeats need another key: equal values of column \"%s\" can print differently", p->key[i]),
					 errdetail("Its type is %s.", format_type_be(att->atttypid)),
					 errhint("Give a key of uuid, integer, bigint or text columns.")));
	}
	if (p->prolong_set == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("heartbeats need a way to give a row a new deadline"),
				 errdetail("%s is not a column that an UPDATE can set.", p->last_seen ? "last_seen" : "deadline"),
				 errhint("Name a column in %s.", p->last_seen ? "last_seen" : "deadline")));
	foreach(lc, ssw_expr_set_columns(p->prolong_set))
		for (int i = 0; i < p->nkeys; i++)
		if (strcmp(lfirst(lc), p->key[i]) == 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("heartbeats need another key: they would change column \"%s\"", p->key[i]),
					 errhint("Give a key without it.")));
}

/* Is it a constant, as a set_clause has it at its end?  What has another value later would not leave the row out. */
static bool
is_literal(const char *value)
{
	if (*value != '\'')
		return strcmp(value, "true") == 0 || strcmp(value, "false") == 0 || value[strspn(value, "0123456789")] == '\0';

	for (value++; *value; value++)
		if (*value == '\'' && *++value != '\'')
			break;
	return *value == '\0';
}

/* A filter that leaves out the rows which set_clause has been applied to; null: that is not obvious. */
static char *
filter_for(const SswPolicy *p, List *set)
{
	const char *equals = strchr(p->set_clause, '=');
	ListCell   *lc;

	foreach(lc, set)
	{
		Oid			type = getBaseType(get_atttype(p->relid, get_attnum(p->relid, lfirst(lc))));

		if (type == TIMESTAMPTZOID || type == TIMESTAMPOID || type == DATEOID)
			return psprintf("%s IS NULL", quote_identifier(lfirst(lc)));
	}
	if (list_length(set) != 1 || equals == NULL || strchr(linitial(set), '='))
		return NULL;
	equals += 1 + strspn(equals + 1, " \t\r\n");
	if (!is_literal(equals))
		return NULL;
	return psprintf("%s IS DISTINCT FROM %s", quote_identifier(linitial(set)), equals);
}

/*
 * Would each pass find the rows again that an update was for?  It would without a filter
 * where neither the update nor a trigger can change the deadline.
 */
static void
check_soft_delete(const SswPolicy *p, Relation rel)
{
	Bitmapset  *used = NULL;
	List	   *set;
	ListCell   *lc;
	char	   *filter;

	if (p->action != SSW_ACTION_UPDATE || p->filter || (rel->trigdesc && rel->trigdesc->trig_update_before_row))
		return;
	for (int i = 0; i < p->ndeadlines; i++)
		pull_varattnos(ssw_expr_parse(rel, "deadline", p->deadlines[i].due), 1, &used);
	set = ssw_expr_set_columns(p->set_clause);
	foreach(lc, set)
		if (bms_is_member(get_attnum(p->relid, lfirst(lc)) - FirstLowInvalidHeapAttributeNumber, used))
		return;
	for (int i = 0; i < RelationGetNumberOfAttributes(rel); i++)
		if (TupleDescAttr(RelationGetDescr(rel), i)->attgenerated && bms_is_member(i + 1 - FirstLowInvalidHeapAttributeNumber, used))
			return;
	filter = filter_for(p, set);
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("set_clause leaves the rows of \"%s\" dead", RelationGetRelationName(rel)),
			 errdetail("It does not change the deadline, and no filter leaves out rows that it was applied to. So each pass would find them again."),
			 filter == NULL ? errhint("Give a filter that is false for such rows.") :
			 p->args && !p->args->alter ? errhint("%s", ssw_args_call(p->args, "filter", filter)) :
			 errhint("Give filter => %s.", quote_literal_cstr(filter))));
}

typedef struct Target
{
	const SswPolicy *policy;
	Relation	rel;
} Target;

/* Let the server analyse the statement that user text becomes part of. */
static void
check_statements(void *arg)
{
	const Target *t = arg;
	const SswPolicy *p = t->policy;
	Oid			types[] = {TIMESTAMPTZOID, TIMESTAMPTZOID, TIDARRAYOID};

	ssw_partition_check(p);
	if (p->action == SSW_ACTION_CALL)
		return;
	ssw_spi_begin();
	for (int i = 0; i < p->ndeadlines; i++)
		if (SPI_prepare(ssw_guard_statement(ssw_sweep_sql_action(p, p->relid, SSW_PHASE_DEADLINE + i, 0)), 3, types) == NULL)
			elog(ERROR, "could not prepare the row action: %s", SPI_result_code_string(SPI_result));
	ssw_spi_end();
	check_soft_delete(p, t->rel);
}

/*
 * Everything about a policy's fields that depends on the relation.  Fills the
 * fragments, the key and the names of hooks.
 */
void
ssw_target_check(SswPolicy *p, Relation rel)
{
	Target		t = {.policy = p,.rel = rel};

	check_leaves(p, rel);
	check_replicated(p, rel);
	p->on_expire_name = OidIsValid(p->on_expire) ? check_hook(rel, "on_expire", p->on_expire, false) : NULL;
	p->is_alive_name = OidIsValid(p->is_alive) ? check_hook(rel, "is_alive", p->is_alive, true) : NULL;
	check_key(p, rel);
	ssw_session_check(p, rel);
	ssw_deadline_build(p, rel);
	if (ssw_shards)
		ssw_shards->check(p);
	if (p->heartbeats)
		check_heartbeats(p, rel);
	ssw_gate(p->owner, p->search_path, check_statements, &t);
}
