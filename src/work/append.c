/*
 * append.c
 *		append(), append_many(): accept rows now, to be written to their table soon.
 *
 * Runs in the caller's session and transaction.  The rows go straight into a table
 * without indexes.  A worker writes it to its table later, as that table's owner
 * (append_writer.c); the commit wakes the coordinator for that (task_xact.c).
 *
 * Shares nothing but the tables.  Each process keeps the numbers of the streams that it
 * uses; a stream is a table and a role that appends to it.  A crash, or the caller's
 * rollback, undoes all of it.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/relation.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_inherits.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_type.h"
#include "base/argument_checks.h"
#include "base/compat.h"
#include "commands/sequence.h"
#include "executor/tstoreReceiver.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/inval.h"
#include "utils/jsonb.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/rls.h"
#include "utils/timestamp.h"

#include "base/cached_plan.h"
#include "base/spi.h"
#include "base/guc.h"
#include "base/identity.h"
#include "base/multi_insert.h"
#include "base/relation_guard.h"
#include "base/shmem.h"
#include "base/wait.h"
#include "work/append.h"
#include "work/caller.h"
#include "work/task_query.h"
#include "work/task_xact.h"
#include "work/work_state.h"

PG_FUNCTION_INFO_V1(ssw_append);
PG_FUNCTION_INFO_V1(ssw_append_many);
PG_FUNCTION_INFO_V1(ssw_alter_append);
PG_FUNCTION_INFO_V1(ssw_flush);
PG_FUNCTION_INFO_V1(ssw_take_append_failed_rows);

#define MAX_FLUSH_ROWS		100000
#define COUNT_EVERY_US		USECS_PER_SEC
#define COUNT_REST			20	/* times as long as it took to count */
#define INSERT_ROWS			64	/* at once */

typedef struct Stream
{
	Oid			relid;
	Oid			role;
	int			stream;
} Stream;

static Stream streams[16];		/* by relid: those that this process used last */
static bool streams_stale = false;

/* A table was altered, renamed or dropped: streams are looked up again.  No catalog may be read here. */
static void
on_relcache(Datum arg, Oid relid)
{
	streams_stale = true;
}

/*
 * Read the stream's number.  A new one (*made) is undone by the caller's rollback.  The
 * names of the table and the role follow later (append_demand.c): no caller locks a
 * stream, for which others would wait.
 */
static int
read_stream(Oid relid, bool *made)
{
	static const char *const find =
	"SELECT stream, xmin FROM sweeper.append_stream WHERE relid = $1 AND role_oid = $6 AND system_identifier = $4 AND database = $5"
	" ORDER BY stream LIMIT 1";
	static const char *const make =
	"INSERT INTO sweeper.append_stream (relid, relation, role, system_identifier, database, role_oid, flush_every, flush_rows)"
	" SELECT $1, $2, $3, $4, $5, $6, coalesce(min(flush_every), '1 s'), coalesce(min(flush_rows), 1000) FROM sweeper.append_stream WHERE relid = $1";
	Oid			types[] = {OIDOID, TEXTOID, TEXTOID, INT8OID, OIDOID, OIDOID};
	SswCaller	c = ssw_caller_begin("sweeper.append()");
	Datum		values[] = {ObjectIdGetDatum(relid), CStringGetTextDatum(ssw_guard_relation(relid)), CStringGetTextDatum(c.name),
	Int64GetDatum((int64) GetSystemIdentifier()), ObjectIdGetDatum(MyDatabaseId), ObjectIdGetDatum(c.userid)};
	int			stream;

	if (ssw_plan_execute_fresh(find, 6, types, values) == 0)
	{
		ssw_plan_execute(make, 6, types, values, NULL, false);
		CommandCounterIncrement();
		ssw_plan_execute_fresh(find, 6, types, values);
	}
	*made = TransactionIdIsCurrentTransactionId(DatumGetTransactionId(ssw_spi_column(0, 2)));
	stream = DatumGetInt32(ssw_spi_column(0, 1));
	ssw_caller_end(&c);
	return stream;
}

