/*
 * heartbeat.pml
 *		Heartbeats in memory against expiries of the row: who wins.
 *
 * One session.  The steps (H1, S1, E1, ...) are those that src/heartbeat/store.c,
 * src/heartbeat/slow_path.c and src/sweep/alive_by_heartbeat.c name.  README.md says what is left out; run.sh
 * says who meets in which configuration, and which BROKEN_ variants must fail.
 */

/* Instants are small numbers; 0 is -infinity. */
#ifndef TMAX
#define TMAX	5
#endif
#ifndef TTL
#define TTL		2
#endif
#ifndef MARGIN
#define MARGIN	0
#endif
#ifndef AHEAD
#define AHEAD	2				/* refresh_ahead */
#endif
#ifndef WRITES
#define WRITES	2				/* of the application */
#endif

/* Who holds the row exclusively, or has marked the entry.  Clients: 1 and 2. */
#define NOBODY		0
#define WORKER		3
#define WORKER2		4
#define RELEASER	5
#define REFRESHER	6
#define APPLICATION	7

byte clock = 1;

/* The row as committed, and its lock. */
bool row = true;
byte deadline;
byte sharers;
byte writer = NOBODY;

/*
 * The entry.  seen and mark are one word.  Instants are coarse here, so that
 * equal ones may differ by microseconds: that the word without its mark is the
 * one that somebody read is a bit.
 */
bool entry;
byte seen;
bool mark;
byte same;						/* a bit for each who read the word */
bool look;						/* LOOK: the next heartbeat reads the row */
byte remembered;				/* the row's deadline, as last read or written */
byte readers;					/* of the partition lock */

bool stopping;

#if defined(STOP) || defined(CRASH)
bool down;						/* everybody dies */
byte start;						/* of this service */
bool crashed;					/* this service began after a crash */
byte horizon;					/* rows up to it were judged before */
bool file;						/* what the stop saved */
byte file_seen, file_remembered, file_known;
#endif

/* What only the assertions look at. */
byte life;						/* counts insertions */
byte written;					/* counts the application's writes */
byte known;						/* the last of them that the entry reflects */
bool shortened;					/* by the application, and no heartbeat saw it */
byte holds;						/* acknowledged heartbeats hold the row until then */
byte loose;						/* the same, answered in open transactions for overdue rows */
byte ended;						/* how often this life ended */
bool ended_by_us;
byte expired_at;				/* unasked */
byte marker = NOBODY;

#define MAX(a, b)	((a) > (b) -> (a) : (b))
#define MIN(a, b)	((a) < (b) -> (a) : (b))
#define BIT(who)	(1 << (who))

/* Somebody else is in the way; waiting for him may end in lock_timeout. */
#define BUSY_X	(writer != NOBODY || sharers > 0)
#define BUSY_S	(writer != NOBODY)

#define NEAR(dl)	((dl) <= now + MARGIN)

/*
 * Passed while we were on our way.  Looked at after the entry was written, else
 * a pass may have judged the row dead in between, and after a crash nobody knows
 * better.  Nothing else depends on it, so it is off where nothing crashes.
 */
#if defined(CRASH) && !defined(BROKEN_CLOCK_ONCE)
#define PAST(dl)	((dl) <= clock)
#else
#define PAST(dl)	false
#endif

/* Everybody dies when the server goes down. */
#if defined(STOP) || defined(CRASH)
#define BODY		{ skip;
#define END_BODY	} unless { down }
#else
#define BODY		skip;
#define END_BODY
#endif

proctype Clock()
{
	do
	:: clock < TMAX -> clock++
	od
}

inline forget_entry()
{
	entry = false; seen = 0; same = 0; look = false; mark = false; marker = NOBODY; remembered = 0; known = 0
}

/* --- heartbeats ------------------------------------------------------------ */

/*
 * The answer true.  It says what was known of the row when memory or row were
 * looked at; if the application has written since, it wins.
 */
