"""What ``poll`` gives: a message and the verbs that answer it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from asgiref.sync import sync_to_async

from ..messages import Message
from ..policy import encoding, names
from ..policy.durations import moment
from ..policy.requests import Box, box_of, visible
from ..store.state import Ticket
from .atomically import atomically
from .replying import reply

if TYPE_CHECKING:
    from .answering import Answering


@dataclass
class Hold:
    """The changing side of a delivery. ``answer``: the verb that ended it, '' while it is open.

    ``overdue``: its handler has run too long, and may not ack any more, though its failure may not be told yet.
    ``skipped``: a filter kept it from the handler.
    """

    answering: Answering
    ticket: Ticket
    expires: int
    failures: int
    alone: bool
    handed: bool
    answer: str = ""
    dead_lettered: bool = False
    lost: bool = False
    overdue: bool = False
    skipped: bool = False


@dataclass(frozen=True, eq=False)
class Delivery(Message):
    """One delivery of a message, and the verbs that answer it.

    Each verb returns True, or raises ``StaleDelivery`` and changes nothing when the message has meanwhile been
    delivered again or finished, or the partition's lease was lost. Repeating the verb that succeeded is True.
    """

    hold: Hold = field(kw_only=True, repr=False)
    box: Box | None = field(kw_only=True, default=None, repr=False)

    def ack(self) -> bool:
        """Done: this group will not see the message again."""
        return self.hold.answering.ack([self])

    def atomic(self) -> AbstractContextManager[None]:
        """A block whose writes to the queue's database, whose publishes, and the ack are one commit, or nothing at all.

        Raises ``StaleDelivery`` at its end, with all rolled back, if the delivery is another's by then;
        ``BrokenTransaction`` if the block ended the transaction; ``WrongDatabase`` at a write to another database.
        """
        return atomically([self])

    def nack(self, *, delay: float | timedelta = 0, error: str = "") -> bool:
        """This attempt failed: deliver again after ``delay`` seconds, or dead-letter it if it was the last one."""
        return self.hold.answering.nack(self, delay, error)

    def reject(self, reason: str = "") -> bool:
        """This message can never succeed: dead-letter it now."""
        return self.hold.answering.reject(self, reason)

    def postpone(self, delay: float | timedelta = 0) -> bool:
        """Not now: deliver again after ``delay`` seconds. No attempt is counted."""
        return self.hold.answering.postpone(self, delay)

    def extend(self, seconds: float | timedelta) -> bool:
        """Keep the message from being delivered again for ``seconds`` from now."""
        return self.hold.answering.extend([self], seconds)

    def reply(self, payload: Any, *, kind: str = "", headers: Mapping[str, Any] | None = None) -> bool:
        """Answer a request, in the caller's transaction: whether this is the answer, and in time.

        The first reply counts: False, and nothing is stored, if there is one, or if nobody waits any more. An answer is
        an effect of the handler, as a publish is; it does not ack. Raises ``NotARequest``, and ``TypeError`` or
        ``ValueError`` for what ``publish`` would not take.
        """
        return reply(self, payload, kind, headers)

    async def areply(self, payload: Any, *, kind: str = "", headers: Mapping[str, Any] | None = None) -> bool:
        """``reply`` for ``async`` handlers."""
        return await sync_to_async(self.reply)(payload, kind=kind, headers=headers)


def make_delivery(row: dict[str, Any], group: str, topic: str, hold: Hold) -> Delivery:
    """A delivery from a row of ``state.claimed``."""
    metadata = json.loads(row["metadata"])
    errors = json.loads(row["errors"]) if row["errors"] else []
    id = row["original_id"] if row["original_id"] is not None else row["id"]
    box = box_of(metadata["headers"], row["original_topic"] or topic, id)
    return Delivery(
        offset=int(row["offset"]),
        id=id,
        topic=topic,
        key=names.key_of(row["partition"]),
        payload=encoding.decode(row["payload"], metadata["encoding"]),
        kind=metadata["kind"],
        headers=visible(metadata["headers"]),
        group=group,
        attempt=int(row["retry_count"]) + 1,
        published_at=moment(int(metadata.get("retry", {}).get("published_at", row["published_at"]))),
        last_error=row["message_last_error"] or (errors[-1]["error"] if errors else ""),
        failed_at=None if row["failed_at"] is None else moment(int(row["failed_at"])),
        failure_count=row["message_failure_count"],
        original_topic=row["original_topic"],
        failed_group=row["failed_group"],
        is_request=box is not None,
        box=box,
        hold=hold,
    )
