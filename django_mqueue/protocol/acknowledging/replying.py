"""Fill the reply box of a request: with a reply, or with the reason why there will be none."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from django.db.backends.utils import CursorWrapper

from ... import conf
from ...exceptions import NotARequest
from ...policy.encoding import encode
from ...policy.requests import Box, check_headers
from ...store import replies
from ...store.connection import session
from ...store.connection.second_connection import outside_snapshot
from ...store.delivery_state import clip
from ..delivery import Delivery
from ..waking import commits

POLL_INTERVAL = 0.03
"""Seconds between two checks of a box that another handler is filling."""


def reply(delivery: Delivery, payload: Any, kind: str, headers: Mapping[str, Any] | None) -> bool:
    """Fill the reply box of a delivery's request, in the caller's transaction.

    Return True if this is the reply that the requester gets. Return False if the box is filled already, past its
    deadline or deleted. If an open transaction is filling the box, wait for it until the request's deadline, because it
    may roll back. Raise ``NotARequest``, or ``TypeError`` or ``ValueError`` for bad arguments.
    """
    box = delivery.box
    if box is None:
        raise NotARequest(delivery)
    check_headers(headers)
    content = encode(
        payload, kind, headers, conf.get("MAX_PAYLOAD_BYTES", delivery.original_topic or delivery.topic)
    )
    using = delivery.status.acknowledger.state.using

    def work(cursor: CursorWrapper) -> bool:
        if not replies.lock_open(cursor, box):
            return False
        replies.fill(cursor, box, content)
        commits.reply_after_commit(using, box.id)
        return True

    if session.run(using, work):
        return True
    found = replies.read(using, box)
    if found is not None and found.failures is not None:
        return False  # Perhaps this transaction filled it, which other connections cannot see.
    with outside_snapshot(using) as fresh:
        if fresh != using:
            found = replies.read(fresh, box)
        while _is_open(found):
            time.sleep(POLL_INTERVAL)
            if session.run(using, work):
                return True
            found = replies.read(fresh, box)
    return False


def _is_open(found: replies.Content | None) -> bool:
    return found is not None and found.failures is None and found.left_ms > 0


def report_failure(cursor: CursorWrapper, box: Box, offset: int, group: str, error: str) -> None:
    """Report a dead-lettered request to its requester, if no other group can still reply. Never waits."""
    if replies.is_last_replier(cursor, offset, group) and replies.lock_open(cursor, box):
        replies.fill(cursor, box, encode(None, "", {"group": group}, max_bytes=64), clip(error))
        commits.reply_after_commit(cursor.db.alias, box.id)
