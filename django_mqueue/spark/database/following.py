"""Groups that read the log themselves. Nothing is delivered to them, but garbage collection keeps what they need.

Such a group has no delivery state, no leases, and no watermarks of partitions. The start in its registration is its
watermark for all partitions. A reader moves the start forward under the topic's lock, which garbage collection and
``reset`` also hold. It must give the generation of the registration. An unsubscribe or a reset changes the generation,
so an earlier reader can no longer move the start.

One reader at a time reads for a group. It joins, and sends a heartbeat every few seconds. If a reader's heartbeat has
expired, a new reader deletes its row, under the topic's lock. A reader with the name of an earlier process takes over
its row. A reader that finds only rows of others has been replaced, and moves nothing.

A function of this module that locks several topics does so in the order of their names, to avoid deadlocks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from django.db.backends.utils import CursorWrapper

from ...exceptions import GroupTaken, LogGap, NotRegistered
from ...store import heartbeats, offsets
from ...store.connection import session
from ...store.leases import Holder

ALIVE_MS = 30_000
"""Milliseconds. A reader without a heartbeat for this time is considered dead."""

READER_PREFIX = "spark-"
"""The prefix of readers' names. ``follow`` ignores live readers, because ``join_all`` checks them."""

Alive = dict[tuple[str, str], int]
"""The last heartbeat of each other live subscriber, by topic and name."""

CHECK_EVERY = 0.2


@dataclass(frozen=True)
class ReaderPosition:
    """The position of a group: it is done with everything up to ``above``. ``generation``: of its registration."""

    generation: int
    above: int


def follow(
    topic: str, group: str, above: int, settled: int, *, using: str, lower: bool = False
) -> ReaderPosition:
    """Register a group that reads the log itself, and is done with everything up to ``above``. Return its position.

    A group that is registered already keeps its position. With ``lower``, a higher position is moved back to ``above``.
    A group that was registered for workers, but has received nothing yet, becomes a log reader with a new registration
    generation. Then a worker that has just joined it claims nothing. ``settled``: the settled offset that the caller
    has just found over this connection. The position is never above the settled offset.

    Raises ``GroupTaken`` if workers consume for the group, or have done so.
    """
    return follow_all({topic: (above, settled)}, group, using=using, lower=lower)[topic]


def follow_all(
    targets: Mapping[str, tuple[int, int]], group: str, *, using: str, lower: bool = False
) -> dict[str, ReaderPosition]:
    """Do as ``follow`` for several topics, in one transaction. If one topic is refused, none is changed.

    ``targets``: by topic, its ``above`` and ``settled``. Returns the positions by topic.
    """

    def work(cursor: CursorWrapper) -> dict[str, ReaderPosition]:
        return {
            topic: _follow(using, cursor, topic, group, *target, lower)
            for topic, target in sorted(targets.items())
        }

    return session.run(using, work)


def _follow(
    using: str, cursor: CursorWrapper, topic: str, group: str, above: int, settled: int, lower: bool
) -> ReaderPosition:
    settled = max(offsets.lock_topic(cursor, topic), settled)
    offsets.advance_settled(cursor, topic, settled)
    found = offsets.registration(using, group, topic)
    start = min(above, settled)
    if found:
        start = min(found.start, start) if lower else found.start
    if found and found.reads_log:
        if start < found.start:
            offsets.lower_start(cursor, group, topic, start)
        return ReaderPosition(found.generation, start)
    _refuse_workers(cursor, topic, group)
    if found:
        offsets.unregister(cursor, group, topic, members_stay=True)
    offsets.register(cursor, group, topic, start, reads_log=True)
    new = offsets.registration(using, group, topic)
    assert new is not None
    return ReaderPosition(new.generation, new.start)


def check_free(topic: str, group: str, *, using: str) -> None:
    """Raise ``GroupTaken`` if ``follow`` would raise it. Change nothing."""
    if position(topic, group, using=using) is None:
        session.run(using, lambda cursor: _refuse_workers(cursor, topic, group))


def _refuse_workers(cursor: CursorWrapper, topic: str, group: str) -> None:
    beating = heartbeats.beats(cursor, Holder(group, topic, "", ""), ALIVE_MS)
    alive = sorted(name for name in beating if not name.startswith(READER_PREFIX))
    if alive or offsets.was_delivered_to(cursor, group, topic):
        raise GroupTaken(
            topic,
            group,
            "workers consume for it, or have done so. Use another group, or unsubscribe this one first",
            alive,
        )


def move(
    topic: str, group: str, generation: int, to: int, *, using: str, reader: Holder | None = None
) -> None:
    """Record that the group is done with everything up to ``to``, so that it may be deleted. Never move back.

    ``to`` must be recorded as settled. ``generation``: the registration generation. ``reader``: the group's reader;
    None: do not check that it still is.

    Raises ``NotRegistered`` if the group was unsubscribed, reset or registered again. Raises ``GroupTaken`` if another
    reader has replaced ``reader``. Raises ``LogGap`` if the database was restored to a state from before ``to`` was
    settled: other messages get these offsets now, and every group must receive them.
    """

    def work(cursor: CursorWrapper) -> None:
        settled = offsets.lock_topic(cursor, topic)
        if to > settled:
            raise LogGap(
                f"group {group!r} was done with topic {topic!r} up to offset {to}, but this database has never"
                f" settled anything above {settled}: it was restored to an earlier state (from a backup, or by a"
                " failover to a server that was behind). It assigns the same offsets again"
            )
        if not offsets.move_start(cursor, group, topic, generation, to):
            raise NotRegistered(topic, group)
        if reader is not None:
            check_reader(reader, using=using)

    session.run(using, work)


