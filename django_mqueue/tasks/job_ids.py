"""The ids of jobs. An id names the queue and the priority, so that a job is found by its id alone."""

from __future__ import annotations

from dataclasses import dataclass

from ..policy.names import ID_MAX, PRIORITY_MAX, PRIORITY_MIN, one_at_a_time, spread_partition
from ..store.log import MessageKey

GROUP = "tasks"
"""The consumer group of the workers that run jobs."""
MARK = "#"
"""Separates the key and the number in the last part of a unique job's id."""
LIMITED, SLOT = "=", "@"
"""They enclose the name of the partition in the last part of the id of a job with a limit."""
PAUSED = "@paused"
"""The end of the id of the scheduled message that marks a paused recurring job."""


def topic_of(queue: str) -> str:
    """Return the topic of a queue's jobs."""
    return f"tasks.{queue}"


@dataclass(frozen=True)
class JobId:
    """The parts of a job's id. ``spread``: the number of partitions among which its hash selects one."""

    queue: str
    priority: int
    spread: int
    suffix: str

    @classmethod
    def parse(cls, text: str) -> JobId | None:
        """Return the parts of an id, or None if no job can have it."""
        try:
            queue, priority, spread, suffix = text.rsplit(".", 3)
            found = cls(queue, int(priority), int(spread), suffix)
        except ValueError:
            return None
        in_range = PRIORITY_MIN <= found.priority <= PRIORITY_MAX and found.spread > 0 and len(text) <= ID_MAX
        return found if queue and in_range and str(found) == text else None

    def __str__(self) -> str:
        return f"{self.queue}.{self.priority}.{self.spread}.{self.suffix}"

    @property
    def topic(self) -> str:
        return topic_of(self.queue)

    @property
    def message_key(self) -> MessageKey:
        return self.partition, str(self), ""

    @property
    def partition(self) -> str:
        if self.suffix.startswith(LIMITED):
            return one_at_a_time(self.suffix.removeprefix(LIMITED).partition(SLOT)[0])
        # The jobs of one key are in one partition: their ids differ after the mark.
        head, dot, suffix = str(self).rpartition(".")
        return spread_partition(head + dot + suffix.partition(MARK)[0], self.spread, self.priority)
