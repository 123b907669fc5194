"""Two workers of one group that do nothing by themselves: each step of theirs is a call of the test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django_mqueue import Delivery, Subscription
from django_mqueue.models import DeliveryState, PartitionLease
from tests.support.subscribers import engine_of
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
    """A member that has looked once at its group, and taken what nobody held. It has claimed nothing."""
    with Subscription(TOPIC, GROUP, name=name, **options) as subscription:
        engine_of(subscription).tick()
        yield subscription


def acquire(subscription: Subscription, *keys: str) -> int:
    """Take those that are free or expired, and read them into memory; how many."""
    engine = engine_of(subscription)
    with engine.context.lock:
        return engine.membership._acquire(keys or ("k",))


def expire() -> None:
    """Every lease ran out, a moment ago or long before."""
    PartitionLease.objects.update(lease_renewed_at=0)


def hear(subscription: Subscription) -> None:
    """Read what is new, and claim nothing of it."""
    engine_of(subscription).feed.tick()


def claim(subscription: Subscription, most: int = 100, *, start_now: int = 100) -> list[Delivery]:
    engine = engine_of(subscription)
    with engine.context.lock:
        return engine.claiming.crowd(most, start_now)


def claim_suspect(subscription: Subscription) -> list[Delivery]:
    engine = engine_of(subscription)
    with engine.context.lock:
        return engine.claiming.suspect(alone=True)


def run_out(subscription: Subscription) -> None:
    """Wait until what the subscriber holds was not answered in time, and is a suspect of its own."""
    engine = engine_of(subscription)

    def is_suspect() -> bool:
        with engine.context.lock:
            engine.claiming.expire()
            return not engine.context.flying

    wait_until(is_suspect, "its time runs out", every=0.005)


def state() -> DeliveryState:
    """The only message's."""
    return DeliveryState.objects.get(consumer_group=GROUP, topic=TOPIC)


def owner(key: str = "k") -> str | None:
    """The name in the partition's lease; None where there is no lease, '' where it is free."""
    return PartitionLease.objects.filter(partition_key=key).values_list("leased_by", flat=True).first()
