"""The project of django_app.py.  (settings.configure() would not set the process's time zone.)"""
import os
import sys

SECRET_KEY = "only for this test"
ALLOWED_HOSTS = ["127.0.0.1"]
ROOT_URLCONF = "__main__"
INSTALLED_APPS = ["django.contrib.sessions"]
MIDDLEWARE = ["django.contrib.sessions.middleware.SessionMiddleware"]
SESSION_COOKIE_AGE = int(sys.argv[2]) if len(sys.argv) > 2 else 1
SESSION_SAVE_EVERY_REQUEST = True  # use prolongs
USE_TZ = os.environ.get("USE_TZ", "1") == "1"
TIME_ZONE = "America/New_York"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "HOST": os.environ["PGHOST"],
        "PORT": os.environ["PGPORT"],
        "USER": os.environ["PGUSER"],
        "NAME": os.environ["PGDATABASE"],
    }
}