static int
find_stream(Relation rel)
{
	static bool registered = false;
	Oid			relid = RelationGetRelid(rel);
	Stream	   *s = &streams[relid % lengthof(streams)];
	int			stream;
	bool		made;

	if (!registered)
		CacheRegisterRelcacheCallback(on_relcache, (Datum) 0);
	registered = true;
	if (streams_stale)
		memset(streams, 0, sizeof(streams));
	streams_stale = false;
	if (s->relid == relid && s->role == GetUserId())
		return s->stream;
	/* rows are checked again when they are written */
	ssw_append_check_partitions(rel, NoLock);
	stream = read_stream(relid, &made);
	if (!made)
		*s = (Stream)
	{
		.relid = relid,.role = GetUserId(),.stream = stream
	};
	return stream;
}

static void
lacks_right(const char *kind, char *name, const char *right, char *full_name, Oid role)
{
	char	   *grantee = GetUserNameFromId(role, false);

	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 errmsg("permission denied for %s %s", kind, name),
			 errdetail("Role \"%s\" appends rows with its own rights.", grantee),
			 errhint("GRANT %s ON %s%s TO %s;", right, strcmp(kind, "schema") == 0 ? "SCHEMA " : "", full_name, quote_identifier(grantee))));
}

/*
 * May the role insert rows with these columns?  The table's owner inserts them later,
 * so the role's rights are checked when they are accepted and again when they are
 * written.  Row security of the role would not be checked, so it is refused.  Code that
 * others defined, as triggers before a superuser took the table over, runs as a superuser
 * only if a superuser asked for that, as by INSERT.
 */
void
ssw_append_check_rights(Oid relid, Oid role, List *columns)
{
	Oid			schema = get_rel_namespace(relid);
	ListCell   *lc;

	if (object_aclcheck(NamespaceRelationId, schema, role, ACL_USAGE) != ACLCHECK_OK)
		lacks_right("schema", get_namespace_name(schema), "USAGE", pstrdup(quote_identifier(get_namespace_name(schema))), role);
	if (pg_class_aclcheck(relid, role, ACL_INSERT) != ACLCHECK_OK)
		foreach(lc, columns)
	{
		AttrNumber	att = get_attnum(relid, lfirst(lc));

		if (att == InvalidAttrNumber || pg_attribute_aclcheck(relid, att, role, ACL_INSERT) != ACLCHECK_OK)
			lacks_right("table", get_rel_name(relid), "INSERT", ssw_guard_relation(relid), role);
	}
	if (superuser_arg(ssw_relation_owner(relid)) && !superuser_arg(role))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot append to \"%s\": its owner is a superuser", get_rel_name(relid)),
				 errdetail("Appended rows are written as the table's owner. Triggers and other code that the table uses would run as a superuser."),
				 errhint("ALTER TABLE %s OWNER TO a role that is not a superuser; or INSERT INTO %s ...;", ssw_guard_relation(relid), ssw_guard_relation(relid))));
	if (check_enable_rls(relid, role, true) != RLS_ENABLED)
		role = ssw_relation_owner(relid);
	if (check_enable_rls(relid, role, true) == RLS_ENABLED)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot append to \"%s\": row security of the table applies to role \"%s\"", get_rel_name(relid), GetUserNameFromId(role, true)),
				 errdetail("Appended rows are written as the table's owner, for which row security may decide otherwise."),
				 errhint("INSERT INTO %s ...; or append as a role that has BYPASSRLS.", ssw_guard_relation(relid))));
}

/*
 * Do all partitions belong to the owner of the table, which inserts into them?  Their
 * triggers and index expressions would run as that role.  With a lock they stay as they
 * are until the transaction ends.
 */
void
ssw_append_check_partitions(Relation rel, LOCKMODE mode)
{
	Oid			owner = rel->rd_rel->relowner;
	ListCell   *lc;

	if (rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE)
		return;
	foreach(lc, find_all_inheritors(RelationGetRelid(rel), mode, NULL))
		if (get_rel_name(lfirst_oid(lc)) && ssw_relation_owner(lfirst_oid(lc)) != owner)
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("cannot append to \"%s\": its partition \"%s\" has another owner",
						RelationGetRelationName(rel), get_rel_name(lfirst_oid(lc))),
				 errdetail("Appended rows are written as the owner of \"%s\".", RelationGetRelationName(rel)),
				 errhint("If its triggers may run as that role: ALTER TABLE %s OWNER TO %s;", ssw_guard_relation(lfirst_oid(lc)),
						 quote_identifier(GetUserNameFromId(owner, false)))));
}

