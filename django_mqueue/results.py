"""Results of searches: messages and dead letters with their state, pages, counts and groups."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from .policy.durations import moment_ms
from .policy.errors import ErrorSignature, error_signature
from .policy.message_query import SCHEDULED, WAITING
from .policy.outcomes import HELD_UNTIL


@dataclass(frozen=True)
class FailedAttempt:
    """A failed attempt. ``error``: the error's own line first, then its traceback, cut to 4 KiB."""

    at: datetime
    attempt: int
    by: str
    error: str


class Unreadable(bytes):
    """A payload that cannot be decoded, as stored."""


@dataclass(frozen=True)
class Cut:
    """The beginning of a payload that is longer than the limit. ``is_json``: the payload is JSON text, else bytes."""

    beginning: bytes
    is_json: bool


@dataclass(frozen=True)
class Inspected:
    """A message and its state. Times are aware UTC datetimes of the database's clock.

    - ``payload``: ``Unreadable`` bytes if it cannot be decoded; a ``Cut`` if it is longer than the limit.
    - ``size``: the bytes of the payload as stored.
    - ``target``: the only group that gets the message; None for all groups.
    - ``original_topic``: for a dead letter, the topic that the message was published to.

    If a group was given, these fields are about that group:

    - ``status``: one of ``STATUSES``. ``outcome``: one of ``OUTCOMES``; None if the message is not done.
    - ``attempts``: the number of deliveries to a handler. ``failures``: the number of failed attempts.
    - ``errors``: the newest failed attempts, oldest first.
    - ``invisible_until``: the message is not delivered before this time.
    - ``done_at``: when it was done or dead-lettered.
    - ``dead_letter``: the offset of its dead letter in the dead-letter topic.
    """

    offset: int
    id: str
    topic: str
    key: str | None
    kind: str
    payload: Any
    published_at: datetime
    available_at: datetime
    headers: dict[str, Any] = field(default_factory=dict)
    target: str | None = None
    group: str | None = None
    status: str | None = None
    attempts: int = 0
    failures: int = 0
    errors: tuple[FailedAttempt, ...] = ()
    delivered_to: str = ""
    delivered_at: datetime | None = None
    invisible_until: datetime | None = None
    done_at: datetime | None = None
    dead_letter: int | None = None
    size: int = 0
    original_topic: str | None = None
    outcome: str | None = None
    priority: int = 0

    @property
    def is_held(self) -> bool:
        """Return whether an operator holds the message: it waits until ``unhold``."""
        until = self.available_at if self.status == SCHEDULED else self.invisible_until
        return (
            until is not None
            and moment_ms("until", until) == HELD_UNTIL
            and self.status in (WAITING, SCHEDULED)
        )


@dataclass(frozen=True)
class Page:
    """A page of messages. ``next``: the ``start`` of the next page; None at the end.

    ``scanned``: the number of messages and partitions that were read. An empty page may have a ``next``.
    """

    messages: list[Inspected]
    next: str | None
    scanned: int

    def __iter__(self) -> Iterator[Inspected]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)


@dataclass(frozen=True)
class Counts:
    """The number of messages in each status, for a group. The statuses in ``more`` may have more messages."""

    pending: int
    in_flight: int
    waiting: int
    scheduled: int
    dead: int
    more: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Standing:
    """A registered group and its position.

    ``start``: the offset above which the group began. ``subscribers``: the names of the live subscribers. ``oldest``:
    the lowest offset of a message that is not done; None if there is none. ``partial``: some keys were not read.
    """

    group: str
    start: int
    paused: bool
    subscribers: tuple[str, ...]
    oldest: int | None
    oldest_published_at: datetime | None
    partial: bool = False


@dataclass(frozen=True)
class DeadLetterSummary:
    """A dead letter without its payload. ``error``: the beginning of its text. ``failed_at``: epoch milliseconds."""

    offset: int
    partition: str
    id: str
    original_topic: str
    group: str
    failed_at: int
    failures: int
    error: str
    kind: str = ""
    size: int = 0

    @property
    def signature(self) -> ErrorSignature:
        return error_signature(self.error)
