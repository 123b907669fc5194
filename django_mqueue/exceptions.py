"""The errors that users meet, and the signals a handler raises about its own message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any


class MQueueError(Exception):
    """Base of every error of the queue's own. Bad arguments raise ``ValueError`` or ``TypeError``."""


class DuplicateMessage(MQueueError):
    """``publish(…, on_duplicate="error")`` met a message with this id in the topic's partition.

    ``published`` is the stored one: a ``Published`` with ``created=False``.
    """

    def __init__(self, published: Any) -> None:
        self.published = published
        super().__init__(
            f"topic {published.topic!r} already holds a message with id {published.id!r} "
            f"for this key (offset {published.offset}); nothing was stored"
        )


class StaleDelivery(MQueueError):
    """The delivery is no longer this subscriber's: delivered again, finished, or its lease was lost.

    Nothing was changed for the deliveries in ``stale``; the others of the same call were answered.
    """

    def __init__(self, stale: list[Any], verb: str) -> None:
        self.stale = stale
        shown = ", ".join(f"{d.topic}@{d.offset}" for d in stale[:5])
        more = f" and {len(stale) - 5} more" if len(stale) > 5 else ""
        super().__init__(
            f"cannot {verb} {shown}{more}: meanwhile delivered again or finished, "
            "or the partition's lease was lost; nothing was changed"
        )


class BrokenTransaction(MQueueError):
    """The transaction that was to hold a delivery's effects and its ack cannot: it was ended, or has failed.

    The delivery is not acked. What was written before a COMMIT behind the queue's back stays, and comes again.
    """

    def __init__(self, why: str) -> None:
        super().__init__(f"the delivery's transaction cannot be committed: {why}")


class WrongDatabase(MQueueError):
    """An atomic handler, or a ``delivery.atomic()`` block, was about to write to another database than the queue's."""

    def __init__(self, alias: str, using: str) -> None:
        self.alias, self.using = alias, using
        super().__init__(
            f"a write to database {alias!r} cannot be in one commit with the ack, which is in {using!r}: write to"
            f" {using!r}, set MQUEUE['DATABASE'] to {alias!r}, or do without atomic and let a second run do no harm"
        )


class TimeLimitExceeded(MQueueError):
    """A handler ran longer than its ``max_runtime``: its attempt has failed, and what it still does comes too late."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(f"the handler ran longer than its max_runtime of {seconds:g} s")


class TooManyHanging(MQueueError):
    """A worker process ends: so many of its handlers hang past their ``max_runtime`` that it should be started anew."""

    def __init__(self, count: int) -> None:
        super().__init__(
            f"{count} handlers have run past their max_runtime and do not end; their threads cannot be stopped. "
            "This process finishes what else it runs and ends, for its supervisor to start another"
        )


class NotRegistered(MQueueError):
    """The group is not registered for the topic (never subscribed, or unsubscribed since)."""

    def __init__(self, topic: str, group: str) -> None:
        self.topic, self.group = topic, group
        super().__init__(
            f"group {group!r} is not registered for topic {topic!r}: call subscribe({topic!r}, {group!r})"
        )


class GroupActive(MQueueError):
    """A group cannot be moved while its subscribers run; ``subscribers`` are their names."""

    def __init__(self, topic: str, group: str, subscribers: list[str]) -> None:
        self.topic, self.group, self.subscribers = topic, group, subscribers
        shown = ", ".join(subscribers[:5]) + (
            f" and {len(subscribers) - 5} more" if len(subscribers) > 5 else ""
        )
        super().__init__(
            f"group {group!r} on topic {topic!r} has subscribers that run: {shown}. Stop them, or give force=True: "
            "what they have in hand comes again then"
        )


class GroupReadsLog(MQueueError):
    """A worker was to consume for a group that reads the log of the topic by itself, as a Spark query does."""

    def __init__(self, topic: str, group: str) -> None:
        self.topic, self.group = topic, group
        super().__init__(
            f"group {group!r} reads the log of topic {topic!r} by itself (a Spark query does), and nothing is delivered"
            f" to it: consume under another group, or give up what it has read with unsubscribe({topic!r}, {group!r})"
        )


class GroupTaken(MQueueError):
    """A group cannot read the log of a topic by itself: workers consume for it, or another query has it.

    ``subscribers``: who of them is alive.
    """

    def __init__(self, topic: str, group: str, why: str, subscribers: Sequence[str] = ()) -> None:
        self.topic, self.group, self.subscribers = topic, group, list(subscribers)
        super().__init__(f"group {group!r} cannot read the log of topic {topic!r} by itself: {why}")


class LogGap(MQueueError):
    """Messages that were to be read may have been deleted, or are gone."""


class GroupNotNew(MQueueError):
    """A group cannot be given the past: it is registered already, and has a place of its own in the log."""


class Superseded(MQueueError):
    """What was being stored is none of this process's business any more: another has ended it, or somebody has changed
    the group that it was for."""


class NotMigrated(MQueueError):
    """The queue's tables, or the rows that ``migrate`` puts into them, are missing."""

    def __init__(self, using: str) -> None:
        super().__init__(
            f"the queue's tables in database {using!r} are missing, or empty of the rows that publishing needs: "
            f"run manage.py migrate --database {using}"
        )


