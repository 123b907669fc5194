"""A topic with one message in each status, and helpers that query it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from django.db import connection

from django_mqueue import OutgoingMessage, Subscription, publish_many, subscribe
from django_mqueue.inspect import Inspected, Page, messages
from django_mqueue.models import Message
from tests.support.processes import database_ms
from tests.support.subscribers import poll_until, settle

TOPIC, GROUP = "orders", "billing"


def published(*payloads: Any, key: str | None = "k", **fields: Any) -> list[int]:
    """Publish messages with these payloads, and return their offsets."""
    return [
        one.offset for one in publish_many(TOPIC, [OutgoingMessage(p, key=key, **fields) for p in payloads])
    ]


def scheduled(*payloads: Any, group: str = "", in_ms: int = 3_600_000, topic: str = TOPIC) -> list[int]:
    """Create scheduled messages, and return their offsets."""
    rows = []
    for payload in payloads:
        now = database_ms()
        rows.append(
            Message.objects.create(
                topic=f"{topic}_scheduled", partition_key="k", message_id=f"later-{payload}", consumer_group=group,
                payload=json.dumps(payload).encode(), metadata={"kind": "", "headers": {}, "encoding": "json"},
                available_at=now + in_ms, created_at=now, published_at=now,
            ).offset
        )  # fmt: skip
    return rows


def one_of_each() -> dict[str, int]:
    """Create a message in each status, each with its own key. Return the offsets by the name of the status.

    The group ``stock`` is also subscribed.
    """
    subscribe(TOPIC, GROUP)
    subscribe(TOPIC, "stock")
    names = ("done", "dead", "waiting", "in_flight")
    offsets = {name: published({"is": name}, key=name, id=name)[0] for name in names}
    subscription = Subscription(TOPIC, GROUP, "worker-1").open()
    for delivery in poll_until(subscription, 4):
        if delivery.id == "done":
            delivery.ack()
        elif delivery.id == "dead":
            delivery.reject("ValueError: never\n\nTraceback")
        elif delivery.id == "waiting":
            delivery.nack(delay=100, error="ConnectionError: not now")
    settle(subscription)
    offsets["pending"] = published({"is": "pending"}, key="pending", id="pending")[0]
    offsets["scheduled"] = scheduled("tomorrow")[0]
    subscription._subscriber = None  # Its leases and its messages in flight stay as they are.
    return offsets


def found(page: Page) -> list[Any]:
    return [message.payload for message in page]


def every(topic: str = TOPIC, **asked: Any) -> list[Inspected]:
    """Return all messages that ``messages`` finds, page by page."""
    got, start = [], None
    for _ in range(1000):
        page = messages(topic, start=start, **asked)
        got += page.messages
        if (start := page.next) is None:
            return got
    raise AssertionError("the pages have no end")


def published_at(offsets: list[int], ms: int) -> datetime:
    """Set the publication time of messages, and return it as a datetime."""
    with connection.cursor() as cursor:
        for offset in offsets:
            cursor.execute("UPDATE queue_messages SET published_at = %s WHERE `offset` = %s", [ms, offset])
    return datetime.fromtimestamp(ms / 1000, UTC)
