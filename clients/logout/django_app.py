"""Django with its sessions in the database.  Pages that are open leave as soon as their session ends.

    python3 django_app.py migrate
    python3 django_app.py PORT SECONDS    SECONDS: lifetime of a session

PGHOST and the like say where the database is.  Once the table is there, its owner says:

    SELECT state FROM sweeper.adopt('django_session', notify_channel => 'session_ended')
    SELECT sweeper.resume('django_session')    -- if the state is held

The application reads cleanup_event: its role owns the table, or the owner gives it level monitor (or gives notify_keys to
adopt(), and the application takes the keys of the notification).
A session that Django itself deletes (logout, flush) ends no page: end its streams there.
"""
import hashlib
import json
import os
import queue
import select
import sys
import threading
import time
from collections import defaultdict
from socketserver import ThreadingMixIn
from wsgiref.simple_server import WSGIServer, make_server

import django
import psycopg2
from django.conf import settings
from django.core.management import call_command
from django.core.wsgi import get_wsgi_application
from django.db import connection
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse
from django.urls import path

settings.configure(
    SECRET_KEY="only an example", ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1"], USE_TZ=True,
    INSTALLED_APPS=["django.contrib.sessions"], MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware"],
    DATABASES={"default": {"ENGINE": "django.db.backends.postgresql", "NAME": os.environ["PGDATABASE"], "HOST": os.environ["PGHOST"],
                           "PORT": os.environ.get("PGPORT", ""), "USER": os.environ.get("PGUSER", "")}},
    SESSION_COOKIE_AGE=int(sys.argv[2]) if len(sys.argv) > 2 else 1209600)
django.setup()

pages = defaultdict(set)  # what is open: key of the session -> queues of its streams
lock = threading.Lock()


def log_out(gone):
    with lock:
        for key, streams in pages.items():
            if gone(key):
                for stream in streams:
                    stream.put("event: logout\ndata: the session has ended\n\n")


def listen():
    while True:
        try:
            listener = psycopg2.connect("")
            listener.autocommit = True
            cursor = listener.cursor()
            cursor.execute("LISTEN session_ended")
            # after a time without a connection: which of our sessions are there?
            cursor.execute("SELECT session_key FROM django_session WHERE session_key = ANY (%s)", (list(pages),))
            there = {key for (key,) in cursor.fetchall()}
            log_out(lambda key: key not in there)
            while True:
                select.select([listener], [], [])
                listener.poll()
                while listener.notifies:
                    batch = json.loads(listener.notifies.pop(0).payload)
                    # keys of sessions are credentials: the events have their hashes
                    cursor.execute("SELECT key FROM sweeper.cleanup_event WHERE policy = 'django_session' AND id BETWEEN %(first_id)s AND %(last_id)s", batch)
                    ended = {key for (key,) in cursor.fetchall()}
                    log_out(lambda key: hashlib.sha256(key.encode()).hexdigest() in ended)
        except psycopg2.Error as error:
            print(error, file=sys.stderr)
            time.sleep(0.5)


def login(request):
    request.session["user"] = request.GET["user"]
    request.session.save()
    return JsonResponse({"id": request.session.session_key})


# The page's script: new EventSource('/events').addEventListener('logout', () => { location = '/login'; });
def events(request):
    key = request.session.session_key
    if not request.session.get("user"):
        return HttpResponse(status=401)
    connection.close()  # a stream is open for long

    def stream():
        news = queue.Queue()
        with lock:
            pages[key].add(news)
        try:
            yield ": open\n\n"
            while True:
                try:
                    yield news.get(timeout=15)
                    return
                except queue.Empty:
                    yield ": still open\n\n"
        finally:
            with lock:
                pages[key].discard(news)
                if not pages[key]:
                    del pages[key]
    return StreamingHttpResponse(stream(), content_type="text/event-stream")


urlpatterns = [path("login", login), path("events", events)]


class Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


if sys.argv[1] == "migrate":
    call_command("migrate", verbosity=0)
else:
    threading.Thread(target=listen, daemon=True).start()
    make_server("127.0.0.1", int(sys.argv[1]), get_wsgi_application(), server_class=Server).serve_forever()
