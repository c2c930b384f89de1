/*
 * sweep.c
 *		SQL procedure sweep: a pass now.
 *
 * Runs in the caller's session.  Posts a request to the coordinator through shared
 * memory (SswPolicyShared, under SswShared->lock) and waits on a condition variable.
 * A crash loses the request.
 */
#include "postgres.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "pgstat.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "base/argument_checks.h"
#include "base/compat.h"
#include "base/guc.h"
#include "base/identity.h"
#include "base/shmem.h"
#include "base/spi.h"
#include "monitor/all_nodes.h"
#include "policy/policy_rights.h"
#include "policy/repair_hint.h"
#include "process/brake.h"

PG_FUNCTION_INFO_V1(ssw_sweep);

/* Was the policy's row written by the current transaction? */
static bool
is_uncommitted(const SswPolicy *p)
{
	Oid			type = INT4OID;
	Datum		value = Int32GetDatum(p->id);
	SswIdentity save;
	bool		ours = false;
	bool		isnull;

	ssw_spi_begin_as_extension(&save);
	if (ssw_spi_exec("SELECT xmin FROM sweeper.policy WHERE policy_id = $1", 1, &type, &value, NULL, true, 1) > 0)
		ours = TransactionIdIsCurrentTransactionId(DatumGetTransactionId(SPI_getbinval(SPI_tuptable->vals[0],
																					   SPI_tuptable->tupdesc, 1, &isnull)));
	ssw_spi_end_as(&save);
	return ours;
}

/* Say why a policy cannot be swept now, if it cannot. */
static void
check_can_sweep(const SswPolicy *p)
{
	SswPolicyState state;
	const char *why;

	ssw_shmem_require();
	if (RecoveryInProgress())
		ssw_spi_refuse_read_only("sweeper.sweep()");
	ssw_guc_require_service("sweep");
	if (is_uncommitted(p))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot sweep policy \"%s\": this transaction registered or changed it", p->name),
				 errhint("Commit first.")));
	state = ssw_brake_of_policy(p, GetCurrentTimestamp(), SSW_POLICY_PAUSED, &why);
	if (state <= SSW_POLICY_FUSE || state == SSW_POLICY_OFF)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("cannot sweep policy \"%s\": its state is \"%s\"", p->name, ssw_brake_name(state)),
				 why && why[0] ? errdetail_internal("%s", why) : 0,
				 state == SSW_POLICY_OFF ? 0 : errhint("%s", ssw_repair_hint_or_resume(p, NULL))));
}

/* Has this session written rows of the table that statistics do not tell others yet? */
static bool
has_just_written(Oid relid)
{
	PgStat_TableStatus *t = find_tabstat_entry(relid);

	return t && ssw_tabstat(t, tuples_inserted) + ssw_tabstat(t, tuples_updated) > 0;
}

static uint64
post_request(int policy_id, bool force, bool exact)
{
	SswPolicyShared *s;
	uint64		mine;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	s = ssw_shmem_policy(MyDatabaseId, policy_id, true);
	mine = s ? ++s->requested : 0;
	if (s)
	{
		s->request_force = s->request_force || force;
		s->request_exact = s->request_exact || exact;
		ssw_shmem_wake_coordinator(MyDatabaseId);
	}
	LWLockRelease(SswShared->lock);
	if (mine == 0)
		ssw_shmem_refuse_policy();
	return mine;
}

typedef struct Answer
{
	int64		pass_id;		/* 0: nothing was due */
	int			code;			/* SQLSTATE when it did not end well, or 0 */
	bool		running;		/* a pass runs */
	bool		locked;			/* its table is */
	char		error[SSW_MESSAGE_LEN];
} Answer;

static bool
request_done(int policy_id, uint64 mine, Answer *answer)
{
	SswPolicyShared s;

	memset(answer, 0, sizeof(Answer));
	/* the entry is gone, or one that was made since */
	if (!ssw_shmem_read_policy(policy_id, &s) || s.requested < mine)
	{
		answer->code = ERRCODE_UNDEFINED_OBJECT;
		strlcpy(answer->error, "it was unregistered", sizeof(answer->error));
		return true;
	}
	answer->running = s.running_pass >= 0;
	answer->locked = s.state == SSW_POLICY_LOCKED;
	if (s.completed < mine)
		return false;
	answer->pass_id = s.request_found ? s.last_pass_id : 0;
	answer->code = s.request_code;
	strlcpy(answer->error, s.request_error, sizeof(answer->error));
	return true;
}

/* Wait on the latch, without a snapshot, until the coordinator has answered; false: not in time. */
static bool
wait_for_pass(int policy_id, uint64 mine, int64 timeout_us, Answer *answer)
{
	static uint32 wait_event = 0;
	TimestampTz until = GetCurrentTimestamp() + timeout_us;

	ConditionVariablePrepareToSleep(&SswShared->request_cv);
	while (!request_done(policy_id, mine, answer))
	{
		long		left = (until - GetCurrentTimestamp()) / 1000;

		if (left <= 0)
		{
			ConditionVariableCancelSleep();
			return false;
		}
		(void) ConditionVariableTimedSleep(&SswShared->request_cv, Min(left, 1000),
										   ssw_wait_event("SessionSweeperSweep", wait_event));
	}
	ConditionVariableCancelSleep();
	return true;
}

/* A statement that finds the holders of its locks. */
static char *
lock_query(const char *relation)
{
	return ssw_spi_text_as_extension(psprintf("SELECT sweeper._lock_query(%s)", quote_literal_cstr(relation)), 0, NULL, NULL, true);
}

