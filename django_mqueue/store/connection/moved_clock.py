"""Move the clock of one connection, for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import MySQLdb
from django.db import connections


@contextmanager
def moved_clock(using: str) -> Iterator[Callable[[int], None]]:
    """Yield a function that sets this connection's time in epoch milliseconds. The clock does not advance after that.

    When the block ends, the connection has the server's time again.
    """

    def move(ms: int) -> None:
        with connections[using].cursor() as cursor:
            cursor.execute(f"SET timestamp = {ms / 1000:.3f}")

    try:
        yield move
    finally:
        # Not by Django's cursor: it refuses statements after an error in a transaction.
        if (raw := connections[using].connection) is not None:
            with suppress(MySQLdb.Error):  # The session is lost, and so is its clock.
                raw.query("SET timestamp = DEFAULT")
