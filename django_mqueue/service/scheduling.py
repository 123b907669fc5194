"""Messages that are not due yet: list them, cancel them, give them another time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from .. import conf
from ..messages import ScheduledMessage
from ..policy import encoding, names
from ..policy.due import due_of
from ..policy.durations import moment, moment_ms
from ..policy.requests import visible
from ..store import schedule, session
from ..store.log import Place

PAGE = 500


def scheduled(
    topic: str,
    *,
    id: str | None = None,
    key: str | None = None,
    group: str | None = None,
    before: datetime | None = None,
    using: str | None = None,
) -> Iterator[ScheduledMessage]:
    """The messages of a topic that are not due yet (or not yet in the log), the next due first.

    ``id`` with ``key`` (None for a keyless message) and ``group`` names one, as for ``cancel``; ``before``: only those
    due before that aware datetime. Messages that wait long for a retry are among them, with ``group`` and ``attempts``.
    Read by pages of 500, as far as the caller goes on. Raises ``TypeError`` or ``ValueError`` for bad arguments.
    """
    topic = names.check_publish_topic(topic, conf.dead_letter_suffixes())
    until = None if before is None else moment_ms("before", before)
    alias = conf.database(using)
    if id is None:
        if key is not None or group is not None:
            raise ValueError("key and group are for finding one message by its id: give id, too")
        return _pages(alias, topic, until)
    place = _place(topic, id, key, group)
    with session.explained(alias):
        found = schedule.by_place(alias, topic, place)
    return iter([_message(topic, row) for row in found if until is None or row["available_at"] < until])


def cancel(
    topic: str,
    id: str,
    *,
    key: str | None = None,
    group: str | None = None,
    using: str | None = None,
) -> bool:
    """Cancel a scheduled message, in the caller's transaction: whether it was still scheduled.

    ``id``, ``key`` and ``group`` are those that it was published with. False: there is none, or it has fallen due; if
    it falls due at this moment, that is waited for (not at REPEATABLE READ, where that counts as gone). True, and the
    transaction is rolled back: it comes when it was to.
    """
    return _change(topic, id, key, group, using, None)


def reschedule(
    topic: str,
    id: str,
    *,
    delay: float | timedelta | None = None,
    at: datetime | None = None,
    key: str | None = None,
    group: str | None = None,
    using: str | None = None,
) -> bool:
    """Give a scheduled message another time, in the caller's transaction: whether it was still scheduled.

    ``delay`` (seconds from now or a timedelta; 0: as soon as possible) or ``at`` (an aware datetime). The other
    arguments are those of ``cancel``, and so is what False means.
    """
    if delay is None and at is None:
        raise ValueError("reschedule needs delay or at: when is the message to come?")
    return _change(topic, id, key, group, using, due_of(delay, at, zero=True))


def _change(topic: str, id: str, key: str | None, group: str | None, using: str | None, due: Any) -> bool:
    topic = names.check_publish_topic(topic, conf.dead_letter_suffixes())
    place = _place(topic, id, key, group)
    alias = conf.database(using)
    with session.explained(alias):
        if due is None:
            return session.single(alias, lambda cursor: schedule.delete(cursor, topic, place), latest=True)
        return session.single(alias, lambda cursor: schedule.move(cursor, topic, place, due), latest=True)


def _place(topic: str, id: str, key: str | None, group: str | None) -> Place:
    names.check_name("id", id, names.ID_MAX)
    if key is not None:
        names.check_name("key", key, names.KEY_MAX)
    partition = key if key is not None else names.spread_partition(id, conf.get("SPREAD", topic))
    return partition, id, "" if group is None else names.check_name("group", group, names.GROUP_MAX)


def _pages(alias: str, topic: str, until: int | None) -> Iterator[ScheduledMessage]:
    after = (-(1 << 62), 0)
    while True:
        with session.explained(alias):
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
        offset=int(row["offset"]),
        id=retry.get("id", row["id"]),
        topic=topic,
        key=names.key_of(row["partition"]),
        payload=payload,
        kind=metadata["kind"],
        group=row["group"],
        at=moment(int(row["available_at"])),
        created_at=moment(int(row["created_at"])),
        headers=visible(metadata["headers"]),
        attempts=int(retry.get("count", 0)),
        last_error=errors[-1]["error"] if errors else "",
    )
