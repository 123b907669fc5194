"""One scenario of a late commit. All tests here run it with different publishers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from django_mqueue import Subscription, publish, subscribe
from tests.support.subscribers import (
    collect,
    consume,
    consume_rest,
    in_log,
    settle,
    settle_and_collect,
    watermark,
    with_state,
)
from tests.support.transactions import wait
from tests.support.waiting import gather

TOPIC, GROUP, KEY = "orders", "billing", "customer-1"


class LatePublisher(Protocol):
    """A publisher that has offsets and has not committed them. ``commit`` commits them."""

    def commit(self) -> Any: ...


@dataclass
class Told:
    """The result of the scenario: payloads in the order of delivery, and the remaining rows of the tables."""

    early: list[Any] = field(default_factory=list)
    late: list[Any] = field(default_factory=list)
    kept_meanwhile: list[int] = field(default_factory=list)
    left_in_log: list[int] = field(default_factory=list)
    left_in_state: list[int] = field(default_factory=list)
    watermark: int = 0
    early_offset: int = 0


def late_commit(
    begin: Callable[[], LatePublisher],
    *,
    expected: Sequence[Any],
    open_for: float = 0.0,
    early_id: str | None = None,
) -> Told:
    """A inserts its messages. B publishes after it and commits. B's message is acked, settled and collected.

    Then A commits. Both publish with one key. The scenario waits for the ``expected`` messages of A. It then polls some
    more times with all periodic work due, which shows that no others come, and collects all. It needs a retention of 0:
    ``override_settings(MQUEUE=QUICK)``.
    """
    told = Told()
    subscribe(TOPIC, GROUP)
    with Subscription(TOPIC, group=GROUP) as subscription:
        publisher = begin()
        told.early_offset = publish(TOPIC, "early", key=KEY, id=early_id).offset
        told.early = [delivery.payload for delivery in consume(subscription, 1)]
        for _ in range(max(int(open_for / 0.05), 3)):
            settle_and_collect(subscription)
            subscription.poll()
            wait(0.05 if open_for else 0.0)
        told.kept_meanwhile = in_log(TOPIC)
        publisher.commit()
        if expected:
            told.late = gather(lambda: _consume_once(subscription), len(expected), "the late messages")
        told.late += [delivery.payload for delivery in consume_rest(subscription)]
        settle(subscription)
        collect(TOPIC)
        told.left_in_log, told.left_in_state = in_log(TOPIC), with_state(TOPIC, GROUP)
        told.watermark = watermark(TOPIC, GROUP, KEY)
    return told


def _consume_once(subscription: Subscription) -> list[Any]:
    deliveries = subscription.poll()
    subscription.ack(deliveries)
    return [delivery.payload for delivery in deliveries]


def assert_nothing_lost(told: Told, expected: Sequence[Any]) -> None:
    """Assert that A's messages came once each and in order.

    The log kept B's message until then, and is empty now.
    """
    assert told.early == ["early"]
    assert told.early_offset in told.kept_meanwhile, "collected past an offset that could still commit"
    assert told.late == list(expected)
    assert told.left_in_log == []
    assert told.left_in_state == []
