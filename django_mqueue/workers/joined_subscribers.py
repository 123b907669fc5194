"""The groups that a worker process has joined, and the groups that it joins later."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping

from .. import conf
from ..protocol.subscriber import Subscriber
from ..service.registration import is_registered, subscribe
from .registry import Handler

logger = logging.getLogger("django_mqueue")


class JoinedSubscribers:
    """The subscribers of a process, one for each handler. Falsy if none works or is about to start.

    ``joined``: subscribers that work. ``starting``: subscribers that try to join again, because another transaction
    had locked rows of their group. ``ready``: the caller's list of subscribers that may claim. It is changed here.
    """

    def __init__(self, using: str, handlers: Mapping[Subscriber, Handler], ready: list[Subscriber]) -> None:
        self.using, self._handlers, self._ready = using, handlers, ready
        self.joined: dict[Subscriber, None] = {}
        self.starting: dict[Subscriber, None] = {}
        self._unsubscribed: dict[Subscriber, None] = {}
        self._again_at = -math.inf

    def __bool__(self) -> bool:
        return bool(self.joined or self.starting)

    def start(self) -> None:
        """Join all groups. May be called again after a failure."""
        for subscriber in self._handlers:
            if subscriber not in self.joined and subscriber not in self.starting:
                with subscriber.backoff_after_lock_wait():
                    self._join(subscriber)
                if subscriber not in self.joined:
                    self.starting[subscriber] = None
                    self._ready.remove(subscriber)

    def retire(self, subscriber: Subscriber, *, may_return: bool) -> None:
        """Stop the work for a group. ``may_return``: join the group again if it is subscribed again."""
        self.joined.pop(subscriber, None)
        subscriber.leave_tailer()
        if subscriber in self._ready:
            self._ready.remove(subscriber)
        if may_return:
            self._unsubscribed[subscriber] = None

    def join_if_due(self) -> None:
        """Join the groups that were subscribed again, or that could not be joined at the start."""
        waiting = [*self._unsubscribed, *self.starting]
        if not waiting or time.monotonic() < self._again_at:
            return
        self._again_at = time.monotonic() + float(conf.get("DISCOVERY_INTERVAL"))
        for subscriber in waiting:
            handler, is_new = self._handlers[subscriber], subscriber in self.starting
            if subscriber.backing_off or not (
                is_new or is_registered(handler.topic, handler.group, self.using)
            ):
                continue
            with subscriber.backoff_after_lock_wait():
                self._join(subscriber)
            if subscriber in self.joined:
                self._ready.append(subscriber)
                self.starting.pop(subscriber, None)
                if subscriber in self._unsubscribed:
                    del self._unsubscribed[subscriber]
                    logger.info("handler resumes: %s: its group is subscribed again", handler.name)

    def _join(self, subscriber: Subscriber) -> None:
        handler = self._handlers[subscriber]
        subscribe(handler.topic, handler.group, handler.start, using=self.using)
        subscriber.leave_tailer()  # An earlier try may have joined it.
        subscriber.start()
        self.joined[subscriber] = None
