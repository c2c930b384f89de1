/*
 * errand.c
 *		A statement in another database of the cluster, as the caller.
 *
 * A dynamic background process connects there as the caller's role, with the rights
 * that this role has there, runs one statement of ours in a transaction of its own, with
 * limits in time, and leaves; the caller waits for its end.  There is one at a time.
 *
 * Shares an Errand in a segment of dynamic shared memory: the caller fills it before
 * the process starts, and reads it when it has ended.  A crash takes both along.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "commands/extension.h"
#include "compat.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "postmaster/bgworker.h"
#include "storage/dsm.h"
#include "storage/ipc.h"
#include "tcop/tcopprot.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timeout.h"

#include "errand.h"
#include "lock.h"
#include "shmem.h"
#include "sql.h"
#include "ssw.h"

#define MAX_ARGS	4
/* It has one of the processes that sweeps need, too. */
#define PATIENCE	"5s"
#define TIMEOUT_MS	(30 * 1000)

PGDLLEXPORT void ssw_errand_main(Datum main_arg);

typedef struct Errand
{
	Oid			database;
	Oid			role;
	int			encoding;		/* of the texts: the caller's, in the end the
								 * other database's */
	bool		connected;
	bool		done;
	int64		result;
	int			sqlerrcode;		/* of the error, or 0 */
	char		message[512];
	char		hint[512];
	char		extension[NAMEDATALEN];
	int			nargs;
	int			arg[MAX_ARGS];	/* offsets in sql */
	char		sql[FLEXIBLE_ARRAY_MEMBER]; /* the statement, then its
											 * arguments */
} Errand;

/* One row with a number, or none: 0. */
static int64
run(const char *sql, int nargs, const char *const *args)
{
	Oid			types[MAX_ARGS];
	Datum		values[MAX_ARGS];
	int64		result = 0;

	for (int i = 0; i < nargs; i++)
	{
		types[i] = TEXTOID;
		values[i] = CStringGetTextDatum(args[i]);
	}
	ssw_sql_begin();
	if (ssw_sql_exec(sql, nargs, types, values, NULL, false, 0) > 0 && SPI_tuptable)
	{
		char	   *text = SPI_getvalue(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1);

		result = text ? pg_strtoint64(text) : 0;
	}
	ssw_sql_end();
	return result;
}

static void
require_extension(const char *name)
{
	if (!OidIsValid(get_extension_oid(name, true)))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("extension \"%s\" is not installed in database \"%s\"", name, get_database_name(MyDatabaseId)),
				 errhint("CREATE EXTENSION %s; as a superuser in database \"%s\".", quote_identifier(name),
						 get_database_name(MyDatabaseId))));
}

void
ssw_errand_main(Datum main_arg)
{
	dsm_segment *seg;
	Errand	   *e;
	const char *args[MAX_ARGS];
	MemoryContext cxt;

	pqsignal(SIGTERM, die);
	BackgroundWorkerUnblockSignals();
	CurrentResourceOwner = ResourceOwnerCreate(NULL, "errand");
	seg = dsm_attach(DatumGetUInt32(main_arg));
	if (seg == NULL)
		return;					/* who waited has given up */
	dsm_pin_mapping(seg);
	e = dsm_segment_address(seg);
	BackgroundWorkerInitializeConnectionByOid(e->database, e->role, SSW_BYPASS_LOGIN);
	e->connected = true;
	cxt = AllocSetContextCreate(TopMemoryContext, "errand", ALLOCSET_DEFAULT_SIZES);
	SetConfigOption("search_path", "pg_catalog, pg_temp", PGC_SUSET, PGC_S_OVERRIDE);
	PG_TRY();
	{
		ssw_sql_start_transaction();
		pgstat_report_activity(STATE_RUNNING, e->sql);
		SetConfigOption("lock_timeout", PATIENCE, PGC_SUSET, PGC_S_OVERRIDE);
		enable_timeout_after(STATEMENT_TIMEOUT, TIMEOUT_MS);
		require_extension(e->extension);
		for (int i = 0; i < e->nargs; i++)
			args[i] = pg_any_to_server(e->sql + e->arg[i], strlen(e->sql + e->arg[i]), e->encoding);
		e->result = run(e->sql, e->nargs, args);
		disable_timeout(STATEMENT_TIMEOUT, false);
		ssw_sql_commit();
		e->done = true;
	}
	PG_CATCH();
	{
		ErrorData  *error;

		disable_timeout(STATEMENT_TIMEOUT, false);
		MemoryContextSwitchTo(cxt);
		error = CopyErrorData();
		FlushErrorState();
		e->sqlerrcode = error->sqlerrcode;
		ssw_shmem_text(e->message, error->message ? error->message : "unknown error", sizeof(e->message));
		ssw_shmem_text(e->hint, error->hint ? error->hint : "", sizeof(e->hint));
		e->encoding = GetDatabaseEncoding();
		ssw_sql_abort();
	}
	PG_END_TRY();
}