class FencedSubscription(MQueueError):
    """Another subscriber has started under the same name and taken over this one's leases."""

    def __init__(self, topic: str, group: str, name: str) -> None:
        super().__init__(
            f"a newer subscriber named {name!r} of group {group!r} on topic {topic!r} has taken over; "
            "this one may not go on. Give every running worker a name of its own"
        )


class ClosedSubscription(MQueueError):
    """A subscription was used before its ``with`` block began or after it ended."""


class HandlerError(MQueueError):
    """A handler cannot be registered: bad options, or its (topic, group) is taken."""


class RequestTimeout(MQueueError, TimeoutError):
    """No reply to a request was committed in time; ``id`` is the request's message, ``seconds`` the time limit."""

    def __init__(self, topic: str, id: str, seconds: float) -> None:
        self.topic, self.id, self.seconds = topic, id, seconds
        super().__init__(
            f"no reply to request {id!r} on topic {topic!r} within {seconds:g} s: its handler may be slow or not reply,"
            " or no worker runs; the message itself stays, and is handled"
        )


class RequestFailed(MQueueError):
    """A request was dead-lettered by ``group``, the only one that could have replied; ``reason`` is its whole error."""

    def __init__(self, topic: str, id: str, group: str, reason: str) -> None:
        self.topic, self.id, self.group, self.reason = topic, id, group, reason
        first = reason.partition("\n")[0]
        super().__init__(f"group {group!r} gave up request {id!r} on topic {topic!r}: {first}")


class NotARequest(MQueueError):
    """``message.reply`` on a message that was published, not requested: nobody waits for an answer."""

    def __init__(self, message: Any) -> None:
        super().__init__(
            f"message {message.topic}@{message.offset} (id {message.id!r}) is no request, and nobody waits for a reply:"
            " ask message.is_request first where a topic carries both"
        )


class Retry(MQueueError):
    """Raised by a handler: try this message again, after ``delay`` seconds (default: the handler's backoff).

    Counts as an attempt; past ``max_attempts`` the message is dead-lettered.
    """

    def __init__(self, reason: str = "", *, delay: float | timedelta | None = None) -> None:
        self.reason, self.delay = reason, delay
        super().__init__(reason or "the handler asked for a retry")


class Reject(MQueueError):
    """Raised by a handler: this message can never succeed; dead-letter it now with ``reason``."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(reason or "rejected by the handler")


class Postpone(MQueueError):
    """Raised by a handler: not now; deliver again after ``delay`` seconds. No attempt is counted."""

    def __init__(self, delay: float | timedelta = 0) -> None:
        self.delay = delay
        super().__init__("postponed by the handler")


class BatchFailure(MQueueError):
    """Raised by a handler with ``batch=True``: these messages of the batch have failed, each by its exception.

    ``failures`` maps messages of the list to exceptions. Each counts as if its message's handler had raised it:
    ``Retry``, ``Reject`` and ``Postpone`` mean what they always do. The others of the batch are acked; if the handler
    is atomic they are rolled back with it, and come again without an attempt counted.
    Raises ``TypeError`` for anything but a mapping to exceptions, ``ValueError`` for an empty one.
    """

    def __init__(self, failures: Mapping[Any, BaseException]) -> None:
        if not isinstance(failures, Mapping):
            raise TypeError(
                f"BatchFailure needs a mapping from messages to exceptions, not {type(failures).__name__}"
            )
        if not failures:
            raise ValueError("BatchFailure must name at least one message; return if all of them succeeded")
        for error in failures.values():
            if not isinstance(error, BaseException):
                raise TypeError(f"BatchFailure needs an exception for each message, not {error!r}")
        self.failures = dict(failures)
        first = next(iter(self.failures.values()))
        super().__init__(
            f"{len(self.failures)} of the batch failed, the first by {type(first).__name__}: {first}"
        )
