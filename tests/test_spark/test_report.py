"""A report says what happened: known answers, whatever is read, and borders."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest
from django.test import override_settings

from django_mqueue import Subscription, publish, subscribe
from django_mqueue.models import DeliveryState, Message
from django_mqueue.spark.reporting import Report, report
from django_mqueue.spark.reporting.figures import GroupTotals, StepFigures, Times
from tests.support.subscribers import QUICK, poll_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.spark]

HOUR = 3_600_000
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
MS = round(NOON.timestamp() * 1000)


@pytest.fixture(autouse=True)
def _kept() -> object:
    with override_settings(MQUEUE={**QUICK, "RETENTION": 3600}) as found:
        yield found


def at(
    offset: int, published: int, group: str = "", delivered: int | None = None, done: int | None = None
) -> None:
    """Move what happened to a message to so many milliseconds after noon of a day."""
    Message.objects.filter(offset=offset).update(published_at=MS + published)
    states = DeliveryState.objects.filter(message_offset=offset, consumer_group=group)
    if delivered is not None:
        states.update(delivered_at=MS + delivered)
    if done is not None:
        for state in states:
            errors = state.errors or []
            if errors and errors[-1]["at"] == state.acked_at:
                errors[-1]["at"] = MS + done
            states.update(acked_at=MS + done, errors=errors or None)


def group_of(found: Report, group: str, topic: str = "orders") -> GroupTotals:
    (one,) = [one for one in found.groups if (one.topic, one.group) == (topic, group)]
    return one


def steps_of(found: Report, group: str | None, topic: str = "orders") -> dict[int, StepFigures]:
    """By hours after noon."""
    return {
        (one.start - NOON) // timedelta(hours=1): one
        for one in found.steps
        if (one.topic, one.group) == (topic, group)
    }


def test_a_small_log_is_told_as_it_was(spark: SparkSession, options: dict[str, str]) -> None:
    subscribe("orders", "billing")
    subscribe("orders", "idle")
    good, slow, bad, late = (
        publish("orders", n, id=f"m{n}", key=key).offset for n, key in enumerate(["ada", "ada", "bob", None])
    )
    alone = publish("orders", 5, group="billing", key="ada").offset
    with Subscription("orders", "billing", max_attempts=3) as subscription:
        deliveries = {one.offset: one for one in poll_until(subscription, 5)}
        deliveries[good].ack()
        deliveries[alone].ack()
        deliveries[slow].nack(error="TimeoutError: no answer in 30 s")
        deliveries[bad].reject("no customer 4711")
        (again,) = poll_until(subscription, 1)
        assert again.offset == slow
        again.ack()
    at(good, 0, "billing", 10, 110)
    at(alone, HOUR - 1, "billing", HOUR + 19, HOUR + 20)
    at(slow, 2, "billing", 2 * HOUR, 2 * HOUR + 5)
    at(bad, 3, "billing", 53, 73)
    at(late, HOUR, "billing", 2 * HOUR)
    DeliveryState.objects.filter(message_offset=slow).update(
        errors=[{"at": MS + 99, "attempt": 1, "by": "x", "error": "TimeoutError: no answer in 30 s"}]
    )
    found = report(spark, "orders", options=options)

    (topic,) = found.topics
    assert (topic.published, topic.targeted, topic.sent_back, topic.keys, topic.without_key) == (
        5,
        1,
        0,
        2,
        1,
    )
    assert (topic.first_published, topic.last_published) == (NOON, NOON + timedelta(hours=1))
    billing = group_of(found, "billing")
    assert billing.registered is True
    assert (billing.published, billing.targeted, billing.finished, billing.dead, billing.removed) == (
        5,
        1,
        3,
        1,
        0,
    )
    assert (billing.failures, billing.attempts, billing.most_attempts, billing.retried) == (2, 5, 2, 1)
    # late was never answered, and slow was delivered twice.
    assert (billing.in_flight, billing.waiting, billing.lag, billing.several_deliveries) == (1, 0, 1, 1)
    assert billing.first_delivery == Times(20, HOUR, HOUR, 4)
    assert billing.ack == Times(110, 2 * HOUR + 3, 2 * HOUR + 3, 3)
    idle = group_of(found, "idle")
    assert (idle.published, idle.finished, idle.lag, idle.ack) == (4, 0, 4, Times())

    hours = steps_of(found, "billing")
    assert [
        (h, one.published, one.finished, one.dead, one.failures, one.backlog) for h, one in hours.items()
    ] == [
        (0, 4, 1, 1, 2, 2),
        (1, 1, 1, 0, 0, 2),
        (2, 0, 1, 0, 0, 1),
    ]
    assert hours[0].ack == Times(110, 110, 110, 1)
    assert hours[0].first_delivery == Times(10, 50, 50, 2)
    assert hours[2].attempts == hours[2].most_attempts == 2
    errors = [(one.group, one.error, one.is_class, one.count, one.example) for one in found.errors]
    assert errors == [
        ("billing", "TimeoutError", True, 1, "TimeoutError: no answer in # s"),
        ("billing", "no customer #", False, 1, "no customer #"),
    ]
    assert [(one.key, one.published, one.share) for one in found.keys] == [("ada", 3, 0.6), ("bob", 1, 0.2)]
