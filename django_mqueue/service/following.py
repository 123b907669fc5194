"""Groups that read the log by themselves: nothing is delivered to them, and deletion waits for them all the same.

Such a group has no delivery state, no leases and no watermark of a partition. Its registration says so, and its start
is its watermark for all partitions: deletion takes a group to be at its start where it has no other. The start moves
forward under the topic's lock, which deletion and ``reset`` hold too, by whoever has the life of the registration that
it began with; after an unsubscribe or a reset nobody moves it who began before.

One reads for a group at a time: who has joined, and says every few seconds that it lives. Whoever takes the place of
one that was silent for long deletes that one's row, under the topic's lock; who goes on where an earlier process of its
name was takes that one's row over. A reader that finds others' rows, and none of its own, moves nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from django.db.backends.utils import CursorWrapper

from ..exceptions import GroupTaken, LogGap, NotRegistered
from ..store import heartbeats, offsets, session
from ..store.leases import Holder

ALIVE_MS = 30_000
"""A reader that has not beaten for so long is dead."""

READER = "spark-"
"""How the names of those begin who read by themselves: ``join`` knows what to do with these."""

Alive = dict[tuple[str, str], int]
"""When others last said that they live, by topic and name."""

LOOK_EVERY = 0.2
FORGET_DEAD_MS = 86_400_000


@dataclass(frozen=True)
class Place:
    """Where a group stands: all up to ``above`` is done. ``life`` is its registration's."""

    life: int
    above: int


def follow(topic: str, group: str, above: int, settled: int, *, using: str, lower: bool = False) -> Place:
    """Register a group that reads the log by itself, done up to ``above``; a registered one keeps its place, or with
    ``lower`` goes back there, if it is above that.

    A group that was registered and to which nothing was ever delivered becomes such a group, under a new life: a
    worker that has just joined it claims nothing any more. ``settled`` is what the caller has just found to be, over
    this connection; no start lies above it. Raises ``GroupTaken`` for a group that workers have consumed for.
    """
    return session.run(
        using, lambda cursor: _follow(using, cursor, topic, group, above, settled, lower=lower)
    )


def follow_all(wanted: Mapping[str, tuple[int, int]], group: str, *, using: str) -> dict[str, Place]:
    """``follow`` for all of these topics, or, where one is refused, for none: each with ``above`` and ``settled``."""

    def work(cursor: CursorWrapper) -> dict[str, Place]:
        # In one order, whoever does it: two at once do not wait for each other.
        return {
            topic: _follow(using, cursor, topic, group, *known) for topic, known in sorted(wanted.items())
        }

    return session.run(using, work)


def _follow(
    using: str,
    cursor: CursorWrapper,
    topic: str,
    group: str,
    above: int,
    settled: int,
    *,
    lower: bool = False,
) -> Place:
    known = max(offsets.lock_topic(using, cursor, topic), settled)
    offsets.raise_settled(cursor, topic, known)
    found = offsets.registration(using, group, topic)
    start = min(above, known)
    if found:
        start = min(found.start, start) if lower else found.start
    if found and found.reads_log:
        if start < found.start:
            offsets.lower_start(cursor, group, topic, start)
        return Place(found.life, start)
    _refuse_workers(cursor, topic, group)
    if found:
        offsets.unregister(cursor, group, topic, members_stay=True)
    offsets.register(cursor, group, topic, start, reads_log=True)
    new = offsets.registration(using, group, topic)
    assert new is not None
    return Place(new.life, new.start)


def check_free(topic: str, group: str, *, using: str) -> None:
    """Raise ``GroupTaken`` if ``follow`` would; nothing is changed."""

    def work(cursor: CursorWrapper) -> None:
        found = offsets.registration(using, group, topic)
        if not (found and found.reads_log):
            _refuse_workers(cursor, topic, group)

    session.run(using, work)


def _refuse_workers(cursor: CursorWrapper, topic: str, group: str) -> None:
    beating = heartbeats.beats(cursor, Holder(group, topic, "", ""), ALIVE_MS)
    alive = sorted(name for name in beating if not name.startswith(READER))
    if alive or offsets.was_delivered_to(cursor, group, topic):
        raise GroupTaken(
            topic,
            group,
            "workers consume for it, or have done so. Take another group, or unsubscribe this one first",
            alive,
        )


def move(topic: str, group: str, life: int, to: int, *, using: str, me: Holder | None = None) -> None:
    """The group is done with everything up to ``to``, durably: it may be deleted. Never moves back.

    ``to`` must be written down as settled. Raises ``NotRegistered`` if the group was unsubscribed, reset or registered
    anew, ``GroupTaken`` if ``me`` is its reader no more: who has taken its place may not have read so far; and
    ``LogGap`` if the log went back in time since ``to`` was settled. What gets these offsets anew may not be committed
    yet, and must come to every group.
    """

    def work(cursor: CursorWrapper) -> None:
        known = offsets.lock_topic(using, cursor, topic)
        if to > known:
            raise LogGap(
                f"group {group!r} was done with topic {topic!r} up to offset {to}, but nothing above {known} was ever"
                " settled in this database: it was set back (by a backup, or by a failover to a server that was"
                " behind), and gives offsets that it gave before"
            )
        if not offsets.move_start(cursor, group, topic, life, to):
            raise NotRegistered(topic, group)
        if me is not None:
            check_reader(me, using=using)

    session.run(using, work)


