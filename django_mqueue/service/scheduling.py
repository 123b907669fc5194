"""List, cancel and reschedule scheduled messages."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from django.db.backends.utils import CursorWrapper

from .. import conf
from ..messages import ScheduledMessage
from ..policy import encoding, names
from ..policy.durations import Due, due_of, moment, moment_ms
from ..protocol.waking import commits
from ..store import schedule
from ..store.connection import session
from ..store.log import MessageKey
from ..store.queries.message_rows import common_fields
from .actions import Author, record
from .storing import check_message_key

PAGE = 500


def scheduled(
    topic: str,
    *,
    id: str | None = None,
    key: str | None = None,
    group: str | None = None,
    priority: int = 0,
    before: datetime | None = None,
    using: str | None = None,
) -> Iterator[ScheduledMessage]:
    """Return an iterator over the scheduled messages of a topic, the next due first.

    It includes due messages that are not in the log yet, and parked retries, which have ``group`` and ``attempts``.
    ``id`` with ``key`` (None for a message without a key), ``group`` and ``priority``: only this message, as for
    ``cancel``.
    ``before`` (an aware datetime): only messages that are due before it. The iterator reads pages of 500 when they are
    needed. Raises ``TypeError`` or ``ValueError`` for bad arguments.
    """
    topic = names.check_publish_topic(topic, conf.dead_letter_suffixes())
    until = None if before is None else moment_ms("before", before)
    alias = conf.database(using)
    if id is None and (key is not None or group is not None or priority):
        raise ValueError("key, group and priority select one message together with its id: give id also")
    if id is None:
        return _pages(alias, topic, until)
    message_key = check_message_key(topic, id, key, group, priority)
    with session.raises_not_migrated(alias):
        found = schedule.by_key(alias, topic, message_key)
    return iter([_message(topic, row) for row in found if until is None or row["available_at"] < until])


def cancel(
    topic: str,
    id: str,
    *,
    key: str | None = None,
    group: str | None = None,
    priority: int = 0,
    using: str | None = None,
) -> bool:
    """Cancel a scheduled message, in the caller's transaction. Return whether it was still scheduled.

    ``id``, ``key``, ``group`` and ``priority`` are the same as in ``publish``. False: no such message is scheduled, for
    example because a worker has moved it into the log. If a worker is just moving it, the call waits; at REPEATABLE
    READ it does not, and returns False. If the caller's transaction rolls back, the message stays scheduled.
    """
    return _change(topic, (id, key, group, priority), using, None)


def reschedule(
    topic: str,
    id: str,
    *,
    delay: float | timedelta | None = None,
    at: datetime | None = None,
    key: str | None = None,
    group: str | None = None,
    priority: int = 0,
    using: str | None = None,
) -> bool:
    """Give a scheduled message another time, in the caller's transaction. Return whether it was still scheduled.

    ``delay`` (seconds from now or a timedelta; 0: as soon as possible) or ``at`` (an aware datetime): the new time. The
    other arguments and the result are the same as for ``cancel``. Raises ``ValueError`` without ``delay`` and ``at``.
    """
    if delay is None and at is None:
        raise ValueError("reschedule needs delay or at: give the new time")
    return _change(topic, (id, key, group, priority), using, due_of(delay, at, zero=True))


def _change(
    topic: str, which: tuple[str, str | None, str | None, int], using: str | None, due: Due | None
) -> bool:
    topic = names.check_publish_topic(topic, conf.dead_letter_suffixes())
    return change_row(topic, check_message_key(topic, *which), due, using=using)


def change_row(
    topic: str,
    message_key: MessageKey,
    due: Due | None,
    *,
    author: Author | None = None,
    using: str | None = None,
) -> bool:
    """Give a scheduled message another time, or cancel it if ``due`` is None. Return whether it was still scheduled.

    ``author``: an operator, for the record of actions; None if the caller is the application.
    """
    alias = conf.database(using)

    def work(cursor: CursorWrapper) -> bool:
        changed = schedule.change(cursor, topic, message_key, due)
        if changed and author is not None:
            action = "cancel" if due is None else "reschedule"
            record(cursor, author, action, topic, message_key[2], id=message_key[1])
        return changed

    with session.raises_not_migrated(alias):
        changed = (
            session.run_statement(alias, work, latest=True) if author is None else session.run(alias, work)
        )
    if changed and due is not None:
        commits.wake_after_commit(alias, topic)
    return changed


def _pages(alias: str, topic: str, until: int | None) -> Iterator[ScheduledMessage]:
    after = (-(1 << 62), 0)
    while True:
        with session.raises_not_migrated(alias):
            rows = schedule.page(alias, topic, after, until, PAGE)
        for row in rows:
            yield _message(topic, row)
        if len(rows) < PAGE:
            return
        after = int(rows[-1]["available_at"]), int(rows[-1]["offset"])


def _message(topic: str, row: dict[str, Any]) -> ScheduledMessage:
    metadata = json.loads(row["metadata"])
    retry = metadata.get("retry", {})
    errors = retry.get("errors", [])
    try:
        payload = encoding.decode(row["payload"], metadata["encoding"])
    except ValueError:
        payload = bytes(row["payload"])
    return ScheduledMessage(
        **common_fields(row, metadata, payload),
        topic=topic,
        group=row["group"],
        at=moment(int(row["available_at"])),
        created_at=moment(int(row["created_at"])),
        attempts=int(retry.get("count", 0)),
        last_error=errors[-1]["error"] if errors else "",
    )
