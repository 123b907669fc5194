"""A batch handler that records its batches, and helpers that read a topic's states, dead letters and errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from django_mqueue import Delivery, FixedDelay, OutgoingMessage, publish_many
from django_mqueue.models import DeliveryState, Message

AT_ONCE, LATER = FixedDelay(0), FixedDelay(600)


class Batches:
    """Record the batches of a handler. Several threads may call it."""

    def __init__(self, then: Callable[[list[Delivery]], object] | None = None) -> None:
        self.given: list[list[Delivery]] = []
        self._then, self._lock = then, threading.Lock()

    def __call__(self, messages: list[Delivery]) -> None:
        with self._lock:
            self.given.append(messages)
        if self._then is not None:
            self._then(messages)

    @property
    def payloads(self) -> list[list[Any]]:
        return [[message.payload for message in batch] for batch in self.given]

    @property
    def handled(self) -> list[Any]:
        """Return all payloads in the order of their delivery."""
        return [payload for batch in self.payloads for payload in batch]

    def attempts(self, payload: Any) -> list[int]:
        return [m.attempt for batch in self.given for m in batch if m.payload == payload]


def publish_all(topic: str, payloads: Iterable[Any], key: str = "k") -> None:
    publish_many(topic, [OutgoingMessage(payload, key=key) for payload in payloads])


def states() -> list[tuple[bool, int, int]]:
    """Return (acked, failures, redeliveries) of each message, in offset order."""
    found = DeliveryState.objects.order_by("message_offset")
    return list(found.values_list("acked", "failure_count", "retry_count"))


def letters(topic: str) -> dict[bytes, str]:
    """Return the dead letters of a topic: payload and the first line of the error."""
    rows = Message.objects.filter(topic=f"{topic}_dlq")
    return {bytes(row.payload): (row.last_error or "").partition("\n")[0] for row in rows}


def errors() -> list[str]:
    """Return the first lines of all stored errors, in offset order."""
    found = DeliveryState.objects.order_by("message_offset")
    return [error["error"].partition("\n")[0] for state in found for error in state.errors or []]
