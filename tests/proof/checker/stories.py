"""The story of one message: its sendings, its runs, and its end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ..history import DeadLettered, Deleted, Effect, Finished, Ignored, Left, Sent, Started
from .world import FOREVER

Fate = Literal["committed", "never", "maybe"]


@dataclass(slots=True, eq=False)
class Run:
    """One run of a handler with a message.

    ``end``: the handler finished, or its worker died. ``beside``: the first time at which another message ran in the
    same worker. ``company``: the latest run of the group that this worker had not ended when this run ended. A worker
    may ack a batch together.
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
        """Return the end of the worker's batch. The worker answers right after this time at the latest."""
        return max(self.end, self.company.end) if self.company else self.end

    @property
    def lease(self) -> str:
        """Return the name of the lease, as in ``stolen`` faults. Messages without a key omit the partition."""
        one = self.started
        return f"{one.group} {one.topic}" if one.key is None else f"{one.group} {one.topic} {one.key}"


@dataclass(slots=True, eq=False)
class Sending:
    """One sending of a message. ``ignored`` is set if the queue reported the id as a duplicate."""

    sent: Sent
    ignored: Ignored | None = None


@dataclass(slots=True, eq=False)
class Story:
    """All events of one message."""

    message: str
    sendings: list[Sending] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)
    others: list[DeadLettered | Deleted | Left | Finished | Ignored] = field(default_factory=list)
    """Also contains answers without a run, and refusals of unsent messages. Such a history contradicts itself."""
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
        """Return True if a handler, a dead letter or a deletion has shown the message."""
        return bool(self.runs or any(type(other) in (DeadLettered, Deleted) for other in self.others))

    def runs_of(self, group: str) -> list[Run]:
        return [run for run in self.runs if run.started.group == group]

    def over_at(self, group: str) -> int:
        """Return the time when the group first finished the message, by a successful run or a dead letter, or
        ``FOREVER``.
        """
        first = FOREVER
        for run in self.runs:
            if run.end < first and run.outcome == "done" and run.started.group == group:
                first = run.end
        for other in self.others:
            if type(other) is DeadLettered and other.group == group:
                first = min(first, other.at)
        if first == FOREVER and any(effect.group == group for effect in self.effects):
            # The effect committed, but the worker did not receive the result. It happened during one of the runs.
            return max((run.end for run in self.runs_of(group) if run.end < FOREVER), default=0)
        return first
