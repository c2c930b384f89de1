/*
 * fuse.c
 *		The brake that stops a pass which would remove implausibly much.
 *
 * Runs in workers.  The one that collects first in a pass counts the dead rows of
 * each group, and the alive only until there are enough of them: cheap when little
 * is dead.  A group that would lose too much is held, for a time; the pass continues
 * without it.  Those that would not are also tested together as one, and if that is
 * too much, the whole policy is held, as is one without groups.  Where is_alive is
 * asked, its answers count instead, before anything is done about them.
 *
 * Shares the numbers of the pass, under SswShared->lock.  A crash leaves what is held;
 * see fuse_hold.c.
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "lib/stringinfo.h"
#include "utils/array.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/identity.h"
#include "base/locks.h"
#include "base/relation_guard.h"
#include "base/spi.h"
#include "policy/partition.h"
#include "policy/row_key.h"
#include "policy/sweep_sql.h"
#include "sweep/dispenser.h"
#include "sweep/fuse.h"
#include "sweep/fuse_hold.h"

/* So many groups are held; with more it is the whole policy. */
#define MAX_HELD		64
/* So many groups are tested by themselves, those with the most dead rows. */
#define MAX_SUSPECTS	1000
/* So many alive rows are read first; when they do not show that all is well, all are. */
#define ALIVE_FIRST		10000

/*
 * Parameters of statements on rows: cutoff, cutoff without grace and backlog, deadlines
 * up to which rows do not count by the first and by the second deadline, keys of rows that
 * are left alone, how many dead rows make a group suspect, names of groups, how many
 * alive rows are read.
 */
#define NPARAMS 8
typedef struct Params
{
	Oid			types[NPARAMS];
	Datum		values[NPARAMS];
	char		nulls[NPARAMS + 1];
} Params;

typedef struct Test
{
	SswWork    *work;
	List	   *leaves;
	MemoryContext cxt;			/* of the suspects */
	SswSuspect	all;
	SswSuspect *suspect;
	int			n;
	Datum		names;			/* text[] of these, in their order */
	int			held;			/* groups that are held already */
	bool		trouble;		/* something loses too much, even if it is let
								 * go */
	List	   *trips;			/* of SswSuspect */
} Test;

/* As many alive rows make this many dead ones harmless. */
static int64
enough_alive(const SswPolicy *p, int64 dead)
{
	return p->fuse_fraction > 0 ? (int64) ceil(dead * (1 - p->fuse_fraction) / p->fuse_fraction) : PG_INT64_MAX / 2;
}

static bool
would_trip(const SswPolicy *p, int64 dead, int64 alive)
{
	return p->fuse_fraction < 1 && dead > 0 && dead >= p->fuse_min && alive < enough_alive(p, dead);
}

/* $3 or $4, in the type that rows are sorted by. */
static void
set_bound(SswWork *w, int which, Params *x)
{
	const SswDeadline *c = &w->policy->deadlines[which];
	TimestampTz bound = which == 0 ? Max(w->pass->backlog_before, w->pass->above) : w->pass->backlog_before;
	Datum		value = TimestampTzGetDatum(bound);
	Oid			type = TIMESTAMPTZOID;
	bool		isnull;

	if (bound == 0)
		return;
	x->types[2 + which] = c->by_due ? c->sort_type : TIMESTAMPTZOID;
	ssw_spi_exec(psprintf("SELECT (%s)", c->by_due ? c->bound : "$1"), 1, &type, &value, NULL, true, 1);
	x->values[2 + which] = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull);
	x->nulls[2 + which] = isnull ? 'n' : ' ';
}

static void
init_params(SswWork *w, TimestampTz cutoff, Params *x)
{
	*x = (Params)
	{
		{
			TIMESTAMPTZOID, TIMESTAMPTZOID, INT4OID, INT4OID, TEXTARRAYOID, INT8OID, TEXTARRAYOID, INT8OID
		},
		{
			TimestampTzGetDatum(cutoff), TimestampTzGetDatum(w->pass->full_cutoff), (Datum) 0, (Datum) 0,
				ssw_failed_row_keys(w->failures), Int64GetDatum(w->policy->fuse_min)
		},
			"  nn  nn"
	};
	for (int i = 0; i < w->policy->ndeadlines; i++)
		set_bound(w, i, x);
}

/*
 * Boolean over t: dead by a deadline, and it counts; null: no row does.  Rows up to the
 * bound of the deadline, $3 or $4, do not count.
 */
