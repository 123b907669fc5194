"""Appending many messages whose ids are given, each once, however often the same are brought."""

from __future__ import annotations

from collections.abc import Sequence

from django.db import IntegrityError
from django.db.backends.utils import CursorWrapper

from ..store import log, session
from ..store.dialect import DUPLICATE_ENTRY
from ..store.log import NewRow
from .storing import known_groups, store_many


def append(using: str, topic: str, rows: Sequence[NewRow]) -> int:
    """Store those of the rows that the topic does not hold, in their order, in one transaction: how many these were.

    At first as if none were there, by one statement; only if one is, by looking which. So rows must be few enough
    for a statement. The publishers' gate is passed as by any publish. Raises ``NotRegistered`` for a row that is for
    one group alone, which is not registered.
    """

    def store(cursor: CursorWrapper) -> int:
        with known_groups(cursor, topic, rows):
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
