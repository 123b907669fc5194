"""The interface that an implementation must provide to run the scenarios.

The scenarios know only this interface. Name the class of an implementation to test it. Each test calls the class
without arguments and enters it as a context manager::

    MQUEUE_CONFORMANCE=package.module:Class python -m pytest tests/conformance

Leases outlast every test. They end only where a scenario requests it: ``Subscriber.crash`` and ``stall``,
``Worker.kill`` and ``stall``. There, an implementation may move its stored times back, or wait until its leases have
expired. Periodic work (finding members and partitions, watermarks, deletion) happens within ``System.looks`` polls that
are 10 ms apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Protocol

import pytest

from .messages import Delivery as Delivery
from .messages import Message as Message
from .messages import Published as Published
from .messages import Reply as Reply
from .messages import Scheduled as Scheduled


class Subscriber(Protocol):
    """A member of a group. One thread may poll several members in turn."""

    @property
    def name(self) -> str: ...

    def poll(self, max_messages: int = 100) -> Sequence[Delivery]:
        """Return the messages that this member must handle now, perhaps none. Never wait.

        Periodic work is done in here, or elsewhere.
        """
        ...

    def ack(self, deliveries: Sequence[Any]) -> bool:
        """Ack many deliveries. Raise ``System.stale`` if some no longer belong to this member, but ack the others."""
        ...

    def close(self) -> None:
        """Leave the group. Other members take over at once."""
        ...

    def crash(self) -> None:
        """Do nothing from now on. The leases have expired on return. Tests may still call its deliveries' methods."""
        ...

    def stall(self) -> None:
        """Do nothing until the leases have expired. The test may poll again after that."""
        ...


class Worker(Protocol):
    """A process that passes messages to handlers."""

    @property
    def pid(self) -> int: ...

    @property
    def running(self) -> bool: ...

    def ask_to_stop(self) -> None:
        """Send SIGTERM: take no new message, finish and settle the running ones, leave."""
        ...

    def wait(self) -> int:
        """Return the exit code, once the process has ended."""
        ...

    def kill(self) -> None:
        """Send SIGKILL if the process still runs. Its leases have expired on return."""
        ...

    def stall(self) -> None:
        """Send SIGSTOP. The leases of the process have expired on return."""
        ...

    def wake(self) -> None:
        """Send SIGCONT."""
        ...


