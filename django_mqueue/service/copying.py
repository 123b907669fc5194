"""Copies of messages stored once each, whatever is killed and run again.

A run of copies is divided into lanes by partition. Each transaction that stores copies of a lane also says how far the
lane is, and begins by locking that: two that run at once store nothing twice, and a copy that a consumer has eaten and
deletion has taken is still known to have been made. So nothing needs to be kept in the log for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import IntegrityError
from django.db.backends.utils import CursorWrapper

from ..exceptions import NotRegistered, Superseded
from ..store import copies as store
from ..store import log, offsets, session
from ..store.copies import Copy
from ..store.dialect import DUPLICATE_ENTRY
from .storing import known_groups

LANES_MAX = 64


@dataclass(frozen=True)
class Run:
    """A run of copies into ``topic``: its name, unique among those of its kind, and how many lanes it has.

    ``group``: the only one that they are for, '' for all. ``life``: of that group's registration, which must stay as it
    is, and paused, while the copies are made; None: it does not matter.
    """

    kind: str
    name: str
    topic: str
    lanes: int = 1
    group: str = ""
    life: int | None = None

    @property
    def head(self) -> str:
        return f"{self.kind}-head {self.name}"

    @property
    def turn(self) -> str:
        """Whose position is when the next may be stored, in microseconds, and whose number is that of the lanes."""
        return f"{self.kind}-turn {self.name}"

    @property
    def seam(self) -> str:
        return f"{self.kind}-seam {self.name}"

    @property
    def source(self) -> str:
        """Whose number says where from, of a run that is told it."""
        return f"{self.kind}-source {self.name}"

    @property
    def total(self) -> str:
        """Whose number is how many copies there were in all, when the run has ended."""
        return f"{self.kind}-total {self.name}"

    def lane(self, number: int) -> str:
        return f"{self.kind}-lane-{number:02} {self.name}"

    @property
    def all_lanes(self) -> list[str]:
        return [self.lane(number) for number in range(self.lanes)]


def begin(cursor: CursorWrapper, run: Run, upto: int, number: int) -> None:
    """Note that the run has begun, of originals up to an offset. The topic must be locked."""
    lanes = [(name, 0, 0) for name in run.all_lanes]
    store.begin_marks(cursor, run.topic, [(run.head, upto, number), (run.turn, 0, run.lanes), *lanes])


def lanes_of(using: str, run: Run) -> int:
    """How many lanes the run has that has begun; 0 for none."""
    found = store.mark(using, run.topic, run.turn)
    return found.number if found else 0


def copied(using: str, run: Run) -> int:
    """How many copies there were in all up to now."""
    return store.numbers(using, run.topic, run.all_lanes)


def forget(cursor: CursorWrapper, run: Run, *names: str) -> None:
    """Forget all of the run but what remains at its end."""
    store.forget_marks(cursor, run.topic, [run.turn, run.seam, run.source, *run.all_lanes, *names])


def missing(using: str, run: Run, lane: int, copies: list[Copy]) -> list[Copy]:
    """Those that are not stored, as far as is known before ``append`` knows it."""
    mark = store.mark(using, run.topic, run.lane(lane))
    return copies if mark is None else [copy for copy in copies if copy.offset > mark.position]


def append(using: str, run: Run, lane: int, copies: Sequence[Copy]) -> int:
    """Store those of a lane's next copies that were not stored before, in one transaction: how many these were.

    ``copies`` are in the order of their offsets, and the lane's before them are stored. Raises ``NotRegistered`` for a
    group that is not registered, ``Superseded`` if the run has ended or its group was changed.
    """

    def work(cursor: CursorWrapper, *, looking: bool = False) -> int:
        if run.life is not None:
            check_group(cursor, run)
        mark = store.locked_mark(cursor, run.topic, run.lane(lane))
        if mark is None:
            raise Superseded(
                f"{run.kind} {run.name!r} has ended, or was given up, while this process worked for it"
            )
        rest = [copy for copy in copies if copy.offset > mark.position]
        if rest:
            new = insert(cursor, run, rest, looking=looking)
            store.move_mark(cursor, run.topic, run.lane(lane), rest[-1].offset, new)
            return new
        return 0

    try:
        return session.run(using, work)
    except IntegrityError as error:
        if session.error_code(error) != DUPLICATE_ENTRY:
            raise
    return session.run(using, lambda cursor: work(cursor, looking=True))


def insert(cursor: CursorWrapper, run: Run, copies: Sequence[Copy], *, looking: bool = False) -> int:
    """Append them to the log: how many. ``looking``: without those whose ids are there."""
    rows = [copy.row for copy in copies]
    if looking:
        there = log.existing(cursor, run.topic, [row.place for row in rows], locking=True)
        copies = [copy for copy in copies if copy.row.place not in there]
    with known_groups(cursor, run.topic, rows):
        if copies:
            store.insert(cursor, run.topic, copies)
    return len(copies)


def check_group(cursor: CursorWrapper, run: Run, *, alone: bool = False) -> None:
    """Raise unless the group is registered as it was, and paused; that stays so until this transaction ends.

    ``alone``: of several that ask so, one at a time goes on.
    """
    found = store.lock_registration(cursor, run.group, run.topic, alone=alone)
    if found is None:
        raise NotRegistered(run.topic, run.group)
    if found != (run.life, True):
        raise Superseded(
            f"group {run.group!r} on topic {run.topic!r} was resumed, reset or registered anew while its past was being"
            " stored: pause it and run this again; or unsubscribe it, and begin anew"
        )


def wait_us(using: str, run: Run, messages: int, rate: float) -> int:
    """Take the time for so many messages: how long it is, in microseconds, until they may be stored."""
    took = int(messages * 1_000_000 / rate)
    return session.run(using, lambda cursor: store.reserve(cursor, run.topic, run.turn, took))


def finish(cursor: CursorWrapper, run: Run) -> None:
    """Note that all is stored. The topic must be locked."""
    store.finish_mark(cursor, run.topic, run.head)
    forget(cursor, run)


def note_total(cursor: CursorWrapper, run: Run, total: int) -> None:
    """Remember how many copies there were. The topic must be locked."""
    store.begin_marks(cursor, run.topic, [(run.total, 0, total)])


def total(using: str, run: Run) -> int:
    """How many copies there were in all, of a run that has ended."""
    return store.numbers(using, run.topic, [run.total])


def give_up(cursor: CursorWrapper, run: Run) -> bool:
    """Forget a run that has stored nothing yet, and will not; False for any other. The topic must be locked."""
    lanes = [store.locked_mark(cursor, run.topic, name) for name in run.all_lanes]
    if any(lane is None or lane.position for lane in lanes):
        return False
    forget(cursor, run, run.head)
    return True


def head(using: str, run: Run) -> store.Mark | None:
    """What is noted of a run of that name; None for nothing."""
    return store.mark(using, run.topic, run.head)


def lock_head(using: str, cursor: CursorWrapper, run: Run) -> store.Mark | None:
    """The same, with the topic locked."""
    offsets.lock_topic(using, cursor, run.topic)
    return store.locked_mark(cursor, run.topic, run.head)