static void
stop(int code, Datum handle)
{
	TerminateBackgroundWorker((BackgroundWorkerHandle *) DatumGetPointer(handle));
}

/* Start the process and wait for its end. */
static void
run_there(dsm_segment * seg, const Errand *e)
{
	BackgroundWorker bgw = {0};
	BackgroundWorkerHandle *handle;

	bgw.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	bgw.bgw_start_time = BgWorkerStart_RecoveryFinished;
	bgw.bgw_restart_time = BGW_NEVER_RESTART;
	bgw.bgw_notify_pid = MyProcPid;
	bgw.bgw_main_arg = UInt32GetDatum(dsm_segment_handle(seg));
	strlcpy(bgw.bgw_type, "session_sweeper errand", sizeof(bgw.bgw_type));
	strlcpy(bgw.bgw_name, "session_sweeper errand", sizeof(bgw.bgw_name));
	strlcpy(bgw.bgw_library_name, SSW_EXTENSION, sizeof(bgw.bgw_library_name));
	strlcpy(bgw.bgw_function_name, "ssw_errand_main", sizeof(bgw.bgw_function_name));
	if (!RegisterDynamicBackgroundWorker(&bgw, &handle))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
				 errmsg("could not start a background process for database \"%s\"", get_database_name(e->database)),
				 errhint("Raise \"max_worker_processes\" (now %d) and restart the server.", max_worker_processes)));

	/*
	 * what is not done yet is not wanted any more by who leaves, in whatever
	 * way
	 */
	PG_ENSURE_ERROR_CLEANUP(stop, PointerGetDatum(handle));
	{
		if (WaitForBackgroundWorkerShutdown(handle) == BGWH_POSTMASTER_DIED)
			proc_exit(1);
	}
	PG_END_ENSURE_ERROR_CLEANUP(stop, PointerGetDatum(handle));
}

/* A text of the other database, without what its encoding alone has. */
static const char *
readable(char *text, int encoding)
{
	for (char *c = text; *c && encoding != GetDatabaseEncoding(); c++)
		if (IS_HIGHBIT_SET(*c))
			*c = '?';
	return text;
}

/*
 * Run a statement with arguments of type text as the current role in another database
 * that must have the extension, and return the number in its first row, or 0.  It
 * stays, whatever becomes of the caller's transaction.  Errors: those of the statement,
 * 22P05 the other database's encoding lacks a character, 55000 no such extension, 55P03 and 57014 it waited or took too long, 53000 no process, 08006 it could not connect.
 */
int64
ssw_errand_run(Oid database, const char *extension, const char *sql, int nargs, const char *const *args)
{
	Size		size = strlen(sql) + 1;
	Size		at = size;
	dsm_segment *seg;
	Errand	   *e;
	int64		result;

	Assert(nargs <= MAX_ARGS);
	if (database == MyDatabaseId)
	{
		require_extension(extension);
		return run(sql, nargs, args);
	}
	for (int i = 0; i < nargs; i++)
		size += strlen(args[i]) + 1;
	seg = dsm_create(offsetof(Errand, sql) + size, 0);
	e = dsm_segment_address(seg);
	memset(e, 0, offsetof(Errand, sql));
	e->database = database;
	e->role = GetUserId();
	e->encoding = GetDatabaseEncoding();
	strlcpy(e->extension, extension, sizeof(e->extension));
	e->nargs = nargs;
	strcpy(e->sql, sql);
	for (int i = 0; i < nargs; i++)
	{
		e->arg[i] = at;
		strcpy(e->sql + at, args[i]);
		at += strlen(args[i]) + 1;
	}
	ssw_lock_errand(true);
	run_there(seg, e);
	ssw_lock_errand(false);
	if (!e->connected)
		ereport(ERROR,
				(errcode(ERRCODE_CONNECTION_FAILURE),
				 errmsg("could not connect to database \"%s\" as role \"%s\"", get_database_name(database),
						GetUserNameFromId(e->role, false)),
				 errhint("The server's log says why; the role needs CONNECT on that database, and, before PostgreSQL 17, LOGIN.")));
	if (!e->done)
		ereport(ERROR,
				(errcode(e->sqlerrcode ? e->sqlerrcode : ERRCODE_CONNECTION_FAILURE),
				 errmsg("%s", e->sqlerrcode ? readable(e->message, e->encoding) : "the process for the other database was ended"),
				 e->hint[0] ? errhint("%s", readable(e->hint, e->encoding)) :
				 e->sqlerrcode == ERRCODE_INSUFFICIENT_PRIVILEGE ?
				 errhint("In database \"%s\" a superuser must grant role \"%s\" the use of extension \"%s\".",
						 get_database_name(database), GetUserNameFromId(e->role, false), e->extension) : 0,
				 errcontext("in database \"%s\"", get_database_name(database))));
	result = e->result;
	dsm_detach(seg);
	return result;
}
