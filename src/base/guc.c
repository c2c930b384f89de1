/*
 * guc.c
 *		The settings session_sweeper.*: definitions and check hooks.
 *
 * Defined in every process that loads the library; shares nothing.  All but
 * heartbeat_memory and max_policies are reloadable; allow_attach is the session's own.
 * A crash leaves nothing behind.
 */
#include "postgres.h"

#include <limits.h>

#include "access/xact.h"
#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/varlena.h"

#include "base/guc.h"
#include "base/identity.h"

bool		ssw_enabled = true;
static char *databases = NULL;
int			ssw_max_workers;
int			ssw_max_coordinators;
int			ssw_worker_idle_timeout;
int			ssw_shutdown_timeout;
int			ssw_min_interval;
static int	ssw_synchronous_commit = SYNCHRONOUS_COMMIT_LOCAL_FLUSH;
int			ssw_max_gap;
int			ssw_fuse_hold;
int			ssw_cleanup_event_retention;
int			ssw_pass_retention;
int			ssw_heartbeat_memory = -1;
double		ssw_refresh_ahead = 0.25;
int			ssw_usage_event_retention;
int			ssw_event_interval;
bool		ssw_allow_attach = true;
int			ssw_max_task_workers;
int			ssw_max_queued_tasks;
int			ssw_max_appended_rows;
int			ssw_task_timeout;
int			ssw_cancel_grace;
int			ssw_task_retention;
char	   *ssw_machine_id = NULL;
int			ssw_max_wal_rate;
int			ssw_max_replica_lag;
int			ssw_max_policies = 1024;
int			ssw_max_hard_time_limit;

static const struct config_enum_entry synchronous_commit_options[] = {
	{"local", SYNCHRONOUS_COMMIT_LOCAL_FLUSH, false},
	{"remote_write", SYNCHRONOUS_COMMIT_REMOTE_WRITE, false},
	{"remote_apply", SYNCHRONOUS_COMMIT_REMOTE_APPLY, false},
	{"on", SYNCHRONOUS_COMMIT_REMOTE_FLUSH, false},
	{"off", SYNCHRONOUS_COMMIT_OFF, false},
	{NULL, 0, false}
};

static bool
check_databases(char **newval, void **extra, GucSource source)
{
	char	   *copy = pstrdup(*newval);
	List	   *names;
	bool		ok = SplitIdentifierString(copy, ',', &names);

	if (!ok)
		GUC_check_errdetail("List syntax is invalid: give database names separated by commas.");
	list_free(names);
	pfree(copy);
	return ok;
}

/* Is a database in session_sweeper.databases?  An empty list means all. */
bool
ssw_guc_database_wanted(const char *name)
{
	char	   *copy = pstrdup(databases ? databases : "");
	List	   *names;
	ListCell   *lc;
	bool		found = false;

	if (!SplitIdentifierString(copy, ',', &names) || names == NIL)
		return true;
	foreach(lc, names)
		found = found || strcmp(lfirst(lc), name) == 0;
	list_free(names);
	pfree(copy);
	return found;
}

/* Refuse to wait for what nobody does in this database. */
void
ssw_guc_require_service(const char *what)
{
	const char *name = get_database_name(MyDatabaseId);
	char	   *version = ssw_identity_other_version();

	if (!ssw_enabled)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot %s: \"session_sweeper.enabled\" is off", what),
				 errhint("ALTER SYSTEM SET session_sweeper.enabled = on; SELECT pg_reload_conf();")));
	if (!ssw_guc_database_wanted(name))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot %s: \"session_sweeper.databases\" does not list \"%s\"", what, name),
				 errhint("ALTER SYSTEM SET session_sweeper.databases = %s; SELECT pg_reload_conf();",
						 quote_literal_cstr(psprintf("%s, %s", databases, quote_identifier(name))))));
	if (version)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot %s: the library is version %s, the SQL version %s", what, SSW_VERSION, version),
				 errhint("SELECT next_step FROM sweeper.problem WHERE problem = 'restart needed';")));
}

