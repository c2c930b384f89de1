/*
 * metrics.c
 *		The metrics, one row each.
 *
 * Runs in the reader's session.  View metrics and metrics_text() come from the table
 * below, as one statement that runs with the reader's rights; a new metric is a row
 * of it, and a heading of the reference.
 *
 * Shares nothing; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/builtins.h"

#include "base/argument_checks.h"
#include "base/spi.h"
#include "policy/policy_struct.h"

PG_FUNCTION_INFO_V1(ssw_metrics);
PG_FUNCTION_INFO_V1(ssw_metric_families);

/* What several metrics read; $1: seats and sessions of each pool instead of their sum. */
#define SOURCES \
	"WITH cluster AS MATERIALIZED (SELECT * FROM sweeper._cluster())," \
	" stat AS MATERIALIZED (SELECT p.policy, s.* FROM sweeper.policy AS p JOIN sweeper._policy() AS s USING (policy_id))," \
	/* a policy that waits between two tries is still locked */ \
	" status AS MATERIALIZED (SELECT t.*, t.brakes || CASE WHEN t.state IN ('throttled', 'outside window', 'read-only') THEN ARRAY[t.state] END" \
	"  || CASE WHEN s.locked_since IS NOT NULL AND c.enabled AND c.listed THEN '{locked}'::text[] END AS all_brakes" \
	"  FROM sweeper.policy_status AS t LEFT JOIN stat AS s USING (policy) CROSS JOIN cluster AS c)," \
	" failed AS MATERIALIZED (SELECT policy, count(*) FILTER (WHERE state = 'quarantined') AS quarantined," \
	"  count(*) FILTER (WHERE state = 'retrying') AS retrying FROM sweeper.failed_row GROUP BY policy)," \
	" seats AS MATERIALIZED (SELECT pool, seats, live, over_by, waiting FROM sweeper.pool_status WHERE $1" \
	"  UNION ALL SELECT NULL, NULL, coalesce(sum(live), 0), coalesce(sum(over_by), 0), coalesce(sum(waiting), 0) FROM sweeper.pool_status HAVING NOT $1)," \
	" pools AS MATERIALIZED (SELECT pool, sum(acquired) AS acquired, sum(refused) AS refused," \
	"  ARRAY[sum(zombie), sum(expired), sum(released), sum(disconnected), sum(manual)] AS ended FROM sweeper.pool_day GROUP BY pool)," \
	" kept AS MATERIALIZED (SELECT * FROM pools WHERE $1" \
	"  UNION ALL SELECT NULL, coalesce(sum(acquired), 0), coalesce(sum(refused), 0), NULL FROM pools WHERE pool NOT LIKE 'sweeper.%' HAVING NOT $1)," \
	" appended AS MATERIALIZED (SELECT coalesce(sum(waiting), 0) AS waiting, coalesce(sum(failed), 0) AS failed," \
	"  greatest(0, extract(epoch FROM now() - min(due_at))) AS overdue FROM sweeper.append_status)," \
	" process AS MATERIALIZED (SELECT kind FROM sweeper._process())," \
	" problem AS MATERIALIZED (SELECT severity FROM sweeper.problem)"

typedef struct Metric
{
	const char *name;			/* without "session_sweeper_" */
	const char *type;			/* counter, gauge or histogram */
	const char *labels;			/* names and values; datname is added */
	const char *value;			/* none where it is null */
	const char *from;			/* rows, one a series */
	const char *help;
} Metric;

#define OF_POLICY	"'policy', s.policy"

