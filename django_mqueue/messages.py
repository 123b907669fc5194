"""Messages as values: outgoing, published, scheduled and delivered messages, and replies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Payload = TypeVar("Payload", default=Any)
else:  # Before Python 3.13, a TypeVar has no default.
    from typing import TypeVar

    Payload = TypeVar("Payload")


@dataclass(frozen=True)
class OutgoingMessage:
    """One message for ``publish_many``. Each field is the argument of ``publish`` with the same name."""

    payload: Any
    key: str | None = None
    id: str | None = None
    kind: str = ""
    headers: Mapping[str, Any] | None = None
    delay: float | timedelta | None = None
    at: datetime | None = None
    group: str | None = None
    priority: int = 0


@dataclass(frozen=True)
class Edited:
    """The new content of a dead letter, which ``edit`` of ``redrive`` may return in place of the payload alone."""

    payload: Any
    headers: Mapping[str, Any]


@dataclass(frozen=True)
class Published:
    """The result of a publish.

    ``created``: False if a message with this id was already stored. ``offset`` is then the offset of the stored
    message. ``replaced``: the stored message was scheduled, and now has the new content.

    For a scheduled message, ``offset`` is its offset among the scheduled messages. It gets an offset in the log when it
    is due.
    """

    offset: int
    id: str
    topic: str
    key: str | None
    created: bool
    replaced: bool = field(default=False, repr=False)


@dataclass(frozen=True)
class ScheduledMessage:
    """A message that is not in the log yet. ``at`` and ``created_at`` are aware UTC datetimes of the database's clock.

    ``group``: the only group that gets the message; '' for all groups. For a parked retry, ``attempts`` counts the
    group's attempts, and ``last_error`` is the error of the last attempt. Otherwise they are 0 and ''.
    """

    offset: int
    id: str
    topic: str
    key: str | None
    payload: Any
    kind: str
    group: str
    at: datetime
    created_at: datetime
    headers: dict[str, Any] = field(default_factory=dict)
    attempts: int = 0
    last_error: str = ""
    priority: int = 0


@dataclass(frozen=True)
class Reply:
    """The reply to a request: ``payload``, ``kind`` and ``headers`` as given to ``message.reply``."""

    payload: Any
    kind: str = ""
    headers: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Message(Generic[Payload]):
    """A message, as a handler gets it. ``Message[Order]`` is one whose payload is an ``Order``.

    - ``payload``: the published value. ``bytes`` stay ``bytes``; any other value is decoded from JSON.
    - ``key``: None for a message without a key.
    - ``attempt``: the number of this delivery to a handler of the group; the first is 1.
    - ``published_at``: an aware UTC datetime of the database's clock.
    - ``last_error``: the error of the newest failed attempt; '' if there is none.
    - ``failed_at``, ``failure_count``, ``original_topic``, ``failed_group``: None except in dead-letter topics.
    - ``is_request``: the message was published by ``request``, and its caller may wait for a reply.
    """

    offset: int
    id: str
    topic: str
    key: str | None
    payload: Payload
    kind: str
    group: str
    attempt: int
    published_at: datetime
    headers: dict[str, Any] = field(default_factory=dict)
    last_error: str = ""
    failed_at: datetime | None = None
    failure_count: int | None = None
    original_topic: str | None = None
    failed_group: str | None = None
    is_request: bool = False
    priority: int = 0
