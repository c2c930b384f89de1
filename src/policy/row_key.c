/*
 * row_key.c
 *		The text of a row's key, and the row's columns that it stands for.
 *
 * Runs in any process, in a transaction, as the relation's owner: input
 * functions of key columns may be the owner's code.  Shares nothing.  A crash
 * leaves nothing behind.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/fmgrprotos.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/typcache.h"
#include "utils/uuid.h"

#include "base/argument_checks.h"
#include "base/compat.h"
#include "base/identity.h"
#include "base/relation_guard.h"
#include "policy/row_key.h"

/* A row of texts, one for each column of a composite key. */
static TupleDesc
texts_of_key(int n)
{
	TupleDesc	desc = CreateTemplateTupleDesc(n);

	for (int i = 0; i < n; i++)
		TupleDescInitEntry(desc, i + 1, "", TEXTOID, -1, 0);
	return BlessTupleDesc(desc);
}

/*
 * Values whose text may depend on settings of the session are read and written under those
 * of the gate: one text is one row for all functions.  Returns what unpin() undoes.
 */
static int
pin(int n, const Oid *types)
{
	int			level;

	for (int i = 0; i < n; i++)
		switch (types[i])
		{
			case TEXTOID:
			case VARCHAROID:
			case UUIDOID:
			case INT4OID:
			case INT8OID:
				break;
			default:
				level = NewGUCNestLevel();
				ssw_identity_pin_text();
				return level;
		}
	return 0;
}

static void
unpin(int level)
{
	if (level > 0)
		AtEOXact_GUC(true, level);
}

/* The texts of the key's columns; an error when it is no text of a key. */
static char **
key_fields(const SswPolicy *p, const char *key)
{
	char	  **fields = palloc(Max(p->nkeys, 1) * sizeof(char *));
	Datum		texts[INDEX_MAX_KEYS];
	bool		nulls[INDEX_MAX_KEYS];
	HeapTupleData tup = {0};
	TupleDesc	desc;

	fields[0] = pstrdup(key);
	if (p->nkeys <= 1)
		return fields;
	desc = texts_of_key(p->nkeys);
	tup.t_data = DatumGetHeapTupleHeader(OidInputFunctionCall(F_RECORD_IN, fields[0], RECORDOID, desc->tdtypmod));
	tup.t_len = HeapTupleHeaderGetDatumLength(tup.t_data);
	heap_deform_tuple(&tup, desc, texts, nulls);
	for (int i = 0; i < p->nkeys; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_TEXT_REPRESENTATION),
					 errmsg("invalid key \"%s\" for policy \"%s\"", key, p->name),
					 errdetail("A column of the key is null.")));
		fields[i] = TextDatumGetCString(texts[i]);
	}
	return fields;
}

/* How a key is written, for an error in one. */
static void
hint_key(void *arg)
{
	const SswPolicy *p = arg;
	StringInfoData columns;

	if (ERRCODE_TO_CATEGORY(geterrcode()) != ERRCODE_DATA_EXCEPTION)
		return;
	initStringInfo(&columns);
	for (int i = 0; i < p->nkeys; i++)
		appendStringInfo(&columns, "%s%s", i ? ", " : "", p->key[i]);
	if (p->nkeys == 0)
		errhint("A key of policy \"%s\" is the ctid of a row, as in '(0,1)'.", p->name);
	else if (p->nkeys == 1)
		errhint("A key of policy \"%s\" is a value of its column %s.", p->name, columns.data);
	else
		errhint("A key of policy \"%s\" is a row of its columns %s, as in '(1,2)'; in an array of keys it is quoted, as in '{\"(1,2)\"}'.",
				p->name, columns.data);
}

/* The key as values of those types.  An error when it is no text of a key. */
void
ssw_key_read(const SswPolicy *p, const char *key, const Oid *types, const Oid *input, const Oid *ioparam, Datum *values)
{
	ErrorContextCallback callback = {error_context_stack, hint_key, unconstify(SswPolicy *, p)};
	int			n = Max(p->nkeys, 1);
	char	  **fields;
	int			level;

	error_context_stack = &callback;
	fields = key_fields(p, key);
	level = pin(n, types);
	for (int i = 0; i < n; i++)
	{
		if (!ssw_key_is_canonical(types[i]))
			ssw_gate_require();
		values[i] = OidInputFunctionCall(input[i], fields[i], ioparam[i], -1);
	}
	unpin(level);
	error_context_stack = callback.previous;
}

