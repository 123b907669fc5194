"""Processes that publish and consume as fast as they can, and the counts of their messages."""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.synchronize import Event

TOPIC, GROUP = "traffic", "readers"
AT_ONCE = 100
AHEAD = 20_000
"""Messages that the publisher may be ahead of the consumer, so that both always have work."""


@dataclass(frozen=True)
class Rates:
    """Messages per second."""

    published: float
    consumed: float


class Traffic:
    """A context manager with one process that publishes to a topic and one process that consumes it."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._over = context.Event()
        self._counts = [context.Value("q", 0) for _ in range(2)]
        self._processes = [
            context.Process(target=work, args=(self._over, *self._counts), daemon=True)
            for work in (_publish, _consume)
        ]

    def __enter__(self) -> Traffic:
        for process in self._processes:
            process.start()
        while min(self._read()) < 2 * AT_ONCE:
            self._check()
            time.sleep(0.1)
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        for process in self._processes:
            process.join()

    def rates(self, seconds: float, while_: Future[None] | None = None) -> Rates:
        """Return the rates over this many seconds, or until the work ends if that takes longer."""
        begun, before = time.monotonic(), self._read()
        time.sleep(seconds)
        if while_:
            wait([while_])
        took, after = time.monotonic() - begun, self._read()
        self._check()
        return Rates((after[0] - before[0]) / took, (after[1] - before[1]) / took)

    def _check(self) -> None:
        assert all(process.is_alive() for process in self._processes), "a process of the traffic has ended"

    def _read(self) -> list[int]:
        return [count.value for count in self._counts]


def _publish(over: Event, published: Any, consumed: Any) -> None:
    import django

    django.setup()
    from django_mqueue import publish_many
    from tests.benchmarks.publishers import message

    while not over.is_set():
        if published.value - consumed.value > AHEAD:
            time.sleep(0.005)
            continue
        publish_many(TOPIC, map(message, range(published.value, published.value + AT_ONCE)))
        published.value += AT_ONCE


def _consume(over: Event, published: Any, consumed: Any) -> None:
    import django

    django.setup()
    from django_mqueue import Subscription

    with Subscription(TOPIC, group=GROUP) as subscription:
        while not over.is_set():
            deliveries = subscription.poll(AT_ONCE)
            subscription.ack(deliveries)
            consumed.value += len(deliveries)
