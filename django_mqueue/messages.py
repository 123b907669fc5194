"""The values that cross the layers: what is published, what was published, what is delivered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any


@dataclass(frozen=True)
class OutgoingMessage:
    """One message for ``publish_many``; the fields are ``publish``'s arguments of the same names."""

    payload: Any
    key: str | None = None
    id: str | None = None
    kind: str = ""
    headers: Mapping[str, Any] | None = None
    delay: float | timedelta | None = None
    at: datetime | None = None
    group: str | None = None


@dataclass(frozen=True)
class Published:
    """What became of a publish. ``created`` is False where the id was there already: then ``offset`` is
    the stored message's. ``replaced``: that one was scheduled, and has taken what was published now.

    A scheduled message gets the offset of its place in the log only when it falls due; until then ``offset`` is
    that of its place among the scheduled ones.
    """

    offset: int
    id: str
    topic: str
    key: str | None
    created: bool
    replaced: bool = field(default=False, repr=False)


@dataclass(frozen=True)
class ScheduledMessage:
    """A message that is not due yet. ``at`` and ``created_at`` are aware UTC datetimes of the database's clock.

    ``group``: the only one that it is for, '' for all. ``attempts``: how many it has had there, where it waits for a
    retry, and ``last_error`` the last one's; 0 and '' for a message that was published to come later.
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


@dataclass(frozen=True)
class Reply:
    """The answer to a request: ``payload``, ``kind`` and ``headers`` as ``message.reply`` was given them."""

    payload: Any
    kind: str = ""
    headers: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DeadLetter:
    """Why a message is in a dead-letter topic: the fields that such a message carries beside the usual."""

    original_topic: str
    failed_group: str
    failed_at: datetime
    failure_count: int
    last_error: str


@dataclass(frozen=True, eq=False)
class Message:
    """A message as a handler sees it.

    ``payload`` is what was published (``bytes`` as ``bytes``, all else as decoded from JSON); ``key`` is None
    for a keyless message; ``attempt`` counts deliveries to a handler of this group, the first is 1;
    ``published_at`` is an aware UTC datetime of the database's clock; ``last_error`` is the newest failed
    attempt's, '' if none. ``failed_at`` to ``failed_group`` are None except in dead-letter topics. ``is_request``:
    ``request`` published it, and its requester may wait for a reply.
    """

    offset: int
    id: str
    topic: str
    key: str | None
    payload: Any
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
