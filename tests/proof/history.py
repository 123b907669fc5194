"""The history of a run: what publishers, workers, faults and an observer saw, each with its moment.

A message is named by what its publisher wrote into its payload, so that it is known before it is sent. Moments are
nanoseconds of the machine's monotonic clock, which no fault moves: all processes of a run are on one machine. What
the database noted (deletions, dead letters) is carried over to that clock when the run ends.
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
    """This moment, in nanoseconds. Not ``time.monotonic``: faults move that one."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


@dataclass(frozen=True, slots=True)
class Registered:
    """A group was registered for a topic, before anything was published there."""

    at: int
    topic: str
    group: str
    strict: bool
    max_attempts: int
    atomic: bool = False
    """Its handler's effects and the ack are one commit; there is an ``Effect`` for each at the end."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A publisher is about to send a message, inside ``transaction`` (its own name for it)."""

    at: int
    publisher: str
    transaction: str
    message: str
    topic: str
    key: str | None


@dataclass(frozen=True, slots=True)
class Ignored:
    """The queue told the publisher that the message's id was there already: it was not stored."""

    at: int
    message: str


@dataclass(frozen=True, slots=True)
class Closed:
    """A publisher's transaction has ended. Without this event, or when the connection died: ``unknown``."""

    at: int
    transaction: str
    outcome: Literal["committed", "rolled back", "unknown"]


@dataclass(frozen=True, slots=True)
class Started:
    """A handler was given a message, in process ``worker``."""

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
    """That handler has ended; the answer follows. Without this event the worker died."""

    at: int
    worker: str
    group: str
    message: str
    attempt: int
    outcome: Literal["done", "failed", "rejected", "postponed"]


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """There is a dead letter. ``failures`` is what it says of itself."""

    at: int
    topic: str
    group: str
    message: str
    failures: int


@dataclass(frozen=True, slots=True)
class Effect:
    """What an atomic group's handler wrote for a message is there, so many times, when all is over."""

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
    """A partition with work has no valid lease, ``owned=False``; or has one again, or no work."""

    at: int
    topic: str
    group: str
    partition: str
    owned: bool


@dataclass(frozen=True, slots=True)
class Fault:
    """Something was done to the run.

    ``kind`` and ``target``: ``killed``, ``stopped``, ``continued``, ``left`` (asked to end, and has), ``joined``: a
    worker or publisher; ``server down``, ``server up``: ''; ``stolen``: ``group topic partition`` of a lease;
    anything else is told in stories, and excuses nothing.
    """

    at: int
    kind: str
    target: str = ""


@dataclass(frozen=True, slots=True)
class Left:
    """Something was still there when all was over: a row of the log, or of a group's delivery state."""

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
        Registered, Sent, Ignored, Closed, Started, Finished, DeadLettered, Effect, Deleted, Unowned, Fault, Left,
    )
}  # fmt: skip


class Writer:
    """One process's part of a history: a line for each event, there as soon as ``write`` returns.

    A killed process loses nothing of it: the kernel has the line. May be shared by threads.
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
    """All parts of a history, in the order of their moments. A last line that a kill cut short is left out."""
    events: list[Event] = []
    for path in sorted(directory.glob(f"*{Writer.SUFFIX}")):
        with path.open("rb") as lines:
            events.extend(parse(text) for text in lines if text.endswith(b"\n"))
    events.sort(key=lambda event: event.at)
    return events


def told(events: Iterable[Event]) -> Iterator[str]:
    """Events as lines for people, the first one's moment being 0 s."""
    first: int | None = None
    for event in events:
        first = event.at if first is None else first
        rest = ", ".join(f"{name}={value!r}" for name, value in asdict(event).items() if name != "at")
        yield f"{(event.at - first) / 1e9:12.6f} s  {type(event).__name__}({rest})"
