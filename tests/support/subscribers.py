"""Helpers for tests that consume by hand: poll, settle, collect garbage, and read the tables."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from typing import Any

from django.db import OperationalError, connections, transaction
from django.db.models import QuerySet

from django_mqueue import Delivery, Subscription
from django_mqueue.models import DeliveryState, Message, Offset, PartitionLease, SubscriberHeartbeat
from django_mqueue.protocol.acknowledging.acknowledger import Acknowledger
from django_mqueue.protocol.retention.garbage_collection import Collector
from django_mqueue.protocol.subscriber import Subscriber
from django_mqueue.store import offsets

from .processes import Worker, database_ms
from .threads import raw_connection
from .waiting import PATIENCE, wait_until

QUICK: dict[str, Any] = {
    "POLL_INTERVAL": 0.01,
    "DISCOVERY_INTERVAL": 0.05,
    "LEASE_DURATION": 60,
    "LEASE_RENEWAL_INTERVAL": 0.3,
    "GC_INTERVAL": 0.01,
    "RETENTION": 0,
}
"""For ``override_settings(MQUEUE=QUICK)``: short intervals of all periodic work, at most 0.3 seconds."""

CALM = {**QUICK, "DISCOVERY_INTERVAL": 3600, "LEASE_DURATION": 36_000, "LEASE_RENEWAL_INTERVAL": 3600}
"""With these settings, settling, watermarks and deletion are the only periodic work that is due."""


def engine_of(subscription: Subscription) -> Subscriber:
    engine = subscription._subscriber
    assert engine is not None, "the subscription is not open"
    return engine


def acknowledger_of(delivery: Delivery) -> Acknowledger:
    acknowledger = delivery.status.acknowledger
    assert isinstance(acknowledger, Acknowledger)
    return acknowledger


def poll_until(
    subscription: Subscription,
    enough: int | Callable[[list[Delivery]], Any],
    *,
    max_messages: int = 100,
) -> list[Delivery]:
    """Poll until there are ``enough`` deliveries (a number, or a test of the list). Return them unsettled."""
    got: list[Delivery] = []

    def satisfied() -> bool:
        got.extend(subscription.poll(max_messages))
        return len(got) >= enough if isinstance(enough, int) else bool(enough(got))

    wait_until(satisfied, f"deliveries of {subscription.topic!r} to {subscription.group!r}")
    return got


def consume(subscription: Subscription, count: int, *, seconds: float = PATIENCE) -> list[Delivery]:
    """Poll and ack until there are ``count`` deliveries, and return them. Fail if there are more.

    ``seconds``: how long to wait for each further delivery.
    """
    got: list[Delivery] = []

    def one_more() -> bool:
        deliveries = subscription.poll()
        for delivery in deliveries:
            delivery.ack()
        got.extend(deliveries)
        return bool(deliveries)

    while len(got) < count:
        wait_until(one_more, f"message {len(got) + 1} of {count} of {subscription.topic!r}", seconds=seconds)
    assert len(got) == count, f"expected {count} messages, got {[d.payload for d in got]}"
    return got


def payloads(subscription: Subscription, count: int) -> list[Any]:
    """Return the payloads of the next ``count`` messages. Ack each message."""
    return [delivery.payload for delivery in consume(subscription, count)]


def consume_rest(subscription: Subscription, *, polls: int = 10, due: bool = True) -> list[Delivery]:
    """Poll ``polls`` times, and ack and return the deliveries. This shows at any speed that no others follow.

    Before each poll, all periodic work is made due, unless ``due`` is false.
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
    """Let the next poll renew leases, discover and scan, read late commits, settle, and move watermarks."""
    engine = engine_of(subscription)
    with engine.state.lock:
        membership, tail = engine.membership, engine.tailer.tails[subscription.topic]
        membership._renew_at = membership._beat_at = membership._scan_at = -math.inf
        tail.sweep_at = tail.settle_at = engine.watermarks._next = -math.inf


