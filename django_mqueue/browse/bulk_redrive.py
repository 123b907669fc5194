"""Redrive or purge the dead letters that an operator has selected, in steps of about a second.

Each step continues after the last one, so that a long run can be watched, stopped and continued.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from ..exceptions import MQueueError
from ..policy.batching import BYTES_PER_STATEMENT, batches_by_weight
from ..policy.dead_letter_filter import DeadLetterQuery
from ..service.actions import BulkRecord
from ..service.redrive import AT_ONCE, DeadLetterRow, DeadLetterSelection
from ..store.connection import session
from ..store.queries import message_pages
from .dead_letters import OFFSET_MAX, walk

STEP = 1.0
"""Seconds after which a step ends."""
STEP_DEAD_LETTERS = 2_500
STEP_ROWS = 20_000
"""A step ends after it has read this number of dead letters, whether they match or not."""


class DeadLetterChanged(MQueueError):
    """The dead letter was redriven, purged or changed, or another transaction has locked it. Nothing was done."""

    def __init__(self, topic: str, offset: int) -> None:
        super().__init__(
            f"the dead letter {offset} of topic {topic!r} was redriven, deleted or changed meanwhile, or another"
            " process is changing it. Nothing was done: look it up again"
        )


@dataclass(frozen=True)
class Progress:
    """The result of a step.

    ``examined``: how many dead letters the step has read, whether they match or not. ``position``: the next step
    continues above this offset; None: this was the last step. ``moved``, ``locked`` and ``unregistered`` are as in
    ``Batch``. ``redriven``: partition and id of each message that was added to the log.
    """

    moved: int
    locked: int
    unregistered: int
    examined: int
    position: int | None
    redriven: Sequence[tuple[str, str]] = ()


def step(
    using: str,
    query: DeadLetterQuery,
    above: int,
    up_to: int,
    *,
    redrives: bool,
    limit: int = STEP_DEAD_LETTERS,
    record: BulkRecord | None = None,
) -> Progress:
    """Redrive or purge the next selected dead letters above the offset ``above``, up to and including ``up_to``.

    The step ends when it has moved about ``limit`` or read ``STEP_ROWS`` dead letters, or after ``STEP`` seconds.
    ``record``: the operation's record of actions. It includes the changes of previous steps. None: nothing is recorded.
    """
    selection = DeadLetterSelection(
        using, query.topic, query.dead_topic, query.group, query.fits, redrives, record=record
    )
    begun = time.monotonic()
    moved = locked = unregistered = examined = 0
    redriven: list[tuple[str, str]] = []
    bounds, chunk = (above, min(up_to, OFFSET_MAX - 1) + 1), min(AT_ONCE, limit)
    with session.raises_not_migrated(using):
        for part in walk(using, query, bounds, newest_first=False, chunk=chunk, sized=True):
            before, examined, position = examined, part.examined, part.next
            for summaries in batches_by_weight(part.found, attrgetter("size"), BYTES_PER_STATEMENT):
                page = [summary.offset for summary in summaries]
                done = selection.batch(page)
                moved += done.moved
                locked += done.locked
                unregistered += done.unregistered
                redriven += [(one.partition, one.id) for one in done.redriven]
                if time.monotonic() - begun >= STEP and page[-1] < part.found[-1].offset:
                    examined = before + sum(summary.offset <= page[-1] for summary in part.found)
                    return Progress(moved, locked, unregistered, examined, page[-1], redriven)
            if position is not None and (
                moved >= limit or examined >= STEP_ROWS or time.monotonic() - begun >= STEP
            ):
                return Progress(moved, locked, unregistered, examined, position, redriven)
    if record is not None:
        record.end(using)
    return Progress(moved, locked, unregistered, examined, None, redriven)


def edit(using: str, dead_letter: DeadLetterRow, edited: Any, record: BulkRecord | None = None) -> int | None:
    """Redrive one dead letter with another payload, or with an ``Edited``. Return the offset of the message.

    None: the message is no longer in the log.

    Raises ``DeadLetterChanged`` if the dead letter has changed since it was read, ``MQueueError`` if its group is not
    registered, and ``TypeError`` or ``ValueError`` if the content cannot be published. Then nothing is changed.
    """
    row, offset = dead_letter.row, int(dead_letter.row["offset"])
    query = DeadLetterQuery(row["original_topic"], dead_letter.topic, offsets=frozenset({offset}))

    selection = _Unchanged(
        using, query.topic, query.dead_topic, None, query.fits, True, lambda _: edited, record
    )
    selection.seen = fingerprint(dead_letter)
    with session.raises_not_migrated(using):
        result = selection.batch([offset])
    if not result.moved:
        if result.unregistered:
            raise MQueueError(
                f"group {row['failed_group']!r} is no longer registered for topic {query.topic!r}: subscribe it, or"
                " publish the message again"
            )
        raise DeadLetterChanged(dead_letter.topic, offset)
    (message,) = result.redriven
    return offset_of(using, query.topic, (message.partition, message.id))


def offset_of(using: str, topic: str, message: tuple[str, str]) -> int | None:
    """Return the offset of a redriven message, a pair of partition and id; None if it is no longer in the log."""
    partition, id = message
    with session.raises_not_migrated(using):
        found = message_pages.by_id(using, topic, [partition], id)
    return found[0][0] if found else None


def fingerprint(dead_letter: DeadLetterRow) -> str:
    """Return a hash that differs between two dead letters, and between two states of one dead letter."""
    parts = hashlib.sha256()
    for part in ("id", "payload", "metadata", "original_topic", "failed_group"):
        value = dead_letter.row[part]
        parts.update(value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass"))
        parts.update(b"\0")
    return parts.hexdigest()


class _Unchanged(DeadLetterSelection):
    """The selection of one dead letter, if it has not changed since it was read."""

    seen: str

    def matches(self, dead_letter: DeadLetterRow) -> bool:
        return super().matches(dead_letter) and fingerprint(dead_letter) == self.seen
