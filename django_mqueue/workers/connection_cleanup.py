"""Database connections of a long-running process: kept between messages, and replaced if the server closed them.

Django closes connections at the end of each request (``CONN_MAX_AGE``), but a worker has no requests.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from django.db import Error, connections

from ..store.connection import session

logger = logging.getLogger("django_mqueue")


_MOVE = "mqueue_move"
"""The attribute of a connection with what ``last_move`` returned after its last use."""


def close_after_use() -> None:
    """Let ``after_use`` close this thread's connections: their server is read-only."""
    for connection in connections.all(initialized_only=True):
        setattr(connection, _MOVE, object())


def after_use() -> bool:
    """Clean up this thread's connections for the next message. Return False if a transaction was left open.

    A connection in a transaction is closed, which rolls back its writes. Django's wrapper is also removed, because it
    would stay in its ``atomic`` block. If a database has ``AUTOCOMMIT`` off, open work is rolled back, as at the end of
    a request. This is normal, and does not return False. A broken connection is closed.

    A connection is also closed if the database may have moved since. A failover may have made its server a replica,
    which still answers. The others stay open. Django checks each at its next use, and replaces it if the server has
    closed it, as ``CONN_HEALTH_CHECKS`` does once for each request. The check is a ping, not a statement. Not
    checked here: the server may close it before its next use.
    """
    is_clean = True
    for connection in connections.all(initialized_only=True):
        if connection.connection is None:
            continue
        try:
            is_autocommit = connection.settings_dict["AUTOCOMMIT"]
            if connection.in_atomic_block or (is_autocommit and not connection.get_autocommit()):
                is_clean = False
                del connections[connection.alias]
                connection.connection.close()
                continue
            if not connection.get_autocommit():
                with suppress(Error):  # The connection is broken, and its transaction is lost.
                    connection.rollback()
            move = session.last_move(connection.alias)
            if getattr(connection, _MOVE, move) is not move:
                connection.close()
            setattr(connection, _MOVE, move)
            connection.close_at = None  # ``CONN_MAX_AGE`` is for requests.
            connection.close_if_unusable_or_obsolete()
            connection.health_check_enabled = True  # type: ignore[attr-defined]
        except Exception:  # The next use reconnects.
            logger.debug("a connection could not be checked", exc_info=True)
    return is_clean
