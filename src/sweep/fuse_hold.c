/*
 * fuse_hold.c
 *		What the fuse holds: groups of a policy, or all of it.
 *
 * Runs in workers, and where a row is explained.  Holds are rows of table fuse_hold,
 * which the worker writes that has found them; without a group, the row is about the
 * whole policy.  A hold whose time is over, or that was lifted, stays there until
 * nothing of the policy would trip: until then its rows go.  Statements of a pass leave
 * out the rows of groups that are held (SswPolicy.not_held).
 *
 * Shares the numbers of the pass, under SswShared->lock.  A crash leaves the rows of
 * the table.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/cached_plan.h"
#include "base/guc.h"
#include "base/identity.h"
#include "base/spi.h"
#include "sweep/fuse_hold.h"

/* A longer name of a group is not in the log, but in table fuse_hold. */
#define MOST_IN_HINT	1000

/* The group of a row, compared byte by byte. */
char	   *
ssw_fuse_group(const SswPolicy *p)
{
	return p->group_text ? psprintf("(%s) COLLATE pg_catalog.\"C\"", p->group_text) : pstrdup("NULL::pg_catalog.text");
}

/* A literal for a statement.  Values of rows must not look like a mark of relation_guard.c, which begins like a comment. */
static char *
row_literal(const char *value)
{
	StringInfoData buf;

	initStringInfo(&buf);
	appendStringInfoString(&buf, "E'");
	for (const char *s = value; *s; s++)
	{
		if (*s == '*')
			appendStringInfoString(&buf, "\\052");
		else if (*s == '\'' || *s == '\\')
			appendStringInfo(&buf, "%c%c", *s, *s);
		else
			appendStringInfoChar(&buf, *s);
	}
	appendStringInfoChar(&buf, '\'');
	return buf.data;
}

/* Set p->not_held: which groups are held now.  It is kept where the policy is. */
void
ssw_fuse_load(SswPolicy *p)
{
	Oid			type = INT4OID;
	Datum		value = Int32GetDatum(p->id);
	char	   *groups;
	Datum		d;
	bool		isnull;
	SswIdentity save;

	p->not_held = NULL;
	ssw_spi_begin_as_extension(&save);
	ssw_plan_execute("SELECT pg_catalog.bool_or(\"group\" IS NULL), (pg_catalog.array_agg(\"group\")"
					 " FILTER (WHERE \"group\" IS NOT NULL))::text FROM sweeper.fuse_hold"
					 " WHERE policy_id = $1 AND held_until > pg_catalog.clock_timestamp()", 1, &type, &value, NULL, false);
	d = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2, &isnull);
	groups = isnull ? NULL : TextDatumGetCString(d);
	if (DatumGetBool(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull)) && !isnull)
		p->not_held = MemoryContextStrdup(GetMemoryChunkContext(p), "false");
	else if (groups && p->group_text)
		p->not_held = MemoryContextStrdup(GetMemoryChunkContext(p),
										  psprintf("(%s " SSW_OP("<>") " ALL (%s::pg_catalog.text[])) IS NOT FALSE",
												   ssw_fuse_group(p), row_literal(groups)));
	ssw_spi_end_as(&save);
}

/* As a person reads it. */
char	   *
ssw_fuse_describe(const SswSuspect *s)
{
	return psprintf("the pass would expire " INT64_FORMAT " rows%s and leave " INT64_FORMAT " alive", s->dead,
					s->name ? psprintf(" of group \"%s\"", pnstrdup(VARDATA_ANY(s->name), pg_mbcliplen(VARDATA_ANY(s->name), VARSIZE_ANY_EXHDR(s->name), 100))) : "",
					s->alive);
}

/* How long: one time to live of the rows where activity prolongs it. */
static int64
hold_us(const SswPolicy *p, const SswSuspect *s)
{
	int64		ttl = p->deadlines[0].activity ? (s->ttl_us > 0 ? s->ttl_us : p->ttl_us) : 0;
	int64		most = ssw_fuse_hold * USECS_PER_SEC;

	return ttl > 0 ? Min(ttl, most) : most;
}

/* Write down that a group is held, or the policy; returns what for. */
char	   *
ssw_fuse_write(SswWork *w, const SswSuspect *s)
{
	const SswPolicy *p = w->policy;
	TimestampTz until = GetCurrentTimestamp() + hold_us(p, s);
	char	   *message = ssw_fuse_describe(s);
	Oid			types[] = {INT4OID, TEXTOID, TIMESTAMPTZOID, TIMESTAMPTZOID, TEXTOID, INT8OID};
	Datum		values[] = {Int32GetDatum(p->id), PointerGetDatum(s->name), TimestampTzGetDatum(w->pass->now),
	TimestampTzGetDatum(until), CStringGetTextDatum(message), Int64GetDatum(s->dead)};
	char		nulls[] = "      ";
	SswIdentity save;

	nulls[1] = s->name ? ' ' : 'n';
	ssw_spi_begin_as_extension(&save);
	ssw_spi_exec("INSERT INTO sweeper.fuse_hold (policy_id, \"group\", held_at, held_until, detail, rows) VALUES ($1, $2, $3, $4, $5, $6)",
				 6, types, values, nulls, false, 0);
	ssw_spi_exec("INSERT INTO sweeper.policy_change (policy_id, policy, changed_by, change, new)"
				 " SELECT policy_id, policy, 'session_sweeper', 'fuse', pg_catalog.jsonb_build_object('group', $2, 'detail', $5, 'until', $4)"
				 " FROM sweeper.policy WHERE policy_id = $1 AND $3 IS NOT NULL", 5, types, values, nulls, false, 0);
	ssw_spi_end_as(&save);
	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	w->pass->fuse_trips++;
	if (s->name == NULL)
		w->pass->fuse_until = until;
	if (w->pass->fuse_next == 0 || until < w->pass->fuse_next)
		w->pass->fuse_next = until;
	LWLockRelease(SswShared->lock);
	ereport(WARNING,
			(errmsg("session_sweeper policy \"%s\" is held by its fuse: %s", p->name, message),
			 errdetail("None of these rows was expired. Without a decision they expire at %s.", timestamptz_to_str(until)),
			 errhint("If the rows should expire, SELECT sweeper.resume(%s%s);", quote_literal_cstr(p->name),
					 s->name ? psprintf(", %s", VARSIZE_ANY_EXHDR(s->name) > MOST_IN_HINT ? "'...'" : quote_literal_cstr(text_to_cstring(s->name))) : "")));
	return message;
}
