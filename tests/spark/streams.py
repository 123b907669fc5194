"""Positions of the groups of streaming queries."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from django_mqueue import reset, subscribe, unsubscribe
from django_mqueue.models import Message, Offset
from django_mqueue.protocol.settling import Settler
from django_mqueue.store import offsets
from django_mqueue.store.leases import Holder
from tests.support.processes import wait_until
from tests.support.waiting import SPARK_PATIENCE


def stands_at(group: str, topic: str = "orders") -> int:
    """Return the offset up to which this group allows deletion."""
    return Offset.objects.get(consumer_group=group, topic=topic, partition_key="").offset_acked


def eventually(condition: Callable[[], object], what: str) -> None:
    """Wait for the condition with a long timeout. Spark's processes start one by one."""
    wait_until(lambda: bool(condition()), what, seconds=SPARK_PATIENCE)


@contextmanager
def reading(group: str, topic: str = "orders") -> Iterator[Holder]:
    """Read a topic for the group, with heartbeats, as an archive run does."""
    from django_mqueue.spark.connecting import ConnectionParameters
    from django_mqueue.spark.database import following
    from django_mqueue.spark.database.heartbeating import Heartbeats

    incarnation, heartbeats = uuid.uuid4().hex, Heartbeats(ConnectionParameters())
    reader = Holder(group, topic, f"{following.READER_PREFIX}{incarnation[:12]}", incarnation)
    following.join_all([reader], using="default")
    heartbeats.add([reader])
    try:
        yield reader
    finally:
        heartbeats.stop()


def settle(topic: str) -> int:
    """Settle the topic, and return its settled offset.

    Fail if nothing can be settled. If the topic has a group, the offset is stored.
    """
    settler = Settler("default", topic)
    return wait_until(settler.advance, "the topic is settled")


def change_by_hand(group: str, how: str) -> None:
    """Change the registration as an operator does while the query runs."""
    if how == "reset":
        reset("orders", group, "earliest", force=True)
    else:
        unsubscribe("orders", group)
    if how == "subscribed again":
        subscribe("orders", group)


def subscribe_again(group: str = "archive") -> None:
    unsubscribe("orders", group)
    subscribe("orders", group)


def newest(topic: str = "orders") -> int:
    found = Message.objects.filter(topic=topic).order_by("-offset").values_list("offset", flat=True).first()
    assert found is not None
    return found


def reads_log(group: str, topic: str = "orders") -> bool:
    found = offsets.registration("default", group, topic)
    return found is not None and found.reads_log


def committed(checkpoint: str) -> int:
    """Return the number of the newest durable batch, or -1."""
    return max((int(path.name) for path in Path(checkpoint, "commits").glob("[0-9]*")), default=-1)


def ended(checkpoint: str, batch: int, topic: str = "orders") -> int:
    """Return the last offset of a planned batch."""
    lines = Path(checkpoint, "offsets", str(batch)).read_text().splitlines()
    return int(json.loads(lines[-1])["topics"][topic]) - 1
