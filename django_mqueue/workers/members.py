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


class Members:
    """The engines of a process: the ``Subscriber`` of each handler. False if no engine works or is about to start.

    ``joined``: engines that work. ``starting``: engines that try to join again, because another transaction had locked
    rows of their group. ``ready``: the caller's list of the engines that may claim. This object changes it.
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
        for engine in self._handlers:
            if engine not in self.joined and engine not in self.starting:
                with engine.resting_after_lock_wait():
                    self._join(engine)
                if engine not in self.joined:
                    self.starting[engine] = None
                    self._ready.remove(engine)

    def retire(self, engine: Subscriber, *, may_return: bool) -> None:
        """Stop the work for a group. ``may_return``: join the group again if it is subscribed again."""
        self.joined.pop(engine, None)
        engine.leave_feed()
        if engine in self._ready:
            self._ready.remove(engine)
        if may_return:
            self._unsubscribed[engine] = None

    def join_if_due(self) -> None:
        """Join the groups that were subscribed again, or that could not be joined at the start."""
        waiting = [*self._unsubscribed, *self.starting]
        if not waiting or time.monotonic() < self._again_at:
            return
        self._again_at = time.monotonic() + float(conf.get("DISCOVERY_INTERVAL"))
        for engine in waiting:
            handler = self._handlers[engine]
            is_new = engine in self.starting
            if engine.resting or not (is_new or is_registered(handler.topic, handler.group, self.using)):
                continue
            with engine.resting_after_lock_wait():
                self._join(engine)
            if engine in self.joined:
                self._ready.append(engine)
                self.starting.pop(engine, None)
                if self._unsubscribed.pop(engine, is_new) is None:
                    logger.info("handler resumes: %s: its group is subscribed again", handler.name)

    def _join(self, engine: Subscriber) -> None:
        handler = self._handlers[engine]
        subscribe(handler.topic, handler.group, handler.start, using=self.using)
        engine.leave_feed()  # An earlier try may have joined it.
        engine.start()
        self.joined[engine] = None
