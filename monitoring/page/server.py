#!/usr/bin/env python3
"""A page with the sweeper of one database, for a browser on this machine.

    server.py [--port PORT] [CONNECTION]

CONNECTION is what psql takes after -d: the name of a database, a URI or a connection
string.  The environment of psql counts as well (PGHOST, PGUSER, PGSERVICE, ~/.pgpass).
The role needs access level monitor.  Nothing but psql and Python must be installed.

One psql reads the views every two seconds, in a read-only session, and writes one line
of JSON each time.  If it ends, for whatever reason, another one follows.
"""
import argparse
import base64
import collections
import hashlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HERE = os.path.dirname(os.path.abspath(__file__))
INTERVAL = 2   # seconds between two readings
PATIENCE = 15  # seconds without a line, after which a psql is given up
HISTORY = 300  # readings that the charts show

# A function in schema public with the name of a built-in one must not run.
SESSION = '-c search_path=pg_catalog,pg_temp -c default_transaction_read_only=on -c statement_timeout=10s -c lock_timeout=2s -c jit=off'

# Who reads, for what is said if it may not.
READER = r"""
\set VERBOSITY verbose
SELECT jsonb_build_object('database', current_database(), 'role', current_user, 'read_only', current_setting('transaction_read_only'), 'access', format('SELECT sweeper.grant_access(%L, ''monitor'');', quote_ident(current_user)));
"""

# Times are sent as seconds, so that no clock but the server's counts.
FIGURES = r"""
WITH metric AS MATERIALIZED (SELECT substr(metric, 17) AS name, labels, value FROM sweeper.metrics),
policy AS (
    SELECT s.policy, s.relation, s.policy LIKE 'sweeper.%' AS builtin, s.state, array_remove(s.brakes, s.state) AS brakes, s.brakes <> '{}' AS braked, left(s.reason, 300) AS reason,
           extract(epoch FROM s.lag)::float8 AS lag, coalesce(s.lag > p.max_lag, false) AS late, s.backlog, s.percent, s.rows_per_second,
           extract(epoch FROM s.eta)::float8 AS eta, s.expired, s.workers
    FROM sweeper.policy_status AS s JOIN sweeper.policy AS p USING (policy)),
running AS (
    SELECT policy, phase, extract(epoch FROM elapsed)::float8 AS elapsed, done, rows_left, percent, rows_per_second,
           extract(epoch FROM eta)::float8 AS eta, expired, refreshed, repaired, failed, workers
    FROM sweeper.stat_progress ORDER BY policy LIMIT 50),
ended AS (
    SELECT pass, policy, status, extract(epoch FROM clock_timestamp() - finished_at)::float8 AS ago, expired, refreshed, repaired, failed,
           seconds, workers, left(error, 500) AS error
    FROM (SELECT * FROM sweeper.pass ORDER BY started_at DESC LIMIT 50) AS p WHERE finished_at IS NOT NULL ORDER BY finished_at DESC LIMIT 8),
pool AS (SELECT pool, seats, live, free, over_by, waiting, refused, peak_today FROM sweeper.pool_status ORDER BY pool LIMIT 200),
busy AS MATERIALIZED (
    SELECT task, kind, room, category, name, summary, status, worker_name, attempt, done, total, message, claimed_at
    FROM sweeper.task_info WHERE status IN ('claimed', 'running')),
job AS (
    SELECT j.room, j.category, j.name, j.workers, j.waiting, coalesce(b.n, 0) AS running
    FROM sweeper.job_status AS j LEFT JOIN (SELECT room, category, name, count(*) AS n FROM busy GROUP BY 1, 2, 3) AS b USING (room, category, name)
    ORDER BY waiting > 0 OR b.n > 0 DESC, room, category, name LIMIT 100),
task AS (
    SELECT task, CASE kind WHEN 'sql' THEN coalesce(summary, 'SQL command') ELSE concat_ws(' / ', room, category, name) END AS what, status,
           worker_name, attempt, done, total, left(message, 200) AS message, extract(epoch FROM clock_timestamp() - claimed_at)::float8 AS elapsed
    FROM busy ORDER BY claimed_at LIMIT 20),
problem AS (
    SELECT severity, policy, problem, extract(epoch FROM clock_timestamp() - since)::float8 AS age, left(detail, 1000) AS detail, next_step
    FROM sweeper.problem ORDER BY severity, policy, problem, since LIMIT 100)
SELECT jsonb_build_object(
    'server', concat(host(inet_server_addr()), ':' || inet_server_port()), 'version', current_setting('server_version'), 'standby', pg_is_in_recovery(),
    'totals', (SELECT jsonb_object_agg(name, total) FROM (
        SELECT concat_ws('.', name, labels ->> 'status') AS name, sum(value) AS total FROM metric
        WHERE name IN ('rows_ended_total', 'heartbeats_total', 'tracked_sessions', 'seats_used', 'enabled', 'tasks', 'tasks_ended_hour') GROUP BY 1) AS t),
    'policies', (SELECT jsonb_agg(p) FROM (SELECT * FROM policy ORDER BY builtin, policy LIMIT 300) AS p), 'policy_count', (SELECT count(*) FROM policy),
    'lag', (SELECT coalesce(max(lag) FILTER (WHERE NOT braked), 0) FROM policy),
    'running', (SELECT jsonb_agg(r) FROM running AS r), 'ended', (SELECT jsonb_agg(e) FROM ended AS e),
    'pools', (SELECT jsonb_agg(p) FROM pool AS p), 'jobs', (SELECT jsonb_agg(j) FROM job AS j), 'tasks', (SELECT jsonb_agg(t) FROM task AS t),
    'problems', (SELECT jsonb_agg(p) FROM problem AS p))
\watch """

