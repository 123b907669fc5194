"""Durations, points in time, and the delay before a retry."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_mqueue import ExponentialBackoff
from django_mqueue.policy.durations import moment, moment_ms, to_ms


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (1, 1000),
        (0.0004, 0),
        (1.5, 1500),
        (timedelta(minutes=1), 60_000),
        (timedelta(microseconds=1500), 2),
    ],
)
def test_durations_become_whole_milliseconds(value: Any, expected: int) -> None:
    assert to_ms("delay", value) == expected


@pytest.mark.parametrize("value", [-1, -0.001, float("nan"), float("inf"), timedelta(-1), 1e10, 10**400])
def test_impossible_durations_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="delay must be at"):
        to_ms("delay", value)


@pytest.mark.parametrize("value", [float("inf"), 10**400])
def test_an_infinite_duration_is_too_long(value: Any) -> None:
    with pytest.raises(ValueError, match="delay must be at most a hundred years"):
        to_ms("delay", value)


@pytest.mark.parametrize("value", ["1", None, True, [1], datetime.now(UTC)])
def test_what_is_no_duration_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="delay must be a timedelta or a number of seconds"):
        to_ms("delay", value)


@given(st.datetimes(timezones=st.just(UTC)))
def test_moments_are_exact_to_the_millisecond(value: datetime) -> None:
    """This holds also before 1970. Times are rounded down, never up."""
    back = moment(moment_ms("at", value))
    assert timedelta(0) <= value - back < timedelta(milliseconds=1)


def test_a_moment_is_the_same_in_every_zone() -> None:
    here = datetime(2026, 3, 29, 12, tzinfo=timezone(timedelta(hours=5, minutes=45)))
    assert moment_ms("at", here) == moment_ms("at", here.astimezone(UTC))


def test_a_naive_moment_is_refused() -> None:
    with pytest.raises(ValueError, match="at must be an aware datetime"):
        moment_ms("at", datetime(2026, 1, 1))


@given(st.integers(1, 10_000))
def test_the_backoff_stays_within_its_jitter_and_its_maximum(attempt: int) -> None:
    wait = ExponentialBackoff(first=2, factor=3, max=100, jitter=0.25)(attempt)
    whole = min(2 * 3.0 ** min(attempt - 1, 50), 100)
    assert whole * 0.75 <= wait <= whole


def test_the_backoff_without_jitter_is_exact() -> None:
    backoff = ExponentialBackoff(first=1, factor=2, max=10, jitter=0)
    assert [backoff(attempt) for attempt in range(1, 7)] == [1, 2, 4, 8, 10, 10]


def test_a_backoff_takes_timedeltas() -> None:
    backoff = ExponentialBackoff(first=timedelta(seconds=1), max=timedelta(minutes=1), jitter=0)
    assert [backoff(attempt) for attempt in (1, 2, 9)] == [1, 2, 60]


@pytest.mark.parametrize(
    "options",
    [{"first": -1}, {"max": -1}, {"factor": 0.5}, {"jitter": -0.1}, {"jitter": 1.1}, {"first": float("nan")}],
)
def test_an_impossible_backoff_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be"):
        ExponentialBackoff(**options)
