/*
 * window.c
 *		Maintenance windows: the times of the week in which a policy sweeps; and
 *		time zones that policies name.
 *
 * A window is text as in "22:00-06:00, Sat-Sun 00:00-24:00 Europe/Berlin": times with
 * the days on which they begin, every day if none, and their time zone.
 *
 * Runs in sessions that register a policy, in coordinators and workers.  Shares nothing; a
 * crash leaves nothing behind.
 */
#include "postgres.h"

#include "fmgr.h"
#include "pgtime.h"
#include "utils/builtins.h"
#include "utils/datetime.h"
#include "utils/timestamp.h"

#include "policy/window.h"

PG_FUNCTION_INFO_V1(ssw_window_opens_sql);

#define DAY_MINUTES		(24 * 60)
#define MAX_SPANS		32

/* One of the times of a window. */
typedef struct Span
{
	int			days;			/* bits; Sunday is 1 */
	int			from;			/* minutes after midnight */
	int			to;				/* the next day's, when not after from */
} Span;

static const char *const day_names[] = {"sun", "mon", "tue", "wed", "thu", "fri", "sat"};

static bool
parse_day(const char **s, int *day)
{
	for (*day = 0; *day < 7; (*day)++)
		if (pg_strncasecmp(*s, day_names[*day], 3) == 0 && !isalpha((unsigned char) (*s)[3]))
		{
			*s += 3;
			return true;
		}
	return false;
}

/* "Mon" or "Fri-Mon", or nothing: every day. */
static bool
parse_days(const char **s, int *days)
{
	int			from;
	int			to;

	*days = 0x7f;
	if (!isalpha((unsigned char) **s))
		return true;
	if (!parse_day(s, &from))
		return false;
	to = from;
	if (**s == '-')
	{
		(*s)++;
		if (!parse_day(s, &to))
			return false;
	}
	*days = 1 << to;
	for (int d = from; d != to; d = (d + 1) % 7)
		*days |= 1 << d;
	return true;
}

/* Parse one; *s is then at a comma, at the zone or at the end. */
static bool
parse_span(const char **s, Span *span)
{
	int			from[2];
	int			to[2];
	int			length = 0;

	*s += strspn(*s, " ");
	if (!parse_days(s, &span->days) ||
		sscanf(*s, "%2d:%2d-%2d:%2d %n", &from[0], &from[1], &to[0], &to[1], &length) != 4)
		return false;
	*s += length;
	span->from = from[0] * 60 + from[1];
	span->to = to[0] * 60 + to[1];
	return from[0] >= 0 && from[1] >= 0 && from[1] < 60 && span->from < DAY_MINUTES &&
		to[0] >= 0 && to[1] >= 0 && to[1] < 60 && span->to <= DAY_MINUTES && span->from != span->to;
}

/* Read the times of a window and the name of its zone, which may be empty.  0: the text is no window. */
static int
parse(const char *s, Span *spans, const char **zone)
{
	int			n = 0;
	bool		more;

	do
	{
		if (n == MAX_SPANS || !parse_span(&s, &spans[n++]))
			return 0;
		more = *s == ',';
		s += more;
	} while (more);
	*zone = s;
	return *s == '\0' || isalpha((unsigned char) *s) ? n : 0;
}

/*
 * A zone by name, as PostgreSQL spells it.  What looks like an offset is refused: POSIX
 * counts them towards the west, so "UTC+3" is not what its reader thinks.  Errors: 22023.
 */
char	   *
ssw_window_zone(const char *name)
{
	bool		offset = !isalpha((unsigned char) name[0]) ||
	(strchr(name, '/') == NULL && (strpbrk(name, "+-") != NULL || isdigit((unsigned char) name[strlen(name) - 1])));
	pg_tz	   *tz = offset ? NULL : pg_tzset(name);

	if (tz == NULL || !pg_tz_acceptable(tz))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("time zone \"%s\" is not the name of a time zone", name),
				 offset ? errdetail("In an offset, positive numbers would mean west of Greenwich.") : 0,
				 errhint("Use a name like 'UTC' or 'Europe/Berlin' from pg_timezone_names.")));
	return pstrdup(pg_get_timezone_name(tz));
}

/*
 * A window as it is stored, with its zone; the default is the session's zone.
 * Errors: 22023.
 */
char	   *
ssw_window_check(const char *text)
{
	Span		spans[MAX_SPANS];
	const char *zone;

	if (parse(text, spans, &zone) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid maintenance_window: \"%s\"", text),
				 errhint("Give times, and days unless all are meant, for example '22:00-06:00' or 'Mon-Fri 22:00-06:00, Sat-Sun 00:00-24:00 Europe/Berlin'.")));
	if (*zone == '\0')
		return psprintf("%s %s", text, ssw_window_zone(pg_get_timezone_name(session_timezone)));
	(void) ssw_window_zone(zone);
	return pstrdup(text);
}

/* Is this minute of a day in the time, which may have begun the day before? */
static bool
covers(const Span *span, int day, int minute)
{
	bool		today = span->days & (1 << day);
	bool		yesterday = span->days & (1 << (day + 6) % 7);

	if (span->from < span->to)
		return today && minute >= span->from && minute < span->to;
	return (today && minute >= span->from) || (yesterday && minute < span->to);
}

/*
 * The first time, from a time on, at which the window is open: that time itself, or the
 * beginning of a later minute.  0: it does not open within nine days.  Each minute is
 * looked up as local time, so an hour that spring leaves out opens nothing, and the hour
 * that autumn repeats is open twice.  A window that cannot be read, as after a change of
 * the time zones, is open.
 */
TimestampTz
ssw_window_opens(const char *text, TimestampTz from)
{
	Span		spans[MAX_SPANS];
	const char *name;
	int			n = parse(text, spans, &name);
	pg_tz	   *zone = n > 0 ? pg_tzset(name) : NULL;
	struct pg_tm tm;
	fsec_t		fsec;
	int			offset;

	for (TimestampTz at = from; at < from + 9 * USECS_PER_DAY; at = ssw_window_next_minute(at))
	{
		if (zone == NULL || timestamp2tm(at, &offset, &tm, &fsec, NULL, zone) != 0)
			return from;
		for (int i = 0; i < n; i++)
			if (covers(&spans[i], j2day(date2j(tm.tm_year, tm.tm_mon, tm.tm_mday)), tm.tm_hour * 60 + tm.tm_min))
				return at;
	}
	return 0;
}

/* Windows open and close with a minute. */
TimestampTz
ssw_window_next_minute(TimestampTz now)
{
	return now - now % USECS_PER_MINUTE + USECS_PER_MINUTE;
}

/* _window_opens(window, from): the same, for SQL; null: not soon.  Errors: 22023. */
Datum
ssw_window_opens_sql(PG_FUNCTION_ARGS)
{
	TimestampTz opens = ssw_window_opens(ssw_window_check(text_to_cstring(PG_GETARG_TEXT_PP(0))), PG_GETARG_TIMESTAMPTZ(1));

	if (opens == 0)
		PG_RETURN_NULL();
	PG_RETURN_TIMESTAMPTZ(opens);
}
