"""Find the kind and the version of the run's server, and point Django's connections to it."""

from __future__ import annotations

import os

import MySQLdb
from django.conf import settings
from django.db import connections

from tests.databases import databases


def kind_of_run() -> str:
    """Return ``mariadb`` or ``mysql``, from ``MQUEUE_TEST_SERVER`` or from the server of ``DATABASE_URL``."""
    if "MQUEUE_TEST_SERVER" in os.environ:
        return os.environ["MQUEUE_TEST_SERVER"]
    if "DATABASE_URL" not in os.environ:
        return "mariadb"
    return "mariadb" if "mariadb" in version_of_run().lower() else "mysql"


def version_of_run() -> str:
    """Return the version as the server reports it, for example ``10.11.6-MariaDB Debian 12``."""
    parameters = connections["default"].get_connection_params()
    server = MySQLdb.connect(
        **{key: value for key, value in parameters.items() if key not in {"db", "database"}}
    )
    try:
        with server.cursor() as cursor:
            cursor.execute("SELECT VERSION(), @@version_comment")
            version, comment = cursor.fetchone()
            return f"{version} {comment}"
    finally:
        server.close()


def adopt(url: str) -> None:
    """Point Django's connections to a server that started after Django read the settings."""
    for alias, wanted in databases(url).items():
        settings.DATABASES[alias].update((key, value) for key, value in wanted.items() if key != "TEST")
