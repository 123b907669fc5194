"""A handler settles its message by its end: return, exception, Retry, Reject, Postpone; plain and async."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections, transaction

from django_mqueue import (
    Delivery,
    ExponentialBackoff,
    Message,
    Postpone,
    Reject,
    Retry,
    Subscription,
    publish,
    publish_many,
)
from django_mqueue.models import DeliveryState
from django_mqueue.testing import drain
from tests.support.running import Seen, registered, run
from tests.support.shop.models import Sale
from tests.support.transactions import Background
from tests.support.waiting import PATIENCE

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fast")]

AT_ONCE = ExponentialBackoff(first=0, factor=1, max=0, jitter=0)
no_retry_in_this_run = patch("django_mqueue.workers.handler_calls.DEFAULT_DELAY", 600.0)


def dead_letters(topic: str) -> list[Delivery]:
    with Subscription(f"{topic}_dlq", "undertaker") as subscription:
        return subscription.poll()


def raising(*errors: BaseException | None) -> Callable[[Message], None]:
    """Return a handler that raises these errors, attempt by attempt."""

    def handle(message: Message) -> None:
        error = errors[min(message.attempt, len(errors)) - 1]
        if error is not None:
            raise error

    return handle


def only_bad(error: BaseException) -> Callable[[Message], None]:
    """Return a handler that raises only for the message "bad"."""

    def handle(message: Message) -> None:
        if message.payload == "bad":
            raise error

    return handle


def test_an_exception_is_retried_until_it_succeeds() -> None:
    publish("t", 1)
    with registered("t", seen := Seen(raising(ValueError("a"), KeyError("b"), None)), retry=AT_ONCE):
        assert "ack 1, nack 2" in run()
    assert seen.attempts(1) == [1, 2, 3]
    assert seen.messages[1].last_error.startswith("ValueError: a\n")
    assert seen.messages[2].last_error.startswith("KeyError: 'b'\n")
    assert dead_letters("t") == []


def test_what_a_failure_says_commands_no_terminal(caplog: pytest.LogCaptureFixture) -> None:
    """The text may come from an untrusted publisher, so the log escapes control characters."""
    publish("t", "\x1b]0;mine\x07\x9b2J\r\u202e")
    with registered("t", lambda message: bury(message.payload)):
        run()
    (told,) = [record.getMessage() for record in caplog.records if "dead-lettered" in record.getMessage()]
    assert told.isprintable()
    assert "\\u202e" in told


def bury(why: str) -> None:
    raise Reject(why)


def test_max_attempts_deliveries_and_then_a_dead_letter_with_exception_and_traceback() -> None:
    publish("t", 1, key="k", id="one")
    with registered("t", seen := Seen(raising(ValueError("no good"))), retry=AT_ONCE, max_attempts=4):
        run()
    assert seen.attempts(1) == [1, 2, 3, 4]
    (letter,) = dead_letters("t")
    assert (letter.payload, letter.key, letter.id, letter.failure_count) == (1, "k", "one", 4)
    assert (letter.original_topic, letter.failed_group) == ("t", "g")
    assert letter.last_error.startswith("ValueError: no good\n")
    assert "Traceback (most recent call last)" in letter.last_error
    assert "in handle" in letter.last_error


def test_retry_policy_is_asked_with_the_attempt_that_failed() -> None:
    asked = []

    def policy(attempt: int) -> float:
        asked.append(attempt)
        return 0

    publish("t", 1)
    with registered("t", Seen(raising(ValueError(), ValueError(), None)), retry=policy):
        run()
    assert asked == [1, 2]


def test_backoff_grows_and_is_waited_for() -> None:
    """The delays are 0.2 and 0.4 seconds. A draining worker would end before the retry, so this one does not drain."""
    publish("t", 1)
    times: list[float] = []

    def handle(message: Message) -> None:
        times.append(time.monotonic())
        if message.attempt < 3:
            raise ValueError

    backoff = ExponentialBackoff(first=0.2, factor=2, jitter=0)
    with registered("t", handle, retry=backoff):
        run(drain=False, max_messages=3)
    first, second, third = times
    assert second - first >= 0.2
    assert third - second >= 0.4


def test_a_waiting_retry_holds_up_no_other_message_of_its_key() -> None:
    for n in range(20):
        publish("t", n, key="k")
    with registered("t", seen := Seen(lambda m: raising(ValueError())(m) if m.payload == 0 else None)):
        run()
    assert sorted(set(seen.payloads)) == list(range(20))


def test_retry_with_a_delay_counts_as_an_attempt() -> None:
    publish("t", 1)
    with registered(
        "t", seen := Seen(raising(Retry("soon", delay=0.3), None)), retry=ExponentialBackoff(first=60)
    ):
        run(drain=False, max_messages=2)
    assert seen.attempts(1) == [1, 2]
    assert seen.messages[1].last_error == "soon"


def test_retry_without_a_delay_takes_the_handlers_backoff() -> None:
    publish("t", 1)
    with registered("t", seen := Seen(raising(Retry(), None)), retry=AT_ONCE):
        run()
    assert seen.attempts(1) == [1, 2]


def test_retry_past_max_attempts_is_a_dead_letter() -> None:
    publish("t", 1)
    with registered("t", seen := Seen(raising(Retry("again", delay=0))), max_attempts=2):
        run()
    assert seen.attempts(1) == [1, 2]
    (letter,) = dead_letters("t")
    assert letter.last_error == "again"


def test_reject_is_a_dead_letter_at_once() -> None:
    publish("t", 1)
    with registered("t", seen := Seen(raising(Reject("wrong currency")))):
        assert "dead-letter 1" in run()
    assert seen.attempts(1) == [1]
    (letter,) = dead_letters("t")
    assert (letter.last_error, letter.failure_count) == ("wrong currency", 1)


def test_postpone_counts_no_attempt() -> None:
    """The handler postpones five times with max_attempts=2. Each delivery is the first attempt."""
    publish("t", 1)
    count = iter(range(6))

    def handle(message: Message) -> None:
        if next(count) < 5:
            raise Postpone(0)

    with registered("t", seen := Seen(handle), max_attempts=2):
        assert "ack 1, postpone 5" in run()
    assert seen.attempts(1) == [1] * 6
    assert dead_letters("t") == []


def test_postpone_waits_for_its_delay() -> None:
    publish("t", 1)
    times: list[float] = []

    def handle(message: Message) -> None:
        times.append(time.monotonic())
        if len(times) == 1:
            raise Postpone(0.4)

    with registered("t", handle):
        run(drain=False, max_messages=2)
    assert times[1] - times[0] >= 0.4


def test_async_handlers_are_awaited() -> None:
    """The worker awaits several at once, to their end, and counts their errors."""
    done: list[Any] = []
    together = threading.Barrier(3, timeout=PATIENCE)

    async def handle(message: Message) -> None:
        await asyncio.to_thread(together.wait)
        await asyncio.sleep(0.01)
        if message.payload == 1 and message.attempt == 1:
            raise ValueError("asynchronously")
        done.append((message.payload, message.last_error.partition("\n")[0]))

    publish_many("t", [0, 1, 2])
    with registered("t", handle, retry=lambda attempt: 60):
        run(threads=3)
    assert sorted(done) == [(0, ""), (2, "")]
    assert DeliveryState.objects.get(acked=False).failure_count == 1


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit(), MemoryError()])
def test_whatever_a_handler_raises_fails_its_message_and_nothing_else(error: BaseException) -> None:
    publish_many("t", ["bad", "good"])
    with registered(
        "t",
        seen := Seen(only_bad(error)),
        retry=AT_ONCE,
        max_attempts=2,
    ):
        run()
    assert (seen.attempts("bad"), seen.attempts("good")) == ([1, 2], [1])
    (letter,) = dead_letters("t")
    assert type(error).__name__ in letter.last_error


@no_retry_in_this_run
@pytest.mark.parametrize("delay", [-1, float("nan"), "soon", 1e12])
def test_a_retry_policy_that_gives_nonsense_does_not_stop_the_worker(
    delay: Any, caplog: pytest.LogCaptureFixture
) -> None:
    publish_many("t", ["bad", "good"])
    with registered(
        "t",
        seen := Seen(only_bad(ValueError())),
        retry=lambda attempt: delay,
    ):
        run()
    assert sorted(seen.payloads) == ["bad", "good"]
    (text,) = [record.getMessage() for record in caplog.records if "invalid delay" in record.getMessage()]
    assert text.startswith("invalid delay of a handler or its retry policy: tests.support.running.")
    assert text.endswith(f": {delay!r}; waiting 600.0 s")
    assert DeliveryState.objects.get(acked=False).failure_count == 1


@no_retry_in_this_run
def test_a_retry_policy_that_raises_does_not_stop_the_worker() -> None:
    def broken(attempt: int) -> float:
        raise ZeroDivisionError

    publish_many("t", ["bad", "good"])
    with registered("t", seen := Seen(only_bad(ValueError())), retry=broken):
        run()
    assert sorted(seen.payloads) == ["bad", "good"]


def test_an_error_of_a_megabyte_is_clipped_and_kept() -> None:
    publish("t", 1)
    with registered("t", Seen(raising(ValueError("ä" * 1_000_000))), max_attempts=1):
        run()
    (letter,) = dead_letters("t")
    assert 1000 < len(letter.last_error.encode()) < 10_000
    assert letter.last_error.startswith("ValueError: ää")


def test_an_error_with_characters_that_utf8_cannot_hold_is_kept() -> None:
    publish("t", 1)
    with registered("t", Seen(raising(ValueError("\ud800 lone \x00"))), max_attempts=1):
        run()
    (letter,) = dead_letters("t")
    assert "lone" in letter.last_error


by_worker_and_drain = pytest.mark.parametrize(
    "work",
    [lambda: run(threads=1), lambda: Background(drain).start().result()],
    ids=["by a worker", "by drain"],
)


@by_worker_and_drain
@pytest.mark.parametrize(
    "leave_open", [lambda: transaction.set_autocommit(False), lambda: transaction.atomic().__enter__()]
)
def test_a_transaction_that_a_handler_leaves_open_is_rolled_back_and_the_attempt_has_failed(
    leave_open: Callable[[], None], work: Callable[[], object]
) -> None:
    """The next message of that thread does not run in that transaction."""

    def handle(message: Message) -> None:
        if message.payload == "open":
            leave_open()
        Sale.objects.create(number=1 if message.payload == "open" else 2)

    publish("t", "open", key="k")
    publish("t", "next", key="k")
    with registered("t", handle, strict=True, max_attempts=1):
        work()
    assert list(Sale.objects.values_list("number", flat=True)) == [2]
    (letter,) = dead_letters("t")
    assert "left a transaction open" in letter.last_error


@by_worker_and_drain
def test_a_message_that_was_acknowledged_before_the_transaction_was_left_open_is_done(
    work: Callable[[], object], caplog: pytest.LogCaptureFixture
) -> None:
    def handle(message: Delivery) -> None:
        message.ack()
        transaction.set_autocommit(False)

    publish("t", 1)
    with registered("t", handle, max_attempts=1):
        work()
    assert DeliveryState.objects.get().acked
    assert not dead_letters("t")
    assert "stale" not in caplog.text


def not_committed(alias: str) -> None:
    Sale.objects.using(alias).create(number=1)


def committed(alias: str) -> None:
    Sale.objects.using(alias).create(number=1)
    transaction.commit(using=alias)


def died(alias: str) -> None:
    Sale.objects.using(alias).create(number=1)
    connections[alias].connection.close()


def turned_on(alias: str) -> None:
    transaction.set_autocommit(True, using=alias)
    Sale.objects.using(alias).create(number=1)


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
@pytest.mark.parametrize(
    ("use", "stays"),
    [
        (lambda alias: Sale.objects.using(alias).count(), 0),
        (not_committed, 0),
        (died, 0),
        (committed, 1),
        (turned_on, 1),
    ],
    ids=["read", "written", "died", "committed", "turned on"],
)
def test_a_database_without_autocommit_is_left_as_it_usually_is(
    use: Callable[[str], Any], stays: int
) -> None:
    """The worker rolls back uncommitted writes, as Django does at a request's end. Neither attempt fails."""
    for number in (1, 2):
        publish("t", number, key="k")
    autocommit: list[bool] = []
    once: dict[str, Any] = {"strict": True, "max_attempts": 1}

    def handle(message: Message) -> None:
        if message.payload == 1:
            use("other")
        else:
            assert Sale.objects.using("other").count() == stays
            autocommit.append(transaction.get_autocommit(using="other"))

    with patch.dict(connections.settings["other"], AUTOCOMMIT=False), registered("t", handle, **once):
        run(threads=1)
    assert not dead_letters("t")
    assert autocommit == [False]
    assert Sale.objects.using("other").count() == stays


