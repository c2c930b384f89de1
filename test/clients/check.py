"""One client against a running server that preloads session_sweeper.

    check.py NAME      PGHOST, PGPORT and PGUSER (a superuser) say where; servers of the client log into NAME.log

The client's own code makes its table; people log in over HTTP; their sessions expire by the lifetime that the client is
configured with; the server sweeps by itself.  BREAK is SQL that runs before adopt(), to show that the test can fail.
"""
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from http.cookies import SimpleCookie

import psycopg2

LONG, SHORT = 600, 5  # lifetimes, seconds
PATIENCE = 60  # for whatever is waited for
IN_TIME = 30  # a dead row goes within so many seconds: an idle policy looks every 10 s
APPLICATION = "application"  # the role of the clients; it owns their databases


@dataclass
class Spec:
    """How a client is started, and what adopt() is told."""

    preset: str
    table: str
    key: str
    make: list  # commands that make the table
    serve: list
    kind: str = "expired"  # what the audit calls the end of a session
    hashed: bool = True
    zone: str = "Asia/Tokyo"  # of the database; the server's is this one
    adopt: str = ""
    env: dict = field(default_factory=dict)
    age: str = ""  # SQL: a session that was used now, as the client stores one used LONG - SHORT seconds ago


PHP = ["php", "-S", "127.0.0.1:{port}"]
DJANGO = Spec("django", "django_session", "session_key", [["/usr/bin/python3", "django_app.py", "table"]],
              ["/usr/bin/python3", "django_app.py", "{port}", "{lifetime}"])
SPECS = {
    # expire is the local time of the application's connections: that of the database here
    "connect_pg_simple": Spec("connect_pg_simple", "session", "sid", [["node", "connect_pg_simple.js", "table"]],
                              ["node", "connect_pg_simple.js", "{port}", "{lifetime}"], zone="America/New_York"),
    "django": DJANGO,
    # without USE_TZ the time of the settings goes into a column with time zone
    "django_local": Spec(DJANGO.preset, DJANGO.table, DJANGO.key, DJANGO.make, DJANGO.serve, env={"USE_TZ": "0"}),
    "symfony": Spec("symfony", "sessions", "sess_id", [["php", "symfony.php", "table"]], [*PHP, "symfony.php"]),
    # the lifetime is in whole minutes, so sessions are aged; the table knows only when they were used
    "laravel": Spec("laravel", "sessions", "id", [["php", "laravel/app.php", "session:table"], ["php", "laravel/app.php", "migrate", "--force"]],
                    [*PHP, "laravel/app.php"], kind="zombie", adopt=f", ttl => '{LONG} s'", env={"LIFETIME": str(LONG)},
                    age=f"UPDATE sessions SET last_activity = last_activity - {LONG - SHORT} WHERE id = %s"),
    "flask_session": Spec("flask_session", "sessions", "id", [["/usr/bin/python3", "flask_app.py", "table"]],
                          ["/usr/bin/python3", "flask_app.py", "{port}", "{lifetime}"], hashed=False),
}


class Failure(Exception):
    """What the test did not find as it should be."""


def check(holds, what):
    if not holds:
        raise Failure(what)


