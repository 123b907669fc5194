"""Time as the machine has it: nothing periodic happens by itself, everything happens when told.

Intervals are an hour long; a poll does what it is told is due. Leases, delays and visibility run out by an UPDATE.
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
    """Of what a poll does periodically, the next one does this and nothing else."""
    engine = engine_of(subscription)
    membership, tail = engine.membership, engine.feed.tails.get(subscription.topic)

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
    dispatch = subscription._dispatch
    assert dispatch is not None
    dispatch._alone_since, dispatch.solitude._quiet_since = None, None


def ten_seconds_pass(subscription: Subscription) -> None:
    """What runs alone has done so for long, and what waits for quiet has waited long. After ``make_due``."""
    dispatch, alone = subscription._dispatch, engine_of(subscription).alone()
    assert dispatch is not None
    dispatch.solitude._quiet_since = -math.inf
    dispatch._alone_since = (alone, -math.inf) if alone else None


def hours_pass_idly(subscription: Subscription) -> None:
    """Partitions without work have been so for longer than two leases."""
    for partition in engine_of(subscription).context.partitions.values():
        partition.idle_since = -math.inf


def delays_pass(topic: str, subscriptions: Collection[Subscription]) -> None:
    """Whatever was put back is due now; workers read it again, as they would have known."""
    DeliveryState.objects.filter(topic=topic, acked=False, in_flight=False).update(invisible_until=0)
    for subscription in subscriptions:
        context = engine_of(subscription).context
        context.stale_waiting.update(dict.fromkeys(context.partitions))


def visibility_passes(delivery: Delivery) -> None:
    """The delivery was not answered in time. Its subscriber finds out with its next poll."""
    DeliveryState.objects.filter(message_offset=delivery.offset, consumer_group=delivery.group).filter(
        delivery_token=delivery.hold.ticket.token, in_flight=True
    ).update(invisible_until=0)
    delivery.hold.expires = 0


def leases_pass(topic: str, group: str, name: str) -> None:
    PartitionLease.objects.filter(topic=topic, consumer_group=group, leased_by=name).update(
        lease_renewed_at=0
    )


def heartbeat_passes(topic: str, group: str, name: str) -> None:
    rows = SubscriberHeartbeat.objects.filter(topic=topic, consumer_group=group, subscriber_name=name)
    rows.update(heartbeat_at=0)