def test_an_async_handler_that_leaves_a_transaction_open_has_failed() -> None:
    """The handler's database calls use the thread's own connection, which the worker checks."""

    async def handle(message: Message) -> None:
        await sync_to_async(transaction.atomic().__enter__)()
        await Sale.objects.acreate(number=1)

    publish("t", 1)
    with registered("t", handle, max_attempts=1):
        run(threads=1)
    assert not Sale.objects.exists()
    (letter,) = dead_letters("t")
    assert "left a transaction open" in letter.last_error


def test_a_handler_that_breaks_its_connection_does_not_break_the_next_message() -> None:
    def handle(message: Message) -> None:
        if message.payload == "break":
            Sale.objects.create(number=1)
            connection.connection.close()
            return
        Sale.objects.create(number=2)

    publish("t", "break", key="k")
    publish("t", "next", key="k")
    with registered("t", seen := Seen(handle), strict=True, retry=AT_ONCE):
        run(threads=1)
    assert seen.attempts("next")[-1] <= 2
    assert Sale.objects.filter(number=2).count() == 1
    assert not DeliveryState.objects.filter(acked=False).exists()


def test_handlers_may_extend() -> None:
    publish("t", 1)
    with registered("t", lambda message: message.extend(500)):
        assert "ack 1" in run()
