/*
 * fuse.c
 *		The brake that stops a pass which would remove implausibly much.
 *
 * Runs in the worker that collects first in a pass, in its transaction.  Counts
 * the dead, and the alive only until there are enough of them: cheap when little
 * is dead.  Shares the verdict through the pass; the coordinator writes it to the
 * policy's row.  A crash leaves nothing behind.
 */
#include "postgres.h"

#include <math.h>

#include "access/table.h"
#include "catalog/pg_collation.h"
#include "catalog/pg_type.h"
#include "executor/tuptable.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"
#include "utils/varlena.h"

#include "compat.h"
#include "identity.h"
#include "key.h"
#include "lost.h"
#include "pass.h"
#include "sql.h"
#include "stmt.h"

/*
 * Rows that is_alive is asked about, to know what it says of all: fewer when so many of a
 * place agree, or in all that time is over.
 */
#define ASKED		50
#define AGREED		10
#define SURVEY_MS	10000

/*
 * Parameters of statements on a leaf: cutoff, full cutoff, exempt, group names,
 * limit, the cutoff of the clock that the row may be dead by as well, and the keys
 * of rows that are left alone.
 */
#define NPARAMS 7
typedef struct Params
{
	Oid			types[NPARAMS];
	Datum		values[NPARAMS];
	bool		nulls[NPARAMS];
} Params;

static void
init_params(SswWork *w, TimestampTz cutoff, Params *x)
{
	*x = (Params)
	{
		{
			TIMESTAMPTZOID, TIMESTAMPTZOID, INT4OID, TEXTARRAYOID, INT8OID, TIMESTAMPTZOID, TEXTARRAYOID
		},
		{
			TimestampTzGetDatum(cutoff), TimestampTzGetDatum(w->pass->full_cutoff)
		},
		{
			false, false, true, true, true, true, true
		}
	};
}

/*
 * Rows without a deadline have no time either: they do not count before the
 * first whole pass after registration.
 */
static bool
nulls_count(SswWork *w)
{
	const SswPolicy *p = w->policy;

	return p->null_predicate && p->on_null == SSW_NULL_EXPIRE && w->pass->backlog_before == 0;
}

/* FROM and WHERE of the rows of a leaf and phase that would go; null: none count. */
static char *
dead_rows(SswWork *w, Oid leaf, SswPhase phase, Params *x)
{
	const SswClock *c = ssw_stmt_clock(w->policy, phase);
	TimestampTz cutoff = c ? w->pass->clock_cutoff[phase - SSW_PHASE_CLOCK_1] : w->pass->now;
	TimestampTz exempt = c ? w->pass->backlog_before : 0;
	char	   *sql;

	if (c == NULL && (phase != SSW_PHASE_NULLS || !nulls_count(w)))
		return NULL;
	if (TIMESTAMP_IS_NOBEGIN(cutoff) || (exempt != 0 && cutoff <= exempt))
		return NULL;
	init_params(w, cutoff, x);
	sql = psprintf("FROM ONLY %s AS t WHERE %s", ssw_stmt_table(leaf), ssw_stmt_dead(w->policy, phase));
	if (ssw_failures_count(w->failures) > 0)
	{
		x->values[6] = ssw_failures_keys(w->failures, leaf);
		x->nulls[6] = false;
		sql = psprintf("%s AND (%s OPERATOR(pg_catalog.=) ANY ($7)) IS NOT TRUE", sql, ssw_key_shown_sql(w->policy));
	}

	/*
	 * dead by two clocks, a row goes once; which are asked about is in their
	 * predicate
	 */
	if (phase != SSW_PHASE_CLOCK_1 && w->policy->nclocks > 1)
	{
		int			other = c ? 0 : 1;
		TimestampTz counted = OidIsValid(w->policy->is_alive) ? exempt : w->pass->clock_cutoff[other];

		x->values[5] = TimestampTzGetDatum(counted == 0 ? DT_NOBEGIN : counted);
		x->nulls[5] = false;
		sql = psprintf("%s AND (%s " SSW_OP("<=") " $6) IS NOT TRUE", sql, w->policy->clock[other].due);
	}
	if (exempt != 0)
	{
		Datum		value = TimestampTzGetDatum(exempt);

		x->types[2] = c->by_due ? c->sort_type : TIMESTAMPTZOID;
		ssw_sql_exec(psprintf("SELECT (%s)", c->by_due ? c->bound : "$1"), 1, x->types, &value, NULL, true, 1);
		x->values[2] = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &x->nulls[2]);
		sql = psprintf("%s AND %s " SSW_OP(">") " $3", sql, c->by_due ? c->sort : c->due);
	}
	return sql;
}

