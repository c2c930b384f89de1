"""Open pages of the examples leave when their session ends: ../test.sh logout."""
import http.client
import json
import os
import re
import socket
import subprocess
import time
import unittest

import psycopg2

LIFETIME = 8


def sql(statement, *values):
    connection = psycopg2.connect("")
    connection.autocommit = True
    try:
        with connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else []
    finally:
        connection.close()


class Page:
    """Somebody who has logged in and looks at a page."""

    def __init__(self, port, user):
        self.port, self.connections, self.cookie = port, [], ""
        answer = self.ask("POST", f"/login?user={user}")
        assert answer.status == 200, answer.read()
        self.id = json.loads(answer.read())["id"]
        self.cookie = answer.headers["Set-Cookie"].split(";")[0]
        self.stream = self.events()
        assert self.stream.status == 200 and self.stream.readline() == b": open\n"

    def ask(self, method, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        self.connections.append(connection)
        connection.request(method, path, headers={"Cookie": self.cookie} if self.cookie else {})
        answer = connection.getresponse()
        self.connections.append(answer)
        return answer

    def events(self):
        return self.ask("GET", "/events")

    def close(self):
        for connection in reversed(self.connections):
            connection.close()

    def logout(self):
        """When it is asked to leave."""
        while line := self.stream.readline():
            if line == b"event: logout\n":
                return time.time()
        raise AssertionError("the stream ended without a word")


class Logout:
    @classmethod
    def setUpClass(cls):
        for command in cls.make:
            subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            cls.port = probe.getsockname()[1]
        cls.log = open(os.environ["CLIENT_LOG"], "ab")
        cls.server = subprocess.Popen([*cls.serve, str(cls.port), str(LIFETIME)], stdin=subprocess.DEVNULL, stdout=cls.log, stderr=cls.log)
        for _ in range(200):
            try:
                Page(cls.port, "first").close()
                break
            except OSError:
                time.sleep(0.1)
        with open(cls.serve[-1]) as file:  # the statements that it tells
            for statement in re.findall(r"^(?://)? +(SELECT .*sweeper\..*?)(?: +--.*)?$", file.read(), re.M):
                sql(statement)
        [(state,)] = sql("SELECT state FROM sweeper.policy_status WHERE policy = %s", cls.table)
        assert state not in ("held", "paused"), state

    @classmethod
    def tearDownClass(cls):
        cls.server.kill()
        cls.server.wait()
        cls.log.close()

    def page(self, user):
        page = Page(self.port, user)
        self.addCleanup(page.close)
        return page

    def test_ended_by_an_administrator(self):
        ann, bob = self.page("ann"), self.page("bob")
        began = time.time()
        sql(f"SELECT sweeper.expire('{self.table}', ARRAY[%s], 'account locked')", ann.id)
        self.assertLess(ann.logout() - began, 1)
        self.assertEqual(ann.events().status, 401)
        self.assertEqual(bob.events().status, 200)

    def test_ended_by_the_application(self):
        """Nothing is sent: it was not the sweeper."""
        fay = self.page("fay")
        before = sql("SELECT coalesce(max(id), 0) FROM sweeper.cleanup_event WHERE policy = %s", self.table)
        sql(f"DELETE FROM {self.table} WHERE {self.key} = %s", fay.id)
        gus = self.page("gus")
        sql(f"SELECT sweeper.expire('{self.table}', ARRAY[%s])", gus.id)
        gus.logout()
        self.assertEqual(sql("SELECT count(*) FROM sweeper.cleanup_event WHERE policy = %s AND id > %s", self.table, before[0][0]), [(1,)])
        self.assertEqual(fay.events().status, 401)

    def test_lifetime(self):
        cyd = self.page("cyd")
        [(dies,)] = sql(f"SELECT extract(epoch FROM {self.deadline})::float8 FROM {self.table} WHERE {self.key} = %s", cyd.id)
        left = cyd.logout()
        self.assertGreaterEqual(left, dies)
        self.assertLess(left - dies, 3)

    def test_ended_while_the_listener_was_away(self):
        dan, eve = self.page("dan"), self.page("eve")
        sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query = 'LISTEN session_ended' OR query LIKE '%%cleanup_event%%' AND pid <> pg_backend_pid() "
            "OR query LIKE 'SELECT session_key FROM django_session%%'")
        sql(f"SELECT sweeper.expire('{self.table}', ARRAY[%s])", dan.id)
        began = time.time()
        self.assertLess(dan.logout() - began, 3)
        self.assertEqual(eve.events().status, 200)


class Express(Logout, unittest.TestCase):
    make, serve, table, key, deadline = [], ["node", "express.js"], "session", "sid", "expire::timestamptz"


class Django(Logout, unittest.TestCase):
    make, serve = [["/usr/bin/python3", "django_app.py", "migrate"]], ["/usr/bin/python3", "django_app.py"]
    table, key, deadline = "django_session", "session_key", "expire_date"


if __name__ == "__main__":
    unittest.main(verbosity=2)
