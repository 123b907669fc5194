"""``Delivery``: a claimed message and the methods that settle it, and what it needs of its subscriber."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from asgiref.sync import sync_to_async

from ..messages import Message, Payload
from ..policy import encoding
from ..policy.requests import Box, box_of
from ..signals import EventSink
from ..store.delivery_state import Receipt
from ..store.leases import Holder
from ..store.queries.message_rows import message_fields
from .partition_state import Partition


class Clock:
    """An estimate of the database's time. SQL compares times again, so a wrong estimate breaks no guarantee."""

    def __init__(self) -> None:
        self._offset = 0.0

    def set(self, now_ms: int) -> None:
        self._offset = now_ms - time.monotonic() * 1000

    def now(self) -> int:
        return int(time.monotonic() * 1000 + self._offset)


@dataclass(frozen=True)
class Options:
    """The options of a subscriber. Times are in milliseconds.

    ``batch``: the handler takes up to ``batch_size`` messages of a partition in one call. The next batch is claimed
    when this one is settled. ``eager``: memory is updated at once, before the commit. Tests need this, because each
    test is one transaction that never commits. ``low_priority_share``: the share of the messages that is claimed
    from the lowest priority. ``after_failure``: the transaction that settles a failed attempt calls it with the
    database's alias, the message's offset, and whether it is dead-lettered. A repeated transaction calls it again.
    """

    using: str
    batch_size: int = 10
    strict: bool = False
    max_attempts: int = 3
    visible_ms: int = 60_000
    eager: bool = False
    batch: bool = False
    low_priority_share: float = 0.0
    after_failure: Callable[[str, int, bool], None] | None = None


class Consumer(Protocol):
    """The part of ``ConsumerState`` that deliveries and events use."""

    holder: Holder
    options: Options
    clock: Clock
    events: EventSink
    partitions: dict[str, Partition]

    @property
    def using(self) -> str: ...

    @property
    def group(self) -> str: ...

    @property
    def topic(self) -> str: ...

    def log_fields(self, event: str, **more: Any) -> dict[str, Any]: ...


class DeliveryAcknowledger(Protocol):
    """The part of ``Acknowledger`` that deliveries use."""

    @property
    def state(self) -> Consumer: ...

    def ack(self, deliveries: Sequence[Delivery]) -> bool: ...

    def ack_all(self, deliveries: Sequence[Delivery]) -> None: ...

    def note_ack(self, deliveries: Sequence[Delivery]) -> None: ...

    def reconcile_acks(self, deliveries: Sequence[Delivery]) -> None: ...

    def atomically(self, deliveries: Sequence[Delivery]) -> AbstractContextManager[None]: ...

    def nack(self, delivery: Delivery, delay: float | timedelta, error: str) -> bool: ...

    def reject(self, delivery: Delivery, reason: str, *, counted: bool = True) -> bool: ...

    def nack_or_postpone(
        self, deliveries: Sequence[Delivery], delay: float | timedelta, error: str | None
    ) -> bool: ...

    def extend(self, deliveries: Sequence[Delivery], seconds: float | timedelta) -> bool: ...

    def reply(
        self, delivery: Delivery, payload: Any, kind: str, headers: Mapping[str, Any] | None
    ) -> bool: ...

    def end_quarantine(self, delivery: Delivery) -> bool: ...


@dataclass
class DeliveryStatus:
    """The mutable state of a delivery.

    ``settled_by``: the verb that settled it, '' while open. ``expires``: the end of its visibility timeout, in epoch
    milliseconds. ``failures``: failed attempts before this one. ``alone``: it comes from quarantine and runs alone.
    ``handed``: it was given to a handler, and not only claimed ahead. ``lost``: this subscriber no longer owns it.
    ``overdue``: its handler exceeded ``max_runtime`` and may no longer ack. The failed attempt may not be stored yet.
    ``atomic``: its handler runs in a transaction.
    ``skipped``: the filter did not match, and the handler does not run. ``result``: the ack stores it with the message.
    ``then``: called in the ack's transaction, and called again if that transaction is repeated.
    """

    acknowledger: DeliveryAcknowledger
    receipt: Receipt
    expires: int
    failures: int
    alone: bool
    handed: bool
    settled_by: str = ""
    dead_lettered: bool = False
    lost: bool = False
    overdue: bool = False
    atomic: bool = False
    skipped: bool = False
    result: bytes | None = None
    then: Callable[[], None] | None = None


