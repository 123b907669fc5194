"""Run ``runconsumer`` in the test's own process, with handlers that the test defines."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from django.core.management import call_command

from django_mqueue import Message, Topic, consumer
from django_mqueue.models import DeliveryState
from django_mqueue.workers.registry import unregister

from .processes import database_ms
from .waiting import PATIENCE, wait_until

_registered: list[str] = []


class Seen:
    """A handler that records its messages. Several threads may call it."""

    def __init__(self, then: Callable[[Message], object] | None = None) -> None:
        self.messages: list[Message] = []
        self._then, self._lock = then, threading.Lock()
        self.most_at_once = self._now = 0

    def __call__(self, message: Message) -> None:
        with self._lock:
            self.messages.append(message)
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
        try:
            if self._then is not None:
                self._then(message)
        finally:
            with self._lock:
                self._now -= 1

    @property
    def payloads(self) -> list[Any]:
        return [message.payload for message in self.messages]

    def attempts(self, payload: Any) -> list[int]:
        return [message.attempt for message in self.messages if message.payload == payload]


@contextmanager
def registered(
    topic: str | Topic[Any], function: Callable[..., Any], group: str = "g", **options: Any
) -> Iterator[None]:
    """Register ``@consumer(topic, …)(function)`` while the block runs."""
    consumer(topic, group=group, **options)(function)
    _registered.append(f"{topic}:{group}")
    try:
        yield
    finally:
        unregister(str(topic), group)
        _registered.remove(f"{topic}:{group}")


def run(*chosen: str, **options: Any) -> str:
    """Run ``runconsumer`` with these handlers and options (``drain`` by default), and return its output.

    Without names, it runs only the handlers that are ``registered`` now, and no handlers of apps.
    """
    options = {"drain": True, "max_seconds": PATIENCE, **options}
    output = io.StringIO()
    call_command(
        "runconsumer", *(chosen or _registered), stdout=output, stderr=output, no_color=True, **options
    )
    return output.getvalue()


def wait_until_extended(timeout_ms: int) -> None:
    """Return once the worker has extended every open delivery. ``timeout_ms`` is the handler's visibility timeout.

    Only a later extension hides a delivery for more than ``timeout_ms`` from now.
    """
    unextended = DeliveryState.objects.filter(acked=False, invisible_until__lte=database_ms() + timeout_ms)
    wait_until(lambda: not unextended.exists(), "each open delivery is extended", every=0.1)
