"""One story of a commit that comes late, told by all tests here with other publishers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from django_mqueue import Subscription, publish, subscribe
from tests.support.subscribers import (
    collect,
    consume,
    in_log,
    settle,
    settle_and_collect,
    watermark,
    with_state,
)
from tests.support.transactions import wait

TOPIC, GROUP, KEY = "orders", "billing", "customer-1"


class LatePublisher(Protocol):
    """Has been handed its offsets, and has not committed them. ``commit`` ends that."""

    def commit(self) -> Any: ...


@dataclass
class Told:
    """What the story came to: payloads in the order of their delivery, and what was left in the tables."""

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
    patience: float = 20.0,
    early_id: str | None = None,
) -> Told:
    """A is handed offsets; B publishes after it and commits; B is consumed, acked, settled and collected; A commits.

    Both publish under one key. The story ends when what is ``expected`` of A has come, or ``patience`` is over,
    and all that can be collected has been. Needs ``override_settings(MQUEUE=QUICK)``: a retention of 0.
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
        told.late = _consume_patiently(subscription, len(expected), patience)
        settle(subscription)
        collect(TOPIC)
        told.left_in_log, told.left_in_state = in_log(TOPIC), with_state(TOPIC, GROUP)
        told.watermark = watermark(TOPIC, GROUP, KEY)
    return told


def _consume_patiently(subscription: Subscription, count: int, patience: float) -> list[Any]:
    got: list[Any] = []
    for _ in range(int(patience / 0.02)):
        deliveries = subscription.poll()
        subscription.ack(deliveries)
        got += [delivery.payload for delivery in deliveries]
        if len(got) >= count:
            break
        wait(0.02)
    return got


def assert_nothing_lost(told: Told, expected: Sequence[Any]) -> None:
    """A's messages came, once each and in order; nothing was forgotten before, and everything is forgotten after."""
    assert told.early == ["early"]
    assert told.early_offset in told.kept_meanwhile, "collected past an offset that could still commit"
    assert told.late == list(expected)
    assert told.left_in_log == []
    assert told.left_in_state == []
