"""The newest messages of all topics, with dead letters and scheduled messages."""

from __future__ import annotations

from ..policy.message_query import DEAD, Page, check_position, cursor_of, position_of
from ..service import message_views
from ..store.connection import session
from ..store.queries import message_pages
from ..store.queries.partition_walk import OFFSET_END

NEWEST_OF_ALL = "newest of all"


def newest(using: str, *, limit: int, start: str | None, payload_limit: int) -> Page:
    """Return a page with up to ``limit`` messages of all topics, highest offset first.

    The topic of each message is the topic that its row is stored in. ``start``: the ``next`` of an earlier page, or
    None. ``payload_limit``: the maximum number of bytes that are read of each payload.

    Raises ``TypeError`` or ``ValueError`` if ``start`` is not the ``next`` of such a page.
    """
    position = position_of(NEWEST_OF_ALL, start)
    (below,) = (OFFSET_END,) if position is None else check_position(position, int)
    with session.migration_errors(using):
        topics = message_pages.newest_of_all(using, below, limit)
        rows = message_pages.rows(using, list(topics)) if topics else {}
        bodies = message_pages.payloads(using, list(rows), payload_limit) if rows else {}
    messages = []
    for offset, topic in topics.items():
        if offset in bodies:
            row = rows[offset]
            body, row["size"] = bodies[offset]
            place = message_views.LOG if row["failed_group"] is None else DEAD
            message_views.decode_row(row, place)
            messages.append(message_views.to_inspected(row, body, topic=topic, group=None, place=place))
    last = min(topics, default=0)
    return Page(messages, cursor_of(NEWEST_OF_ALL, (last,)) if len(topics) == limit else None, len(topics))
