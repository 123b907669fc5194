"""Read the tables after a death, independently of the queue's own code."""

from __future__ import annotations

import json
from typing import Any

from django_mqueue.models import DeliveryState, Message, Offset, PartitionLease, SubscriberHeartbeat
from tests.support.processes import database_ms
from tests.support.subscribers import payloads_in_log

from .walks import FIRST

Seen = tuple[Any, ...]


def payloads(topic: str) -> Seen:
    """Return the payloads in the log, in its order."""
    return tuple(map(json.loads, payloads_in_log(topic)))


def letters(topic: str) -> Seen:
    """Return (payload, group, failures) of each dead letter."""
    rows = Message.objects.filter(topic=f"{topic}_dlq").order_by("offset")
    return tuple((json.loads(bytes(r.payload)), r.failed_group, r.failure_count) for r in rows)


def states(topic: str, *columns: str, group: str = FIRST) -> Seen:
    """Return these columns of the group's delivery state, one tuple per message that has state, in the log's order."""
    rows = DeliveryState.objects.filter(topic=topic, consumer_group=group).order_by("message_offset")
    return tuple(tuple(getattr(row, column) for column in columns) for row in rows)


def acked(topic: str) -> Seen:
    return tuple(done for (done,) in states(topic, "acked"))


def ended(topic: str) -> Seen:
    """Return which messages are acknowledged, and the dead letters. Both change in the same commit."""
    return (acked(topic), letters(topic))


def in_flight(topic: str) -> Seen:
    return states(topic, "in_flight", "handed", "retry_count")


def leases(topic: str, group: str = FIRST) -> Seen:
    """Return (partition, name of the holder) of each lease."""
    rows = PartitionLease.objects.filter(topic=topic, consumer_group=group).order_by("partition_key")
    return tuple(rows.values_list("partition_key", "leased_by"))


def positions(topic: str, group: str = FIRST) -> Seen:
    """Return the partitions for which the group has a watermark."""
    rows = Offset.objects.filter(topic=topic, consumer_group=group).exclude(partition_key="")
    return tuple(rows.order_by("partition_key").values_list("partition_key", flat=True))


def passed(topic: str, group: str = FIRST) -> int:
    """Return how many messages of the log are at or below the group's watermark for their partition."""
    marks = Offset.objects.filter(topic=topic, consumer_group=group).exclude(partition_key="")
    log = Message.objects.filter(topic=topic)
    return sum(
        log.filter(partition_key=mark.partition_key, offset__lte=mark.offset_acked).count() for mark in marks
    )


def is_registered(topic: str, group: str = FIRST) -> bool:
    return Offset.objects.filter(topic=topic, consumer_group=group, partition_key="").exists()


def paused(topic: str) -> Seen:
    """Return the paused groups."""
    rows = Offset.objects.filter(topic=topic, partition_key="", paused=True)
    return tuple(rows.order_by("consumer_group").values_list("consumer_group", flat=True))


def heartbeats(topic: str, group: str = FIRST) -> Seen:
    """Return (name, is alive) of each subscriber that has ever joined."""
    rows = SubscriberHeartbeat.objects.filter(topic=topic, consumer_group=group).order_by("subscriber_name")
    now = database_ms()
    return tuple(
        (row.subscriber_name, row.deregistered_at is None and row.heartbeat_at > now - 600_000)
        for row in rows
    )