/* The same as values of its columns; returns how many. */
int
ssw_key_params(const SswPolicy *p, const char *key, Oid *types, Datum *values)
{
	int			n = Max(p->nkeys, 1);
	Oid			input[SSW_KEY_MAX];
	Oid			ioparam[SSW_KEY_MAX];

	for (int i = 0; i < n; i++)
	{
		types[i] = p->nkeys == 0 ? TIDOID :
			get_atttype(p->relid, get_attnum(p->relid, p->key[i]));
		getTypeInputInfo(types[i], &input[i], &ioparam[i]);
	}
	ssw_key_read(p, key, types, input, ioparam, values);
	return n;
}

/* The table and its key, by which nodes of a cluster know that they speak of the same policy. */
char	   *
ssw_key_place(const SswPolicy *p)
{
	StringInfoData buf;
	int			level = ssw_identity_pin("quote_all_identifiers", "off");

	initStringInfo(&buf);
	appendStringInfo(&buf, "%d %s(", p->shared_as, ssw_guard_relation(p->relid));
	for (int i = 0; i < p->nkeys; i++)
		appendStringInfo(&buf, "%s%s", i ? ", " : "", quote_identifier(p->key[i]));
	appendStringInfoChar(&buf, ')');
	AtEOXact_GUC(true, level);
	return buf.data;
}

/*
 * Is the policy that another node's, which gives its place as the third argument?  A
 * policy that only has the same name would say that living rows are gone.
 */
void
ssw_key_check_place(const SswPolicy *p, FunctionCallInfo fcinfo)
{
	char	   *here = ssw_key_place(p);
	char	   *there;

	ssw_argument_not_null(fcinfo, 2, "place");
	there = text_to_cstring(PG_GETARG_TEXT_PP(2));
	if (strcmp(here, there) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("policy \"%s\" of this node is not the cluster's policy of that name", p->name),
				 errdetail("Its number, table and key are %s here, and %s on the node that asks.", here, there),
				 errhint("The session is not gone: keep it. A change of the policy is here a moment later: try again. A policy of this node alone needs another name.")));
}

/* Is it char(n), whose padding is no part of a key? */
static bool
is_padded(Oid type)
{
	return getBaseType(type) == BPCHAROID;
}

/*
 * Can a base type be that of a key which clients name?  Its text is the same whenever
 * values are equal, so that every spelling of a key reaches the same session; and its
 * input and output, outside of the gate, run nothing of a user's.
 */
bool
ssw_key_is_canonical(Oid type)
{
	switch (type)
	{
		case UUIDOID:
		case INT2OID:
		case INT4OID:
		case INT8OID:
		case OIDOID:
		case TEXTOID:
		case VARCHAROID:
		case BPCHAROID:
		case NAMEOID:
		case BYTEAOID:
		case BOOLOID:
		case DATEOID:
		case TIMESTAMPOID:
		case TIMESTAMPTZOID:
			return true;
		default:
			return get_typtype(type) == TYPTYPE_ENUM;
	}
}

/* By the type's output function and never by a cast, which can be a user's function. */
static char *
value_text(Oid type, Datum value)
{
	Oid			output;
	bool		varlena;

	if (!ssw_key_is_canonical(type))
		ssw_gate_require();
	if (is_padded(type))
		return TextDatumGetCString(DirectFunctionCall1(rtrim1, value));
	getTypeOutputInfo(type, &output, &varlena);
	return OidOutputFunctionCall(output, value);
}

static char *
row_text(int n, const Oid *types, const Datum *values)
{
	Datum		texts[INDEX_MAX_KEYS];
	bool		nulls[INDEX_MAX_KEYS] = {0};

	for (int i = 0; i < n; i++)
		texts[i] = CStringGetTextDatum(value_text(types[i], values[i]));
	return OidOutputFunctionCall(F_RECORD_OUT, HeapTupleGetDatum(heap_form_tuple(texts_of_key(n), texts, nulls)));
}

/* Can a column have such values whose text is never quoted, and needs no function? */
static bool
is_plain(Oid type)
{
	return type == UUIDOID || type == INT2OID || type == INT4OID || type == INT8OID;
}

static char *
put_plain(char *to, Oid type, Datum value)
{
	const char *bytes;

	switch (type)
	{
		case INT2OID:
			return to + pg_itoa(DatumGetInt16(value), to);
		case INT4OID:
			return to + pg_ltoa(DatumGetInt32(value), to);
		case INT8OID:
			return to + pg_lltoa(DatumGetInt64(value), to);
	}
	bytes = (const char *) DatumGetUUIDP(value)->data;
	for (int i = 0; i < UUID_LEN; i += 2)
	{
		if (i >= 4 && i <= 10)
			*to++ = '-';
		to += hex_encode(bytes + i, 2, to);
	}
	return to;
}

