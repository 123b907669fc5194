"""Histories written by hand, in seconds. A test adds events to a tale, and the checker returns the breaches."""

from __future__ import annotations

from typing import Literal, Self

from tests.proof.checker import Breach, Rules, check
from tests.proof.history import (
    Closed,
    DeadLettered,
    Deleted,
    Effect,
    Event,
    Fault,
    Finished,
    Ignored,
    Left,
    Registered,
    Sent,
    Started,
    Unowned,
)

RULES = Rules(lease=5.0, slack=1.0)
TOPIC, GROUP, KEY = "orders", "billing", "k"
Outcome = Literal["done", "failed", "rejected", "postponed"]
End = Literal["committed", "rolled back", "unknown"]


def ns(seconds: float) -> int:
    return round(seconds * 1e9)


class Tale:
    """A history under construction. Each method adds events and returns the tale."""

    def __init__(
        self,
        *,
        strict: bool = False,
        atomic: bool = False,
        max_attempts: int = 3,
        groups: tuple[str, ...] = (GROUP,),
    ) -> None:
        self.events: list[Event] = [
            Registered(0, TOPIC, group, strict, max_attempts, atomic) for group in groups
        ]
        self._keys: dict[str, str | None] = {}
        self._offsets: dict[str, int] = {}

    def sent(
        self, at: float, *messages: str, key: str | None = KEY, transaction: str = "", end: End | None = "committed",
        closed: float | None = None, delay: float = 0.0,
    ) -> Self:  # fmt: skip
        """Add messages of one transaction, a millisecond apart. The transaction ends 0.1 s later."""
        name = transaction or f"of {messages[0]}"
        for place, message in enumerate(messages):
            self._keys[message] = key
            self._offsets.setdefault(message, len(self._offsets) + 1)
            self.events.append(Sent(ns(at + place / 1000), "publisher.1", name, message, TOPIC, key, delay))
        if end is not None:
            self.events.append(Closed(ns(at + 0.1 if closed is None else closed), name, end))
        return self

    def ignored(self, at: float, message: str) -> Self:
        self.events.append(Ignored(ns(at), message))
        return self

    def run(
        self, at: float, message: str, until: float | None = None, outcome: Outcome = "done", *, worker: str = "w1",
        attempt: int = 1, group: str = GROUP, offset: int | None = None,
    ) -> Self:  # fmt: skip
        """Add a run. It takes 10 ms, unless ``until`` sets its end."""
        self.started(at, message, worker=worker, attempt=attempt, group=group, offset=offset)
        end = at + 0.01 if until is None else until
        return self.finished(end, message, outcome, worker=worker, attempt=attempt, group=group)

    def started(
        self, at: float, message: str, *, worker: str = "w1", attempt: int = 1, group: str = GROUP,
        offset: int | None = None,
    ) -> Self:  # fmt: skip
        """Add a run without an end."""
        place = self._offsets.get(message, 99) if offset is None else offset
        key = self._keys.get(message, KEY)
        self.events.append(Started(ns(at), worker, group, TOPIC, key, message, place, attempt))
        return self

    def finished(
        self, at: float, message: str, outcome: Outcome = "done", *, worker: str = "w1", attempt: int = 1,
        group: str = GROUP,
    ) -> Self:  # fmt: skip
        self.events.append(Finished(ns(at), worker, group, message, attempt, outcome))
        return self

    def fault(self, at: float, kind: str, target: str = "") -> Self:
        self.events.append(Fault(ns(at), kind, target))
        return self

    def stopped(self, at: float, until: float, worker: str = "w1") -> Self:
        return self.fault(at, "stopped", worker).fault(until, "continued", worker)

    def server_down(self, at: float, until: float) -> Self:
        return self.fault(at, "server down").fault(until, "server up")

    def stolen(self, at: float, key: str = KEY, group: str = GROUP) -> Self:
        return self.fault(at, "stolen", f"{group} {TOPIC} {key}")

    def dead(self, at: float, message: str, failures: int, group: str = GROUP) -> Self:
        self.events.append(DeadLettered(ns(at), TOPIC, group, message, failures))
        return self

    def effect(self, message: str, count: int = 1, *, offset: int | None = None, group: str = GROUP) -> Self:
        """Add the number of effects that exist at the end."""
        place = self._offsets.get(message, 99) if offset is None else offset
        self.events.append(Effect(ns(90), TOPIC, group, message, place, count))
        return self

    def deleted(self, at: float, message: str, offset: int | None = None) -> Self:
        place = self._offsets.get(message, 99) if offset is None else offset
        self.events.append(Deleted(ns(at), TOPIC, message, place))
        return self

    def unowned(self, at: float, until: float | None, partition: str = KEY) -> Self:
        self.events.append(Unowned(ns(at), TOPIC, GROUP, partition, owned=False))
        if until is not None:
            self.events.append(Unowned(ns(until), TOPIC, GROUP, partition, owned=True))
        return self

    def left(self, at: float, message: str, table: str = "queue_messages") -> Self:
        self.events.append(Left(ns(at), table, TOPIC, message))
        return self

    def breaches(self) -> list[Breach]:
        return check(self.events, RULES)

    def wrong(self) -> set[tuple[str, str]]:
        """Return (rule, message) of each breach."""
        return {(breach.rule, breach.subject) for breach in self.breaches()}
