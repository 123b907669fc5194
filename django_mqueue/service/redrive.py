"""Redrive dead letters to their groups, or purge them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from operator import itemgetter
from typing import Any

from django.db.backends.utils import CursorWrapper

from .. import conf
from ..exceptions import NotRegistered
from ..messages import Edited, Message
from ..policy import encoding, names
from ..policy.batching import BYTES_PER_STATEMENT, batches_by_weight
from ..policy.dead_letter_filter import dead_letter_filter
from ..policy.ids import uuid7
from ..policy.requests import REPLY_TO, check_headers
from ..protocol import events
from ..protocol.waking import commits
from ..store import dead_letters, garbage, log, offsets
from ..store.connection import session
from ..store.dead_letters import Redriven
from ..store.parked_retries import without
from ..store.queries.message_rows import to_message
from . import message_views
from .actions import BulkRecord
from .registration import check_group
from .subscription import check_count

AT_ONCE = 500

Filter = Mapping[str, Any] | Callable[[Message], Any]
Edit = Callable[[Message], Any]


def redrive(
    topic: str,
    *,
    group: str | None = None,
    ids: Collection[str] | None = None,
    filter: Filter | None = None,
    edit: Edit | None = None,
    limit: int | None = None,
    rate: float | None = None,
    dry_run: bool = False,
    using: str | None = None,
) -> int:
    """Send dead letters back, each to the group that gave it up and to no other group. Return how many were sent.

    * ``topic``: the original topic of the dead letters.
    * ``group``, ``ids``, ``filter``: select dead letters. A dead letter must match all of them. ``ids`` are original
      ids. ``filter`` is a callable that takes the dead letter, or a mapping. The mapping may have the keys ``error``
      (the name of the exception), ``failed_after`` and ``failed_before`` (aware datetimes), headers, and ``payload__``
      paths.
    * ``edit``: a callable that takes the dead letter and returns the new payload, or an ``Edited`` with the new
      payload and the new headers. None: both stay.
    * ``limit``: the maximum number of dead letters.
    * ``rate``: the maximum number of messages a second.
    * ``dry_run``: change nothing; return how many would be sent.
    * ``using``: the database alias. None: ``MQUEUE["DATABASE"]``.

    A message keeps its id, key and kind, and its headers unless ``edit`` replaces them. Its attempts start at 1 again.
    The same transaction deletes the dead letter. There is one transaction for each 500 dead letters or 4 MiB, so a run
    that was interrupted can be repeated. The call skips dead letters that arrive while it runs, that another
    transaction has locked, or whose group is not registered.

    Raises ``TypeError`` or ``ValueError`` for invalid arguments, ``NotRegistered`` if ``group`` is not registered.
    Exceptions from ``edit`` and ``filter`` reach the caller, and the current transaction is rolled back.
    """
    if edit is not None and not callable(edit):
        raise TypeError(
            f"edit must be a callable that takes the dead letter and returns its new payload, not {edit!r}"
        )
    dead = selection(topic, group, filter, using, redrives=True, edit=edit)
    return dead.run(ids, limit, dry_run=dry_run, rate=rate)


def purge(
    topic: str,
    *,
    group: str | None = None,
    ids: Collection[str] | None = None,
    filter: Filter | None = None,
    limit: int | None = None,
    dry_run: bool = False,
    using: str | None = None,
) -> int:
    """Delete dead letters of a topic. Return how many were deleted.

    It takes the parameters of ``redrive``, except ``edit`` and ``rate``. The groups of the dead letters need not be
    registered. Raises ``TypeError`` or ``ValueError`` for invalid arguments.
    """
    return selection(topic, group, filter, using, redrives=False).run(ids, limit, dry_run=dry_run)


def selection(
    topic: str,
    group: str | None,
    filter: Filter | None,
    using: str | None,
    *,
    redrives: bool,
    edit: Edit | None = None,
) -> DeadLetterSelection:
    """Check the arguments of ``redrive`` or ``purge``, and return the dead letters that they select."""
    names.check_topic(topic)
    if group is not None:
        check_group(group)
    dead_topic = conf.dead_letter_topic(topic)
    return DeadLetterSelection(
        conf.database(using), topic, dead_topic, group, dead_letter_filter(filter), redrives, edit
    )


@dataclass(frozen=True)
class Batch:
    """The result of one transaction.

    ``moved``: how many dead letters were redriven or purged. ``locked``: how many another transaction had locked.
    ``unregistered``: how many have a group that is not registered. ``redriven``: the messages that were added to the
    log.
    """

    moved: int
    locked: int
    unregistered: int
    redriven: Sequence[Redriven] = ()


@dataclass
class DeadLetterSelection:
    """Dead letters to redrive (``redrives``) or to purge.

    ``edit``: returns the new content of a redriven message. ``record``: None if the action is not an operator's.
    """

    using: str
    topic: str
    dead_topic: str
    group: str | None
    fits: Callable[[Message], bool]
    redrives: bool
    edit: Edit | None = None
    record: BulkRecord | None = None

    def run(
        self, ids: Collection[str] | None, limit: int | None, *, dry_run: bool, rate: float | None = None
    ) -> int:
        """Redrive or purge the dead letters, the oldest first. Return how many."""
        if rate is not None and not rate > 0:
            raise ValueError(f"rate must be more than 0 messages a second, not {rate!r}")
        if isinstance(ids, str):
            raise TypeError(f"ids must be a collection of ids, not the one str {ids!r}")
        if ids is not None:
            ids = sorted({names.check_name("id", one, names.ID_MAX) for one in ids})
        if limit is not None:
            check_count("limit", limit)
        record = nullcontext() if self.record is None else self.record.total(self.using)
        with record:
            with session.raises_not_migrated(self.using):
                groups = dead_letters.groups(self.using, self.dead_topic)
            if self.redrives:
                registered = offsets.registrations(self.using, self.topic).keys()
                if self.group is not None and self.group not in registered:
                    raise NotRegistered(self.topic, self.group)
                groups &= registered
            if self.group is not None:
                groups &= {self.group}
            if not groups or ids == []:
                return 0
            total, begun = 0, time.monotonic()
            if dry_run:
                rate = None
            at_once = AT_ONCE if rate is None else int(min(AT_ONCE, max(rate, 1)))
            for page in self._pages(sorted(groups), ids or (), at_once):
                if rate is not None:
                    time.sleep(max(begun + total / rate - time.monotonic(), 0))
                left = None if limit is None else limit - total
                total += self.batch(page, left, dry_run=dry_run).moved
                if total == limit:
                    break
            return total

    def batch(self, page: Sequence[int], left: int | None = None, *, dry_run: bool = False) -> Batch:
        """Redrive or purge these dead letters: at most ``left``, in one transaction."""
        work = partial(self._move, page=page, left=left, dry_run=dry_run)
        batch, moved = session.run(self.using, work)
        if self.record is not None:
            self.record.committed(batch.moved)
        if self.redrives and not dry_run:
            events.redriven(self.using, self.topic, [dead_letter.row for dead_letter in moved])
            if moved:
                commits.wake_after_commit(self.using, self.topic)
        return batch

    def _pages(self, groups: Sequence[str], ids: Sequence[str], at_once: int) -> Iterator[list[int]]:
        """Yield lists of offsets. Each list is small enough for one transaction."""
        position, last = 0, log.newest(self.using, self.dead_topic)
        while found := dead_letters.sizes(self.using, self.dead_topic, groups, ids, position, last, at_once):
            for page in batches_by_weight(found, itemgetter(1), BYTES_PER_STATEMENT):
                yield [offset for offset, _ in page]
            position = found[-1][0]

    def _move(
        self, cursor: CursorWrapper, *, page: Sequence[int], left: int | None, dry_run: bool
    ) -> tuple[Batch, list[DeadLetterRow]]:
        """Redrive or purge the dead letters of a page, except those locked by another transaction.

        A redrive also skips dead letters whose group is not registered, because no group would receive the message.
        """
        free = page if dry_run else sorted(garbage.lock_unlocked(cursor, page))
        taken = sorted(set(page).difference(free))
        locked = len(dead_letters.read(cursor, taken)) if taken else 0  # The others no longer exist.
        found = (
            [DeadLetterRow(row, self.dead_topic) for row in dead_letters.read(cursor, free)] if free else []
        )
        matching = moved = [dead_letter for dead_letter in found if self.matches(dead_letter)][:left]
        if matching and self.redrives:
            groups = {dead_letter.row["failed_group"] for dead_letter in matching}
            registered = offsets.registered_among(cursor, self.topic, groups, locking=not dry_run)
            moved = [dead_letter for dead_letter in matching if dead_letter.row["failed_group"] in registered]
        redriven: list[Redriven] = []
        if moved and not dry_run:
            if self.redrives:
                redriven = [self._redriven(dead_letter) for dead_letter in moved]
                with session.raises_not_migrated(self.using):
                    dead_letters.append_redriven(cursor, self.topic, redriven)
            consumers = sorted(garbage.starts(cursor, self.dead_topic))
            garbage.delete(cursor, self.dead_topic, consumers, [one.row["offset"] for one in moved])
            if self.record is not None:
                self.record.batch(cursor, len(moved))
        return Batch(len(moved), locked, len(matching) - len(moved), redriven), moved

    def _redriven(self, dead_letter: DeadLetterRow) -> Redriven:
        row = dead_letter.row
        payload, metadata = bytes(row["payload"]), without(dead_letters.FAILURES, row["metadata"])
        if self.edit is not None:
            limit = conf.get("MAX_PAYLOAD_BYTES", self.topic)
            content = dead_letter.encode(self.edit(dead_letter.message), limit)
            payload, metadata = content.body, content.metadata
        return Redriven(row["partition"], uuid7(), row["failed_group"], payload, metadata, row["original_id"])

    def matches(self, dead_letter: DeadLetterRow) -> bool:
        # Two topics with different suffixes can have one dead-letter topic.
        return dead_letter.row["original_topic"] in (None, self.topic) and self.fits(dead_letter.message)


class DeadLetterRow:
    """A dead letter: its row, and the message that filters and editors receive."""

    def __init__(self, row: dict[str, Any], topic: str) -> None:
        self.row, self.topic = row, topic

    @property
    def is_ours(self) -> bool:
        """Return whether the metadata have the form that ``publish`` writes."""
        found = json.loads(self.row["metadata"])
        return isinstance(found, dict) and all(
            isinstance(found.get(name), kind)
            for name, kind in (("kind", str), ("headers", dict), ("encoding", str))
        )

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """Return kind, headers and encoding, with defaults for parts that cannot be read."""
        return message_views.metadata(self.row["metadata"])

    @cached_property
    def message(self) -> Message:
        row, metadata = self.row, self.metadata
        payload = message_views.payload(bytes(row["payload"]), metadata["encoding"], len(row["payload"]))
        return to_message(row, metadata, payload, topic=self.topic, group=row["failed_group"], attempt=1)

    def encode(self, edited: Any, limit: int) -> encoding.Encoded:
        """Return the stored form of the result of ``edit``. ``limit``: for the payload, in bytes.

        A request stays a request, although its headers are replaced. Raises ``TypeError`` or ``ValueError``.
        """
        headers, payload = self.metadata["headers"], edited
        if isinstance(edited, Edited):
            check_headers(edited.headers)
            headers, payload = edited.headers, edited.payload
            if isinstance(headers, Mapping) and REPLY_TO in self.metadata["headers"]:
                headers = {**headers, REPLY_TO: self.metadata["headers"][REPLY_TO]}
        return encoding.encode(payload, self.message.kind, headers, limit)
