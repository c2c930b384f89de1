/*
 * register.c
 *		SQL functions register, alter_policy, unregister and preview.
 *
 * Run in the caller's session and transaction: an error, or the caller's
 * rollback, leaves no trace.  The row is written as the extension's owner after
 * the caller's rights on the relation were checked; what the caller supplies as
 * code is only ever parsed here, and evaluated as the relation's owner.
 */
#include "postgres.h"

#include "access/relation.h"
#include "access/table.h"
#include "access/xact.h"
#include "catalog/catalog.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/regproc.h"
#include "utils/rel.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"
#include "rewrite/prs2lock.h"

#include "advice.h"
#include "clock.h"
#include "compat.h"
#include "identity.h"
#include "lock.h"
#include "policy.h"
#include "rights.h"
#include "shmem.h"
#include "sql.h"
#include "stmt.h"

PG_FUNCTION_INFO_V1(ssw_register);
PG_FUNCTION_INFO_V1(ssw_alter_policy);
PG_FUNCTION_INFO_V1(ssw_unregister);
PG_FUNCTION_INFO_V1(ssw_preview);

#define BACKLOG_ROWS	10000

/* The settable fields, in the order of register()'s arguments from key on. */
typedef struct Field
{
	const char *name;
	Oid			type;
	bool		required;		/* null is an error in register */
	const char *const *values;	/* allowed texts */
	const char *reset;			/* SQL of the default */
} Field;

static const char *const on_null_values[] = {"ignore", "repair", "expire", NULL};
static const char *const action_values[] = {"delete", "update", "call", NULL};
static const char *const audit_values[] = {"row", "hash", "count", "none", NULL};
static const char *const unit_values[] = {"s", "ms", "us", NULL};

static const Field fields[] = {
	{"key", TEXTARRAYOID, false, NULL, NULL},
	{"deadline", TEXTOID, false, NULL, "NULL"},
	{"last_seen", TEXTOID, false, NULL, "NULL"},
	{"ttl", INTERVALOID, false, NULL, "NULL"},
	{"ttl_column", TEXTOID, false, NULL, "NULL"},
	{"created", TEXTOID, false, NULL, "NULL"},
	{"max_age", INTERVALOID, false, NULL, "NULL"},
	{"unit", TEXTOID, false, unit_values, "NULL"},
	{"timezone", TEXTOID, false, NULL, "NULL"},
	{"keep_for", INTERVALOID, true, NULL, "'0'"},
	{"filter", TEXTOID, false, NULL, "NULL"},
	{"on_null", TEXTOID, true, on_null_values, "'ignore'"},
	{"action", TEXTOID, true, action_values, "'delete'"},
	{"set_clause", TEXTOID, false, NULL, "NULL"},
	{"on_expire", REGPROCEDUREOID, false, NULL, "NULL"},
	{"is_alive", REGPROCEDUREOID, false, NULL, "NULL"},
	{"group_by", TEXTOID, false, NULL, "NULL"},
	{"capture", TEXTARRAYOID, false, NULL, "NULL"},
	{"audit", TEXTOID, true, audit_values, "'row'"},
	{"notify_channel", TEXTOID, false, NULL, "NULL"},
	{"notify_keys", BOOLOID, true, NULL, "false"},
	{"check_every", INTERVALOID, true, NULL, "'1 s'"},
	{"max_lag", INTERVALOID, true, NULL, "'1 min'"},
	{"batch_size", INT4OID, true, NULL, "0"},
	{"max_workers", INT4OID, true, NULL, "1"},
	{"rate_limit", INT4OID, true, NULL, "0"},
	{"backlog_rate", INT4OID, true, NULL, "5000"},
	{"soft_time_limit", INTERVALOID, true, NULL, "'50 s'"},
	{"hard_time_limit", INTERVALOID, true, NULL, "'55 s'"},
	{"lock_timeout", INTERVALOID, true, NULL, "'100 ms'"},
	{"max_retries", INT4OID, true, NULL, "3"},
	{"fuse_fraction", FLOAT4OID, true, NULL, "0.5"},
	{"fuse_min", INT4OID, true, NULL, "100"},
	{"heartbeats", BOOLOID, true, NULL, "false"},
	{"search_path", TEXTOID, false, NULL, NULL},
	{"allow_replicated", BOOLOID, true, NULL, "false"},
};

#define NFIELDS		lengthof(fields)
#define FIRST_FIELD	2			/* register: relation, policy, then the fields */

