"""A database for the example project, and the example's tables in the tests' database."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.apps import AppConfig, apps
from django.conf import settings
from django.contrib import admin
from django.db import connection
from django.test import override_settings
from pytest_django import DjangoDbBlocker

from django_mqueue.workers.registry import unregister
from tests.support.processes import database_url
from tests.support.waiting import SPARK_PATIENCE

ROOT = Path(__file__).resolve().parents[3]
LONG_TIMEOUTS = "tests.docs_and_example.example.long_timeouts"


class Example:
    """Runs ``manage.py`` of the example project, on a separate database. For ``shop``, it is ``long_timeouts``."""

    def __init__(self, url: str) -> None:
        self.environment = {
            **os.environ,
            "DATABASE_URL": url,
            "DJANGO_SETTINGS_MODULE": "example_project.settings",
        }

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        program = ("-m", LONG_TIMEOUTS) if arguments[0] == "shop" else ("manage.py",)
        return subprocess.Popen(
            [sys.executable, *program, *arguments],
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, str]:
        """Return the exit code and the whole output."""
        with self.start(*arguments) as process:
            try:
                output, _ = process.communicate(timeout=SPARK_PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
        return process.returncode, output

    def sql(self, statement: str) -> None:
        """Change the example's tables from outside."""
        code, output = self.run(
            "shell", "-c", f"from django.db import connection; connection.cursor().execute({statement!r})"
        )
        assert code == 0, output


@pytest.fixture
def example(transactional_db: None) -> Iterator[Example]:
    name = f"{connection.settings_dict['NAME']}_example"
    with connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS `{name}`")
        cursor.execute(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")
    url = database_url().replace(f"/{connection.settings_dict['NAME']}?", f"/{name}?")
    try:
        found = Example(url)
        code, output = found.run("migrate", "--verbosity=0")
        assert code == 0, output
        yield found
    finally:
        with connection.cursor() as cursor:
            cursor.execute(f"DROP DATABASE `{name}`")


@contextmanager
def installed_flights() -> Iterator[AppConfig]:
    """Install the example's app. At the end, remove its pages from the admin, since other tests do not know the app."""
    with override_settings(INSTALLED_APPS=[*settings.INSTALLED_APPS, "example_project.flights"]):
        app = apps.get_app_config("flights")
        try:
            yield app
        finally:
            admin.site.unregister([model for model in app.get_models() if admin.site.is_registered(model)])


@pytest.fixture(scope="session")
def _flights_tables(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    """Create the example's tables in the tests' database, unless another folder that imports this has created them."""
    with django_db_blocker.unblock(), installed_flights() as app:
        there = set(connection.introspection.table_names())
        models = [model for model in app.get_models() if model._meta.db_table not in there]
        with connection.schema_editor() as editor:
            for model in models:
                editor.create_model(model)
    yield
    with django_db_blocker.unblock(), connection.schema_editor() as editor:
        for model in reversed(models):
            editor.delete_model(model)


@pytest.fixture
def flights(transactional_db: None, _flights_tables: None) -> Iterator[None]:
    """Install the example's app for the test, with empty tables. Unregister its handlers at the end."""
    with installed_flights() as app:
        yield
        for model in app.get_models():
            model._default_manager.all().delete()
    for group in ("board", "delays"):
        for topic in ("flights", "flights-replayed"):
            unregister(topic, group)
    unregister("carrier-days", "bulletins")
