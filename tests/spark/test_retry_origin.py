"""Retries and redriven dead letters name their original message."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import override_settings

from django_mqueue import Subscription, publish, redrive
from django_mqueue.models import Message
from tests.support.subscribers import QUICK, consume, poll_until

HOURS = 7200


def rows(topic: str) -> list[tuple[Any, ...]]:
    from .both_ways import read

    columns = ("offset", "target", "original_id", "retry_of", "first_published_at")
    return [tuple(row[name] for name in columns) for row in read(topic)]


@pytest.mark.spark
@pytest.mark.django_db(transaction=True)
@override_settings(MQUEUE={**QUICK, "RETENTION": 3600})
def test_a_retry_and_what_was_sent_back_tell_where_they_come_from() -> None:
    first = publish("orders", 1, id="late", key="ada").offset
    at = Message.objects.get(offset=first).published_at
    with Subscription("orders", "billing", max_attempts=4) as subscription:
        (delivery,) = poll_until(subscription, 1)
        delivery.nack(delay=HOURS, error="not now")
        Message.objects.filter(topic="orders_scheduled").update(available_at=1)
        (second,) = poll_until(subscription, 1)
        second.nack(delay=HOURS, error="not now either")
        Message.objects.filter(topic="orders_scheduled").update(available_at=1)
        (third,) = poll_until(subscription, 1)
        third.reject("never")
        assert redrive("orders") == 1
        (again,) = consume(subscription, 1)
    came = datetime.fromtimestamp(at / 1000, UTC)
    assert rows("orders") == [
        (first, "", None, None, None),
        (second.offset, "billing", "late", first, came),
        (third.offset, "billing", "late", second.offset, came),
        (again.offset, "billing", "late", None, None),
    ]
