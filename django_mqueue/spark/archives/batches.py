"""The plan of one batch of an archive run: the end offset of each table of a topic, and the tasks that read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...store.queries import unfinished
from ..database.finished import finished_upto
from ..reader.options import ReadOptions, Table
from ..reader.planning import ends, ranges
from ..reader.ranges import Range
from ..sql import bulk
from .tasks import Task
from .topic_state import Last, TopicState


@dataclass(frozen=True)
class Goal:
    """The settled offsets when the run began: of a topic, and of its dead letters."""

    messages: int
    dead_letters: int


class Planner:
    """Plans the batches of a run. ``options``: how tasks read each table."""

    def __init__(self, options: Mapping[Table, ReadOptions], rows: int, history_age_ms: int) -> None:
        self._options, self._rows, self._age_ms = options, rows, history_age_ms
        self._history_goals: dict[str, int] = {}

    def reaches(
        self, using: str, standings: Sequence[TopicState], goals: Mapping[str, Goal]
    ) -> list[TopicState]:
        """Return the states that the topics have after the next batch, without topics that have nothing new."""
        letters_of = self._options["messages"].suffixes.letters
        messages = self._ends(
            using, "messages", [(s.topic, s.upto["messages"], goals[s.topic].messages) for s in standings]
        )
        letters = self._ends(
            using,
            "dead_letters",
            [(letters_of(s.topic), s.upto["dead_letters"], goals[s.topic].dead_letters) for s in standings],
        )
        history = self._ends(
            using,
            "deliveries",
            [
                (s.topic, s.upto["deliveries"], self._finished(using, s, goals[s.topic], messages[s.topic]))
                for s in standings
            ],
        )
        found = []
        for standing in standings:
            upto: dict[Table, int] = {
                "messages": messages[standing.topic],
                "dead_letters": letters[letters_of(standing.topic)],
                "deliveries": history[standing.topic],
            }
            if upto != standing.upto:
                position = max(standing.position, min(upto["messages"], upto["deliveries"]))
                last = self._last(using, standing, upto["messages"])
                found.append(replace(standing, upto=upto, position=position, begun=True, last=last))
        return found

    def tasks(self, using: str, standing: TopicState, reached: TopicState) -> list[Task]:
        """Return the tasks that read a topic from its current state to the state after this batch."""
        topic, before, upto = standing.topic, standing.upto, reached.upto
        messages = ranges(using, self._options["messages"], [(topic, before["messages"], upto["messages"])])
        letters_topic = self._options["messages"].suffixes.letters(topic)
        letters = ranges(
            using,
            self._options["dead_letters"],
            [(letters_topic, before["dead_letters"], upto["dead_letters"])],
        )
        history = self._history(using, topic, before["deliveries"], upto["deliveries"])
        found: list[tuple[Table, list[Range]]] = [
            ("messages", messages), ("dead_letters", letters), ("deliveries", history),
        ]  # fmt: skip
        return [Task(topic, table, range) for table, some in found for range in some]

    def _finished(self, using: str, standing: TopicState, goal: Goal, upto: int) -> int:
        """Return the offset up to which delivery history is archived.

        When all messages and dead letters are archived, this offset stays fixed for the rest of the run. A busy topic
        finishes a few more messages at any time, so the run would otherwise continue with tiny batches.
        """
        topic, done = standing.topic, standing.upto
        if topic in self._history_goals:
            return self._history_goals[topic]
        found = finished_upto(using, topic, done["deliveries"], upto, self._age_ms)
        if done["messages"] >= goal.messages and done["dead_letters"] >= goal.dead_letters:
            self._history_goals[topic] = found
        return found

    def _last(self, using: str, standing: TopicState, upto: int) -> Last | None:
        """Return the last message that the archive has after this batch."""
        found = bulk.last(using, standing.topic, standing.upto["messages"], upto)
        return standing.last if found is None else Last(*found)

    def _ends(self, using: str, table: Table, stretches: list[tuple[str, int, int]]) -> dict[str, int]:
        """Return the end offset of each topic; never below its start."""
        stretches = [(topic, above, max(above, upto)) for topic, above, upto in stretches]
        if sum(upto - above for _, above, upto in stretches) <= self._rows:
            return {topic: upto for topic, _, upto in stretches}
        return ends(using, self._options[table], stretches, self._rows)

    def _history(self, using: str, topic: str, above: int, upto: int) -> list[Range]:
        groups = tuple(sorted(unfinished.groups(using, topic))) if above < upto else ()
        if not groups:
            return []
        return ranges(using, replace(self._options["deliveries"], groups=groups), [(topic, above, upto)])
