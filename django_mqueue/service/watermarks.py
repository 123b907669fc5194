"""Watermarks: how far a group is done with each of its partitions. Deletion follows them."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from django.db.backends.utils import CursorWrapper

from ..store import leases, session, watermarks
from ..store.offsets import Position
from .context import Context
from .feed import Feed
from .loading import PER_STATEMENT, load_again
from .partition import Partition

EVERY = 0.1
SHARE = 0.2
"""Of the time: at most this part goes into moving watermarks."""


@dataclass
class _Look:
    """What one transaction found out about some partitions. ``settled``: so much is, as all workers know it.

    ``went_back``: the database was set back since memory was read. ``forgotten``: partitions whose position is gone.
    ``busy``: partitions whose leases, or whose group's registration, another transaction has locked.
    """

    settled: int
    went_back: bool = False
    forgotten: list[str] = field(default_factory=list)
    places: dict[str, Position] = field(default_factory=dict)
    missed: list[tuple[str, int]] = field(default_factory=list)
    busy: set[str] = field(default_factory=set)


class Watermarks:
    """Moves the watermarks of one subscriber's partitions that changed; never past what is settled."""

    def __init__(self, context: Context, feed: Feed) -> None:
        self.context, self.feed = context, feed
        self._settled = 0
        self._next = -math.inf

    def tick(self, *, force: bool = False) -> None:
        """Look at up to 200 partitions where something was finished, if it is time."""
        started = time.monotonic()
        context = self.context
        if context.paused or (started < self._next and not force):
            return
        settled = self._hear_settled()
        names = [name for name in list(context.dirty)[:PER_STATEMENT] if name in context.partitions]
        if names:
            self._advance(names, settled)
            now = time.monotonic()
            self._next = now + max(EVERY, (now - started) / SHARE)

    def _hear_settled(self) -> int:
        """As much as all workers know; where it is more than before, watermarks that waited for that may move."""
        context = self.context
        settled = self.feed.told(context.topic)
        if settled != self._settled:
            self._settled = settled
            context.dirty.update(context.unsettled)
            context.unsettled.clear()
        return settled

    def finish(self) -> None:
        """Before stopping: settle what can be settled now and move all watermarks once."""
        self.feed.settle(self.context.topic)
        self._hear_settled()
        while self.context.dirty and not self.context.paused:
            before = len(self.context.dirty)
            self.tick(force=True)
            if len(self.context.dirty) >= before:
                return

    def _advance(self, names: list[str], settled: int) -> None:
        context = self.context
        partitions = {name: context.partitions[name] for name in names}

        def work(cursor: CursorWrapper) -> _Look:
            mine = leases.lock_mine(cursor, context.me, context.life, names)
            if not mine.locked:
                return _Look(settled, busy=mine.busy)
            look = self._look(cursor, {name: partitions[name] for name in sorted(mine.locked)}, settled)
            look.busy = mine.busy
            moved = [
                (name, place) for name, place in look.places.items() if place != _remembered(partitions[name])
            ]
            if moved and not look.went_back:
                watermarks.advance(context.using, cursor, context.group, context.topic, moved)
            return look

        look = session.run(context.using, work)
        if look.went_back:
            self.feed.doubt(context.topic)
            return
        load_again(context, look.forgotten)
        for name in names:
            if name in look.forgotten:
                continue  # Its watermark may move as before.
            context.dirty.pop(name, None)
            if name in look.busy:
                context.dirty[name] = None  # Behind the others: it is tried again with the next look.
            elif name in look.places:
                self._note(partitions[name], look.places[name], look.settled)
            elif name in context.partitions:
                context.unsettled[name] = None
                context.doubt = True
        for name, offset in look.missed:
            self._heal(partitions[name], offset)

    def _look(self, cursor: CursorWrapper, partitions: dict[str, Partition], settled: int) -> _Look:
        """Where each partition stands, in a snapshot begun after ``settled`` was settled.

        What memory holds is compared with the tables, for the database may have been set back under a running worker:
        offsets that it remembers as done are given anew then.
        """
        context = self.context
        above = [(name, partition.watermark) for name, partition in partitions.items()]
        found = watermarks.standing(cursor, context.group, context.topic, above, settled, context.start)
        settled = min(settled, found.settled)
        look = _Look(settled)
        look.went_back = any(
            place.acked < partitions[name].watermark or place.scanned < partitions[name].scanned
            for name, place in found.places.items()
        )
        # A collection that found the partition empty was about to commit when memory was read.
        never = Position(context.start, context.start)
        look.forgotten = [
            name
            for name, partition in partitions.items()
            if name not in found.places and _remembered(partition) != never
        ]
        partitions = {name: one for name, one in partitions.items() if name not in look.forgotten}
        opens = {name: (offset, known) for name, (offset, known) in found.opens.items() if offset <= settled}
        stuck: list[tuple[str, int]] = []
        for name, partition in partitions.items():
            offset, delivered = opens.get(name, (settled + 1, False))
            acked = max(partition.watermark, offset - 1)
            look.places[name] = Position(acked, max(partition.scanned, acked))
            if name in opens and delivered:
                stuck.append((name, look.places[name].scanned))
            elif name in opens:
                look.missed.append((name, offset))
        if stuck:
            undelivered = watermarks.first_undelivered(cursor, context.group, context.topic, stuck, settled)
            for name, scanned in stuck:
                offset = undelivered.get(name, settled + 1)
                look.places[name] = Position(look.places[name].acked, max(scanned, offset - 1))
                if name in undelivered:
                    look.missed.append((name, offset))
        return look

    def _note(self, partition: Partition, place: Position, settled: int) -> None:
        partition.watermark, partition.scanned = place.acked, place.scanned
        partition.dirty = max(partition.read_to, partition.top) > settled
        if partition.dirty:
            self.context.unsettled[partition.name] = None

    def _heal(self, partition: Partition, offset: int) -> None:
        """An undelivered message that memory does not know of would hold back the watermark for ever."""
        if offset > partition.read_to:
            partition.more = True
        elif not partition.late(offset):
            return
        self.context.touch(partition)


def _remembered(partition: Partition) -> Position:
    return Position(partition.watermark, partition.scanned)
