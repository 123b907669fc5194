"""The name of this program in a user variable of its sessions, which ``mqueue blockers`` shows.

mysqlclient cannot set connection attributes: it has no argument for ``mysql_options4``. Both servers show user
variables in the performance schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import MySQLdb
from django.db import connections
from django.db.backends.signals import connection_created

VARIABLE = "mqueue_program"
LENGTH_MAX = 255


@contextmanager
def named_sessions(using: str, program: str) -> Iterator[None]:
    """Set the variable in this thread's session, and in each that this process opens to the database in this block.

    It costs one statement for each connection.
    """
    place = _place(connections[using])

    def set_variable(*, connection: Any, **kwargs: object) -> None:
        if connection.connection is None or connection.vendor != "mysql" or _place(connection) != place:
            return
        # Not Django's cursor: the statement is not part of what the caller does with the connection.
        with suppress(MySQLdb.Error), connection.connection.cursor() as cursor:
            cursor.execute(f"SET @{VARIABLE} = %s", [program[:LENGTH_MAX]])

    connection_created.connect(set_variable, weak=False)
    try:
        set_variable(connection=connections[using])
        yield
    finally:
        connection_created.disconnect(set_variable)


def _place(connection: Any) -> tuple[object, ...]:
    settings = connection.settings_dict
    return tuple(settings[name] for name in ("HOST", "PORT", "NAME"))
