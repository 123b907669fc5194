"""Long waits for a retry: the message leaves the log's head and is scheduled anew, so that it holds nobody up."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from django.db.backends.utils import CursorWrapper

from .. import conf
from ..policy import names
from ..policy.ids import new_token, uuid7
from ..store import answers, aside
from ..store.answers import Deliveries
from ..store.aside import Aside
from ..store.state import Ticket
from .context import Context

LONG_MS = 3_600_000
"""What waits longer is set aside: it would hold back its group's watermark, and with it the deletion of all that lies
behind. For an hour that is the default retention's doing anyway."""


def is_long(context: Context, delay_ms: int) -> bool:
    """Whether a message that is to come again so late is set aside.

    In strict order it is not: it holds back its key, whatever comes. Nor is a dead letter, behind which nothing is
    deleted anyway.
    """
    kept = context.topic.endswith(conf.dead_letter_suffixes()) or len(context.topic) > names.TOPIC_MAX
    return delay_ms > LONG_MS and not (context.options.strict or kept)


def set_aside(
    context: Context, delay_ms: int, error: str | None
) -> Callable[[CursorWrapper, Sequence[Ticket]], int]:
    """An answer to one delivery. ``error``: the attempt has failed by it; None: it is no attempt."""

    def change(cursor: CursorWrapper, tickets: Sequence[Ticket]) -> int:
        (ticket,) = tickets
        # Not to be told from an ack by its failures, a postponement leaves another token behind.
        token = new_token() if error is None else None
        done = answers.finish(cursor, Deliveries(context.me, tickets), error, token, is_aside=True)
        if done:
            what = Aside(context.group, context.topic, ticket.partition, ticket.offset, context.life, uuid7())
            aside.set_aside(cursor, what, delay_ms, counted=error is not None)
        return done

    return change
