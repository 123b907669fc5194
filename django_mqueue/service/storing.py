"""Store published messages, in the log or among the scheduled messages, each id once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from django.db import IntegrityError, transaction
from django.db.backends.utils import CursorWrapper

from .. import conf
from ..exceptions import NotRegistered
from ..messages import Published
from ..policy import names
from ..policy.batching import BYTES_PER_STATEMENT, batches_by_weight
from ..policy.durations import Due
from ..store import log, offsets, schedule
from ..store.connection import errors
from ..store.connection.second_connection import keeps_snapshot
from ..store.log import MessageKey, NewRow
from ..store.schedule import ScheduledRow

ROWS_PER_STATEMENT = 500


def check_message_key(
    topic: str, id: str, key: str | None, group: str | None, priority: int = 0
) -> MessageKey:
    """Return the partition, id and group of a message. Raise ``TypeError`` or ``ValueError`` for invalid names."""
    names.check_name("id", id, names.ID_MAX)
    if key is not None:
        names.check_name("key", key, names.KEY_MAX)
    if group is not None:
        names.check_name("group", group, names.GROUP_MAX)
    if names.check_priority(priority) and key is not None:
        raise ValueError(
            "priority and key exclude each other: a key is one partition, whose messages strict handlers get in the"
            " order of their offsets. Leave out one of them"
        )
    partition = names.spread_partition(id, conf.get("SPREAD", topic), priority) if key is None else key
    return partition, id, group or ""


@contextmanager
def naming_unknown_group(cursor: CursorWrapper, topic: str, rows: Sequence[NewRow]) -> Iterator[None]:
    """Raise ``NotRegistered`` if the block's INSERT fails because a group is not registered.

    In a caller's transaction at REPEATABLE READ, check before the block, because the INSERT would lock the gap where
    the registration is missing, and block workers of other groups.
    """
    if keeps_snapshot(cursor.db.alias):
        check_groups(cursor, topic, rows)
    try:
        yield
    except IntegrityError as error:
        groups = {row.group for row in rows if row.group}
        if errors.is_null(error) and "consumer_group" in str(error) and groups:
            # The INSERT has read the current rows, which a snapshot may not show.
            locking = keeps_snapshot(cursor.db.alias)
            known = offsets.registered_among(cursor, topic, groups, locking=locking).keys()
            raise NotRegistered(topic, min(groups - known or groups)) from error
        raise


def check_groups(cursor: CursorWrapper, topic: str, rows: Sequence[NewRow]) -> None:
    groups = {row.group for row in rows if row.group}
    if groups and (unknown := groups - offsets.registered_now(cursor, topic, groups)):
        raise NotRegistered(topic, min(unknown))


def store_now(cursor: CursorWrapper, topic: str, row: NewRow, *, may_exist: bool, replace: bool) -> Published:
    """Append one message. ``may_exist``: its id may be in use. ``replace``: delete a scheduled one of this id."""
    if not may_exist:
        return _published(topic, row, log.insert(cursor, topic, [row]), True)
    if not replace:
        return _published(topic, row, *log.insert_once(cursor, topic, row))
    using = cursor.db.alias
    with transaction.atomic(using=using):
        replaced = schedule.change(cursor, topic, row.message_key, due=None)
        offset, stored = log.insert_once(cursor, topic, row)
        if not stored:  # The log has the id, so the scheduled message stays.
            transaction.set_rollback(True, using=using)
    return _published(topic, row, offset, stored and not replaced, stored and replaced)


def store_scheduled(
    cursor: CursorWrapper, topic: str, scheduled_row: ScheduledRow, *, may_exist: bool, replace: bool
) -> Published:
    """Schedule one message, unless its id is scheduled or in the log. ``replace``: replace a scheduled one of this id.

    The log is read last: a message of this id that is being promoted is in the log by then.
    """
    row, message_key = scheduled_row.row, scheduled_row.message_key
    if not may_exist:
        return _published(topic, row, schedule.insert(cursor, topic, [scheduled_row]), True)
    scheduled = log.existing_now(cursor, names.scheduled_topic(topic), [message_key]).get(message_key)
    if scheduled and not replace:
        return _published(topic, row, scheduled, False)
    if scheduled and schedule.replace(cursor, topic, scheduled, scheduled_row):
        return _published(topic, row, scheduled, False, replaced=True)
    offset, stored = schedule.insert_once(cursor, topic, scheduled_row)
    if stored:
        logged = log.existing_now(cursor, topic, [message_key], locking=True).get(message_key)
        if logged is not None:
            schedule.change(cursor, topic, message_key, due=None)
            return _published(topic, row, logged, False)
    elif replace and schedule.replace(cursor, topic, offset, scheduled_row):
        return _published(topic, row, offset, False, replaced=True)
    return _published(topic, row, offset, stored)


def store_many(
    cursor: CursorWrapper,
    topic: str,
    rows: Sequence[NewRow],
    dues: Sequence[Due | None],
    may_exist: Sequence[bool],
) -> list[Published]:
    """Store messages, first those without a due time. Return a ``Published`` for each, in the given order."""
    immediate = [number for number, due in enumerate(dues) if due is None]
    later = {number: ScheduledRow(rows[number], due) for number, due in enumerate(dues) if due is not None}
    # If an id occurs twice, the first message counts.
    scheduled = {row.message_key: row for row in reversed(later.values())}
    published: dict[int, Published] = {}

    def insert_scheduled(cursor: CursorWrapper, topic: str, rows: Sequence[NewRow]) -> int:
        return schedule.insert(cursor, topic, [scheduled[row.message_key] for row in rows])

    for destination, numbers in (
        (_Destination(cursor, topic, log.existing_now, log.insert), immediate),
        (_Destination(cursor, topic, _existing_scheduled, insert_scheduled), list(later)),
    ):
        stored = _store_each_once(destination, [(rows[number], may_exist[number]) for number in numbers])
        published |= zip(numbers, stored, strict=True)
    return [published[number] for number in range(len(rows))]


class _Destination(NamedTuple):
    """The log or the scheduled messages of a topic."""

    cursor: CursorWrapper
    topic: str
    existing: Callable[..., dict[MessageKey, int]]
    insert: Callable[[CursorWrapper, str, Sequence[NewRow]], int]


def _existing_scheduled(
    cursor: CursorWrapper, topic: str, message_keys: Sequence[MessageKey], *, locking: bool = False
) -> dict[MessageKey, int]:
    """Read the scheduled messages first. A message that is promoted between the two reads is then in the log."""
    found = log.existing_now(cursor, names.scheduled_topic(topic), message_keys, locking=locking)
    return log.existing_now(cursor, topic, message_keys, locking=locking) | found


def _published(topic: str, row: NewRow, offset: int, created: bool, replaced: bool = False) -> Published:
    return Published(offset, row.id, topic, names.key_of(row.partition), created, replaced)


def _store_each_once(destination: _Destination, rows: Sequence[tuple[NewRow, bool]]) -> list[Published]:
    """Store rows, each id once. ``rows``: pairs of a row and whether another message may already have its id."""
    offset_of: dict[MessageKey, int] = {}
    published = []
    for chunk in batches_by_weight(rows, _weight, BYTES_PER_STATEMENT, ROWS_PER_STATEMENT):
        keyed = [(row.message_key, row, may_exist) for row, may_exist in chunk]
        fresh: dict[MessageKey, NewRow] = {}
        for key, row, _ in keyed:
            if key not in offset_of:
                fresh.setdefault(key, row)
        to_look_up = list(dict.fromkeys(key for key, _, may_exist in keyed if may_exist and key in fresh))
        stored_before = destination.existing(destination.cursor, destination.topic, to_look_up)
        stored = _insert_rest(destination, fresh, stored_before, to_look_up)
        offset_of |= stored_before | stored
        for key, row, _ in keyed:
            # Only the first row of a new id has created its message.
            created = stored.pop(key, None) is not None
            published.append(_published(destination.topic, row, offset_of[key], created))
    return published


def _insert_rest(
    destination: _Destination,
    fresh: dict[MessageKey, NewRow],
    stored: dict[MessageKey, int],
    to_look_up: list[MessageKey],
) -> dict[MessageKey, int]:
    """Insert the missing rows. If another publisher is storing one of the ids, wait for its commit and use its row."""
    while missing := [key for key in fresh if key not in stored]:
        new = [fresh[key] for key in missing]
        try:
            with naming_unknown_group(destination.cursor, destination.topic, new):
                first = destination.insert(destination.cursor, destination.topic, new)
        except IntegrityError as error:
            if not errors.is_duplicate(error) or not to_look_up:
                raise
            stored |= destination.existing(destination.cursor, destination.topic, to_look_up, locking=True)
        else:
            return {key: first + number for number, key in enumerate(missing)}
    return {}


def _weight(row: tuple[NewRow, bool]) -> int:
    content = row[0].content
    return len(content.body) + len(content.metadata)
