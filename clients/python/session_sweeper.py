"""Seats and workers of session_sweeper, for psycopg 3 or psycopg2, threads or asyncio.

    with seat("dbname=app", "cad", owner="ann") as s:       # or: async with
        while work():
            s.check()                                       # raises Lost: somebody else may have the seat now

    worker = Worker("dbname=app", "resizer-1")

    @worker.job("photos", "image", "resize", on_worker_loss="requeue")
    def resize(task):                                       # or: async def
        task.progress(done=50, total=100)                   # raises Stopped if the task was cancelled or taken away
        return {"size": 1024}

    worker.run()                                            # until SIGTERM; or: await worker.arun()

What both keep: a session is attached and gets its heartbeats on one connection, which nothing else uses and which is
opened again when it breaks.  Only the answer false ends a session; after an error nothing is known, and the heartbeat is
tried again.  One time to live after the last answer true the session counts as lost, whatever the network does.
"""
import asyncio
import concurrent.futures
import contextlib
import datetime
import inspect
import json
import logging
import numbers
import signal
import socket
import threading
import time

from session_sweeper_driver import LIMIT, Line, connector, cursor_of, sqlstate, text_of, typed

log = logging.getLogger("session_sweeper")
LOOK = 1  # seconds between questions whether a running task is still wanted, and between tries after an error
REFUSED = ("22", "3F", "42")  # classes of SQLSTATE: a wrong argument, no such schema, no such function or no right
PASSING = ("40", "53", "55P03", "57")  # SQLSTATEs of what may go well at the next try
PROGRESS = ", sweeper.task_progress(%s, %s, %s, %s, attempt => %s)"
UNTOLD = "the server does not store the job's error"
WAIT = 5  # seconds that a worker waits for a task at a time


class Full(Exception):
    """The pool has no free seat."""


class Lost(Exception):
    """The session is over: it was ended, or no heartbeat was confirmed for one time to live."""


class Stopped(Exception):
    """The task shall stop: it was cancelled, or it is not this worker's any more."""


class Retry(Exception):
    """Raised by a job: this attempt failed, and the task shall be tried again."""


_ARGUMENTS = {  # which the caller may give by name, and their types
    "acquire": {"owner": (str,), "ttl": (datetime.timedelta, str), "metadata": (dict, list, str), "takeover": (bool,)},
    "acquire_wait": {"owner": (str,), "ttl": (datetime.timedelta, str)},
    "register_job": {"schema": (dict, list, str), "on_worker_loss": (str,)},
    "submit": {"group_role": (str,), "run_at": (datetime.date, str), "priority": (int,), "unique_key": (str,), "origin": (str,)},
}


def _named(function, arguments):
    """Named arguments of a function: their text in SQL, and their values.  Those that are None keep their defaults."""
    given, known = {name: value for name, value in arguments.items() if value is not None}, _ARGUMENTS[function]
    for name in arguments:
        if name not in known:
            hint = "" if "acquire" in function else "; attempts, backoff and timeout are set by sweeper.create_job()"
            raise TypeError(f"sweeper.{function}() has no argument {name!r}, but {', '.join(known)}{hint}")
        if name in given:
            typed(name, given[name], *known[name])
    return "".join(f", {name} => %s" for name in given), [json.dumps(v) if isinstance(v, (dict, list)) else v for v in given.values()]


def submit(connection, room, category, name, payload=None, **arguments):
    """Submit a task in the transaction of your connection, and return it.  arguments: others of sweeper.submit().
    With an AsyncConnection of psycopg 3: await submit(…)."""
    return _submit(connection, room, category, name, [payload], arguments, lambda tasks: tasks[0])


def submit_many(connection, room, category, name, payloads, **arguments):
    """As submit(), a task for each payload, all or none; returns the tasks in this order."""
    return _submit(connection, room, category, name, payloads, arguments, list)


