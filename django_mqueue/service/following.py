"""Groups that read the log by themselves: nothing is delivered to them, and deletion waits for them all the same.

Such a group has no delivery state, no leases and no watermark of a partition. Its registration says so, and its start
is its watermark for all partitions: deletion takes a group to be at its start where it has no other. The start moves
forward under the topic's lock, which deletion and ``reset`` hold too, by whoever has the life of the registration that
it began with; after an unsubscribe or a reset nobody moves it who began before.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from django.db.backends.utils import CursorWrapper

from ..exceptions import GroupTaken, NotRegistered
from ..store import heartbeats, offsets, session
from ..store.leases import Holder

ALIVE_MS = 30_000
"""A reader that has not beaten for so long is dead."""

READER = "spark-"
"""How the names of those begin who read by themselves: ``join`` knows what to do with these."""

LOOK_EVERY = 0.2
FORGET_DEAD_MS = 86_400_000


@dataclass(frozen=True)
class Place:
    """Where a group stands: all up to ``above`` is done. ``life`` is its registration's."""

    life: int
    above: int


def follow(topic: str, group: str, above: int, settled: int, *, using: str) -> Place:
    """Register a group that reads the log by itself, done up to ``above``; a registered one keeps its place.

    A group that was registered and to which nothing was ever delivered becomes such a group, under a new life: a
    worker that has just joined it claims nothing any more. ``settled`` is what the caller knows to be; no start lies
    above it. Raises ``GroupTaken`` for a group that workers have consumed for.
    """

    def work(cursor: CursorWrapper) -> Place:
        known = max(offsets.lock_topic(using, cursor, topic), settled)
        offsets.raise_settled(cursor, topic, known)
        found = offsets.registration(using, group, topic)
        if found and found.reads_log:
            return Place(found.life, found.start)
        beating = heartbeats.beats(cursor, Holder(group, topic, "", ""), ALIVE_MS)
        alive = sorted(name for name in beating if not name.startswith(READER))
        if alive or offsets.was_delivered_to(cursor, group, topic):
            raise GroupTaken(
                topic,
                group,
                "workers consume for it, or have done so. Take another group, or unsubscribe this one first",
                alive,
            )
        start = found.start if found else min(above, known)
        if found:
            offsets.unregister(cursor, group, topic, members_stay=True)
        offsets.register(cursor, group, topic, start, reads_log=True)
        new = offsets.registration(using, group, topic)
        assert new is not None
        return Place(new.life, new.start)

    return session.run(using, work)


def move(topic: str, group: str, life: int, to: int, *, using: str) -> None:
    """The group is done with everything up to ``to``, durably: it may be deleted. Never moves back.

    ``to`` must be settled. Raises ``NotRegistered`` if the group was unsubscribed, reset or registered anew.
    """

    def work(cursor: CursorWrapper) -> bool:
        offsets.lock_topic(using, cursor, topic)
        offsets.raise_settled(cursor, topic, to)
        return offsets.move_start(cursor, group, topic, life, to)

    if not session.run(using, work):
        raise NotRegistered(topic, group)


def place(topic: str, group: str, *, using: str) -> Place | None:
    """Where a group that reads the log by itself stands; None if there is none of that name."""
    found = offsets.registration(using, group, topic)
    return Place(found.life, found.start) if found and found.reads_log else None


def join(me: Holder, *, using: str) -> None:
    """Be the one who reads for the group, from now on to ``leave``, if ``beat`` is called every few seconds.

    Waits up to 30 s to see whether another one, by another incarnation, still lives; raises ``GroupTaken`` as soon as
    it shows that it does.
    """

    def work(cursor: CursorWrapper) -> dict[str, int]:
        offsets.lock_topic(using, cursor, me.topic)
        others = heartbeats.beats(cursor, me, ALIVE_MS)
        if not others:
            heartbeats.announce(cursor, me)
        return others

    heartbeats.forget_dead(using, me.group, me.topic, FORGET_DEAD_MS)
    pause, deadline = threading.Event(), time.monotonic() + ALIVE_MS / 1000
    first = others = session.run(using, work)
    while others:
        if time.monotonic() > deadline or any(first.get(name) != at for name, at in others.items()):
            names = sorted(others)
            raise GroupTaken(
                me.topic,
                me.group,
                f"{', '.join(names[:5])} consumes or reads for it, and is alive. Stop that one, or take another"
                " group: each query needs a group of its own",
                names,
            )
        pause.wait(LOOK_EVERY)
        others = session.run(using, work)


def beat(me: Holder, *, using: str) -> None:
    """Stay alive."""
    heartbeats.beat(using, me)


def leave(me: Holder, *, using: str) -> None:
    """Another may read for the group at once."""
    session.run(using, lambda cursor: heartbeats.deregister(cursor, me))


def forget(topic: str, group: str, *, using: str) -> None:
    """Unregister a group that reads the log by itself: it holds back no deletion any more."""

    def work(cursor: CursorWrapper) -> None:
        offsets.lock_topic(using, cursor, topic)
        found = offsets.registration(using, group, topic)
        if found and found.reads_log:
            offsets.unregister(cursor, group, topic)

    session.run(using, work)
