"""Requests made in threads, answered by hand."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connection

from django_mqueue import Delivery, Reply, Subscription, request
from django_mqueue.models import Message
from tests.support.subscribers import poll_until
from tests.support.transactions import Background


def asked(topic: str, payload: Any, **options: Any) -> Background[Reply]:
    """Return a requester in its own thread. ``result()`` returns what ``request`` returns, or raises its error."""
    return Background(lambda: request(topic, payload, **{"timeout": 60, **options}))


def one(subscription: Subscription) -> Delivery:
    """Wait for one delivery and return it."""
    (delivery,) = poll_until(subscription, 1)
    return delivery


def boxes(topic: str) -> list[Message]:
    """Return the reply boxes of a topic, also the boxes that are left over."""
    return list(Message.objects.filter(topic=f"{topic}_replies").order_by("offset"))


@contextmanager
def later(seconds: float) -> Iterator[None]:
    """Set the database's clock ahead by ``seconds``, for this thread's connection."""
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION timestamp = UNIX_TIMESTAMP(NOW(3)) + %s", [seconds])
        try:
            yield
        finally:
            cursor.execute("SET SESSION timestamp = DEFAULT")


def move_deadlines(topic: str, ms: int) -> None:
    """Move the deadlines of the boxes back by ``ms``, as if that time had passed."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE queue_messages SET available_at = available_at - %s WHERE topic = %s",
            [ms, f"{topic}_replies"],
        )
