"""Store the messages of a task, a few hundred with each statement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing
from functools import partial
from itertools import groupby
from operator import itemgetter

from django.db import IntegrityError
from django.db.backends.utils import CursorWrapper

from ...policy.batching import batches_by_weight
from ...service.storing import BYTES_PER_STATEMENT, ROWS_PER_STATEMENT, naming_unknown_group, store_many
from ...store import log
from ...store.connection import session
from ...store.connection.dialect import DUPLICATE_ENTRY
from ...store.log import NewRow
from ..connecting import RetryingConnection
from .write_options import WriteOptions

HELD_BYTES, HELD_ROWS = 16 * 1_048_576, 20_000
"""Limits of the messages that are gathered and grouped by topic before they are stored."""


def store(messages: Iterable[tuple[str, NewRow]], options: WriteOptions) -> None:
    """Store messages, given as (topic, row), in the order of each topic."""
    with closing(RetryingConnection(options.connecting)) as line:
        for held in batches_by_weight(messages, lambda each: _size(each[1]), HELD_BYTES, HELD_ROWS):
            held.sort(key=itemgetter(0))
            for topic, some in groupby(held, itemgetter(0)):
                rows = (row for _, row in some)
                for part in batches_by_weight(rows, _size, BYTES_PER_STATEMENT, ROWS_PER_STATEMENT):
                    # Safe to retry after a lost connection: ``append`` finds rows that were stored.
                    line.run(partial(append, topic=topic, rows=part))


def _size(row: NewRow) -> int:
    return len(row.content.body) + len(row.content.metadata)


def append(using: str, topic: str, rows: Sequence[NewRow]) -> int:
    """Store the rows that the topic does not hold yet, in their order, in one transaction. Return how many it stored.

    The first try inserts all rows with one statement. If an id exists already, a second try stores the other rows.

    Raises ``NotRegistered`` if a row is for one group only, and this group is not registered.
    """

    def store(cursor: CursorWrapper) -> int:
        with naming_unknown_group(cursor, topic, rows):
            log.insert(cursor, topic, rows)
        return len(rows)

    def store_missing(cursor: CursorWrapper) -> int:
        found = store_many(cursor, topic, rows, [None] * len(rows), [True] * len(rows))
        return sum(published.created for published in found)

    try:
        return session.run(using, store)
    except IntegrityError as error:
        if session.error_code(error) != DUPLICATE_ENTRY:
            raise
    return session.run(using, store_missing)
