"""Settings of the example project. ``DATABASE_URL`` names the server, in the environment or in a file ``.env``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import environ

BASE_DIR = Path(__file__).resolve().parent.parent

env = environ.Env()
environ.Env.read_env(BASE_DIR / ".env")  # Does not override the environment.

SECRET_KEY = env.str("SECRET_KEY", default="only for the example")
# In DEBUG Django keeps the text of every statement, which costs workers memory and distorts measurements.
DEBUG = env.bool("DEBUG", default=sys.argv[1:2] == ["runserver"])
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django_mqueue",
    "django_mqueue.worklists",
    "example_project.flights",
    "example_project.shop",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "example_project.urls"
WSGI_APPLICATION = "example_project.wsgi.application"
ASGI_APPLICATION = "example_project.asgi.application"

TEMPLATES: list[dict[str, Any]] = [
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

_database: dict[str, Any] = env.db_url("DATABASE_URL", default="mysql://root@127.0.0.1:3306/mqueue_example")
DATABASES = {
    "default": {
        **_database,
        "OPTIONS": {
            "charset": "utf8mb4",
            "isolation_level": "read committed",
            **_database.get("OPTIONS", {}),
        },
        "TEST": {"CHARSET": "utf8mb4"},
    }
}
# The pipeline sets 0: its workers delete flights as soon as all groups, also the archive, are done with them.
MQUEUE = {"TOPICS": {"flights": {"RETENTION": env.int("FLIGHTS_RETENTION", default=3600)}}}

TASKS = {
    "default": {
        "BACKEND": "django_mqueue.tasks.MQueueBackend",
        "QUEUES": ["default", "mail"],
        # A real shop would wait for minutes: ExponentialBackoff(first=60, max=3600).
        "OPTIONS": {
            "max_attempts": 5,
            "backoff": [0.2],
            "recurring": {
                "sales": {
                    "task": "example_project.shop.tasks.report_sales",
                    "cron": "0 6 * * *",
                    "timezone": "Europe/Berlin",
                },
            },
        },
    }
}

DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

AUTH_PASSWORD_VALIDATORS = [
    {"NAME": f"django.contrib.auth.password_validation.{name}"}
    for name in ("UserAttributeSimilarityValidator", "MinimumLengthValidator", "CommonPasswordValidator")
]

LANGUAGE_CODE = "en-us"
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "static/"

LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s: %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "loggers": {"django_mqueue": {"handlers": ["console"], "level": env.str("LOG_LEVEL", default="WARNING")}},
}
