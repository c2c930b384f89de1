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

/* "22:00", up to "24:00". */
static bool
parse_time(const char **s, int *minutes)
{
	const char *t = *s;

	if (!isdigit((unsigned char) t[0]) || !isdigit((unsigned char) t[1]) || t[2] != ':' ||
		!isdigit((unsigned char) t[3]) || !isdigit((unsigned char) t[4]) || isdigit((unsigned char) t[5]))
		return false;
	*minutes = ((t[0] - '0') * 10 + t[1] - '0') * 60 + (t[3] - '0') * 10 + t[4] - '0';
	*s += 5;
	return t[3] < '6' && *minutes <= DAY_MINUTES;
}

static const char *
skip_spaces(const char *s)
{
	while (*s == ' ')
		s++;
	return s;
}

/* Parse one; *s is then at a comma, at the zone or at the end. */
static bool
parse_span(const char **s, Span *span)
{
	*s = skip_spaces(*s);
	if (!parse_days(s, &span->days))
		return false;
	*s = skip_spaces(*s);
	if (!parse_time(s, &span->from) || *(*s)++ != '-' || !parse_time(s, &span->to))
		return false;
	*s = skip_spaces(*s);
	return span->from != span->to && span->from < DAY_MINUTES;
}

/* The times of a window and the name of its zone, which may be empty; 0: it is none. */
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
	return *s == '\0' || *s == '<' || isalpha((unsigned char) *s) ? n : 0;
}

/*
 * A zone by name, as PostgreSQL spells it.  What looks like an offset is refused: POSIX
 * counts them towards the west, so "UTC+3" is not what its reader thinks.  Errors: 22023.
 */
char	   *
ssw_window_zone(const char *name)
{
	pg_tz	   *tz;

	if (!isalpha((unsigned char) name[0]) ||
		(strchr(name, '/') == NULL && (strpbrk(name, "+-") != NULL || isdigit((unsigned char) name[strlen(name) - 1]))))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("time zone \"%s\" is not a name", name),
				 errdetail("It would be read as an offset that is positive to the west of Greenwich, as POSIX has it."),
				 errhint("Use a name like 'UTC' or 'Europe/Berlin' from pg_timezone_names.")));
	tz = pg_tzset(name);
	if (tz == NULL || !pg_tz_acceptable(tz))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("time zone \"%s\" not recognized", name),
				 errhint("Use a name like 'UTC' or 'Europe/Berlin' from pg_timezone_names.")));
	return pstrdup(pg_get_timezone_name(tz));
}

/*
 * A window as it is stored, with its zone: the session's where none is given.
 * Errors: 22023.
 */
char	   *
ssw_window_check(const char *text)
{
	Span		spans[MAX_SPANS];
	const char *given;
	const char *zone;

	if (parse(text, spans, &given) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("invalid maintenance_window: \"%s\"", text),
				 errhint("Give times, with days if not all, as in '22:00-06:00' or 'Mon-Fri 22:00-06:00, Sat-Sun 00:00-24:00 Europe/Berlin'.")));
	zone = *given ? given : pg_get_timezone_name(session_timezone);
	/* what it is called that a session has without a name */
	if (*zone != '<' || pg_tzset(zone) == NULL)
		(void) ssw_window_zone(zone);
	return *given ? pstrdup(text) : psprintf("%s %s", text, zone);
}

/* Is this minute of the week in the time that may have begun the day before? */
static bool
covers(const Span *span, int day, int minute)
{
	bool		today = span->days & (1 << day);
	bool		yesterday = span->days & (1 << (day + 6) % 7);

	if (span->from < span->to)
		return today && minute >= span->from && minute < span->to;
	return (today && minute >= span->from) || (yesterday && minute < span->to);
}

/* The minute of the week that a zone's clocks show; false: none. */
static bool
local_minute(TimestampTz at, pg_tz * zone, int *day, int *minute)
{
	struct pg_tm tm;
	fsec_t		fsec;
	int			tz;

	if (timestamp2tm(at, &tz, &tm, &fsec, NULL, zone) != 0)
		return false;
	*day = j2day(date2j(tm.tm_year, tm.tm_mon, tm.tm_mday));
	*minute = tm.tm_hour * 60 + tm.tm_min;
	return true;
}

/*
 * When it is open from a time on: that time itself, or a later minute; 0: not within
 * nine days, which a change of summer time can make of a week.  It goes by the clocks
 * on the wall, minute by minute, so an hour that they leave out opens nothing, and one
 * that they repeat is open twice.  A window that cannot be read, as after a change of
 * the zones, is open.
 */
TimestampTz
ssw_window_opens(const char *text, TimestampTz from)
{
	Span		spans[MAX_SPANS];
	const char *name;
	int			n = parse(text, spans, &name);
	pg_tz	   *zone = n > 0 ? pg_tzset(name) : NULL;
	int			day;
	int			minute;

	if (zone == NULL)
		return from;
	for (TimestampTz at = from; at < from + 9 * USECS_PER_DAY; at = ssw_window_next_minute(at))
	{
		if (!local_minute(at, zone, &day, &minute))
			return from;
		for (int i = 0; i < n; i++)
			if (covers(&spans[i], day, minute))
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
