/*
 * compat.h
 *		The only file that knows server versions.  Wrappers carry the newest
 *		signature, so that an old branch can be deleted with its version.
 */
#ifndef SSW_COMPAT_H
#define SSW_COMPAT_H

#if PG_VERSION_NUM < 150000 || PG_VERSION_NUM >= 190000
#error "session_sweeper supports PostgreSQL 15 to 18"
#endif

#include "access/genam.h"
#include "access/tableam.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/ipc.h"
#include "utils/acl.h"

/* Words of 64 bits in shared memory are read without a lock, and hooks are set in the postmaster alone. */
#if !defined(PG_HAVE_8BYTE_SINGLE_COPY_ATOMICITY) || defined(EXEC_BACKEND)
#error "session_sweeper needs a platform that reads and writes 8 bytes at once, and fork()"
#endif

#if PG_VERSION_NUM >= 160000
#include "utils/guc_hooks.h"
#endif

/* 16: fields of statistics have no prefix */
#if PG_VERSION_NUM >= 160000
#define ssw_dbstat(entry, field) ((entry)->field)
#define ssw_tabstat(entry, field) ((entry)->counts.field)
#else
#define ssw_dbstat(entry, field) ((entry)->n_##field)
#define ssw_tabstat(entry, field) ((entry)->t_counts.t_##field)
#endif

/* 18: a column may be NOT NULL NOT VALID, and hold nulls */
#if PG_VERSION_NUM >= 180000
#include "access/htup_details.h"
#include "catalog/pg_attribute.h"
#include "catalog/pg_constraint.h"
static inline bool
ssw_column_is_not_null(Oid relid, Form_pg_attribute att)
{
	HeapTuple	tup = att->attnotnull ? findNotNullConstraintAttnum(relid, att->attnum) : NULL;

	return HeapTupleIsValid(tup) && ((Form_pg_constraint) GETSTRUCT(tup))->convalidated;
}
#else
#define ssw_column_is_not_null(relid, att) ((att)->attnotnull)
#endif

/* 16: one function for all object classes (commits afbfc029, c727f511) */
#if PG_VERSION_NUM < 160000
#include "catalog/pg_class.h"
#include "catalog/pg_database.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_tablespace.h"
static inline AclResult
object_aclcheck(Oid classid, Oid objectid, Oid roleid, AclMode mode)
{
	switch (classid)
	{
		case TableSpaceRelationId:
			return pg_tablespace_aclcheck(objectid, roleid, mode);
		case NamespaceRelationId:
			return pg_namespace_aclcheck(objectid, roleid, mode);
		default:
			elog(ERROR, "unexpected object class %u", classid);
	}
	return ACLCHECK_NO_PRIV;
}

static inline bool
object_ownercheck(Oid classid, Oid objectid, Oid roleid)
{
	switch (classid)
	{
		case RelationRelationId:
			return pg_class_ownercheck(objectid, roleid);
		case DatabaseRelationId:
			return pg_database_ownercheck(objectid, roleid);
		case ProcedureRelationId:
			return pg_proc_ownercheck(objectid, roleid);
		default:
			elog(ERROR, "unexpected object class %u", classid);
	}
	return false;
}
#endif

/* 16: onlySummarizing (commit 19d8e230); an update says which indexes need the new row */
#if PG_VERSION_NUM >= 160000
typedef TU_UpdateIndexes ssw_update_indexes;
#define ssw_insert_index_tuples(rri, slot, estate) \
	ExecInsertIndexTuples(rri, slot, estate, false, false, NULL, NIL, false)
#define ssw_update_index_tuples(rri, slot, estate, which) \
	ExecInsertIndexTuples(rri, slot, estate, true, false, NULL, NIL, (which) == TU_Summarizing)
#else
typedef bool ssw_update_indexes;
#define ssw_insert_index_tuples(rri, slot, estate) \
	ExecInsertIndexTuples(rri, slot, estate, false, false, NULL, NIL)
#define ssw_update_index_tuples(rri, slot, estate, which) \
	ExecInsertIndexTuples(rri, slot, estate, true, false, NULL, NIL)
#endif

/* 18: counts of an index scan, for EXPLAIN (commit 0fbceae8) */
#if PG_VERSION_NUM >= 180000
#define ssw_index_beginscan(heap, index, snapshot, nkeys) index_beginscan(heap, index, snapshot, NULL, nkeys, 0)
#else
#define ssw_index_beginscan(heap, index, snapshot, nkeys) index_beginscan(heap, index, snapshot, nkeys, 0)
#endif

/* 16: a member may act as the role only if the grant says so (commit 3d14e171) */
#if PG_VERSION_NUM >= 160000
#define ssw_may_become(member, role) member_can_set_role(member, role)
#else
#define ssw_may_become(member, role) is_member_of_role(member, role)
#endif

/* 17: flags and wait events by name (WaitEventExtensionNew) */
#if PG_VERSION_NUM >= 170000
#include "utils/wait_event.h"
#define ssw_wait_event(name, cache) \
	((cache) == 0 ? ((cache) = WaitEventExtensionNew(name)) : (cache))
#else
#include "utils/wait_event.h"
#define ssw_wait_event(name, cache) ((void) (cache), PG_WAIT_EXTENSION)
#endif

/* 17: processes may connect as roles that may not log in (commit e7689190) */
#if PG_VERSION_NUM >= 170000
#define SSW_BYPASS_LOGIN	BGWORKER_BYPASS_ROLELOGINCHECK
#define ssw_can_run_as(role) ((void) (role), true)
#else
#include "catalog/pg_authid.h"
#include "utils/syscache.h"
#define SSW_BYPASS_LOGIN	0
static inline bool
ssw_can_run_as(Oid role)
{
	HeapTuple	tup = SearchSysCache1(AUTHOID, ObjectIdGetDatum(role));
	bool		can = HeapTupleIsValid(tup) && ((Form_pg_authid) GETSTRUCT(tup))->rolcanlogin;

	if (HeapTupleIsValid(tup))
		ReleaseSysCache(tup);
	return can;
}
#endif

/* 18: RETURNING has options (commit 80feb727) */
#if PG_VERSION_NUM >= 180000
#define ssw_update_returning(stmt) ((stmt)->returningClause != NULL)
#else
#define ssw_update_returning(stmt) ((stmt)->returningList != NIL)
#endif

/* 18: PG_MODULE_MAGIC_EXT carries name and version */
#ifndef PG_MODULE_MAGIC_EXT
#define PG_MODULE_MAGIC_EXT(...) PG_MODULE_MAGIC
#endif

#endif							/* SSW_COMPAT_H */
