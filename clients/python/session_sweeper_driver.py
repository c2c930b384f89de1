"""What session_sweeper.py needs of the drivers, psycopg 3 or psycopg2: connections, rows and texts."""
import contextlib
import functools
import os
import socket
import threading

LIMIT = 5  # seconds until a silent connection is given up


def typed(name, value, *kinds):
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise TypeError(f"{name} must be {' or '.join(kind.__name__ for kind in kinds)}, not {type(value).__name__}")
    return value


def connector(connect):
    """What opens a connection: the callable that was given, or the driver with a connection string."""
    if callable(connect):
        return connect
    try:
        import psycopg as driver
    except ImportError:
        import psycopg2 as driver
    return functools.partial(driver.connect, typed("connect", connect, str), connect_timeout=LIMIT)


def cursor_of(connection):
    """With rows as tuples and intervals as texts: the driver's own reading depends on settings of the connection."""
    if hasattr(connection, "row_factory"):  # psycopg 3
        from psycopg import rows, types
        cursor = connection.cursor(row_factory=rows.tuple_row)
        cursor.adapters.register_loader("interval", types.string.TextLoader)
    elif hasattr(connection, "cursor_factory"):
        from psycopg2 import extensions
        cursor = connection.cursor(cursor_factory=extensions.cursor)
        extensions.register_type(extensions.new_type((1186,), "INTERVAL", lambda value, _: value), cursor)
    else:  # Django's, for example
        cursor = connection.cursor()
    return cursor


def text_of(what):
    """Its text, as the server can store it."""
    try:
        text = f"{type(what).__name__}: {what}" if isinstance(what, BaseException) else str(what)
    except Exception:  # a __str__ that fails
        text = f"{type(what).__name__} without a text"
    return text[:2000].encode(errors="replace").decode().replace("\0", "?")


def sqlstate(error):
    return getattr(error, "sqlstate", None) or getattr(error, "pgcode", None) or ""  # of psycopg 3, psycopg2


class Line:
    """One connection, used by one thread at a time; it is opened when it is needed.  No call outlasts its limit."""

    def __init__(self, connect):
        self._connect, self.connection, self.fresh = connect, None, False

    def call(self, sql, *values, limit=LIMIT):
        if self.connection is None:
            self.connection = self._connect()
            self.connection.autocommit = True
            self.fresh = True  # nothing is attached to it
        # Both drivers wait in libpq without a limit of their own; an end of the stream wakes them.
        # A descriptor of our own: it cannot have become another file's when the limit is over.
        stream = socket.socket(fileno=os.dup(self.connection.fileno()))
        timer = threading.Timer(limit, self._cut, [stream])
        timer.daemon = True
        timer.start()
        try:
            with cursor_of(self.connection) as cursor:
                cursor.execute(sql, values)
                return cursor.fetchall() if cursor.description else []
        finally:
            timer.cancel()
            stream.close()
            if self.connection.closed:
                self.connection = None

    @staticmethod
    def _cut(stream):
        with contextlib.suppress(OSError):  # it has ended by itself
            stream.shutdown(socket.SHUT_RDWR)

    def close(self):
        if self.connection is not None:
            self.connection.close()
            self.connection = None
