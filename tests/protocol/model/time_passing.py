"""The machine's time: no periodic work runs by itself. The test decides when each step is due.

Intervals are an hour long. A poll runs only the periodic work that the test names. An UPDATE lets leases, delays and
visibility timeouts expire.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from django_mqueue import Delivery, Subscription
from django_mqueue.models import DeliveryState, PartitionLease, SubscriberHeartbeat
from tests.support.subscribers import engine_of

HOUR = 3600
SETTINGS: dict[str, Any] = {
    "DISCOVERY_INTERVAL": HOUR,
    "LEASE_RENEWAL_INTERVAL": HOUR,
    "LEASE_DURATION": 4 * HOUR,
    "GC_INTERVAL": 0.01,
    "RETENTION": 0,
    "SPREAD": 2,
}

PERIODIC = ("discover", "renew", "sweep", "settle", "watermark", "collect")


def make_due(subscription: Subscription, due: Collection[str]) -> None:
    """Let the next poll run only the periodic work in ``due``."""
    engine = engine_of(subscription)
    membership, tail = engine.membership, engine.tailer.tails.get(subscription.topic)

    def at(what: str) -> float:
        return 0.0 if what in due else math.inf

    membership._beat_at, membership._scan_at, membership._renew_at = (
        at("discover"),
        at("discover"),
        at("renew"),
    )
    engine.watermarks._next, engine.collector._next = at("watermark"), at("collect")
    if tail is not None:
        tail.sweep_at, tail.settle_at = at("sweep"), at("settle")
    dispatch = subscription._scheduler
    assert dispatch is not None
    dispatch._alone_since, dispatch.quarantine._quiet_since = None, None


def ten_seconds_pass(subscription: Subscription) -> None:
    """Let ten seconds pass for a message that runs alone, or that waits to run alone. Call it after ``make_due``."""
    dispatch, alone = subscription._scheduler, engine_of(subscription).quarantined_delivery()
    assert dispatch is not None
    dispatch.quarantine._quiet_since = -math.inf
    dispatch._alone_since = (alone, -math.inf) if alone else None


def hours_pass_idly(subscription: Subscription) -> None:
    """Make partitions without work look idle for longer than two leases."""
    for partition in engine_of(subscription).state.partitions.values():
        partition.idle_since = -math.inf


def delays_pass(topic: str, subscriptions: Collection[Subscription]) -> None:
    """Make every delayed message due. Workers read their parked retries again, to know the new time."""
    DeliveryState.objects.filter(topic=topic, acked=False, in_flight=False).update(invisible_until=0)
    for subscription in subscriptions:
        state = engine_of(subscription).state
        state.stale_waiting.update(dict.fromkeys(state.partitions))


def visibility_passes(delivery: Delivery) -> None:
    """Let the visibility timeout of a delivery expire. Its subscriber notices it with its next poll."""
    DeliveryState.objects.filter(message_offset=delivery.offset, consumer_group=delivery.group).filter(
        delivery_token=delivery.status.receipt.token, in_flight=True
    ).update(invisible_until=0)
    delivery.status.expires = 0


def leases_pass(topic: str, group: str, name: str) -> None:
    PartitionLease.objects.filter(topic=topic, consumer_group=group, leased_by=name).update(
        lease_renewed_at=0
    )


def heartbeat_passes(topic: str, group: str, name: str) -> None:
    rows = SubscriberHeartbeat.objects.filter(topic=topic, consumer_group=group, subscriber_name=name)
    rows.update(heartbeat_at=0)
