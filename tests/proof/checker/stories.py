"""What happened to one message: when it was sent, the runs of it, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..history import DeadLettered, Deleted, Effect, Finished, Ignored, Left, Sent, Started
from .world import FOREVER

Fate = Literal["committed", "never", "maybe"]


@dataclass(slots=True, eq=False)
class Run:
    """A message in a handler.

    ``end``: when it finished, or its worker died; ``beside``: when it first was not alone in its worker. ``company``:
    the latest of its group that its worker still had in hand when it ended (a batch may be acked together).
    """

    started: Started
    finished: Finished | None = None
    end: int = FOREVER
    beside: int = FOREVER
    company: Run | None = None

    @property
    def at(self) -> int:
        return self.started.at

    @property
    def outcome(self) -> str:
        return self.finished.outcome if self.finished else ""

    @property
    def batch_end(self) -> int:
        """When those that were in hand with it had ended, too: it is answered right after that at the latest."""
        return max(self.end, self.company.end) if self.company else self.end

    @property
    def lease(self) -> str:
        """The lease that it ran under, as ``stolen`` names it; of keyless messages without the partition."""
        one = self.started
        return f"{one.group} {one.topic}" if one.key is None else f"{one.group} {one.topic} {one.key}"


@dataclass(slots=True, eq=False)
class Sending:
    """One time that a message was sent, and whether the queue said that its id was there already."""

    sent: Sent
    ignored: Ignored | None = None


@dataclass(slots=True, eq=False)
class Story:
    """All that happened to one message."""

    message: str
    sendings: list[Sending] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    others: list[DeadLettered | Deleted | Left | Finished | Ignored] = field(default_factory=list)
    """Also answers without a run, and refusals of what was not sent: such a history contradicts itself."""
    fate: Fate = "never"

    @property
    def dead(self) -> list[DeadLettered]:
        return [other for other in self.others if type(other) is DeadLettered]

    @property
    def deleted(self) -> list[Deleted]:
        return [other for other in self.others if type(other) is Deleted]

    @property
    def sent(self) -> Sent | None:
        return self.sendings[0].sent if self.sendings else None

    def is_seen(self) -> bool:
        """Whether the queue has shown it to anybody."""
        return bool(self.runs or any(type(other) in (DeadLettered, Deleted) for other in self.others))

    def runs_of(self, group: str) -> list[Run]:
        return [run for run in self.runs if run.started.group == group]

    def over_at(self, group: str) -> int:
        """When the group was first done with it, by a handler that said so or a dead letter; or ``FOREVER``."""
        first = FOREVER
        for run in self.runs:
            if run.end < first and run.outcome == "done" and run.started.group == group:
                first = run.end
        for other in self.others:
            if type(other) is DeadLettered and other.group == group:
                first = min(first, other.at)
        if first == FOREVER and any(effect.group == group for effect in self.effects):
            # Committed, and whoever did it did not hear of it: at some time in its last run.
            return max((run.end for run in self.runs_of(group) if run.end < FOREVER), default=0)
        return first