/* Can this column of the table be written? */
static void
check_column(Relation rel, const char *name)
{
	AttrNumber	attnum = get_attnum(RelationGetRelid(rel), name);
	Form_pg_attribute att;

	if (attnum <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of relation \"%s\" does not exist", name, RelationGetRelationName(rel)),
				 errhint("Keys of row_data are names of columns, as they are written in the catalog.")));
	att = TupleDescAttr(RelationGetDescr(rel), attnum - 1);
	if (att->attgenerated || att->attidentity == ATTRIBUTE_IDENTITY_ALWAYS)
		ereport(ERROR,
				(errcode(ERRCODE_GENERATED_ALWAYS),
				 errmsg("column \"%s\" of relation \"%s\" cannot be written", name, RelationGetRelationName(rel)),
				 errdetail("Its values are generated always.")));
}

/*
 * Do two rows name the same columns?  An object has first the lengths of all keys, then
 * those of the values, then the keys themselves; both have at least one.
 */
bool
ssw_append_same_columns(Jsonb *a, Jsonb *b)
{
	int			n = JB_ROOT_COUNT(a);

	return n == JB_ROOT_COUNT(b) &&
		memcmp(a->root.children, b->root.children, n * sizeof(JEntry)) == 0 &&
		memcmp(&a->root.children[2 * n], &b->root.children[2 * n], getJsonbOffset(&a->root, n)) == 0;
}

/* The columns that a row names, in the order in which jsonb keeps them. */
List	   *
ssw_append_columns(Jsonb *row)
{
	JsonbIterator *it = JsonbIteratorInit(&row->root);
	JsonbIteratorToken token;
	JsonbValue	v;
	List	   *columns = NIL;

	(void) JsonbIteratorNext(&it, &v, true);
	while ((token = JsonbIteratorNext(&it, &v, true)) != WJB_DONE)
		if (token == WJB_KEY)
			columns = lappend(columns, pnstrdup(v.val.string.val, v.val.string.len));
	return columns;
}

/* May the caller append the row, by the columns that it names? */
static void
check_row(Relation rel, Jsonb *row)
{
	List	   *columns;
	ListCell   *lc;

	if (!JB_ROOT_IS_OBJECT(row) || JB_ROOT_COUNT(row) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("row_data must be a JSON object with at least one column"),
				 errhint("For one row: SELECT sweeper.append(..., to_jsonb(r)).")));
	columns = ssw_append_columns(row);
	foreach(lc, columns)
		check_column(rel, lfirst(lc));
	ssw_append_check_rights(RelationGetRelid(rel), GetUserId(), columns);
}

/* Count the rows of the table that wait or were set aside. */
static int64
count_rows(Oid relid)
{
	static const char *const sql =
	"WITH s AS MATERIALIZED (SELECT stream FROM sweeper.append_stream WHERE relid = $1)"
	" SELECT (SELECT count(*) FROM sweeper.append_row WHERE stream IN (SELECT stream FROM s))"
	" + (SELECT count(*) FROM sweeper.append_failed WHERE stream IN (SELECT stream FROM s))";
	Oid			type = OIDOID;
	Datum		value = ObjectIdGetDatum(relid);
	SswCaller	c = ssw_caller_begin("sweeper.append()");
	int64		n;

	ssw_plan_execute_fresh(sql, 1, &type, &value);
	n = DatumGetInt64(ssw_spi_column(0, 1));
	ssw_caller_end(&c);
	return n;
}

/* Rows of a table, counted some time ago, and those that this session added. */
typedef struct Counted
{
	Oid			relid;
	TimestampTz at;
	TimestampTz again_at;
	int64		rows;
} Counted;

