"""Rows of the five tables, made directly: the pages must show whatever is there."""

from __future__ import annotations

import json
from typing import Any

from django.urls import reverse

from django_mqueue.models import DeliveryState, Message, Offset, PartitionLease, SubscriberHeartbeat

PAGES = ("message", "deliverystate", "partitionlease", "offset", "subscriberheartbeat")

NOON = 1_767_268_800_000 + 123
"""2026-01-01 12:00:00.123 UTC."""

FAR = 1 << 45
"""Epoch milliseconds of the year 3084: later than any clock of a test."""

ODD_KEYS = (
    "a/b//c",
    'it\'s "quoted"',
    "comma,semi;colon",
    "under_score_5F_2F",
    "emoji 😀 Ünï",
    "100%2F",
    "?a=b&c#d",
    "..",
    "<b>bold</b>",
    "back\\slash",
    "[1]+-.~",
    "x" * 255,
    "😀" * 255,
)


def list_url(page: str) -> str:
    return reverse(f"admin:django_mqueue_{page}_changelist")


def message(**values: Any) -> Message:
    payload = values.pop("payload", {"order": 1})
    is_bytes = isinstance(payload, bytes)
    defaults: dict[str, Any] = {
        "topic": "orders",
        "partition_key": "customer-1",
        "message_id": f"id-{Message.objects.count()}",
        "consumer_group": "",
        "payload": payload if is_bytes else json.dumps(payload, ensure_ascii=False).encode(),
        "metadata": {"kind": "", "headers": {}, "encoding": "bytes" if is_bytes else "json"},
        "available_at": NOON,
        "created_at": NOON,
        "published_at": NOON,
    }
    return Message.objects.create(**{**defaults, **values})


def dead_letter(**values: Any) -> Message:
    defaults = {
        "topic": "orders_dlq",
        "message_id": "7:billing",
        "failed_at": NOON,
        "failure_count": 3,
        "last_error": "ValueError: no such order\n\nTraceback (most recent call last):\n  …",
        "original_topic": "orders",
        "failed_group": "billing",
        "original_id": "order-7",
    }
    return message(**{**defaults, **values})


def delivery(**values: Any) -> DeliveryState:
    defaults: dict[str, Any] = {
        "consumer_group": "billing",
        "topic": "orders",
        "partition_key": "customer-1",
        "message_offset": 42,
        "invisible_until": FAR,
        "delivery_token": 1,
        "delivered_to": "worker-1",
        "delivered_at": NOON,
    }
    return DeliveryState.objects.create(**{**defaults, **values})


def lease(**values: Any) -> PartitionLease:
    defaults: dict[str, Any] = {
        "consumer_group": "billing",
        "topic": "orders",
        "partition_key": "customer-1",
        "leased_by": "worker-1",
        "holder": "0123456789abcdef",
        "leased_at": NOON,
        "lease_renewed_at": FAR,
    }
    return PartitionLease.objects.create(**{**defaults, **values})


def offset(**values: Any) -> Offset:
    defaults: dict[str, Any] = {
        "consumer_group": "billing",
        "topic": "orders",
        "partition_key": "customer-1",
        "offset_acked": 41,
        "scan_offset": 42,
        "updated_at": NOON,
    }
    return Offset.objects.create(**{**defaults, **values})


def heartbeat(**values: Any) -> SubscriberHeartbeat:
    defaults: dict[str, Any] = {
        "consumer_group": "billing",
        "topic": "orders",
        "subscriber_name": "worker-1",
        "incarnation": "0123456789abcdef",
        "heartbeat_at": FAR,
    }
    return SubscriberHeartbeat.objects.create(**{**defaults, **values})


def one_of_each() -> None:
    message()
    delivery()
    lease()
    offset()
    heartbeat()
