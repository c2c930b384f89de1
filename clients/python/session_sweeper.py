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
import functools
import inspect
import json
import logging
import numbers
import os
import signal
import socket
import threading
import time

log = logging.getLogger("session_sweeper")
LIMIT = 5  # seconds until a silent connection is given up
LOOK = 1  # seconds between questions whether a running task is still wanted, and between tries after an error
REFUSED = ("22", "3F", "42")  # classes of SQLSTATE: a wrong argument, no such schema, no such function or no right
WAIT = 5  # seconds that a worker waits for a task at a time


class Full(Exception):
    """The pool has no free seat."""


class Lost(Exception):
    """The session is over: it was ended, or no heartbeat was confirmed for one time to live."""


class Stopped(Exception):
    """The task shall stop: it was cancelled, or it is not this worker's any more."""


class Retry(Exception):
    """Raised by a job: this attempt failed, and the task shall be tried again."""


def _connector(connect):
    """What opens a connection: the callable that was given, or the driver with a connection string."""
    if callable(connect):
        return connect
    try:
        import psycopg as driver
    except ImportError:
        import psycopg2 as driver
    return functools.partial(driver.connect, connect, connect_timeout=LIMIT)


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
        if name in given and not isinstance(given[name], known[name]):
            raise TypeError(f"{name} must be {' or '.join(kind.__name__ for kind in known[name])}, not {type(given[name]).__name__}")
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
        async with connection.cursor() as cursor:
            await cursor.execute(*call)
            return result((await cursor.fetchone())[0])
    if inspect.iscoroutinefunction(connection.commit):
        return later()
    with connection.cursor() as cursor:
        cursor.execute(*call)
        return result(cursor.fetchone()[0])


def _whole(name, value):
    """What is a number as a bigint that is not negative: others would be refused later, far from the line with the mistake."""
    if value is not None and not (isinstance(value, numbers.Number) and 0 <= value < 2**63):
        raise ValueError(f"{name} must be a number from 0 to 2^63 - 1, not {value!r}")
    return None if value is None else int(value)


class _Line:
    """One connection, used by one thread at a time; it is opened when it is needed.  No call outlasts its limit."""

    def __init__(self, connect):
        self._connect, self._connection, self.fresh = connect, None, False

    def call(self, sql, *values, limit=LIMIT):
        if self._connection is None:
            self._connection = self._connect()
            self._connection.autocommit = True
            self.fresh = True  # nothing is attached to it
        # Both drivers wait in libpq without a limit of their own; an end of the stream wakes them.
        # A descriptor of our own: it cannot have become another file's when the limit is over.
        stream = socket.socket(fileno=os.dup(self._connection.fileno()))
        timer = threading.Timer(limit, self._cut, [stream])
        timer.daemon = True
        timer.start()
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(sql, values)
                return cursor.fetchall() if cursor.description else []
        finally:
            timer.cancel()
            stream.close()
            if self._connection.closed:
                self._connection = None

    @staticmethod
    def _cut(stream):
        with contextlib.suppress(OSError):  # it has ended by itself
            stream.shutdown(socket.SHUT_RDWR)

    @property
    def broken(self):
        return self._connection is None

    def close(self):
        if self._connection is not None:
            self._connection.close()
            self._connection = None


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
        attach, asked = self._attach and (self.line.fresh or self.line.broken), time.monotonic()
        try:
            row = self.line.call(f"SELECT sweeper.{'attach' if attach else 'heartbeat'}(%s){more}", self.session, *values,
                                 limit=min(LIMIT, self.every))[0]
        except Exception as error:
            if more and not self.line.broken:
                if str(error) != self._refused:
                    log.warning("the server refuses a report, which is dropped: %s", str(error).strip())
                self._refused = str(error)
                return self.ask()
            log.warning("heartbeat: nothing is known: %s", str(error).strip())
            if attach and not self.line.broken:
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
        """Release it, if it can be reached; otherwise it ends with its connection, or by its time to live."""
        self._over.set()
        try:
            if not self.lost.is_set():
                self.line.call("SELECT sweeper.release(%s)", self.session)
        except Exception as error:
            log.warning("release: %s", str(error).strip())
        self.line.close()


