"""Gather the rows of a task by topic. Store them one statement at a time, in the order of each topic."""

from __future__ import annotations

from ...service.storing import BYTES_PER_STATEMENT, ROWS_PER_STATEMENT
from ...store.log import NewRow
from ..connecting import RetryingConnection
from ..database.appending import append
from .write_options import WriteOptions

HELD = 16 * 1_048_576
"""The maximum number of bytes that wait to be stored, over all topics."""


class Outbox:
    """Stores rows. ``rows``: the number that are stored now. ``new``: the number that were not stored before."""

    def __init__(self, options: WriteOptions) -> None:
        self.rows = self.new = 0
        self._line = RetryingConnection(options.connecting)
        self._held: dict[str, list[NewRow]] = {}
        self._sizes: dict[str, int] = {}
        self._size = 0

    def put(self, topic: str, row: NewRow) -> None:
        size = len(row.content.body) + len(row.content.metadata)
        held = self._held.get(topic, ())
        if held and (len(held) == ROWS_PER_STATEMENT or self._sizes[topic] + size > BYTES_PER_STATEMENT):
            self._store(topic)
        if self._size + size > HELD:
            self.flush()
        self._held.setdefault(topic, []).append(row)
        self._sizes[topic] = self._sizes.get(topic, 0) + size
        self._size += size

    def flush(self) -> None:
        for topic in list(self._held):
            self._store(topic)

    def close(self) -> None:
        self._line.close()

    def _store(self, topic: str) -> None:
        some = self._held.pop(topic)
        self._size -= self._sizes.pop(topic)
        # Safe to retry after a lost connection: ``append`` finds rows that a COMMIT without an answer stored.
        self.new += self._line.run(lambda using: append(using, topic, some))
        self.rows += len(some)
