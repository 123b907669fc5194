"""``activity`` computes what a group's handlers do now, from some of the group's messages."""

from __future__ import annotations

from datetime import timedelta

from django_mqueue.policy.message_query import DONE, IN_FLIGHT, PENDING, WAITING
from django_mqueue.stats.activity import Activity, activity
from django_mqueue.store.queries.group_rows import Row

NOW = 1_000_000
SECOND = timedelta(seconds=1)


def row(
    status: str, delivered_at: int | None = None, done_at: int | None = None, *, started: bool = False
) -> Row:
    return Row(1, 0, None, status, delivered_at, done_at, True, started, False)


def flying(ago: int, *, started: bool) -> Row:
    return row(IN_FLIGHT, NOW - ago * 1000, started=started)


def done(ago: int, took: int) -> Row:
    at = NOW - ago * 1000
    return row(DONE, at - took * 1000, at, started=True)


def test_nothing_is_known() -> None:
    assert activity([], NOW, NOW - 5_000) == Activity(None, None, None, 5 * SECOND)
    assert activity([row(PENDING)], NOW, NOW) == Activity(None, None, None, 0 * SECOND)


def test_the_longest_of_those_that_run_and_of_those_that_wait_for_a_thread() -> None:
    rows = [
        flying(3, started=True),
        flying(9, started=True),
        flying(4, started=False),
        flying(2, started=False),
    ]
    found = activity(rows, NOW, 0)
    assert (found.running_for, found.queued_for) == (9 * SECOND, 4 * SECOND)
    assert found.quiet_for == 2 * SECOND


def test_usual_is_what_nearly_all_take() -> None:
    rows = [done(100 + number, 2) for number in range(98)] + [done(500, 300), done(400, 400)]
    found = activity(rows, NOW, 0)
    assert found.usual == 2 * SECOND
    assert found.quiet_for == 100 * SECOND


def test_a_message_that_waits_for_its_retry_was_delivered() -> None:
    found = activity([row(WAITING, NOW - 7_000)], NOW, 0)
    assert (found.running_for, found.quiet_for) == (None, 7 * SECOND)
