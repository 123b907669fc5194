"""A handler, and a receiver that waits for a door if the message's kind says so."""

from __future__ import annotations

import os
from typing import Any

from django.dispatch import receiver

from django_mqueue import Message, consumer, signals
from django_mqueue.workers import signal_dispatcher
from tests.support.shop.consumers import at_door, note

signal_dispatcher.LINGER = float(os.environ.get("TEST_LINGER", signal_dispatcher.LINGER))


@consumer("told", group="listeners")
def handle(message: Message) -> None:
    note("end", message)


@receiver(signals.acked, sender="told")
def hear(*, id: str, kind: str, attempt: int, offset: int, **arguments: Any) -> None:
    if kind == "hang":
        at_door("receiver")
    heard = Message(offset, id, "told", "", {"n": int(id)}, kind, "heard", attempt, arguments["published_at"])
    note("end", heard)