inline acknowledge()
{
	d_step {
		assert(!late);			/* property 3 */
		if
		:: mine && myview == written + 1 -> promised = MAX(promised, now + TTL)
		:: else ->
			if
			:: mylife == life && myview == written ->
				if
				:: row && !overdue -> holds = MAX(holds, now + TTL)
			:: row && overdue -> loose = MAX(loose, now + TTL)
				:: !row && expired_at > 0 -> assert(expired_at >= now + TTL)
				:: else
				fi
			:: else
			fi
		fi
	}
}

/*
 * S3, while the row is locked: the entry says so, under the exclusive partition
 * lock.  Always another word, so that an expiry notices even within one instant.
 */
inline publish(dl, sees)
{
	atomic {
		if
		:: readers == 0 && !entry && room -> entry = true; seen = now; same = 0
		:: readers == 0 && entry ->
			if
			:: now > seen -> seen = now; same = 0
#ifndef BROKEN_SAME_WORD
			:: now <= seen -> same = 0	/* seen + 1 microsecond */
#else
			:: now <= seen -> skip
#endif
			fi
		:: !entry && !room -> noroom = true
		fi;
		if
		:: !noroom -> look = false; mark = false; marker = NOBODY; remembered = dl; known = sees
		:: else
		fi;
		if
		:: myview == written -> shortened = false
		:: else
		fi
	}
}

#ifdef BROKEN_DEFERRED
inline publish_deferred(dl)
{
	if
	:: atomic { deferred > 0 -> now = deferred; deferred = 0; room = true };
		publish(dl, myview)
	:: else
	fi
}
#else
#define publish_deferred(dl)	skip
#endif

/* The row is locked, and gets another deadline: what the entry has until then. */
inline note_base()
{
	base = remembered; base_known = known; noted = entry
}

/*
 * R2, after the commit, under the exclusive partition lock: the row has deadline dl, and
 * the application's write sees.  The deadline is the one of before if the write that it
 * reflects is, too: instants are coarse here.
 */
inline remember(dl, sees)
{
	atomic {
		readers == 0;
		if
		:: !entry || !noted
#ifdef BROKEN_BLIND_DEADLINE
		:: entry && noted -> remembered = dl; known = sees
#else
		:: entry && noted && remembered == base && known == base_known -> remembered = dl; known = sees
		:: entry && noted && (remembered != base || known != base_known) ->
			if
			:: dl < remembered -> remembered = dl
			:: else
			fi;
			look = true
#endif
		fi
	}
}

/* README.md, "Answers in transaction blocks". */
#ifndef STRICT
#define OVERDUE	(deadline <= clock)
#else
#define OVERDUE	false
#endif