/* FROM and WHERE of the rows of a leaf that take part and would stay. */
static char *
alive_rows(SswWork *w, Oid leaf, Params *x)
{
	StringInfoData sql;

	init_params(w, w->pass->now - w->policy->keep_for_us, x);
	initStringInfo(&sql);
	appendStringInfo(&sql, "FROM ONLY %s AS t WHERE (%s)", ssw_stmt_table(leaf),
					 w->policy->filter ? w->policy->filter : "true");
	for (int i = 0; i < w->policy->nclocks; i++)
		if (!TIMESTAMP_IS_NOBEGIN(w->pass->clock_cutoff[i]))
			appendStringInfo(&sql, " AND (%s) IS NOT TRUE",
							 ssw_stmt_dead(w->policy, SSW_PHASE_CLOCK_1 + i));
	/* without a deadline a row takes no part, or goes too */
	if (w->policy->on_null == SSW_NULL_IGNORE)
		appendStringInfo(&sql, " AND (%s IS NOT NULL OR %s IS NOT NULL)", w->policy->clock[0].due,
						 w->policy->nclocks > 1 ? w->policy->clock[1].due : "NULL");
	if (w->policy->on_null == SSW_NULL_EXPIRE)
		appendStringInfo(&sql, " AND (%s) IS NOT TRUE", ssw_stmt_dead(w->policy, SSW_PHASE_NULLS));
	return sql.data;
}

/* Run a statement on rows, with its LIMIT. */
static void
run(const char *sql, Params *x, int64 limit)
{
	char		nulls[NPARAMS + 1] = "       ";

	x->values[4] = Int64GetDatum(limit);
	x->nulls[4] = false;
	for (int i = 0; i < NPARAMS; i++)
		nulls[i] = x->nulls[i] ? 'n' : ' ';
	ssw_sql_exec(sql, NPARAMS, x->types, x->values, nulls, true, 0);
}

/* How many rows there are, at most limit. */
static int64
count(const char *rows, Params *x, int64 limit)
{
	bool		isnull;

	run(psprintf("SELECT pg_catalog.count(*) FROM (SELECT %s LIMIT $5) AS r", rows), x, limit);
	return DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
}

/* As many alive rows make this many dead ones harmless. */
static int64
enough_alive(const SswPolicy *p, int64 dead)
{
	return p->fuse_fraction > 0 ?
		(int64) ceil(dead * (1 - p->fuse_fraction) / p->fuse_fraction) : PG_INT64_MAX;
}

/* So many groups are looked at together, and so much text of theirs is kept. */
#define SUSPECTS		10000
#define SUSPECTS_TEXT	(1024 * 1024)

/* A group with fuse_min dead rows. */
typedef struct Suspect
{
	text	   *name;
	int64		dead;
	int64		alive;
	int64		enough;			/* alive rows that make it harmless */
} Suspect;

/*
 * Any row may be of a group of its own, so the groups of the dead are sorted, on
 * disk if need be; only some suspects at a time are in memory, in that order.
 */
typedef struct GroupReceiver
{
	DestReceiver dest;			/* must be first */
	Tuplesortstate *sort;		/* the groups of dead rows */
	bool		sorted;			/* what comes now are groups of alive rows */
	text	   *next;			/* first that was not looked at yet, or null */
	Suspect    *suspect;
	int			n;
	int			left;			/* suspects that lack alive rows */
} GroupReceiver;

static void
startup(DestReceiver *self, int operation, TupleDesc desc)
{
}

static void
no_op(DestReceiver *self)
{
}

static int
compare_names(const text *a, const text *b)
{
	return varstr_cmp(VARDATA_ANY(a), VARSIZE_ANY_EXHDR(a), VARDATA_ANY(b), VARSIZE_ANY_EXHDR(b), C_COLLATION_OID);
}

static int
compare_suspect(const void *name, const void *suspect)
{
	return compare_names(name, ((const Suspect *) suspect)->name);
}

