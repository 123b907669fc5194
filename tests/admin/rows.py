"""Helpers that insert rows of the five tables directly, because the pages must show any row."""

from __future__ import annotations

from typing import Any

from django.urls import reverse

from django_mqueue.models import DeliveryState, Message, Offset, PartitionLease, SubscriberHeartbeat
from tests.factories import (
    FAR,
    NOON,
    DeadLetterFactory,
    DeliveryStateFactory,
    HeartbeatFactory,
    LeaseFactory,
    MessageFactory,
    OffsetFactory,
)

__all__ = ["FAR", "NOON"]

PAGES = ("message", "deliverystate", "partitionlease", "offset", "subscriberheartbeat")

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
    return MessageFactory.create(**values)


def dead_letter(**values: Any) -> Message:
    return DeadLetterFactory.create(**values)


def delivery(**values: Any) -> DeliveryState:
    return DeliveryStateFactory.create(**values)


def lease(**values: Any) -> PartitionLease:
    return LeaseFactory.create(**values)


def offset(**values: Any) -> Offset:
    return OffsetFactory.create(**values)


def heartbeat(**values: Any) -> SubscriberHeartbeat:
    return HeartbeatFactory.create(**values)


def one_of_each() -> None:
    message()
    delivery()
    lease()
    offset()
    heartbeat()
