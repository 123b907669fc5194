"""Messages as the scenarios see them: published, scheduled, delivered, replied."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol


class Published(Protocol):
    """The outcome of a publish."""

    @property
    def offset(self) -> int:
        """The message's offset in the log. For a duplicate id, it is the offset of the stored message."""
        ...

    @property
    def id(self) -> str: ...

    @property
    def created(self) -> bool:
        """False if the topic already held a message with this key and id. Then nothing was stored."""
        ...


class Message(Protocol):
    """A message as it is delivered."""

    @property
    def offset(self) -> int: ...
    @property
    def id(self) -> str: ...
    @property
    def topic(self) -> str: ...
    @property
    def key(self) -> str | None: ...
    @property
    def payload(self) -> Any: ...
    @property
    def kind(self) -> str: ...
    @property
    def headers(self) -> dict[str, Any]: ...
    @property
    def group(self) -> str: ...

    @property
    def attempt(self) -> int:
        """1 for the first delivery that reaches a handler. Postponed deliveries do not count."""
        ...

    @property
    def published_at(self) -> datetime: ...

    @property
    def last_error(self) -> str:
        """The error of the newest failed attempt, or '' if none failed."""
        ...

    @property
    def failed_at(self) -> datetime | None:
        """Only dead letters have this property and the three below."""
        ...

    @property
    def failure_count(self) -> int | None: ...
    @property
    def original_topic(self) -> str | None: ...
    @property
    def failed_group(self) -> str | None: ...


class Delivery(Message, Protocol):
    """One delivery, and the methods that settle or extend it.

    Each of these methods returns True. It raises ``System.stale`` and changes nothing if the message was delivered
    again or finished meanwhile, or if its partition has another owner. The method that succeeded returns True again
    when it is repeated.
    """

    def ack(self) -> bool: ...

    def nack(self, *, delay: float = 0, error: str = "") -> bool:
        """Report a failed attempt. Retry after ``delay`` seconds, or dead-letter the message after its last attempt."""
        ...

    def reject(self, reason: str = "") -> bool:
        """Dead-letter the message now."""
        ...

    def postpone(self, delay: float = 0) -> bool:
        """Deliver the message again after ``delay`` seconds. This counts no attempt."""
        ...

    def extend(self, seconds: float) -> bool:
        """Do not deliver the message again for ``seconds`` from now, unless the delivery is settled."""
        ...

    def atomic(self) -> AbstractContextManager[Any]:
        """Open a block whose writes, publishes and ack are one transaction.

        If another subscriber has the message at the end of the block, the block rolls back and raises ``System.stale``.
        """
        ...

    def reply(self, payload: Any) -> bool:
        """Reply to a request, in this thread's open transaction or else at once. This does not ack.

        Returns False and stores nothing if the request already has a reply or its requester no longer waits.
        """
        ...


class Reply(Protocol):
    """The answer to a request."""

    @property
    def payload(self) -> Any: ...


class Scheduled(Protocol):
    """A message that is not due yet."""

    @property
    def id(self) -> str: ...
    @property
    def key(self) -> str | None: ...
    @property
    def payload(self) -> Any: ...

    @property
    def at(self) -> datetime:
        """The time at which it is due."""
        ...
