"""What one batch of an archive run is: how far it goes with each topic's tables, and the tasks that read that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...service.finished import finished_upto
from ...store import bulk, unfinished
from ..options import ReadOptions, Table
from ..planning import ends, ranges
from ..ranges import Range
from .tasks import Task
from .topic_state import Last, TopicState


@dataclass(frozen=True)
class Goal:
    """What was settled when the run began: of a topic, and of its dead letters."""

    messages: int
    dead_letters: int


class Planner:
    """Plans the batches of a run. ``options``: how each table is read."""

    def __init__(self, options: Mapping[Table, ReadOptions], rows: int, history_age_ms: int) -> None:
        self._options, self._rows, self._age_ms = options, rows, history_age_ms
        self._history_goals: dict[str, int] = {}

    def reaches(
        self, using: str, standings: Sequence[TopicState], goals: Mapping[str, Goal]
    ) -> list[TopicState]:
        """How far the next batch goes, for those topics with which it goes on at all."""
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
        """What lies between where a topic stands and what is reached with this batch."""
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
        """Up to where delivery history goes.

        When all else is archived, what is finished then is the last that the run takes. A topic with traffic finishes a
        little more with each look, and a run that goes on as long as there is more would be batches of next to nothing.
        """
        topic, done = standing.topic, standing.upto
        if topic in self._history_goals:
            return self._history_goals[topic]
        found = finished_upto(using, topic, done["deliveries"], upto, self._age_ms)
        if done["messages"] >= goal.messages and done["dead_letters"] >= goal.dead_letters:
            self._history_goals[topic] = found
        return found

    def _last(self, using: str, standing: TopicState, upto: int) -> Last | None:
        """The last message that the archive has with this batch."""
        found = bulk.last(using, standing.topic, standing.upto["messages"], upto)
        return standing.last if found is None else Last(*found)

    def _ends(self, using: str, table: Table, stretches: list[tuple[str, int, int]]) -> dict[str, int]:
        """Up to where each goes; never back."""
        stretches = [(topic, above, max(above, upto)) for topic, above, upto in stretches]
        if sum(upto - above for _, above, upto in stretches) <= self._rows:
            return {topic: upto for topic, _, upto in stretches}
        return ends(using, self._options[table], stretches, self._rows)

    def _history(self, using: str, topic: str, above: int, upto: int) -> list[Range]:
        groups = tuple(sorted(unfinished.groups(using, topic))) if above < upto else ()
        if not groups:
            return []
        return ranges(using, replace(self._options["deliveries"], groups=groups), [(topic, above, upto)])
