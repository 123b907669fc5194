"""The server of this run, before and beside Django's own connections."""

from __future__ import annotations

import os

import MySQLdb
from django.conf import settings
from django.db import connections

from tests.databases import databases


def kind_of_run() -> str:
    """``mariadb`` or ``mysql``: what was asked for, or what ``DATABASE_URL`` leads to."""
    if "MQUEUE_TEST_SERVER" in os.environ:
        return os.environ["MQUEUE_TEST_SERVER"]
    if "DATABASE_URL" not in os.environ:
        return "mariadb"
    return "mariadb" if "mariadb" in version_of_run().lower() else "mysql"


def version_of_run() -> str:
    """As the server says it, for instance ``10.11.6-MariaDB Debian 12``."""
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
    """Lead Django's connections to a server that was started after the settings were read."""
    for alias, wanted in databases(url).items():
        settings.DATABASES[alias].update((key, value) for key, value in wanted.items() if key != "TEST")