def make_idle(subscription: Subscription) -> None:
    """Make all partitions of the subscription look idle for longer than two leases."""
    engine = engine_of(subscription)
    with engine.state.lock:
        for partition in engine.state.partitions.values():
            partition.idle_since = -math.inf


def let_die(name: str) -> None:
    """Make a subscriber that no longer polls look dead: its heartbeat is old, and its leases have expired."""
    SubscriberHeartbeat.objects.filter(subscriber_name=name).update(heartbeat_at=0)
    PartitionLease.objects.filter(leased_by=name).update(lease_renewed_at=0)


def take_leases_away() -> None:
    """Give all leases to a worker that does not exist. They do not expire until ``let_leases_expire``."""
    with raw_connection() as other:
        other.execute(
            "UPDATE queue_partition_leases SET holder = 'another', leased_by = 'another', lease_renewed_at = %s",
            [database_ms()],
        )
        other.commit()


def let_leases_expire() -> None:
    PartitionLease.objects.update(lease_renewed_at=0)


def let_worker_die(worker: Worker, using: str = "default") -> None:
    """End the leases of a worker process that was killed or stopped, and delete its heartbeats.

    The server may still execute a renewal that the process sent. The renewal then finds no row: the leases have another
    holder, and the heartbeats are deleted.
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
    """Return whether the server executes a statement of another connection, other than an idle worker's sleep."""
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT CONNECTION_ID()")
        (own,) = cursor.fetchone()
        cursor.execute("SHOW PROCESSLIST")
        rows = [row for row in cursor.fetchall() if row[0] != own]
    return any(command == "Query" and state != "User sleep" for _, _, _, _, command, _, state, *_ in rows)


def _is_locked(rows: QuerySet[Any]) -> bool:
    try:
        with transaction.atomic(using=rows.db):
            list(rows.select_for_update(nowait=True))
    except OperationalError:
        return True
    return False


def settle(subscription: Subscription) -> int:
    """Settle and move the watermarks as far as possible now. Return the settled offset of the topic."""
    engine = engine_of(subscription)
    for _ in range(5):
        engine.tailer.settle(subscription.topic)
        engine.watermarks.tick(force=True)
    return engine.tailer.tails[subscription.topic].settler.settled


def collect(topic: str, using: str = "default") -> None:
    """Run one complete pass of garbage collection now."""
    collector = Collector(using, topic)
    while collector.collect_page(0):
        pass


def settle_and_collect(subscription: Subscription) -> int:
    """Do the idle work of a worker at once, and return the settled offset."""
    settled = settle(subscription)
    collect(subscription.topic, subscription.using)
    return settled


def lock_topic(topic: str) -> None:
    """Lock the topic's row until this transaction ends, as registration and garbage collection do."""
    with connections["default"].cursor() as cursor:
        offsets.lock_topic(cursor, topic)


def in_log(topic: str, using: str = "default") -> list[int]:
    """Return the offsets of the topic's committed messages."""
    return list(
        Message.objects.using(using).filter(topic=topic).order_by("offset").values_list("offset", flat=True)
    )


def payloads_in_log(topic: str) -> list[bytes]:
    """Return the stored payloads of the topic's committed messages."""
    rows = Message.objects.filter(topic=topic).order_by("offset").values_list("payload", flat=True)
    return [bytes(payload) for payload in rows]


def with_state(topic: str, group: str, using: str = "default") -> list[int]:
    """Return the offsets for which the group keeps delivery state."""
    rows = DeliveryState.objects.using(using).filter(topic=topic, consumer_group=group)
    return list(rows.order_by("message_offset").values_list("message_offset", flat=True))


def watermark(topic: str, group: str, partition: str, using: str = "default") -> int:
    """Return the watermark of the group and partition, or 0 if there is no row."""
    row = (
        Offset.objects.using(using).filter(topic=topic, consumer_group=group, partition_key=partition).first()
    )
    return row.offset_acked if row else 0


def done(using: str = "default") -> int:
    """Return how many deliveries are acknowledged."""
    return DeliveryState.objects.using(using).filter(acked=True).count()
