"""A new group is given the past of a topic: stored for it alone, in order with what is published meanwhile.

The group is registered, paused, and begins behind all that is settled by then: at the *border*. What lies before the
border is stored for it as copies (by whoever reads archives), which come into the log behind the border. So a message
that is published while they are stored lies before copies of older ones of its key. Before the group goes on, such
messages are copied, too, behind the others, and are done for the group, in one transaction each time: the *seam*.

**Why it ends in order.** A partition needs the seam as long as a message of it that the group is still to be given lies
below its newest copy. All those that a single statement sees are copied together, in order. What another publisher
commits with an offset between them and their copies is found when the copies' offsets are settled, and is copied in its
turn. Once a settled look finds nothing below the newest copy of a partition, no message can come to lie there any more,
and no copy is made of it again. Between the statement that looks and the copies lie milliseconds, so a key must be
published to every few milliseconds, for ever, to keep this from ending.

A message that commits late, below others of its key that were copied, is copied behind these: it overlapped with them,
and such have no order (see docs/explanation/limits.md). Messages without keys have none, and are left where they are.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from django.db.backends.utils import CursorWrapper

from ..exceptions import GroupNotNew, Superseded
from ..policy.copies import Original, copied, copy_id
from ..policy.names import key_of
from ..store import copies, log, moving, offsets, seam, session
from ..store.copies import Copy, Mark
from ..store.log import NewRow
from ..store.seam import Native
from . import copying, inspected, removing
from .copying import Run
from .settling import Settler

KIND = "backfill"
COPY_IDS = f"^{KIND}-[0-9]+@[0-9]+$"
"""A regular expression, of ``copy_of``'s ids: it tells copies from what was sent back, which has original ids, too."""

PAGE, WINDOW = 500, 50_000
TAIL = 2_000
BYTES, BYTES_AT_ONCE = 4 * 1_048_576, 32 * 1_048_576
REMEMBERED = 100_000
SETTLE_FOR = 1.0


@dataclass(frozen=True)
class Border:
    """Where the past ends. ``resumed``: it was begun before. ``ended``: all is done. ``source``: where the past comes
    from, as was said when it was begun."""

    run: Run
    upto: int
    resumed: bool
    ended: bool
    source: int = 0


def begun(using: str, topic: str, group: str) -> Border | None:
    """How far an earlier run has come; None for a group that is new. Raises ``GroupNotNew`` for any other."""
    run = Run(KIND, group, topic)
    there = offsets.registration(using, group, topic)
    return _known(using, run, copies.mark(using, topic, run.head), there) if there else None


def begin(using: str, topic: str, group: str, known: int, lanes: int, source: int = 0) -> Border:
    """Register the group, paused, behind what is settled (``known`` to the caller); or go on where that was done.
    ``source`` is a number for where the past comes from.

    Raises ``GroupNotNew`` for a group that was registered by others.
    """
    while True:
        found = session.run(using, lambda cursor: _begin(using, cursor, topic, group, known, lanes, source))
        if found:
            return found
        removing.finish(using, topic, group)


def _begin(
    using: str, cursor: CursorWrapper, topic: str, group: str, known: int, lanes: int, source: int
) -> Border | None:
    run = Run(KIND, group, topic, lanes, group)
    settled = max(offsets.lock_topic(using, cursor, topic), known)
    head, there = copies.locked_mark(cursor, topic, run.head), offsets.registration(using, group, topic)
    if there:
        return _known(using, run, head, there)
    if removing.begin(cursor, topic, group):
        return None
    offsets.raise_settled(cursor, topic, settled)
    offsets.register(cursor, group, topic, settled)
    offsets.set_paused(cursor, topic, group, paused=True)
    new = offsets.registration(using, group, topic)
    assert new is not None
    # Of an earlier life of the group, perhaps with more lanes.
    copying.forget(cursor, Run(KIND, group, topic, copying.LANES_MAX), run.head)
    run = Run(KIND, group, topic, lanes, group, new.life)
    copying.begin(cursor, run, settled, new.life)
    copies.begin_marks(cursor, topic, [(run.source, 0, source)])
    return Border(run, settled, False, False, source)