static char *
counts_by(const SswPolicy *p, int which, const Params *x)
{
	const SswDeadline *c = &p->deadlines[which];
	char	   *dead = NULL;

	if (which >= p->ndeadlines || !ssw_sweep_sql_fused(p, SSW_PHASE_DEADLINE + which))
		return NULL;
	/* no grace covers the second deadline: its cutoff is $2 */
	if (which == 1)
		dead = psprintf("(%s) AND (%s) AND %s", p->too_old, p->filter ? p->filter : "true", p->not_held ? p->not_held : "true");
	else if (!TIMESTAMP_IS_NOBEGIN(DatumGetTimestampTz(x->values[0])))
		dead = ssw_sweep_sql_dead_above(p, SSW_PHASE_DEADLINE);
	if (dead == NULL || x->nulls[2 + which] == 'n')
		return dead;
	return psprintf("%s AND %s " SSW_OP(">") " $%d", dead, c->by_due ? c->sort : c->due, 3 + which);
}

/* Rows of a leaf that would go in a phase, and that do not count in another. */
static void
add_part(List **parts, SswWork *w, Oid leaf, SswPhase phase, const char *dead, const char *other)
{
	const SswPolicy *p = w->policy;
	StringInfoData buf;

	/* is_alive checks those: its answers count instead */
	if (dead == NULL || ssw_sweep_sql_asks(p, phase))
		return;
	initStringInfo(&buf);
	appendStringInfo(&buf, "SELECT %s, %s FROM ONLY %s AS t WHERE %s", ssw_fuse_group(p),
					 p->deadlines[0].row_ttl ? p->deadlines[0].row_ttl : "NULL::pg_catalog.interval",
					 ssw_guard_table(leaf), dead);
	if (other)
		appendStringInfo(&buf, " AND (%s) IS NOT TRUE", other);
	if (ssw_failed_row_count(w->failures) > 0)
		appendStringInfo(&buf, " AND (%s OPERATOR(pg_catalog.=) ANY ($5)) IS NOT TRUE", ssw_key_shown_sql(p));
	*parts = lappend(*parts, buf.data);
}

/* All of them; by halves, since the server must not nest too deep. */
static void
append_union(StringInfo buf, List *parts, int from, int to)
{
	int			middle = (from + to) / 2;

	if (to - from == 1)
	{
		appendStringInfoString(buf, list_nth(parts, from));
		return;
	}
	appendStringInfoChar(buf, '(');
	append_union(buf, parts, from, middle);
	appendStringInfoString(buf, ") UNION ALL (");
	append_union(buf, parts, middle, to);
	appendStringInfoChar(buf, ')');
}

/*
 * Rows that would go.  Dead by two deadlines, a row counts once.  Those without a deadline
 * have no time either: they count when the backlog of registration is gone.
 */
static List *
dead_rows(Test *t, const Params *x)
{
	SswWork    *w = t->work;
	const SswPolicy *p = w->policy;
	char	   *first = counts_by(p, 0, x);
	char	   *second = counts_by(p, 1, x);
	bool		nulls = p->null_predicate && p->on_null == SSW_NULL_EXPIRE && w->pass->backlog_before == 0;
	List	   *parts = NIL;
	ListCell   *lc;

	foreach(lc, t->leaves)
	{
		Oid			leaf = lfirst_oid(lc);

		add_part(&parts, w, leaf, SSW_PHASE_DEADLINE, first, NULL);
		add_part(&parts, w, leaf, SSW_PHASE_MAX_AGE, second, first);
		if (nulls)
			add_part(&parts, w, leaf, SSW_PHASE_NULLS, ssw_sweep_sql_dead(p, SSW_PHASE_NULLS), second);
	}
	return parts;
}