static void
check_value(const Field *f, Datum value)
{
	char	   *s;

	if (f->type == INTERVALOID)
	{
		Interval   *i = DatumGetIntervalP(value);

		if (i->month != 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("%s must not contain months or years", f->name),
					 errdetail("Their length varies."),
					 errhint("Use days; a day is 24 hours.")));
		if (i->time + (int64) i->day * USECS_PER_DAY < 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("%s must not be negative", f->name)));
	}
	if (f->values == NULL)
		return;
	s = TextDatumGetCString(value);
	for (int i = 0; f->values[i]; i++)
		if (strcmp(s, f->values[i]) == 0)
			return;
	{
		StringInfoData buf;

		initStringInfo(&buf);
		for (int i = 0; f->values[i]; i++)
			appendStringInfo(&buf, "%s\"%s\"", i ? ", " : "", f->values[i]);
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("%s must not be \"%s\"", f->name, s),
				 errhint("Use one of %s.", buf.data)));
	}
}

/* The caller's search_path as an explicit list, without temporary schemas. */
static char *
callers_search_path(void)
{
	List	   *path = fetch_search_path(false);
	ListCell   *lc;
	StringInfoData buf;

	initStringInfo(&buf);
	foreach(lc, path)
	{
		Oid			nsp = lfirst_oid(lc);

		if (!isAnyTempNamespace(nsp))
			appendStringInfo(&buf, "%s, ", quote_identifier(get_namespace_name(nsp)));
	}
	appendStringInfoString(&buf, "pg_temp");
	return buf.data;
}

/* Is this a relation that can be swept, and does it belong to the caller? */
static void
check_relation(Relation rel)
{
	Oid			relid = RelationGetRelid(rel);
	char		kind = rel->rd_rel->relkind;

	if (kind != RELKIND_RELATION && kind != RELKIND_PARTITIONED_TABLE)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("cannot sweep \"%s\": it is not a table", RelationGetRelationName(rel)),
				 errhint("Register the table itself.")));
	if (rel->rd_rel->relpersistence == RELPERSISTENCE_TEMP)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("cannot sweep \"%s\": it is a temporary table", RelationGetRelationName(rel)),
				 errdetail("No other process can see its rows.")));
	if (IsCatalogRelationOid(relid) || get_rel_namespace(relid) == get_namespace_oid(SSW_SCHEMA, false))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot sweep \"%s\": it is a system table", RelationGetRelationName(rel))));
	if (!object_ownercheck(RelationRelationId, relid, GetUserId()))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be owner of table %s", RelationGetRelationName(rel)),
				 errhint("Call as a member of role \"%s\".",
						 GetUserNameFromId(rel->rd_rel->relowner, false))));
}

static void
check_rules(Relation rel, SswAction action)
{
	CmdType		cmd = action == SSW_ACTION_UPDATE ? CMD_UPDATE : CMD_DELETE;

	if (rel->rd_rules == NULL)
		return;
	for (int i = 0; i < rel->rd_rules->numLocks; i++)
		if (rel->rd_rules->rules[i]->event == cmd || rel->rd_rules->rules[i]->event == CMD_UPDATE)
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("cannot sweep \"%s\": it has a rule on the action", RelationGetRelationName(rel)),
					 errdetail("A rule would rewrite the sweep into something else."),
					 errhint("Use a trigger instead of the rule.")));
}

static void
check_leaves(Relation rel)
{
	List	   *all = find_all_inheritors(RelationGetRelid(rel), AccessShareLock, NULL);
	ListCell   *lc;

	foreach(lc, all)
	{
		Relation	leaf = table_open(lfirst_oid(lc), NoLock);

		if (leaf->rd_rel->relkind == RELKIND_FOREIGN_TABLE)
			ereport(ERROR,
					(errcode(ERRCODE_WRONG_OBJECT_TYPE),
					 errmsg("cannot sweep \"%s\": its partition \"%s\" is a foreign table",
							RelationGetRelationName(rel), RelationGetRelationName(leaf))));
		if (leaf->rd_rel->relowner != rel->rd_rel->relowner)
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("cannot sweep \"%s\": its partition or child \"%s\" has another owner",
							RelationGetRelationName(rel), RelationGetRelationName(leaf)),
					 errhint("ALTER TABLE %s OWNER TO %s;", ssw_stmt_relation(RelationGetRelid(leaf)),
							 quote_identifier(GetUserNameFromId(rel->rd_rel->relowner, false)))));
		table_close(leaf, NoLock);
	}
}

static void
check_replicated(Relation rel, bool allowed)
{
	Oid			type = OIDOID;
	Datum		value = ObjectIdGetDatum(RelationGetRelid(rel));

	if (allowed)
		return;
	ssw_sql_begin();
	if (ssw_sql_exec("SELECT FROM pg_catalog.pg_subscription_rel WHERE srrelid = $1", 1, &type, &value,
					 NULL, false, 1) > 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot sweep \"%s\": it is the target of a subscription", RelationGetRelationName(rel)),
				 errhint("Sweep it on the publisher, or pass allow_replicated => true.")));
	ssw_sql_end();
}

