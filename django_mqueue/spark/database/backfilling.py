"""The backfill: give a new group the past of a topic, in order with messages that are published meanwhile.

The group is registered, paused, and starts at the settled offset: the *border*. Spark tasks read the messages up to the
border from the archive and the log, and append copies of them to the log, for this group only. So the copies lie above
the border. A message that is published meanwhile may lie below copies of older messages of its key. The *seam*
corrects this before the group is resumed. It copies such messages above the other copies, and acknowledges the
originals for the group in the same transaction.

docs/explanation/protocol.md shows why the order of each key is kept, and why the seam ends. Messages without keys have
no order, so the seam does not copy them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter

from django.db.backends.utils import CursorWrapper

from ...exceptions import GroupNotNew, Superseded
from ...policy.batching import BYTES_PER_STATEMENT, batches_by_weight
from ...policy.names import key_of
from ...protocol.retention import removing
from ...protocol.settling import Settler
from ...service import message_views
from ...store import log, moving, offsets
from ...store.connection import session
from ...store.log import NewRow
from ..sql import copies
from ..sql.copies import Copy, Mark, OpenMessage
from . import copying
from .copied_content import Original, copied, copy_id
from .copying import CopyRun

KIND = "backfill"
COPY_IDS = f"^{KIND}-[0-9]+@[0-9]+$"
"""A regular expression for the ids of copies. Redriven messages also have an original id, but other ids."""

PAGE, WINDOW = 500, 50_000
"""Limits of one step below the settled offset: messages, offsets. ``PAGE`` also limits one INSERT."""

TAIL, BYTES_AT_ONCE = 2_000, 32 * 1_048_576
"""Limits of the one transaction above the settled offset: open messages, and bytes of misplaced ones."""

REMEMBERED = 100_000
"""Maximum partitions whose newest copy is kept in memory."""

SETTLE_FOR = 1.0
"""Seconds to wait until the settled offset reaches the newest copy."""


@dataclass(frozen=True)
class BackfillState:
    """The state of a backfill.

    ``upto``: the last offset of the past. ``source``: the caller's number for the archive that the past comes from.
    """

    run: CopyRun
    upto: int
    ended: bool
    source: int = 0


def find_backfill(using: str, topic: str, group: str) -> BackfillState | None:
    """Return the state of an earlier run; None if the group is not registered. Raises like ``begin``."""
    run = CopyRun(KIND, group, topic)
    registration = offsets.registration(using, group, topic)
    return _earlier_state(using, run, copying.head(using, run), registration) if registration else None


def begin(using: str, topic: str, group: str, settled: int, lanes: int, source: int = 0) -> BackfillState:
    """Register the group, paused, at the settled offset. If an earlier run has done so, return its state.

    ``settled``: a settled offset that the caller has found. ``source``: the caller's number for the archive. If an
    unsubscribe has left rows of the group, this function deletes them first.

    Raises ``GroupNotNew`` if the group is registered, but not by a backfill.
    """
    while True:
        found = session.run(using, lambda cursor: _begin(using, cursor, topic, group, settled, lanes, source))
        if found:
            return found
        removing.finish(using, topic, group)


def _begin(
    using: str, cursor: CursorWrapper, topic: str, group: str, settled: int, lanes: int, source: int
) -> BackfillState | None:
    run = CopyRun(KIND, group, topic, lanes, group)
    settled = max(offsets.lock_topic(cursor, topic), settled)
    head = copies.locked_mark(cursor, topic, run.mark("head"))
    if registration := offsets.registration(using, group, topic):
        return _earlier_state(using, run, head, registration)
    if removing.begin(cursor, topic, group):
        return None
    offsets.advance_settled(cursor, topic, settled)
    offsets.register(cursor, group, topic, settled, paused=True)
    new = offsets.registration(using, group, topic)
    assert new is not None
    # An earlier registration of the group may have left marks, perhaps of more lanes.
    copying.forget(cursor, CopyRun(KIND, group, topic, copying.LANES_MAX), run.mark("head"))
    run = CopyRun(KIND, group, topic, lanes, group, new.generation)
    copying.begin(cursor, run, settled, new.generation)
    copies.begin_marks(cursor, topic, [(run.mark("source"), 0, source)])
    return BackfillState(run, settled, False, source)


def _earlier_state(
    using: str, run: CopyRun, head: Mark | None, registration: offsets.Registration
) -> BackfillState:
    if head is None or head.number != registration.generation:
        raise GroupNotNew(
            f"group {run.name!r} is already registered for topic {run.topic!r}, and has a position in the log."
            " Unsubscribe it first, if its position may be lost; or replay the past for this group"
        )
    lanes = copying.lanes_of(using, run) or run.lanes
    source = copies.mark(using, run.topic, run.mark("source"))
    run = CopyRun(KIND, run.name, run.topic, lanes, run.name, registration.generation)
    return BackfillState(run, head.position, head.finished, source.number if source else 0)


def stored_to_border(using: str, state: BackfillState) -> bool:
    """Return whether all messages up to the border are copied."""
    return copies.mark(using, state.run.topic, state.run.mark("seam")) is not None


def note_stored(using: str, state: BackfillState) -> None:
    """Record that all messages up to the border are copied. Only the seam remains."""
    run = state.run

    def work(cursor: CursorWrapper) -> None:
        copying.check_group(cursor, run)
        copies.begin_marks(cursor, run.topic, [(run.mark("seam"), state.upto, 0)])

    session.run(using, work)


def copy_of(original: Original, run: CopyRun) -> Copy:
    """Return the copy of a message for the run's group. Handlers see the id of the original."""
    id = copy_id(f"{run.kind}-{run.generation}", original.offset)
    content = copied(original, run.topic, run.kind)
    return Copy(original.offset, NewRow(original.partition, id, content, run.group), original.id)


