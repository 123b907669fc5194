"""Consuming by hand in tests: poll until something is so, settle and collect now, look at the tables."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from typing import Any

from django.db import OperationalError, connections, transaction
from django.db.models import QuerySet

from django_mqueue import Delivery, Subscription
from django_mqueue.models import DeliveryState, Message, Offset, PartitionLease, SubscriberHeartbeat
from django_mqueue.service.collecting import Collector
from django_mqueue.service.engine import Engine

from .processes import Worker
from .waiting import PATIENCE, wait_until

QUICK: dict[str, Any] = {
    "POLL_INTERVAL": 0.01,
    "DISCOVERY_INTERVAL": 0.05,
    "LEASE_DURATION": 60,
    "LEASE_RENEWAL_INTERVAL": 0.3,
    "GC_INTERVAL": 0.01,
    "RETENTION": 0,
}
"""For ``override_settings(MQUEUE=QUICK)``: everything periodic happens within tens of milliseconds."""

CALM = {**QUICK, "DISCOVERY_INTERVAL": 3600, "LEASE_DURATION": 36_000, "LEASE_RENEWAL_INTERVAL": 3600}
"""Nothing periodic is due but settling, watermarks and deletion."""


def engine_of(subscription: Subscription) -> Engine:
    engine = subscription._engine
    assert engine is not None, "the subscription is not open"
    return engine


def poll_until(
    subscription: Subscription,
    enough: int | Callable[[list[Delivery]], Any],
    *,
    max_messages: int = 100,
) -> list[Delivery]:
    """All deliveries until there are ``enough`` of them (a number, or a test of the list); nothing is answered."""
    got: list[Delivery] = []

    def satisfied() -> bool:
        got.extend(subscription.poll(max_messages))
        return len(got) >= enough if isinstance(enough, int) else bool(enough(got))

    wait_until(satisfied, f"deliveries of {subscription.topic!r} to {subscription.group!r}")
    return got


def consume(subscription: Subscription, count: int, *, seconds: float = PATIENCE) -> list[Delivery]:
    """``count`` deliveries, each acked as it comes; more than that is a failure."""
    got: list[Delivery] = []

    def satisfied() -> bool:
        for delivery in subscription.poll():
            delivery.ack()
            got.append(delivery)
        return len(got) >= count

    wait_until(satisfied, f"{count} messages of {subscription.topic!r}", seconds=seconds)
    assert len(got) == count, f"expected {count} messages, got {[d.payload for d in got]}"
    return got


def payloads(subscription: Subscription, count: int) -> list[Any]:
    """The payloads of the next ``count`` messages, each acked as it comes."""
    return [delivery.payload for delivery in consume(subscription, count)]


def consume_rest(subscription: Subscription, *, polls: int = 10, due: bool = True) -> list[Delivery]:
    """Poll so many times, and ack what comes: shows that nothing else comes, however slow the machine is.

    Before each poll all periodic work is made due, unless ``due`` is false.
    """
    got: list[Delivery] = []
    for _ in range(polls):
        if due:
            make_due(subscription)
        for delivery in subscription.poll():
            delivery.ack()
            got.append(delivery)
    return got


def make_due(subscription: Subscription) -> None:
    """Let the next poll renew leases, discover and scan, look for late commits, settle, and move watermarks."""
    engine = engine_of(subscription)
    with engine.context.lock:
        membership, tail = engine.membership, engine.feed.tails[subscription.topic]
        membership._renew_at = membership._beat_at = membership._scan_at = -math.inf
        tail.sweep_at = tail.settle_at = engine.watermarks._next = -math.inf


def let_die(name: str) -> None:
    """Move the times of a subscriber that is not polled any more: its heartbeat is old, and its leases expired."""
    SubscriberHeartbeat.objects.filter(subscriber_name=name).update(heartbeat_at=0)
    PartitionLease.objects.filter(leased_by=name).update(lease_renewed_at=0)


def let_worker_die(worker: Worker, using: str = "default") -> None:
    """End the leases of a worker process that was killed or stopped, and forget its heartbeats.

    The server may still execute a renewal that the process had sent. It finds no row then: the leases have another
    holder, and the heartbeats are gone.
    """
    heartbeats, leases = _heartbeats_and_leases(worker, using)
    heartbeats.delete()
    leases.update(lease_renewed_at=0, holder="dead")


def stop_between_transactions(worker: Worker, using: str = "default") -> None:
    """Stop a worker process with SIGSTOP while it locks none of its heartbeats and leases.

    A process that is stopped inside a transaction keeps its locks, and the test would wait for them.
    """

    def is_stopped_without_locks() -> bool:
        worker.send(signal.SIGSTOP)
        wait_until(lambda: worker.is_stopped and not _runs_a_statement(using), "the process is stopped")
        if any(_is_locked(rows) for rows in _heartbeats_and_leases(worker, using)):
            worker.send(signal.SIGCONT)
            return False
        return True

    wait_until(is_stopped_without_locks, "the process is stopped between two transactions")


def _heartbeats_and_leases(
    worker: Worker, using: str
) -> tuple[QuerySet[SubscriberHeartbeat], QuerySet[PartitionLease]]:
    name = worker.name or f"-{worker.pid}-"
    return (
        SubscriberHeartbeat.objects.using(using).filter(subscriber_name__contains=name),
        PartitionLease.objects.using(using).filter(leased_by__contains=name),
    )


def _runs_a_statement(using: str) -> bool:
    """Return whether the server executes a statement of another connection."""
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT CONNECTION_ID()")
        (own,) = cursor.fetchone()
        cursor.execute("SHOW PROCESSLIST")
        return any(row[0] != own and row[4] == "Query" for row in cursor.fetchall())


def _is_locked(rows: QuerySet[Any]) -> bool:
    try:
        with transaction.atomic(using=rows.db):
            list(rows.select_for_update(nowait=True))
    except OperationalError:
        return True
    return False


def settle(subscription: Subscription) -> int:
    """Settle and move the watermarks as far as they go now; the settled offset of the topic."""
    engine = engine_of(subscription)
    for _ in range(5):
        engine.feed.settle(subscription.topic)
        engine.watermarks.tick(force=True)
    return engine.feed.settled(subscription.topic)


def collect(topic: str, using: str = "default") -> None:
    """One whole pass of garbage collection, now."""
    collector = Collector(using, topic)
    while collector.page(0):
        pass


def settle_and_collect(subscription: Subscription) -> int:
    """What a worker does in its idle time, at once; the settled offset."""
    settled = settle(subscription)
    collect(subscription.topic, subscription.using)
    return settled


def in_log(topic: str, using: str = "default") -> list[int]:
    """Offsets of the topic's committed messages."""
    return list(
        Message.objects.using(using).filter(topic=topic).order_by("offset").values_list("offset", flat=True)
    )


def payloads_in_log(topic: str) -> list[bytes]:
    """The payloads of the topic's committed messages, as they are stored."""
    rows = Message.objects.filter(topic=topic).order_by("offset").values_list("payload", flat=True)
    return [bytes(payload) for payload in rows]


def with_state(topic: str, group: str, using: str = "default") -> list[int]:
    """Offsets for which the group keeps delivery state."""
    rows = DeliveryState.objects.using(using).filter(topic=topic, consumer_group=group)
    return list(rows.order_by("message_offset").values_list("message_offset", flat=True))


def watermark(topic: str, group: str, partition: str, using: str = "default") -> int:
    """How far the group is done with the partition; 0 where nothing is noted."""
    row = (
        Offset.objects.using(using).filter(topic=topic, consumer_group=group, partition_key=partition).first()
    )
    return row.offset_acked if row else 0
