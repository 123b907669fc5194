"""Helpers for the second side of an interleaving, which works while the first side is stopped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from django_mqueue import Delivery, Subscription, publish
from django_mqueue.protocol.retention.garbage_collection import Collector
from django_mqueue.store import garbage
from tests.support.subscribers import QUICK, consume, engine_of, poll_until, settle
from tests.support.transactions import Background, wait_for_lock_wait

from .steps import Stopped

Result = TypeVar("Result")

STILL: dict[str, Any] = {**QUICK, "GC_INTERVAL": 3600, "LEASE_DURATION": 600}
"""For ``override_settings(MQUEUE=STILL)``: nothing is collected and no lease expires, unless the test does it."""


def ends(work: Callable[[], Result]) -> Result:
    """Run ``work`` in another thread and return its result. Fail if it waits for a stopped side."""
    with Background(work) as side:
        return side.result()


def waits(first: Stopped[Any], work: Callable[[], Result]) -> Result:
    """Run ``work`` in another thread, continue ``first``, and return the result of ``work``.

    Fail if ``work`` does not wait for a lock until then.
    """
    with Background(work) as side:
        wait_for_lock_wait(side)
        first.go()
        return side.result()


def move(subscription: Subscription) -> None:
    """Move the watermarks now. Hold the lock of the consumer state, as a worker does."""
    engine = engine_of(subscription)
    with engine.state.lock:
        engine.watermarks.tick(force=True)


def collect_page(topic: str) -> bool:
    """Run one transaction of garbage collection. Return whether more can be deleted."""
    return Collector("default", topic).collect_page(0)


def give_up(subscription: Subscription, partition: str) -> None:
    """Give up the lease of a partition, as a worker does when the partition has had no messages for long."""
    engine = engine_of(subscription)
    with engine.state.lock:
        garbage.give_up_drained("default", engine.state.holder, [partition])
        engine.state.drop([partition])


def delivered(worker: Subscription, count: int) -> list[Delivery]:
    """Publish ``count`` messages of key k, and settle and deliver them. None is acked."""
    for n in range(count):
        publish(worker.topic, n, key="k")
    got = sorted(poll_until(worker, count), key=lambda delivery: delivery.offset)
    settle(worker)
    return got


def finished(worker: Subscription, *payloads: object, key: str = "k") -> list[int]:
    """Publish the payloads, consume them and move the watermark. Return offsets that a collection would delete."""
    offsets = [publish(worker.topic, payload, key=key).offset for payload in payloads]
    consume(worker, len(payloads))
    settle(worker)
    return offsets
