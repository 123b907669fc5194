"""What every test run needs: a server, and a header that says which."""

from __future__ import annotations

import os

import pytest


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Name the server and its version, whatever it is."""
    if config.option.collectonly:
        return []
    return [f"database: {_version()}"]


def _version() -> str:
    import MySQLdb
    from django.db import connection

    parameters = connection.get_connection_params()  # type: ignore[attr-defined]
    parameters = {name: value for name, value in parameters.items() if name not in {"db", "database"}}
    server = MySQLdb.connect(**parameters)
    try:
        with server.cursor() as cursor:
            cursor.execute("SELECT VERSION(), @@version_comment")
            return " ".join(cursor.fetchone())
    finally:
        server.close()


def pytest_configure(config: pytest.Config) -> None:
    if "DATABASE_URL" not in os.environ and not config.option.collectonly:
        raise pytest.UsageError("set DATABASE_URL: no server is started yet")