/* A hook: there, of the right shape, and the owner's or a superuser's. */
static void
check_hook(Relation rel, const char *field, Oid func, bool alive)
{
	HeapTuple	tup;
	Form_pg_proc proc;
	Oid			arg;

	if (!OidIsValid(func))
		return;
	tup = SearchSysCache1(PROCOID, ObjectIdGetDatum(func));
	if (!HeapTupleIsValid(tup))
		ereport(ERROR, (errcode(ERRCODE_UNDEFINED_FUNCTION), errmsg("%s: function does not exist", field)));
	proc = (Form_pg_proc) GETSTRUCT(tup);
	arg = proc->pronargs == 1 ? proc->proargtypes.values[0] : InvalidOid;
	if (proc->prokind != PROKIND_FUNCTION ||
		(alive ? arg != TEXTOID || proc->prorettype != BOOLOID :
		 arg != TEXTARRAYOID && arg != get_array_type(get_rel_type_id(RelationGetRelid(rel)))))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_FUNCTION_DEFINITION),
				 errmsg("%s: function %s has the wrong arguments or result", field, NameStr(proc->proname)),
				 errhint(alive ? "It takes one text, the key, and returns boolean." :
						 "It takes one argument: text[] (the keys), or an array of the table's row type.")));
	if (proc->proowner != rel->rd_rel->relowner && !superuser_arg(proc->proowner))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("%s: function %s belongs neither to the table's owner nor to a superuser", field,
						NameStr(proc->proname))));
	ReleaseSysCache(tup);
}

/* What the fields must satisfy together. */
static void
check_fields(SswPolicy *p, Relation rel)
{
#define REFUSE(cond, ...) \
	do { if (cond) ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), __VA_ARGS__)); } while (0)
	REFUSE(p->deadline && p->last_seen, errmsg("deadline and last_seen must not both be given"),
		   errhint("A second, absolute clock is created with max_age."));
	REFUSE(!p->deadline && !p->last_seen, errmsg("deadline or last_seen must be given"),
		   errhint("Name the column that holds the deadline, or the time of last activity together with ttl."));
	REFUSE(p->last_seen && p->ttl_us <= 0 && !p->ttl_column, errmsg("last_seen needs a ttl greater than zero, or a ttl_column"));
	REFUSE(p->deadline && p->ttl_column, errmsg("ttl_column goes with last_seen, not with deadline"));
	REFUSE((p->created != NULL) != (p->max_age_us > 0), errmsg("created and max_age go together"));
	REFUSE(p->action == SSW_ACTION_UPDATE && !p->set_clause, errmsg("action \"update\" needs a set_clause"),
		   errhint("For example set_clause => 'status = ''expired'''."));
	REFUSE(p->action != SSW_ACTION_UPDATE && p->set_clause, errmsg("set_clause goes with action \"update\" only"));
	REFUSE(p->action == SSW_ACTION_CALL && !OidIsValid(p->on_expire), errmsg("action \"call\" needs on_expire"));
	REFUSE(p->max_workers < 1, errmsg("max_workers must be at least 1"));
	REFUSE(p->batch_size < 0 || p->batch_size > SSW_MAX_BATCH, errmsg("batch_size must be between 0 and %d", SSW_MAX_BATCH));
	REFUSE(p->rate_limit < 0 || p->backlog_rate < 0, errmsg("rate_limit and backlog_rate must not be negative"));
	REFUSE(p->max_retries < 0, errmsg("max_retries must not be negative"));
	REFUSE(p->fuse_fraction < 0 || p->fuse_fraction > 1, errmsg("fuse_fraction must be between 0 and 1"));
	REFUSE(p->fuse_min < 0, errmsg("fuse_min must not be negative"));
	REFUSE(p->soft_limit_us <= 0 || p->hard_limit_us <= p->soft_limit_us,
		   errmsg("hard_time_limit must be longer than soft_time_limit, and both longer than zero"));
	REFUSE(p->lock_timeout_ms >= DeadlockTimeout, errmsg("lock_timeout must be shorter than deadlock_timeout"),
		   errdetail("deadlock_timeout is %d ms; the sweeper gives way before the application is cancelled.", DeadlockTimeout));
	REFUSE(p->notify_channel && (p->notify_channel[0] == '\0' || strlen(p->notify_channel) >= NAMEDATALEN),
		   errmsg("notify_channel must have 1 to %d bytes", NAMEDATALEN - 1));
	REFUSE(p->notify_keys && p->audit > SSW_AUDIT_HASH, errmsg("notify_keys needs audit \"row\" or \"hash\""));
	REFUSE((OidIsValid(p->is_alive) || p->on_null == SSW_NULL_REPAIR) && !p->repair_set,
		   errmsg("is_alive and on_null \"repair\" need a plain column to write, and a ttl"),
		   errhint("Give ttl, and a column instead of an expression."));
	if (p->heartbeats)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("heartbeats are not supported by this version")));
#undef REFUSE
}