/*
 * A table may have only so many appended rows.  Memory knows when no table can have that
 * many.  Else the rows of this one are counted, now and then, and always before one is
 * refused.
 */
static void
check_room(Oid relid, int more)
{
	static Counted counted[64];
	Counted    *c = &counted[relid % lengthof(counted)];
	TimestampTz now = GetCurrentTimestamp();
	SswWorkState s = ssw_work_read(MyDatabaseId);

	if (s.rows_counted && s.most_rows + s.appended + ssw_task_xact_rows_appended() + more <= ssw_max_appended_rows)
		return;
	if (relid != c->relid || now > c->again_at || now < c->at || c->rows + more > ssw_max_appended_rows)
	{
		c->rows = count_rows(relid);
		c->relid = relid;
		c->at = now;
		c->again_at = now + Max(COUNT_EVERY_US, COUNT_REST * (GetCurrentTimestamp() - now));
	}
	if (c->rows + more > ssw_max_appended_rows)
		ereport(ERROR,
				(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
				 errmsg("too many appended rows of \"%s\" wait or were set aside", get_rel_name(relid)),
				 errdetail("\"session_sweeper.max_appended_rows\" allows %d for a table.", ssw_max_appended_rows),
				 errhint("SELECT * FROM sweeper.append_status; see sweeper.append_failed_row for the errors of those that were set aside, and sweeper.problem.")));
	c->rows += more;
}

static Relation
open_target(Oid relid)
{
	Relation	rel = try_relation_open(relid, AccessShareLock);

	if (rel == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_TABLE), errmsg("relation with OID %u does not exist", relid)));
	if ((rel->rd_rel->relkind != RELKIND_RELATION && rel->rd_rel->relkind != RELKIND_PARTITIONED_TABLE) ||
		rel->rd_rel->relpersistence == RELPERSISTENCE_TEMP || relid < FirstNormalObjectId ||
		RelationGetNamespace(rel) == get_namespace_oid(SSW_SCHEMA, true))
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("cannot append to \"%s\"", RelationGetRelationName(rel)),
				 errdetail("Rows can be appended only to ordinary and partitioned tables, which belong neither to the system nor to the extension.")));
	return rel;
}

/*
 * Put rows into sweeper.append_row: no index, no trigger, no statement.  They are written
 * as this owner of their table, or not at all.  Returns the number of the last.
 */
static int64
insert_rows(int stream, Oid owner, Jsonb **rows, int n)
{
	Relation	rel = table_open(ssw_multi_insert_relation("append_row"), RowExclusiveLock);
	Oid			sequence = ssw_multi_insert_relation("append_row_seq");
	Datum		now = TimestampTzGetDatum(GetCurrentTimestamp());
	bool		nulls[] = {false, false, false, false, false};
	TupleTableSlot *slots[INSERT_ROWS];
	int64		id = 0;

	for (int i = 0; i < n && i < INSERT_ROWS; i++)
		slots[i] = MakeSingleTupleTableSlot(RelationGetDescr(rel), &TTSOpsHeapTuple);
	for (int from = 0, count; from < n; from += count)
	{
		count = Min(n - from, INSERT_ROWS);
		for (int i = 0; i < count; i++)
		{
			Datum		values[] = {0, Int32GetDatum(stream), ObjectIdGetDatum(owner), now, JsonbPGetDatum(rows[from + i])};

			id = nextval_internal(sequence, false);
			values[0] = Int64GetDatum(id);
			ExecStoreHeapTuple(heap_form_tuple(RelationGetDescr(rel), values, nulls), slots[i], true);
		}
		table_multi_insert(rel, slots, count, GetCurrentCommandId(true), 0, NULL);
	}
	for (int i = 0; i < n && i < INSERT_ROWS; i++)
		ExecDropSingleTupleTableSlot(slots[i]);
	table_close(rel, NoLock);
	return id;
}