/* One row of read_groups(): the text of its group. */
static bool
receive_group(TupleTableSlot *slot, DestReceiver *self)
{
	GroupReceiver *r = (GroupReceiver *) self;
	text	   *name;

	slot_getallattrs(slot);
	if (slot->tts_isnull[0])
		return true;
	name = DatumGetTextPP(slot->tts_values[0]);
	if (!r->sorted)
		tuplesort_putdatum(r->sort, PointerGetDatum(name), false);
	else
	{
		Suspect    *g = bsearch(name, r->suspect, r->n, sizeof(Suspect), compare_suspect);

		if (g && g->alive++ < g->enough && g->alive == g->enough)
			r->left--;
	}
	if (PointerGetDatum(name) != slot->tts_values[0])
		pfree(name);
	return !r->sorted || r->left > 0;
}

/* Read the group of each row. */
static void
read_groups(const SswPolicy *p, const char *rows, Params *x, GroupReceiver *r)
{
	ssw_sql_send(psprintf("SELECT %s %s", p->group_text, rows), NPARAMS, x->types, x->values, x->nulls, &r->dest);
}

static void
sort_dead(SswWork *w, List *leaves, GroupReceiver *r)
{
	Oid			less = lookup_type_cache(TEXTOID, TYPECACHE_LT_OPR)->lt_opr;
	Params		x;
	ListCell   *lc;

	memset(r, 0, sizeof(GroupReceiver));
	r->dest = (DestReceiver)
	{
		receive_group, startup, no_op, no_op, DestNone
	};
	r->suspect = palloc(SUSPECTS * sizeof(Suspect));
	r->sort = tuplesort_begin_datum(TEXTOID, less, C_COLLATION_OID, false, work_mem, NULL, TUPLESORT_NONE);
	foreach(lc, leaves)
		for (SswPhase phase = SSW_PHASE_CLOCK_1; phase < SSW_PHASE_END; phase++)
	{
		char	   *rows = dead_rows(w, lfirst_oid(lc), phase, &x);

		if (rows)
			read_groups(w->policy, rows, &x, r);
	}
	tuplesort_performsort(r->sort);
	r->sorted = true;
	r->next = ssw_next_sorted(r->sort);
}

/* How many dead rows the next group has. */
static int64
next_group(GroupReceiver *r, text **name)
{
	int64		dead = 1;

	*name = r->next;
	while ((r->next = ssw_next_sorted(r->sort)) != NULL && compare_names(r->next, *name) == 0)
	{
		CHECK_FOR_INTERRUPTS();
		pfree(r->next);
		dead++;
	}
	return dead;
}

/* The next groups with many dead rows; their names as an array. */
static Datum
next_suspects(const SswPolicy *p, GroupReceiver *r)
{
	ArrayBuildState *names = initArrayResult(TEXTOID, CurrentMemoryContext, true);
	int64		size = 0;

	for (int i = 0; i < r->n; i++)
		pfree(r->suspect[i].name);
	r->n = 0;
	while (r->next && r->n < SUSPECTS && size < SUSPECTS_TEXT)
	{
		text	   *name;
		int64		dead = next_group(r, &name);

		if (dead >= p->fuse_min)
		{
			r->suspect[r->n++] = (Suspect)
			{
				name, dead, 0, enough_alive(p, dead)
			};
			size += VARSIZE_ANY(name);
			names = accumArrayResult(names, PointerGetDatum(name), false, TEXTOID, CurrentMemoryContext);
		}
		else
			pfree(name);
	}
	r->left = r->n;
	return makeArrayResult(names, CurrentMemoryContext);
}

/* One of the suspects that lacks alive rows, as a message, or null. */
static char *
accuse(GroupReceiver *r)
{
	for (int i = 0; i < r->n; i++)
	{
		Suspect    *g = &r->suspect[i];
		char	   *name = VARDATA_ANY(g->name);

		if (g->alive < g->enough)
			return psprintf("the pass would expire " INT64_FORMAT " rows of group \"%s\" and leave " INT64_FORMAT " alive",
							g->dead, pnstrdup(name, pg_mbcliplen(name, VARSIZE_ANY_EXHDR(g->name), 100)), g->alive);
	}
	return NULL;
}

/*
 * A group that would lose too much, as a message, or null.  Alive rows are read
 * only until every group with many dead ones has enough of them.
 */