static const Metric metrics[] = {
	{"enabled", "gauge", "", "(s.enabled AND s.launcher_pid IS NOT NULL)::int", "cluster AS s",
	"Is the launcher running, and session_sweeper.enabled on?"},
	{"database_listed", "gauge", "", "s.listed::int", "cluster AS s",
	"Does session_sweeper.databases list this database? Else nothing is swept there, on purpose."},
	{"in_recovery", "gauge", "", "s.in_recovery::int", "cluster AS s",
	"Is this a standby? Nothing is swept there."},
	{"looks_total", "counter", OF_POLICY, "s.looks", "stat AS s",
	"Looks at policies; most find nothing, so no pass follows."},
	{"passes_total", "counter", OF_POLICY, "s.passes", "stat AS s",
	"Passes that did something."},
	{"failed_passes_total", "counter", OF_POLICY, "s.failed_passes", "stat AS s",
	"Passes that failed for a reason that concerns the whole policy."},
	{"fuse_trips_total", "counter", OF_POLICY, "s.fuse_trips", "stat AS s",
	"Passes that the fuse held."},
	{"rows_ended_total", "counter", OF_POLICY ", 'pool', s.pool, 'type', e.type", "e.n",
		"(SELECT policy, NULL::text AS pool, ended FROM stat WHERE NOT $1 OR policy <> '" SSW_SESSION_POLICY "'"
		"  UNION ALL SELECT '" SSW_SESSION_POLICY "', pool, ended FROM kept WHERE $1) AS s"
		" CROSS JOIN LATERAL unnest('{zombie,expired,released,disconnected,manual}'::text[], s.ended::bigint[]) AS e (type, n)"
		" WHERE e.n > 0 OR e.type IN ('zombie', 'expired')",
	"Rows that were expired or ended otherwise, by the type of their cleanup event, also in transactions that were rolled back. Sessions by pool, if asked for: as table pool_day has them."},
	{"rows_refreshed_total", "counter", OF_POLICY, "s.refreshed", "stat AS s",
	"Rows whose deadline was prolonged because of heartbeats or is_alive."},
	{"rows_repaired_total", "counter", OF_POLICY, "s.repaired", "stat AS s",
	"Rows without a deadline that were given one."},
	{"rows_failed_total", "counter", OF_POLICY, "s.failed", "stat AS s",
	"Failed attempts to expire a row."},
	{"rows_skipped_total", "counter", OF_POLICY, "s.skipped", "stat AS s",
	"Rows left for later because another transaction held them or a trigger kept them."},
	{"rows_quarantined", "gauge", OF_POLICY, "coalesce(f.quarantined, 0)", "status AS s LEFT JOIN failed AS f USING (policy)",
	"Rows that failed permanently and are not tried again."},
	{"rows_retrying", "gauge", OF_POLICY, "coalesce(f.retrying, 0)", "status AS s LEFT JOIN failed AS f USING (policy)",
	"Rows that failed and are tried again."},
	{"pass_duration_seconds", "histogram", OF_POLICY ", 'le', h.le", "h.value",
		"stat AS s CROSS JOIN LATERAL sweeper._metric_histogram(s.duration_bounds, s.duration_histogram, s.duration_seconds) AS h",
	"Duration of passes."},
	{"lag_seconds", "histogram", OF_POLICY ", 'le', h.le", "h.value",
		"stat AS s CROSS JOIN LATERAL sweeper._metric_histogram(s.lag_bounds, s.lag_histogram, s.lag_seconds) AS h",
	"Time from the moment a row was due to the commit that expired it."},
	{"overdue_seconds", "gauge", OF_POLICY,
		"CASE WHEN s.lag IS NOT NULL THEN extract(epoch FROM s.lag)"
		" WHEN s.next_due IS NOT NULL OR s.last_look IS NOT NULL AND s.state IN ('waiting', 'running', 'grace') THEN 0 END", "status AS s",
	"How long the oldest row known to be due has waited; 0 when no row is due. Absent while the policy cannot be looked at, or has not been, and no row is known."},
	{"max_lag_seconds", "gauge", OF_POLICY, "extract(epoch FROM s.max_lag)",
		"sweeper.policy AS s CROSS JOIN cluster AS c WHERE c.listed AND s.check_every > interval '0' AND s.backlog_before IS NULL",
	"Rows overdue for longer are a problem. Absent for policies that look only when asked, before the backlog of registration is gone, and where the database is not listed."},
	{"backlog_rows", "gauge", OF_POLICY, "s.backlog", "status AS s",
	"Due rows that are not processed yet, about; before they are counted, a lower bound. Absent while a brake is on and nothing is known of due rows."},
	{"progress_rows_done", "gauge", OF_POLICY, "coalesce(s.done, 0)", "status AS s",
	"Rows processed of the backlog that is being worked off; 0 if there is none."},
	{"progress_percent", "gauge", OF_POLICY, "coalesce(s.percent, 100)", "status AS s WHERE s.percent IS NOT NULL OR s.backlog = 0",
	"Percentage of the backlog that has been processed; 100 if there is none."},
	{"progress_rows_per_second", "gauge", OF_POLICY, "coalesce(s.rows_per_second, 0)", "status AS s",
	"Rows processed a second, of the last five seconds; 0 if nothing is being worked off."},
	{"progress_eta_seconds", "gauge", OF_POLICY, "coalesce(extract(epoch FROM s.eta), 0)", "status AS s WHERE s.eta IS NOT NULL OR s.backlog = 0",
	"Time left for the backlog; 0 if there is none. Absent while it is not being worked off, and while no rate is known because no row could be processed."},
	{"brake", "gauge", OF_POLICY ", 'brake', b.brake", "(b.brake = ANY (s.all_brakes))::int",
		"status AS s CROSS JOIN unnest('{paused,held,fuse,failing,broken,throttled,outside window,locked,read-only}'::text[]) AS b (brake)",
	"Is the brake on (1) or not (0)?"},
	{"fuse_until_timestamp_seconds", "gauge", OF_POLICY, "coalesce(extract(epoch FROM f.held_until), 0)",
		"status AS s LEFT JOIN (SELECT p.policy, max(h.held_until) AS held_until FROM sweeper.policy AS p JOIN sweeper.fuse_hold AS h USING (policy_id)"
		" WHERE h.held_until > clock_timestamp() GROUP BY p.policy) AS f USING (policy)",
	"When the fuse lets go the last of the rows that it holds; 0 if it holds none."},
	{"last_look_timestamp_seconds", "gauge", OF_POLICY, "extract(epoch FROM s.last_look)", "status AS s",
	"When the policy was last looked at."},
	{"last_success_timestamp_seconds", "gauge", OF_POLICY, "extract(epoch FROM s.last_success)", "status AS s",
	"When a look at the policy last succeeded: its pass completed, or nothing was due."},
	{"heartbeats_total", "counter", "'result', h.result", "h.n",
		"cluster AS s CROSS JOIN LATERAL unnest('{fast,slow,written,gone,error}'::text[], s.heartbeat_counts) AS h (result, n)",
	"Heartbeats of the server, by result: fast (memory only), slow (read the row), written (wrote the row), gone (answered false), error."},
	{"heartbeats_without_room_total", "counter", "", "s.heartbeats_refused", "cluster AS s",
	"Heartbeats of the server for which the heartbeat store had no room."},
	{"notifications_skipped_total", "counter", "", "s.notifications_skipped", "cluster AS s",
	"Notifications left out while the notification queue of the server was more than half full."},
	{"tracked_sessions", "gauge", "", "s.heartbeats", "cluster AS s",
	"Sessions of the server in the heartbeat store."},
	{"tracked_sessions_max", "gauge", "", "s.most_heartbeats", "cluster AS s",
	"Sessions of the server for which the heartbeat store has room."},
	{"pools_full", "gauge", "", "count(*)", "sweeper._full_pool AS s",
	"Pools all of whose seats are taken."},
	{"seats", "gauge", "'pool', s.pool", "s.seats", "seats AS s",
	"Seats of the pool."},
	{"seats_used", "gauge", "'pool', s.pool", "s.live", "seats AS s",
	"Seats taken, in all pools or in one."},
	{"seats_over", "gauge", "'pool', s.pool", "s.over_by", "seats AS s",
	"Sessions beyond the seats, in all pools or in one."},
	{"seats_waiting", "gauge", "'pool', s.pool", "s.waiting", "seats AS s",
	"Sessions that wait for a seat in acquire_wait(), in all pools or in one."},
	{"seats_acquired_total", "counter", "'pool', s.pool", "s.acquired", "kept AS s WHERE s.pool IS NULL OR s.pool NOT LIKE 'sweeper.%'",
	"Seats that were acquired, in all pools or in one, as table pool_day has them."},
	{"seats_refused_total", "counter", "'pool', s.pool", "s.refused", "kept AS s WHERE s.pool IS NULL OR s.pool NOT LIKE 'sweeper.%'",
	"Calls that found the pool full, in all pools or in one, as table pool_day has them."},
	{"tasks", "gauge", "'status', s.status", "s.n", "sweeper._metric_task AS s WHERE NOT s.ended",
	"Tasks that have not ended, by state."},
	{"tasks_without_worker", "gauge", "", "coalesce(sum(s.waiting) FILTER (WHERE s.without_worker), 0)", "sweeper._job_trouble AS s",
	"Tasks of jobs whose tasks have waited for more than a minute, and that no living worker offers."},
	{"tasks_ended_hour", "gauge", "'status', s.status", "s.n", "sweeper._metric_task AS s WHERE s.ended",
	"Tasks that ended within the last hour, by state."},
	{"appended_rows", "gauge", "", "s.waiting", "appended AS s",
	"Appended rows that wait to be written."},
	{"appended_rows_failed", "gauge", "", "s.failed", "appended AS s",
	"Appended rows that could not be written."},
	{"appended_rows_overdue_seconds", "gauge", "", "coalesce(s.overdue, 0)", "appended AS s",
	"How long the oldest appended row that is due has waited; 0 if none is due."},
	{"processes", "gauge", "'kind', k.kind", "(SELECT count(*) FROM process AS q WHERE q.kind = k.kind)",
		"unnest('{launcher,coordinator,worker}'::text[]) AS k (kind)",
	"Processes of the server, by kind."},
	{"worker_slots_short", "gauge", "", "(s.slots_short_since IS NOT NULL)::int", "cluster AS s",
	"Did starts of processes find no background worker slot, for five seconds or more? 1 until none has failed for two minutes."},
	{"problems", "gauge", "'severity', s.severity", "(SELECT count(*) FROM problem AS p WHERE p.severity = s.severity)",
		"unnest('{critical,warning}'::text[]) AS s (severity)",
	"Rows of view problem, by severity."},
};