def _submit(connection, room, category, name, payloads, arguments, result):
    text, values = _named("submit", arguments)
    call = (f"SELECT array(SELECT sweeper.submit_many(%s, %s, %s, %s::jsonb[]{text}))::text[]",
            [room, category, name, [json.dumps({} if payload is None else payload) for payload in payloads], *values])

    async def later():
        async with cursor_of(connection) as cursor:
            await cursor.execute(*call)
            return result((await cursor.fetchone())[0])
    if inspect.iscoroutinefunction(connection.commit):
        return later()
    with cursor_of(connection) as cursor:
        cursor.execute(*call)
        return result(cursor.fetchone()[0])


def _in_thread(function, *arguments):
    """Start it in a thread of its own: the few of an event loop would all wait for seats, and none could give one back."""
    executor = concurrent.futures.ThreadPoolExecutor(1)
    future = executor.submit(function, *arguments)
    executor.shutdown(wait=False)
    return future


def _whole(name, value):
    """What is a number as a bigint that is not negative: others would be refused later, far from the line with the mistake."""
    if value is not None and not (isinstance(value, numbers.Number) and 0 <= value < 2**63):
        raise ValueError(f"{name} must be a number from 0 to 2^63 - 1, not {value!r}")
    return None if value is None else int(value)


class _Lease:
    """A session that this process holds.  lost: set once it must not be relied on any more, and then `reason` says why."""

    def __init__(self, line, session, ttl, every, attach, asked):
        self.line, self.session, self.ttl, self.every, self._attach = line, session, ttl, every, attach
        self.lost, self.reason, self.on_lost, self._refused = threading.Event(), None, [], None
        self._lock, self._until, self._over = threading.Lock(), asked + ttl, threading.Event()
        threading.Thread(target=self._watch, name="session_sweeper watch", daemon=True).start()

    def ask(self, more="", *values):
        """A heartbeat, and what else is asked in the same statement.  Its row; None: nothing is known, or the session is lost.
        What the server refuses of `more` must not cost the heartbeat: that is sent alone then, and the row has one column."""
        attach, asked = self._attach and (self.line.fresh or not self.line.connection), time.monotonic()
        try:
            row = self.line.call(f"SELECT sweeper.{'attach' if attach else 'heartbeat'}(%s){more}", self.session, *values,
                                 limit=min(LIMIT, self.every))[0]
        except Exception as error:
            if more and self.line.connection:
                if str(error) != self._refused:
                    log.warning("the server refuses a report, which is dropped: %s", str(error).strip())
                self._refused = str(error)
                return self.ask()
            log.warning("heartbeat: nothing is known: %s", str(error).strip())
            if attach and self.line.connection:
                self._attach = False  # refused, for example by allow_attach: heartbeats must do
            return None
        self.line.fresh = False
        if not row[0]:
            self._lose("the session has ended")
            return None
        with self._lock:
            self._until = asked + self.ttl
        return row

    def _watch(self):
        while not self._over.wait(max(0, self._until - time.monotonic())):
            if time.monotonic() >= self._until:
                self._lose("no heartbeat was confirmed for one time to live")

    def _lose(self, reason):
        with self._lock:
            if self._over.is_set():
                return
            self.reason = reason
            self._over.set()
            self.lost.set()
        log.warning("lost a session: %s", reason)
        for tell in list(self.on_lost):
            tell()

    def check(self):
        if self.lost.is_set():
            raise Lost(self.reason)

    def end(self):
        """Release it, if it can be reached; otherwise it ends with its connection, which the caller closes, or by its time to live."""
        self._over.set()
        try:
            if not self.lost.is_set():
                self.line.call("SELECT sweeper.release(%s)", self.session)
        except Exception as error:
            log.warning("release: %s", str(error).strip())