@dataclass(frozen=True)
class Handler:
    """A handler that a worker runs: ``handling.handle`` for each message of ``topic``, for ``group``.

    A handler acks when it returns. ``handling.Asked`` requests a retry, a rejection or a postponement. Any other
    exception is a failed attempt, and the message is retried after ``retry`` seconds. If ``retry`` has several values,
    each attempt uses the next one, and all further attempts use the last. With None, the message is dead-lettered.
    ``atomic``: the handler's publishes and the ack are one transaction. ``filter``: headers that must match; other
    messages are acked unread. ``kinds``: the kinds that the handler takes; other messages are dead-lettered at once.
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
    """Marks for each scenario: for example, pytest must set up a database first."""

    looks: int
    """Number of polls in which all periodic work is done several times."""

    stale: type[Exception]
    """Raised when a delivery is settled too late."""

    unknown: type[Exception]
    """Raised for groups that are not registered."""

    active: type[Exception]
    """Raised by ``reset`` of a group whose members run."""

    unanswered: type[Exception]
    """Raised by ``request`` if no reply comes in time."""

    failed: type[Exception]
    """Raised by ``request`` if the only group that could reply has dead-lettered the message."""

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
        """Publish in this thread's open transaction, or else at once.

        ``payload``: a JSON value, or bytes. ``group``: only this group gets the message. ``delay``: the message is
        scheduled, and due after this many seconds.
        """
        ...

    def publish_many(self, topic: str, payloads: Sequence[Any], keys: Sequence[str]) -> Sequence[Published]:
        """Publish all messages or none. ``keys`` has as many items as ``payloads``."""
        ...

    def transaction(self) -> AbstractContextManager[Any]:
        """Open a transaction of this thread. Commit at the block's end, roll back if the block raises."""
        ...

    def subscribe(self, topic: str, group: str, start: Any = "earliest") -> bool:
        """Register a group. Return True if it is new.

        ``start``: "earliest", "latest", an offset or a datetime.
        """
        ...

    def unsubscribe(self, topic: str, group: str) -> bool:
        """Delete a group's registration. Return True if the group was registered."""
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
        """Join a group, and register it if it is new. Without ``name``, use a unique name."""
        ...

    def pause(self, topic: str, group: str | None = None) -> int:
        """Pause a group, or all groups of the topic. Return how many groups this changes.

        Deliveries in flight may be settled.
        """
        ...

    def resume(self, topic: str, group: str | None = None) -> int:
        """End a pause. Return how many groups continue."""
        ...

    def reset(self, topic: str, group: str, to: Any, *, force: bool = False) -> Any:
        """Move a group to "earliest", "latest", an offset or a datetime, with fresh attempts.

        Refused while the group's members run. With ``force``, their deliveries become stale instead.
        """
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
        """Redrive dead letters of ``topic``, each to the group that gave it up. Return their number.

        ``edit`` takes a dead letter and returns its new payload.
        """
        ...

    def purge(
        self,
        topic: str,
        *,
        group: str | None = None,
        ids: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> int:
        """Delete dead letters of ``topic``. Return their number."""
        ...

    def request(self, topic: str, payload: Any, *, timeout: float = 30, group: str | None = None) -> Reply:
        """Publish a message and wait for the first reply, up to ``timeout`` seconds."""
        ...

    def scheduled(self, topic: str) -> Sequence[Scheduled]:
        """Return the messages that are not due yet, sorted by due time."""
        ...

    def cancel(self, topic: str, id: str, *, key: str | None = None) -> bool:
        """Cancel a scheduled message, in this thread's open transaction. Return True if it was still scheduled."""
        ...

    def reschedule(self, topic: str, id: str, *, key: str | None = None, delay: float) -> bool:
        """Change a scheduled message's due time. Transaction and result are as in ``cancel``.

        ``delay`` counts from now; 0 makes the message due.
        """
        ...

    def release(
        self, topic: str, group: str, *, partition: str | None = None, subscriber: str | None = None
    ) -> int:
        """Release the lease of one partition, or all leases of a subscriber. Return their number.

        The holder's deliveries become stale, and the next holder gets the messages.
        """
        ...

    def remove(self, topic: str, group: str, *, key: str) -> int:
        """Skip a group's messages of a key that are not in flight. Return their number."""
        ...

    def send_to_front(self, topic: str, group: str, *, key: str, id: str) -> int:
        """Deliver a message before the others of its key, even if it waits for a retry.

        Return 1, or 0 if the message is not open.
        """
        ...

    def delay(self, topic: str, group: str, until: datetime, *, id: str) -> int:
        """Deliver a message to the group no earlier than ``until``. Return 1, or 0 if it is not open."""
        ...

    def hold(self, topic: str, group: str, *, id: str) -> int:
        """Keep a message back from the group until ``unhold``. Return 1, or 0 if it is not open."""
        ...

    def unhold(self, topic: str, group: str, *, id: str) -> int:
        """End the hold of a message. Return 1, or 0 if it is not held."""
        ...

    def redeliver(self, topic: str, group: str, *, id: str) -> int:
        """Deliver a message again that the group is done with. Return 1, or 0 if it is not done."""
        ...

    def erase(self, *, key: str) -> int:
        """Delete the messages of a key from all topics, also dead letters. Return their number."""
        ...

    def dead_letters(self, topic: str) -> str:
        """Return the topic that holds the dead letters of ``topic``."""
        ...

    def retention(self, seconds: float) -> AbstractContextManager[Any]:
        """In the block, keep messages for ``seconds`` after every group is done with them.

        Otherwise, keep them an hour.
        """
        ...

    def start_worker(self, *handlers: Handler, threads: int = 4, clock_off_by: float = 0) -> Worker:
        """Start a worker process, and return when it obeys ``ask_to_stop``.

        ``clock_off_by``: the error of its machine's clocks in seconds.
        """
        ...

    def counting(self) -> AbstractContextManager[list[Any]]:
        """Yield a list. After the block, it has one item for each request that this thread sent to the server."""
        ...

    def close_connections(self) -> None:
        """Close the connections of a thread. Each thread that a scenario starts calls this at its end."""
        ...