def _known(using: str, run: Run, head: Mark | None, there: offsets.Registration) -> Border:
    if head is None or head.number != there.life:
        raise GroupNotNew(
            f"group {run.name!r} is registered for topic {run.topic!r} already, and has its place in the log."
            " Unsubscribe it first, if what it has done may be forgotten; or replay the past for this group"
        )
    lanes = copying.lanes_of(using, run) or run.lanes
    source = copies.mark(using, run.topic, run.source)
    run = Run(KIND, run.name, run.topic, lanes, run.name, there.life)
    return Border(run, head.position, True, head.finished, source.number if source else 0)


def stored_to_border(using: str, border: Border) -> bool:
    """Whether all copies from before the border are stored."""
    return copies.mark(using, border.run.topic, border.run.seam) is not None


def note_stored(using: str, border: Border) -> None:
    """All copies from before the border are stored: only the seam is left."""
    run = border.run

    def work(cursor: CursorWrapper) -> None:
        copying.check_group(cursor, run)
        copies.begin_marks(cursor, run.topic, [(run.seam, border.upto, 0)])

    session.run(using, work)


def copy_of(one: Original, run: Run) -> Copy:
    """The copy of a message for the group, whose handlers are to see the original's id."""
    row = NewRow(
        one.partition,
        copy_id(f"{run.kind}-{run.life}", one.offset),
        copied(one, run.topic, run.kind),
        run.group,
    )
    return Copy(one.offset, row, one.id)


@dataclass
class _Step:
    """What one transaction has done, to be known when it is committed: how far it has looked, its copies (``busy``: of
    which partitions)."""

    done: int
    copied: int = 0
    newest: int = 0
    last: dict[str, int] = field(default_factory=dict)
    busy: Counter[str] = field(default_factory=Counter)


