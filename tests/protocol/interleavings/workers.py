"""Workers of one group without periodic work. The test calls each of their steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django_mqueue import Delivery, Subscription
from django_mqueue.models import DeliveryState, PartitionLease
from tests.support.subscribers import engine_of, let_leases_expire
from tests.support.transactions import wait_until

TOPIC, GROUP = "orders", "billing"

STILL: dict[str, Any] = {
    "DISCOVERY_INTERVAL": 3600,
    "LEASE_DURATION": 600,
    "LEASE_RENEWAL_INTERVAL": 300,
    "GC_INTERVAL": 3600,
}


@contextmanager
def worker(name: str, **options: Any) -> Iterator[Subscription]:
    """A subscriber that has run discovery once and leased free partitions. It has claimed nothing."""
    with Subscription(TOPIC, GROUP, name=name, **options) as subscription:
        engine_of(subscription).tick()
        yield subscription


def acquire(subscription: Subscription, *keys: str) -> int:
    """Lease partitions that are free or expired and load them into memory. Return their number."""
    engine = engine_of(subscription)
    with engine.state.lock:
        return engine.membership._acquire(keys or ("k",))


def renew(subscription: Subscription) -> None:
    engine = engine_of(subscription)
    with engine.state.lock:
        engine.membership._renew()


expire = let_leases_expire


def hear(subscription: Subscription) -> None:
    """Read the new rows of the log, and claim none of them."""
    engine_of(subscription).tailer.tick()


def claim(subscription: Subscription, most: int = 100, *, start_now: int = 100) -> list[Delivery]:
    engine = engine_of(subscription)
    with engine.state.lock:
        return engine.claimer.claim(most, start_now)


def claim_suspect(subscription: Subscription) -> list[Delivery]:
    engine = engine_of(subscription)
    with engine.state.lock:
        return engine.claimer.claim_quarantined(alone=True)


def run_out(subscription: Subscription) -> None:
    """Wait until the subscriber's deliveries have expired, so that their messages are in its quarantine."""
    engine = engine_of(subscription)

    def is_suspect() -> bool:
        with engine.state.lock:
            engine.state.quarantine_expired()
            return not engine.state.in_flight

    wait_until(is_suspect, "its time runs out", every=0.005)


def state() -> DeliveryState:
    """Return the state of the only message."""
    return DeliveryState.objects.get(consumer_group=GROUP, topic=TOPIC)


def owner(key: str = "k") -> str | None:
    """Return the name in the partition's lease: None without a lease, '' if the lease is free."""
    return PartitionLease.objects.filter(partition_key=key).values_list("leased_by", flat=True).first()


def start(subscription: Subscription, delivery: Delivery) -> bool:
    """Return True if a thread may start it. A worker asks this together with the acks of its finished deliveries."""
    engine_of(subscription).acknowledger.ack([], starting=[delivery])
    return not delivery.status.lost
