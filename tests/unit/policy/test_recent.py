"""Values over time, from all messages or from some neighbours at even distances in the log."""

from __future__ import annotations

from bisect import bisect_left
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_mqueue.stats.recent import NEIGHBOURS, Slice, count_by_step, cut, estimated_times
from django_mqueue.stats.results import percentiles
from django_mqueue.store.queries.group_rows import Row


def row(offset: int, published_at: int) -> Row:
    return Row(offset, published_at, None, "", None, None, False, False, False)


def sliced(rows: list[Row], parts: int) -> list[Slice]:
    """Return the slices of a log, as ``Recent`` reads them."""
    slices = []
    for low, high in cut(rows[0].offset, rows[-1].offset + 1, parts):
        first = bisect_left(rows, low, key=lambda one: one.offset)
        found = [one for one in rows[first : first + NEIGHBOURS] if one.offset < high]
        rest = 0 if len(found) < NEIGHBOURS else high - 1 - found[-1].offset
        slices.append(Slice(low, high, found, rest))
    return slices


def published(slices: list[Slice]) -> list[tuple[float, float, float]]:
    return estimated_times(slices, lambda one: True, lambda one: one.published_at)


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
    values = count_by_step([*inside, *outside], 0, step, points)
    assert len(values) == points
    assert sum(values) == pytest.approx(sum(w for *_, w in inside), abs=points)


def test_steps_take_the_part_of_an_interval_that_falls_into_them() -> None:
    assert count_by_step([(5, 25, 20.0), (12, 12, 1.0)], 0, 10, 3) == (5, 11, 5)


def test_a_burst_shows_when_it_was() -> None:
    """The topic publishes 100 messages per second, and 900 in one of the seconds. Offsets rise with time."""
    rows, offset = [], 0
    for second in range(20):
        number = 900 if second == 7 else 100
        for n in range(number):
            rows.append(row(offset, second * 1_000 + n * 1_000 // number))
            offset += 1
    values = count_by_step(published(sliced(rows, 140)), 0, 1_000, 20)
    assert values[7] == pytest.approx(900, rel=0.1)
    assert all(value == pytest.approx(100, rel=0.3) for n, value in enumerate(values) if n != 7)


@given(st.lists(st.integers(0, 1_000), min_size=1, max_size=200))
def test_percentiles_are_values_that_so_many_are_not_above(values: list[int]) -> None:
    found = percentiles([(value, 1.0) for value in values])
    assert found is not None
    for part, value in ((0.50, found.p50), (0.95, found.p95), (0.99, found.p99)):
        ms = value // timedelta(milliseconds=1)
        assert ms in values
        assert sum(one <= ms for one in values) >= part * len(values) - 1e-6
        assert sum(one < ms for one in values) < part * len(values) + 1e-6
    assert found.of == len(values)


def test_percentiles_weigh() -> None:
    found = percentiles([(10, 98.0), (20, 1.0), (1_000, 1.0)])
    assert found is not None
    assert (found.p50, found.p99) == (timedelta(milliseconds=10), timedelta(milliseconds=20))
    assert percentiles([]) is None


@given(st.integers(0, 100), st.integers(1, 1_000), st.integers(1, 50))
def test_a_cut_leaves_nothing_out(low: int, width: int, parts: int) -> None:
    pieces = cut(low, low + width, parts)
    assert [offset for a, b in pieces for offset in range(a, b)] == list(range(low, low + width))
    assert len(pieces) == min(parts, width)
