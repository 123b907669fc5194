"""Django signals about messages and leases.

A signal is sent at most once, after the commit of the change that it reports. It is lost if the process dies between
the two. Receivers observe the queue and take no part in its work. In a ``runconsumer`` process they run in a separate
thread (``workers.signal_dispatcher``). Elsewhere they run in the thread that made the change, after it has released its
locks. Exceptions of receivers are logged. docs/reference/signals.md lists the arguments.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from django.dispatch import Signal

logger = logging.getLogger("django_mqueue")


class TopicSignal(Signal):
    """A signal whose ``sender`` is a topic's name: ``connect(receiver, sender="orders")`` selects that topic."""

    def __init__(self) -> None:
        super().__init__()
        self._senders: dict[object, object] = {}
        """Django compares senders by identity, so each name that was connected to is mapped to one object."""

    def connect(
        self,
        receiver: Callable[..., Any],
        sender: object | None = None,
        weak: bool = True,
        dispatch_uid: Hashable | None = None,
    ) -> None:
        if isinstance(sender, str):
            sender = self._senders.setdefault(sender, sender)
        super().connect(receiver, sender=sender, weak=weak, dispatch_uid=dispatch_uid)

    def disconnect(
        self,
        receiver: Callable[..., Any] | None = None,
        sender: object | None = None,
        dispatch_uid: str | None = None,
    ) -> bool:
        return bool(super().disconnect(receiver, sender=self._known(sender), dispatch_uid=dispatch_uid))

    def has_listeners(self, sender: Any = None) -> bool:
        return bool(self.receivers) and super().has_listeners(self._known(sender))

    def send(self, sender: Any, **named: Any) -> list[tuple[Callable[..., Any], Any]]:
        return super().send(self._known(sender), **named)

    def send_robust(self, sender: Any, **named: Any) -> list[tuple[Callable[..., Any], Any]]:
        return super().send_robust(self._known(sender), **named)

    def _known(self, sender: Any) -> Any:
        return self._senders.get(sender, sender) if isinstance(sender, str) else sender

    def _log_robust_failure(self, receiver: Callable[..., Any], err: BaseException) -> None:
        """Log the exception of a receiver.

        Django's method raises for receivers without ``__qualname__`` (partials, objects), and so skips the other
        receivers.
        """
        name = getattr(receiver, "__qualname__", type(receiver).__qualname__)
        logger.error("a receiver of a signal failed: %s", name, exc_info=err)


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


@dataclass(frozen=True, slots=True)
class Event:
    """One signal to send, with its arguments."""

    signal: TopicSignal
    topic: str
    arguments: Mapping[str, Any]

    def send(self) -> None:
        """Call the receivers. Exceptions are logged, not raised."""
        try:
            self.signal.send_robust(sender=self.topic, topic=self.topic, **self.arguments)
        except Exception:
            logger.exception("a signal of topic %s could not be sent", self.topic)
