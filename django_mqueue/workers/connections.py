"""Database connections of a long-running process: kept from message to message, checked, replaced when broken.

Django closes connections at the end of each request (``CONN_MAX_AGE``); a worker has no requests.
"""

from __future__ import annotations

import threading
import time

from django.db import Error, connections, reset_queries
from django.db.backends.base.base import BaseDatabaseWrapper

CHECK_AFTER = 30.0
"""Seconds without use after which a connection is tried before it is trusted: the server may have closed it."""

_used = threading.local()
_outages = 0


def distrust() -> None:
    """The server went away: each thread tries its connections before it uses them next, however short ago that was."""
    global _outages
    _outages += 1


def before_use() -> None:
    """Make sure that this thread's connections can be used: drop those that have died."""
    reset_queries()
    last, now, outages = getattr(_used, "at", 0.0), time.monotonic(), _outages
    doubtful = now - last > CHECK_AFTER or outages != getattr(_used, "outages", 0)
    for connection in connections.all(initialized_only=True):
        if connection.connection is not None and (connection.errors_occurred or doubtful):
            _check(connection)
    _used.at, _used.outages = now, outages


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
    _used.at = time.monotonic()
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
