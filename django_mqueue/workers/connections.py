"""Database connections of a long-running process: kept from message to message, checked, replaced when broken.

Django closes connections at the end of each request (``CONN_MAX_AGE``); a worker has no requests.
"""

from __future__ import annotations

import threading
import time

from django.db import connections, reset_queries
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


def after_use() -> None:
    """Leave this thread's connections as the next message expects them: no transaction open, none broken."""
    for connection in connections.all(initialized_only=True):
        if connection.connection is None:
            continue
        if connection.in_atomic_block or not connection.get_autocommit():
            connection.close()  # A handler left a transaction open: what it wrote there was never committed.
        elif connection.errors_occurred:
            _check(connection)
    _used.at = time.monotonic()


def _check(connection: BaseDatabaseWrapper) -> None:
    if connection.is_usable():
        connection.errors_occurred = False
    else:
        connection.close()