/* The key's text from the values of its columns, none of them null. */
char	   *
ssw_key_text(int n, const Oid *types, const Datum *values)
{
	int			level;
	char	   *result;
	char		plain[SSW_KEY_MAX * 40];
	char	   *end = plain;

	if (n == 1 && (types[0] == TEXTOID || types[0] == VARCHAROID))
		return TextDatumGetCString(values[0]);
	for (int i = 0; i < n && end; i++)
	{
		if (n > 1)
			*end++ = i ? ',' : '(';
		end = is_plain(types[i]) ? put_plain(end, types[i], values[i]) : NULL;
	}
	if (end)
	{
		if (n > 1)
			*end++ = ')';
		return pnstrdup(plain, end - plain);
	}
	level = pin(n, types);
	result = n == 1 ? value_text(types[0], values[0]) : row_text(n, types, values);
	unpin(level);
	return result;
}

/* The same from what ssw_key_value_sql() returns. */
text	   *
ssw_key_of_value(Oid type, Datum value)
{
	HeapTupleData tup = {0};
	TupleDesc	desc;
	Oid			types[SSW_KEY_MAX];
	Datum		values[SSW_KEY_MAX];
	bool		nulls[SSW_KEY_MAX];
	int			n;

	if (type == TEXTOID)
		return DatumGetTextPCopy(value);
	if (type != RECORDOID)
		return cstring_to_text(ssw_key_text(1, &type, &value));
	tup.t_data = DatumGetHeapTupleHeader(value);
	tup.t_len = HeapTupleHeaderGetDatumLength(tup.t_data);
	desc = lookup_rowtype_tupdesc(RECORDOID, HeapTupleHeaderGetTypMod(tup.t_data));
	heap_deform_tuple(&tup, desc, values, nulls);
	n = desc->natts;
	for (int i = 0; i < n; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NOT_NULL_VIOLATION),
					 errmsg("a column of the key is null")));
		types[i] = TupleDescAttr(desc, i)->atttypid;
	}
	ReleaseTupleDesc(desc);
	return cstring_to_text(ssw_key_text(n, types, values));
}

/* The text of a key column, over t; concat() calls the output function, too. */
char	   *
ssw_key_column_sql(const SswPolicy *p, int i)
{
	return psprintf(is_padded(get_atttype(p->relid, get_attnum(p->relid, p->key[i]))) ?
					"pg_catalog.concat(t.%s::pg_catalog.text)" : "pg_catalog.concat(t.%s)", quote_identifier(p->key[i]));
}

/* Are all columns plain in that table, and none of them null? */
static bool
has_plain_key(const SswPolicy *p, Oid relid)
{
	for (int i = 0; i < p->nkeys; i++)
	{
		HeapTuple	tup = SearchSysCacheAttName(relid, p->key[i]);
		Form_pg_attribute att = HeapTupleIsValid(tup) ? (Form_pg_attribute) GETSTRUCT(tup) : NULL;
		bool		plain = att && is_plain(att->atttypid) && ssw_column_is_not_null(relid, att);

		if (tup)
			ReleaseSysCache(tup);
		if (!plain)
			return false;
	}
	return p->nkeys > 0;
}

/*
 * The same as ssw_key_text() as an expression over t, never null.  Where nothing is
 * quoted, a row takes three times as long to become a text as its columns do.
 */
char	   *
ssw_key_sql(const SswPolicy *p)
{
	StringInfoData buf;
	bool		plain = has_plain_key(p, p->relid);

	if (p->nkeys == 0)
		return pstrdup("t.ctid::pg_catalog.text");
	if (p->nkeys == 1)
		return ssw_key_column_sql(p, 0);
	initStringInfo(&buf);
	for (int i = 0; i < p->nkeys; i++)
		if (plain)
			appendStringInfo(&buf, "%st.%s", i ? ", ',', " : "pg_catalog.concat('(', ", quote_identifier(p->key[i]));
		else
			appendStringInfo(&buf, "%s%s", i ? ", " : "ROW(", ssw_key_column_sql(p, i));
	appendStringInfoString(&buf, plain ? ", ')')" : ")::pg_catalog.text");
	return buf.data;
}

