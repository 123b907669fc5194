"""One batch of an archive run: the end offset of each table of a topic, and the tasks that read and write it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.types import StructField, StructType, TimestampType

from ...store import offsets
from ..database.finished import finished_upto
from ..reader.options import ReadOptions, Table
from ..reader.planning import ends, ranges
from ..reader.ranges import Range
from ..reader.reading import read
from ..reader.settling import settled
from ..sql import bulk
from .parquet import FileEntry, arrow_schema, files_of, schema
from .storage import storage_at
from .topic_state import TopicState

GAP = (
    "during the run, although the archive's group was not done with them. Run it again: it continues, or names the"
    " cause"
)
"""The end of the error that messages were deleted."""


@dataclass(frozen=True)
class Task:
    """A range to archive. ``topic``: the archived topic. Dead letters are in another topic, which ``range`` names."""

    topic: str
    table: Table
    range: Range


class Planner:
    """Plans the batches of a run. ``goals``: the offsets to which the run reads each topic, by table."""

    def __init__(self, options: Mapping[Table, ReadOptions], rows: int, history_age_ms: int) -> None:
        self._options, self._rows, self._age_ms = options, rows, history_age_ms
        self.goals: dict[str, dict[Table, int]] = {}

    def set_goals(self, using: str, topics: Sequence[str]) -> None:
        """Use the present settled offsets as the goals of the topics."""
        options = self._options["messages"]
        messages = settled(using, topics, options, shared=True)
        dead_letter_topics = [self._in_log("dead_letters", topic) for topic in topics]
        dead_letters = settled(using, dead_letter_topics, options)
        for topic, dead_letter_topic in zip(topics, dead_letter_topics, strict=True):
            self.goals[topic] = {"messages": messages[topic], "dead_letters": dead_letters[dead_letter_topic]}

    def next_states(self, using: str, states: Sequence[TopicState]) -> list[TopicState]:
        """Return the states of the topics after the next batch. Leave out topics that have nothing new."""
        goals = self.goals
        messages = self._ends(using, "messages", states, [goals[s.topic]["messages"] for s in states])
        dead_letters = self._ends(
            using, "dead_letters", states, [goals[s.topic]["dead_letters"] for s in states]
        )
        finished = [self._finished(using, s, upto) for s, upto in zip(states, messages, strict=True)]
        history = self._ends(using, "deliveries", states, finished)
        found = []
        for state, *ends_now in zip(states, messages, dead_letters, history, strict=True):
            upto: dict[Table, int] = {
                "messages": ends_now[0], "dead_letters": ends_now[1], "deliveries": ends_now[2],
            }  # fmt: skip
            if upto != state.upto:
                position = max(state.position, min(upto["messages"], upto["deliveries"]))
                last = bulk.last(using, state.topic, state.upto["messages"], upto["messages"]) or state.last
                found.append(replace(state, upto=upto, position=position, begun=True, last=last))
        return found

    def tasks(self, using: str, before: TopicState, after: TopicState) -> list[Task]:
        """Return the tasks that read a topic from its current state to the state after this batch."""
        tasks = []
        for table, options in self._options.items():
            above, upto = before.upto[table], after.upto[table]
            if table == "deliveries":
                groups = tuple(sorted(offsets.delivery_starts(using, before.topic))) if above < upto else ()
                if not groups:
                    continue
                options = replace(options, groups=groups)
            task_ranges = ranges(using, options, [(self._in_log(table, before.topic), above, upto)])
            tasks += [Task(before.topic, table, range) for range in task_ranges]
        return tasks

    def _in_log(self, table: Table, topic: str) -> str:
        """Return the topic of the log that has the rows of a table."""
        return self._options[table].suffixes.dead_letter_topic(topic) if table == "dead_letters" else topic

    def _finished(self, using: str, state: TopicState, upto: int) -> int:
        """Return the offset up to which the next batch archives the delivery history."""
        goals = self.goals[state.topic]
        if "deliveries" in goals:
            return goals["deliveries"]
        found = finished_upto(using, state.topic, state.upto["deliveries"], upto, self._age_ms)
        if all(state.upto[table] >= goal for table, goal in goals.items()):
            goals["deliveries"] = found  # Keep this goal, or a busy topic gives tiny batches forever.
        return found

    def _ends(
        self, using: str, table: Table, states: Sequence[TopicState], goals: Sequence[int]
    ) -> list[int]:
        """Return the end offset of the next batch for each topic."""
        spans = [
            (self._in_log(table, state.topic), state.upto[table], max(state.upto[table], goal))
            for state, goal in zip(states, goals, strict=True)
        ]
        if sum(upto - above for _, above, upto in spans) <= self._rows:
            return [upto for _, _, upto in spans]
        found = ends(using, self._options[table], spans, self._rows)
        return [found[topic] for topic, _, _ in spans]


def write_task(to: str, options: Mapping[Table, ReadOptions], task: Task) -> list[FileEntry]:
    """Write the files of a task, on an executor, read them back, and return them.

    Raises ``LogGap`` if messages were deleted after the task was planned.
    """
    with files_of(storage_at(to), task.table, task.topic, arrow_schema(task.table)) as files:
        for batch in rows(task, options[task.table]):
            # Dead letters have another topic. Tools disagree about a column that differs from its Delta partition.
            topics = pa.array([task.topic] * batch.num_rows, pa.string())
            files.add(batch.set_column(batch.schema.get_field_index("topic"), "topic", topics))
    return files.entries


def rows(task: Task, options: ReadOptions) -> Iterator[pa.RecordBatch]:
    """Return the rows of a task, with the column ``published_at``. Raises ``LogGap`` at the end if rows are missing."""
    fetched = schema(task.table)
    if "published_at" not in fetched.fieldNames():
        fetched = StructType([*fetched.fields, StructField("published_at", TimestampType())])
    return read(task.range, fetched, options, GAP)