/* Accept rows for a table; returns the number of the last one. */
static int64
accept_rows(Oid relid, Jsonb **rows, int n)
{
	Relation	rel = open_target(relid);
	Oid			owner = rel->rd_rel->relowner;
	int			stream;
	int64		id;

	check_row(rel, rows[0]);
	for (int i = 1; i < n; i++)
		if (!JB_ROOT_IS_OBJECT(rows[i]) || !ssw_append_same_columns(rows[i], rows[i - 1]))
			check_row(rel, rows[i]);
	check_room(relid, n);
	stream = find_stream(rel);
	relation_close(rel, NoLock);
	id = insert_rows(stream, owner, rows, n);
	ssw_task_xact_rows_add(n);
	return id;
}

/* append(target, row_data) → the row's number. */
Datum
ssw_append(PG_FUNCTION_ARGS)
{
	Jsonb	   *row;

	ssw_argument_not_null(fcinfo, 0, "target");
	ssw_argument_not_null(fcinfo, 1, "row_data");
	ssw_argument_bound(fcinfo, 1, "row_data", SSW_MAX_PAYLOAD);
	ssw_shmem_require();
	ssw_spi_refuse_read_only("sweeper.append()");
	row = PG_GETARG_JSONB_P(1);
	PG_RETURN_INT64(accept_rows(PG_GETARG_OID(0), &row, 1));
}

/* append_many(target, rows) → the number of the last row. */
Datum
ssw_append_many(PG_FUNCTION_ARGS)
{
	Datum	   *values;
	Jsonb	  **rows;
	int			n;

	ssw_argument_not_null(fcinfo, 0, "target");
	n = ssw_argument_elements(fcinfo, 1, "rows", JSONBOID, &values);
	ssw_shmem_require();
	ssw_spi_refuse_read_only("sweeper.append_many()");
	if (n == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("rows must not be empty")));
	rows = palloc(n * sizeof(Jsonb *));
	for (int i = 0; i < n; i++)
	{
		rows[i] = DatumGetJsonbP(values[i]);
		if (VARSIZE_ANY_EXHDR(rows[i]) > SSW_MAX_PAYLOAD)
			ereport(ERROR,
					(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
					 errmsg("a row must not be longer than %d bytes", SSW_MAX_PAYLOAD)));
	}
	PG_RETURN_INT64(accept_rows(PG_GETARG_OID(0), rows, n));
}

/* alter_append(target, flush_every, flush_rows). */
Datum
ssw_alter_append(PG_FUNCTION_ARGS)
{
	Oid			types[] = {OIDOID, INTERVALOID, INT4OID};
	Datum		values[3];
	Oid			relid;
	SswCaller	c;

	ssw_argument_not_null(fcinfo, 0, "target");
	relid = PG_GETARG_OID(0);
	table_close(open_target(relid), NoLock);
	if (!object_ownercheck(RelationRelationId, relid, GetUserId()))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("must be owner of table %s", get_rel_name(relid)),
				 errhint("Call as a member of role \"%s\".", GetUserNameFromId(ssw_relation_owner(relid), false))));
	values[0] = ObjectIdGetDatum(relid);
	values[1] = PG_ARGISNULL(1) ? (Datum) 0 : PG_GETARG_DATUM(1);
	if (values[1])
		(void) ssw_argument_interval("flush_every", PG_GETARG_INTERVAL_P(1), 0);
	if (!PG_ARGISNULL(2))
		(void) ssw_argument_number("flush_rows", PG_GETARG_INT32(2), 1, MAX_FLUSH_ROWS);
	values[2] = PG_ARGISNULL(2) ? Int32GetDatum(0) : PG_GETARG_DATUM(2);
	c = ssw_caller_begin("sweeper.alter_append()");
	if (ssw_plan_execute("UPDATE sweeper.append_stream SET flush_every = coalesce($2, flush_every), flush_rows = coalesce(nullif($3, 0), flush_rows)"
						 " WHERE relid = $1", 3, types, values, NULL, false) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("no row has been appended to \"%s\" yet", get_rel_name(relid)),
				 errhint("Append a row first: SELECT sweeper.append(...);")));
	ssw_caller_end(&c);
	PG_RETURN_VOID();
}

/*
 * After a dump and restore: rows that a role of this name appended to a table of this name
 * belong to the caller, and are written as the table's present owner.
 */