class Seam:
    """The last part. Called by one thread; a second process that does the same does no harm."""

    def __init__(self, using: str, border: Border) -> None:
        self.using, self.run = using, border.run
        self._settler = Settler(using, self.run.topic)
        self._last: dict[str, int] = {}
        self._pause = threading.Event()
        mark = copies.mark(using, self.run.topic, self.run.seam)
        self._done = max(border.upto, mark.position if mark else 0)
        self._newest = log.newest(using, self.run.topic)
        """At or above the newest copy."""
        self._busy: Counter[str] = Counter()
        """Partitions of which there were copies the last time."""
        self._held = False
        """Whether transactions have kept what is copied from being settled."""

    @property
    def is_whole(self) -> bool:
        """Whether all that the group is still to be given lies in order: nothing can come to lie out of it any more."""
        return self._done >= self._newest

    @property
    def waits_for(self) -> str:
        """Why it is not whole after the last time."""
        if self._held:
            return (
                f"open transactions that may still commit a message below offset {self._newest:,}; all is in order up"
                f" to {self._done:,}"
            )
        if not self._busy:
            return f"what was published above offset {self._done:,}, which is too much to be copied at once"
        partition, copied = self._busy.most_common(1)[0]
        others = f", and to {len(self._busy) - 1:,} other keys" if len(self._busy) > 1 else ""
        return (
            f"a moment in which nothing is published to key {key_of(partition)!r}{others}: {copied:,} of its messages"
            " came since the last look"
        )

    def sew(self) -> int:
        """Copy what needs it, as far as it is settled, and then what is there beyond: how many copies."""
        made, settled = 0, self._settled()
        self._busy.clear()
        self._held = settled < self._newest
        while self._done < settled:
            made += self._do(partial(self._page, settled=settled))
        if not self.is_whole:
            made += self._do(self._tail)
        return made

    def _do(self, work: Callable[[CursorWrapper], _Step]) -> int:
        step = session.run(self.using, work)
        self._done, self._newest = step.done, max(self._newest, step.newest)
        self._last |= step.last
        self._busy += step.busy
        return step.copied

    def _settled(self) -> int:
        """Waits a little for what is under way, up to the newest copy."""
        deadline = time.monotonic() + SETTLE_FOR
        while (found := self._settler.advance()) < self._newest and time.monotonic() < deadline:
            self._pause.wait(0.02)
        return found

    def _page(self, cursor: CursorWrapper, settled: int) -> _Step:
        self._lock(cursor)
        upto = min(settled, self._done + WINDOW)
        found = seam.natives(cursor, self.run.topic, self.run.group, self._done, upto, PAGE)
        step = _Step(found[-1].offset if len(found) == PAGE else upto)
        self._copy(cursor, self._out_of_order(cursor, found), step)
        copies.move_mark(cursor, self.run.topic, self.run.seam, step.done, step.copied)
        return step

    def _tail(self, cursor: CursorWrapper) -> _Step:
        """What is there above what is settled. So much that it is better waited for is left for another time."""
        self._lock(cursor)
        step = _Step(self._done)
        found = seam.natives(cursor, self.run.topic, self.run.group, self._done, None, TAIL + 1)
        wanted = self._out_of_order(cursor, found)
        if len(found) <= TAIL and sum(native.size for native in wanted) <= BYTES_AT_ONCE:
            self._copy(cursor, wanted, step)
            copies.move_mark(cursor, self.run.topic, self.run.seam, step.done, step.copied)
        return step

    def _lock(self, cursor: CursorWrapper) -> None:
        """One process at a time; and the group's workers look anew, for what they know of may be done by now."""
        copying.check_group(cursor, self.run, alone=True)
        assert self.run.life is not None
        moving.lock_group(cursor, self.run.group, self.run.topic, self.run.life)
        if copies.locked_mark(cursor, self.run.topic, self.run.seam) is None:
            raise Superseded(f"the backfill of group {self.run.group!r} has ended in another process")

    def _out_of_order(self, cursor: CursorWrapper, found: Sequence[Native]) -> list[Native]:
        """Those of partitions of which the first one lies below a copy: all of the partition's, for its new copies
        will lie above them all."""
        keyed = [native for native in found if key_of(native.partition) is not None]
        firsts = {native.partition: native.offset for native in reversed(keyed)}
        if len(self._last) > REMEMBERED:
            self._last.clear()
        if unknown := sorted(firsts.keys() - self._last.keys()):
            there = seam.last_copies(cursor, self.run.topic, self.run.group, unknown)
            self._last |= {name: there.get(name, 0) for name in unknown}
        late = {name for name, offset in firsts.items() if offset < self._last[name]}
        return [native for native in keyed if native.partition in late]

    def _copy(self, cursor: CursorWrapper, wanted: Sequence[Native], step: _Step) -> None:
        if begun := [native for native in wanted if native.begun]:
            raise Superseded(
                f"group {self.run.group!r} was given the message at offset {begun[0].offset} while its past was being"
                " stored: somebody has resumed it. Unsubscribe it, and begin anew"
            )
        for some in _light(wanted):
            rows = seam.contents(cursor, [native.offset for native in some])
            made = [copy_of(_original(row), self.run) for row in rows]
            first = copies.insert(cursor, self.run.topic, made)
            done = [(native.partition, native.offset) for native in some]
            seam.finish(cursor, self.run.group, self.run.topic, done)
            step.copied += len(made)
            step.busy.update(copy.row.partition for copy in made)
            step.newest = first + len(made) - 1
            step.last |= {copy.row.partition: first + place for place, copy in enumerate(made)}


def finish(using: str, border: Border, *, resume: bool) -> None:
    """All is stored, and in order: note that, and let the group go on."""
    run = border.run

    def work(cursor: CursorWrapper) -> None:
        head = copying.lock_head(using, cursor, run)
        if head is not None and head.finished and head.number == run.life:
            return  # Done, by a COMMIT without an answer or by another process; the group may be anywhere by now.
        copying.check_group(cursor, run, alone=True)
        copying.finish(cursor, run)
        if resume:
            offsets.set_paused(cursor, run.topic, run.group, paused=False)

    session.run(using, work)


def _original(row: seam.Content) -> Original:
    offset, partition, id, body, text, at = row
    about = inspected.metadata(text)
    return Original(offset, partition, id, about["kind"], about["encoding"], about["headers"], body, at)


def _light(natives: Sequence[Native]) -> Iterator[list[Native]]:
    """As many at once as one statement should hold."""
    some: list[Native] = []
    size = 0
    for native in natives:
        if some and (len(some) == PAGE or size + native.size > BYTES):
            yield some
            some, size = [], 0
        some.append(native)
        size += native.size
    if some:
        yield some
