"""Gather the rows of a task by topic. Store the rows of each topic in their order, many by one statement."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from django.db import IntegrityError
from django.db.backends.utils import CursorWrapper

from ...policy.batching import BYTES_PER_STATEMENT
from ...service.storing import ROWS_PER_STATEMENT, naming_unknown_group, store_many
from ...store import log
from ...store.connection import errors, session
from ...store.log import NewRow
from ..connecting import RetryingConnection
from .write_options import WriteOptions

WAITING_BYTES_MAX = 16 * 1_048_576
"""The maximum number of bytes that wait to be stored, over all topics."""


class RowBuffer:
    """Stores rows. The caller must call ``flush`` and ``close`` at the end."""

    def __init__(self, options: WriteOptions) -> None:
        self._connection = RetryingConnection(options.connecting)
        self._waiting: dict[str, list[NewRow]] = defaultdict(list)
        self._sizes: Counter[str] = Counter()
        self._size = 0

    def put(self, topic: str, row: NewRow) -> None:
        size, waiting = len(row.content.body) + len(row.content.metadata), self._waiting.get(topic)
        if waiting and (
            len(waiting) == ROWS_PER_STATEMENT or self._sizes[topic] + size > BYTES_PER_STATEMENT
        ):
            self._store(topic)
        if self._size + size > WAITING_BYTES_MAX:
            self.flush()
        self._waiting[topic].append(row)
        self._sizes[topic] += size
        self._size += size

    def flush(self) -> None:
        for topic in list(self._waiting):
            self._store(topic)

    def close(self) -> None:
        self._connection.close()

    def _store(self, topic: str) -> None:
        rows = self._waiting.pop(topic)
        self._size -= self._sizes.pop(topic)
        # Safe to retry: ``append`` finds rows that are stored already, by a COMMIT whose result was lost.
        self._connection.run(lambda using: append(using, topic, rows))


def append(using: str, topic: str, rows: Sequence[NewRow]) -> None:
    """Store the rows that the topic does not hold yet, in their order, in one transaction.

    The first try inserts all rows with one statement. If an id exists already, a second try stores the other rows.

    Raises ``NotRegistered`` if a row is for one group only, and this group is not registered.
    """

    def store(cursor: CursorWrapper) -> None:
        with naming_unknown_group(cursor, topic, rows):
            log.insert(cursor, topic, rows)

    try:
        session.run(using, store)
        return
    except IntegrityError as error:
        if not errors.is_duplicate(error):
            raise
    session.run(using, lambda cursor: store_many(cursor, topic, rows, [None] * len(rows), [True] * len(rows)))
