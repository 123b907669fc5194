"""Where the groups of streaming queries stand."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from django_mqueue import reset, subscribe, unsubscribe
from django_mqueue.models import Message, Offset
from django_mqueue.service.settling import Settler
from django_mqueue.store import offsets
from tests.support.processes import wait_until


def stands_at(group: str, topic: str = "orders") -> int:
    """The offset up to which deletion may go, for this group."""
    return Offset.objects.get(consumer_group=group, topic=topic, partition_key="").offset_acked


def eventually(condition: Callable[[], object], what: str) -> None:
    """Wait for it as long as Spark may take, whose processes start one by one."""
    wait_until(lambda: bool(condition()), what, seconds=120)


def settle(topic: str) -> int:
    """The offset up to which all is decided; there must be any. All know it, if the topic has a group."""
    settler = Settler("default", topic)
    return wait_until(settler.advance, "the topic is settled")


def change_by_hand(group: str, how: str) -> None:
    """As an operator does, while its query runs."""
    if how == "reset":
        reset("orders", group, "earliest", force=True)
    else:
        unsubscribe("orders", group)
    if how == "subscribed again":
        subscribe("orders", group)


def newest(topic: str = "orders") -> int:
    found = Message.objects.filter(topic=topic).order_by("-offset").values_list("offset", flat=True).first()
    assert found is not None
    return found


def reads_log(group: str, topic: str = "orders") -> bool:
    found = offsets.registration("default", group, topic)
    return found is not None and found.reads_log


def committed(checkpoint: str) -> int:
    """The newest batch that is durable; -1 for none."""
    return max((int(path.name) for path in Path(checkpoint, "commits").glob("[0-9]*")), default=-1)


def ended(checkpoint: str, batch: int, topic: str = "orders") -> int:
    """The last offset of a planned batch."""
    lines = Path(checkpoint, "offsets", str(batch)).read_text().splitlines()
    return int(json.loads(lines[-1])["topics"][topic]) - 1
