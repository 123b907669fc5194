"""Summaries of dead letters, for lists and counts. No statement reads more rows than its limit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ...policy.errors import HEAD
from ...results import DeadLetterSummary
from ..connection import session
from ..connection.dialect import flat, numbers_table, union
from .message_pages import of_partition

_SUMMARY = (
    "m.`offset`, m.partition_key, COALESCE(m.original_id, m.id), COALESCE(m.original_topic, ''), m.failed_group,"
    f" COALESCE(m.failed_at, 0), COALESCE(m.failure_count, 0), COALESCE(LEFT(m.last_error, {HEAD}), '')"
)
_KIND = "COALESCE(JSON_UNQUOTE(JSON_EXTRACT(m.metadata, '$.kind')), '')"
_SIZE = "LENGTH(m.payload)"
"""The server reads long payloads for this."""


def next_groups(using: str, above: Sequence[tuple[str, str]]) -> dict[str, tuple[str, str]]:
    """For each (topic, group), return the topic's next group with dead letters: {topic: (group, original topic)}.

    One row is read for each topic. Topics without such a group are missing from the result.
    """
    branch = (
        "SELECT topic, failed_group, COALESCE(original_topic, '') FROM queue_messages"
        " FORCE INDEX (queue_messages_due) WHERE topic = %s AND failed_group > %s ORDER BY failed_group LIMIT 1"
    )
    rows = session.fetch(using, union(branch, len(above)), flat(above))
    return {str(topic): (str(group), str(original)) for topic, group, original in rows}


def page(
    using: str,
    topic: str,
    partition: str | None,
    bounds: tuple[int, int],
    limit: int,
    *,
    newest_first: bool,
    kinds: bool,
    sizes: bool,
) -> tuple[list[DeadLetterSummary], int | None]:
    """Read the next ``limit`` rows strictly between two offsets. Return the dead letters, and the last row's offset.

    The rows are of a topic, or of one of its partitions. The last row's offset is None if there are no more rows.
    ``kinds`` and ``sizes`` add the kind and the payload's size, for which the server reads more.
    """
    index, where, params = of_partition(topic, partition)
    rows = session.fetch(
        using,
        f"SELECT {_SUMMARY}, {_extra_columns(kinds, sizes)}"
        f" FROM (SELECT `offset` FROM queue_messages FORCE INDEX ({index})"
        f" WHERE {where} AND `offset` > %s AND `offset` < %s ORDER BY `offset`{' DESC' if newest_first else ''}"
        f" LIMIT {limit:d}) w STRAIGHT_JOIN queue_messages m FORCE INDEX (PRIMARY) ON m.`offset` = w.`offset`",
        [*params, *bounds],
    )
    rows.sort(key=lambda row: row[0], reverse=newest_first)
    found = [_summary(row) for row in rows if row[4] is not None]
    return found, int(rows[-1][0]) if len(rows) == limit else None


def at_offsets(using: str, topic: str, offsets: Sequence[int], *, sizes: bool) -> list[DeadLetterSummary]:
    """Return summaries of the rows that are dead letters of the topic, with their kinds, in offset order."""
    rows = session.fetch(
        using,
        f"SELECT {_SUMMARY}, {_extra_columns(True, sizes)} FROM {numbers_table('w', 'o')}"
        " STRAIGHT_JOIN queue_messages m FORCE INDEX (PRIMARY) ON m.`offset` = w.o"
        " WHERE m.topic = %s AND m.failed_group IS NOT NULL",
        [json.dumps(list(offsets)), topic],
    )
    return [_summary(row) for row in sorted(rows)]


def _extra_columns(kinds: bool, sizes: bool) -> str:
    return f"{_KIND if kinds else repr('')}, {_SIZE if sizes else '0'}"


def _summary(row: Sequence[Any]) -> DeadLetterSummary:
    offset, partition, id, original, group, failed_at, failures, error, kind, size = row
    return DeadLetterSummary(
        int(offset), partition, id, original, group, int(failed_at), int(failures), error, str(kind), int(size)
    )  # fmt: skip