@dataclass(frozen=True, eq=False)
class Delivery(Message[Payload]):
    """One delivery of a message, and the methods that settle or extend it.

    ``ack``, ``nack``, ``reject``, ``postpone`` and ``extend`` return True. They raise ``StaleDelivery``, and change
    nothing, if the message was delivered again or finished in the meantime, or the partition's lease was lost.
    Repeating the method that settled the delivery returns True.
    """

    status: DeliveryStatus = field(kw_only=True, repr=False)
    box: Box | None = field(kw_only=True, default=None, repr=False)

    def ack(self) -> bool:
        """Acknowledge the message: this group does not receive it again."""
        return self.status.acknowledger.ack([self])

    def atomic(self) -> AbstractContextManager[None]:
        """Return a context manager for a block that commits together with the ack, or not at all.

        The block may write to the queue's database and publish. Raises ``StaleDelivery`` at the end of the block, and
        rolls back, if this subscriber no longer owns the delivery. Raises ``BrokenTransaction`` if the block ended the
        transaction. Raises ``WrongDatabase`` at a write to another database.
        """
        return self.status.acknowledger.atomically([self])

    def nack(self, *, delay: float | timedelta = 0, error: str = "") -> bool:
        """Report a failed attempt: deliver the message again after ``delay``, or dead-letter it after the last attempt.

        ``delay``: seconds or a ``timedelta``. ``error``: a text that is stored with the message.
        """
        return self.status.acknowledger.nack(self, delay, error)

    def reject(self, reason: str = "") -> bool:
        """Dead-letter the message now, for ``reason``, because another attempt cannot succeed."""
        return self.status.acknowledger.reject(self, reason)

    def postpone(self, delay: float | timedelta = 0) -> bool:
        """Deliver the message again after ``delay`` (seconds or a ``timedelta``), and count no attempt."""
        return self.status.acknowledger.nack_or_postpone([self], delay, None)

    def extend(self, seconds: float | timedelta) -> bool:
        """End the visibility timeout ``seconds`` (a number or a ``timedelta``) from now. Settles nothing."""
        return self.status.acknowledger.extend([self], seconds)

    def reply(self, payload: Any, *, kind: str = "", headers: Mapping[str, Any] | None = None) -> bool:
        """Reply to a request, in the caller's transaction. Return whether the reply is stored.

        The first reply counts. Returns False, and stores nothing, if the request has a reply or its requester no longer
        waits. A reply is an effect of the handler, like a publish. It does not ack. Raises ``NotARequest`` if the
        message is no request, and ``TypeError`` or ``ValueError`` for arguments that ``publish`` refuses.
        """
        return self.status.acknowledger.reply(self, payload, kind, headers)

    async def areply(self, payload: Any, *, kind: str = "", headers: Mapping[str, Any] | None = None) -> bool:
        """Reply to a request from an ``async`` handler (see ``reply``)."""
        return await sync_to_async(self.reply)(payload, kind=kind, headers=headers)


def make_delivery(row: dict[str, Any], group: str, topic: str, status: DeliveryStatus) -> Delivery:
    """Return the delivery for a row of ``delivery_state.claimed``."""
    metadata = json.loads(row["metadata"])
    errors = json.loads(row["errors"]) if row["errors"] else []
    fields = message_fields(row, metadata, encoding.decode(row["payload"], metadata["encoding"]))
    box = box_of(metadata["headers"], row["original_topic"] or topic, fields["id"])
    return Delivery(
        **fields,
        topic=topic,
        group=group,
        attempt=int(row["retry_count"]) + 1,
        last_error=row["message_last_error"] or (errors[-1]["error"] if errors else ""),
        failure_count=row["message_failure_count"],
        is_request=box is not None,
        box=box,
        status=status,
    )
