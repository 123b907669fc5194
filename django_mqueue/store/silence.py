"""The connection of a worker's loop: how long the server waits for the worker, and the worker for a lock."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.db import DatabaseError, connections

LOCK_WAIT = 1
"""Seconds: the least that MySQL knows. Statements that can skip locked rows do; this bounds the others."""


@contextmanager
def ended_when_silent(using: str, seconds: float) -> Iterator[Callable[[], None]]:
    """Have the server end this thread's connection when it does not hear of it for so long; ``wait_timeout`` else.

    A worker that stands still in the midst of a transaction (its machine is paused, or is gone without a word) has
    locks that keep its partitions from the others, even when its leases have run out. And its statements wait
    ``LOCK_WAIT`` seconds at most for a lock (see ``session.waits_briefly``): it renews the leases of all groups.
    Call what is given before each use: it sees to a new connection, too. At the end all is as it was.
    """
    seen: Any = None
    before: tuple[int, int] = (0, 0)

    def see_to_it() -> None:
        nonlocal seen, before
        connection: Any = connections[using]
        connection.mqueue_waits_briefly = True
        connection.ensure_connection()
        if connection.connection is seen:
            return
        with connection.cursor() as cursor:
            cursor.execute("SELECT @@SESSION.wait_timeout, @@SESSION.innodb_lock_wait_timeout")
            silence, lock_wait = (int(value) for value in cursor.fetchone())
            _set(cursor, min(silence, math.ceil(seconds)), LOCK_WAIT)
        seen, before = connection.connection, (silence, lock_wait)

    try:
        yield see_to_it
    finally:
        connection: Any = connections[using]
        connection.mqueue_waits_briefly = False
        if seen is not None and connection.connection is seen:
            with suppress(DatabaseError), connection.cursor() as cursor:
                _set(cursor, *before)


def _set(cursor: Any, silence: int, lock_wait: int) -> None:
    cursor.execute(
        "SET SESSION wait_timeout = %s, SESSION innodb_lock_wait_timeout = %s", [silence, lock_wait]
    )