proctype Client(byte me)
{
	byte now, dl, mylife, myview, pending, promised;
	byte base, base_known;		/* what the entry had when the row was written */
	bool late, exclusive, noroom, room, mustwrite, noted, overdue;
#ifdef BROKEN_DEFERRED
	byte deferred;				/* last heartbeat to publish when it is over */
#endif
	bool block;					/* in a transaction block ... */
	bool own;					/* ... that has written the row, ... */
	bool mine;					/* ... as the application */

	BODY
begin:
#ifdef BLOCK
	if
	:: block = true
	:: block = false
	fi;
#ifdef OWN
	if
	:: skip
	:: atomic { block && row && !BUSY_X -> writer = me; own = true; mylife = life;
		pending = deadline;
		if
		:: skip
		:: written < WRITES && clock < deadline -> pending = clock; mine = true
		:: written < WRITES && clock + 1 < deadline -> pending = clock + 1; mine = true
		fi }
	fi;
#endif
#endif

beat:
	atomic {
		now = clock;
		late = !row && ended_by_us;
		mylife = life;
		mustwrite = false
	};
H1:
	if
	:: atomic { entry -> readers++ }
	:: atomic { !entry -> goto S1 }
	fi;
again:
	atomic {
		if
		:: mark || look -> readers--; goto S1
		:: else -> same = same | BIT(me)
		fi
	};
	atomic {
		if
		:: NEAR(remembered) -> readers--; goto S1
		:: else -> dl = remembered
		fi
	};
H2:
	atomic {
		if
		:: !mark && !look && (same & BIT(me)) ->
			if
			:: now > seen -> seen = now; same = 0
			:: else
			fi;
			late = late && mylife == life;
			mylife = life;
			myview = known;
			readers--
		:: else -> goto again
		fi
	};
H3:
	atomic {
		if
#ifndef BROKEN_NO_REREAD
		:: stopping -> mustwrite = true; goto S1
#endif
		:: PAST(dl) -> goto S1
		:: else -> dl = 0
		fi
	};
H4:
	acknowledge();
	goto answered;

S1:
	atomic {
		exclusive = mustwrite || NEAR(deadline);	/* a guess */
		if
		:: own -> exclusive = true
		:: !own && row && exclusive && !BUSY_X -> writer = me
		:: !own && row && !exclusive && !BUSY_S -> sharers++
		:: !own && !row && !BUSY_X -> goto answered		/* S2: false */
		:: !own && row && (exclusive && BUSY_X || !exclusive && BUSY_S) -> goto held
		fi;
		now = clock;
		late = late && mylife == life;
		mylife = life;
		myview = written + mine;
		if
		:: own -> dl = pending
		:: else -> dl = deadline
		fi;
		if
		:: room = true
#ifdef NOROOM
		:: room = false
#endif
		fi
	};
S3:
#ifdef BROKEN_LATE_PUBLISH
	atomic {
		if
		:: !NEAR(dl) && !mustwrite && !stopping ->
			if
			:: exclusive -> writer = NOBODY
			:: else -> sharers--
			fi;
			goto late_publish
		:: else
		fi
	};
#endif
	atomic {
		if
		:: own ->
#ifdef BROKEN_DEFERRED
			deferred = now;
			goto S4
#else
#ifdef BROKEN_OTHERS_DEADLINE
			dl = deadline
#else
			dl = MIN(deadline, pending)	/* as others see it, or will */
#endif
#endif
		:: else
		fi
	};
	publish(dl, written);
	if
	:: atomic { own && !noroom -> note_base() }
	:: else
	fi;
S4:
	atomic {
		if
		:: own -> dl = pending
		:: else
		fi;
		if
		:: !NEAR(dl) && !PAST(dl) && !noroom && !mustwrite && !stopping -> goto S5
#ifndef BROKEN_WRITE_IN_BLOCK
		:: block && (noroom || stopping) -> goto give_up
#endif
		:: else
		fi;
		if
		:: exclusive
		:: !exclusive && writer == NOBODY && sharers == 1 -> sharers--; writer = me; exclusive = true
		:: !exclusive && sharers > 1 -> goto give_up
		fi;
		pending = now + TTL;
		note_base()
	};
	if
	:: atomic { block ->
		own = true;
		overdue = overdue || OVERDUE };
		acknowledge();
		goto answered
	:: else
	fi;
	atomic { writer = NOBODY; deadline = pending; shortened = false };
	remember(pending, myview);
	acknowledge();
	goto answered;
S5:
	atomic {
		if
		:: own -> overdue = overdue || OVERDUE
		:: !own && exclusive -> writer = NOBODY
		:: !own && !exclusive -> sharers--
		fi
	};
	acknowledge();
	goto answered;
#ifdef BROKEN_LATE_PUBLISH
late_publish:
	publish(dl, myview);
	acknowledge();
	goto answered;
#endif

give_up:
	atomic {
		if
		:: own
		:: !own && exclusive -> writer = NOBODY
		:: !own && !exclusive -> sharers--
		fi;
		goto failed
	};

held:							/* S1' */
	atomic {
		if
		:: entry && !mark && seen < clock && seen + TTL > clock -> seen = clock; same = 0
		:: else
		fi
	};

failed:							/* an error: the answer is unknown */
	if
	:: own -> goto rollback
	:: else -> goto done
	fi;

answered:
	atomic { dl = 0; late = false; exclusive = false; noroom = false; room = false; mustwrite = false; same = same & ~BIT(me) };
	if
	:: block -> goto beat
	:: own -> goto commit
	:: own -> goto rollback
	:: !own -> goto done
	fi;

commit:
	atomic {
		writer = NOBODY;
		deadline = pending;
		shortened = false;
		if
		:: mine -> written++; myview = written; holds = promised; loose = 0; shortened = (promised == 0)
		:: else -> myview = written; holds = MAX(holds, loose); loose = 0
		fi
	};
	publish_deferred(pending);
	remember(pending, myview);
	goto done;
rollback:
	atomic {
		writer = NOBODY;
		dl = deadline;
		if
		:: promised > holds && !overdue -> holds = promised
		:: promised > loose && overdue -> loose = promised
		:: else
		fi
	};
	publish_deferred(0);
	remember(dl, base_known);

done:
	atomic {
		base = 0; base_known = 0; noted = false; overdue = false;
		now = 0; dl = 0; mylife = 0; myview = 0; pending = 0; promised = 0; same = same & ~BIT(me);
		late = false; exclusive = false; noroom = false; room = false; mustwrite = false;
		block = false; own = false; mine = false
	};
	goto begin
	END_BODY
}

