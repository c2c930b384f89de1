"""Django with contrib.sessions in the database.

    django_app.py table            the session table, by Django's own migrations
    django_app.py PORT LIFETIME    the application; seconds
"""
import os
import sys

import django
from django.core.management import call_command
from django.http import JsonResponse
from django.urls import path
from django.utils import timezone

os.environ["DJANGO_SETTINGS_MODULE"] = "django_settings"
django.setup()

from django.contrib.sessions.models import Session  # noqa: E402  (needs the settings)


def login(request):
    request.session.cycle_key()  # as auth.login() does
    request.session["user"] = request.GET["user"]
    return JsonResponse({"id": request.session.session_key})


def me(request):
    user = request.session.get("user")
    return JsonResponse({"user": user}, status=200 if user else 401)


def logout(request):
    request.session.flush()
    return JsonResponse({})


def sessions(request):
    """The rule of clearsessions."""
    expired = set(Session.objects.filter(expire_date__lt=timezone.now()).values_list("pk", flat=True))
    return JsonResponse(
        [
            {"id": s.pk, "key": s.pk, "dies": s.expire_date.timestamp(), "expired": s.pk in expired}
            for s in Session.objects.all()
        ],
        safe=False,
    )


urlpatterns = [path("login", login), path("me", me), path("logout", logout), path("admin/sessions", sessions)]

if sys.argv[1] == "table":
    call_command("migrate", verbosity=0)
else:
    call_command("runserver", f"127.0.0.1:{sys.argv[1]}", use_reloader=False)