/* The request was not dealt with in time. */
static void
report_timeout(const char *policy, const char *relation, const Answer *answer)
{
	if (answer->running)
		ereport(ERROR,
				(errcode(ERRCODE_QUERY_CANCELED),
				 errmsg("the pass did not end within the timeout"),
				 errdetail("It continues in the background."),
				 errhint("See sweeper.stat_progress.")));
	if (answer->locked)
		ereport(ERROR,
				(errcode(ERRCODE_QUERY_CANCELED),
				 errmsg("no pass began within the timeout"),
				 errdetail("It is still requested. Another transaction holds a lock on table %s, or on a partition or child of it.", relation),
				 errhint("%s", lock_query(relation))));
	ereport(ERROR,
			(errcode(ERRCODE_QUERY_CANCELED),
			 errmsg("no pass began within the timeout"),
			 errdetail("It is still requested. An open transaction that ran ALTER EXTENSION, or other databases whose turn it is, may delay it."),
			 errhint("SELECT state, reason FROM sweeper.policy_status WHERE policy = %s; SELECT * FROM sweeper.problem; SELECT * FROM sweeper.stat_process;",
					 quote_literal_cstr(policy))));
}

/* The request was dealt with, but not as the caller wished. */
static void
report_failure(const char *policy, const char *relation, const Answer *answer)
{
	char	   *hint = answer->code == ERRCODE_LOCK_NOT_AVAILABLE ? lock_query(relation) :
	psprintf("SELECT * FROM sweeper.problem WHERE policy = %s;", quote_literal_cstr(policy));

	ereport(ERROR,
			(errcode(answer->code),
			 errmsg("policy \"%s\" could not be swept", policy),
			 errdetail_internal("%s", answer->error),
			 errhint("%s", hint)));
}

/* A pass of the policy on each other node; waits for all, and then names one that failed. */
static void
sweep_at_nodes(const char *name, bool wait, int64 timeout_us, bool force)
{
	ListCell   *lc;

	foreach(lc, ssw_nodes->ask_others(psprintf("CALL sweeper.sweep(%s, %s, '%ld microseconds', %s)", quote_literal_cstr(name),
											   wait ? "true" : "false", (long) timeout_us, force ? "true" : "false"), 0))
	{
		SswAnswer  *a = lfirst(lc);

		if (a->failed)
			ereport(ERROR,
					(errcode(ERRCODE_EXTERNAL_ROUTINE_EXCEPTION),
					 errmsg("policy \"%s\" could not be swept on node %s", name, a->node),
					 errdetail_internal("%s", a->text),
					 errhint("SELECT * FROM sweeper.problem_all;")));
	}
}

/* CALL sweep(policy, wait, timeout, force, INOUT pass). */
Datum
ssw_sweep(PG_FUNCTION_ARGS)
{
	CallContext *context = (CallContext *) fcinfo->context;
	bool		wait = PG_GETARG_BOOL(1);
	bool		force = PG_GETARG_BOOL(3);
	SswPolicy  *p = ssw_rights_policy(PG_ARGISNULL(0) ? NULL : PG_GETARG_TEXT_PP(0), SSW_RIGHT_ADMIN);
	int64		timeout_us;
	int			policy_id = p->id;
	char	   *name = pstrdup(p->name);
	char	   *relation = pstrdup(p->relation);
	bool		exact = force || has_just_written(p->relid);
	bool		leads = ssw_nodes->leads(p->relid);
	Answer		answer = {0};
	uint64		mine;
	TupleDesc	desc;
	Datum		value;
	bool		isnull;

	for (int i = 1; i <= 3; i++)
		ssw_argument_not_null(fcinfo, i, i == 1 ? "wait" : i == 2 ? "timeout" : "force");
	timeout_us = ssw_argument_interval("timeout", PG_GETARG_INTERVAL_P(2), SSW_MIN_TIMEOUT);
	check_can_sweep(p);
	if (wait && (context == NULL || !IsA(context, CallContext) || context->atomic))
		ereport(ERROR,
				(errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
				 errmsg("sweep cannot wait inside a transaction block"),
				 errhint("Call it outside of one, or CALL sweeper.sweep(%s, wait => false).", quote_literal_cstr(p->name))));
	if (wait)
	{
		ssw_spi_begin_nonatomic();
		SPI_commit();
		SPI_finish();
		/* the transaction that SPI_commit() began has no snapshot yet */
		mine = post_request(policy_id, force, exact);
		if (leads)
		{
			PushActiveSnapshot(GetTransactionSnapshot());
			sweep_at_nodes(name, wait, timeout_us, force);
			PopActiveSnapshot();
		}
		if (!wait_for_pass(policy_id, mine, timeout_us, &answer))
			report_timeout(name, relation, &answer);
		if (answer.code)
			report_failure(name, relation, &answer);
		if (answer.error[0])
			ereport(WARNING,
					(errmsg("the pass of policy \"%s\" left dead rows: %s", name, answer.error),
					 errhint("SELECT * FROM sweeper.problem WHERE policy = %s;", quote_literal_cstr(name))));
	}
	else
	{
		(void) post_request(policy_id, force, exact);
		if (leads)
			sweep_at_nodes(name, wait, timeout_us, force);
	}
	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	value = Int64GetDatum(answer.pass_id);
	isnull = answer.pass_id == 0;
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), &value, &isnull)));
}