static char *
family(const Metric *m)
{
	return psprintf("session_sweeper_%s", m->name);
}

/* One statement for all of them. */
static char *
statement(void)
{
	StringInfoData sql;

	initStringInfo(&sql);
	appendStringInfoString(&sql, SOURCES);
	appendStringInfoString(&sql, " SELECT v.metric, v.type, v.labels || jsonb_build_object('datname', current_database()), v.value::float8, v.family, v.help FROM (");
	for (int i = 0; i < lengthof(metrics); i++)
	{
		const Metric *m = &metrics[i];
		char	   *name = quote_literal_cstr(family(m));

		appendStringInfo(&sql, "%sSELECT %s%s AS metric, '%s'::text AS type, jsonb_strip_nulls(jsonb_build_object(%s)) AS labels,"
						 " (%s)::float8 AS value, %s::text AS family, %s::text AS help FROM %s",
						 i > 0 ? " UNION ALL " : "", name, strcmp(m->type, "histogram") == 0 ? " || h.suffix" : "::text", m->type,
						 m->labels, m->value, name, quote_literal_cstr(m->help), m->from);
	}
	appendStringInfoString(&sql, ") AS v WHERE v.value IS NOT NULL");
	return sql.data;
}

/* _metrics(pools): one row a series. */
Datum
ssw_metrics(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	Oid			type = BOOLOID;
	Datum		pools = PG_GETARG_DATUM(0);
	char	   *sql = statement();

	ssw_argument_not_null(fcinfo, 0, "pools");
	InitMaterializedSRF(fcinfo, 0);
	ssw_spi_begin();
	(void) ssw_spi_exec(sql, 1, &type, &pools, NULL, true, 0);
	for (uint64 i = 0; i < SPI_processed; i++)
		tuplestore_puttuple(rsinfo->setResult, SPI_tuptable->vals[i]);
	ssw_spi_end();
	return (Datum) 0;
}

/* _metric_families(): one row a metric. */
Datum
ssw_metric_families(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < lengthof(metrics); i++)
	{
		Datum		v[3] = {CStringGetTextDatum(family(&metrics[i])), CStringGetTextDatum(metrics[i].type),
		CStringGetTextDatum(metrics[i].help)};
		bool		n[3] = {0};

		tuplestore_putvalues(rsinfo->setResult, rsinfo->setDesc, v, n);
	}
	return (Datum) 0;
}
