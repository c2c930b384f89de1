/*
 * cascade.c
 *		What ends with a worker: its tasks, its providers, the jobs that nobody
 *		offers any more.
 *
 * Runs wherever sessions end (audit.c), in that transaction, as the extension's
 * owner: in a worker process of ours, or in the session of who releases.  One
 * statement for all workers of a batch in each step.  Shares nothing but the
 * tables; a crash, or a rollback, undoes it with the end itself.
 *
 * Lock order: as in work.c.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "utils/array.h"

#include "cascade.h"
#include "identity.h"
#include "job.h"
#include "plan.h"
#include "sql.h"

/* Who holds tasks of the workers, and what becomes of these. */
static const char *const end_tasks =
"WITH lost AS MATERIALIZED (SELECT t.task, t.cancel_requested_at IS NOT NULL AS cancelled, j.on_worker_loss = 'requeue' AS requeue"
" FROM sweeper.task AS t JOIN sweeper.job AS j ON j.job = t.job"
" WHERE t.worker = ANY ($1) AND t.status IN ('claimed', 'running') ORDER BY t.task FOR NO KEY UPDATE OF t),"
" ended AS (UPDATE sweeper.task AS t SET status = CASE WHEN lost.cancelled THEN 'cancelled' WHEN lost.requeue THEN 'enqueued' ELSE 'failed' END,"
" finished_at = CASE WHEN lost.requeue AND NOT lost.cancelled THEN NULL ELSE clock_timestamp() END,"
" worker = CASE WHEN lost.requeue AND NOT lost.cancelled THEN NULL ELSE t.worker END,"
" error = 'Worker disconnected' FROM lost WHERE t.task = lost.task RETURNING t.task, t.status)"
" INSERT INTO sweeper.task_comment (task, actor, comment)"
" SELECT task, 'session_sweeper', status || ': Worker disconnected' FROM ended";

/* The workers end. */
void
ssw_cascade(const pg_uuid_t *workers, int n)
{
	Oid			type = UUIDARRAYOID;
	Datum	   *ids = palloc(n * sizeof(Datum));
	Datum		array;
	SswIdentity save;
	bool		isnull;

	for (int i = 0; i < n; i++)
		ids[i] = UUIDPGetDatum(&workers[i]);
	array = PointerGetDatum(construct_array(ids, n, UUIDOID, UUID_LEN, false, TYPALIGN_CHAR));
	ssw_identity_become_extension(&save);
	ssw_sql_begin();
	ssw_plan_execute(end_tasks, 1, &type, &array, NULL, false);
	ssw_plan_execute("DELETE FROM sweeper.provider WHERE worker = ANY ($1)", 1, &type, &array, NULL, false);
	ssw_plan_execute("WITH gone AS (DELETE FROM sweeper.job_worker WHERE worker = ANY ($1) RETURNING job)"
					 " SELECT array_agg(DISTINCT job) FROM gone", 1, &type, &array, NULL, false);
	array = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	if (!isnull)
		ssw_job_delete_orphans(array);
	ssw_sql_end();
	ssw_identity_restore(&save);
}