def wait_for(what, probe, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not (found := probe()):
        check(time.monotonic() < end, f"not within {seconds} s: {what}")
        time.sleep(0.1)
    return found


class Server:
    """The client's application, with one lifetime."""

    def __init__(self, test, lifetime):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        command = [word.format(port=self.port, lifetime=lifetime) for word in test.spec.serve]
        self.process = subprocess.Popen(command, env={**test.env, "LIFETIME": str(lifetime), **test.spec.env}, stdin=subprocess.DEVNULL,
                                        stdout=test.log, stderr=test.log)
        test.servers.append(self)
        wait_for(f"{command} answers", self.answers)

    def answers(self):
        check(self.process.poll() is None, "the application has ended; see its log")
        try:
            return self.ask("GET", "/admin/sessions")[0] == 200
        except OSError:
            return False

    def ask(self, method, path, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, headers=headers or {})
            response = connection.getresponse()
            body = response.read()
            return response.status, response.headers, body
        finally:
            connection.close()

    def sessions(self):
        """What there is and what of it is expired, by the client's own code."""
        status, _, body = self.ask("GET", "/admin/sessions")
        check(status == 200, f"/admin/sessions: {status} {body[:500]}")
        return json.loads(body)

    def stop(self):
        self.process.terminate()
        self.process.wait(PATIENCE)


class Person:
    """Somebody with a browser, who also sends cookies that are over."""

    def __init__(self, test, name):
        self.test, self.name, self.cookies, self.id = test, name, {}, None

    def ask(self, server, method, path):
        cookies = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        status, headers, body = server.ask(method, path, {"Cookie": cookies} if cookies else {})
        for line in headers.get_all("Set-Cookie", []):
            self.cookies.update((name, morsel.coded_value) for name, morsel in SimpleCookie(line).items())
        return status, body

    def log_in(self, server, more=""):
        status, body = self.ask(server, "POST", f"/login?user={self.name}{more}")
        check(status == 200, f"{self.name} cannot log in: {status} {body[:500]}")
        self.id = json.loads(body)["id"]
        self.aged(server)
        return self

    def is_logged_in(self, server):
        status, body = self.ask(server, "GET", "/me")
        check(status in (200, 401), f"/me of {self.name}: {status} {body[:500]}")
        check(status == 401 or json.loads(body)["user"] == self.name, f"{self.name} is somebody else: {body[:500]}")
        self.aged(server)
        return status == 200

    def aged(self, server):
        if self.test.spec.age and server is self.test.short:
            self.test.sql(self.test.spec.age, self.id)


class User(threading.Thread):
    """Somebody whose session has a short lifetime and goes on being used."""

    def __init__(self, person):
        super().__init__(daemon=True)
        self.person, self.ended, self.trouble = person, threading.Event(), None

    def run(self):
        try:
            while not self.ended.wait(0.3):
                check(self.person.is_logged_in(self.person.test.short), "a session was lost that went on being used")
        except Exception as error:  # told in stop()
            self.trouble = error

    def stop(self):
        self.ended.set()
        self.join(PATIENCE)
        if self.trouble:
            raise self.trouble


class Test:
    """What all clients go through, and what is special to one."""

    def __init__(self, name):
        self.name, self.spec = name, SPECS[name]
        self.log = open(f"{name}.log", "wb")
        self.connection = psycopg2.connect(dbname="postgres")
        self.connection.autocommit = True
        self.keys = {}  # of the table, by the id that a client calls a session by
        self.dies = {}  # when, by key, as last told by the client
        self.env = {**os.environ, "PGDATABASE": name, "PGUSER": APPLICATION, "LIFETIME": str(LONG)}
        self.servers = []

    def sql(self, statement, *values):
        # Each use of its own cursor: the thread of User is here, too.
        with self.connection.cursor() as cursor:
            cursor.execute(statement, values or None)
            return cursor.fetchall() if cursor.description else None

    def run(self):
        self.make()
        self.long, self.short = Server(self, LONG), Server(self, SHORT)
        live = [Person(self, name).log_in(self.long) for name in ("ann", "bob", "cyd")]
        dead = [Person(self, name).log_in(self.short) for name in ("dan", "eve", "fay")]
        user = User(Person(self, "gil").log_in(self.short))
        user.start()

        # what is expired by the client's own rule, and nothing else, goes
        expired = wait_for("three sessions expire", lambda: self.expired_of(dead))
        self.adopt()
        wait_for("the dead rows go", lambda: not expired & self.rows())
        stay = getattr(self, f"with_{self.name}", set)()  # these rows live, too

        # so does what falls due while the server looks
        stay |= self.log_out()
        more = self.visit()
        user.stop()
        expired |= {self.keys[person.id] for person in more} | self.told([user.person])
        wait_for("rows go that fall due later", lambda: not expired & self.rows())

        living = self.told(live)
        check(self.rows() == living | stay, f"rows {self.rows()} are there, of the living {living} and those that stay {stay}")
        self.compare(expired)
        for person in live:
            check(person.is_logged_in(self.long), f"{person.name}'s session lives and does not work")
        for person in [*dead, *more, user.person]:
            check(not person.is_logged_in(self.long), f"{person.name}'s row has gone, and still it is a login")
            check(person.log_in(self.long).is_logged_in(self.long), f"{person.name} cannot log in again")
        self.healthy()

    def make(self):
        """The database is the application's; so is the table, which its own code makes."""
        self.sql(f"CREATE DATABASE {self.name} OWNER {APPLICATION}")
        self.sql(f"ALTER DATABASE {self.name} SET timezone = '{self.spec.zone}'")
        for command in self.spec.make:
            done = subprocess.run(command, env=self.env, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, timeout=PATIENCE)
            check(done.returncode == 0, f"{command} failed")
        self.connection.close()
        self.connection = psycopg2.connect(dbname=self.name)
        self.connection.autocommit = True

    def adopt(self):
        self.sql("CREATE EXTENSION session_sweeper")
        if os.environ.get("BREAK"):
            self.sql(os.environ["BREAK"])
        known = self.sql("SELECT preset FROM sweeper.adoptable WHERE relation = %s::regclass", self.spec.table)
        check((self.spec.preset,) in known, f"the table is taken for that of {known}")
        self.adopted = time.time()
        self.sql(f"SELECT sweeper.adopt('{self.spec.table}', start => 'now'{self.spec.adopt})")

    def rows(self):
        return {key for (key,) in self.sql(f"SELECT {self.spec.key}::text FROM {self.spec.table}")}

    def told(self, people):
        """The keys of their sessions; when they die is remembered."""
        for session in self.long.sessions():
            self.keys[session["id"]] = session["key"]
            self.dies[session["key"]] = session["dies"]
        for person in people:
            check(person.id in self.keys, f"{person.name}'s session has no row")
        return {self.keys[person.id] for person in people}

    def expired_of(self, people):
        """Their sessions, as soon as the client says that all of them are expired; it must not say so of others."""
        expired = {session["key"] for session in self.long.sessions() if session["expired"]}
        wanted = self.told(people)
        check(expired <= wanted, f"expired are {expired}, not only {wanted}")
        return expired if expired == wanted else None

    def visit(self):
        """People who come and leave one after the other for three lifetimes: all the time there is a row that falls due."""
        people, pace = [], threading.Event()
        while time.time() < self.adopted + 3 * SHORT:
            people.append(Person(self, f"visitor{len(people)}").log_in(self.short))
            self.told(people[-1:])
            pace.wait(0.4)
        return people

    def log_out(self):
        """A row that the client deletes is no event of ours.  The keys of the visitor whom some clients make of who leaves."""
        person = Person(self, "jon").log_in(self.long)
        key = self.told([person])
        check(key <= self.rows(), "jon has no row")
        person.ask(self.long, "POST", "/logout")
        check(not key & self.rows(), "jon's row outlives his session")
        return {session["key"] for session in self.long.sessions() if session["id"] not in self.keys}

    def compare(self, expired):
        """The audit has these rows, each once, of the right kind, not before it was dead, and soon after; and no others."""
        key = "encode(sha256(convert_to(k, 'UTF8')), 'hex')" if self.spec.hashed else "k"
        events = self.sql(f"""
            SELECT k, count(e.id), min(e.cleanup_type), min(extract(epoch FROM e.cleaned_at))::float8
            FROM unnest(%s::text[]) AS k LEFT JOIN sweeper.cleanup_event AS e ON e.key = {key} AND e.policy = %s GROUP BY k""",
                          list(expired), self.spec.table)
        for key, count, kind, cleaned in events:
            check(count == 1, f"{count} events of {key}")
            check(kind == self.spec.kind, f"{key} was {kind}")
            dies = self.dies[key]
            check(dies <= cleaned, f"{key} went {dies - cleaned:.3f} s before the client calls it expired")
            check(cleaned - max(dies, self.adopted) < IN_TIME, f"{key} went {cleaned - dies:.1f} s after its end")
        [(count,)] = self.sql("SELECT count(*) FROM sweeper.cleanup_event WHERE policy = %s", self.spec.table)
        check(count == len(expired), f"{count} events of {len(expired)} rows")

    def healthy(self):
        for view in ("problem", "failed_row"):
            found = self.sql(f"SELECT * FROM sweeper.{view}")
            check(not found, f"{view}: {found}")

    def status(self):
        """For whoever must find out why it failed."""
        try:
            return [line[0] for line in self.sql(f"""SELECT 'now ' || now() UNION ALL SELECT 'row ' || t FROM (SELECT {self.spec.key}, * FROM {self.spec.table}) AS t
                UNION ALL SELECT 'policy ' || p FROM sweeper.policy_status AS p UNION ALL SELECT 'event ' || e FROM sweeper.cleanup_event AS e""")]
        except psycopg2.Error as error:
            return [error]

    # What is special; the keys of rows that stay.

    def with_symfony(self):
        """Rows as versions before 4.4 left them, with a lifetime in the place of the deadline."""
        relative = "UPDATE sessions SET sess_lifetime = %s, sess_time = extract(epoch FROM now()) - %s WHERE sess_id = %s"
        alive, dead = (Person(self, name).log_in(self.long) for name in ("kim", "lea"))
        self.sql(relative, LONG, 0, alive.id)
        self.sql(relative, LONG, LONG + 60, dead.id)
        expired = wait_for("one of the old rows expires", lambda: self.expired_of([dead]))
        self.sql("SELECT sweeper.adopt('sessions', 'symfony_relative', policy => 'before 4.4')")
        wait_for("that row goes", lambda: not expired & self.rows())
        found = self.sql("SELECT cleanup_type FROM sweeper.cleanup_event WHERE policy = 'before 4.4'")
        check(found == [("zombie",)], f"of the old row the audit says {found}")
        check(alive.is_logged_in(self.long), "an old row that lives does not work")
        return self.told([alive])

    def with_flask_session(self):
        """A session that ends with the browser has no deadline."""
        return self.told([Person(self, "kim").log_in(self.long, "&forever")])


def main():
    test = Test(sys.argv[1])
    try:
        test.run()
    except (Failure, OSError, subprocess.SubprocessError, psycopg2.Error) as error:
        print(error)
        print(*test.status(), sep="\n")
        return 1
    finally:
        for server in test.servers:
            server.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
