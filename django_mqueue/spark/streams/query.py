"""The state of a streaming query between its batches. A new process can restore all of it."""

from __future__ import annotations

import random
import time
import uuid

from ...protocol.settling import Settler
from ...store import offsets as positions
from ..connecting import RetryingConnection
from ..reader.options import ReadOptions
from ..reader.planning import ends, ranges, resolve_bound, topics_of
from ..reader.ranges import Range
from ..reader.settling import settled
from .checkpoint import Offsets
from .group_reader import GroupReader

TOPICS_EVERY = 1.0
"""Seconds between two searches for topics that match a pattern."""


class Query:
    """Plans the batches of one streaming query. Called by one thread."""

    def __init__(self, options: ReadOptions, created: float | None = None) -> None:
        """``created``: see ``GroupReader``."""
        self.options = options
        self.reported: Offsets | None = None
        self._connection = RetryingConnection(options.connecting)
        self._group_reader = GroupReader(options, created) if options.group else None
        self._settlers: dict[tuple[str, str], Settler] = {}
        self._topics: list[str] = []
        self._topics_at = self._idle_at = float("-inf")
        self._goal: dict[str, int] | None = None
        self._first_topic: str | None = None
        """The topic that comes first if not all topics fit into a batch. Topics take turns by their names."""

    def initial(self) -> Offsets:
        """Return the start of a new query: the position of its group, or the start that the options give.

        Spark does not keep it, and asks again to repeat the first batch. Each call makes another name for the query.
        So nothing may depend on the name before the end of the first batch contains it.
        """
        query = uuid.uuid4().hex if self._group_reader else ""
        return self._connection.run(lambda using: self._initial(using, query))

    def latest(self, start: Offsets, most: int | None) -> Offsets:
        """Return the end of a batch of at most ``most`` rows that starts at ``start``; ``start`` if nothing is new.

        Everything below ``start`` is durable (see ``stream_reader``), so the group moves up to it. After a call that
        found nothing new, wait for ``pollInterval``: Spark asks a hundred times a second.
        """
        self.done(start)
        if (wait := self._idle_at + self.options.poll_interval - time.monotonic()) > 0:
            time.sleep(wait)
        now = self._connection.run(lambda using: self._latest(using, start, most))
        self._idle_at = time.monotonic() if now == start else float("-inf")
        if self._group_reader and now != start:
            self._group_reader.note_planned(now)
        return now

    def ranges(self, start: Offsets, ended: Offsets) -> list[Range]:
        """Return the ranges of a batch, one for each task. A topic that only ``ended`` has begins with the next batch.

        A process that was killed may have planned this batch; then Spark does not call ``latest`` for it.
        """
        found = [
            (topic, start.above(topic), ended.above(topic)) for topic in ended.next if topic in start.next
        ]
        planned = self._connection.run(lambda using: self._ranges(using, found, start, ended))
        if self._group_reader:
            self._group_reader.note_planned(ended)
        return planned

    def done(self, upto: Offsets) -> None:
        """Move the group up to these offsets: everything below is durable."""
        if group_reader := self._group_reader:
            self._connection.run(lambda using: group_reader.done(using, upto))

    def committed(self, upto: Offsets) -> None:
        """Move the group up to offsets that Spark reports as durable, and check the checkpoint."""
        self.done(upto)
        if self._group_reader:
            self._group_reader.check_checkpoint()

    def set_goal(self) -> None:
        """Read no further than what is settled now."""
        shared = self._group_reader is not None
        self._goal = self._connection.run(
            lambda using: settled(using, topics_of(using, self.options), self.options, shared=shared)
        )

    def stop(self) -> None:
        # First the connection: a signal may interrupt a transaction, and the group reader waits for its locks.
        self._connection.close()
        if self._group_reader:
            self._group_reader.stop()

    def _initial(self, using: str, query: str) -> Offsets:
        found: dict[str, tuple[int, int]] = {}
        for topic, last in settled(using, topics_of(using, self.options), self.options).items():
            above = resolve_bound(using, topic, self.options.start, last, self.options.named(topic)) or 0
            found[topic] = above, last
        group_positions = self._group_reader.begin(using, found) if self._group_reader else {}
        start = {
            topic: group_positions[topic].above if group_positions else above
            for topic, (above, _) in found.items()
        }
        return Offsets(
            {topic: above + 1 for topic, above in start.items()},
            {topic: position.generation for topic, position in group_positions.items()},
            query,
        )

    def _latest(self, using: str, start: Offsets, most: int | None) -> Offsets:
        found, topics = [], self._current(using)
        new = {topic: (0, 0) for topic in topics if topic not in start.next}
        group_positions = self._group_reader.begin(using, new) if self._group_reader and new else {}
        for topic in topics:
            if topic in start.next:
                above = start.above(topic)
                found.append((topic, above, max(above, self._last(using, topic))))
            else:
                above = group_positions[topic].above if group_positions else 0
                found.append((topic, above, above))
        generations = self._group_reader.generations if self._group_reader else {}
        self.reported = start.moved({topic: last + 1 for topic, _, last in found}, generations)
        reached = self._ends(using, found, most)
        return start.moved({topic: upto + 1 for topic, upto in reached.items()}, generations)

    def _ranges(
        self, using: str, found: list[tuple[str, int, int]], start: Offsets, ended: Offsets
    ) -> list[Range]:
        """Return the ranges. If the batch is repeated, the group's position and the options may have changed."""
        if not (group_reader := self._group_reader):
            return ranges(using, self.options, found)
        batch = Offsets({topic: start.next[topic] for topic, *_ in found}, ended.generations, ended.query)
        group_reader.resume(using, batch)
        found = [
            (topic, above, upto)
            for topic, above, upto in found
            if self.options.reads(topic)
            or (above < upto and group_reader.holds_back_deletion(using, topic, batch))
        ]
        planned = ranges(using, self.options, found)
        for topic, *_ in found:  # Check last: later deletions are noticed by the tasks.
            group_reader.check(using, topic, batch)
        return planned

    def _ends(self, using: str, found: list[tuple[str, int, int]], most: int | None) -> dict[str, int]:
        """Return each topic's end in the batch. Topics that the limit leaves out come first in the next batch.

        A new process begins with a random topic, because it may end after each batch.
        """
        if self._first_topic is None and found:
            self._first_topic = random.choice(found)[0]
        turns = sorted(found, key=lambda each: (each[0] < (self._first_topic or ""), each[0]))
        reached = ends(using, self.options, turns, most)
        left_out = [topic for topic, above, upto in turns if reached[topic] == above < upto]
        self._first_topic = left_out[0] if left_out else self._first_topic
        return reached

    def _current(self, using: str) -> list[str]:
        if not self._topics or (self.options.pattern and time.monotonic() >= self._topics_at + TOPICS_EVERY):
            self._topics, self._topics_at = topics_of(using, self.options), time.monotonic()
        return self._topics

    def _last(self, using: str, topic: str) -> int:
        """Return the offset up to which a topic is read now; for a group, the settled offset in the topic's row."""
        if self._goal is not None:
            return self._goal.get(topic, 0)
        if not self.options.settle:
            return positions.settled(using, topic)
        settler = self._settlers.setdefault((using, topic), Settler(using, topic))
        settler.advance()
        return settler.shared_settled if self._group_reader else settler.settled
