"""What an implementation has to provide to be put through the scenarios.

The scenarios know nothing but what stands here. Point them at an implementation by naming its class, which
is called without arguments and entered as a context manager for each test::

    MQUEUE_CONFORMANCE=package.module:Class python -m pytest tests/conformance

Leases outlast every test. They end only where a scenario says so: ``Subscriber.crash`` and ``stall``, ``Worker.kill``
and ``stall``. An implementation may set the times that it has stored back there, or wait until its leases have expired.
What happens from time to time (looking for members and partitions, watermarks, deletion) happens within
``System.looks`` polls that are 10 ms apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

import pytest

from .messages import Delivery as Delivery
from .messages import Message as Message
from .messages import Published as Published
from .messages import Reply as Reply
from .messages import Scheduled as Scheduled


class Subscriber(Protocol):
    """A member of a group. Several of them may be polled in turn by one thread."""

    @property
    def name(self) -> str: ...

    def poll(self, max_messages: int = 100) -> Sequence[Delivery]:
        """What is this member's to handle now, perhaps nothing; never waits.

        All that is due from time to time is done in here, or elsewhere.
        """
        ...

    def ack(self, deliveries: Sequence[Any]) -> bool:
        """Ack many. Raises ``System.stale`` if some were not this member's any more; the others are acked."""
        ...

    def close(self) -> None:
        """Leave the group: others take over at once."""
        ...

    def crash(self) -> None:
        """Never do anything again. Its leases have expired. Its deliveries may still try to answer."""
        ...

    def stall(self) -> None:
        """Do nothing until its leases have expired. It may be polled again after that."""
        ...


class Worker(Protocol):
    """A process that hands messages to handlers."""

    @property
    def pid(self) -> int: ...

    @property
    def running(self) -> bool: ...

    def ask_to_stop(self) -> None:
        """Take nothing new, finish what runs, answer it, leave: SIGTERM."""
        ...

    def wait(self) -> int:
        """The exit code, once it has ended."""
        ...

    def kill(self) -> None:
        """SIGKILL, if it still runs. Its leases have expired."""
        ...

    def stall(self) -> None:
        """SIGSTOP. Its leases have expired."""
        ...

    def wake(self) -> None:
        """SIGCONT."""
        ...


@dataclass(frozen=True)
class Handler:
    """What a worker shall run: ``handling.handle`` for each message of ``topic``, for ``group``.

    A handler that returns has acked. One that raises ``handling.Asked`` has told what it wants (retry, reject,
    postpone). Any other exception is a failed attempt, tried again after ``retry`` seconds; of several, each attempt
    has its own, and the last is that of all further ones; None is dead-lettered. ``atomic``: what it publishes and the
    ack are one transaction. ``filter``: headers that must match; others are acked unread. ``kinds``: those it takes;
    others are dead-lettered at once.
    """

    topic: str
    group: str
    strict: bool = False
    batch_size: int = 10
    max_attempts: int = 3
    visibility_timeout: float = 60
    retry: float | tuple[float, ...] | None = 0.05
    atomic: bool = False
    filter: Mapping[str, Any] | None = None
    kinds: tuple[str, ...] | None = None


