"""Messages as the scenarios see them: published, scheduled, delivered, replied."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any, Protocol


class Published(Protocol):
    """The outcome of a publish."""

    @property
    def offset(self) -> int:
        """The message's place in the log; that of the stored message where the id was there already."""
        ...

    @property
    def id(self) -> str: ...

    @property
    def created(self) -> bool:
        """False where the topic held a message of this key and id already: then nothing was stored."""
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
        """1 for the first delivery that reaches a handler; postponed ones do not count."""
        ...

    @property
    def published_at(self) -> datetime: ...

    @property
    def last_error(self) -> str:
        """Of the newest failed attempt; '' if none failed."""
        ...

    @property
    def failed_at(self) -> datetime | None:
        """This and the three below: of dead letters only."""
        ...

    @property
    def failure_count(self) -> int | None: ...
    @property
    def original_topic(self) -> str | None: ...
    @property
    def failed_group(self) -> str | None: ...


class Delivery(Message, Protocol):
    """One delivery and its answers.

    Each answer returns True, or raises ``System.stale`` and changes nothing when the message was meanwhile
    delivered again or finished, or its partition has another owner. Repeating the answer that succeeded is True.
    """

    def ack(self) -> bool: ...

    def nack(self, *, delay: float = 0, error: str = "") -> bool:
        """A failed attempt: again after ``delay`` seconds, or dead-lettered if it was the last one."""
        ...

    def reject(self, reason: str = "") -> bool:
        """Dead-lettered now."""
        ...

    def postpone(self, delay: float = 0) -> bool:
        """Again after ``delay`` seconds; no attempt is counted."""
        ...

    def extend(self, seconds: float) -> bool:
        """Not delivered again for ``seconds`` from now, unless it is answered."""
        ...

    def atomic(self) -> AbstractContextManager[Any]:
        """A block whose writes and publishes, and the ack, are one transaction.

        Raises ``System.stale`` at its end, with all of it undone, if the delivery is another's by then.
        """
        ...

    def reply(self, payload: Any) -> bool:
        """Answer a request, in this thread's open transaction, else at once. It does not ack.

        False, and nothing is stored, if the request has a reply or its requester no longer waits.
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