@dataclass
class _Step:
    """The result of one transaction, which ``Seam`` uses after the commit.

    ``done``: the offset up to which the seam is complete. By partition, ``last`` is the offset of its newest copy, and
    ``copied`` the number of copies.
    """

    done: int
    last: dict[str, int] = field(default_factory=dict)
    copied: Counter[str] = field(default_factory=Counter)


class Seam:
    """Copies the messages that lie below copies of older messages. Several processes may run the same seam at once."""

    def __init__(self, using: str, state: BackfillState) -> None:
        self.using, self.run = using, state.run
        self._settler = Settler(using, self.run.topic)
        self._mark = self.run.mark("seam")
        self._newest_copies: dict[str, int] = {}
        mark = copies.mark(using, self.run.topic, self._mark)
        self.copies = mark.number if mark else 0
        """The number of all copies of the seam. If the mark has another number, another process has made copies."""
        self._done = max(state.upto, mark.position if mark else 0)
        self._newest = log.newest(using, self.run.topic)
        """The offset of the newest copy, or a higher one."""
        self._copied_by_partition: Counter[str] = Counter()
        """By partition, how many copies the last ``copy_misplaced`` made."""
        self._is_blocked = False
        """True if open transactions kept the newest copy from being settled during the last ``copy_misplaced``."""

    @property
    def is_whole(self) -> bool:
        """True if everything that the group must still receive is in order. No later commit can change this."""
        return self._done >= self._newest

    @property
    def waits_for(self) -> str:
        """The reason why the seam was not whole after the last ``copy_misplaced``."""
        if self._is_blocked:
            return (
                f"open transactions that may still commit a message below offset {self._newest:,}; messages up to"
                f" {self._done:,} are in order"
            )
        if not self._copied_by_partition:
            return "copies that another process makes for the same group"
        partition, copied = self._copied_by_partition.most_common(1)[0]
        others = (
            f" and {len(self._copied_by_partition) - 1:,} other keys"
            if len(self._copied_by_partition) > 1
            else ""
        )
        return (
            f"a moment without new messages for key {key_of(partition)!r}{others}: {copied:,} messages of the first"
            " key are new since the last check"
        )

    def copy_misplaced(self) -> int:
        """Copy messages that are out of order: first up to the settled offset, then above it. Return their number."""
        copied, settled = 0, self._settled()
        self._copied_by_partition.clear()
        self._is_blocked = settled < self._newest
        while self._done < settled:
            copied += self._apply(partial(self._page, settled=settled))
        if not self.is_whole:
            copied += self._apply(self._tail)
        return copied

    def _apply(self, work: Callable[[CursorWrapper], _Step]) -> int:
        step = session.run(self.using, work)
        self._done, self._newest = step.done, max([self._newest, *step.last.values()])
        self._newest_copies |= step.last
        self._copied_by_partition += step.copied
        self.copies += step.copied.total()
        return step.copied.total()

    def _settled(self) -> int:
        """Return the settled offset. Wait up to ``SETTLE_FOR`` seconds until it reaches the newest copy."""
        deadline = time.monotonic() + SETTLE_FOR
        while (found := self._settler.advance()) < self._newest and time.monotonic() < deadline:
            time.sleep(0.02)
        return found

    def _page(self, cursor: CursorWrapper, settled: int) -> _Step:
        self._lock(cursor)
        upto = min(settled, self._done + WINDOW)
        found = copies.open_messages(cursor, self.run.topic, self.run.group, self._done, upto, PAGE)
        step = _Step(found[-1].offset if len(found) == PAGE else upto)
        self._copy(cursor, self._out_of_order(cursor, found), step)
        copies.move_mark(cursor, self.run.topic, self._mark, step.done, step.copied.total())
        return step

    def _tail(self, cursor: CursorWrapper) -> _Step:
        """Copy messages above the settled offset that are out of order, if they all fit into one transaction."""
        self._lock(cursor)
        step = _Step(self._done)
        found = copies.open_messages(cursor, self.run.topic, self.run.group, self._done, None, TAIL + 1)
        misplaced = self._out_of_order(cursor, found)
        if len(found) <= TAIL and sum(message.size for message in misplaced) <= BYTES_AT_ONCE:
            self._copy(cursor, misplaced, step)
            copies.move_mark(cursor, self.run.topic, self._mark, step.done, step.copied.total())
        return step

    def _lock(self, cursor: CursorWrapper) -> None:
        """Lock the group, so that one process at a time copies. Raises ``NotRegistered`` or ``Superseded``.

        After the commit, the group's workers read again which messages are open.
        """
        copying.check_group(cursor, self.run, exclusive=True)
        assert self.run.generation is not None
        moving.lock_group(cursor, self.run.group, self.run.topic, self.run.generation)
        mark = copies.locked_mark(cursor, self.run.topic, self._mark)
        if mark is None:
            raise Superseded(f"another process has ended the backfill of group {self.run.group!r}")
        if mark.number != self.copies:  # Another process has made copies. Messages may lie below them.
            self._newest_copies.clear()
            self._newest = max(self._newest, log.newest(self.using, self.run.topic))
            self.copies = mark.number

    def _out_of_order(self, cursor: CursorWrapper, found: Sequence[OpenMessage]) -> list[OpenMessage]:
        """Return all messages of each partition whose first message lies below a copy.

        All of them must be copied, because a copy goes to the end of the log.
        """
        keyed = [message for message in found if key_of(message.partition) is not None]
        firsts = {message.partition: message.offset for message in reversed(keyed)}
        if len(self._newest_copies) > REMEMBERED:
            self._newest_copies.clear()
        if unknown := sorted(firsts.keys() - self._newest_copies.keys()):
            last_copies = copies.last_copies(cursor, self.run.topic, self.run.group, unknown)
            self._newest_copies |= {name: last_copies.get(name, 0) for name in unknown}
        late = {name for name, offset in firsts.items() if offset < self._newest_copies[name]}
        return [message for message in keyed if message.partition in late]

    def _copy(self, cursor: CursorWrapper, misplaced: Sequence[OpenMessage], step: _Step) -> None:
        if delivered := [message for message in misplaced if message.has_state]:
            raise Superseded(
                f"group {self.run.group!r} received the message at offset {delivered[0].offset} while its past was"
                " being stored: the group was resumed. Unsubscribe it, and start again"
            )
        for some in batches_by_weight(misplaced, attrgetter("size"), BYTES_PER_STATEMENT, PAGE):
            rows = copies.contents(cursor, [message.offset for message in some])
            copied = [copy_of(_original(row), self.run) for row in rows]
            first = copies.insert(cursor, self.run.topic, copied)
            done = [(message.partition, message.offset) for message in some]
            copies.acknowledge(cursor, self.run.group, self.run.topic, done)
            step.copied.update(copy.row.partition for copy in copied)
            step.last |= {copy.row.partition: first + number for number, copy in enumerate(copied)}


def finish(using: str, state: BackfillState, number: int, *, resume: bool) -> bool:
    """Record that the backfill is complete, and resume the group if ``resume`` is true. Raises as ``check_group``.

    ``number``: ``Seam.copies`` of the seam that is whole. Return False, and change nothing, if another process has made
    copies since: the caller must check the order with a new ``Seam``.
    """
    run = state.run

    def work(cursor: CursorWrapper) -> bool:
        head = copying.lock_head(using, cursor, run)
        if head is not None and head.finished and head.number == run.generation:
            return True  # An earlier try or another process has done this. The group may have moved since.
        copying.check_group(cursor, run, exclusive=True)
        mark = copies.locked_mark(cursor, run.topic, run.mark("seam"))
        if mark is not None and mark.number != number:
            return False
        copying.finish(cursor, run)
        if resume:
            offsets.set_paused(cursor, run.topic, run.group, paused=False)
        return True

    return session.run(using, work)


def _original(row: session.Row) -> Original:
    offset, partition, id, body, text, at = row
    about = message_views.metadata(text)
    return Original(offset, partition, id, about["kind"], about["encoding"], about["headers"], body, at)
