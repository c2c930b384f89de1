/*
 * tzname.c
 *		Time zones that policies name.
 *
 * Runs in whoever registers or alters a policy.  Shares nothing; a crash leaves nothing
 * behind.
 */
#include "postgres.h"

#include "pgtime.h"

#include "policy/tzname.h"

/*
 * A zone by name, as PostgreSQL spells it.  What looks like an offset is refused: POSIX
 * counts them towards the west, so "UTC+3" is not what its reader thinks.  Errors: 22023.
 */
char	   *
ssw_tzname(const char *name)
{
	pg_tz	   *tz;

	if (!isalpha((unsigned char) name[0]) ||
		(strchr(name, '/') == NULL && (strpbrk(name, "+-") != NULL || isdigit((unsigned char) name[strlen(name) - 1]))))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("time zone \"%s\" is not a name", name),
				 errdetail("As an offset it would count towards the west."),
				 errhint("Use a name like 'UTC' or 'Europe/Berlin' from pg_timezone_names.")));
	tz = pg_tzset(name);
	if (tz == NULL || !pg_tz_acceptable(tz))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("time zone \"%s\" not recognized", name),
				 errhint("Use a name like 'UTC' or 'Europe/Berlin' from pg_timezone_names.")));
	return pstrdup(pg_get_timezone_name(tz));
}