# What an error of the database means to the reader, by SQLSTATE.
NO_EXTENSION = ('Database "{database}" does not have the extension. Create it there as a superuser, or start the page with another database.',
                'CREATE EXTENSION session_sweeper;')
MEANING = {
    '3F000': NO_EXTENSION, '42P01': NO_EXTENSION, '42883': NO_EXTENSION,
    '42501': ('Role "{role}" does not have access level monitor in database "{database}". As the owner of the extension, run the statement below.', '{access}'),
    '57014': ('The views took longer than 10 s to read.', None),
    '55P03': ('A table of the extension is locked, for example by ALTER EXTENSION.', None),
}


class Reader(threading.Thread):
    """Keeps a psql at work, and the last figures that it has read."""

    def __init__(self, connection):
        super().__init__(daemon=True)
        self.command = ['psql', '-XqAtw', '-v', 'ON_ERROR_STOP=1', '-f', '-'] + (['-d', connection] if connection else [])
        self.who = {}
        self.trouble = {'text': 'Waiting for the first figures.', 'statement': None}
        self.figures = None
        self.read_at = 0.0
        self.history = collections.deque(maxlen=HISTORY)
        self.psql = None

    def run(self):
        while True:
            try:
                self.trouble = self.explained(self.session())
            except ValueError as error:  # a line that is no JSON
                self.trouble = {'text': f'psql wrote what is not understood: {error}.', 'statement': None}
            except OSError as error:
                self.trouble = {'text': f'psql does not start: {error.strerror}. It is in package postgresql-client.', 'statement': None}
            self.history.append([time.time(), None, None, None])  # a gap in the charts
            time.sleep(INTERVAL)

    def session(self):
        """One psql, from its start to its end. Returns its last words."""
        options = ' '.join([os.environ.get('PGOPTIONS', ''), SESSION]).strip()
        environment = {'PGCONNECT_TIMEOUT': '5', **os.environ, 'PGOPTIONS': options, 'PGCLIENTENCODING': 'UTF8', 'PGAPPNAME': 'session_sweeper page'}
        self.psql = subprocess.Popen(self.command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        said, last = b'', ''
        with self.psql as psql:
            psql.stdin.write(f'{READER}{FIGURES}{INTERVAL}\n'.encode())
            psql.stdin.close()
            while select.select([psql.stdout], [], [], PATIENCE)[0]:
                part = os.read(psql.stdout.fileno(), 1 << 16)
                if not part:
                    return last
                *lines, said = (said + part).split(b'\n')
                for line in lines:
                    line = line.decode('utf-8', 'replace')
                    if line.startswith('{'):
                        self.take(json.loads(line))
                    elif line and not line.startswith('LOCATION:'):
                        last += line + '\n'
            psql.kill()
        return f'psql: error: the server has not answered for {PATIENCE} s'

    def take(self, reading):
        if 'access' in reading:
            self.who = reading
            return
        now = time.time()
        rates = [None, None]
        if self.figures:
            for n, name in enumerate(('rows_ended_total', 'heartbeats_total')):
                new, old = (f['totals'].get(name, 0) for f in (reading, self.figures))
                # counters begin again at a restart, and at stat_reset()
                rates[n] = round((new - old) / max(now - self.read_at, 0.1), 1) if new >= old else None
        self.history.append([now, rates[0], reading['lag'], rates[1]])
        self.figures, self.read_at, self.trouble = {**reading, **self.who}, now, None

    def explained(self, words):
        """A sentence, and if there is one, a statement that helps."""
        found = re.search(r':  ([0-9A-Z]{5}): (.*)', words)
        if found and found[1] in MEANING:
            who = collections.defaultdict(lambda: '?', self.who)
            text, statement = (part and part.format_map(who) for part in MEANING[found[1]])
            return {'text': text, 'statement': statement}
        cause = found[2] if found else re.sub(r'^psql: error: ', '', words.strip()) or 'psql has ended'
        return {'text': f'The database cannot be read: {cause}.', 'statement': None}

    def state(self):
        return {'interval': INTERVAL, 'trouble': self.trouble, 'figures': self.figures, 'history': list(self.history),
                'age': time.time() - self.read_at if self.figures else None}


def inline_hashes(page, tag):
    """What lets the page's own script and style run, and no other."""
    return ' '.join("'sha256-" + base64.b64encode(hashlib.sha256(body).digest()).decode() + "'"
                    for body in re.findall(b'<%s>(.*?)</%s>' % (tag, tag), page, re.S))


class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    server_version = 'session_sweeper'
    sys_version = ''
    timeout = 60
    files = {'/': ('page.html', 'text/html; charset=utf-8'),
             '/uPlot.js': ('uplot/uPlot.iife.min.js', 'text/javascript; charset=utf-8'),
             '/uPlot.css': ('uplot/uPlot.min.css', 'text/css; charset=utf-8')}
    reader = None
    timeout = 10  # seconds that a client may take to ask

    def do_GET(self):
        # A foreign page whose name leads to this machine could read the answers otherwise.
        if not re.fullmatch(r'(localhost|127\.0\.0\.1|\[::1\])(:\d+)?', self.headers.get('Host', '')):
            return self.answer(403, 'text/plain', b'Only localhost is served.\n')
        if self.path == '/data':
            return self.answer(200, 'application/json', json.dumps(self.reader.state()).encode())
        if self.path not in self.files:
            return self.answer(404, 'text/plain', b'There is no such page.\n')
        name, kind = self.files[self.path]
        with open(os.path.join(HERE, name), 'rb') as file:
            return self.answer(200, kind, file.read())

    do_HEAD = do_GET

    def answer(self, status, kind, body):
        self.send_response(status)
        policy = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; connect-src 'self'; img-src data:"
        if kind.startswith('text/html'):
            policy += f"; script-src 'self' {inline_hashes(body, b'script')}; style-src 'self' {inline_hashes(body, b'style')}"
        for name, value in (('Content-Type', kind), ('Content-Length', str(len(body))), ('Content-Security-Policy', policy),
                            ('X-Content-Type-Options', 'nosniff'), ('Cross-Origin-Resource-Policy', 'same-origin'),
                            ('Referrer-Policy', 'no-referrer'), ('Cache-Control', 'no-store')):
            self.send_header(name, value)
        self.end_headers()
        if self.command != 'HEAD':
            self.wfile.write(body)

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        if not isinstance(sys.exc_info()[1], OSError):  # a browser that has gone is no error
            super().handle_error(request, client_address)


def main():
    parser = argparse.ArgumentParser(description='A page with the sweeper of one database, for a browser on this machine.')
    parser.add_argument('--port', type=int, default=8432, help='default: 8432')
    parser.add_argument('connection', nargs='?', help="as psql's -d: a database, a URI or a connection string")
    arguments = parser.parse_args()
    try:
        server = Server(('127.0.0.1', arguments.port), Handler)
    except OSError as error:
        sys.exit(f'server.py: cannot listen on port {arguments.port}: {error.strerror}. Choose another one with --port.')
    Handler.reader = Reader(arguments.connection)
    Handler.reader.start()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print(f'http://localhost:{server.server_port}/ shows the sweeper. Ctrl-C ends it.', flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        if Handler.reader.psql:
            Handler.reader.psql.kill()


if __name__ == '__main__':
    main()