/* Settings that are numbers.  Only the postmaster can reserve memory: others do not define those of PGC_POSTMASTER. */
static const struct
{
	const char *name;
	const char *what;
	const char *more;
	int		   *variable;
	int			value;
	int			least;
	int			most;
	GucContext	context;
	int			flags;
}			numbers[] = {

	{"session_sweeper.max_workers", "Sets the maximum number of worker processes in the server.",
	"Each takes a slot of max_worker_processes.", &ssw_max_workers, 2, 1, 256, PGC_SIGHUP, 0},
	{"session_sweeper.max_coordinators", "Sets the maximum number of coordinators in the server.",
	"If there are more databases, they take turns.", &ssw_max_coordinators, 2, 1, 256, PGC_SIGHUP, 0},
	{"session_sweeper.worker_idle_timeout", "Sets how long a worker stays connected without work.",
	NULL, &ssw_worker_idle_timeout, 60000, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_MS},
	{"session_sweeper.shutdown_timeout", "Sets how long a worker may take to end its batch after SIGTERM.",
	NULL, &ssw_shutdown_timeout, 3000, 0, 60000, PGC_SIGHUP, GUC_UNIT_MS},
	{"session_sweeper.min_interval", "Sets the shortest time between two looks at one policy.",
	NULL, &ssw_min_interval, 40, 1, 60000, PGC_SIGHUP, GUC_UNIT_MS},
	{"session_sweeper.max_gap", "Sets the time after which the policies of a database are held if none of them was checked.",
	"0 disables.", &ssw_max_gap, 3 * 24 * 60 * 60, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_S},
	{"session_sweeper.fuse_hold", "Sets the longest time for which the fuse holds rows.",
	NULL, &ssw_fuse_hold, 60 * 60, 1, INT_MAX, PGC_SIGHUP, GUC_UNIT_S},
	{"session_sweeper.cleanup_event_retention", "Sets how long rows of sweeper.cleanup_event, and ended sessions, are kept; 0 keeps them forever.",
	NULL, &ssw_cleanup_event_retention, 90 * 24 * 60, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_MIN},
	{"session_sweeper.pass_retention", "Sets how long rows of sweeper.pass are kept; 0 keeps them forever.",
	NULL, &ssw_pass_retention, 30 * 24 * 60, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_MIN},
	{"session_sweeper.max_policies", "Sets how many policies of users have a slot in shared memory, in all databases together.",
	"Built-in policies do not count.", &ssw_max_policies, 1024, 1, 100000, PGC_POSTMASTER, 0},
	{"session_sweeper.heartbeat_memory", "Sets the amount of shared memory for heartbeats.",
	"-1 takes 1/64 of shared_buffers, at least 8 MB and at most 256 MB.", &ssw_heartbeat_memory, -1, -1, 256 * 1024 * 1024, PGC_POSTMASTER, GUC_UNIT_KB},
	{"session_sweeper.usage_event_retention", "Sets how long rows of sweeper.usage_event are kept; 0 keeps them forever.",
	NULL, &ssw_usage_event_retention, 0, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_MIN},
	{"session_sweeper.max_task_workers", "Sets how many workers may run commands of submit_sql().",
	"The rest of max_workers is for sweeps.", &ssw_max_task_workers, 1, 0, 256, PGC_SIGHUP, 0},
	{"session_sweeper.max_queued_tasks", "Sets how many commands of submit_sql() may wait in a database.",
	NULL, &ssw_max_queued_tasks, 10000, 1, INT_MAX, PGC_SIGHUP, 0},
	{"session_sweeper.task_timeout", "Sets the default time limit of commands of submit_sql(); 0 disables.",
	NULL, &ssw_task_timeout, 10 * 60 * 1000, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_MS},
	{"session_sweeper.max_appended_rows", "Sets how many rows of append() may wait, or be set aside, for one table.",
	NULL, &ssw_max_appended_rows, 100000, 1, INT_MAX, PGC_SUSET, 0},
	{"session_sweeper.cancel_grace", "Sets how long a cancelled command may continue before it is interrupted.",
	NULL, &ssw_cancel_grace, 30000, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_MS},
	{"session_sweeper.max_wal_rate", "Sets how much WAL per second all sweeps together may write; 0 disables.",
	NULL, &ssw_max_wal_rate, 0, 0, MAX_KILOBYTES, PGC_SIGHUP, GUC_UNIT_KB},
	{"session_sweeper.max_replica_lag", "Sets the replica lag beyond which sweeps wait; 0 disables.",
	NULL, &ssw_max_replica_lag, 0, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_MS},
	{"session_sweeper.max_hard_time_limit", "Sets the longest hard_time_limit that a policy may have.",
	"It also limits policies that have a longer one already.", &ssw_max_hard_time_limit, 60 * 1000, 1000, 24 * 60 * 60 * 1000, PGC_SIGHUP, GUC_UNIT_MS},
	{"session_sweeper.task_retention", "Sets how long tasks are kept after their end; 0 keeps them forever.",
	NULL, &ssw_task_retention, 7 * 24 * 60, 0, INT_MAX, PGC_SIGHUP, GUC_UNIT_MIN},
	{"session_sweeper.event_interval", "Sets the shortest time between two notifications about tasks.",
	NULL, &ssw_event_interval, 50, 0, 60000, PGC_SIGHUP, GUC_UNIT_MS},
};

/* Define every setting, then reserve the prefix. */
void
ssw_guc_init(void)
{
	for (int i = 0; i < lengthof(numbers); i++)
		if (numbers[i].context != PGC_POSTMASTER || process_shared_preload_libraries_in_progress)
			DefineCustomIntVariable(numbers[i].name, numbers[i].what, numbers[i].more, numbers[i].variable, numbers[i].value,
									numbers[i].least, numbers[i].most, numbers[i].context, numbers[i].flags, NULL, NULL, NULL);
	DefineCustomBoolVariable("session_sweeper.enabled",
							 "Enables sweeps in the whole server.",
							 NULL, &ssw_enabled, true, PGC_SIGHUP, 0,
							 NULL, NULL, NULL);
	DefineCustomStringVariable("session_sweeper.databases",
							   "Sets the databases to sweep; empty means all that have the extension.",
							   NULL, &databases, "", PGC_SIGHUP, GUC_LIST_INPUT,
							   check_databases, NULL, NULL);
	DefineCustomEnumVariable("session_sweeper.synchronous_commit",
							 "Sets synchronous_commit of sweep transactions.",
							 NULL, &ssw_synchronous_commit,
							 SYNCHRONOUS_COMMIT_LOCAL_FLUSH,
							 synchronous_commit_options, PGC_SIGHUP, 0,
							 NULL, NULL, NULL);
	DefineCustomRealVariable("session_sweeper.refresh_ahead",
							 "Sets how long before its deadline the row of a living session is refreshed.",
							 "It is a fraction of the session's time to live.", &ssw_refresh_ahead, 0.25, 0.01, 0.9,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("session_sweeper.machine_id",
							   "Sets the name of this server in its tasks; empty means host name and port.",
							   NULL, &ssw_machine_id, "", PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomBoolVariable("session_sweeper.allow_attach",
							 "Allows attach().",
							 "Turn it off for roles that connect through a pooler in transaction mode.", &ssw_allow_attach, true, PGC_USERSET, 0,
							 NULL, NULL, NULL);
	MarkGUCPrefixReserved("session_sweeper");
}