class System(Protocol):
    """An implementation, empty at the start of each test."""

    marks: Sequence[pytest.MarkDecorator]
    """Given to each scenario: what pytest has to set up first, a database for instance."""

    looks: int
    """After so many polls everything that happens from time to time has happened several times."""

    stale: type[Exception]
    """Raised by answers that come too late."""

    unknown: type[Exception]
    """Raised for groups that are not registered."""

    active: type[Exception]
    """Raised by ``reset`` of a group whose members run."""

    unanswered: type[Exception]
    """Raised by ``request`` when no reply came in time."""

    failed: type[Exception]
    """Raised by ``request`` when the only group that could reply has dead-lettered the message."""

    def __enter__(self) -> System: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every worker and thread of this test."""
        ...

    def publish(
        self,
        topic: str,
        payload: Any,
        *,
        key: str | None = None,
        id: str | None = None,
        kind: str = "",
        headers: Mapping[str, Any] | None = None,
        group: str | None = None,
        delay: float = 0,
    ) -> Published:
        """In this thread's open transaction; else at once. ``payload``: what JSON can say, or bytes. ``group``: the
        message is for that one alone. ``delay``: it is scheduled, and due after so many seconds."""
        ...

    def publish_many(self, topic: str, payloads: Sequence[Any], keys: Sequence[str]) -> Sequence[Published]:
        """All of them or none; ``keys`` are as many as ``payloads``."""
        ...

    def transaction(self) -> AbstractContextManager[Any]:
        """A transaction of this thread, committed at the block's end, rolled back if an exception leaves it."""
        ...

    def subscribe(self, topic: str, group: str, start: Any = "earliest") -> bool:
        """Register a group; whether it is new. ``start``: "earliest", "latest", an offset or a datetime."""
        ...

    def unsubscribe(self, topic: str, group: str) -> bool:
        """Forget a group; whether it was registered."""
        ...

    def open(
        self,
        topic: str,
        group: str,
        name: str | None = None,
        *,
        strict: bool = False,
        batch_size: int = 100,
        max_attempts: int = 3,
        visibility_timeout: float = 60,
        start: Any = "earliest",
    ) -> Subscriber:
        """Register the group if it is new, and join it under a name that nobody else uses."""
        ...

    def pause(self, topic: str, group: str | None = None) -> int:
        """Deliver nothing more to a group, or to any of the topic: how many that changes. What is in hand may be
        answered."""
        ...

    def resume(self, topic: str, group: str | None = None) -> int:
        """End a pause: how many groups go on."""
        ...

    def reset(self, topic: str, group: str, to: Any, *, force: bool = False) -> Any:
        """Let a group begin elsewhere ("earliest", "latest", an offset or a datetime), with fresh attempts. Refused
        while its members run, unless ``force`` is given: their deliveries are stale then."""
        ...

    def redrive(
        self,
        topic: str,
        *,
        group: str | None = None,
        ids: Sequence[str] | None = None,
        edit: Callable[[Any], Any] | None = None,
        limit: int | None = None,
    ) -> int:
        """Send dead letters of ``topic`` back, each to the group that gave it up: how many. ``edit``: takes the letter
        and gives its new payload."""
        ...

    def purge(
        self,
        topic: str,
        *,
        group: str | None = None,
        ids: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> int:
        """Delete dead letters of ``topic``: how many."""
        ...

    def request(self, topic: str, payload: Any, *, timeout: float = 30, group: str | None = None) -> Reply:
        """Publish a message and wait for the first reply, up to ``timeout`` seconds."""
        ...

    def scheduled(self, topic: str) -> Sequence[Scheduled]:
        """The messages that are not due yet, the next due first."""
        ...

    def cancel(self, topic: str, id: str, *, key: str | None = None) -> bool:
        """Cancel a scheduled message, in this thread's open transaction; whether it was still scheduled."""
        ...

    def reschedule(self, topic: str, id: str, *, key: str | None = None, delay: float) -> bool:
        """Give a scheduled message another time, as ``cancel``; ``delay`` counts from now, and 0 makes it due."""
        ...

    def release(
        self, topic: str, group: str, *, partition: str | None = None, subscriber: str | None = None
    ) -> int:
        """Take leases from their holder, of one partition or of a subscriber: how many. The holder's deliveries are
        stale, and the next holder gets the messages."""
        ...

    def remove(self, topic: str, group: str, *, key: str) -> int:
        """Skip a group's messages of a key that no member has in flight: how many."""
        ...

    def send_to_front(self, topic: str, group: str, *, key: str, id: str) -> int:
        """Deliver a message before the others of its key, without its wait for a retry: 1, or 0 if it is not open."""
        ...

    def dead_letters(self, topic: str) -> str:
        """The topic that holds the dead letters of ``topic``."""
        ...

    def retention(self, seconds: float) -> AbstractContextManager[Any]:
        """Messages that every group is done with stay for so long, of all that is done in the block. Else: an hour."""
        ...

    def start_worker(self, *handlers: Handler, threads: int = 4, clock_off_by: float = 0) -> Worker:
        """A process, started so far that it obeys ``ask_to_stop``. ``clock_off_by``: its machine's clocks are
        wrong by so many seconds."""
        ...

    def counting(self) -> AbstractContextManager[list[Any]]:
        """A list that has one item for each request that this thread made of the server in the block, afterwards."""
        ...

    def close_connections(self) -> None:
        """Called at the end of each thread that a scenario has started."""
        ...