/* Let the server check the statements that user text becomes part of. */
static void
check_statements(SswPolicy *p)
{
	Oid			types[] = {TIMESTAMPTZOID, TIMESTAMPTZOID, TIDARRAYOID, TEXTARRAYOID};
	SswIdentity save;

	if (p->set_clause && (strchr(p->set_clause, ';') != NULL || strstr(p->set_clause, "--") != NULL))
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("set_clause must be one list of assignments: %s", p->set_clause)));
	ssw_identity_become_owner(p->owner, p->search_path, &save);
	ssw_sql_begin();
	if (p->action != SSW_ACTION_CALL &&
		SPI_prepare(ssw_stmt_action(p, p->relid, SSW_PHASE_CLOCK_1, false), 3, types) == NULL)
		elog(ERROR, "could not prepare the row action");
	ssw_sql_end();
	ssw_identity_restore(&save);
}

/* Key columns by default: the primary key, else a unique not-null index. */
static ArrayType *
default_key(Oid relid)
{
	Oid			type = OIDOID;
	Datum		value = ObjectIdGetDatum(relid);
	ArrayType  *result;
	bool		isnull;

	MemoryContext cxt = CurrentMemoryContext;

	ssw_sql_begin();
	if (ssw_sql_exec("SELECT (SELECT pg_catalog.array_agg(a.attname::pg_catalog.text ORDER BY k.n)"
					 " FROM pg_catalog.unnest(i.indkey::pg_catalog.int2[]) WITH ORDINALITY AS k (attnum, n)"
					 " JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum"
					 " WHERE k.n <= i.indnkeyatts)"
					 " FROM pg_catalog.pg_index AS i WHERE i.indrelid = $1 AND i.indisunique AND i.indisvalid"
					 " AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL"
					 " AND NOT EXISTS (SELECT FROM pg_catalog.unnest(i.indkey::pg_catalog.int2[]) AS k (attnum)"
					 " JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = k.attnum WHERE NOT a.attnotnull)"
					 " ORDER BY i.indisprimary DESC, i.indnkeyatts, i.indexrelid LIMIT 1",
					 1, &type, &value, NULL, false, 1) > 0)
	{
		Datum		d = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
		MemoryContext old = MemoryContextSwitchTo(cxt);

		result = DatumGetArrayTypePCopy(d);
		MemoryContextSwitchTo(old);
	}
	else
	{
		MemoryContextSwitchTo(cxt);
		result = construct_empty_array(TEXTOID);
	}
	ssw_sql_end();
	return result;
}

static char *
default_name(Oid relid)
{
	char	   *schema = get_namespace_name(get_rel_namespace(relid));

	if (strcmp(schema, "public") == 0)
		return pstrdup(quote_identifier(get_rel_name(relid)));
	return quote_qualified_identifier(schema, get_rel_name(relid));
}

static void
check_name(const char *name)
{
	char	   *free_name = NULL;

	if (strncmp(name, "sweeper.", 8) == 0 || name[0] == '\0')
		ereport(ERROR,
				(errcode(ERRCODE_RESERVED_NAME),
				 errmsg("policy name \"%s\" is reserved", name),
				 errhint("Choose a name that does not begin with \"sweeper.\".")));
	if (ssw_policy_find(name, true) == NULL)
		return;
	for (int i = 2; free_name == NULL; i++)
	{
		char	   *s = psprintf("%s_%d", name, i);

		if (ssw_policy_find(s, true) == NULL)
			free_name = s;
	}
	ereport(ERROR,
			(errcode(ERRCODE_DUPLICATE_OBJECT),
			 errmsg("policy \"%s\" exists already", name),
			 errhint("Use another name, for example policy => %s, or alter_policy() to change the one there is.",
					 quote_literal_cstr(free_name))));
}

/* Write down which columns the fields name, so that renames are followed. */
static void
write_columns(int policy_id)
{
	Oid			type = INT4OID;
	Datum		value = Int32GetDatum(policy_id);
	SswIdentity save;

	ssw_identity_become_extension(&save);
	ssw_sql_begin();
	ssw_sql_exec("UPDATE sweeper.policy AS p SET columns = coalesce((SELECT pg_catalog.jsonb_object_agg(a.attname, a.attnum)"
				 " FROM pg_catalog.pg_attribute AS a WHERE a.attrelid = p.relid AND a.attnum > 0 AND NOT a.attisdropped"
				 " AND (a.attname = ANY (p.key) OR a.attname = ANY (coalesce(p.capture, '{}')) OR a.attname::pg_catalog.text"
				 " IN (p.deadline, p.last_seen, p.ttl_column, p.created, p.group_by))), '{}'),"
				 " on_expire_name = on_expire::pg_catalog.regprocedure::pg_catalog.text,"
				 " is_alive_name = is_alive::pg_catalog.regprocedure::pg_catalog.text WHERE policy_id = $1",
				 1, &type, &value, NULL, false, 0);
	ssw_sql_end();
	ssw_identity_restore(&save);
}

