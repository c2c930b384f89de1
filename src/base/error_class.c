/*
 * error_class.c
 *		Errors that were caught, and what an SQLSTATE says of a row, or of its policy.
 *
 * Runs in any process.  Shares nothing; a crash leaves nothing behind.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"

#include "base/error_class.h"

/*
 * Users' code raises errors of any length.  They are kept for each row that fails, in
 * memory and in tables, so that of each text no more than so many bytes is kept.
 */
#define MOST_TEXT	4096

static void
shorten(char **text)
{
	size_t		len = *text ? strlen(*text) : 0;
	char	   *start;

	if (len <= MOST_TEXT)
		return;
	start = psprintf("%.*s...", pg_mbcliplen(*text, len, MOST_TEXT), *text);
	pfree(*text);
	*text = start;
}

static int	last_ours = 0;

/* As errcode(), for an SQLSTATE that says what we do next. */
int
ssw_error_ours(int sqlerrcode)
{
	last_ours = sqlerrcode;
	return errcode(sqlerrcode);
}

/* Is it that one?  Users' code may raise the same SQLSTATE. */
bool
ssw_error_is_ours(const ErrorData *e, int sqlerrcode)
{
	bool		ours = e->sqlerrcode == sqlerrcode && last_ours == sqlerrcode;

	last_ours = 0;
	return ours;
}

/* In PG_CATCH(): the error, in CurrentMemoryContext.  The next one can be raised then. */
ErrorData  *
ssw_error_catch(void)
{
	ErrorData  *e = CopyErrorData();

	FlushErrorState();
	if (e->message == NULL || e->message[0] == '\0')
		e->message = pstrdup("missing error text");
	shorten(&e->message);
	shorten(&e->detail);
	shorten(&e->detail_log);
	shorten(&e->hint);
	shorten(&e->context);
	shorten(&e->internalquery);
	return e;
}

/* What kind of failure an SQLSTATE stands for. */
SswFailureClass
ssw_error_classify(int code)
{
	switch (code)
	{
		case ERRCODE_LOCK_NOT_AVAILABLE:
			return SSW_FAIL_LOCKED;
		case ERRCODE_QUERY_CANCELED:
		case ERRCODE_T_R_DEADLOCK_DETECTED:
		case ERRCODE_T_R_SERIALIZATION_FAILURE:
			return SSW_FAIL_TRANSIENT;
		case ERRCODE_INSUFFICIENT_PRIVILEGE:
		case ERRCODE_UNDEFINED_TABLE:
		case ERRCODE_UNDEFINED_COLUMN:
		case ERRCODE_UNDEFINED_FUNCTION:
		case ERRCODE_UNDEFINED_OBJECT:
		case ERRCODE_UNDEFINED_SCHEMA:
		case ERRCODE_WRONG_OBJECT_TYPE:
		case ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE:
		case ERRCODE_READ_ONLY_SQL_TRANSACTION:
		case ERRCODE_DISK_FULL:
		case ERRCODE_PROGRAM_LIMIT_EXCEEDED:
		case ERRCODE_DATA_CORRUPTED:
		case ERRCODE_INDEX_CORRUPTED:
			return SSW_FAIL_POLICY;
	}
	switch (ERRCODE_TO_CATEGORY(code))
	{
		case MAKE_SQLSTATE('0', '8', '0', '0', '0'):	/* connection */
		case MAKE_SQLSTATE('5', '3', '0', '0', '0'):	/* resources */
			return SSW_FAIL_TRANSIENT;
		case MAKE_SQLSTATE('5', '8', '0', '0', '0'):	/* system */
			return SSW_FAIL_POLICY;
	}
	return SSW_FAIL_ROW;
}