def check_reader(me: Holder, *, using: str) -> None:
    """Raise ``GroupTaken`` if another one is the group's reader now: one that was silent for long may be replaced, and
    one that is started again replaces itself."""
    if not session.single(using, lambda cursor: heartbeats.is_replaced(cursor, me)):
        return
    if heartbeats.incarnation(using, me) in (None, me.incarnation):
        why = (
            f"another one was let in, because nothing was heard of {me.name} for more than {ALIVE_MS // 1000} s. Stop"
            " that one, or take another group: each query needs a group of its own"
        )
    else:
        why = _started_again(me)
    alive = session.single(using, lambda cursor: heartbeats.beats(cursor, me, ALIVE_MS))
    raise GroupTaken(me.topic, me.group, why, sorted(alive))


def check_newest(me: Holder, is_later: Callable[[str], bool], *, using: str) -> None:
    """Raise ``GroupTaken`` if one of my name is alive whose incarnation is a later one than mine."""
    found = heartbeats.living(using, me, ALIVE_MS)
    if found is not None and is_later(found):
        raise GroupTaken(me.topic, me.group, _started_again(me), [me.name])


def _started_again(me: Holder) -> str:
    return f"{me.name} was started again since, in another process, which goes on in its place"


def place(topic: str, group: str, *, using: str) -> Place | None:
    """Where a group that reads the log by itself stands; None if there is none of that name."""
    found = offsets.registration(using, group, topic)
    return Place(found.life, found.start) if found and found.reads_log else None


def join(me: Holder, *, using: str) -> None:
    """Be the one who reads for the group, from now on to ``leave``, if ``beat`` is called every few seconds.

    Waits up to 30 s to see whether another one still lives; raises ``GroupTaken`` as soon as it shows that it does. One
    that does not is the reader no more, if it should come back; nor is, at once, an earlier incarnation of this name.
    """
    join_all([me], using=using)


def join_all(
    new: Sequence[Holder],
    held: Sequence[Holder] = (),
    *,
    using: str,
    before: Callable[[], object] = lambda: None,
) -> None:
    """``join`` for several topics, for all or none; and none if one of ``held``, which it had joined, is not its own.

    Of two of one name, whichever was started first, one is thus the reader of all in the end. ``before`` is called when
    nothing stands in the way, with the topics locked: if it raises, nobody's place is taken.
    """

    def work(cursor: CursorWrapper) -> Alive:
        # In one order, whoever does it: two at once do not wait for each other.
        for topic in sorted({me.topic for me in (*new, *held)}):
            offsets.lock_topic(using, cursor, topic)
        for me in held:
            check_reader(me, using=using)
        others = {key: at for me in new for key, at in _beats(cursor, me).items() if key[1] != me.name}
        if not others:
            before()
            for me in new:
                heartbeats.forget_silent(cursor, me)
                heartbeats.announce(cursor, me)
        return others

    for me in new:
        heartbeats.forget_dead(using, me.group, me.topic, FORGET_DEAD_MS)
    _wait_for_silence(new[0].group, lambda: session.run(using, work))


def wait_for_silence(topic: str, group: str, *, using: str) -> None:
    """As ``join``, for one that has no name yet, and changes nothing."""
    me = Holder(group, topic, "", "")
    _wait_for_silence(group, lambda: session.single(using, lambda cursor: _beats(cursor, me)))


def _beats(cursor: CursorWrapper, me: Holder) -> Alive:
    return {(me.topic, name): at for name, at in heartbeats.beats(cursor, me, ALIVE_MS).items()}


def _wait_for_silence(group: str, look: Callable[[], Alive]) -> None:
    """Look until no others are alive."""
    pause, deadline = threading.Event(), time.monotonic() + ALIVE_MS / 1000
    first = others = look()
    while others:
        late = time.monotonic() > deadline
        if alive := sorted(key for key, at in others.items() if late or first.get(key) != at):
            topic = alive[0][0]
            names = sorted(name for where, name in others if where == topic)
            raise GroupTaken(
                topic,
                group,
                f"{', '.join(names[:5])} consumes or reads for it, and is alive. Stop that one, or take another"
                " group: each query needs a group of its own",
                names,
            )
        pause.wait(LOOK_EVERY)
        others = look()


def beat(me: Holder, *, using: str) -> None:
    """Stay alive; nothing where another one has taken the place: ``move`` and ``check_reader`` tell."""
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
