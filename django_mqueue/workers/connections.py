"""Database connections of a long-running process: kept from message to message, replaced when the server closed them.

Django closes connections at the end of each request (``CONN_MAX_AGE``); a worker has no requests.
"""

from __future__ import annotations

from django.db import Error, connections, reset_queries
from django.db.backends.base.base import BaseDatabaseWrapper


def before_use() -> None:
    """Have Django check this thread's connections when they are used next, and replace those that are closed.

    Django does this once for each request with ``CONN_HEALTH_CHECKS``. The check is a ping, which is no statement.
    A connection is checked when it is used, not here: a handler may wait for something else before.
    """
    reset_queries()
    for connection in connections.all(initialized_only=True):
        connection.health_check_enabled = True  # type: ignore[attr-defined]
        connection.health_check_done = False  # type: ignore[attr-defined]


def after_use() -> bool:
    """Leave this thread's connections as the next message expects them: none in a transaction, none broken.

    Whether all had been left well. One that is still in a transaction is thrown away, and Django's wrapper with
    it, which would go on believing in its ``atomic`` block: what was written there is rolled back. Of a database
    whose ``AUTOCOMMIT`` is off, what was not committed is rolled back, as at the end of a request; that is usual there.
    """
    well = True
    for connection in connections.all(initialized_only=True):
        if connection.connection is None:
            continue
        by_itself = connection.settings_dict["AUTOCOMMIT"]
        if connection.in_atomic_block or (by_itself and not connection.get_autocommit()):
            well = False
            connection.connection.close()
            del connections[connection.alias]
        elif not by_itself:
            _roll_back(connection)
        elif connection.errors_occurred:
            _check(connection)
    return well


def _roll_back(connection: BaseDatabaseWrapper) -> None:
    try:
        if not connection.get_autocommit():
            connection.rollback()
            return
    except Error:  # It has died, and what was open with it.
        pass
    connection.close()


def _check(connection: BaseDatabaseWrapper) -> None:
    if connection.is_usable():
        connection.errors_occurred = False
    else:
        connection.close()
