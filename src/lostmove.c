/*
 * lostmove.c
 *		Appended rows at which the process was ended that wrote them.
 *
 * Runs in runners.  As lost.c does for swept rows: code of a table's owner can end
 * the process that runs it, and nothing is caught then.  It leaves word as it exits;
 * the next takes the role's rows one by one, and sets aside the row at which two
 * were ended.
 *
 * Shares SswDatabase.lost_move and its SswProc, under SswShared->lock.  After a crash
 * of the server nobody knows.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "attach.h"
#include "identity.h"
#include "lostmove.h"
#include "plan.h"
#include "sql.h"

#define DEATHS		2			/* of processes, at one row alone */

/*
 * A process that moved rows is about to exit.  Code of the table's owner can end it:
 * it outlives its time, or makes an error FATAL, and nothing is caught then.  At a row
 * alone twice, it is the row's fault.  The caller holds the lock exclusively.
 */
void
ssw_lostmove_note(SswDatabase *d, const SswProc *proc)
{
	SswLostMove *m = &d->lost_move[0];

	if (proc->move_rows == 0 || ssw_attach_is_stopping())
		return;
	for (int i = 0; i < SSW_LOST_MOVES; i++)
		if (d->lost_move[i].role == proc->role)
		{
			m = &d->lost_move[i];
			break;
		}
		else if (!OidIsValid(d->lost_move[i].role))
			m = &d->lost_move[i];
	if (m->role != proc->role || m->id != proc->move_id)
		m->deaths = 0;
	m->role = proc->role;
	m->id = proc->move_id;
	m->deaths += proc->move_rows == 1;
}

/* The row at which processes of this role were ended. */
bool
ssw_lostmove_find(SswLostMove *lost)
{
	bool		found = false;
	SswDatabase *d;

	LWLockAcquire(SswShared->lock, LW_SHARED);
	d = ssw_shmem_database(MyDatabaseId, false);
	for (int i = 0; d && i < SSW_LOST_MOVES; i++)
		if (d->lost_move[i].role == MySswProc->role)
		{
			*lost = d->lost_move[i];
			found = true;
		}
	LWLockRelease(SswShared->lock);
	return found;
}

/* It was not at fault, or is set aside. */
void
ssw_lostmove_forget(const SswLostMove *lost)
{
	SswDatabase *d;

	LWLockAcquire(SswShared->lock, LW_EXCLUSIVE);
	d = ssw_shmem_database(MyDatabaseId, false);
	for (int i = 0; d && i < SSW_LOST_MOVES; i++)
		if (d->lost_move[i].role == lost->role && d->lost_move[i].id == lost->id)
			d->lost_move[i].role = InvalidOid;
	LWLockRelease(SswShared->lock);
}

/* Set it aside, when there is no doubt. */
void
ssw_lostmove_set_aside(const SswLostMove *lost)
{
	static const char *const sql =
	"WITH gone AS (DELETE FROM sweeper.append_row WHERE id = $1 AND stream IN (SELECT s.stream FROM sweeper._append_stream AS s WHERE s.here AND s.role_oid = $2)"
	" RETURNING id, stream, row_data)"
	" INSERT INTO sweeper.append_failed (id, stream, row_data, sqlstate, error)"
	" SELECT id, stream, row_data, $3, 'the process that wrote the row was ended' FROM gone";
	Oid			types[] = {INT8OID, OIDOID, TEXTOID};
	Datum		values[3];
	SswIdentity save;

	if (lost->deaths < DEATHS)
		return;
	ssw_sql_start_transaction();
	values[0] = Int64GetDatum(lost->id);
	values[1] = ObjectIdGetDatum(lost->role);
	values[2] = CStringGetTextDatum(unpack_sql_state(ERRCODE_ADMIN_SHUTDOWN));
	ssw_identity_become_extension(&save);
	ssw_sql_begin();
	(void) ssw_plan_execute(sql, 3, types, values, NULL, false);
	ssw_sql_end();
	ssw_identity_restore(&save);
	ssw_sql_commit();
	ssw_lostmove_forget(lost);
}
