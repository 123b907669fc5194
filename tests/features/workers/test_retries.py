"""``retry=`` sets by attempt and by exception how long a failed message waits, and if it is retried."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from django_mqueue import (
    Delays,
    ExponentialBackoff,
    FixedDelay,
    Message,
    NoRetry,
    Retry,
    RetryOn,
    consumer,
    publish,
)
from django_mqueue.models import DeliveryState
from django_mqueue.models import Message as Row
from tests.support.running import Seen, registered, run

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fast")]


def failing(error: BaseException) -> Seen:
    def handle(message: Message) -> None:
        raise error

    return Seen(handle)


def letters() -> list[tuple[int | None, str]]:
    """Return (failures, the error's first line) of each dead letter."""
    return [
        (row.failure_count, (row.last_error or "").splitlines()[0])
        for row in Row.objects.filter(topic="t_dlq")
    ]


@pytest.mark.parametrize(
    "retry", [None, NoRetry(), lambda attempt: None], ids=["None", "NoRetry", "callable"]
)
def test_no_retry(retry: Any) -> None:
    """The first failure dead-letters the message, although max_attempts is 5."""
    publish("t", 1)
    seen = failing(ValueError("no"))
    with registered("t", seen, retry=retry, max_attempts=5):
        run()
    assert len(seen.messages) == 1
    assert letters() == [(1, "ValueError: no")]


@pytest.mark.parametrize(
    "retry",
    [[0, 0], (0, timedelta(0)), Delays([0]), FixedDelay(0), FixedDelay(timedelta(0)), lambda attempt: 0],
    ids=["list", "tuple", "Delays", "FixedDelay", "timedelta", "callable"],
)
def test_policies_end_with_the_attempts(retry: Any) -> None:
    publish("t", 1)
    seen = failing(ValueError("no"))
    with registered("t", seen, retry=retry, max_attempts=4):
        run()
    assert seen.attempts(1) == [1, 2, 3, 4]
    assert letters() == [(4, "ValueError: no")]


def test_a_list_gives_each_attempt_its_wait_and_the_last_to_all_others() -> None:
    waits = Delays([1, timedelta(minutes=1), 3600])
    assert [waits(attempt) for attempt in (1, 2, 3, 4, 99)] == [1, 60, 3600, 3600, 3600]


def test_a_fixed_delay_with_jitter() -> None:
    waits = {FixedDelay(100, jitter=0.5)(attempt) for attempt in range(1, 200)}
    assert all(50 <= wait <= 100 for wait in waits)
    assert len(waits) > 100
    assert {FixedDelay(7)(attempt) for attempt in range(1, 9)} == {7}


def test_a_wait_is_waited() -> None:
    publish("t", 1)
    with registered("t", failing(ValueError("no")), retry=[3600]):
        run()
    (state,) = DeliveryState.objects.all()
    assert state.invisible_until - state.delivered_at >= 3_600_000
    assert (state.acked, state.failure_count) == (False, 1)


def test_a_callable_may_take_the_exception() -> None:
    """The callable gets the attempt and the exception. It returns a delay, or None for no retry."""
    publish("t", 1)
    asked: list[tuple[int, str]] = []

    def decide(attempt: int, exception: BaseException) -> float | None:
        asked.append((attempt, repr(exception)))
        return 0 if attempt < 3 else None

    seen = failing(KeyError("k"))
    with registered("t", seen, retry=decide, max_attempts=10):
        run()
    assert asked == [(1, "KeyError('k')"), (2, "KeyError('k')"), (3, "KeyError('k')")]
    assert letters() == [(3, "KeyError: 'k'")]


def test_a_second_parameter_that_is_something_else_is_left_alone() -> None:
    publish("t", 1)
    asked: list[float] = []

    def decide(attempt: int, base: float = 0.0) -> float:
        asked.append(base)
        return base

    with registered("t", failing(KeyError("k")), retry=decide, max_attempts=2):
        run()
    assert asked == [0.0, 0.0]


@pytest.mark.parametrize(
    ("error", "attempts"),
    [
        (ConnectionResetError("gone"), 3),
        (TimeoutError("slow"), 3),
        (ValueError("bad"), 1),
        (Retry("again"), 3),
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_after_some_exceptions(error: BaseException, attempts: int) -> None:
    """The worker also retries after ``Retry``, because the handler asks for it."""
    publish("t", 1)
    seen = failing(error)
    with registered("t", seen, retry=RetryOn(ConnectionError, TimeoutError, policy=FixedDelay(0))):
        run()
    assert len(seen.messages) == attempts
    assert [failures for failures, _ in letters()] == [attempts]


def test_every_attempts_reason_is_kept() -> None:
    publish("t", 1)

    def handle(message: Message) -> None:
        raise ValueError(f"reason {message.attempt}")

    with registered("t", handle, retry=[0]):
        run()
    (state,) = DeliveryState.objects.all()
    assert [error["error"].splitlines()[0] for error in state.errors or []] == [
        "ValueError: reason 1", "ValueError: reason 2", "ValueError: reason 3",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("retry", "error", "match"),
    [
        ("1", TypeError, "retry must be callable with the attempt's number, a list of waits, or None"),
        (5, TypeError, "retry must be callable"),
        ([], ValueError, "delays must hold at least one wait"),
        ([1, "2"], TypeError, r"delays\[1\] must be a timedelta or a number of seconds"),
        ([-1], ValueError, r"delays\[0\] must be at least 0 seconds"),
    ],
)
def test_bad_policies(retry: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        consumer("t", group="g", retry=retry)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: RetryOn(), TypeError, "at least one type"),
        (lambda: RetryOn(ValueError("x")), TypeError, "types of exceptions"),  # type: ignore[arg-type]
        (lambda: RetryOn(ValueError, policy=3), TypeError, "retry must be callable"),  # type: ignore[arg-type]
        (lambda: FixedDelay(-1), ValueError, "delay must be at least 0"),
        (lambda: FixedDelay(1, jitter=2), ValueError, "jitter must be from 0 to 1"),
        (lambda: ExponentialBackoff(jitter=-1), ValueError, "jitter must be from 0 to 1"),
    ],
)
def test_bad_arguments_of_policies(make: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        make()
