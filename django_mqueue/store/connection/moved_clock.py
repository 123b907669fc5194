"""Move the clock of one connection, for tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
        with connections[using].cursor() as cursor:
            cursor.execute("SET timestamp = DEFAULT")
