"""The client against a private server that it may stop: ../test.sh python.  DRIVER names the driver."""
import asyncio
import contextlib
import datetime
import decimal
import importlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
import unittest

import session_sweeper
from session_sweeper import Full, Lost, Retry, Worker, seat, submit

driver = importlib.import_module(os.environ.get("DRIVER", "psycopg2"))
TTL = 3


def connect(name="client"):
    return driver.connect("connect_timeout=5", application_name=name)


def sql(statement, *values):
    connection = connect("test")
    connection.autocommit = True
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []
    finally:
        connection.close()


def wait_for(what, probe, seconds=20):
    end = time.monotonic() + seconds
    while not (found := probe()):
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.02)
    return found


def restart(mode):
    for command in (["-m", mode, "stop"], ["-l", os.environ["SERVER_LOG"], "start"]):
        subprocess.run([os.environ["PG_BIN"] + "/pg_ctl", "-w", "-D", os.environ["PGDATA"], *command], check=True,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def silence():
    """The server says nothing: not the client's backends, and not to those who connect."""
    pids = [pid for (pid,) in sql("SELECT pid FROM pg_stat_activity WHERE application_name = 'client'")]
    with open(os.environ["PGDATA"] + "/postmaster.pid") as file:
        pids.append(int(file.readline()))
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield time.monotonic()
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


class Base(unittest.TestCase):
    def setUp(self):
        self.pool = driver.__name__ + self.id().split(".", 1)[1]
        sql("SELECT sweeper.create_pool(%s, seats => 1, ttl => %s)", self.pool, f"{TTL} s")


class SeatTest(Base):
    def live(self):
        return sql("SELECT live FROM sweeper.pool_status WHERE pool = %s", self.pool)[0][0]

    def test_held_and_released(self):
        with seat(connect, self.pool, owner="ann") as s:
            self.assertEqual((s.seats, s.seats_used, self.live()), (1, 1, 1))
            with self.assertRaises(Full), seat(connect, self.pool):
                pass
            self.assertFalse(s.lost.wait(2 * TTL), "it lives on heartbeats")
            s.check()
        self.assertEqual(sql("SELECT owner, status FROM sweeper.session WHERE pool = %s", self.pool), [("ann", "released")])

    def test_arguments(self):
        for mistake in ({"wait": 1}, {"owner": 7}, {"seats": 1}, {"ttl": 60}, {"wait": 1, "owner": "ann", "takeover": True}):
            with self.assertRaisesRegex(TypeError, "owner|seats|ttl|takeover"):
                seat(connect, self.pool, **mistake)
        with seat(connect, self.pool, owner="ann", ttl=datetime.timedelta(seconds=TTL), metadata={"a": 1}, takeover=True) as s:
            self.assertEqual(sql("SELECT metadata FROM sweeper.session WHERE session = %s", s.session), [({"a": 1},)])

    def test_which_limit(self):
        with seat(connect, self.pool, owner="ann"):
            with self.assertRaisesRegex(Full, "pool .* is full"), seat(connect, self.pool, owner="ann"):
                pass
            sql("SELECT sweeper.alter_pool(%s, seats => 2, max_per_owner => 1)", self.pool)
            for arguments in ({}, {"wait": 1}):
                with self.assertRaisesRegex(Full, r"max_per_owner \(1\)"), seat(connect, self.pool, owner="ann", **arguments):
                    pass

    def test_waits_for_its_turn(self):
        if not sql("SELECT 1 FROM pg_proc WHERE proname = 'acquire_wait'"):
            self.skipTest("there is no acquire_wait")
        began = []

        def second():
            with seat(connect, self.pool, owner="bob", wait=20) as s:
                began.append((time.monotonic(), s.fence))
        with seat(connect, self.pool, owner="ann"):
            with self.assertRaises(Full), seat(connect, self.pool, owner="bob", wait=1):
                pass
            waiting = threading.Thread(target=second)
            waiting.start()
            self.assertFalse(began)
            time.sleep(2 * TTL)
        freed = time.monotonic()
        waiting.join()
        self.assertLess(began[0][0] - freed, 1)

    def test_dies_with_the_process(self):
        code = f"import session_sweeper as s, sys\nwith s.seat('', {self.pool!r}): print('in', flush=True); sys.stdin.read()"
        with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            self.assertEqual(child.stdout.readline(), b"in\n")
            wait_for("the heartbeat that attaches", lambda: sql("SELECT 1 FROM sweeper.live_session WHERE pool = %s AND last_heartbeat IS NOT NULL", self.pool))
            child.kill()
        killed = time.monotonic()
        wait_for("the seat is free", lambda: not self.live())
        self.assertLess(time.monotonic() - killed, 1.5, "at once, not after the time to live")

    def test_false_ends_it_at_once(self):
        told = threading.Event()
        with self.assertRaises(Lost), seat(connect, self.pool, on_lost=told.set) as s:
            sql("SELECT sweeper.expire('sweeper.session', ARRAY[%s], 'gone')", s.session)
            self.assertTrue(s.lost.wait(TTL / 3 + 1), "with the next heartbeat")
            self.assertTrue(told.wait(1))
            s.check()

    def test_survives_a_crash_of_the_server(self):
        sql("SELECT sweeper.alter_pool(%s, ttl => '10 s')", self.pool)
        with self.assertRaises(Lost), seat(connect, self.pool) as s:
            for mode in ("immediate", "fast"):
                restart(mode)
                self.assertFalse(s.lost.wait(12), mode)
            self.assertEqual(self.live(), 1)
            # it is attached again; a client that is back before a busy server has ended its session keeps it
            for attempt in range(4):
                wait_for("its connection", lambda: sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'client'"))
                with contextlib.suppress(AssertionError):
                    wait_for("the end of the session", lambda: not self.live(), 5)
                    break
            self.assertEqual(self.live(), 0)
            self.assertTrue(s.lost.wait(5))

    def test_survives_its_connection_without_attach(self):
        with seat(connect, self.pool, attach=False) as s:
            for _ in range(3):
                sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'client'")
                self.assertFalse(s.lost.wait(TTL))
            self.assertEqual(self.live(), 1)

    def test_ends_with_its_connection_if_attached(self):
        with self.assertRaises(Lost), seat(connect, self.pool) as s:
            self.assertFalse(s.lost.wait(TTL / 3 + 0.5))
            sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'client'")
            self.assertTrue(s.lost.wait(TTL), "the answer is false")
            self.assertEqual(self.live(), 0)

    def test_a_stopped_backend_is_given_up(self):
        sql("SELECT sweeper.alter_pool(%s, ttl => '9 s')", self.pool)
        with seat(connect, self.pool) as s:
            [(pid,)] = wait_for("its backend", lambda: sql("SELECT pid FROM pg_stat_activity WHERE application_name = 'client'"))
            os.kill(pid, signal.SIGSTOP)
            try:
                self.assertFalse(s.lost.wait(12), "another connection keeps it")
            finally:
                os.kill(pid, signal.SIGCONT)

    def test_silence_ends_it_after_one_ttl(self):
        with self.assertRaises(Lost) as raised, seat(connect, self.pool) as s:
            self.assertFalse(s.lost.wait(TTL / 3 + 0.5))
            with silence() as began:
                self.assertTrue(s.lost.wait(2 * TTL))
                lasted = time.monotonic() - began
            self.assertGreater(lasted, TTL - TTL / 3 - 0.5, "not before one ttl after the last true")
            self.assertLess(lasted, TTL + 0.5, "and not after")
        self.assertIn("time to live", str(raised.exception))

    def test_asyncio(self):
        async def main():
            async with seat(connect, self.pool) as s:
                self.assertEqual(self.live(), 1)
            self.assertEqual(self.live(), 0)
            async with seat(connect, self.pool) as s:
                sql("SELECT sweeper.release(%s)", s.session)
                await asyncio.sleep(20)  # is cancelled
        began = time.monotonic()
        with self.assertRaises(Lost):
            asyncio.run(main())
        self.assertLess(time.monotonic() - began, TTL + 2)


class WorkerTest(Base):
    """A job of each test's own room; workers run in a thread."""

    @contextlib.contextmanager
    def working(self, worker):
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            wait_for("the worker", lambda: sql("SELECT 1 FROM sweeper.job_status WHERE room = %s AND workers > 0", self.pool))
            yield worker
        finally:
            worker.stop()
            thread.join(30)
            self.assertFalse(thread.is_alive())

    def submit(self, payload=None, **arguments):
        with contextlib.closing(connect("test")) as connection:
            task = submit(connection, self.pool, "test", "job", payload, **arguments)
            connection.commit()
        return task

    def column(self, name, task):
        return sql(f"SELECT {name} FROM sweeper.get_task(%s)", task)[0][0]

    def ends(self, task, status):
        wait_for(f"the end of {task}", lambda: sql("SELECT 1 FROM sweeper.get_task(%s) WHERE finished_at IS NOT NULL", task), 40)
        self.assertEqual(self.column("status", task), status, self.column("comments", task))

    def test_does_tasks(self):
        worker = Worker(connect, "w", slots=3, ttl=TTL)

        @worker.job(self.pool, "test")
        def job(task):
            task.progress(done=1, total=2, message="half")
            if task.payload.get("fail"):
                raise ValueError("no")
            if task.payload.get("odd"):
                return {1, 2}  # json has no sets
            return {"twice": 2 * task.payload["n"]}
        with self.working(worker):
            tasks = [self.submit({"n": n}) for n in range(20)]
            fails, odd = self.submit({"fail": True}, group_role="postgres"), self.submit({"odd": True})
            for n, task in enumerate(tasks):
                self.ends(task, "completed")
                self.assertEqual(self.column("result", task), {"twice": 2 * n})
            self.assertEqual(self.column("message", tasks[0]), "half")
            self.ends(fails, "failed")
            self.assertEqual(self.column("error", fails), "ValueError: no")
            self.ends(odd, "failed")
        self.assertEqual(sql("SELECT count(*) FROM sweeper.worker_status WHERE name = 'w'")[0][0], 0)

    def test_retry(self):
        if not sql("SELECT 1 FROM pg_proc WHERE proname = 'finish_task' AND 'retry' = ANY (proargnames)"):
            self.skipTest("finish_task has no retry")
        worker = Worker(connect, "w")

        @worker.job(self.pool, "test", retry_on=(OSError,))
        def job(task):
            if task.attempt < 3:
                raise OSError("away") if task.attempt == 1 else Retry("later")
        with self.assertLogs("session_sweeper", "INFO") as logs, self.working(worker):
            task = self.submit()
            self.ends(task, "completed")
            self.assertEqual(self.column("attempt", task), 3)
        self.assertEqual([line for line in logs.output if line.startswith("INFO:")],
                         [f"INFO:session_sweeper:attempt {n} of task {task} failed: {why}" for n, why in ((1, "OSError: away"), (2, "Retry: later"))])

    def test_timeout(self):
        """A job that hangs is taken away, though its worker lives, and is told to stop."""
        sql("SELECT sweeper.create_job(%s, 'test', 'job', timeout => '2 s', backoff => '100 ms')", self.pool)
        worker, stopped = Worker(connect, "w"), []

        @worker.job(self.pool, "test")
        def job(task):
            if task.attempt == 1:
                stopped.append(task.stopped.wait(60))
        with self.working(worker):
            task = self.submit()
            self.ends(task, "completed")
        self.assertEqual((stopped, self.column("attempt", task)), ([True], 2))

    def test_submit(self):
        """Every payload as it is, many at once, and with asyncio."""
        payloads = [None, {}, [], False, 0, "", {"n": 1}, "\u00e9\\\"", [1, {"a": None}]]
        expected = [{} if payload is None else payload for payload in payloads]

        def read(tasks):
            return [self.column("payload", task) for task in tasks]
        self.assertEqual(read([self.submit(payload) for payload in payloads]), expected)
        connection = connect("test")
        self.addCleanup(connection.close)
        tasks = session_sweeper.submit_many(connection, self.pool, "test", "job", payloads, priority=7)
        self.assertEqual(session_sweeper.submit_many(connection, self.pool, "test", "job", []), [])
        connection.commit()
        connection.close()
        self.assertEqual((read(tasks), self.column("priority", tasks[0])), (expected, 7))
        for mistake in ({"max_attempts": 4}, {"run_at": datetime.timedelta(1)}, {"priority": "high"}, {'a" => 1); --': 1}):
            with self.assertRaisesRegex(TypeError, re.escape(list(mistake)[0])):
                self.submit(**mistake)
        with self.assertRaisesRegex(TypeError, "create_job"):
            self.submit(max_attempts=4)
        self.column("status", self.submit(run_at=datetime.datetime.now(datetime.timezone.utc), unique_key="k"))

        async def main():
            async with await driver.AsyncConnection.connect("application_name=test") as connection:
                made = [await submit(connection, self.pool, "test", "job", 0), *await session_sweeper.submit_many(connection, self.pool, "test", "job", payloads)]
            await connection.close()
            return made
        if driver.__name__ == "psycopg":
            self.assertEqual(read(asyncio.run(main())), [0, *expected])

    def test_refused(self):
        """A worker without access, or with a job that is not its, ends with the error: once it is told what to do, and who runs it sees it."""
        role = self.pool.lower().replace(".", "_")
        sql(f'CREATE ROLE "{role}" LOGIN')
        worker = Worker(lambda: driver.connect(f"user={role} connect_timeout=5 application_name=client"), "w", slots=2)
        worker.job(self.pool, "test", "job")(print)
        with self.assertLogs("session_sweeper") as logs, self.assertRaisesRegex(driver.Error, "permission denied"):
            worker.run()
        self.assertIn(f"SELECT sweeper.grant_access('{role}', 'user')", logs.output[0])
        self.assertLessEqual(len(logs.output), 2, "one line of each slot")
        for mistake in ({"max_attempts": 5}, {"timeout": "1 s"}):
            with self.assertRaisesRegex(TypeError, f"{list(mistake)[0]}.*create_job"):
                worker.job(self.pool, "test", "job", **mistake)
        with self.assertRaisesRegex(TypeError, "schema"):
            worker.job(self.pool, "test", "job", schema=1)

    def test_progress(self):
        """A report is checked where it is made; one that the server refuses does not cost the heartbeat."""
        sql("SELECT sweeper.create_job(%s, 'test', 'job', max_attempts => 1)", self.pool)
        worker, refused = Worker(connect, "w", ttl=TTL), []

        @worker.job(self.pool, "test")
        def job(task):
            for mistake in ({"done": "5"}, {"total": [1]}, {"done": -1}, {"done": float("nan")}, {"total": 2**63}):
                try:
                    task.progress(**mistake)
                except (TypeError, ValueError) as error:
                    refused.append(type(error))
            end = time.monotonic() + 2 * TTL
            while time.monotonic() < end:
                task._report = None, None, "\0"  # no text of PostgreSQL has that; progress() would replace it
                time.sleep(0.1)
            task.progress(done=1.25, total=decimal.Decimal(100), message=7)
        with self.assertLogs("session_sweeper") as logs, self.working(worker):
            task = self.submit()
            self.ends(task, "completed")
        self.assertEqual(refused, [ValueError] * 5)
        self.assertEqual(sql("SELECT done, total, message, attempt FROM sweeper.get_task(%s)", task), [(1, 100, "7", 1)])
        self.assertEqual(len([line for line in logs.output if "refuses a report" in line]), 1, logs.output)

    def test_cancel(self):
        worker, began = Worker(connect, "w"), threading.Event()

        @worker.job(self.pool, "test")
        def job(task):
            began.set()
            task.stopped.wait(30)
            task.check()

        @worker.job(self.pool, "async", "job")
        async def other(task):
            began.set()
            await asyncio.sleep(30)
        with self.working(worker):
            for category in ("test", "async"):
                began.clear()
                [(task,)] = sql("SELECT sweeper.submit(%s, %s, 'job')", self.pool, category)
                self.assertTrue(began.wait(10))
                sql("SELECT sweeper.cancel_task(%s)", task)
                self.ends(task, "cancelled")

    def test_asyncio(self):
        worker = Worker(connect, "w", slots=2)
        meeting = []

        @worker.job(self.pool, "test")
        async def job(task):
            meeting.append(asyncio.current_task())
            while len(meeting) < 2:  # both slots run at the same time, in one loop
                await asyncio.sleep(0.01)
            return {"loop": id(asyncio.get_running_loop())}

        async def main():
            running = asyncio.create_task(worker.arun())
            tasks = [await asyncio.to_thread(self.submit) for _ in range(2)]
            for task in tasks:
                await asyncio.to_thread(self.ends, task, "completed")
                self.assertEqual(self.column("result", task), {"loop": id(asyncio.get_running_loop())})
            running.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await running
        sql("SELECT sweeper.register_job(sweeper.register_worker('first'), %s, 'test', 'job')", self.pool)
        asyncio.run(main())

    def test_a_task_outlives_a_crash_of_the_server(self):
        worker, began, go_on = Worker(connect, "w", ttl=10), threading.Event(), threading.Event()

        @worker.job(self.pool, "test", on_worker_loss="requeue")
        def job(task):
            began.set()
            go_on.wait(60)
        with self.working(worker):
            task = self.submit()
            self.assertTrue(began.wait(10))
            restart("immediate")
            self.assertFalse(go_on.wait(12))
            self.assertEqual(self.column("status", task), "running")
            go_on.set()
            self.ends(task, "completed")
            self.assertEqual(self.column("attempt", task), 1)

    def lost(self, take_away):
        """A worker that loses its session stops its task, registers again, and the task runs once more."""
        worker, attempts, stopped = Worker(connect, "w", ttl=TTL), [], []

        @worker.job(self.pool, "test", on_worker_loss="requeue")
        def job(task):
            attempts.append(task.attempt)
            if task.attempt == 1:
                task.stopped.wait(30)
                stopped.append(time.monotonic())
                return "of nobody"
            return "of the second"
        with self.working(worker):
            task = self.submit()
            wait_for("the first attempt", lambda: attempts)
            with take_away() as began:
                wait_for("its end", lambda: stopped)
            self.ends(task, "completed")
            self.assertEqual((attempts, self.column("result", task)), ([1, 2], "of the second"))
        return stopped[0] - began

    def test_expired_elsewhere(self):
        @contextlib.contextmanager
        def expire():
            sql("SELECT sweeper.expire('sweeper.session', ARRAY(SELECT session::text FROM sweeper.session WHERE pool = 'sweeper.worker' AND status = 'active'))")
            yield time.monotonic()
        self.assertLess(self.lost(expire), TTL / 3 + 1)

    def test_silence(self):
        lasted = self.lost(silence)
        self.assertGreater(lasted, TTL - TTL / 3 - 0.5)
        self.assertLess(lasted, TTL + 1)

    def test_dies_with_the_process(self):
        """kill -9: the task runs again at once, at another worker."""
        code = f"""import session_sweeper as s, time
w = s.Worker('', 'first')
@w.job({self.pool!r}, 'test', on_worker_loss='requeue')
def job(task): print('began', flush=True); time.sleep(60)
w.run()"""
        done = []
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
            wait_for("the worker", lambda: sql("SELECT 1 FROM sweeper.job_status WHERE room = %s AND workers > 0", self.pool))
            task = self.submit()
            self.assertEqual(child.stdout.readline(), b"began\n")
            worker = Worker(connect, "second")
            worker.job(self.pool, "test", "job", on_worker_loss="requeue")(lambda task: done.append(task.attempt))
            with self.working(worker):
                wait_for("two workers", lambda: sql("SELECT 1 FROM sweeper.job_status WHERE room = %s AND workers > 1", self.pool))
                child.kill()
                killed = time.monotonic()
                wait_for("the second attempt", lambda: done)
                self.assertLess(time.monotonic() - killed, 2)
                self.ends(task, "completed")
        self.assertEqual(done, [2])


class DocumentTest(unittest.TestCase):
    """The examples of doc/clients.md."""

    @contextlib.contextmanager
    def run_example(self, what):
        with open("../clients.md") as page:
            [code] = [block for block in re.findall(r"^```python\n(.*?)^```$", page.read(), re.M | re.S) if what in block]
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
            try:
                yield child
            except BaseException:
                child.kill()  # which does not end by itself
                raise

    def test_seat(self):
        sql("SELECT sweeper.create_pool('cad', seats => 1)")
        with self.run_example("import seat") as child:
            self.assertRegex(child.stdout.read(), rb"^(fence \d+\n){3}$")
        self.assertEqual(sql("SELECT owner, status FROM sweeper.session WHERE pool = 'cad' ORDER BY acquired_at DESC LIMIT 1"), [("ann@example.com", "released")])
        sql("SELECT sweeper.drop_pool('cad')")

    def test_worker(self):
        with self.run_example("import Worker") as child:
            wait_for("the worker", lambda: sql("SELECT 1 FROM sweeper.job_status WHERE room = 'photos' AND workers > 0"))
            [(task,)] = sql("SELECT sweeper.submit('photos', 'image', 'resize', '{\"id\": 7}')")
            wait_for("the result", lambda: sql("SELECT result FROM sweeper.get_task(%s)", task) == [({"size": 7168},)])
            child.terminate()
            self.assertEqual(child.wait(30), 0)


if __name__ == "__main__":
    logging.basicConfig(filename=os.environ.get("CLIENT_LOG"), level=logging.INFO, format="%(asctime)s %(threadName)s %(message)s")
    unittest.main(verbosity=2)
