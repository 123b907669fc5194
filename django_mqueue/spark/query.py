"""What a streaming query knows between its batches; all of it can be found out again."""

from __future__ import annotations

import random
import threading
import time
import uuid

from ..service.settling import Settler
from ..store import offsets as positions
from .connecting import Line
from .follower import Follower
from .offsets import Offsets
from .options import ReadOptions
from .planning import ends, ranges, resolved, topics_of
from .ranges import Range
from .settling import settled

TOPICS_EVERY = 1.0
"""Seconds between two looks for topics that match a pattern."""


class Query:
    """Plans the batches of one streaming query. Called by one thread."""

    def __init__(self, options: ReadOptions, made: float | None = None) -> None:
        """``made``: see ``Follower``."""
        self.options = options
        self.reported: Offsets | None = None
        self._line = Line(options.connecting)
        self._follower = Follower(options, made) if options.group else None
        self._settlers: dict[tuple[str, str], Settler] = {}
        self._topics: list[str] = []
        self._topics_at = self._idle_at = float("-inf")
        self._goal: dict[str, int] | None = None
        self._first: str | None = None
        """The topic whose turn it is, if not all can have one. They take turns in the order of names."""
        self._pause = threading.Event()

    def initial(self) -> Offsets:
        """Where a new query begins: where its group stands, or as the options say.

        Spark does not keep this: it asks again when it runs the very first batch again. So nothing follows from the
        query's name that is made here before the first end of a batch tells it.
        """
        query = uuid.uuid4().hex if self._follower else ""
        return self._line.run(lambda using: self._initial(using, query))

    def latest(self, begun: Offsets, most: int | None) -> Offsets:
        """Where the batch that begins there ends: where it begins, if there is nothing new.

        Where it begins all is durable (see ``streaming``), and the group is done with it.
        When there was nothing new a moment ago it waits for ``pollInterval``: left alone, Spark asks a hundred times
        a second.
        """
        self.done(begun)
        if (wait := self._idle_at + self.options.poll_interval - time.monotonic()) > 0:
            self._pause.wait(wait)
        now = self._line.run(lambda using: self._latest(using, begun, most))
        self._idle_at = time.monotonic() if now == begun else float("-inf")
        if self._follower and now != begun:
            self._follower.planned(now)
        return now

    def ranges(self, begun: Offsets, ended: Offsets) -> list[Range]:
        """A batch cut for its tasks. A topic that it begins with was not there before, and is read by the next one.

        It may have been planned by another process, which was killed: Spark does not ask ``latest`` for it then.
        """
        found = [
            (topic, begun.above(topic), ended.above(topic)) for topic in ended.next if topic in begun.next
        ]
        planned = self._line.run(lambda using: self._ranges(using, found, begun, ended))
        if self._follower:
            self._follower.planned(ended)
        return planned

    def done(self, upto: Offsets) -> None:
        """All of that is durable: the group is done with it."""
        if follower := self._follower:
            self._line.run(lambda using: follower.done(using, upto))

    def committed(self, upto: Offsets) -> None:
        """Spark says that all of that is durable."""
        self.done(upto)
        if self._follower:
            self._follower.check_checkpoint()

    def set_goal(self) -> None:
        """What is committed now is the last that is read."""
        told = self._follower is not None
        self._goal = self._line.run(
            lambda using: {
                topic: settled(using, topic, self.options, told=told)
                for topic in topics_of(using, self.options)
            }
        )

    def stop(self) -> None:
        # First the line: a signal may have come in the middle of a transaction, whose locks the follower asks for.
        self._line.close()
        if self._follower:
            self._follower.stop()

    def _initial(self, using: str, query: str) -> Offsets:
        found: dict[str, tuple[int, int]] = {}
        for topic in topics_of(using, self.options):
            last = settled(using, topic, self.options)
            above = resolved(using, topic, self.options.start, last, self.options.named(topic)) or 0
            found[topic] = above, last
        places = self._follower.begin(using, found) if self._follower else {}
        begun = {topic: places[topic].above if places else above for topic, (above, _) in found.items()}
        return Offsets(
            {topic: above + 1 for topic, above in begun.items()},
            {topic: place.life for topic, place in places.items()},
            query,
        )

    def _latest(self, using: str, begun: Offsets, most: int | None) -> Offsets:
        found, topics = [], self._current(using)
        new = {topic: (0, 0) for topic in topics if topic not in begun.next}
        places = self._follower.begin(using, new) if self._follower and new else {}
        for topic in topics:
            if topic in begun.next:
                above = begun.above(topic)
                found.append((topic, above, max(above, self._last(using, topic))))
            else:
                above = places[topic].above if places else 0
                found.append((topic, above, above))
        lives = self._follower.lives if self._follower else {}
        self.reported = begun.moved({topic: last + 1 for topic, _, last in found}, lives)
        reached = self._ends(using, found, most)
        return begun.moved({topic: upto + 1 for topic, upto in reached.items()}, lives)

    def _ranges(
        self, using: str, found: list[tuple[str, int, int]], begun: Offsets, ended: Offsets
    ) -> list[Range]:
        """A batch that is run again is the first that Spark asks for: the group may be anywhere by then, and some of
        its topics may be read no more."""
        if not (follower := self._follower):
            return ranges(using, self.options, found)
        batch = Offsets({topic: begun.next[topic] for topic, *_ in found}, ended.lives, ended.query)
        follower.resume(using, batch)
        found = [
            (topic, above, upto)
            for topic, above, upto in found
            if self.options.reads(topic) or (above < upto and follower.holds(using, topic, batch))
        ]
        planned = ranges(using, self.options, found)
        for topic, *_ in found:  # Now: what is deleted from here on is missed by the task that reads it.
            follower.check(using, topic, batch)
        return planned

    def _ends(self, using: str, found: list[tuple[str, int, int]], most: int | None) -> dict[str, int]:
        """Up to where each topic is read. Those that get nothing, where there are too many, come first the next time.

        A query that begins anew begins anywhere: were it always the same place, and did it end after each batch, the
        others would never be read.
        """
        if self._first is None and found:
            self._first = random.choice(found)[0]
        turns = sorted(found, key=lambda each: (each[0] < (self._first or ""), each[0]))
        reached = ends(using, self.options, turns, most)
        left_out = [topic for topic, above, upto in turns if reached[topic] == above < upto]
        self._first = left_out[0] if left_out else self._first
        return reached

    def _current(self, using: str) -> list[str]:
        if not self._topics or (self.options.pattern and time.monotonic() >= self._topics_at + TOPICS_EVERY):
            self._topics, self._topics_at = topics_of(using, self.options), time.monotonic()
        return self._topics

    def _last(self, using: str, topic: str) -> int:
        """Up to where a topic can be read now. A group reads no more than it may be done with: what others know to be
        settled, too."""
        if self._goal is not None:
            return self._goal.get(topic, 0)
        if not self.options.settle:
            return positions.settled(using, topic)
        if (using, topic) not in self._settlers:
            self._settlers[using, topic] = Settler(using, topic)
        settler = self._settlers[using, topic]
        settler.advance()
        return settler.told if self._follower else settler.settled
