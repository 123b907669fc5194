"""Errors of the queue, and exceptions that a handler raises about its message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any


def _listed(names: Sequence[str]) -> str:
    """Return the first five names, and the number of the others."""
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


class MQueueError(Exception):
    """Base class of the queue's errors. Invalid arguments raise ``ValueError`` or ``TypeError`` instead."""


class DuplicateMessage(MQueueError):
    """``publish(…, on_duplicate="error")`` or ``request`` found a message with this id in the topic's partition.

    Nothing was stored. ``published``: the stored message, as a ``Published`` with ``created=False``.
    """

    def __init__(self, published: Any) -> None:
        self.published = published
        super().__init__(
            f"topic {published.topic!r} already holds a message with id {published.id!r} "
            f"for this key (offset {published.offset}); nothing was stored"
        )


class NoTransaction(MQueueError):
    """A publish must be in a transaction, and none is open. Nothing was stored.

    ``topic``: the topic of the messages. ``using``: the alias of the database that needs the transaction.
    """

    def __init__(self, topic: str, using: str) -> None:
        self.topic, self.using = topic, using
        alias = "" if using == "default" else f"using={using!r}"
        super().__init__(
            f"a publish to topic {topic!r} needs a transaction on database {using!r}, and none is open: publish inside"
            f" transaction.atomic({alias}), together with the changes that the message is about; or give"
            " require_transaction=False, or set REQUIRE_TRANSACTION to False for the topic in MQUEUE['TOPICS']"
        )


class StaleDelivery(MQueueError):
    """The delivery no longer belongs to this subscriber: it was delivered again or finished, or its lease was lost.

    Nothing was changed for the deliveries in ``stale``. The other deliveries of the same call were settled. If the
    batch is atomic, its transaction is rolled back instead.
    """

    def __init__(self, stale: list[Any], verb: str) -> None:
        self.stale = stale
        super().__init__(
            f"cannot {verb} {_listed([f'{d.topic}@{d.offset}' for d in stale])}: meanwhile delivered again or finished,"
            " or the partition's lease was lost; these are unchanged"
        )


class BrokenTransaction(MQueueError):
    """The transaction of a delivery's writes and its ack cannot be committed: it was ended early, or it has failed.

    The delivery is not acknowledged, and the message is delivered again. If other code has committed the transaction,
    the writes before that COMMIT stay, and the next attempt repeats them.
    """

    def __init__(self, why: str) -> None:
        super().__init__(f"the delivery's transaction cannot be committed: {why}")


class WrongDatabase(MQueueError):
    """An atomic handler or a ``delivery.atomic()`` block tried to write to a database that is not the queue's.

    ``alias``: that database. ``using``: the queue's database.
    """

    def __init__(self, alias: str, using: str) -> None:
        self.alias, self.using = alias, using
        super().__init__(
            f"a write to database {alias!r} cannot be in one commit with the ack, which is in {using!r}: write to"
            f" {using!r}, set MQUEUE['DATABASE'] to {alias!r}, or leave out atomic and make the handler idempotent"
        )


class TimeLimitExceeded(MQueueError):
    """A handler ran longer than its ``max_runtime`` (``seconds``).

    The attempt has failed, and the handler can no longer settle the message.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(f"the handler ran longer than its max_runtime of {seconds:g} s")


class TooManyHanging(MQueueError):
    """A worker process stops because too many handlers hang past their ``max_runtime``; it should be restarted."""

    def __init__(self, count: int) -> None:
        super().__init__(
            f"{count} handlers exceeded their max_runtime and are still running; their threads cannot be stopped."
            " This process finishes its other handlers and exits, so that its supervisor can start another one"
        )


class NotRegistered(MQueueError):
    """The group is not registered for the topic: it was never subscribed, or it was unsubscribed."""

    def __init__(self, topic: str, group: str) -> None:
        self.topic, self.group = topic, group
        super().__init__(
            f"group {group!r} is not registered for topic {topic!r}: call subscribe({topic!r}, {group!r})"
        )


class GroupActive(MQueueError):
    """The group cannot be reset, because it has live subscribers. ``subscribers``: their names."""

    def __init__(self, topic: str, group: str, subscribers: list[str]) -> None:
        self.topic, self.group, self.subscribers = topic, group, subscribers
        super().__init__(
            f"group {group!r} on topic {topic!r} has running subscribers: {_listed(subscribers)}. Stop them,"
            " or give force=True: their messages in flight are then delivered again"
        )


class GroupReadsLog(MQueueError):
    """A worker cannot consume for this group, because the group reads the topic's log itself, as a Spark query does."""

    def __init__(self, topic: str, group: str) -> None:
        self.topic, self.group = topic, group
        super().__init__(
            f"group {group!r} reads the log of topic {topic!r} by itself, as a Spark query does, and receives no"
            f" deliveries: consume with another group, or discard its position with unsubscribe({topic!r}, {group!r})"
        )


