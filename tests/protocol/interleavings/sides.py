"""The other side of an interleaving: what it does while the first stands still, and quiet workers to do it with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from django_mqueue import Subscription, publish
from django_mqueue.service.collecting import Collector
from tests.support.subscribers import QUICK, consume, engine_of, settle
from tests.support.transactions import Background, wait_for_lock_wait

from .steps import Stopped

Result = TypeVar("Result")

STILL: dict[str, Any] = {**QUICK, "GC_INTERVAL": 3600, "LEASE_DURATION": 600}
"""For ``override_settings(MQUEUE=STILL)``: nothing is collected, and no lease runs out, but when the test says so."""


def ends(work: Callable[[], Result]) -> Result:
    """What ``work`` comes to in a thread of its own, while others stand still. Fails if it waits for them."""
    with Background(work) as side:
        return side.result()


def waits(first: Stopped[Any], work: Callable[[], Result]) -> Result:
    """What ``work`` comes to once ``first`` has ended. Fails if it does not wait for a lock until then."""
    with Background(work) as side:
        wait_for_lock_wait(side)
        first.go()
        return side.result()


def move(subscription: Subscription) -> None:
    """Move the watermarks now, as a worker does: holding the memory that its threads share."""
    engine = engine_of(subscription)
    with engine.context.lock:
        engine.watermarks.tick(force=True)


def collect_page(topic: str) -> bool:
    """One transaction of a pass of garbage collection; whether there is more to do."""
    return Collector("default", topic).page(0)


def give_up(subscription: Subscription, partition: str) -> None:
    """What a worker does with a partition that was drained for long: nobody leases it then."""
    engine = engine_of(subscription)
    with engine.context.lock:
        engine.membership._give_up([partition])
        engine.context.drop([partition])


def finished(worker: Subscription, *payloads: object, key: str = "k") -> list[int]:
    """Offsets of messages that the worker is done with, by its watermark: a collection would delete them."""
    offsets = [publish(worker.topic, payload, key=key).offset for payload in payloads]
    consume(worker, len(payloads))
    settle(worker)
    return offsets
