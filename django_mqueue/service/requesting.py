"""Requests: publish a message, and wait for the reply in a box (``policy.requests``)."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from contextvars import ContextVar
from datetime import timedelta
from functools import cache
from time import monotonic, sleep
from typing import Any

from asgiref.sync import sync_to_async
from django.db import Error, transaction
from django.db.backends.utils import CursorWrapper

from .. import conf
from ..exceptions import MQueueError, RequestFailed, RequestTimeout
from ..messages import OutgoingMessage, Published, Reply
from ..policy import encoding
from ..policy.durations import to_ms
from ..policy.ids import uuid7
from ..policy.requests import Box
from ..protocol.retention.expired_replies import ExpiredReplies
from ..protocol.waking import commits
from ..protocol.waking.sockets import SleepSocket
from ..store import replies
from ..store.connection import session
from .publish import check, publish_request

FIRST_PAUSE, GROWTH = 0.005, 1.5
LAST_TRIES, LAST_PAUSE = 5, 0.02
"""At the deadline: the number of checks of a box that is being filled, and the seconds between two checks."""
TRIES_AFTER_A_LOSS = 150

inline_handlers: ContextVar[Callable[[str, str], object] | None] = ContextVar("inline_handlers", default=None)
"""For tests: a function that runs the handlers of (topic, database) in place of workers, so that no request waits."""


def request(
    topic: str,
    payload: Any,
    *,
    timeout: float | timedelta = 30,
    key: str | None = None,
    id: str | None = None,
    kind: str = "",
    headers: Mapping[str, Any] | None = None,
    group: str | None = None,
    using: str | None = None,
) -> Reply:
    """Publish a message, and wait up to ``timeout`` seconds until a handler calls ``message.reply``. Return the reply.

    The other arguments are as for ``publish``. Each group of the topic gets the message, and the first reply counts.
    With ``group``, only that group gets it. The request commits by itself. The deadline goes by the database's clock.

    Raises ``RequestTimeout`` if no reply was committed in time; the message stays in the log, and workers handle it.
    Raises ``RequestFailed`` if the only group that could still reply has dead-lettered the message. Raises
    ``DuplicateMessage`` if the topic already holds the ``id``. Raises ``MQueueError`` inside a transaction, because no
    worker would see the request before the commit. Raises ``NotRegistered`` for an unknown ``group``, and ``TypeError``
    or ``ValueError`` for bad arguments, before any SQL.
    """
    pending = PendingRequest(
        topic, OutgoingMessage(payload, key, id, kind, headers, group=group), timeout, using
    )
    try:
        pending.send()
        while (found := pending.poll()) is None:
            pending.wait()
        return found
    except BaseException:
        pending.abandon()
        raise
    finally:
        pending.close()


async def arequest(
    topic: str,
    payload: Any,
    *,
    timeout: float | timedelta = 30,
    key: str | None = None,
    id: str | None = None,
    kind: str = "",
    headers: Mapping[str, Any] | None = None,
    group: str | None = None,
    using: str | None = None,
) -> Reply:
    """Do the same as ``request``, for asynchronous callers. It holds no thread while it waits."""
    pending = PendingRequest(
        topic, OutgoingMessage(payload, key, id, kind, headers, group=group), timeout, using
    )
    poll = sync_to_async(pending.poll)
    try:
        await sync_to_async(pending.send)()
        while (found := await poll()) is None:
            await pending.await_reply()
        return found
    except BaseException:
        await asyncio.shield(sync_to_async(pending.abandon)())
        raise
    finally:
        pending.close()


class PendingRequest:
    """One request: ``send`` publishes it, ``poll`` checks for the reply, ``abandon`` deletes its box.

    ``wait`` waits for up to ``pause`` seconds. A reply from this host ends the wait.
    """

    def __init__(
        self, topic: str, message: OutgoingMessage, timeout: float | timedelta, using: str | None
    ) -> None:
        self.topic, self.using = topic, conf.database(using)
        self.timeout_ms = to_ms("timeout", timeout, least=0.001)
        check(topic, message, is_request=True)
        self.message = message
        self.id, self.pause = "", FIRST_PAUSE
        self._box: Box | None = None
        self._socket: SleepSocket | None = None
        self._inline_handler = inline_handlers.get()

    def send(self) -> None:
        """Open the box and publish the request, in one commit."""
        if self._inline_handler is None and session.in_transaction(self.using):
            raise MQueueError(
                f"cannot request inside a transaction on {self.using!r}: no worker sees the request before the"
                " commit, so no reply can arrive. Request before or after the transaction; in tests use"
                " django_mqueue.testing.requests_answered"
            )
        if self._inline_handler is not None:
            # Also before the message is stored: it registers the groups, some of which get only later messages.
            self._inline_handler(self.topic, self.using)
        atomic = nullcontext() if self._inline_handler is None else transaction.atomic(using=self.using)
        with session.raises_not_migrated(self.using):
            _delete_expired_boxes(self.using, self.topic)
            with atomic:
                self.id = session.run(self.using, self._publish).id
        if self._inline_handler is not None:
            self._inline_handler(self.topic, self.using)
        elif self._box is not None:
            self._socket = commits.reply_socket(self.using, self._box.id)

    def wait(self) -> None:
        if self._socket is None:
            sleep(self.pause)
        else:
            self._socket.wait(self.pause)

    async def await_reply(self) -> None:
        """Wait like ``wait``, without a thread."""
        if self._socket is None:
            await asyncio.sleep(self.pause)
            return
        self._socket.socket.setblocking(False)
        with suppress(TimeoutError, asyncio.TimeoutError):
            loop = asyncio.get_running_loop()
            await asyncio.wait_for(loop.sock_recv(self._socket.socket, 1), self.pause)

    def close(self) -> None:
        """Close the socket. Call this after ``poll`` or ``abandon``."""
        if self._socket is not None:
            self._socket.close()

    def poll(self) -> Reply | None:
        """Return the reply; None: call again after ``pause`` seconds. Raise an error if there will be none."""
        assert self._box is not None
        if self._socket is not None:
            self._socket.sleep()  # Before the read: a later reply ends the wait.
        found = replies.read(self.using, self._box)
        is_open = found is not None and found.failures is None
        if found is not None and is_open and found.left_ms > 0 and self._inline_handler is None:
            self.pause = min(
                self.pause * GROWTH, float(conf.get("POLL_INTERVAL", self.topic)), found.left_ms / 1000
            )
            return None
        if is_open:
            found = self._take_at_deadline()
        else:
            self.abandon()
        if found is None or found.failures is None:
            raise RequestTimeout(self.topic, self.id, self.timeout_ms / 1000)
        metadata = json.loads(found.metadata)
        if found.failures:
            raise RequestFailed(self.topic, self.id, metadata["headers"]["group"], found.error)
        return Reply(
            encoding.decode(found.payload, metadata["encoding"]), metadata["kind"], metadata["headers"]
        )

    def abandon(self) -> None:
        """Delete the box. If the database cannot do it now, a worker or another requester deletes it later."""
        try:
            self._take()
        except Error:
            if not session.in_transaction(self.using):
                session.discard(self.using)
                with suppress(Error):
                    self._take_when_free()

    def _publish(self, cursor: CursorWrapper) -> Published:
        message = self.message
        # The box names the request by its id, so the id is chosen first.
        id = uuid7() if message.id is None else message.id
        self._box = replies.open_box(cursor, self.topic, id, uuid7(), self.timeout_ms)
        return publish_request(self.topic, message, self._box, self.using)

    def _take_at_deadline(self) -> replies.Content | None:
        """Take the box at the deadline. A reply counts if it is committed, or is just being committed."""
        for _ in range(LAST_TRIES):
            if (found := self._take()) is not None:
                return found
            sleep(LAST_PAUSE)
        return None

    def _take_when_free(self) -> None:
        """Take the box if it exists. Retry, because a killed connection may hold its locks a moment longer."""
        for _ in range(TRIES_AFTER_A_LOSS):
            if self._take() is not None or self._box is None or replies.read(self.using, self._box) is None:
                return
            sleep(LAST_PAUSE)

    def _take(self) -> replies.Content | None:
        if (box := self._box) is None:
            return None
        found = session.run(self.using, lambda cursor: replies.take(cursor, box))
        if found is not None:
            self._box = None
        return found


_next_deletions: dict[tuple[str, str], float] = {}
_expired_replies = cache(ExpiredReplies)


def _delete_expired_boxes(using: str, topic: str) -> None:
    """Delete a page of expired boxes, once per ``GC_INTERVAL`` in this process. It is needed if no worker runs."""
    now = monotonic()
    if now >= _next_deletions.get((using, topic), -math.inf):
        _next_deletions[using, topic] = now + float(conf.get("GC_INTERVAL", topic))
        _expired_replies(using, topic).delete_page()
