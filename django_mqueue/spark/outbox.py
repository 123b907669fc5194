"""What a task is about to store: gathered by topic, and sent a statement at a time, in the order of each topic."""

from __future__ import annotations

from ..service.appending import append
from ..service.storing import BYTES_PER_STATEMENT, ROWS_PER_STATEMENT
from ..store.log import NewRow
from .connecting import Line
from .write_options import WriteOptions

HELD = 16 * 1_048_576
"""Bytes that are held back at most, over all topics."""


class Outbox:
    """``rows``: how many were stored or found to be there, ``new``: how many were not there before."""

    def __init__(self, options: WriteOptions) -> None:
        self.rows = self.new = 0
        self._line = Line(options.connecting)
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
        # Again after a lost connection: what a COMMIT without an answer has stored is found to be there.
        self.new += self._line.run(lambda using: append(using, topic, some))
        self.rows += len(some)