/* --- expiry ---------------------------------------------------------------- */

/* The entry still carries our mark, on the same word. */
#ifdef BROKEN_NO_MARK
#define MARK	false
#else
#define MARK	true
#endif
#define OURS	(marked && entry && mark == MARK && (same & BIT(me)))

/* Committed and visible, before the callbacks of the transaction. */
inline end_row(asked)
{
	d_step {
		assert(row);
		ended++;
		assert(ended <= 1);		/* property 2 */
		if
		:: !asked ->
			assert(clock >= holds); /* property 1 */
			expired_at = clock
		:: else
		fi;
		ended_by_us = true;
		shortened = false;
		holds = 0; loose = 0;
		row = false;
		deadline = 0;
		writer = NOBODY
	}
}

/* Look again, now that the row is locked; its deadline is another perhaps. */
inline second_look(dead)
{
	atomic {
		if
#ifdef BROKEN_NO_SECOND_LOOK
		:: true
#else
		:: !marked && !entry
		:: OURS && dead
		:: else -> goto abort
#endif
		fi
	}
}

#ifndef BROKEN_STALE_DEADLINE
#define STILL_DEAD	(deadline < remembered || seen + TTL <= cutoff)
#else
#define STILL_DEAD	true
#endif

inline clean_up(who)
{
	if
	:: atomic { !OURS }
	:: atomic { OURS && readers == 0 -> forget_entry() }
	fi
}

inline roll_back(who)
{
	atomic {
		if
		:: writer == who -> writer = NOBODY
		:: else
		fi
	};
#ifndef BROKEN_LEFT_MARK
	atomic {
		if
		:: OURS -> mark = false; marker = NOBODY
		:: else
		fi
	}
#endif
}

#if defined(CRASH) && !defined(BROKEN_NO_GRACE)
#define GRACE_OVER	(!crashed || clock >= start + TTL || deadline <= horizon)
#else
#define GRACE_OVER	true
#endif

