"""Register and unregister consumer groups: deletion waits for those that are registered."""

from __future__ import annotations

import threading
import time
from datetime import datetime, timedelta
from typing import Literal

from django.db.backends.utils import CursorWrapper

from .. import conf
from ..policy import names
from ..policy.durations import moment_ms
from ..store import garbage, log, offsets, session, state
from .settling import Settler

Start = Literal["earliest", "latest"] | datetime | int

SETTLE_FOR = 2.0
"""Seconds that ``start="latest"`` looks for a quiet moment; without one it starts lower, never higher."""


def check_group(group: str) -> str:
    return names.check_name("group", group, names.GROUP_MAX)


def check_start(start: object) -> None:
    """Raise ``TypeError`` or ``ValueError`` for what no start can be."""
    if start in ("earliest", "latest") and isinstance(start, str):
        return
    if isinstance(start, datetime):
        moment_ms("start", start)
    elif not isinstance(start, int) or isinstance(start, bool):
        raise TypeError(f'start must be "earliest", "latest", an aware datetime or an offset, not {start!r}')
    elif start < 0:
        raise ValueError(f"start must be an offset of 0 or more, not {start!r}")


def topic_limit() -> int:
    """Groups may consume dead-letter topics too, whose names are longer, and which have dead letters themselves."""
    return names.TOPIC_MAX + conf.DLQ_SUFFIX_MAX


def subscribe(topic: str, group: str, start: Start = "earliest", *, using: str | None = None) -> bool:
    """Register a group: from now on nothing of the topic is deleted until the group is done with it.

    ``start`` is where it begins: ``"earliest"`` with all that the log still holds; ``"latest"`` with what is
    published from now on (and perhaps a few from just before, rather than lose one that commits late); an
    aware datetime with what was published then or later; an offset with that message. Returns whether
    the group is new; a registered one keeps its place, whatever ``start`` says.
    """
    names.check_topic(topic, topic_limit())
    check_group(group)
    check_start(start)
    alias = conf.database(using)
    if offsets.registration(alias, group, topic) is not None:
        return False
    above, known = start_above(alias, topic, start)

    def work(cursor: CursorWrapper) -> bool | None:
        settled = max(offsets.lock_topic(alias, cursor, topic), known)
        if offsets.is_registered(cursor, group, topic):
            return False
        if state.delete_group(cursor, group, topic):  # Left by an unsubscribe: it would hide messages.
            return None
        offsets.raise_settled(cursor, topic, settled)
        offsets.register(cursor, group, topic, min(above, settled))
        return True

    while (new := session.run(alias, work)) is None:
        pass
    return new


def is_registered(topic: str, group: str, using: str) -> bool:
    """Whether the group is registered for the topic."""
    return offsets.registration(using, group, topic) is not None


def groups_of(using: str, topic: str) -> list[str]:
    """The groups that are registered for a topic, by name."""
    return sorted(session.run(using, lambda cursor: garbage.starts(cursor, topic)))


def unsubscribe(topic: str, group: str, *, using: str | None = None) -> bool:
    """Forget a group: it holds back no deletion any more, its workers stop. Whether it was registered.

    What it has done is forgotten with it; subscribing again starts anew. Its delivery state is deleted in
    batches, each committed by itself (unless the caller has a transaction open).
    """
    names.check_topic(topic, topic_limit())
    check_group(group)
    alias = conf.database(using)

    def work(cursor: CursorWrapper) -> bool:
        offsets.lock_topic(alias, cursor, topic)
        return offsets.unregister(cursor, group, topic)

    def forget(cursor: CursorWrapper) -> bool:
        offsets.lock_topic(alias, cursor, topic)
        if offsets.is_registered(cursor, group, topic):
            return False  # Somebody has subscribed it again: that state is its own.
        return state.delete_group(cursor, group, topic)

    was = session.run(alias, work)
    while session.run(alias, forget):
        pass
    return was


def start_above(using: str, topic: str, start: Start, settle_for: float | None = None) -> tuple[int, int]:
    """(offset above which a start lies, settled offset): the start may not lie above what is settled.

    It looks for a quiet moment for ``settle_for`` seconds, ``SETTLE_FOR`` unless told.
    """
    if start == "earliest":
        return 0, 0
    settler = Settler(using, topic)
    deadline, pause = time.monotonic() + (SETTLE_FOR if settle_for is None else settle_for), threading.Event()
    goal = log.newest(using, topic)
    while settler.advance() < goal and time.monotonic() < deadline and not session.in_transaction(using):
        pause.wait(0.02)
    settled = settler.settled
    if isinstance(start, datetime):
        return last_before(using, topic, moment_ms("start", start), settled), settled
    return (settled if isinstance(start, str) else max(start - 1, 0)), settled


COMMIT_SPREAD = timedelta(seconds=60) // timedelta(milliseconds=1)
"""``published_at`` rises with the offset but for statements that overtook each other: by far less than this."""


def last_before(using: str, topic: str, moment: int, settled: int) -> int:
    """The highest offset below which all was published before ``moment``: by bisection, then one by one."""
    low, high = 0, settled
    while low < high:
        middle = (low + high) // 2
        row = log.published_at(using, topic, middle, 1)
        if row and row[0][0] <= settled and row[0][1] < moment - COMMIT_SPREAD:
            low = row[0][0]
        else:
            high = middle
    while rows := log.published_at(using, topic, low, 1000):
        for offset, at in rows:
            if at >= moment or offset > settled:
                return low
            low = offset
    return low