class seat:
    """A seat of a pool for a block: with seat(connect, pool, owner=…), or async with.

    connect: a connection string, or what returns a connection.  attach: free the seat as soon as the connection ends; not
    behind a pooler.  on_lost: called at once, by another thread, when the seat is lost.  wait: seconds to wait for a seat, which
    needs owner.  arguments: those of sweeper.acquire(), of which a wait can have no others.
    Raises Full at the start, and Lost at the end of a block that has outlived its seat.  An async block is cancelled.
    """

    def __init__(self, connect, pool, *, attach=True, on_lost=None, wait=0, **arguments):
        self._connect, self._pool, self._attach, self._on_lost = connector(connect), pool, attach, on_lost
        self._wait, self._arguments = typed("wait", wait, int, float), _named("acquire_wait" if wait else "acquire", arguments)
        if wait and arguments.get("owner") is None:
            raise TypeError("wait needs owner")

    def __enter__(self):
        line, (text, values) = Line(self._connect), self._arguments
        try:
            if self._wait:
                [row] = line.call(f"CALL sweeper.acquire_wait(%s, wait => %s{text})", self._pool, f"{self._wait} s", *values, limit=self._wait + LIMIT)
            else:
                [row] = line.call(f"SELECT * FROM sweeper.acquire(%s{text})", self._pool, *values) or [(None,)]
            if row[0] is None:
                raise Full(self._limit(line))
            session, self.fence, _, ttl, every, _, self.seats, self.seats_used = row
            self.session = str(session)
            asked = time.monotonic()
            [(alive, ttl, every)] = line.call("SELECT sweeper.heartbeat(%s), extract(epoch FROM %s::interval)::float8, extract(epoch FROM %s::interval)::float8",
                                              self.session, ttl, every)
            if not alive:
                raise Lost("the session has ended")
        except BaseException:
            line.close()
            raise
        self._lease = _Lease(line, self.session, float(ttl), float(every), self._attach, asked)
        self.lost, self.check = self._lease.lost, self._lease.check
        if self._on_lost:
            self._lease.on_lost.append(self._on_lost)
        self._leave = threading.Event()
        self._heart = threading.Thread(target=self._beat, name="session_sweeper heartbeat", daemon=True)
        self._heart.start()
        return self

    def _limit(self, line):
        """Which limit leaves no seat, as far as the role may see it."""
        with contextlib.suppress(Exception):
            [(free, most)] = line.call("SELECT free, max_per_owner FROM sweeper.pool_status WHERE pool = %s", self._pool)
            if free != 0:
                return f"the owner has max_per_owner ({most}) seats of pool {self._pool}" if most else f"others wait for pool {self._pool}"
        return f"pool {self._pool} is full"

    def _beat(self):
        while not self.lost.is_set():
            known = self._lease.ask()
            if self._leave.wait(self._lease.every if known else min(LOOK, self._lease.every)):
                break
        self._lease.end()
        self._lease.line.close()

    def __exit__(self, kind, error, trace):
        self._leave.set()
        self._heart.join()
        if kind is None:
            self.check()

    async def __aenter__(self):
        loop, block = asyncio.get_running_loop(), asyncio.current_task()
        entered = _in_thread(self.__enter__)
        try:
            await asyncio.wrap_future(entered)
        except asyncio.CancelledError:
            entered.add_done_callback(lambda _: entered.cancelled() or entered.exception() or self._leave.set())
            raise
        self._lease.on_lost.append(lambda: loop.call_soon_threadsafe(block.cancel))
        self.check()
        return self

    async def __aexit__(self, kind, error, trace):
        try:
            await asyncio.wrap_future(_in_thread(self.__exit__, kind, error, trace))
            if kind is asyncio.CancelledError:
                self.check()
        except (asyncio.CancelledError, Lost):
            if self.lost.is_set():  # the cancel was ours
                getattr(asyncio.current_task(), "uncancel", int)()
                raise Lost(self._lease.reason) from None
            raise


class Task:
    """What a job gets: task, room, category, name, payload, attempt; stopped is set when it shall end."""

    def __init__(self, row):
        self.task, self.room, self.category, self.name, self.payload, self.attempt = row
        self.task, self.stopped = str(self.task), threading.Event()
        self._report, self._news = None, threading.Event()

    def progress(self, done=None, total=None, message=None):
        """Report how far it is, in whole numbers; returns at once.  Raises Stopped if it shall stop."""
        self.check()
        self._report = _whole("done", done), _whole("total", total), None if message is None else text_of(message)
        self._news.set()

    def check(self):
        if self.stopped.is_set():
            raise Stopped(f"task {self.task} shall stop")


