"""Compare the numbers of topics and groups with a count of every row."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from django_mqueue.inspect import (
    Figure,
    GroupFigures,
    PartitionLag,
    Series,
    group_figures,
    lag,
    latency,
    rates,
    topic_figures,
    topics,
)
from django_mqueue.models import Message
from django_mqueue.policy.durations import moment_ms
from django_mqueue.stats.groups import backlog
from django_mqueue.stats.results import ABOUT, AT_LEAST, EXACT
from django_mqueue.store.queries import group_rows
from tests.support.processes import database_ms

from . import world
from .scene import GROUP, TOPIC, one_of_each
from .world import Truth

pytestmark = pytest.mark.django_db(transaction=True)

WORLD = (world.TOPIC, world.GROUP)
STATUSES = ("pending", "in_flight", "waiting", "scheduled", "dead")


def test_a_message_in_each_status() -> None:
    one_of_each()
    (known,) = topics().topics
    assert (known.topic, known.groups) == (TOPIC, (GROUP, "stock"))
    found = group_figures([(TOPIC, GROUP), (TOPIC, "stock")])
    assert [getattr(found[TOPIC, GROUP], status) for status in STATUSES] == [Figure(1)] * 5
    assert found[TOPIC, "stock"].pending == Figure(5)
    held = topic_figures([TOPIC])[TOPIC]
    assert (held.kept.value, held.scheduled.value, held.dead.value) == (5, 1, 1)
    both = rates([(TOPIC, GROUP), (TOPIC, None)])
    mine, whole = both[TOPIC, GROUP], both[TOPIC, None]
    assert mine.finished is not None
    assert [one.total.value for one in (mine.published, mine.finished, mine.dead)] == [5, 2, 1]
    assert (whole.published.total.value, whole.finished, whole.dead.total.value) == (5, None, 1)
    assert (mine.published.how, mine.finished.how) == (EXACT, AT_LEAST), "registered a moment ago, or reset"
    took = latency(TOPIC, GROUP)
    assert took.whole.done is not None
    assert (took.how, took.whole.done.of) == (EXACT, 2)
    assert timedelta(0) < took.whole.done.p50 < timedelta(minutes=1)


def figures(exact: int | None = None) -> GroupFigures:
    return group_figures([WORLD], exact=exact)[WORLD]


@pytest.mark.parametrize("seed", range(6))
def test_little_worlds_are_counted_exactly(seed: int) -> None:
    truth = world.make(seed)
    found = figures()
    assert [getattr(found, status) for status in STATUSES] == [
        Figure(value) for value in (getattr(truth, status) for status in STATUSES)
    ]
    assert (found.oldest, found.oldest_is_exact) == (truth.oldest, True)
    if truth.oldest is not None:
        published = Message.objects.get(offset=truth.oldest).published_at
        assert found.oldest_published_at is not None
        assert moment_ms("at", found.oldest_published_at) == published
        assert found.oldest_age == found.at - found.oldest_published_at
    assert topic_figures([world.TOPIC])[world.TOPIC].kept == Figure(truth.kept)
    rates_are(truth)
    lags_are(truth, lag(*WORLD, limit=1_000).partitions)
    assert lag(*WORLD).total == Figure(truth.open)


def rates_are(truth: Truth) -> None:
    found = rates([WORLD], points=30)[WORLD]
    assert found.finished is not None
    for series, moments in (
        (found.published, truth.published),
        (found.finished, [at for at, _ in truth.finished]),
        (found.dead, truth.given_up),
    ):
        assert series.how == EXACT
        assert series.values == in_steps(moments, moment_ms("start", found.start), found.step, 30)
        assert series.total.value == sum(series.values)
    measured = latency(*WORLD)
    took = sorted(ms for at, ms in truth.finished if at >= moment_ms("start", measured.start))
    whole = measured.whole
    assert (whole.done is None) == (not took)
    if whole.done is not None:
        assert whole.done.of == len(took)
        assert whole.done.p50 == timedelta(milliseconds=took[(len(took) + 1) // 2 - 1])


def in_steps(moments: Sequence[int], start: int, step: timedelta, points: int) -> tuple[int, ...]:
    values, ms = [0] * points, step // timedelta(milliseconds=1)
    for at in moments:
        if 0 <= (place := (at - start) // ms) < points:
            values[place] += 1
    return tuple(values)


def lags_are(truth: Truth, found: Sequence[PartitionLag]) -> None:
    assert {one.partition: one.lag.value for one in found} == truth.lags
    assert [one.lag.value for one in found] == sorted(truth.lags.values(), reverse=True)
    assert all(one.lag.how == EXACT for one in found)


def is_true(found: Figure, truth: int) -> None:
    assert found.value == truth if found.how == EXACT else found.value <= truth, found


@pytest.mark.parametrize("most", [6_000, 3], ids=["all partitions are read", "too many partitions"])
def test_long_topics_are_counted_up_to_a_limit(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the same random worlds, but count only twenty messages of each status."""
    monkeypatch.setattr(backlog, "PARTITIONS_READ", most)
    for seed in range(6):
        truth = world.make(seed, messages=900, partitions=12, even=seed % 2 == 0)
        found = figures(exact=20)
        for status in STATUSES:
            one, expected = getattr(found, status), getattr(truth, status)
            is_true(one, expected)
            if most > 12:
                assert one.how == (EXACT if expected <= 20 or status == "scheduled" else AT_LEAST), status
                assert one.value == expected or one.value >= 20
        if found.oldest_is_exact:
            assert found.oldest == truth.oldest
        elif found.oldest is not None:
            assert truth.oldest is not None
            assert found.oldest >= truth.oldest
        assert found.oldest_is_exact or most == 3
        behind = lag(*WORLD, exact=20, limit=3)
        is_true(behind.total, truth.open)
        for partition in behind.partitions:
            is_true(partition.lag, truth.lags[partition.partition])
        assert topic_figures([world.TOPIC], exact=20)[world.TOPIC].kept == Figure(20, AT_LEAST)
        world.clear()


def test_rates_of_a_part_are_near_the_truth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the clock to a whole hour.

    Steps begin at whole minutes, so their messages otherwise depend on the time of day.
    """
    hour = database_ms() // 3_600_000 * 3_600_000
    monkeypatch.setattr(world, "database_ms", lambda: hour)
    monkeypatch.setattr(group_rows, "now_ms", lambda using: hour)
    near = []
    for seed in range(4):
        truth = world.make(seed, messages=1_500, even=True)
        found = rates([WORLD], points=10, exact=20)[WORLD]
        assert found.finished is not None
        start = moment_ms("start", found.start)
        near.append(is_near(found.published, in_steps(truth.published, start, found.step, 10)))
        near.append(is_near(found.finished, in_steps([a for a, _ in truth.finished], start, found.step, 10)))
        took = sorted(ms for _, ms in truth.finished)
        whole = latency(*WORLD, exact=20)
        if took and whole.whole.done is not None:
            assert whole.how == ABOUT
            p50 = whole.whole.done.p50 / timedelta(milliseconds=1)
            assert took[len(took) // 4] <= p50 <= took[len(took) * 3 // 4]
        world.clear()
    assert all(near), near


def is_near(series: Series, truth: Sequence[int]) -> bool:
    assert series.how == ABOUT
    difference = sum(abs(a - b) for a, b in zip(series.values, truth, strict=True))
    return difference <= 0.4 * sum(truth) + 20