static char *
find_group(SswWork *w, List *leaves)
{
	GroupReceiver r;
	char	   *message = NULL;

	sort_dead(w, leaves, &r);
	while (message == NULL && r.next)
	{
		Datum		names = next_suspects(w->policy, &r);
		Params		x;
		ListCell   *lc;

		foreach(lc, leaves)
			if (r.left > 0)
		{
			char	   *rows = alive_rows(w, lfirst_oid(lc), &x);

			x.values[3] = names;
			x.nulls[3] = false;
			read_groups(w->policy, psprintf("%s AND %s OPERATOR(pg_catalog.=) ANY ($4)", rows, w->policy->group_text), &x, &r);
		}
		message = accuse(&r);
		pfree(DatumGetPointer(names));
	}
	tuplesort_end(r.sort);
	return message;
}

/* What is_alive says of some rows, and of all by these. */
typedef struct Survey
{
	SswWork    *work;
	TimestampTz until;			/* nothing is asked later */
	int			call_ms;		/* what takes longer says nothing */
	int64		all;			/* rows that look dead */
	int64		told;			/* of them those in places where it said
								 * something */
	double		gone;			/* of these so many are */
} Survey;

typedef struct Question
{
	const char *sql;
	Datum		tid;
	bool		timed_out;
	bool		gone;
} Question;

static bool
ask_alive(void *arg)
{
	Question   *q = arg;
	Oid			type = TIDOID;
	bool		isnull;

	ssw_sql_begin();
	if (ssw_sql_exec(q->sql, 1, &type, &q->tid, NULL, false, 1) > 0)
		q->gone = !DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull)) && !isnull;
	ssw_sql_end();
	return false;
}

/* One row; what that does is undone.  Those stay that it says nothing of, or fails for. */
static void
ask_within(Survey *s, Question *q)
{
	TimestampTz end = GetCurrentTimestamp() + s->call_ms * INT64CONST(1000);
	ErrorData  *error;

	enable_timeout_after(STATEMENT_TIMEOUT, s->call_ms);
	error = ssw_sql_try(ask_alive, q);
	enable_timeout_at(STATEMENT_TIMEOUT, MySswProc->batch_deadline);
	q->timed_out = GetCurrentTimestamp() >= end;
	if (q->timed_out)
		QueryCancelPending = false; /* the time was up as it ended */
	else if (error && ERRCODE_TO_CATEGORY(error->sqlerrcode) == ERRCODE_OPERATOR_INTERVENTION)
		ReThrowError(error);	/* it is we who are to stop */
}

/*
 * Ask about n rows of those that look dead in a leaf and phase, picked at random: fewer
 * when the first agree, or time runs out.
 */
static void
ask_some(Survey *s, Oid leaf, SswPhase phase, const char *rows, Params *x, int64 dead)
{
	SswWork    *w = s->work;
	Question	q;
	ItemPointerData tid[ASKED];
	int			n;
	int			asked = 0;
	int			gone = 0;

	q.sql = psprintf("SELECT %s FROM ONLY %s AS t WHERE t.ctid OPERATOR(pg_catalog.=) $1", ssw_stmt_ask(w->policy),
					 ssw_stmt_table(leaf));
	run(psprintf("SELECT t.ctid %s ORDER BY pg_catalog.hashtid(t.ctid) LIMIT $5", rows), x,
		Min(ASKED, (ASKED * dead + s->all - 1) / s->all));
	for (n = 0; n < SPI_processed; n++)
	{
		bool		isnull;

		tid[n] = *(ItemPointer) DatumGetPointer(SPI_getbinval(SPI_tuptable->vals[n], SPI_tuptable->tupdesc, 1, &isnull));
	}
	for (int i = 0; i < n && !(asked >= AGREED && (gone == 0 || gone == asked)) && GetCurrentTimestamp() < s->until; i++)
	{
		q.tid = PointerGetDatum(&tid[i]);
		q.timed_out = q.gone = false;
		ssw_lost_row(leaf, phase, DatumGetTimestampTz(x->values[0]), &tid[i], true);
		ask_within(s, &q);
		asked += !q.timed_out;
		gone += !q.timed_out && q.gone;
	}
	ssw_lost_rows(0);
	if (asked == 0)
		return;
	s->told += dead;
	s->gone += (double) dead * gone / asked;
}

