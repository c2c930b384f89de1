"""Flask with Flask-Session, SQLAlchemy back end.

    flask_app.py table            the session table, by SQLAlchemy's create_all()
    flask_app.py PORT LIFETIME    the application; seconds
"""
import sys
from datetime import datetime, timedelta, timezone

from flask import Flask, jsonify, request, session
from flask_session import Session
from flask_sqlalchemy import SQLAlchemy
from werkzeug.middleware.dispatcher import DispatcherMiddleware

app = Flask(__name__)
app.config.update(
    SECRET_KEY="only for this test",
    SQLALCHEMY_DATABASE_URI="postgresql+psycopg2://",  # PGHOST and the like
    # Flask hands over a time with its zone, which the column, having none, gets as local time of the connection;
    # Flask-Session reads it as UTC.  So this it must be.
    SQLALCHEMY_ENGINE_OPTIONS={"connect_args": {"options": "-c timezone=UTC"}},
    SESSION_TYPE="sqlalchemy",
    PERMANENT_SESSION_LIFETIME=timedelta(seconds=float(sys.argv[2]) if len(sys.argv) > 2 else 1),
)
app.config["SESSION_SQLALCHEMY"] = db = SQLAlchemy(app)
Session(app)
store = app.session_interface


@app.post("/login")
def login():
    session["user"] = request.args["user"]
    session.permanent = "forever" not in request.args
    return jsonify(id=session.sid)


@app.get("/me")
def me():
    return jsonify(user=session.get("user")), 200 if "user" in session else 401


@app.post("/logout")
def logout():
    session.clear()
    return jsonify()


def as_open_session_sees_it(row):
    return {
        "id": row.session_id[len(store.key_prefix) :],
        "key": str(row.id),
        "dies": row.expiry and row.expiry.replace(tzinfo=timezone.utc).timestamp(),
        "expired": row.expiry is not None and row.expiry <= datetime.utcnow(),
    }


# Beside the application: there, whoever comes is given a session.
beside = Flask("beside")
app.wsgi_app = DispatcherMiddleware(app.wsgi_app, {"/admin": beside})


@beside.get("/sessions")
def sessions():
    with app.app_context():
        return jsonify([as_open_session_sees_it(row) for row in store.sql_session_model.query])


if sys.argv[1] == "table":
    with app.app_context():
        db.create_all()
else:
    app.run("127.0.0.1", int(sys.argv[1]))