static void
adopt_restored(Oid relid)
{
	static const char *const sql =
	"WITH mine AS (UPDATE sweeper.append_stream AS s SET relid = $1, system_identifier = $3, database = $4, role_oid = $5 FROM sweeper._append_stream AS h"
	" WHERE h.stream = s.stream AND NOT h.here AND s.role = $2 AND pg_catalog.to_regclass(s.relation) = $1 RETURNING s.stream)"
	" UPDATE sweeper.append_row AS r SET owner = $6 FROM mine WHERE r.stream = mine.stream";
	Oid			types[] = {OIDOID, TEXTOID, INT8OID, OIDOID, OIDOID, OIDOID};
	SswCaller	c = ssw_caller_begin("sweeper.flush()");
	Datum		values[] = {ObjectIdGetDatum(relid), CStringGetTextDatum(c.name), Int64GetDatum((int64) GetSystemIdentifier()),
	ObjectIdGetDatum(MyDatabaseId), ObjectIdGetDatum(c.userid), ObjectIdGetDatum(ssw_relation_owner(relid))};

	ssw_plan_execute(sql, 6, types, values, NULL, false);
	ssw_caller_end(&c);
}

/* CALL flush(target). */
Datum
ssw_flush(PG_FUNCTION_ARGS)
{
	Oid			types[] = {OIDOID, OIDOID, INT8OID};
	Datum		values[3];

	ssw_argument_not_null(fcinfo, 0, "target");
	ssw_wait_check_context(fcinfo, "flush", "rows are written soon in any case");
	ssw_guc_require_service("flush");
	relation_close(open_target(PG_GETARG_OID(0)), NoLock);
	adopt_restored(PG_GETARG_OID(0));
	values[0] = PG_GETARG_DATUM(0);
	values[1] = ObjectIdGetDatum(GetUserId());
	ssw_task_query_until_written(types, values);
	PG_RETURN_VOID();
}

/*
 * take_append_failed_rows(relation, ids) → the rows, which are removed.  No role has DELETE
 * on the view, because who has it may lock the tables behind the view.
 */
Datum
ssw_take_append_failed_rows(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	DestReceiver *dest = CreateDestReceiver(DestTuplestore);
	Oid			types[] = {TEXTOID, INT8ARRAYOID, OIDOID};
	Datum		values[3];
	SswCaller	c;

	ssw_argument_not_null(fcinfo, 0, "relation");
	ssw_argument_bound(fcinfo, 0, "relation", SSW_MAX_TEXT);
	ssw_argument_bound(fcinfo, 1, "ids", SSW_MAX_PAYLOAD);
	InitMaterializedSRF(fcinfo, 0);
	SetTuplestoreDestReceiverParams(dest, result->setResult, fcinfo->flinfo->fn_mcxt, false, NULL, NULL);
	c = ssw_caller_begin("sweeper.take_append_failed_rows()");
	values[0] = PG_GETARG_DATUM(0);
	values[1] = PG_ARGISNULL(1) ? (Datum) 0 : PG_GETARG_DATUM(1);
	values[2] = ObjectIdGetDatum(c.userid);
	if (ssw_spi_exec("SELECT FROM sweeper.append_stream WHERE relation = $1", 1, types, values, NULL, true, 1) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("no row has been appended to a table named \"%s\"", text_to_cstring(DatumGetTextPP(values[0]))),
				 errhint("Give the name that the view shows: SELECT DISTINCT relation FROM sweeper.append_failed_row;")));
	/* those that the caller sees in the view */
	ssw_plan_execute("DELETE FROM sweeper.append_failed AS f USING sweeper._append_stream AS s"
					 " WHERE s.stream = f.stream AND s.relation = $1 AND ($2 IS NULL OR f.id = ANY ($2))"
					 " AND (pg_catalog.pg_has_role($3, s.holder, 'USAGE') OR pg_catalog.has_function_privilege($3, 'sweeper._admin()', 'EXECUTE'))"
					 " RETURNING f.id, s.relation, s.role, f.row_data, f.sqlstate, f.error, f.failed_at", 3, types, values, dest, false);
	ssw_caller_end(&c);
	return (Datum) 0;
}
