"""The position of a read: for each topic, the offset of the next message. Spark keeps it as JSON in its checkpoints.

Spark compares positions as text, so the keys are sorted. Users may give the text from a checkpoint as
``startingOffsets``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import OptionError


@dataclass(frozen=True)
class Offsets:
    """A position of a read. By topic: ``next`` is the offset that is read first, ``lives`` the registration generation.

    ``query``: the name of the query that reads for the group. It stays the same after a restart from the checkpoint.
    """

    next: Mapping[str, int]
    lives: Mapping[str, int] = field(default_factory=dict)
    query: str = ""

    def json(self) -> dict[str, Any]:
        """Return the position as Spark keeps it. Without a group, it contains only the topics."""
        found: dict[str, Any] = {"topics": {topic: self.next[topic] for topic in sorted(self.next)}}
        if self.query:
            found["lives"] = {topic: self.lives[topic] for topic in sorted(self.lives)}
            found["query"] = self.query
        return found

    def above(self, topic: str) -> int:
        """Return the offset above which nothing is read yet: 0 for a new topic."""
        return self.next.get(topic, 1) - 1

    def moved(self, next: Mapping[str, int], lives: Mapping[str, int]) -> Offsets:
        return replace(self, next={**self.next, **next}, lives={**self.lives, **lives})


def parsed(value: Mapping[str, Any]) -> Offsets:
    """Return the position from the value that ``json`` returned. Raises ``OptionError`` for any other checkpoint."""
    topics = value.get("topics")
    if not isinstance(topics, Mapping) or not all(isinstance(each, int) for each in topics.values()):
        raise OptionError(
            f"the checkpoint does not belong to format mqueue, its offset is {dict(value)!r}: start with a new"
            " checkpointLocation"
        )
    lives = value.get("lives", {})
    return Offsets(
        {str(topic): int(next) for topic, next in topics.items()},
        {str(topic): int(life) for topic, life in lives.items()},
        str(value.get("query", "")),
    )