class seat:
    """A seat of a pool for a block: with seat(connect, pool, owner=…), or async with.

    connect: a connection string, or what returns a connection.  attach: free the seat as soon as the connection ends; not
    behind a pooler.  on_lost: called at once, by another thread, when the seat is lost.  wait: seconds to wait for a seat, which
    needs owner.  arguments: those of sweeper.acquire(), of which a wait can have no others.
    Raises Full at the start, and Lost at the end of a block that has outlived its seat.  An async block is cancelled.
    """

    def __init__(self, connect, pool, *, attach=True, on_lost=None, wait=0, **arguments):
        self._connect, self._pool, self._attach, self._on_lost = _connector(connect), pool, attach, on_lost
        self._wait, self._arguments = wait, _named("acquire_wait" if wait else "acquire", arguments)
        if wait and arguments.get("owner") is None:
            raise TypeError("wait needs owner")

    def __enter__(self):
        line, (text, values) = _Line(self._connect), self._arguments
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
            if not line.call("SELECT sweeper.heartbeat(%s)", self.session)[0][0]:
                raise Lost("the session has ended")
        except BaseException:
            line.close()
            raise
        self._lease = _Lease(line, self.session, ttl.total_seconds(), every.total_seconds(), self._attach, asked)
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

    def __exit__(self, kind, error, trace):
        self._leave.set()
        self._heart.join()
        if kind is None:
            self.check()

    async def __aenter__(self):
        loop, block = asyncio.get_running_loop(), asyncio.current_task()
        await loop.run_in_executor(None, self.__enter__)
        self._lease.on_lost.append(lambda: loop.call_soon_threadsafe(block.cancel))
        self.check()
        return self

    async def __aexit__(self, kind, error, trace):
        try:
            await asyncio.get_running_loop().run_in_executor(None, self.__exit__, kind, error, trace)
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
        self._report = _whole("done", done), _whole("total", total), None if message is None else str(message)
        self._news.set()

    def check(self):
        if self.stopped.is_set():
            raise Stopped(f"task {self.task} shall stop")


class Worker:
    """Does tasks, `slots` of them at a time; each slot is a worker of the server with one connection.

    connect, attach: as for seat.  ttl: seconds without a heartbeat after which its tasks are taken away.
    """

    def __init__(self, connect, name=None, *, slots=1, ttl=60, attach=True, metadata=None):
        self._connect, self._name, self._slots, self._ttl, self._attach = _connector(connect), name or socket.gethostname(), slots, ttl, attach
        self._metadata, self._jobs, self._stop, self._loop, self._executor = metadata or {}, {}, threading.Event(), None, None
        self._refusal = None

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
        with concurrent.futures.ThreadPoolExecutor(self._slots) as self._executor:
            for slot in (slots := [threading.Thread(target=self._slot, name=f"session_sweeper slot {n}") for n in range(self._slots)]):
                slot.start()
            for slot in slots:
                slot.join()
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
        running = self._loop.run_in_executor(None, self.run)
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            self.stop()
            await running
            raise

    def stop(self):
        """Take no more tasks.  run() ends when those that run have ended, and within some seconds if there are none."""
        self._stop.set()

    def _slot(self):
        while not self._stop.is_set():
            line = _Line(self._connect)
            try:
                lease = self._register(line)
            except Exception as error:
                state = getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or ""  # of psycopg 3, psycopg2
                if state[:2] in REFUSED and not line.broken:
                    hint = f"; access is given by: SELECT sweeper.grant_access('{line._connection.info.user}', 'user')" if state == "42501" else ""
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
        if inspect.iscoroutinefunction(function):
            return asyncio.run_coroutine_threadsafe(function(task), self._loop)
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
            row = lease.ask(", sweeper.task_progress(%s, %s, %s, %s, attempt => %s)", task.task, *(report or (None, None, None)), task.attempt)
            if row and row[1:] == (False,) and not task.stopped.is_set():
                task.stopped.set()
                task._news.set()
            if row and task._report is report:
                task._report = None
        lease.on_lost.pop()
        self._finish(lease, task, future, retry_on)

    def _finish(self, lease, task, future, retry_on):
        status, result, error, more = "completed", None, None, ""
        try:
            result = future.result()
        except (Stopped, asyncio.CancelledError, concurrent.futures.CancelledError):
            status, error = "cancelled", "the worker was asked to stop"
        except Exception as failure:
            again = isinstance(failure, retry_on)
            status, error, more = "failed", f"{type(failure).__name__}: {failure}"[:2000], ", retry => true" if again else ""
            log.log(logging.INFO if again else logging.ERROR, "attempt %s of task %s failed: %s", task.attempt, task.task, error, exc_info=not again)
        while not lease.lost.is_set():
            try:
                text = None if result is None else json.dumps(result)
                if task._report and not error:
                    lease.ask(", sweeper.task_progress(%s, %s, %s, %s, attempt => %s)", task.task, *task._report, task.attempt)
                    task._report = None
                [(done,)] = lease.line.call(f"SELECT sweeper.finish_task(%s, %s, %s, %s, attempt => %s{more})", task.task, status, text, error, task.attempt)
                if not done:
                    log.warning("task %s had ended, or was taken away, before its worker finished it", task.task)
                return
            except Exception as failure:
                log.warning("finish of task %s: %s", task.task, str(failure).strip())
                if not lease.line.broken:  # the server, or json, does not take it
                    if status == "failed":
                        return
                    status, result, error = "failed", None, str(failure).strip()[:2000]
                else:
                    time.sleep(LOOK)
                    lease.ask()
