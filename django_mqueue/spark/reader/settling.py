"""The offset up to which a topic is read.

**Settled.** Streams, archives and copies read up to the settled offset: no transaction can commit a message at or below
it. These readers need this guarantee, because messages that they have read may be deleted.

**Readable.** A batch causes no deletion. If a publisher's transaction stays open, the batch ends just before the oldest
message that is not committed. No transaction commits a message of the topic at or below that end, because an INSERT
writes its row into the primary key at once, and waits only at other indexes. See docs/explanation/protocol.md, "Batches
while a transaction is open", for the proof.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

from ...protocol.settling import Settler
from ...store import log
from ...store import offsets as positions
from ...store.connection import session
from ...store.log import MessageIdentity
from ..sql import bulk
from .options import ReadOptions

SETTLE_FOR = 5.0
"""Minimum seconds to wait for transactions that may still commit a message below the newest one."""

CHECKS, CHECK_EVERY = 50, 0.02
"""The minimum number of checks, so a slow server makes the wait longer; seconds between two checks."""


def settled(
    using: str, topics: Sequence[str], options: ReadOptions, *, shared: bool = False
) -> dict[str, int]:
    """Return the settled offset of each topic, after a short wait for open transactions.

    Warns if committed messages lie above it. ``shared``: return the settled offset that the
    topic's row holds, because ``following.move`` moves no group above that.
    """
    for topic in topics if shared else ():
        if not positions.settled(using, topic):
            # The topic may have no row yet that could hold the settled offset.
            session.run(using, partial(positions.lock_topic, topic=topic))
    newest = {topic: log.newest(using, topic) for topic in topics}
    found = _settled(using, newest, options, shared=shared)
    for topic, last in newest.items():
        if found[topic] < last:
            _warn(topic, found[topic], last, bulk.oldest_uncommitted(using, topic, found[topic], last))
    return found


def readable(using: str, topics: Sequence[str], options: ReadOptions) -> dict[str, int]:
    """Return the offset up to which a batch can read each topic. Warns if committed messages lie above it."""
    goals = {topic: _goal(using, topic, options) for topic in topics}
    found = _settled(using, goals, options)
    for topic, goal in goals.items():
        if found[topic] < goal:
            oldest = bulk.oldest_uncommitted(using, topic, found[topic], goal)
            found[topic] = oldest.offset - 1 if oldest else goal
            if oldest:
                _warn(topic, found[topic], goal, oldest)
    return found


def _goal(using: str, topic: str, options: ReadOptions) -> int:
    """Return the newest committed offset, or the last one asked for, if it is lower."""
    newest = log.newest(using, topic)
    end = options.end.of(options.named(topic))
    return newest if end is None or end < 0 else min(newest, max(end - 1, 0))


def _settled(
    using: str, goals: Mapping[str, int], options: ReadOptions, *, shared: bool = False
) -> dict[str, int]:
    """Return the settled offset of each topic. Wait a short time for topics that are settled below their goals."""
    settlers = {topic: Settler(using, topic) for topic in goals}
    found = dict.fromkeys(goals, 0)

    def is_behind(topic: str) -> bool:
        """Update the settled offset of a topic. Return whether it is below the goal."""
        settler = settlers[topic]
        if options.settle:
            settler.advance()
            found[topic] = settler.shared_settled if shared else settler.settled
        else:
            found[topic] = positions.settled(using, topic)
        return found[topic] < goals[topic]

    waiting = [topic for topic in goals if is_behind(topic)]
    deadline, checks = time.monotonic() + SETTLE_FOR, 0
    while waiting and (checks < CHECKS or time.monotonic() < deadline):
        time.sleep(CHECK_EVERY)
        waiting, checks = [topic for topic in waiting if is_behind(topic)], checks + 1
    return found


def _warn(topic: str, found: int, newest: int, oldest: MessageIdentity | None) -> None:
    if oldest:
        at = datetime.fromtimestamp(oldest.published_at / 1000, UTC).isoformat(timespec="seconds")
        why = (
            f"the transaction that published offset {oldest.offset} (id {oldest.id!r}) at {at} is still open"
        )
    else:
        why = "a transaction that publishes, or that registers a group, is still open"
    warnings.warn(
        f"topic {topic!r} is read up to offset {found} only, and has committed messages up to offset {newest}: {why}."
        " Read again when that transaction has ended",
        stacklevel=3,
    )
