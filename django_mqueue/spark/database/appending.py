"""Append many messages that have given ids, each message once, even if a caller sends the same messages again."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import IntegrityError
from django.db.backends.utils import CursorWrapper

from ...service.storing import naming_unknown_group, store_many
from ...store import log
from ...store.connection import errors, session
from ...store.log import NewRow


def append(using: str, topic: str, rows: Sequence[NewRow]) -> int:
    """Store the rows that the topic does not hold yet, in their order, in one transaction. Return how many it stored.

    The first try inserts all rows with one statement, so the rows must fit into one. If an id exists already, a second
    try finds the existing ids and stores the other rows. The rows pass the publishers' gate, as in ``publish``.

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
        if not errors.is_duplicate(error):
            raise
    return session.run(using, store_missing)