/* How many rows look dead; with a survey, is_alive is asked about some. */
static int64
count_dead(SswWork *w, List *leaves, Survey *s)
{
	int64		dead = 0;
	Params		x;
	ListCell   *lc;

	foreach(lc, leaves)
		for (SswPhase phase = SSW_PHASE_CLOCK_1; phase < SSW_PHASE_END; phase++)
	{
		char	   *rows = dead_rows(w, lfirst_oid(lc), phase, &x);
		int64		n = rows ? count(rows, &x, PG_INT64_MAX) : 0;

		dead += n;
		if (s && n > 0 && ssw_stmt_asks(w->policy, phase))
			ask_some(s, lfirst_oid(lc), phase, rows, &x, n);
		else if (s)
		{
			s->told += n;
			s->gone += n;
		}
	}
	return dead;
}

/*
 * So many of the rows that look dead is_alive would let go, as a few of them tell; all,
 * where it says nothing of any in good time.
 */
static int64
count_confirmed(SswWork *w, List *leaves, int64 dead)
{
	TimestampTz now = GetCurrentTimestamp();
	int			ms = Max(2, Min(SURVEY_MS, (MySswProc->batch_deadline - now) / 2000));
	Survey		s = {.work = w,.until = now + ms * INT64CONST(1000),.call_ms = ms / 2,.all = dead};

	dead = count_dead(w, leaves, &s);
	return s.told == 0 ? dead : (int64) ceil(dead * s.gone / s.told);
}

/* Whether the pass would remove too much, as a message, or null; and how much. */
static char *
find_trouble(SswWork *w, List *leaves, int64 *would_go)
{
	SswPolicy  *p = w->policy;
	int64		dead = count_dead(w, leaves, NULL);
	int64		alive = 0;
	int64		enough;
	Params		x;
	ListCell   *lc;

	*would_go = dead;
	if (dead < p->fuse_min || dead == 0)
		return NULL;
	enough = enough_alive(p, dead);
	foreach(lc, leaves)
		if (alive < enough)
	{
		char	   *rows = alive_rows(w, lfirst_oid(lc), &x);

		alive += count(rows, &x, enough - alive);
	}
	if (alive < enough && OidIsValid(p->is_alive))
	{
		int64		confirmed = count_confirmed(w, leaves, dead);

		if (confirmed < p->fuse_min || confirmed == 0)
			return NULL;
		alive += dead - confirmed;
		dead = confirmed;
		enough = enough_alive(p, dead);
	}
	if (alive < enough)
		return psprintf("the pass would expire " INT64_FORMAT " rows and leave " INT64_FORMAT " alive",
						dead, alive);
	/* of rows that is_alive confirms one by one groups do not matter */
	return p->group_text && !OidIsValid(p->is_alive) ? find_group(w, leaves) : NULL;
}

/*
 * Would this pass remove too much?  Then the pass ends, with the numbers in its
 * message.  A fuse that has held lets it go on; the coordinator learns when there
 * is nothing wrong any more.  Rows due at registration do not count.  Where these are
 * not all leaves that there is patience for, the others may hold those that make it
 * harmless: it waits for them.
 */
bool
ssw_fuse_trips(SswWork *w, List *leaves, bool all)
{
	SswPass    *pass = w->pass;
	SswIdentity save;
	char	   *message = NULL;
	int64		dead = 0;
	bool		trips;

	ssw_identity_become_owner(w->policy->owner, w->policy->search_path, &save);
	ssw_sql_begin();
	if (w->policy->fuse_fraction < 1)
		message = find_trouble(w, leaves, &dead);
	trips = message && !pass->fuse_held;
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	pass->harmless = message == NULL;
	pass->fuse_left = dead;
	if (trips)
	{
		pass->end = all ? SSW_END_FUSE : SSW_END_LOCKED;
		pass->sqlerrcode = all ? 0 : ERRCODE_LOCK_NOT_AVAILABLE;
		ssw_shmem_text(pass->message, all ? message : "somebody holds a lock on a partition, and without it too much would go",
					   SSW_MESSAGE_LEN);
	}
	LWLockRelease(SswShared->lock);
	ssw_sql_end();
	ssw_identity_restore(&save);
	return trips;
}