static void
log_change(int policy_id, const char *name, const char *change)
{
	Oid			types[] = {INT4OID, TEXTOID, TEXTOID, TEXTOID};
	Datum		values[4];
	SswIdentity save;

	values[0] = Int32GetDatum(policy_id);
	values[1] = CStringGetTextDatum(name);
	values[2] = CStringGetTextDatum(GetUserNameFromId(GetSessionUserId(), false));
	values[3] = CStringGetTextDatum(change);
	ssw_identity_become_extension(&save);
	ssw_sql_begin();
	ssw_sql_exec("INSERT INTO sweeper.policy_change (policy_id, policy, changed_by, change, new)"
				 " SELECT $1, $2, $3, $4, (SELECT pg_catalog.to_jsonb(p) FROM sweeper.policy AS p WHERE p.policy_id = $1)",
				 4, types, values, NULL, false, 0);
	ssw_sql_end();
	ssw_identity_restore(&save);
}

/* Validate the stored row against its relation; errors undo the statement. */
static SswPolicy *
validate(int policy_id, Relation rel)
{
	SswPolicy  *p = ssw_policy_load(policy_id);

	if (p->deadline || p->last_seen)
	{
		if (p->last_seen && p->ttl_us <= 0 && !p->ttl_column)
			check_fields(p, rel);
		ssw_clock_build(p, rel);
	}
	check_fields(p, rel);
	check_rules(rel, p->action);
	check_leaves(rel);
	check_replicated(rel, p->allow_replicated);
	check_hook(rel, "on_expire", p->on_expire, false);
	check_hook(rel, "is_alive", p->is_alive, true);
	check_statements(p);
	return p;
}

static int
insert_row(Relation rel, const char *name, FunctionCallInfo fcinfo)
{
	int			nparams = NFIELDS + 7;
	Oid		   *types = palloc(nparams * sizeof(Oid));
	Datum	   *values = palloc0(nparams * sizeof(Datum));
	char	   *nulls = palloc(nparams + 1);
	StringInfoData cols,
				params;
	SswIdentity save;
	bool		isnull;
	int			id;

	initStringInfo(&cols);
	initStringInfo(&params);
	for (int i = 0; i < NFIELDS; i++)
	{
		const Field *f = &fields[i];
		int			arg = FIRST_FIELD + i;

		types[i] = f->type == REGPROCEDUREOID ? OIDOID : f->type;
		values[i] = PG_ARGISNULL(arg) ? (Datum) 0 : PG_GETARG_DATUM(arg);
		nulls[i] = PG_ARGISNULL(arg) ? 'n' : ' ';
		if (PG_ARGISNULL(arg) && f->required)
			ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("%s must not be null", f->name)));
		if (!PG_ARGISNULL(arg))
			check_value(f, values[i]);
		appendStringInfo(&cols, ", %s", quote_identifier(f->name));
		appendStringInfo(&params, ", $%d", i + 1);
		if (strcmp(f->name, "key") == 0 && PG_ARGISNULL(arg))
		{
			values[i] = PointerGetDatum(default_key(RelationGetRelid(rel)));
			nulls[i] = ' ';
		}
		if (strcmp(f->name, "search_path") == 0 && PG_ARGISNULL(arg))
		{
			values[i] = CStringGetTextDatum(callers_search_path());
			nulls[i] = ' ';
		}
	}
#define ADD(n, t, v) (types[NFIELDS + (n)] = (t), values[NFIELDS + (n)] = (v), nulls[NFIELDS + (n)] = ' ')
	ADD(0, TEXTOID, CStringGetTextDatum(name));
	ADD(1, OIDOID, ObjectIdGetDatum(RelationGetRelid(rel)));
	ADD(2, TEXTOID, CStringGetTextDatum(ssw_stmt_relation(RelationGetRelid(rel))));
	ADD(3, OIDOID, ObjectIdGetDatum(rel->rd_rel->relowner));
	ADD(4, TEXTOID, CStringGetTextDatum(GetUserNameFromId(rel->rd_rel->relowner, false)));
	ADD(5, OIDOID, ObjectIdGetDatum(MyDatabaseId));
	ADD(6, TEXTOID, CStringGetTextDatum(GetUserNameFromId(GetSessionUserId(), false)));
