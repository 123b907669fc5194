"""Store copies of messages, each copy once, even if a run is killed and started again.

A run of copies is divided into lanes by partition. Each lane has a *mark*: a row with the offset up to which its copies
are stored. A transaction that stores copies first locks their lane's mark, and then moves it forward. So two processes
that run at once store no copy twice. The mark also covers copies that were consumed and deleted since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import IntegrityError
from django.db.backends.utils import CursorWrapper

from ...exceptions import NotRegistered, Superseded
from ...service.storing import naming_unknown_group
from ...store import log, offsets
from ...store.connection import errors, session
from ..sql import copies as sql
from ..sql.copies import Copy

LANES_MAX = 64


@dataclass(frozen=True)
class CopyRun:
    """A run of copies into ``topic``.

    ``kind`` and ``name`` identify the run within the topic. ``lanes``: the number of lanes. ``group``: the only group
    that receives the copies; '' means all groups. ``generation``: this group's registration generation. It must not
    change while copies are stored, and the group must stay paused. None: the group is not checked.
    """

    kind: str
    name: str
    topic: str
    lanes: int = 1
    group: str = ""
    generation: int | None = None

    def mark(self, what: str) -> str:
        """Return the name of a mark. Each has a position and a number.

        * ``head``: the offset of the last original, and a number by which the caller recognises its run.
        * ``turn``: when the next copies may be stored, in microseconds, and the number of lanes.
        * ``total``: the number of all copies, after the run has ended.
        * ``seam``, ``source``: see ``backfilling``.
        """
        return f"{self.kind}-{what} {self.name}"

    def lane(self, number: int) -> str:
        return self.mark(f"lane-{number:02}")

    @property
    def all_lanes(self) -> list[str]:
        return [self.lane(number) for number in range(self.lanes)]


def begin(cursor: CursorWrapper, run: CopyRun, upto: int, number: int) -> None:
    """Record that the run has begun. The topic must be locked. ``upto`` and ``number`` go into the head."""
    lanes = [(name, 0, 0) for name in run.all_lanes]
    marks = [(run.mark("head"), upto, number), (run.mark("turn"), 0, run.lanes), *lanes]
    sql.begin_marks(cursor, run.topic, marks)


def head(using: str, run: CopyRun) -> sql.Mark | None:
    return sql.mark(using, run.topic, run.mark("head"))


def lock_head(using: str, cursor: CursorWrapper, run: CopyRun) -> sql.Mark | None:
    """Lock the topic. Return the run's head mark, also locked; None if there is none."""
    offsets.lock_topic(cursor, run.topic)
    return sql.locked_mark(cursor, run.topic, run.mark("head"))


def lanes_of(using: str, run: CopyRun) -> int:
    """Return the number of lanes of a run that has begun; 0 if it has not begun."""
    found = sql.mark(using, run.topic, run.mark("turn"))
    return found.number if found else 0


def copied(using: str, run: CopyRun) -> int:
    """Return how many copies were stored up to now."""
    return sql.sum_of_numbers(using, run.topic, run.all_lanes)


def total(using: str, run: CopyRun) -> int:
    """Return the total number of copies of a run that has ended."""
    return sql.sum_of_numbers(using, run.topic, [run.mark("total")])


def forget(cursor: CursorWrapper, run: CopyRun, *names: str) -> None:
    """Delete the run's marks, except its head and its total. Also delete the marks in ``names``."""
    marks = [*map(run.mark, ("turn", "seam", "source")), *run.all_lanes, *names]
    sql.delete_marks(cursor, run.topic, marks)


def not_stored(using: str, run: CopyRun, lane: int, copies: list[Copy]) -> list[Copy]:
    """Return the copies above their lane's mark. ``append`` checks this again, with the mark locked."""
    mark = sql.mark(using, run.topic, run.lane(lane))
    return copies if mark is None else [copy for copy in copies if copy.offset > mark.position]


def append(using: str, run: CopyRun, lane: int, copies: Sequence[Copy]) -> int:
    """Store a lane's next copies that are not stored yet, in one transaction. Return how many it stored.

    ``copies`` must be in the order of their offsets, and the lane's earlier copies must be stored.

    Raises ``NotRegistered`` if the group is not registered, ``Superseded`` if the run has ended or the group was
    changed.
    """

    def work(cursor: CursorWrapper, *, without_existing: bool = False) -> int:
        if run.generation is not None:
            check_group(cursor, run)
        mark = sql.locked_mark(cursor, run.topic, run.lane(lane))
        if mark is None:
            raise Superseded(
                f"{run.kind} {run.name!r} has ended, or was given up, while this process worked on it"
            )
        rest = [copy for copy in copies if copy.offset > mark.position]
        if not rest:
            return 0
        rows = [copy.row for copy in rest]
        message_keys = [row.message_key for row in rows] if without_existing else []
        stored = log.existing(cursor, run.topic, message_keys, locking=True)
        new = [copy for copy in rest if copy.row.message_key not in stored]
        with naming_unknown_group(cursor, run.topic, rows):
            if new:
                sql.insert(cursor, run.topic, new)
        sql.move_mark(cursor, run.topic, run.lane(lane), rest[-1].offset, len(new))
        return len(new)

    try:
        return session.run(using, work)
    except IntegrityError as error:
        if not errors.is_duplicate(error):
            raise
    return session.run(using, lambda cursor: work(cursor, without_existing=True))


def check_group(cursor: CursorWrapper, run: CopyRun, *, exclusive: bool = False) -> None:
    """Raise unless the group is paused and its registration is the run's.

    Neither can change until this transaction ends. ``exclusive``: lock the registration exclusively, so that callers
    continue one after the other. Raises ``NotRegistered`` or ``Superseded``.
    """
    found = offsets.lock_registration(cursor, run.group, run.topic, shared=not exclusive)
    if found is None:
        raise NotRegistered(run.topic, run.group)
    if (found.generation, found.paused) != (run.generation, True):
        raise Superseded(
            f"group {run.group!r} on topic {run.topic!r} was resumed, reset or registered again while its past was"
            " being stored: pause it and run this again; or unsubscribe it, and start again"
        )


def wait_us(using: str, run: CopyRun, messages: int, rate: float) -> int:
    """Reserve the time to store ``messages`` at ``rate`` a second. Return the microseconds until it begins."""
    duration_us = int(messages * 1_000_000 / rate)
    return session.run(using, lambda cursor: sql.reserve(cursor, run.topic, run.mark("turn"), duration_us))


def finish(cursor: CursorWrapper, run: CopyRun) -> None:
    """Record that all copies are stored. The topic must be locked."""
    sql.finish_mark(cursor, run.topic, run.mark("head"))
    forget(cursor, run)


def note_total(cursor: CursorWrapper, run: CopyRun, total: int) -> None:
    """Record the total number of copies. The topic must be locked."""
    sql.begin_marks(cursor, run.topic, [(run.mark("total"), 0, total)])


def give_up(cursor: CursorWrapper, run: CopyRun) -> bool:
    """If the run has stored nothing, delete its marks and return True. The topic must be locked."""
    lanes = [sql.locked_mark(cursor, run.topic, name) for name in run.all_lanes]
    if any(lane is None or lane.position for lane in lanes):
        return False
    forget(cursor, run, run.mark("head"))
    return True
