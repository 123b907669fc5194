"""The history of a run: the events of publishers, workers, faults and an observer, each with its time.

The publisher writes the name of a message into its payload, so the name is known before the sending. Times are
nanoseconds of the machine's monotonic clock. No fault changes this clock, and all processes of a run share one machine.
The observer converts the database's times (deletions, dead letters) to this clock at the end of the run.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Literal


def now() -> int:
    """Return the current time in nanoseconds. Faults change ``time.monotonic``, so this function does not use it."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


@dataclass(frozen=True, slots=True)
class Registered:
    """A group was registered for a topic, before the first message was published there."""

    at: int
    topic: str
    group: str
    strict: bool
    max_attempts: int
    atomic: bool = False
    """The handler's effects and the ack are one commit. The history ends with an ``Effect`` for each."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A publisher is about to send a message in ``transaction``, a name that the publisher chose."""

    at: int
    publisher: str
    transaction: str
    message: str
    topic: str
    key: str | None
    delay: float = 0.0
    """Seconds until a scheduled message is due."""


@dataclass(frozen=True, slots=True)
class Ignored:
    """The queue reported the message's id as a duplicate, and did not store the message."""

    at: int
    message: str


@dataclass(frozen=True, slots=True)
class Closed:
    """A publisher's transaction has ended. If its result or this event is missing, the outcome is ``unknown``."""

    at: int
    transaction: str
    outcome: Literal["committed", "rolled back", "unknown"]


@dataclass(frozen=True, slots=True)
class Started:
    """A handler in the process ``worker`` received a message."""

    at: int
    worker: str
    group: str
    topic: str
    key: str | None
    message: str
    offset: int
    attempt: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The handler has ended, and the answer follows. If this event is missing, the worker died."""

    at: int
    worker: str
    group: str
    message: str
    attempt: int
    outcome: Literal["done", "failed", "rejected", "postponed"]


@dataclass(frozen=True, slots=True)
class Handed:
    """A thread of ``worker`` got several messages of a group: a lot of several ``calls``, or one call with a batch."""

    at: int
    worker: str
    group: str
    calls: int
    messages: int


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """A dead letter exists. ``failures`` is its failure count."""

    at: int
    topic: str
    group: str
    message: str
    failures: int


@dataclass(frozen=True, slots=True)
class Effect:
    """An atomic handler's write for a message exists ``count`` times at the end of the run."""

    at: int
    topic: str
    group: str
    message: str
    offset: int
    count: int


@dataclass(frozen=True, slots=True)
class Deleted:
    """The message has left the log."""

    at: int
    topic: str
    message: str
    offset: int


@dataclass(frozen=True, slots=True)
class Unowned:
    """A partition with work has no valid lease (``owned=False``), or it has a lease again or no work."""

    at: int
    topic: str
    group: str
    partition: str
    owned: bool


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault hit the run.

    ``kind`` and ``target``: ``killed``, ``stopped``, ``continued``, ``left`` (was asked to end, and ended) and
    ``joined`` name a worker or publisher, and ``ready`` a worker that has imported its handlers. ``server down`` and
    ``server up`` have no target. ``stolen`` names a lease: ``group topic partition``. Stories show any other kind, but
    it excuses nothing.
    """

    at: int
    kind: str
    target: str = ""


@dataclass(frozen=True, slots=True)
class Left:
    """A row of the log or of a group's delivery state existed after the run."""

    at: int
    table: str
    topic: str
    message: str


Event = (
    Registered
    | Sent
    | Ignored
    | Closed
    | Started
    | Finished
    | Handed
    | DeadLettered
    | Effect
    | Deleted
    | Unowned
    | Fault
    | Left
)
KINDS: dict[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        Registered, Sent, Ignored, Closed, Started, Finished, Handed, DeadLettered, Effect, Deleted, Unowned, Fault,
        Left,
    )
}  # fmt: skip


class Writer:
    """One process's part of a history. Each event is a line, complete when ``write`` returns.

    A kill loses no line, because the kernel has it. Several threads may share a writer.
    """

    SUFFIX: ClassVar[str] = ".jsonl"

    def __init__(self, directory: Path, name: str) -> None:
        path = directory / f"{name}{self.SUFFIX}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write(self, *events: Event) -> None:
        os.write(self._file, b"".join(line(event) for event in events))

    def close(self) -> None:
        os.close(self._file)


def line(event: Event) -> bytes:
    values = [getattr(event, field.name) for field in fields(event)]
    return json.dumps([type(event).__name__, *values], separators=(",", ":")).encode() + b"\n"


def parse(text: str | bytes) -> Event:
    kind, *values = json.loads(text)
    event: Event = KINDS[kind](*values)
    return event


def read(directory: Path) -> list[Event]:
    """Read all parts of a history, in the order of time. Skip a last line that a kill cut short."""
    events: list[Event] = []
    for path in sorted(directory.glob(f"*{Writer.SUFFIX}")):
        with path.open("rb") as lines:
            events.extend(parse(text) for text in lines if text.endswith(b"\n"))
    events.sort(key=lambda event: event.at)
    return events


def told(events: Iterable[Event]) -> Iterator[str]:
    """Yield the events as readable lines. The first event is at 0 s."""
    first: int | None = None
    for event in events:
        first = event.at if first is None else first
        rest = ", ".join(f"{name}={value!r}" for name, value in asdict(event).items() if name != "at")
        yield f"{(event.at - first) / 1e9:12.6f} s  {type(event).__name__}({rest})"
