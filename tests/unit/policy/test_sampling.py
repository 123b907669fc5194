"""Estimates from a sample of rows: counts, their errors, and values over time."""

from __future__ import annotations

import random
from bisect import bisect_left
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_mqueue.stats.results import ABOUT, AT_LEAST, EXACT
from django_mqueue.stats.sampling import (
    DONE,
    PENDING,
    Sampled,
    Stratum,
    cut,
    figure,
    percentiles,
    series,
    spread,
    worth_splitting,
)

EACH = 8


def looked_at(rows: list[Sampled], parts: int, each: int = EACH) -> list[Stratum]:
    """Return the strata of a log, as a survey reads them."""
    strata, last = [], rows[-1].offset
    for low, high in [*cut(rows[0].offset, last, parts), (last, last + 1)]:
        first = bisect_left(rows, low, key=lambda row: row.offset)
        mine = [row for row in rows[first : first + each] if row.offset < high]
        strata.append(Stratum(low, high, tuple(mine), len(mine) < each))
    return strata


def is_pending(row: Sampled) -> bool:
    return row.status == PENDING


@given(st.sets(st.integers(0, 400), min_size=1, max_size=60), st.integers(1, 40))
def test_what_is_read_whole_is_exact(offsets: set[int], parts: int) -> None:
    rows = [Sampled(o, o, PENDING if o % 3 else DONE) for o in sorted(offsets)]
    strata = looked_at(rows, parts, each=1_000)
    found = figure(strata, is_pending)
    assert (found.value, found.how, found.error) == (sum(map(is_pending, rows)), EXACT, 0)
    assert found.least == found.value
    intervals = spread(strata, is_pending, lambda row: row.published_at)
    assert sorted(intervals) == [(o, o, 1.0) for o in sorted(offsets) if o % 3]


def test_a_log_without_gaps_is_counted_exactly_by_a_sample() -> None:
    rows = [Sampled(n, n) for n in range(5_001)]
    found = figure(looked_at(rows, 20), lambda row: True)
    assert (found.value, found.how, found.least) == (5_001, ABOUT, 161)
    assert 0 < found.error <= 50


@pytest.mark.parametrize("share", [0.03, 0.3])
def test_the_truth_lies_within_the_error(share: float) -> None:
    """The error covers the true count 19 times out of 20. The test allows 6 misses in 60 random logs.

    Several topics share each log. This topic has a random ``share`` of its offsets.
    """
    chance = random.Random(f"share-{share}")
    missed, relative = 0, []
    for _ in range(60):
        rows = [
            Sampled(n, n, PENDING if chance.random() < 0.4 else DONE)
            for n in chance.sample(range(8_000), int(8_000 * share))
        ]
        rows.sort(key=lambda row: row.offset)
        truth = sum(map(is_pending, rows))
        found = figure(looked_at(rows, 24), is_pending)
        missed += abs(found.value - truth) > found.error
        relative.append(found.value / truth)
    assert missed <= 6
    assert sum(relative) / len(relative) == pytest.approx(1, abs=0.03)  # The estimate is not biased.


def test_a_boundary_between_strata_costs_half_of_one_at_most() -> None:
    for boundary in range(20, 2_000, 77):
        rows = [Sampled(n, n, DONE if n < boundary else PENDING) for n in range(2_000)]
        found = figure(looked_at(rows, 25), is_pending)
        assert abs(found.value - (2_000 - boundary)) <= min(found.error, 40)


@given(
    st.lists(st.tuples(st.integers(-50, 150), st.integers(0, 80), st.floats(0.1, 50)), max_size=20),
    st.integers(1, 12),
)
def test_nothing_is_lost_or_made_between_the_steps(
    given_intervals: list[tuple[int, int, float]], points: int
) -> None:
    """The steps add up to the intervals inside the period. Intervals outside it count for nothing."""
    step = 120 // points
    end = step * points
    inside = [(a, a + length, w) for a, length, w in given_intervals if a >= 0 and a + length < end]
    outside = [(a - 1_000, a - 900, w) for a, _, w in given_intervals]
    found = series([*inside, *outside], 0, step, points, how=ABOUT)
    assert found.total.value == pytest.approx(sum(w for *_, w in inside), abs=0.6)
    assert len(found.values) == points
    assert sum(found.values) == pytest.approx(found.total.value, abs=points)


def test_steps_take_the_part_of_an_interval_that_falls_into_them() -> None:
    found = series([(5, 25, 20.0), (12, 12, 1.0)], 0, 10, 3, how=AT_LEAST)
    assert found.values == (5, 11, 5)
    assert (found.total.value, found.total.least, found.how) == (21, 1, AT_LEAST)


def test_a_burst_shows_when_it_was() -> None:
    """The topic publishes 100 messages per second, and 900 in one of the seconds. Offsets rise with time."""
    rows, offset = [], 0
    for second in range(20):
        for n in range(900 if second == 7 else 100):
            rows.append(Sampled(offset, second * 1_000 + n * 1_000 // (900 if second == 7 else 100)))
            offset += 1
    strata = looked_at(rows, 140)
    intervals = spread(strata, lambda row: True, lambda row: row.published_at)
    found = series(intervals, 0, 1_000, 20, how=ABOUT)
    assert found.values[7] == pytest.approx(900, rel=0.1)
    assert all(value == pytest.approx(100, rel=0.3) for n, value in enumerate(found.values) if n != 7)


@given(st.lists(st.integers(0, 1_000), min_size=1, max_size=200))
def test_percentiles_are_values_that_so_many_are_not_above(values: list[int]) -> None:
    found = percentiles([(value, 1.0) for value in values])
    assert found is not None
    for part, told in ((0.50, found.p50), (0.95, found.p95), (0.99, found.p99)):
        ms = told // timedelta(milliseconds=1)
        assert ms in values
        assert sum(value <= ms for value in values) >= part * len(values) - 1e-6
        assert sum(value < ms for value in values) < part * len(values) + 1e-6
    assert found.of == len(values)


def test_percentiles_weigh() -> None:
    found = percentiles([(10, 98.0), (20, 1.0), (1_000, 1.0)])
    assert found is not None
    assert (found.p50, found.p99) == (timedelta(milliseconds=10), timedelta(milliseconds=20))
    assert percentiles([]) is None


def test_what_differs_or_takes_long_is_worth_a_closer_look() -> None:
    quiet = [Sampled(n, 1_000 + n // 100, DONE, done_at=1_000 + n // 100) for n in range(4_000)]
    strata = looked_at(quiet, 10)
    assert worth_splitting(strata, since=0, step=1_000) == []
    assert worth_splitting(strata, since=0, step=1) != []
    differing = [
        row if row.offset < 1_999 else Sampled(row.offset, row.published_at, PENDING) for row in quiet
    ]
    assert worth_splitting(looked_at(differing, 10), since=0, step=1_000) == [4]


@given(st.integers(0, 100), st.integers(1, 1_000), st.integers(1, 50))
def test_a_cut_leaves_nothing_out(low: int, width: int, parts: int) -> None:
    pieces = cut(low, low + width, parts)
    assert [offset for a, b in pieces for offset in range(a, b)] == list(range(low, low + width))
    assert len(pieces) == min(parts, width)
