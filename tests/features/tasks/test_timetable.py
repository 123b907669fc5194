"""The due times of recurring jobs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import override_settings

from django_mqueue.tasks.options import RecurringOptions
from django_mqueue.tasks.timetable import Timetable

DAY = datetime(2026, 3, 28, 12, 0, 30, tzinfo=UTC)
"""The day before clocks in Berlin change to summer time."""


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc,arg-type]


@pytest.mark.parametrize(
    ("given", "before", "after"),
    [
        ({"cron": "*/5 * * * *"}, utc(2026, 3, 28, 12, 0), utc(2026, 3, 28, 12, 5)),
        ({"cron": "0 6 * * *", "timezone": "UTC"}, utc(2026, 3, 28, 6, 0), utc(2026, 3, 29, 6, 0)),
        ({"cron": "0 6 * * *", "timezone": "Europe/Berlin"}, utc(2026, 3, 28, 5, 0), utc(2026, 3, 29, 4, 0)),
        ({"every": 60}, utc(2026, 3, 28, 12, 0), utc(2026, 3, 28, 12, 1)),
        ({"every": timedelta(hours=5)}, utc(2026, 3, 28, 10, 0), utc(2026, 3, 28, 15, 0)),
    ],
)
def test_due_times(given: dict[str, Any], before: datetime, after: datetime) -> None:
    found = Timetable.read(given)
    assert (found.last_before(DAY), found.next_after(DAY)) == (before, after)


@pytest.mark.parametrize("given", [{"cron": "7 * * * *"}, {"every": 3}])
def test_a_due_time_lies_neither_before_nor_after_itself(given: dict[str, Any]) -> None:
    found = Timetable.read(given)
    first = found.next_after(DAY)
    second = found.next_after(first)
    assert first < second
    assert found.last_before(second) == first


def test_a_time_that_the_clocks_skip_is_due_when_they_have_changed() -> None:
    """As in Debian's cron."""
    found = Timetable.read({"cron": "30 2 * * *", "timezone": "Europe/Berlin"})
    assert found.next_after(DAY) == utc(2026, 3, 29, 1, 0)
    assert found.next_after(utc(2026, 3, 29, 1, 0)) == utc(2026, 3, 30, 0, 30)


def test_a_time_that_comes_twice_is_due_once() -> None:
    found = Timetable.read({"cron": "30 2 * * *", "timezone": "Europe/Berlin"})
    first = found.next_after(utc(2026, 10, 24, 12))
    assert found.next_after(first) - first == timedelta(hours=25)


def test_without_a_time_zone_it_is_that_of_django() -> None:
    with override_settings(TIME_ZONE="Asia/Tokyo"):
        found = Timetable.read({"cron": "0 6 * * *"})
    assert found.next_after(DAY) == utc(2026, 3, 28, 21, 0)
    assert str(found) == "0 6 * * * (Asia/Tokyo)"
    assert str(Timetable.read({"every": 90})) == "every 0:01:30"


def test_positional_arguments_must_be_a_list() -> None:
    with pytest.raises(TypeError, match="args must be a list or tuple, not str"):
        RecurringOptions.read(
            "sales", {"task": "tests.features.tasks.jobs.add", "cron": "* * * * *", "args": "daily"}
        )


def test_in_the_hour_that_comes_twice() -> None:
    """The due time is in the first of the two hours: the second one has none, and it is not in the future there."""
    found = Timetable.read({"cron": "30 2 * * *", "timezone": "Europe/Berlin"})
    for moment in (utc(2026, 10, 25, 1, 10), utc(2026, 10, 25, 1, 40)):
        assert found.next_after(moment) == utc(2026, 10, 26, 1, 30)
        assert found.last_before(moment) == utc(2026, 10, 25, 0, 30)