def check_reader(reader: Holder, *, using: str) -> None:
    """Raise ``GroupTaken`` if another reader has replaced ``reader``."""
    if not session.run_statement(using, lambda cursor: heartbeats.is_replaced(cursor, reader)):
        return
    if heartbeats.incarnation(using, reader) in (None, reader.incarnation):
        why = (
            f"another reader replaced it, because {reader.name} sent no heartbeat for more than {ALIVE_MS // 1000} s."
            " Stop the other reader, or use another group: each query needs its own group"
        )
    else:
        why = _started_again(reader)
    alive = session.run_statement(using, lambda cursor: heartbeats.beats(cursor, reader, ALIVE_MS))
    raise GroupTaken(reader.topic, reader.group, why, sorted(alive))


def check_newest(reader: Holder, is_later: Callable[[str], bool], *, using: str) -> None:
    """Raise ``GroupTaken`` if the subscriber has a live incarnation for which ``is_later`` returns True."""
    found = heartbeats.incarnation(using, reader, ALIVE_MS)
    if found is not None and is_later(found):
        raise GroupTaken(reader.topic, reader.group, _started_again(reader), [reader.name])


def _started_again(reader: Holder) -> str:
    return f"{reader.name} was started again in another process, which continues in its place"


def position(topic: str, group: str, *, using: str) -> ReaderPosition | None:
    """Return the position of a group that reads the log itself; None if there is no such group."""
    found = offsets.registration(using, group, topic)
    return ReaderPosition(found.generation, found.start) if found and found.reads_log else None


def join_all(
    new: Sequence[Holder],
    joined: Sequence[Holder] = (),
    *,
    using: str,
    before: Callable[[], object] = lambda: None,
) -> None:
    """Become the reader of a group on all these topics, or on none, until ``leave``.

    Then the caller must send a heartbeat every few seconds. If others may be alive, this waits up to 30 s. It raises
    ``GroupTaken`` as soon as one of them sends a heartbeat. A subscriber that sends none is replaced, and stays
    replaced if it continues later. An earlier incarnation of the same name is replaced at once.

    ``joined``: the caller's earlier readers. If another reader has replaced one of them, the call raises
    ``GroupTaken``. So of two processes with the same name, one finally reads all topics. ``before`` is
    called with the topics locked, when no other subscriber is alive. If it raises, nothing is changed.
    """

    def work(cursor: CursorWrapper) -> Alive:
        for topic in sorted({reader.topic for reader in (*new, *joined)}):
            offsets.lock_topic(cursor, topic)
        for reader in joined:
            check_reader(reader, using=using)
        others = {
            key: at for reader in new for key, at in _beats(cursor, reader).items() if key[1] != reader.name
        }
        if not others:
            before()
            for reader in new:
                heartbeats.delete_others(cursor, reader)
                heartbeats.announce(cursor, reader)
        return others

    for reader in new:
        heartbeats.forget_dead(using, reader.group, reader.topic)
    _wait_until_alone(new[0].group, lambda: session.run(using, work))


def wait_until_alone(topic: str, group: str, *, using: str) -> None:
    """Wait like ``join_all`` until no other subscriber is alive, but join nothing. The caller needs no name."""
    reader = Holder(group, topic, "", "")
    _wait_until_alone(group, lambda: session.run_statement(using, lambda cursor: _beats(cursor, reader)))


def _beats(cursor: CursorWrapper, reader: Holder) -> Alive:
    return {(reader.topic, name): at for name, at in heartbeats.beats(cursor, reader, ALIVE_MS).items()}


def _wait_until_alone(group: str, find_others: Callable[[], Alive]) -> None:
    """Wait until ``find_others`` finds none. Raise ``GroupTaken`` for a new heartbeat, or after ``ALIVE_MS``."""
    first = others = find_others()
    deadline, late = time.monotonic() + ALIVE_MS / 1000, False
    while others:
        if alive := sorted(key for key, at in others.items() if late or first.get(key) != at):
            topic = alive[0][0]
            names = sorted(name for where, name in others if where == topic)
            raise GroupTaken(
                topic,
                group,
                f"{', '.join(names[:5])} consumes or reads for it, and is alive. Stop it, or use another group: each"
                " query needs its own group",
                names,
            )
        time.sleep(CHECK_EVERY)
        late = time.monotonic() > deadline  # Before the query, which may be slow.
        others = find_others()


def leave(reader: Holder, *, using: str) -> None:
    """Leave the group: another reader may join at once."""
    session.run(using, lambda cursor: heartbeats.deregister(cursor, reader))


def forget(topic: str, group: str, *, using: str) -> None:
    """Unregister a group if it reads the log itself, so that it no longer holds back deletion."""

    def work(cursor: CursorWrapper) -> None:
        offsets.lock_topic(cursor, topic)
        found = offsets.registration(using, group, topic)
        if found and found.reads_log:
            offsets.unregister(cursor, group, topic)

    session.run(using, work)