#undef ADD
	nulls[nparams] = '\0';
	ssw_identity_become_extension(&save);
	ssw_sql_begin();
	ssw_sql_exec(psprintf("INSERT INTO sweeper.policy (policy, relid, relation, owner, owner_name, database, registered_by,"
						  " system_identifier%s) VALUES ($%d, $%d, $%d, $%d, $%d, $%d, $%d,"
						  " (SELECT system_identifier FROM pg_catalog.pg_control_system())%s) RETURNING policy_id",
						  cols.data, (int) NFIELDS + 1, (int) NFIELDS + 2, (int) NFIELDS + 3, (int) NFIELDS + 4,
						  (int) NFIELDS + 5, (int) NFIELDS + 6, (int) NFIELDS + 7, params.data),
				 nparams, types, values, nulls, false, 0);
	id = DatumGetInt32(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	ssw_sql_end();
	ssw_identity_restore(&save);
	CommandCounterIncrement();
	return id;
}

static void
set_start(SswPolicy *p, SswPreview *v, const char *start)
{
	Oid			types[] = {INT4OID, BOOLOID, TEXTOID, BOOLOID, TEXTOID};
	Datum		values[5];
	char		nulls[6] = "     ";
	bool		backlog = v->dead > 0 || v->sample_dead > 0;
	const char *held = NULL;
	SswIdentity save;

	if (strcmp(start, "auto") == 0 && v->rows > BACKLOG_ROWS && v->sample_dead > 0.5)
	{
		held = "backlog";
		ereport(NOTICE,
				(errmsg("policy \"%s\" is held: about %d %% of " INT64_FORMAT " rows are dead already",
						p->name, (int) (v->sample_dead * 100), v->rows),
				 errdetail("Nothing is removed until you confirm."),
				 errhint("SELECT sweeper.resume(%s); drains them%s.", quote_literal_cstr(p->name),
						 p->backlog_rate > 0 ? psprintf(" at %d rows a second", p->backlog_rate) : "")));
	}
	values[0] = Int32GetDatum(p->id);
	values[1] = BoolGetDatum(backlog);
	values[2] = CStringGetTextDatum(held ? held : "");
	nulls[2] = held ? ' ' : 'n';
	values[3] = BoolGetDatum(strcmp(start, "paused") == 0);
	values[4] = CStringGetTextDatum(GetUserNameFromId(GetSessionUserId(), false));
	ssw_identity_become_extension(&save);
	ssw_sql_begin();
	ssw_sql_exec("UPDATE sweeper.policy SET backlog_before = CASE WHEN $2 THEN pg_catalog.clock_timestamp() END,"
				 " held_reason = $3, held_at = CASE WHEN $3 IS NOT NULL THEN pg_catalog.clock_timestamp() END,"
				 " paused_at = CASE WHEN $4 THEN pg_catalog.clock_timestamp() END, paused_by = CASE WHEN $4 THEN $5 END,"
				 " paused_reason = CASE WHEN $4 THEN 'registered paused' END WHERE policy_id = $1",
				 5, types, values, nulls, false, 0);
	ssw_sql_end();
	ssw_identity_restore(&save);
}

static void
check_plausible(SswPolicy *p, SswPreview *v)
{
	if (v->sampled == 0 || v->sample_absurd <= 0.5)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("deadlines of \"%s\" are implausible", p->relation),
			 errdetail("%d %% of the sampled rows have a deadline more than five years ago or more than a hundred years ahead; the oldest is %s.",
					   (int) (v->sample_absurd * 100), timestamptz_to_str(v->oldest)),
			 errhint("Check deadline, unit and timezone.")));
}

static Datum
preview_row(FunctionCallInfo fcinfo, SswPolicy *p, SswPreview *v, const char *state)
{
	TupleDesc	desc;
	Datum		values[13];
	bool		nulls[13] = {0};
	ArrayBuildState *advice = initArrayResult(TEXTOID, CurrentMemoryContext, false);
	ListCell   *lc;

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	foreach(lc, v->advice)
		advice = accumArrayResult(advice, CStringGetTextDatum(lfirst(lc)), false, TEXTOID, CurrentMemoryContext);
	values[0] = CStringGetTextDatum(p->name);
	values[1] = CStringGetTextDatum(p->relation);
	values[2] = CStringGetTextDatum(state);
	values[3] = Int64GetDatum(v->rows);
	values[4] = Int64GetDatum(v->dead);
	values[5] = BoolGetDatum(v->exact);
	values[6] = TimestampTzGetDatum(v->oldest);
	nulls[6] = v->oldest == 0;
	values[7] = TimestampTzGetDatum(v->newest);
	nulls[7] = v->newest == 0;
	values[8] = ObjectIdGetDatum(v->index);
	nulls[8] = !OidIsValid(v->index);
	values[9] = DirectFunctionCall1(float8_numeric, Float8GetDatum(v->cascade_rows));
	values[10] = DirectFunctionCall1(float8_numeric,
									 Float8GetDatum(p->backlog_rate > 0 ? (double) v->dead / p->backlog_rate : v->dead / 100000.0));
	values[11] = p->audit == SSW_AUDIT_HASH ? PointerGetDatum(construct_empty_array(TEXTOID)) : v->sample_keys;
	values[12] = makeArrayResult(advice, CurrentMemoryContext);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls));
}

