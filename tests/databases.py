"""Build the tests' ``DATABASES`` from one URL, and make a database for one test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import environ

UNSET = "mysql://root@localhost/mqueue"
"""A placeholder for processes that never connect, such as type checking or collecting."""


def databases(url: str) -> dict[str, dict[str, Any]]:
    """Return ``default``, and ``other`` on the same server (for ``using=``)."""
    found = environ.Env.db_url_config(url)
    found["OPTIONS"] = {
        "charset": "utf8mb4",
        "isolation_level": "read committed",
        **found.get("OPTIONS", {}),
    }
    name = found["NAME"] or "mqueue"
    return {
        alias: {
            **found,
            "NAME": database,
            "OPTIONS": dict(found["OPTIONS"]),
            "TEST": {"NAME": f"test_{database}"},
        }
        for alias, database in (("default", name), ("other", f"{name}_other"))
    }


def connection_parameters(url: str, *, database: bool = True) -> dict[str, object]:
    """Return the arguments of ``MySQLdb.connect``. Without ``database``, the connection selects no database."""
    from django.db.backends.mysql.base import DatabaseWrapper

    complete = {
        "TIME_ZONE": None,
        "HOST": "",
        "PORT": "",
        "USER": "",
        "PASSWORD": "",
        **databases(url)["default"],
    }
    found: dict[str, object] = DatabaseWrapper(complete).get_connection_params()
    return {key: value for key, value in found.items() if database or key not in ("database", "db")}


@contextmanager
def own_database(url: str, suffix: str, *, keep: bool = False) -> Iterator[str]:
    """Create a second database on the server of the URL, and drop it at the end unless ``keep`` is set."""
    import MySQLdb

    def execute(sql: str) -> None:
        connection = MySQLdb.connect(**connection_parameters(url, database=False))
        with connection.cursor() as cursor:
            cursor.execute(sql)
        connection.close()

    place = urlsplit(url)
    name = f"{place.path.strip('/') or 'mqueue'}_{suffix}"
    execute(f"CREATE DATABASE {'IF NOT EXISTS' if keep else ''} `{name}` CHARACTER SET utf8mb4")
    try:
        yield place._replace(path=f"/{name}").geturl()
    finally:
        if not keep:
            execute(f"DROP DATABASE `{name}`")
