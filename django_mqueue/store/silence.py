"""Workers that stand still: the server ends their connections, and with them the transactions that hold others up."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from django.db import DatabaseError, connections


@contextmanager
def ended_when_silent(using: str, seconds: float) -> Iterator[Callable[[], None]]:
    """Have the server end this thread's connection when it does not hear of it for so long; ``wait_timeout`` else.

    A worker that stands still in the midst of a transaction (its machine is paused, or is gone without a word) has
    locks that keep its partitions from the others, even when its leases have run out. Call what is given before
    each use: it sees to a new connection, too. At the end all is as it was.
    """
    seen: Any = None
    before = 0

    def see_to_it() -> None:
        nonlocal seen, before
        connection = connections[using]
        connection.ensure_connection()
        if connection.connection is seen:
            return
        with connection.cursor() as cursor:
            cursor.execute("SELECT @@SESSION.wait_timeout")
            before = int(cursor.fetchone()[0])
            cursor.execute("SET SESSION wait_timeout = %s", [min(before, math.ceil(seconds))])
        seen = connection.connection

    try:
        yield see_to_it
    finally:
        connection = connections[using]
        if seen is not None and connection.connection is seen:
            with suppress(DatabaseError), connection.cursor() as cursor:
                cursor.execute("SET SESSION wait_timeout = %s", [before])