/* In a subtransaction that dry_run rolls back. */
static Datum
do_register(FunctionCallInfo fcinfo, Relation rel, const char *name, const char *start, bool dry_run)
{
	int			id = insert_row(rel, name, fcinfo);
	SswPolicy  *p = validate(id, rel);
	SswPreview *v = ssw_advice_preview(p);

	check_plausible(p, v);
	if (!OidIsValid(v->index) && v->advice)
		ereport(NOTICE,
				(errmsg("no index finds the dead rows of %s", p->relation),
				 errdetail("Each look reads the whole table; for a small table that is fine."),
				 errhint("%s", (char *) linitial(v->advice))));
	write_columns(id);
	CommandCounterIncrement();
	set_start(p, v, start);
	CommandCounterIncrement();
	if (!dry_run)
		log_change(id, name, "register");
	p = ssw_policy_load(id);
	return preview_row(fcinfo, p, v, dry_run ? "dry run" : p->held_reason ? "held" : p->paused_at ? "paused" : "waiting");
}

/*
 * register(relation, …) → one row of preview's shape.  See schema/20_register.sql
 * for the arguments.
 */
Datum
ssw_register(PG_FUNCTION_ARGS)
{
	Relation	rel;
	char	   *name;
	char	   *start;
	bool		dry_run;
	Datum		result;

	if (PG_ARGISNULL(0))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("relation must not be null")));
	if (PG_ARGISNULL(FIRST_FIELD + NFIELDS) || PG_ARGISNULL(FIRST_FIELD + NFIELDS + 1))
		ereport(ERROR, (errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED), errmsg("start and dry_run must not be null")));
	start = text_to_cstring(PG_GETARG_TEXT_PP(FIRST_FIELD + NFIELDS));
	dry_run = PG_GETARG_BOOL(FIRST_FIELD + NFIELDS + 1);
	if (strcmp(start, "auto") != 0 && strcmp(start, "now") != 0 && strcmp(start, "paused") != 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("start must not be \"%s\"", start),
				 errhint("Use one of \"auto\", \"now\", \"paused\".")));
	rel = try_relation_open(PG_GETARG_OID(0), ShareUpdateExclusiveLock);
	if (rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE), errmsg("relation with OID %u does not exist", PG_GETARG_OID(0))));
	check_relation(rel);
	name = PG_ARGISNULL(1) ? default_name(RelationGetRelid(rel)) : text_to_cstring(PG_GETARG_TEXT_PP(1));
	check_name(name);
	if (dry_run)
	{
		MemoryContext cxt = CurrentMemoryContext;
		ResourceOwner owner = CurrentResourceOwner;

		BeginInternalSubTransaction(NULL);
		MemoryContextSwitchTo(cxt);
		result = do_register(fcinfo, rel, name, start, true);
		RollbackAndReleaseCurrentSubTransaction();
		MemoryContextSwitchTo(cxt);
		CurrentResourceOwner = owner;
	}
	else
	{
		result = do_register(fcinfo, rel, name, start, false);
		ssw_shmem_policies_changed();
	}
	table_close(rel, NoLock);
	PG_RETURN_DATUM(result);
}

static bool
is_field(const char *name)
{
	for (int i = 0; i < NFIELDS; i++)
		if (strcmp(fields[i].name, name) == 0)
			return fields[i].reset != NULL;
	return false;
}

/* "col = value, …" of alter_policy; arguments: policy, fields…, reset, new_name. */
static char *
alter_assignments(FunctionCallInfo fcinfo, Oid *types, Datum *values)
{
	StringInfoData buf;
	ArrayType  *reset = PG_ARGISNULL(1 + NFIELDS) ? construct_empty_array(TEXTOID) : PG_GETARG_ARRAYTYPE_P(1 + NFIELDS);
	Datum	   *names;
	int			n;

	initStringInfo(&buf);
	appendStringInfoString(&buf, "policy_id = policy_id");
	for (int i = 0; i < NFIELDS; i++)
	{
		types[i] = fields[i].type == REGPROCEDUREOID ? OIDOID : fields[i].type;
		values[i] = PG_ARGISNULL(1 + i) ? (Datum) 0 : PG_GETARG_DATUM(1 + i);
		if (PG_ARGISNULL(1 + i))
			continue;
		check_value(&fields[i], values[i]);
		appendStringInfo(&buf, ", %s = $%d", quote_identifier(fields[i].name), i + 1);
	}
	deconstruct_array(reset, TEXTOID, -1, false, TYPALIGN_INT, &names, NULL, &n);
	for (int k = 0; k < n; k++)
	{
		char	   *name = TextDatumGetCString(names[k]);

		if (!is_field(name))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("cannot reset \"%s\"", name),
					 errhint("Give names of arguments of sweeper.register() that have a default.")));
		for (int i = 0; i < NFIELDS; i++)
			if (strcmp(fields[i].name, name) == 0)
				appendStringInfo(&buf, ", %s = %s", quote_identifier(name), fields[i].reset);
	}
	return buf.data;
}

