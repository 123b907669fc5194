"""Watermarks: per partition, the offset up to which the group has finished all messages. They limit deletion."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from django.db.backends.utils import CursorWrapper

from ..policy.batching import PER_STATEMENT
from ..store import leases, positions
from ..store.connection import session
from ..store.positions import Position
from .consumer_state import ConsumerState
from .fetching import load_again
from .partition_state import Partition
from .tailer import Tailer

ADVANCE_INTERVAL = 0.1
"""Minimum seconds between two advances of a subscriber's watermarks."""
TIME_FRACTION_MAX = 0.2
"""Maximum fraction of the time that goes into moving watermarks."""


@dataclass
class _Advance:
    """The result of one transaction for some partitions.

    ``settled``: the settled offset that all workers share. ``was_restored``: the database was restored since memory was
    read. ``forgotten``: partitions whose position row is gone. ``positions``: new positions. ``missed``: partitions and
    offsets of undelivered messages that memory may lack. ``busy``: partitions whose lease or registration is locked.
    """

    settled: int
    was_restored: bool = False
    forgotten: list[str] = field(default_factory=list)
    positions: dict[str, Position] = field(default_factory=dict)
    missed: list[tuple[str, int]] = field(default_factory=list)
    busy: set[str] = field(default_factory=set)


class Watermarks:
    """Moves the watermarks of one subscriber's changed partitions, never above the settled offset."""

    def __init__(self, state: ConsumerState, tailer: Tailer) -> None:
        self.state, self.tailer = state, tailer
        self._settled = 0
        self._next = -math.inf

    def tick(self, *, force: bool = False) -> None:
        """Move the watermarks of up to 200 changed partitions if due. ``force``: even if not due."""
        started = time.monotonic()
        state = self.state
        if state.paused or (started < self._next and not force):
            return
        settled = self._note_settled()
        names = [name for name in list(state.dirty)[:PER_STATEMENT] if name in state.partitions]
        if names:
            self._advance(names, settled)
            now = time.monotonic()
            self._next = now + max(ADVANCE_INTERVAL, (now - started) / TIME_FRACTION_MAX)

    def due_in(self) -> float:
        """Return the seconds until a watermark may move; infinity if none waits for it."""
        if self.state.paused or not self.state.dirty:
            return math.inf
        return max(self._next - time.monotonic(), 0)

    def _note_settled(self) -> int:
        """Return the shared settled offset. If it has changed, mark the partitions that wait for it as dirty."""
        state = self.state
        settled = self.tailer.shared_settled(state.topic)
        if settled != self._settled:
            self._settled = settled
            state.dirty.update(state.unsettled)
            state.unsettled.clear()
        return settled

    def finish(self) -> None:
        """Settle what can be settled now, and move all watermarks once. Call this before the subscriber stops."""
        self.tailer.settle(self.state.topic)
        self._note_settled()
        while self.state.dirty and not self.state.paused:
            before = len(self.state.dirty)
            self.tick(force=True)
            if len(self.state.dirty) >= before:
                return

    def _advance(self, names: list[str], settled: int) -> None:
        state = self.state
        partitions = {name: state.partitions[name] for name in names}

        def work(cursor: CursorWrapper) -> _Advance:
            owned = leases.lock_owned(cursor, state.holder, state.registration_generation, names)
            if not owned.locked:
                return _Advance(settled, busy=owned.busy)
            advance = self._compute(
                cursor, {name: partitions[name] for name in sorted(owned.locked)}, settled
            )
            advance.busy = owned.busy
            moved = [
                (name, position)
                for name, position in advance.positions.items()
                if position != _remembered(partitions[name])
            ]
            if moved and not advance.was_restored:
                positions.advance(cursor, state.group, state.topic, moved)
            return advance

        advance = session.run(state.using, work)
        if advance.was_restored:
            self.tailer.note_restored(state.topic, f"a position of group {state.group} has decreased")
            return
        load_again(state, advance.forgotten)
        for name in names:
            if name in advance.forgotten:
                continue  # It was loaded again and is still dirty: the next tick moves its watermark.
            state.dirty.pop(name, None)
            if name in advance.busy:
                state.dirty[name] = None  # Moved to the end: a later tick retries it.
            elif name in advance.positions:
                self._note(partitions[name], advance.positions[name], advance.settled)
            elif name in state.partitions:
                state.unsettled[name] = None
                state.check_leases = True
        for name, offset in advance.missed:
            self._add_missed(partitions[name], offset)

    def _compute(self, cursor: CursorWrapper, partitions: dict[str, Partition], settled: int) -> _Advance:
        """Compute new positions in a snapshot that is younger than ``settled``, and compare them with memory."""
        state = self.state
        above = [(name, partition.watermark) for name, partition in partitions.items()]
        found = positions.backlog(cursor, state.group, state.topic, above, settled, state.start)
        settled = min(settled, found.settled)
        advance = _Advance(settled)
        advance.was_restored = any(
            position.acked < partitions[name].watermark or position.scanned < partitions[name].scanned
            for name, position in found.positions.items()
        )
        # Garbage collection may delete the row of an empty partition just after memory has read it.
        never = Position(state.start, state.start)
        advance.forgotten = [
            name
            for name, partition in partitions.items()
            if name not in found.positions and _remembered(partition) != never
        ]
        partitions = {name: one for name, one in partitions.items() if name not in advance.forgotten}
        opens = {name: (offset, known) for name, (offset, known) in found.opens.items() if offset <= settled}
        stuck: list[tuple[str, int]] = []
        for name, partition in partitions.items():
            offset, delivered = opens.get(name, (settled + 1, False))
            acked = max(partition.watermark, offset - 1)
            advance.positions[name] = Position(acked, max(partition.scanned, acked))
            if name in opens and delivered:
                stuck.append((name, advance.positions[name].scanned))
            elif name in opens:
                advance.missed.append((name, offset))
        if stuck:
            undelivered = positions.first_undelivered(cursor, state.group, state.topic, stuck, settled)
            for name, scanned in stuck:
                offset = undelivered.get(name, settled + 1)
                advance.positions[name] = Position(advance.positions[name].acked, max(scanned, offset - 1))
                if name in undelivered:
                    advance.missed.append((name, offset))
        return advance

    def _note(self, partition: Partition, position: Position, settled: int) -> None:
        partition.watermark, partition.scanned = position.acked, position.scanned
        partition.dirty = max(partition.read_to, partition.top) > settled
        if partition.dirty:
            self.state.unsettled[partition.name] = None

    def _add_missed(self, partition: Partition, offset: int) -> None:
        """Add an undelivered message that memory lacks. Otherwise it holds back the watermark for ever."""
        if offset > partition.read_to:
            partition.more = True
        elif not partition.add_late(offset):
            return
        self.state.mark_ready(partition)


def _remembered(partition: Partition) -> Position:
    return Position(partition.watermark, partition.scanned)