/* The key of a row of this leaf for ssw_key_of_value(): where that is faster, its columns. */
char	   *
ssw_key_value_sql(const SswPolicy *p, Oid leaf)
{
	StringInfoData buf;

	if (p->audit == SSW_AUDIT_HASH || !has_plain_key(p, leaf))
		return ssw_key_shown_sql(p);
	if (p->nkeys == 1)
		return psprintf("t.%s", quote_identifier(p->key[0]));
	initStringInfo(&buf);
	for (int i = 0; i < p->nkeys; i++)
		appendStringInfo(&buf, "%st.%s", i ? ", " : "ROW(", quote_identifier(p->key[i]));
	appendStringInfoChar(&buf, ')');
	return buf.data;
}

/*
 * The type's own equality, as OPERATOR(schema.name): under an owner's search_path
 * a bare = could be another role's function.
 */
char	   *
ssw_key_equals(Oid type)
{
	Oid			op = lookup_type_cache(type, TYPECACHE_EQ_OPR)->eq_opr;

	if (!OidIsValid(op))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_FUNCTION),
				 errmsg("type %s has no equality operator", format_type_be(type))));
	return ssw_guard_operator(op);
}

static SswHeartbeatId
text_id(const char *key)
{
	SswHeartbeatId id;
	Datum		hash = DirectFunctionCall1(sha256_bytea, CStringGetTextDatum(key));

	memcpy(&id, VARDATA_ANY(DatumGetByteaPP(hash)), sizeof(id));
	return id;
}

/*
 * What stands in memory for a key whose columns have these base types and values.  Two
 * keys may share a hash, one in 2^128: then the heartbeats of one session would keep the
 * other alive.
 */
SswHeartbeatId
ssw_key_value_id(int n, const Oid *types, const Datum *values)
{
	SswHeartbeatId id = {{0}};

	switch (n == 1 ? types[0] : InvalidOid)
	{
		case UUIDOID:
			memcpy(&id, DatumGetUUIDP(values[0]), sizeof(id));
			return id;
		case INT2OID:
			id.part[0] = (uint64) DatumGetInt16(values[0]);
			return id;
		case INT4OID:
			id.part[0] = (uint64) DatumGetInt32(values[0]);
			return id;
		case INT8OID:
			id.part[0] = (uint64) DatumGetInt64(values[0]);
			return id;
		default:
			return text_id(ssw_key_text(n, types, values));
	}
}

/* The same for a canonical key. */
SswHeartbeatId
ssw_key_heartbeat_id(const SswPolicy *p, const char *key)
{
	Oid			type = p->nkeys == 1 ? getBaseType(get_atttype(p->relid, get_attnum(p->relid, p->key[0]))) : InvalidOid;
	SswHeartbeatId id = {{0}};

	/* a key column that was altered may be null: its text is empty */
	switch (key[0] ? type : InvalidOid)
	{
		case UUIDOID:
			memcpy(&id, DatumGetUUIDP(DirectFunctionCall1(uuid_in, CStringGetDatum(key))), sizeof(id));
			return id;
		case INT2OID:
		case INT4OID:
		case INT8OID:
			id.part[0] = (uint64) strtoll(key, NULL, 10);
			return id;
		default:
			return text_id(key);
	}
}

/* The key as evidence shows it: where keys are credentials, a hash. */
char	   *
ssw_key_shown(const SswPolicy *p, const char *key)
{
	Datum		hash;

	if (p->audit != SSW_AUDIT_HASH)
		return pstrdup(key);
	hash = DirectFunctionCall1(sha256_bytea, CStringGetTextDatum(key));
	return TextDatumGetCString(DirectFunctionCall2(binary_encode, hash, CStringGetTextDatum("hex")));
}

/* The same as an expression over t. */
char	   *
ssw_key_shown_sql(const SswPolicy *p)
{
	if (p->audit != SSW_AUDIT_HASH)
		return p->key_text;
	return psprintf(SSW_KEY_HASH("%s"), p->key_text);
}

/* Boolean over t: the row has the key whose values begin at that parameter. */
char	   *
ssw_key_matches(const SswPolicy *p, int first_param)
{
	StringInfoData buf;

	initStringInfo(&buf);
	if (p->nkeys == 0)
		appendStringInfo(&buf, "t.ctid " SSW_OP("=") " $%d", first_param);
	for (int i = 0; i < p->nkeys; i++)
		appendStringInfo(&buf, "%st.%s %s $%d", i ? " AND " : "", quote_identifier(p->key[i]),
						 ssw_key_equals(get_atttype(p->relid, get_attnum(p->relid, p->key[i]))),
						 first_param + i);
	return buf.data;
}
