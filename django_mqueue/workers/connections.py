"""Database connections of a long-running process: kept between messages, and replaced if the server closed them.

Django closes connections at the end of each request (``CONN_MAX_AGE``), but a worker has no requests.
"""

from __future__ import annotations

from django.db import Error, connections, reset_queries
from django.db.backends.base.base import BaseDatabaseWrapper


def before_use() -> None:
    """Make Django check this thread's connections when they are next used, and replace closed ones.

    Django does this once for each request with ``CONN_HEALTH_CHECKS``. The check is a ping, not a statement. This
    function does not check them itself, because a handler may wait for something else before it uses a connection.
    """
    reset_queries()
    for connection in connections.all(initialized_only=True):
        connection.health_check_enabled = True  # type: ignore[attr-defined]
        connection.health_check_done = False  # type: ignore[attr-defined]


def after_use() -> bool:
    """Clean up this thread's connections for the next message. Return False if a transaction was left open.

    A connection in a transaction is closed, which rolls back its writes. Django's wrapper is also removed, because it
    would stay in its ``atomic`` block. If a database has ``AUTOCOMMIT`` off, open work is rolled back, as at the end of
    a request. This is normal, and does not return False. A broken connection is closed.
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
    except Error:  # The connection is broken, and its transaction is lost.
        pass
    connection.close()


def _check(connection: BaseDatabaseWrapper) -> None:
    if connection.is_usable():
        connection.errors_occurred = False
    else:
        connection.close()
