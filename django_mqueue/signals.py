"""Django signals about messages and leases.

A signal is sent at most once, after the commit of the change that it reports. It is lost if the process dies between
the two. Receivers observe the queue and take no part in its work. In a ``runconsumer`` process they run in a separate
thread (``workers.signal_dispatcher``). Elsewhere they run in the thread that made the change, after it has released its
locks. Exceptions of receivers are logged. docs/reference/signals.md lists the arguments.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from django.dispatch import Signal

logger = logging.getLogger("django_mqueue")


_topics: dict[str, str] = {}


def _same(sender: Any) -> Any:
    """Return the first object with this topic's name, because Django compares senders by identity."""
    return _topics.setdefault(sender, sender) if isinstance(sender, str) else sender


class TopicSignal(Signal):
    """A signal whose ``sender`` is a topic's name: ``connect(receiver, sender="orders")`` selects that topic."""

    def connect(self, receiver: Any, sender: Any = None, *args: Any, **named: Any) -> None:
        super().connect(receiver, _same(sender), *args, **named)

    def disconnect(self, receiver: Any = None, sender: Any = None, dispatch_uid: str | None = None) -> bool:
        return bool(super().disconnect(receiver, _same(sender), dispatch_uid))

    def has_listeners(self, sender: Any = None) -> bool:
        return bool(self.receivers) and super().has_listeners(_same(sender))

    def send_robust(self, sender: Any, **named: Any) -> list[tuple[Callable[..., Any], Any]]:
        return super().send_robust(_same(sender), **named)

    def send_logged(self, topic: str, **arguments: Any) -> None:
        """Call the receivers of a topic. Exceptions are logged, not raised."""
        try:
            self.send_robust(topic, topic=topic, **arguments)
        except Exception:
            logger.exception("signal not sent: topic %s", topic)

    def _log_robust_failure(self, receiver: Callable[..., Any], err: BaseException) -> None:
        """Log the exception of a receiver. Django's method fails for partials and objects."""
        name = getattr(receiver, "__qualname__", type(receiver).__qualname__)
        logger.error("signal receiver failed: %s", name, exc_info=err)


Event = partial[None]
"""A call of ``TopicSignal.send_logged``."""


class EventSink(Protocol):
    """Takes events while locks are held. ``send`` sends them, or does nothing if the sink sends them later."""

    def put(self, event: Event) -> None: ...

    def send(self) -> None: ...


class EventQueue(threading.local):
    """A queue of events for each thread. No thread waits for the receivers of another thread's events."""

    def __init__(self) -> None:
        self.events: deque[Event] = deque()

    def put(self, event: Event) -> None:
        """Queue an event. Never waits; the caller may hold locks."""
        self.events.append(event)

    def send(self) -> None:
        """Send the events that this thread has queued. The caller must hold no locks: receivers may be slow."""
        while self.events:
            self.events.popleft()()


published = TopicSignal()
delivered = TopicSignal()
acked = TopicSignal()
failed = TopicSignal()
postponed = TopicSignal()
dead_lettered = TopicSignal()
redriven = TopicSignal()
dropped = TopicSignal()
lease_won = TopicSignal()
lease_lost = TopicSignal()