/* Count the dead rows, of all and of each group that has many. */
static void
count_dead(Test *t)
{
	const SswPolicy *p = t->work->policy;
	Params		x;
	List	   *parts;
	Datum	   *names;
	StringInfoData sql;
	MemoryContext old;

	init_params(t->work, t->work->pass->deadline_cutoff[0], &x);
	parts = dead_rows(t, &x);
	if (parts == NIL)
		return;
	initStringInfo(&sql);
	appendStringInfoString(&sql, "SELECT g, pg_catalog.count(*), (EXTRACT(epoch FROM pg_catalog.max(ttl)) " SSW_OP("*")
						   " 1000000)::pg_catalog.int8 FROM (");
	append_union(&sql, parts, 0, list_length(parts));
	appendStringInfo(&sql, ") AS r (g, ttl) GROUP BY GROUPING SETS ((g), ()) HAVING GROUPING(g) " SSW_OP("=") " 1"
					 " OR g IS NOT NULL AND pg_catalog.count(*) " SSW_OP(">=") " $6"
					 " ORDER BY GROUPING(g) DESC, pg_catalog.count(*) DESC, g LIMIT %d", MAX_SUSPECTS + 1);
	ssw_spi_exec(sql.data, NPARAMS, x.types, x.values, x.nulls, true, 0);
	old = MemoryContextSwitchTo(t->cxt);
	t->suspect = palloc0(SPI_processed * sizeof(SswSuspect));
	names = palloc(SPI_processed * sizeof(Datum));
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		SswSuspect *s = i == 0 ? &t->all : &t->suspect[i - 1];

		if (i > 0)
		{
			s->name = DatumGetTextPCopy(ssw_spi_column(i, 1));
			names[i - 1] = PointerGetDatum(s->name);
		}
		s->dead = DatumGetInt64(ssw_spi_column(i, 2));
		s->ttl_us = DatumGetInt64(ssw_spi_column(i, 3));
	}
	/* what is_alive confirms is confirmed row by row */
	t->n = OidIsValid(p->is_alive) ? 0 : SPI_processed - 1;
	t->names = PointerGetDatum(construct_array(names, t->n, TEXTOID, -1, false, TYPALIGN_INT));
	MemoryContextSwitchTo(old);
}

/* The rows of a leaf that take part and would stay, as their groups. */
static char *
alive_rows(SswWork *w, Oid leaf)
{
	const SswPolicy *p = w->policy;
	StringInfoData sql;

	initStringInfo(&sql);
	appendStringInfo(&sql, "SELECT %s FROM ONLY %s AS t WHERE (%s) AND %s", ssw_fuse_group(p), ssw_guard_table(leaf), p->filter ? p->filter : "true",
					 p->not_held ? p->not_held : "true");
	if (!TIMESTAMP_IS_NOBEGIN(w->pass->deadline_cutoff[0]))
		appendStringInfo(&sql, " AND (%s) IS NOT TRUE", ssw_sweep_sql_dead(p, SSW_PHASE_DEADLINE));
	if (p->too_old)
		appendStringInfo(&sql, " AND (%s) IS NOT TRUE", p->too_old);
	/* without a deadline a row takes no part, or goes too */
	if (p->on_null == SSW_NULL_IGNORE)
		appendStringInfo(&sql, " AND (%s IS NOT NULL OR %s IS NOT NULL)", p->deadlines[0].due,
						 p->ndeadlines > 1 ? p->deadlines[1].due : "NULL");
	if (p->on_null == SSW_NULL_EXPIRE)
		appendStringInfo(&sql, " AND (%s) IS NOT TRUE", ssw_sweep_sql_dead(p, SSW_PHASE_NULLS));
	return sql.data;
}

/* Count alive rows, of all and of each group that has many dead ones, among the first ones. */
static void
read_alive(Test *t, int64 most)
{
	Params		x;
	List	   *parts = NIL;
	StringInfoData sql;
	ListCell   *lc;

	init_params(t->work, t->work->pass->full_cutoff, &x);
	x.values[6] = t->names;
	x.nulls[6] = t->n == 0 ? 'n' : ' ';
	x.values[7] = Int64GetDatum(most);
	x.nulls[7] = ' ';
	foreach(lc, t->leaves)
		parts = lappend(parts, alive_rows(t->work, lfirst_oid(lc)));
	initStringInfo(&sql);
	appendStringInfoString(&sql, "SELECT pg_catalog.array_position($7, g), pg_catalog.count(*) FROM (SELECT g FROM (");
	append_union(&sql, parts, 0, list_length(parts));
	appendStringInfoString(&sql, ") AS a (g) LIMIT $8) AS r GROUP BY GROUPING SETS ((g), ())"
						   " HAVING GROUPING(g) " SSW_OP("=") " 1 OR g " SSW_OP("=") " ANY ($7)");
	ssw_spi_exec(sql.data, NPARAMS, x.types, x.values, x.nulls, true, 0);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		int			n = DatumGetInt32(ssw_spi_column(i, 1));

		(n == 0 ? &t->all : &t->suspect[n - 1])->alive = DatumGetInt64(ssw_spi_column(i, 2));
	}
}

