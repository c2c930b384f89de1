"""What goes wrong in a job, in a caller or in its settings, against a private server: ../test.sh python.  DRIVER names the driver."""
import asyncio
import concurrent.futures
import contextlib
import logging
import os
import sys
import threading
import time
import unittest

import session_sweeper
from session_sweeper import Full, Stopped, Worker, seat
from test_session_sweeper import TTL, Base, WorkerTest as Workers, connect, driver, sql, wait_for

OF_WORKERS = {name: getattr(Workers, name) for name in ("working", "submit", "column", "ends")}


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def dictionaries():
    if driver.__name__ == "psycopg":
        from psycopg.rows import dict_row
        return driver.connect("connect_timeout=5", application_name="client", row_factory=dict_row)
    from psycopg2.extras import RealDictCursor
    return driver.connect("connect_timeout=5", application_name="client", cursor_factory=RealDictCursor)


class JobTest(Base):
    locals().update(OF_WORKERS)

    def outcome(self, body, status="failed", slots=1):
        """What a task of this body comes to, and that its worker goes on."""
        sql("SELECT sweeper.create_job(%s, 'test', 'job', max_attempts => 1)", self.pool)
        worker = Worker(connect, "w", slots=slots, ttl=TTL)
        worker.job(self.pool, "test", "job")(body)
        worker.job(self.pool, "then", "job")(lambda task: "well")
        with self.working(worker):
            task = self.submit()
            self.ends(task, status)
            [(then,)] = sql("SELECT sweeper.submit(%s, 'then', 'job')", self.pool)
            self.ends(then, "completed")
        return self.column("error", task)

    def raising(self, error, asynchronous=False):
        def body(task):
            raise error

        async def later(task):
            raise error
        return self.outcome(later if asynchronous else body)

    def test_texts_that_cannot_be_stored(self):
        self.assertEqual(self.raising(ValueError("a\0b")), "ValueError: a?b")
        self.assertEqual(self.raising(ValueError("a\udcffb")), "ValueError: a?b")
        self.assertEqual(self.raising(Unprintable()), "Unprintable without a text")

    def test_a_result_that_cannot_be_stored(self):
        self.assertRegex(self.outcome(lambda task: "a\0b"), "Unicode|u0000")
        self.assertRegex(self.outcome(lambda task: {1, 2}), "JSON")

    def test_a_message_that_cannot_be_stored(self):
        def body(task):
            task.progress(message="a\0b\udcff")
        self.outcome(body, "completed")
        self.assertEqual(sql("SELECT message FROM sweeper.list_tasks(rooms => %s) WHERE category = 'test'", [self.pool]), [("a?b?",)])

    def test_an_error_that_the_server_refuses(self):
        """Another text takes its place, and the task does not stay."""
        real, session_sweeper.text_of = session_sweeper.text_of, lambda what: "a\0b" if isinstance(what, ZeroDivisionError) else real(what)
        self.addCleanup(setattr, session_sweeper, "text_of", real)
        self.assertEqual(self.raising(ZeroDivisionError()), session_sweeper.UNTOLD)

    def test_a_lock_is_waited_for(self):
        """An error that may pass does not fail a task that is done."""
        began = threading.Event()
        connection = connect("test")
        self.addCleanup(connection.close)

        def body(task):
            with connection.cursor() as cursor:
                cursor.execute("SELECT FROM sweeper.task WHERE task = %s FOR UPDATE", [task.task])
            began.set()

        def timed():
            own = connect()
            with own.cursor() as cursor:
                cursor.execute("SET lock_timeout = '200 ms'")
            own.commit()
            return own
        worker = Worker(timed, "w", ttl=TTL)
        worker.job(self.pool, "test", "job")(body)
        with self.assertLogs("session_sweeper") as logs, self.working(worker):
            task = self.submit()
            began.wait(20)
            wait_for("a finish that is refused", lambda: [line for line in logs.output if "finish of task" in line])
            connection.rollback()
            self.ends(task, "completed")

    def test_exit(self):
        for asynchronous in (False, True):
            self.assertEqual(self.raising(SystemExit(3), asynchronous), "SystemExit: 3")

    def test_only_who_is_asked_is_cancelled(self):
        self.assertEqual(self.raising(asyncio.CancelledError(), True), "CancelledError: ")
        self.assertEqual(self.raising(concurrent.futures.CancelledError()), "CancelledError: ")
        self.assertEqual(self.raising(Stopped("enough")), "Stopped: enough")

    def test_a_job_that_is_refused(self):
        sql("SELECT sweeper.register_job(sweeper.register_worker('own'), %s, 'c', 'n')", self.pool)
        role = self.pool.lower().replace(".", "_")
        sql(f'CREATE ROLE "{role}" LOGIN')
        sql("SELECT sweeper.grant_access(%s, 'user')", role)
        for room, arguments, code in ((self.pool, {}, "42501"), ("x" * 300, {}, "42"), ("new", {"on_worker_loss": "nonsense"}, "22")):
            worker = Worker(lambda: driver.connect(f"user={role} connect_timeout=5 application_name=client"), "w", ttl=TTL)
            worker.job(room, "c", "n", **arguments)(print)
            timer = threading.Timer(20, worker.stop)
            timer.start()
            with self.assertLogs("session_sweeper") as logs, self.assertRaises(driver.Error) as raised:
                worker.run()
            timer.cancel()
            self.assertEqual(session_sweeper.sqlstate(raised.exception)[:len(code)], code)
            self.assertNotIn("grant_access", logs.output[0])

    def test_rows_and_intervals(self):
        """Whatever the connection makes of rows."""
        connection = dictionaries()
        task = session_sweeper.submit(connection, self.pool, "test", "job", 7)
        connection.commit()
        connection.close()
        worker = Worker(dictionaries, "w", ttl=TTL)
        worker.job(self.pool, "test", "job")(lambda task: task.payload)
        with self.working(worker):
            self.ends(task, "completed")
        self.assertEqual(self.column("result", task), 7)

    def test_settings(self):
        for mistake in ({"ttl": "60"}, {"slots": "2"}, {"slots": True}, {"ttl": None}):
            with self.assertRaisesRegex(TypeError, list(mistake)[0]):
                Worker(connect, "w", **mistake)
        for mistake in ({"ttl": 0}, {"slots": 0}):
            with self.assertRaises(ValueError):
                Worker(connect, "w", **mistake)
        with self.assertRaisesRegex(TypeError, "priority"):
            self.submit(priority=True)
        with contextlib.closing(connect()) as connection, self.assertRaisesRegex(TypeError, "connect"):
            Worker(connection, "w")


