"""Create rows of the five tables directly, for tests of code that displays any row."""

from __future__ import annotations

import json
from typing import Any

from factory.declarations import LazyAttribute, LazyFunction, Sequence
from factory.django import DjangoModelFactory

from django_mqueue.models import DeliveryState, Message, Offset, PartitionLease, SubscriberHeartbeat

NOON = 1_767_268_800_000 + 123
"""2026-01-01 12:00:00.123 UTC."""

FAR = 1 << 45
"""Epoch milliseconds in the year 3084, later than the clock of any test."""


class MessageFactory(DjangoModelFactory[Message]):
    """``payload`` is the published value: bytes, or a value that JSON can encode."""

    class Meta:
        model = Message

    topic = "orders"
    partition_key = "customer-1"
    message_id: Any = Sequence(lambda number: f"id-{number}")
    consumer_group = ""
    payload = LazyFunction(lambda: {"order": 1})
    metadata = LazyAttribute(
        lambda row: {
            "kind": "",
            "headers": {},
            "encoding": "bytes" if isinstance(row.payload, bytes) else "json",
        }
    )
    available_at = created_at = published_at = NOON

    @classmethod
    def _adjust_kwargs(cls, **kwargs: Any) -> dict[str, Any]:
        if not isinstance(kwargs["payload"], bytes):
            kwargs["payload"] = json.dumps(kwargs["payload"], ensure_ascii=False).encode()
        return kwargs


class DeadLetterFactory(MessageFactory):
    topic = "orders_dlq"
    message_id = "7:billing"
    failed_at = NOON
    failure_count = 3
    last_error = "ValueError: no such order\n\nTraceback (most recent call last):\n  …"
    original_topic = "orders"
    failed_group = "billing"
    original_id = "order-7"


class DeliveryStateFactory(DjangoModelFactory[DeliveryState]):
    class Meta:
        model = DeliveryState

    consumer_group = "billing"
    topic = "orders"
    partition_key = "customer-1"
    message_offset = 42
    invisible_until = FAR
    delivery_token = 1
    delivered_to = "worker-1"
    delivered_at = NOON


class LeaseFactory(DjangoModelFactory[PartitionLease]):
    class Meta:
        model = PartitionLease

    consumer_group = "billing"
    topic = "orders"
    partition_key = "customer-1"
    leased_by = "worker-1"
    holder = "0123456789abcdef"
    leased_at = NOON
    lease_renewed_at = FAR


class OffsetFactory(DjangoModelFactory[Offset]):
    class Meta:
        model = Offset

    consumer_group = "billing"
    topic = "orders"
    partition_key = "customer-1"
    offset_acked = 41
    scan_offset = 42
    updated_at = NOON


class HeartbeatFactory(DjangoModelFactory[SubscriberHeartbeat]):
    class Meta:
        model = SubscriberHeartbeat

    consumer_group = "billing"
    topic = "orders"
    subscriber_name = "worker-1"
    incarnation = "0123456789abcdef"
    heartbeat_at = FAR