/* Count alive rows, and no more than it takes to see that there are enough of each kind. */
static void
count_alive(Test *t)
{
	const SswPolicy *p = t->work->policy;
	int64		most = ssw_max(t->n == 0 ? 0 : ALIVE_FIRST, enough_alive(p, t->all.dead));

	read_alive(t, most);
	for (int i = 0; i < t->n; i++)
		if (t->all.alive == most && would_trip(p, t->suspect[i].dead, t->suspect[i].alive))
			read_alive(t, PG_INT64_MAX);
}

/* In the gate. */
static void
count(void *arg)
{
	Test	   *t = arg;

	ssw_spi_begin();
	count_dead(t);
	if (t->all.dead > 0 && t->all.dead >= t->work->policy->fuse_min)
		count_alive(t);
	ssw_spi_end();
}

/*
 * Which groups are held, and which are let go?  These were held once: their rows expire
 * until nothing of the policy would trip.
 */
static void
read_holds(Test *t)
{
	Oid			types[] = {INT4OID, TEXTARRAYOID};
	Datum		values[] = {Int32GetDatum(t->work->policy->id), t->names};
	SswIdentity save;

	ssw_spi_begin_as_extension(&save);
	ssw_spi_exec("SELECT \"group\" IS NULL, held_until > pg_catalog.clock_timestamp(), pg_catalog.array_position($2, \"group\")"
				 " FROM sweeper.fuse_hold WHERE policy_id = $1", 2, types, values, t->n == 0 ? " n" : NULL, false, 0);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		int			n = DatumGetInt32(ssw_spi_column(i, 3));

		if (DatumGetBool(ssw_spi_column(i, 2)))
			t->held++;
		else if (DatumGetBool(ssw_spi_column(i, 1)))
			t->all.let_go = true;
		else if (n > 0)
			t->suspect[n - 1].let_go = true;
	}
	ssw_spi_end_as(&save);
}

/*
 * What loses too much, and is not let go?  A group that does is not tested with the
 * others.
 */
static void
find_trips(Test *t)
{
	const SswPolicy *p = t->work->policy;
	SswSuspect *rest = palloc(sizeof(SswSuspect));

	*rest = t->all;
	for (int i = 0; i < t->n; i++)
	{
		SswSuspect *s = &t->suspect[i];

		if (!would_trip(p, s->dead, s->alive))
			continue;
		t->trouble = true;
		rest->dead -= s->dead;
		rest->alive -= s->alive;
		if (!s->let_go && !t->all.let_go)
			t->trips = lappend(t->trips, s);
	}
	if (would_trip(p, rest->dead, rest->alive))
	{
		t->trouble = true;
		t->trips = t->all.let_go ? NIL : list_make1(rest);
	}
	else if (t->held + list_length(t->trips) > MAX_HELD)
		t->trips = list_make1(&t->all);
}

/*
 * Would this pass remove too much?  Then it continues without the groups concerned; or it
 * ends, and this returns true, when that is the whole policy.  Rows due at registration
 * do not count.  A partition that somebody has locked may hold the rows that make it
 * harmless: then the pass is tried again, for a while.
 */
bool
ssw_fuse_trips(SswWork *w)
{
	Test		t = {.work = w,.cxt = CurrentMemoryContext};
	const SswPolicy *p = w->policy;
	SswPass    *pass = w->pass;
	uint32		locked;
	ListCell   *lc;

	pass->harmless = true;
	if (p->fuse_fraction >= 1)
		return false;
	t.leaves = ssw_partition_leaves(p, AccessShareLock, &locked);
	ssw_gate(p->owner, p->search_path, count, &t);
	read_holds(&t);
	find_trips(&t);
	if (t.trips != NIL && locked > 0 && !pass->locked_for_long)
	{
		ssw_batch_end_pass(pass, SSW_END_LOCKED, ERRCODE_LOCK_NOT_AVAILABLE, "another transaction holds a lock on a partition; without that partition, too many rows would expire");
		return true;
	}
	foreach(lc, t.trips)
	{
		SswSuspect *s = lfirst(lc);
		char	   *message = ssw_fuse_write(w, s);

		if (s->name == NULL)
		{
			ssw_batch_end_pass(pass, SSW_END_FUSE, 0, message);
			return true;
		}
		t.all.dead -= s->dead;
	}
	/* no worker has rows of this pass yet */
	pass->fuse_left = pass->said_dead = t.all.dead;
	pass->fuse_asks = OidIsValid(p->is_alive) && !t.all.let_go;
	pass->harmless = !t.trouble && !(OidIsValid(p->is_alive) && t.all.let_go);
	return false;
}

