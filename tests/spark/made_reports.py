"""Reports made by hand: three days of a shop, and a report in which every name is an attack. Needs no Spark."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from django_mqueue.spark.reports.figures import (
    ErrorFigures,
    GroupTotals,
    KeyFigures,
    StepFigures,
    Times,
    TopicTotals,
)
from django_mqueue.spark.reports.result import Report

START = datetime(2026, 3, 1, tzinfo=UTC)
HOURS = 72

HOSTILE = (
    "<script>document.title='taken'</script>",
    '"><img src=x onerror="document.title=\'taken\'">',
    "</style><h1>taken</h1>",
    '=HYPERLINK("http://198.51.100.1","x")',
    "\x1b[2Jcleared\x07 [bold]bold[/bold] \u202etxt.exe",
    "{{ 7*7 }} $x^2$ \ud800 \\",
    'a, b\r\n"c"',
    "W" * 255,
)


def shop() -> Report:
    """Return a report of orders with a daily rhythm, and one slow hour in which a payment provider was unavailable."""
    pairs = [("orders", "billing"), ("orders", "shipping"), ("payments", "billing"), ("payments", "ledger")]
    topics = ("orders", "payments")
    steps = [step for pair in pairs for step in _steps(*pair)]
    totals = [_total([step for step in steps if (step.topic, step.group) == pair]) for pair in pairs]
    published = {one.topic: one.published for one in totals}
    return Report(
        at=START + timedelta(hours=HOURS, minutes=4),
        by="hour",
        since=None,
        until=None,
        archive="s3://shop-archive/mqueue",
        live=True,
        topics=[
            TopicTotals(
                topic,
                published[topic],
                0,
                12,
                3,
                START,
                START + timedelta(hours=71.9),
                8_114,
                0,
                412_000,
                412_000,
                498_113,
            )
            for topic in topics
        ],
        groups=totals,
        steps=steps,
        errors=[
            _error(
                "orders",
                "billing",
                "PaymentProviderAway",
                True,
                1_204,
                "PaymentProviderAway: no answer in # s",
            ),
            _error("orders", "billing", "TimeoutError", True, 88, "TimeoutError: timed out"),
            _error(
                "orders",
                "shipping",
                "shop.errors.NoSuchAddress",
                True,
                31,
                "shop.errors.NoSuchAddress: order #",
            ),
            _error(
                "payments", "billing", "amount of order # is not #", False, 4, "amount of order # is not #"
            ),
        ],
        keys=[
            KeyFigures("orders", f"customer-{n}", 900 - 70 * n, (900 - 70 * n) / published["orders"])
            for n in range(1, 8)
        ],
        notes=[
            "1,286 messages were delivered more than once. The time of their first delivery is unknown, so the times"
            " to first delivery leave them out."
        ],
    )


def _steps(topic: str, group: str) -> Iterator[StepFigures]:
    backlog = 0
    for hour in range(HOURS):
        busy = 400 + round(350 * math.sin((hour - 8) / 24 * 2 * math.pi)) * (2 if topic == "orders" else 1)
        published = max(60, busy)
        away = group == "billing" and 33 <= hour < 36
        finished = published // 4 if away else min(published + backlog, published + 500)
        dead = 9 if away else int(hour % 19 == 7)
        backlog = max(0, backlog + published - finished - dead)
        slow = 40 * 60_000 if away else 90 + 3 * (hour % 7)
        yield StepFigures(
            topic, group, START + timedelta(hours=hour), published, finished, dead, 0, 400 if away else hour % 3,
            finished + 400 * away, 4 if away else 1, 0,
            Times(12 + hour % 5, 60 + hour % 11, slow, published), Times(slow // 2, slow, slow * 3, finished), backlog,
        )  # fmt: skip


def _total(steps: list[StepFigures]) -> GroupTotals:
    first = steps[0]
    worst = 2_400_000 if first.group == "billing" else 92
    return GroupTotals(
        first.topic, first.group or "", True, False, sum(one.published for one in steps), 0,
        sum(one.finished for one in steps), sum(one.dead for one in steps), 0, sum(one.failures for one in steps), 0,
        sum(one.attempts for one in steps), 4, 30, Times(14, 66, worst, 48_000), 400,
        Times(48, 103, 3 * worst, 48_000), 2, 1, steps[-1].backlog,
    )  # fmt: skip


def _error(topic: str, group: str, error: str, is_class: bool, count: int, example: str) -> ErrorFigures:
    return ErrorFigures(topic, group, error, is_class, count, START, START + timedelta(hours=35), example)


def hostile() -> Report:
    """Return a report in which every text from outside is an attack."""
    base = shop()
    steps = [step for step in base.steps if step.topic == "orders" and step.group == "billing"][:4]
    total = base.groups[0]
    return replace(
        base,
        topics=[replace(base.topics[0], topic=name) for name in HOSTILE],
        groups=[replace(total, topic=name, group=name) for name in HOSTILE],
        steps=[replace(step, topic=name, group=name) for name in HOSTILE for step in steps],
        errors=[
            replace(base.errors[0], topic=name, group=name, error=name, example=name) for name in HOSTILE
        ],
        keys=[replace(base.keys[0], topic=name, key=name) for name in HOSTILE],
    )


def empty() -> Report:
    """Return the report of a topic without any messages."""
    return replace(shop(), topics=[TopicTotals("quiet")], groups=[], steps=[], errors=[], keys=[], notes=[])
