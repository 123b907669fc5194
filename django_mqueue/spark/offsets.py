"""Where a read stands: for each topic the offset of the next message, as JSON in Spark's checkpoints.

Spark compares these as text, so the keys have one order. The text of a checkpoint may be given as ``startingOffsets``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .errors import OptionError


@dataclass(frozen=True)
class Offsets:
    """``next``: for each topic, the offset that is read first. ``lives``: of a group's registrations, by topic.

    ``query``: who reads for the group; the same one after a restart from the checkpoint.
    """

    next: Mapping[str, int]
    lives: Mapping[str, int] = field(default_factory=dict)
    query: str = ""

    def json(self) -> dict[str, Any]:
        """As Spark keeps it. Without a group it is the topics alone."""
        found: dict[str, Any] = {"topics": {topic: self.next[topic] for topic in sorted(self.next)}}
        if self.query:
            found["lives"] = {topic: self.lives[topic] for topic in sorted(self.lives)}
            found["query"] = self.query
        return found

    def above(self, topic: str) -> int:
        """The offset above which is what has not been read: 0 for a topic that is new."""
        return self.next.get(topic, 1) - 1

    def moved(self, next: Mapping[str, int], lives: Mapping[str, int]) -> Offsets:
        return replace(self, next={**self.next, **next}, lives={**self.lives, **lives})


def parsed(value: Mapping[str, Any]) -> Offsets:
    """Of what ``json`` gave. Raises ``OptionError`` for a checkpoint of something else."""
    topics = value.get("topics")
    if not isinstance(topics, Mapping) or not all(isinstance(each, int) for each in topics.values()):
        raise OptionError(
            f"the checkpoint is not one of format mqueue, its offset is {dict(value)!r}:"
            " begin with a new checkpointLocation"
        )
    lives = value.get("lives", {})
    return Offsets(
        {str(topic): int(next) for topic, next in topics.items()},
        {str(topic): int(life) for topic, life in lives.items()},
        str(value.get("query", "")),
    )