/*
 * Would the fuse trip by the answers of is_alive so far and these alive rows, if so many more rows are
 * dead?  *s: all of them.
 */
static bool
would_trip_with(SswWork *w, int64 alive, int64 to_come, SswSuspect *s)
{
	SswPass    *pass = w->pass;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	/* other workers' answers are to come, too */
	for (int i = 0; i < SswShared->nprocs; i++)
		if (SswProcs[i].state != SSW_STATE_FREE && SswProcs[i].pass == pass - SswPasses)
			to_come += SswProcs[i].asking;
	s->dead = pass->said_dead;
	s->alive = pass->said_alive += alive;
	pass->suspect = would_trip(w->policy, s->dead + to_come, s->alive);
	LWLockRelease(SswShared->lock);
	return pass->suspect;
}

/* Rows that were dead at registration are chunks of their own, and do not count. */
static bool
is_backlog(const SswPass *pass, TimestampTz cutoff)
{
	return pass->backlog_before != 0 && cutoff <= pass->backlog_before;
}

/* In the gate: twice as many alive rows as it takes, so that this is rare. */
static void
count_for_answers(void *arg)
{
	Test	   *t = arg;

	ssw_spi_begin();
	read_alive(t, 2 * enough_alive(t->work->policy, t->all.dead));
	ssw_spi_end();
}

/*
 * is_alive is about to check the rows of a chunk for the collector.  If too many would go
 * when all of them are dead, all answers come before anything is done about them.
 */
void
ssw_fuse_expect(SswWork *w, List *leaves, const SswChunk *chunk)
{
	const SswPolicy *p = w->policy;
	Test		t = {.work = w,.leaves = leaves};
	SswSuspect	said = {0};

	if (!w->pass->fuse_asks || is_backlog(w->pass, chunk->cutoff) || !would_trip_with(w, 0, chunk->n, &said))
		return;
	t.all.dead = said.dead + chunk->n;
	ssw_gate(p->owner, p->search_path, count_for_answers, &t);
	if (would_trip_with(w, t.all.alive - said.alive, chunk->n, &said))
		w->pass->harmless = false;
}

/* Add this worker's answers to those of the pass. */
static void
add_answers(SswWork *w, int dead, int alive)
{
	SswPass    *pass = w->pass;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	pass->said_dead += dead;
	pass->said_alive += alive;
	pass->answered |= w->answered;
	pass->unanswered += w->unanswered;
	w->unanswered = 0;
	MySswProc->asking = 0;
	LWLockRelease(SswShared->lock);
}

/* By all answers: does the fuse trip?  *first: no other worker has found that. */
static bool
trips_by_answers(SswWork *w, SswSuspect *s, bool *first)
{
	SswPass    *pass = w->pass;
	bool		trips;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	s->dead = pass->said_dead;
	s->alive = pass->said_alive;
	trips = pass->tripped || (pass->suspect && would_trip(w->policy, s->dead, s->alive));
	*first = trips && !pass->tripped;
	pass->tripped = trips;
	LWLockRelease(SswShared->lock);
	return trips;
}

/*
 * Answers of is_alive, before anything is done about them: true ends the pass, with
 * the policy held.  Where that is possible, the answers of all workers come first.
 */
bool
ssw_fuse_answers(SswWork *w, int dead, int alive)
{
	SswSuspect	said = {0};
	bool		first;
	bool		counts = !is_backlog(w->pass, w->target.cutoff);

	add_answers(w, counts ? dead : 0, counts ? alive : 0);
	if (!counts)
		return false;
	if (w->pass->suspect)
		ssw_dispenser_await_answers(w);
	if (!trips_by_answers(w, &said, &first))
		return false;
	if (!first)
		return true;
	ssw_batch_end_pass(w->pass, SSW_END_FUSE, 0, ssw_fuse_describe(&said));
	ssw_spi_start_transaction();
	if (!XactReadOnly && ssw_lock_policy_batch_conditional(w->policy->id))
		(void) ssw_fuse_write(w, &said);
	ssw_spi_commit();
	return true;
}
