"""Parked retries: finish a message in the log and schedule it again for its group.

A message that waits for its retry in the log holds back the group's watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from django.db.backends.utils import CursorWrapper

from ... import conf
from ...policy import names
from ...policy.ids import new_token, uuid7
from ...store import acknowledgements
from ...store.acknowledgements import Deliveries
from ...store.delivery_state import Receipt
from ...store.scheduling import parked_retries
from ...store.scheduling.parked_retries import Aside
from ..consumer_state import Context

LONG_MS = 3_600_000
"""Delay in milliseconds above which a retry is parked.

A retry that waits in the log holds back its group's watermark, and so the deletion of all later messages. The default
retention keeps messages for one hour anyway.
"""


def is_long(context: Context, delay_ms: int) -> bool:
    """Return whether a retry after ``delay_ms`` is parked.

    With ``strict`` it is not: the message must hold back its key. Dead letters are not parked either, because nothing
    in their topic is deleted. Messages of a topic with a name longer than ``TOPIC_MAX`` are not parked.
    """
    kept = context.topic.endswith(conf.dead_letter_suffixes()) or len(context.topic) > names.TOPIC_MAX
    return delay_ms > LONG_MS and not (context.options.strict or kept)


def set_aside(
    context: Context, delay_ms: int, error: str | None
) -> Callable[[CursorWrapper, Sequence[Receipt]], int]:
    """Return a function that parks the retry of one delivery.

    ``error``: the error of the failed attempt, or None if no attempt is counted.
    """

    def change(cursor: CursorWrapper, tickets: Sequence[Receipt]) -> int:
        (ticket,) = tickets
        # A postponement leaves the same failure count as an ack. A new token distinguishes the two.
        token = new_token() if error is None else None
        done = acknowledgements.finish(cursor, Deliveries(context.me, tickets), error, token, is_aside=True)
        if done:
            what = Aside(context.group, context.topic, ticket.partition, ticket.offset, context.life, uuid7())
            parked_retries.park(cursor, what, delay_ms, counted=error is not None)
        return done

    return change