class SeatTest(Base):
    def used(self):
        return sql("SELECT count(*) FROM sweeper.session WHERE pool = %s AND status = 'active'", self.pool)[0][0]

    def test_styles(self):
        for style in ("postgres", "iso_8601", "sql_standard", "postgres_verbose"):
            def styled(style=style):
                return driver.connect(f"connect_timeout=5 application_name=client options='-c intervalstyle={style}'")
            for arguments in ({}, {"wait": 1}):
                with seat(styled, self.pool, owner="ann", **arguments) as s:
                    self.assertEqual((s._lease.ttl, s._lease.every), (TTL, TTL / 3), style)
        with seat(dictionaries, self.pool, owner="ann"), self.assertRaisesRegex(Full, "is full"), seat(dictionaries, self.pool, owner="bob"):
            pass

    def test_settings(self):
        with self.assertRaisesRegex(TypeError, "wait"):
            seat(connect, self.pool, owner="ann", wait="abc")

    def test_cancelled_while_it_takes_a_seat(self):
        """Nobody has it then."""
        taken, go_on = threading.Event(), threading.Event()

        class Late(seat):
            def __enter__(self):
                result = super().__enter__()
                taken.set()
                go_on.wait(20)
                return result

        async def main():
            async def use():
                async with Late(connect, self.pool, owner="ann"):
                    self.fail("it was cancelled")
            task = asyncio.create_task(use())
            while not taken.is_set():
                await asyncio.sleep(0.01)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            self.assertEqual(self.used(), 1)
            go_on.set()
            await asyncio.to_thread(wait_for, "it is given back", lambda: self.used() == 0)
        asyncio.run(main())

    def test_many_wait(self):
        """Those who wait do not keep from leaving who has the seat, however few threads the loop has."""
        order = []

        async def main():
            asyncio.get_running_loop().set_default_executor(concurrent.futures.ThreadPoolExecutor(2))

            async def use(number):
                async with seat(connect, self.pool, owner=f"o{number}", wait=60):
                    order.append(number)
            await asyncio.gather(*[use(number) for number in range(6)])
        began = time.monotonic()
        asyncio.run(main())
        self.assertEqual(sorted(order), list(range(6)))
        self.assertLess(time.monotonic() - began, 50, "before the waits are over")


if __name__ == "__main__":
    logging.basicConfig(filename=os.environ.get("CLIENT_LOG"), level=logging.INFO, format="%(asctime)s %(threadName)s %(message)s")
    unittest.main(argv=[sys.argv[0], *(sys.argv[1:] or ["JobTest", "SeatTest"])], verbosity=2)