proctype Worker(byte me)
{
	byte cutoff, dl, seen0;
	bool marked;

	BODY
begin:
	atomic { row && deadline <= clock && GRACE_OVER -> cutoff = clock; dl = deadline };
E1:
	if
	:: atomic { !entry -> dl = 0; goto E2 }
	:: atomic { entry -> readers++ }
	fi;
again:
	atomic {
		if
		:: mark -> readers--; goto done
		:: else -> seen0 = seen; same = same | BIT(me)
		fi
	};
	atomic {
		if
		:: dl >= remembered && seen0 + TTL > cutoff -> readers--; goto done
		:: else
		fi
	};
	atomic {
		if
		:: !mark && (same & BIT(me)) ->
			mark = MARK;
			marked = true;
			if
			:: mark -> marker = me
			:: else
			fi;
			readers--; dl = 0; seen0 = 0
		:: else -> goto again
		fi
	};
E2:
	atomic {
		if
		:: !BUSY_X -> writer = me
		:: BUSY_X -> goto abort
		fi;
		if
#ifdef BROKEN_NO_PREDICATE
		:: goto E3
#else
		:: row && deadline <= cutoff -> goto E3
		:: else -> goto abort
#endif
		fi
	};
E3:
	second_look(STILL_DEAD);
	if
	:: skip
	:: goto abort
	fi;
E4:
	end_row(false);
	clean_up(me);
	goto done;
abort:
	roll_back(me);
done:
	atomic {
		assert(marker != me);	/* property 4 */
		cutoff = 0; dl = 0; seen0 = 0; same = same & ~BIT(me); marked = false
	};
	goto begin
	END_BODY
}

/* Whoever ends a session by its name: the row first, then whatever is there. */
proctype Releaser(byte me)
{
	bool marked, taken;

	BODY
begin:
	atomic { row && !BUSY_X -> writer = me };
	if
	:: atomic { !entry -> goto L3 }
	:: atomic { entry -> readers++ }
	fi;
again:
	atomic { same = same | BIT(me); taken = mark };
	atomic {
		if
		:: mark == taken && (same & BIT(me)) ->
#ifndef BROKEN_TAKEN_UNCHANGED
			if
			:: taken -> same = BIT(me) /* another word */
			:: else
			fi;
#endif
			mark = MARK;
			marked = true;
			if
			:: mark -> marker = me
			:: else
			fi;
			readers--
		:: else -> goto again
		fi
	};
L3:
	second_look(true);
	if
	:: skip
	:: goto abort
	fi;
	end_row(true);
	clean_up(me);
	goto done;
abort:
	roll_back(me);
done:
	atomic {
		assert(marker != me);	/* property 4 */
		same = same & ~BIT(me); marked = false; taken = false
	};
	goto begin
	END_BODY
}

/* --- refresh --------------------------------------------------------------- */

/*
 * The row's deadline is the one that the entry remembers.  (The application never
 * writes the same deadline twice, though the clock here is coarse.)
 */
#ifndef BROKEN_REFRESH_ANY
#define SAME_DEADLINE	(dl == remembered && wrote == known)
#else
#define SAME_DEADLINE	true
#endif

proctype Refresher(byte me)
{
	byte cutoff, dl, new, seen0;
	byte wrote, base, base_known;
	bool marked, noted;

	BODY
begin:
	atomic { row && deadline < clock + AHEAD -> cutoff = clock; dl = deadline; wrote = written };
	if
	:: atomic { !entry -> goto note }
	:: atomic { entry -> readers++ }
	fi;
	atomic { seen0 = seen; marked = mark };
	atomic {
		readers--;
		if
		:: seen0 + TTL <= cutoff -> goto note	/* dead */
#ifdef BROKEN_NOTE_OVERRULED
		:: seen0 + TTL > cutoff && dl < remembered -> goto note
#endif
		:: seen0 + TTL > cutoff && (marked || dl < remembered || !SAME_DEADLINE) -> goto done
		:: else
		fi;
		if
		:: seen0 + TTL <= dl -> goto note
		:: else -> new = seen0 + TTL
		fi
	};
R1:
	atomic {
		if
		:: !BUSY_X -> writer = me
		:: BUSY_X -> goto done
		fi;
		if
		:: row && deadline == dl && wrote == written -> note_base()
		:: else -> writer = NOBODY; goto done
		fi
	};
	if
	:: atomic { writer = NOBODY; goto done }	/* abort */
	:: atomic {
		assert(!shortened);		/* property 5 */
		writer = NOBODY;
		deadline = new }
	fi;
R2:
	remember(new, wrote);
note:
#ifdef CRASH
	atomic {
		if
		:: !crashed -> horizon = MAX(horizon, cutoff)
		:: else
		fi
	};
#endif
done:
	atomic { cutoff = 0; dl = 0; new = 0; seen0 = 0; wrote = 0; marked = false; base = 0; base_known = 0; noted = false };
	goto begin
	END_BODY
}

