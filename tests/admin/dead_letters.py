"""Helpers that make dead letters with a real subscriber and read the pages of dead letters."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from django.test import Client

from django_mqueue import OutgoingMessage, Subscription, publish_many, subscribe
from django_mqueue.models import Message
from tests.support.subscribers import consume, poll_until

from .looking import html_of, text
from .operating import url_of

TOPIC, DEAD = "orders", "orders_dlq"
TRACEBACK = (
    "ValueError: no such order {n}\n\nTraceback (most recent call last):\n"
    '  File "/venv/lib/python3.11/site-packages/lib/call.py", line 9, in call\n    return f()\n'
    '  File "/srv/shop/consumers.py", line 41, in bill\n    charge(order)\n    ~~~~~~^^^^^^^\n'
    "ValueError: no such order {n}\n"
)


def give_up(
    *messages: Any, group: str = "billing", error: str = TRACEBACK, topic: str = TOPIC
) -> list[Message]:
    """Publish the messages and let the group reject all that it receives.

    Return the new dead letters, oldest first. ``{n}`` in the error is replaced by the number of the message.
    """
    dead = Message.objects.filter(failed_group=group, original_topic=topic)
    before = set(dead.values_list("offset", flat=True))
    subscribe(topic, group)
    if messages:
        publish_many(topic, messages)
    with Subscription(topic, group, batch_size=1000) as subscription:
        found = sorted(
            poll_until(subscription, len(messages) or 1, max_messages=1000), key=lambda one: one.offset
        )
        for n, delivery in enumerate(found):
            delivery.reject(error.replace("{n}", str(n)))
    return list(dead.exclude(offset__in=before).order_by("offset"))


def outgoing(count: int, **given: Any) -> list[OutgoingMessage]:
    return [
        OutgoingMessage({"n": n, "customer": {"id": n % 3}}, id=f"order-{n}", **given) for n in range(count)
    ]


def left(dead: str = DEAD) -> list[str]:
    """Return the original ids of the dead letters that are still stored."""
    return [
        str(one.original_id)
        for one in Message.objects.filter(topic=dead, failed_group__isnull=False).order_by("offset")
    ]


def given(group: str, count: int, topic: str = TOPIC) -> list[tuple[str, Any, int]]:
    """Return (id, payload, attempt) of a group's next deliveries."""
    with Subscription(topic, group, batch_size=1000) as subscription:
        return sorted((one.id, one.payload, one.attempt) for one in consume(subscription, count))


_ROW = re.compile(r"<tr[^>]*>(.*?)</tr>", re.S)
_CELL = re.compile(r"<t[hd][^>]*>(.*?)</t[hd]>", re.S)


def table(client: Client, page: str, **query: Any) -> list[list[str]]:
    """Return the rows of a page's tables, without their header rows."""
    html = html_of(client, url_of(page), {name: str(value) for name, value in query.items()})
    return list(_rows(html.partition('id="mqueue-main"')[2]))


def _rows(html: str) -> Iterator[list[str]]:
    for row in _ROW.findall(re.sub(r"<thead>.*?</thead>", "", html, flags=re.S)):
        yield [text(cell) for cell in _CELL.findall(row)]


def ids(client: Client, **query: Any) -> list[str]:
    """Return the ids on the list of dead letters."""
    found = table(client, "deadletter_list", **{"topic": TOPIC, **query})
    return [row[0] or row[1] for row in found]
