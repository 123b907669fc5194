"""Bugs that the model found: answers after the visibility timeout, before the message is delivered again."""

from __future__ import annotations

import pytest
from django.test import override_settings

from django_mqueue import StaleDelivery, Subscription, publish
from django_mqueue.models import Message
from tests.support.subscribers import QUICK, engine_of, poll_until

from .time_passing import visibility_passes

pytestmark = pytest.mark.django_db(transaction=True)


def test_what_is_acked_late_is_no_dead_letter() -> None:
    """The last attempt runs alone and expires. The ack counts, and there is no dead letter.

    The ack comes after the worker notices the timeout, and before it dead-letters the message. This happens if another
    thread acks, or if a poll fails halfway. It also happens if a worker loses a lease and takes it again while a
    handler runs.
    """
    with override_settings(MQUEUE=QUICK), Subscription("orders", "billing", max_attempts=1) as subscription:
        publish("orders", 1, key="k")
        (left,) = poll_until(subscription, 1)
        visibility_passes(left)
        (alone,) = poll_until(subscription, 1)
        assert alone.attempt == 2
        visibility_passes(alone)
        engine_of(subscription).tick()
        assert alone.ack()
        assert subscription.poll() == []
        assert not Message.objects.filter(topic="orders_dlq").exists(), "acked, and a dead letter"


def test_an_answer_after_the_burial_is_stale() -> None:
    """The last attempt runs alone and expires, and the message becomes a dead letter. Every verb is refused."""
    with override_settings(MQUEUE=QUICK), Subscription("orders", "billing", max_attempts=1) as subscription:
        publish("orders", 1, key="k")
        (left,) = poll_until(subscription, 1)
        visibility_passes(left)
        (alone,) = poll_until(subscription, 1)
        visibility_passes(alone)
        assert subscription.poll() == []
        assert Message.objects.filter(topic="orders_dlq").count() == 1
        for answer in (alone.ack, alone.nack, alone.reject, alone.postpone, lambda: alone.extend(60)):
            with pytest.raises(StaleDelivery):
                answer()


def test_what_was_extended_late_is_not_delivered_again() -> None:
    """An expired message waits while another is open. It is extended in that time, so it is not delivered again."""
    with override_settings(MQUEUE=QUICK), Subscription("orders", "billing") as subscription:
        for n in range(2):
            publish("orders", n, key="k")
        first, second = poll_until(subscription, 2)
        visibility_passes(first)
        assert subscription.poll() == [], "it waits until nothing else is open"
        assert first.extend(500)
        assert second.ack()
        assert subscription.poll() == []
        assert first.ack()
        assert subscription.poll() == []
