"""Register and unregister consumer groups. Garbage collection waits for the registered groups of a topic."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Literal

from django.db import DatabaseError
from django.db.backends.utils import CursorWrapper

from .. import conf
from ..exceptions import NotRegistered
from ..policy import names
from ..policy.durations import moment_ms
from ..protocol.retention import removing
from ..protocol.settling import Settler
from ..store import garbage, log, offsets
from ..store.connection import errors, session
from ..store.connection.second_connection import outside_snapshot
from .actions import Author, record

Start = Literal["earliest", "latest"] | datetime | int

SETTLE_FOR = 2.0
"""Maximum seconds that a new group waits until the end of the log is settled. If it is not, it starts lower."""


def check_group(group: str) -> str:
    return names.check_name("group", group, names.GROUP_MAX)


def check_names(topic: str, group: str) -> None:
    """Raise ``TypeError`` or ``ValueError`` for an invalid topic or group."""
    names.check_topic(topic)
    check_group(group)


def check_start(start: object) -> None:
    """Raise ``TypeError`` or ``ValueError`` if ``start`` is no valid start."""
    if isinstance(start, datetime):
        moment_ms("start", start)
    elif isinstance(start, str) and start in ("earliest", "latest"):
        return
    elif not isinstance(start, int) or isinstance(start, bool):
        raise TypeError(f'start must be "earliest", "latest", an aware datetime or an offset, not {start!r}')
    elif start < 0:
        raise ValueError(f"start must be an offset of 0 or more, not {start!r}")


def subscribe(
    topic: str,
    group: str,
    start: Start = "earliest",
    *,
    by: str = "",
    why: str = "",
    using: str | None = None,
) -> bool:
    """Register a group for a topic: from now on no message is deleted before the group is done with it.

    ``start`` says where the group begins:

    * ``"earliest"``: with all messages that the log still holds.
    * ``"latest"``: with messages that are published from now on. It may also get a few messages from just before, so
      that it misses no message that commits late.
    * an aware datetime: with the first message that was published at that time or later. It also gets messages directly
      before this message, if their times are out of order.
    * an offset: with the message at this offset.

    ``by``, ``why``: the author of the action and the reason, for the record of actions. ``by=""``: this process.
    ``using``: the database alias. None: ``MQUEUE["DATABASE"]``.

    Returns whether the group is new. A registered group keeps its position, whatever ``start`` says.

    Raises ``TypeError`` or ``ValueError`` for invalid arguments.
    """
    check_names(topic, group)
    check_start(start)
    author, alias = Author(by, why), conf.database(using)
    with session.raises_not_migrated(alias), outside_snapshot(alias) as fresh:
        # A snapshot may show a group that was unsubscribed since.
        if all(offsets.registration(one, group, topic) for one in {alias, fresh}):
            return False
    above, known = start_above(alias, topic, start)

    def work(cursor: CursorWrapper) -> tuple[bool, bool]:
        settled = max(offsets.lock_topic(cursor, topic), known)
        if offsets.lock_registration(cursor, group, topic) is not None:
            return False, False
        # Rows that an unsubscribe has left would hide messages.
        has_rows_left = removing.begin(cursor, topic, group)
        offsets.advance_settled(cursor, topic, settled)
        offsets.register(cursor, group, topic, min(above, settled), resetting=has_rows_left)
        record(cursor, author, "subscribe", topic, group, start=str(start))
        return True, has_rows_left

    with session.raises_not_migrated(alias):
        is_new, has_rows_left = session.run(alias, work)
    if has_rows_left:
        removing.finish(alias, topic, group)
    return is_new


def require_registration(using: str, topic: str, group: str) -> offsets.Registration:
    """Return the registration of a group. Raise ``NotRegistered`` if there is none."""
    found = offsets.registration(using, group, topic)
    if found is None:
        raise NotRegistered(topic, group)
    return found


def is_registered(topic: str, group: str, using: str) -> bool:
    """Return whether the group is registered for the topic."""
    with session.raises_not_migrated(using):
        return offsets.registration(using, group, topic) is not None


def groups_of(using: str, topic: str) -> list[str]:
    """Return the names of the groups that are registered for a topic, sorted."""
    return sorted(session.run(using, lambda cursor: garbage.starts(cursor, topic)))


def unsubscribe(topic: str, group: str, *, by: str = "", why: str = "", using: str | None = None) -> bool:
    """Unregister a group: it no longer holds back deletion, and workers stop consuming for it.

    The state of the group is deleted. If it subscribes again, it is a new group. Leases, delivery states and positions
    beyond the first 1,000 rows of each are deleted in batches, each in its own transaction. If the caller has a
    transaction, this happens after its commit. If the process dies before all rows are deleted, workers of the topic
    delete the rest.

    ``by``, ``why``, ``using``: as for ``subscribe``. Returns whether the group was registered. Raises ``TypeError`` or
    ``ValueError`` for invalid arguments.
    """
    check_names(topic, group)
    author, alias = Author(by, why), conf.database(using)

    def work(cursor: CursorWrapper) -> tuple[bool, bool]:
        offsets.lock_topic(cursor, topic)
        was_registered = offsets.unregister(cursor, group, topic)
        has_rows_left = removing.begin(cursor, topic, group)
        if was_registered:
            record(cursor, author, "unsubscribe", topic, group)
        return was_registered, has_rows_left

    with session.raises_not_migrated(alias):
        was_registered, has_rows_left = session.run(alias, work)
    if has_rows_left:
        removing.finish(alias, topic, group)
    return was_registered


def start_above(using: str, topic: str, start: Start, settle_for: float | None = None) -> tuple[int, int]:
    """Return (offset after which the group would begin, settled offset). For ``"earliest"`` both are 0.

    If the first is higher, the group must begin at the settled offset instead. The call waits up to ``settle_for``
    seconds until the end of the log is settled, but not in a transaction of the caller.
    """
    if start == "earliest":
        return 0, 0
    settled = _wait_until_settled(using, topic, SETTLE_FOR if settle_for is None else settle_for)
    if isinstance(start, datetime):
        return start_before(using, topic, moment_ms("start", start), settled), settled
    return (settled if isinstance(start, str) else max(start - 1, 0)), settled


def _wait_until_settled(using: str, topic: str, settle_for: float) -> int:
    """Settle the log for up to ``settle_for`` seconds. Return the settled offset.

    An account that may only read, for a preview, gets the offset up to which others have settled.
    """
    settler = Settler(using, topic)
    deadline = time.monotonic() + settle_for
    goal = log.newest(using, topic)
    try:
        while settler.advance() < goal and time.monotonic() < deadline and not session.in_transaction(using):
            time.sleep(0.02)
    except DatabaseError as error:
        if errors.is_denied(error) or errors.is_read_only(error):
            return offsets.settled(using, topic)
        raise
    return settler.settled


CLOCK_SPREAD = timedelta(hours=1) // timedelta(milliseconds=1)
"""Tolerated clock error in milliseconds. A larger error may affect up to ``NEIGHBOURS`` successive messages."""

NEIGHBOURS = 1000


def last_before(using: str, topic: str, at_ms: int, upto: int, spread: int = CLOCK_SPREAD) -> int:
    """Return the offset before the first message published at ``at_ms`` or later; ``upto`` if none was."""
    first = log.first_since(using, topic, _long_before(using, topic, at_ms, upto, spread), upto, at_ms)
    return upto if first is None else first - 1


def newest_before(using: str, topic: str, at_ms: int, upto: int, spread: int) -> int:
    """Return the offset of the last message that was published before ``at_ms``; 0 if none was."""
    high = _bisected(using, topic, upto, lambda earliest, latest: earliest < at_ms + spread)[1]
    return log.last_until(using, topic, high, at_ms)


def start_before(using: str, topic: str, at_ms: int, settled: int) -> int:
    """Return the offset before the first message that was published at ``at_ms`` or later.

    Return a lower offset if times before that message are out of order: the clock was set back, so those messages may
    be newer than their times.
    """
    low = _long_before(using, topic, at_ms, settled, CLOCK_SPREAD)
    first = log.first_since(using, topic, low, settled, at_ms)
    latest = log.latest_published(using, topic, low, settled if first is None else first - 1)
    return low if latest is None else latest


def _long_before(using: str, topic: str, at_ms: int, upto: int, spread: int) -> int:
    """Return an offset up to which all messages were published before ``at_ms``."""
    return _bisected(using, topic, upto, lambda earliest, latest: latest < at_ms - spread)[0]


def _bisected(using: str, topic: str, upto: int, is_below: Callable[[int, int], bool]) -> tuple[int, int]:
    """Bisect up to ``upto``. Return the two offsets, at most ``NEIGHBOURS`` apart, that enclose the result.

    ``is_below`` returns whether to search higher. It gets the earliest and latest time of the messages around an
    offset, because single times may be wrong.
    """
    low, high = 0, upto
    while high - low > NEIGHBOURS:
        middle = (low + high) // 2
        times = log.times_near(using, topic, middle, upto, NEIGHBOURS)
        if times is not None and is_below(*times):
            low = middle + 1
        else:
            high = middle
    return low, high
