"""Django's settings for the tests. ``DATABASE_URL`` names the server. Without it, ``conftest.py`` starts a server."""

from __future__ import annotations

import importlib.util

import environ

from tests.databases import UNSET, databases

env = environ.Env()

DATABASES = databases(env.str("DATABASE_URL", default=UNSET))
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SECRET_KEY = "only for tests"
DEBUG = False
ALLOWED_HOSTS = ["*"]
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
ROOT_URLCONF = "tests.urls"
STATIC_URL = "/static/"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django_mqueue",
    "django_mqueue.worklists",
]
if importlib.util.find_spec("tests.support") and importlib.util.find_spec("tests.support.shop"):
    INSTALLED_APPS.append("tests.support.shop")

MIDDLEWARE = [
    "tests.content_security.StrictPolicy",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

MQUEUE: dict[str, object] = {}
