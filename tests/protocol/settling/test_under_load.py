"""Publishers of every kind run at once. A consumer settles and collects as fast as it can."""

from __future__ import annotations

import random
import threading
from collections import Counter

import pytest
from django.db import OperationalError, transaction

from django_mqueue import OutgoingMessage, Published, Subscription, publish, publish_many, subscribe
from tests.support.fixtures import with_settings
from tests.support.subscribers import QUICK, collect, in_log, settle, with_state
from tests.support.transactions import Background, wait, wait_until

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, GROUP = "orders", "billing"
KEYS = [None, "a", "b", "c"]
TRANSACTIONS = 150


quick = with_settings(MQUEUE=QUICK)


class _Undo(Exception):
    pass


class Publisher:
    """Publish in all ways at random, and record the offsets of committed messages."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.committed: list[int] = []

    def run(self) -> None:
        for _ in range(TRANSACTIONS):
            try:
                self.committed += self._transaction()
            except (_Undo, OperationalError):
                continue

    def _transaction(self) -> list[int]:
        published: list[Published] = []
        with transaction.atomic():
            for _ in range(self.random.choice([1, 1, 1, 3])):
                published += self._publish()
            if self.random.random() < 0.5:
                threading.Event().wait(self.random.random() * 0.02)
            if self.random.random() < 0.15:
                raise _Undo
        return [one.offset for one in published if one.created]

    def _publish(self) -> list[Published]:
        key, kind = self.random.choice(KEYS), self.random.random()
        if kind < 0.5:
            return [publish(TOPIC, "one", key=key)]
        if kind < 0.6:
            return [publish(TOPIC, "contested", key=key, id=f"id-{self.random.randrange(5)}")]
        if kind < 0.7:
            return [publish(TOPIC, "large" * 40_000, key=key)]
        return publish_many(
            TOPIC,
            [
                OutgoingMessage("many", key=self.random.choice(KEYS))
                for _ in range(self.random.choice([2, 20]))
            ],
        )


def test_whatever_commits_is_delivered_once_and_what_does_not_never_is() -> None:
    """Publishes are held, rolled back, multi-row, large or contested. None is lost, doubled or left behind."""
    subscribe(TOPIC, GROUP)
    publishers = [Publisher(seed) for seed in range(4)]
    threads = [Background(publisher.run).start() for publisher in publishers]
    got: Counter[int] = Counter()
    with Subscription(TOPIC, group=GROUP, batch_size=1000) as subscription:

        def consume() -> None:
            deliveries = subscription.poll(1000)
            subscription.ack(deliveries)
            got.update(delivery.offset for delivery in deliveries)
            settle(subscription)
            collect(TOPIC)

        while not all(thread.is_done for thread in threads):
            consume()
            wait(0.005)
        for thread in threads:
            thread.result()
            thread.join()
        committed = {offset for publisher in publishers for offset in publisher.committed}

        def all_is_over() -> bool:
            consume()
            return len(got) >= len(committed) and not in_log(TOPIC)

        wait_until(all_is_over, "everything is delivered and collected")
    assert set(got) == committed
    assert set(got.values()) == {1}
    assert with_state(TOPIC, GROUP) == []