/* Fields that an admin who is not the owner may change. */
static bool
changes_code(FunctionCallInfo fcinfo)
{
	static const char *const harmless[] = {"check_every", "max_lag", "batch_size", "max_workers", "rate_limit",
		"backlog_rate", "soft_time_limit", "hard_time_limit", "lock_timeout", "max_retries", "fuse_fraction", "fuse_min",
	NULL};

	for (int i = 0; i < NFIELDS; i++)
	{
		bool		ok = PG_ARGISNULL(1 + i);

		for (int k = 0; harmless[k] && !ok; k++)
			ok = strcmp(harmless[k], fields[i].name) == 0;
		if (!ok)
			return true;
	}
	return !PG_ARGISNULL(1 + NFIELDS) && ArrayGetNItems(ARR_NDIM(PG_GETARG_ARRAYTYPE_P(1 + NFIELDS)),
														ARR_DIMS(PG_GETARG_ARRAYTYPE_P(1 + NFIELDS))) > 0;
}

/* alter_policy(policy, fields…, reset, new_name): null leaves a field. */
Datum
ssw_alter_policy(PG_FUNCTION_ARGS)
{
	SswPolicy  *p = ssw_rights_policy(PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0),
									  changes_code(fcinfo) ? SSW_RIGHT_OWNER : SSW_RIGHT_ADMIN);
	Relation	rel;
	Oid			types[NFIELDS + 2];
	Datum		values[NFIELDS + 2];
	char		nulls[NFIELDS + 3];
	char	   *sets;
	SswIdentity save;
	char	   *name = p->name;

	ssw_lock_policy_exclusive(p->id);
	rel = table_open(p->relid, ShareUpdateExclusiveLock);
	if (!PG_ARGISNULL(2 + NFIELDS))
	{
		name = text_to_cstring(PG_GETARG_TEXT_PP(2 + NFIELDS));
		check_name(name);
	}
	sets = alter_assignments(fcinfo, types, values);
	memset(nulls, ' ', sizeof(nulls));
	for (int i = 0; i < NFIELDS; i++)
		nulls[i] = PG_ARGISNULL(1 + i) ? 'n' : ' ';
	types[NFIELDS] = INT4OID;
	values[NFIELDS] = Int32GetDatum(p->id);
	types[NFIELDS + 1] = TEXTOID;
	values[NFIELDS + 1] = CStringGetTextDatum(name);
	nulls[NFIELDS + 2] = '\0';
	ssw_identity_become_extension(&save);
	ssw_sql_begin();
	ssw_sql_exec(psprintf("UPDATE sweeper.policy SET %s, policy = $%d WHERE policy_id = $%d", sets,
						  (int) NFIELDS + 2, (int) NFIELDS + 1), NFIELDS + 2, types, values, nulls, false, 0);
	ssw_sql_end();
	ssw_identity_restore(&save);
	CommandCounterIncrement();
	(void) validate(p->id, rel);
	write_columns(p->id);
	CommandCounterIncrement();
	log_change(p->id, name, "alter");
	ssw_shmem_policies_changed();
	table_close(rel, NoLock);
	PG_RETURN_VOID();
}

/* unregister(policy): waits for the batch in flight. */
Datum
ssw_unregister(PG_FUNCTION_ARGS)
{
	SswPolicy  *p = ssw_rights_policy(PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0), SSW_RIGHT_OWNER);
	Oid			type = INT4OID;
	Datum		value = Int32GetDatum(p->id);
	SswIdentity save;

	ssw_lock_policy_exclusive(p->id);
	log_change(p->id, p->name, "unregister");
	ssw_identity_become_extension(&save);
	ssw_sql_begin();
	ssw_sql_exec("DELETE FROM sweeper.policy WHERE policy_id = $1", 1, &type, &value, NULL, false, 0);
	ssw_sql_end();
	ssw_identity_restore(&save);
	ssw_shmem_policies_changed();
	PG_RETURN_VOID();
}

/* preview(policy) → what a pass would find now. */
Datum
ssw_preview(PG_FUNCTION_ARGS)
{
	SswPolicy  *p = ssw_rights_policy(PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0), SSW_RIGHT_SEE);
	Relation	rel = table_open(p->relid, AccessShareLock);
	Datum		result;

	ssw_clock_build(p, rel);
	result = preview_row(fcinfo, p, ssw_advice_preview(p),
						 p->held_reason ? "held" : p->paused_at ? "paused" : p->broken ? "broken" :
						 p->failures > 0 ? "failing" : "waiting");
	table_close(rel, NoLock);
	PG_RETURN_DATUM(result);
}