/* --- others ---------------------------------------------------------------- */

/* An entry that says no more than the row, or that is dead. */
proctype Housekeeper()
{
	BODY
	do
	:: atomic { entry && !mark && readers == 0 && (seen + TTL <= remembered || seen + TTL <= clock) -> forget_entry() }
	od
	END_BODY
}

proctype Application(byte me)
{
	byte new;

	BODY
	do
	:: atomic { written < WRITES && row && !BUSY_X -> writer = me };
		if
		:: atomic { writer = NOBODY }	/* abort */
		:: d_step {				/* delete */
			writer = NOBODY; row = false; deadline = 0;
			ended++; ended_by_us = false; shortened = false;
			assert(ended <= 1);	/* property 2 */
			written++; holds = 0; loose = 0 }
		:: atomic {
			if
			:: new = clock
			:: new = clock + 1
			fi;
			writer = NOBODY;
			if
			:: new < deadline -> deadline = new; shortened = true; written++; holds = 0; loose = 0
			:: else
			fi;
			new = 0 }
		fi
	:: atomic { written < WRITES && !row && !BUSY_X ->
		if
		:: deadline = clock + 1
		:: deadline = clock + TTL
		fi;
		row = true;
		life++; ended = 0; ended_by_us = false; expired_at = 0;
		written++; holds = 0; loose = 0 }
	od
	END_BODY
}

/* --- start and stop -------------------------------------------------------- */

inline start_all()
{
#if CLIENTS >= 1
	run Client(1);
#endif
#if CLIENTS >= 2
	run Client(2);
#endif
#ifdef WORKERS
	run Worker(WORKER);
#if WORKERS >= 2
	run Worker(WORKER2);
#endif
#endif
#ifdef RELEASE
	run Releaser(RELEASER);
#endif
#ifdef REFRESH
	run Refresher(REFRESHER);
#endif
#ifdef HOUSEKEEPING
	run Housekeeper();
#endif
#ifdef APP
	run Application(APPLICATION);
#endif
	skip
}

init
{
#if defined(STOP) || defined(CRASH)
	bool clean;
#endif

	atomic {
		if
		:: deadline = 2
		:: deadline = 3
		fi;
		if
		:: skip
		:: entry = true; seen = 1; remembered = deadline; holds = 1 + TTL
		fi;
		run Clock();
		start_all()
	};

#if defined(STOP) || defined(CRASH)
	if
#ifdef CRASH
	:: skip
#endif
#ifdef STOP
	:: stopping = true;
		/* T2: a mark is not saved: its transaction will be gone */
		atomic {
			if
			:: entry && seen + TTL > remembered ->
				file = true; file_seen = seen; file_remembered = remembered; file_known = known
			:: else
			fi
		};
		if
		:: clean = true
#ifdef CRASH
		:: clean = false
#endif
		fi
#endif
	fi;
	down = true;
	(_nr_pr == 2);
	/* T4 */
	atomic {
		writer = NOBODY; sharers = 0; readers = 0; stopping = false;
		forget_entry();
		if
		:: clean && file ->
			entry = true; seen = file_seen; remembered = file_remembered; known = file_known;
#ifndef BROKEN_TRUSTED_FILE
			look = true
#endif
		:: else
		fi;
		file = false; file_seen = 0; file_remembered = 0; file_known = 0;
		if
		:: !clean -> crashed = true; start = clock
		:: else
		fi;
		loose = 0;				/* their clients know that the transaction was lost */
		down = false;
		run Client(1);
		run Worker(WORKER)
	}
#endif
}