class Worker:
    """Does tasks, `slots` of them at a time; each slot is a worker of the server with one connection.

    connect, attach: as for seat.  ttl: seconds without a heartbeat after which its tasks are taken away.
    """

    def __init__(self, connect, name=None, *, slots=1, ttl=60, attach=True, metadata=None):
        self._connect, self._name, self._slots, self._ttl, self._attach = connector(connect), name or socket.gethostname(), slots, ttl, attach
        self._metadata, self._jobs, self._stop, self._loop, self._executor = metadata or {}, {}, threading.Event(), None, None
        self._refusal = None
        if min(typed("slots", slots, int), typed("ttl", ttl, int, float)) <= 0:
            raise ValueError("slots and ttl must be above 0")

    def job(self, room, category, name=None, *, retry_on=(), **arguments):
        """Decorator of a function of a Task.  retry_on: exceptions after which the task is tried again, as after Retry.
        arguments: others of sweeper.register_job().  The function's result, if it has one, is the task's."""
        def decorate(function, named=_named("register_job", arguments)):
            self._jobs[room, category, name or function.__name__] = function, (Retry, *retry_on), named
            return function
        return decorate

    def run(self):
        """Work until stop(), or a signal SIGTERM or SIGINT.  Tasks that run are finished first.  Raises the error if the server
        refuses the worker or a job, for example for want of a right: a service manager should see that.  Otherwise it tries again."""
        if threading.current_thread() is threading.main_thread() and self._loop is None:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: self.stop())
        own = None
        if self._loop is None:
            own = self._loop = asyncio.new_event_loop()  # of jobs that are coroutines
            turning = threading.Thread(target=own.run_forever, daemon=True)
            turning.start()
        with concurrent.futures.ThreadPoolExecutor(2 * self._slots, "session_sweeper slot or job") as self._executor:
            slots = [self._executor.submit(self._slot, n) for n in range(self._slots)]
            while concurrent.futures.wait(slots, LOOK).not_done:
                pass  # the handler of a signal runs when this thread wakes
            for slot in slots:
                slot.result()
        if own:
            own.call_soon_threadsafe(own.stop)
            turning.join()
            own.close()
            self._loop = None
        if self._refusal:
            raise self._refusal

    async def arun(self):
        """As run(); jobs that are coroutines run in the caller's event loop.  Cancel it, or call stop(), to end it."""
        self._loop = asyncio.get_running_loop()
        running = asyncio.wrap_future(_in_thread(self.run))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            self.stop()
            await running
            raise

    def stop(self):
        """Take no more tasks.  run() ends when those that run have ended, and within some seconds if there are none."""
        self._stop.set()

    def _slot(self, _):
        while not self._stop.is_set():
            line = Line(self._connect)
            try:
                lease = self._register(line)
            except Exception as error:
                if sqlstate(error).startswith(REFUSED) and line.connection:
                    access = sqlstate(error) == "42501" and not error.diag.message_hint
                    hint = f"; access is given by: SELECT sweeper.grant_access('{line.connection.info.user}', 'user')" if access else ""
                    log.error("the server refuses the worker, which ends: %s%s", str(error).strip(), hint)
                    self._refusal = error
                    self.stop()
                else:
                    log.warning("cannot register the worker: %s", str(error).strip())
                line.close()
                self._stop.wait(LOOK)
                continue
            while not self._stop.is_set() and not lease.lost.is_set():
                task = self._claim(lease)
                if task:
                    self._work(lease, task)
            lease.end()
            line.close()

    def _register(self, line):
        asked = time.monotonic()
        [(worker,)] = line.call("SELECT sweeper.register_worker(%s, %s, %s)", self._name, json.dumps(self._metadata), f"{self._ttl} s")
        lease = _Lease(line, str(worker), self._ttl, self._ttl / 3, self._attach, asked)
        try:
            for (room, category, name), (_, _, (text, values)) in self._jobs.items():
                line.call(f"SELECT sweeper.register_job(%s, %s, %s, %s{text})", lease.session, room, category, name, *values)
        except BaseException:
            lease.end()
            raise
        return lease

    def _claim(self, lease):
        """The next task, started; None: there was none, or nothing is known."""
        wait = min(WAIT, lease.every)
        if not lease.ask():
            self._stop.wait(0 if lease.lost.is_set() else LOOK)
            return None
        try:
            [row] = lease.line.call("CALL sweeper.claim_wait(%s, %s, true)", lease.session, f"{wait} s", limit=wait + LIMIT)
        except Exception as error:
            log.warning("claim: %s", str(error).strip())
            self._stop.wait(LOOK)
            return None
        return Task(row) if row[0] else None

    def _start(self, function, task):
        async def body():
            try:
                return await function(task)
            except SystemExit as error:  # which would end the loop
                return error
        if inspect.iscoroutinefunction(function):
            return asyncio.run_coroutine_threadsafe(body(), self._loop)
        return self._executor.submit(function, task)

    def _work(self, lease, task):
        """Run one task, and keep it and the worker alive until it ends.  If the worker is lost, it has no result."""
        function, retry_on, _ = self._jobs[task.room, task.category, task.name]
        lease.on_lost.append(lambda: (task.stopped.set(), task._news.set()))
        if lease.lost.is_set():
            task.stopped.set()
        future = self._start(function, task)
        future.add_done_callback(lambda _: task._news.set())
        due = 0
        while not future.done():
            task._news.wait(max(0, due - time.monotonic()))
            task._news.clear()
            if task.stopped.is_set() and inspect.iscoroutinefunction(function):
                future.cancel()
            if future.done():
                break
            due = time.monotonic() + min(LOOK, lease.every)
            if lease.lost.is_set():
                continue
            report = task._report
            row = lease.ask(PROGRESS, task.task, *(report or (None, None, None)), task.attempt)
            if row and row[1:] == (False,) and not task.stopped.is_set():
                task.stopped.set()
                task._news.set()
            if row and task._report is report:
                task._report = None
        lease.on_lost.pop()
        self._finish(lease, task, future, retry_on)

    def _finish(self, lease, task, future, retry_on):
        status, result, text, more = "completed", None, None, ""
        try:
            result = future.result()
            if isinstance(result, SystemExit):
                raise result
        except BaseException as error:
            if task.stopped.is_set() and isinstance(error, (Stopped, asyncio.CancelledError, concurrent.futures.CancelledError)):
                status, result, text = "cancelled", None, "the worker was asked to stop"
            else:
                again = isinstance(error, retry_on)
                status, result, text, more = "failed", None, text_of(error), ", retry => true" if again else ""
                log.log(logging.INFO if again else logging.ERROR, "attempt %s of task %s failed: %s", task.attempt, task.task, text, exc_info=not again)
        while not lease.lost.is_set():
            try:
                values = status, None if result is None else json.dumps(result), text
                if task._report and not text:
                    lease.ask(PROGRESS, task.task, *task._report, task.attempt)
                    task._report = None
                [(done,)] = lease.line.call(f"SELECT sweeper.finish_task(%s, %s, %s, %s, attempt => %s{more})", task.task, *values, task.attempt)
                if not done:
                    log.warning("task %s had ended, or was taken away, before its worker finished it", task.task)
                return
            except Exception as error:
                log.warning("finish of task %s: %s", task.task, text_of(error))
                if not lease.line.connection or sqlstate(error).startswith(PASSING):
                    time.sleep(LOOK)
                    lease.ask()
                elif text == UNTOLD:
                    return
                else:  # the server, or json, does not take it
                    status, result, text = "failed", None, UNTOLD if status == "failed" else text_of(error)