class GroupTaken(MQueueError):
    """The group cannot read the topic's log itself: workers consume for it, or another query uses it.

    ``subscribers``: the names of the group's live subscribers.
    """

    def __init__(self, topic: str, group: str, why: str, subscribers: Sequence[str] = ()) -> None:
        self.topic, self.group, self.subscribers = topic, group, list(subscribers)
        super().__init__(f"group {group!r} cannot read the log of topic {topic!r} by itself: {why}")


class LogGap(MQueueError):
    """Messages that the reader has not read yet were deleted, or may have been deleted."""


class GroupNotNew(MQueueError):
    """A group cannot be backfilled, because it is already registered and has a position in the log."""


class Superseded(MQueueError):
    """This process must stop a replay or a backfill.

    Another process has ended it, or its group was resumed, reset or registered again meanwhile.
    """


class NotMigrated(MQueueError):
    """The queue's tables or some of their columns or indexes are missing, or the rows that ``migrate`` inserts."""

    def __init__(self, using: str) -> None:
        super().__init__(
            f"the queue's tables in database {using!r} are missing or out of date, or empty of the rows that publishing"
            f" needs: run manage.py migrate --database {using}"
        )


class FencedSubscription(MQueueError):
    """Another subscriber started under the same name and took over this subscriber's leases."""

    def __init__(self, topic: str, group: str, name: str) -> None:
        super().__init__(
            f"a newer subscriber named {name!r} of group {group!r} on topic {topic!r} has taken over; this one must"
            " stop. Give every running worker its own name"
        )


class ClosedSubscription(MQueueError):
    """A subscription was used before its ``with`` block began or after it ended."""


class HandlerError(MQueueError):
    """The topic and group already have another handler, or no handler is registered for a requested name."""


class RequestTimeout(MQueueError, TimeoutError):
    """No reply to a request was committed in time. ``id``: the request's message id. ``seconds``: the time limit."""

    def __init__(self, topic: str, id: str, seconds: float) -> None:
        self.topic, self.id, self.seconds = topic, id, seconds
        super().__init__(
            f"no reply to request {id!r} on topic {topic!r} within {seconds:g} s: its handler is slow or sends no"
            " reply, or no worker is running. The message stays in the log, and is handled later"
        )


class RequestFailed(MQueueError):
    """The request was dead-lettered by ``group``, the only group that could reply. ``reason``: the complete error."""

    def __init__(self, topic: str, id: str, group: str, reason: str) -> None:
        self.topic, self.id, self.group, self.reason = topic, id, group, reason
        first = reason.partition("\n")[0]
        super().__init__(f"group {group!r} dead-lettered request {id!r} on topic {topic!r}: {first}")


class NotARequest(MQueueError):
    """``message.reply`` was called for a message that was published, not requested: no caller waits for a reply."""

    def __init__(self, message: Any) -> None:
        super().__init__(
            f"message {message.topic}@{message.offset} (id {message.id!r}) is not a request, so no caller waits for a"
            " reply: check message.is_request first if a topic carries both"
        )


class Retry(MQueueError):
    """Raised by a handler: retry the message after ``delay`` (default: the wait of the handler's retry policy).

    ``delay``: seconds or a ``timedelta``. The attempt counts as failed. If ``max_attempts`` attempts have failed, the
    message is dead-lettered instead.
    """

    def __init__(self, reason: str = "", *, delay: float | timedelta | None = None) -> None:
        self.reason, self.delay = reason, delay
        super().__init__(reason or "the handler asked for a retry")


class Reject(MQueueError):
    """Raised by a handler: dead-letter the message now with ``reason``, because it can never succeed."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(reason or "rejected by the handler")


class Postpone(MQueueError):
    """Raised by a handler: deliver the message again after ``delay``, without counting an attempt.

    ``delay``: seconds or a ``timedelta``.
    """

    def __init__(self, delay: float | timedelta = 0) -> None:
        self.delay = delay
        super().__init__("postponed by the handler")


class BatchFailure(MQueueError):
    """Raised by a handler with ``batch=True``: these messages of the batch have failed, each with an exception.

    ``failures`` maps messages of the batch to exceptions. Each exception has the same effect as in a handler of a
    single message, also ``Retry``, ``Reject`` and ``Postpone``. The other messages are acknowledged. If the handler is
    atomic, they are rolled back instead, and delivered again without counting an attempt.

    Raises ``TypeError`` if ``failures`` is not a mapping to exceptions, and ``ValueError`` if it is empty.
    """

    def __init__(self, failures: Mapping[Any, BaseException]) -> None:
        if not isinstance(failures, Mapping):
            raise TypeError(
                f"BatchFailure needs a mapping from messages to exceptions, not {type(failures).__name__}"
            )
        if not failures:
            raise ValueError("BatchFailure must name at least one message; return if all of them succeeded")
        self.failures = dict(failures)
        for error in self.failures.values():
            if not isinstance(error, BaseException):
                raise TypeError(f"BatchFailure needs an exception for each message, not {error!r}")
        first = next(iter(self.failures.values()))
        text = f"{len(self.failures)} of the batch failed, the first by {type(first).__name__}: {first}"
        super().__init__(text)
