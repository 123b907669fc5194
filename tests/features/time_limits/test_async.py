"""``max_runtime`` of ``async`` handlers: they are cancelled where they await."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from asgiref.sync import sync_to_async

from django_mqueue import Delivery, Message, Postpone, publish
from django_mqueue.models import PartitionLease
from django_mqueue.workers import executor, pool
from tests.features.batch.batches import AT_ONCE, LATER, errors, publish_all, states
from tests.support.processes import wait_until
from tests.support.running import Seen, registered, run
from tests.support.shop.models import Sale
from tests.support.waiting import PATIENCE

from .hanging import LIMIT, Hanging, running

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fast")]

FAR = 30.0

Limited = Callable[[], AbstractContextManager[None]]


@pytest.fixture
def limited(hanging: Hanging, monkeypatch: pytest.MonkeyPatch) -> Limited:
    """Return a context manager for handlers. The time limit of a call begins with this block."""
    limits: list[tuple[asyncio.Timeout, float]] = []

    def timeout(limit: float) -> asyncio.Timeout:
        limits.append((asyncio.timeout(None), limit))
        return limits[-1][0]

    @contextmanager
    def block() -> Iterator[None]:
        time_limit, limit = limits[-1]
        time_limit.reschedule(asyncio.get_running_loop().time() + limit)
        with hanging.go.limited():
            yield

    monkeypatch.setattr(executor, "asyncio", SimpleNamespace(timeout=timeout))
    monkeypatch.setattr(pool, "CANCEL_GRACE", PATIENCE)
    return block


def given_up(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the warnings about handlers that were given up."""
    return [r.message for r in caplog.records if "handler exceeded max_runtime" in r.message]


def test_it_is_cancelled_and_comes_again(limited: Limited) -> None:
    publish("t", 1)
    ends: list[str] = []
    seen = Seen()

    async def handle(message: Message) -> None:
        await sync_to_async(seen)(message)
        if message.attempt == 1:
            try:
                with limited():
                    await asyncio.sleep(FAR)
            except asyncio.CancelledError:
                ends.append("cancelled")
                raise
            finally:
                ends.append("cleaned up")

    with registered("t", handle, max_runtime=LIMIT, retry=AT_ONCE):
        assert "ack 1, nack 1" in run(threads=1)
    assert ends == ["cancelled", "cleaned up"]
    assert states() == [(True, 1, 1)]
    assert seen.messages[1].last_error.startswith(
        "django_mqueue.exceptions.TimeLimitExceeded: the handler ran longer"
    )
    assert "await asyncio.sleep(FAR)" in seen.messages[1].last_error


def test_it_is_an_attempt_however_the_handler_takes_it(limited: Limited) -> None:
    """The handler catches the cancellation, or raises another exception. The attempt still fails."""
    publish_all("t", range(2))
    cancelled: list[Any] = []

    async def handle(message: Message) -> None:
        try:
            with limited():
                await asyncio.sleep(FAR)
        except asyncio.CancelledError:
            cancelled.append(message.payload)
            if message.payload:
                raise Postpone(5) from None

    with registered("t", handle, max_runtime=LIMIT, retry=LATER):
        run(threads=1)
    assert sorted(cancelled) == [0, 1]
    assert states() == [(False, 1, 0)] * 2


def test_a_timeout_of_its_own_is_its_own() -> None:
    publish("t", 1)

    async def handle(message: Message) -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(FAR)

    with registered("t", handle, max_runtime=FAR, retry=LATER):
        run()
    assert errors() == ["TimeoutError"]


def test_one_that_is_quick_enough() -> None:
    publish_all("t", range(20))

    async def handle(message: Message) -> None:
        await asyncio.sleep(0)

    with registered("t", handle, max_runtime=FAR):
        run()
    assert states() == [(True, 0, 0)] * 20


@pytest.mark.parametrize("batch", [False, True])
def test_what_an_atomic_one_wrote_is_rolled_back(limited: Limited, batch: bool) -> None:
    publish_all("t", [1])

    async def handle(given: Any) -> None:
        await Sale.objects.acreate(number=1)
        if not await first():
            with limited():
                await asyncio.sleep(FAR)

    calls: list[int] = []

    async def first() -> bool:
        calls.append(1)
        return len(calls) > 1

    with registered("t", handle, atomic=True, max_runtime=LIMIT, batch=batch, retry=AT_ONCE):
        run()
    assert Sale.objects.count() == 1
    assert states() == [(True, 1, 1)]


def test_one_that_blocks_its_loop_is_given_up_like_a_plain_one(
    hanging: Hanging, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker cannot cancel the handler. The log still shows the line where it hangs."""
    publish("t", 1)

    async def handle(message: Message) -> None:
        if message.attempt == 1:
            hanging.hang()

    with registered("t", handle, max_runtime=LIMIT, retry=AT_ONCE):
        assert "ack 1, nack 1" in run(threads=1)
        hanging.let_go()
    (told,) = given_up(caplog)
    assert "hanging.hang()" in told
    assert states() == [(True, 1, 1)]


def test_one_that_ignores_its_cancellation_is_given_up(
    hanging: Hanging, caplog: pytest.LogCaptureFixture
) -> None:
    """Another thread replaces the worker's only one. The next attempt succeeds while the first one still runs."""
    publish("t", 1)
    ends: list[str] = []

    async def handle(message: Message) -> None:
        if message.attempt > 1:
            return
        try:
            await asyncio.sleep(FAR)
        except asyncio.CancelledError:
            ends.append("cancelled")
            with hanging.go.limited():
                async with asyncio.timeout(PATIENCE):
                    while not hanging.go.is_set():
                        await asyncio.sleep(0.01)
            ends.append("ended")

    with registered("t", handle, max_runtime=LIMIT, retry=AT_ONCE):
        assert "ack 1, nack 1" in run(threads=1)
        assert ends == ["cancelled"]
        hanging.let_go()
    assert ends == ["cancelled", "ended"]
    (told,) = given_up(caplog)
    assert "await asyncio.sleep(0.01)" in told
    assert states() == [(True, 1, 1)]


def test_one_that_cleans_up_after_its_cancellation_is_not_given_up(
    limited: Limited, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker renews its lease twice while the handler cleans up. So it has checked the time limit since."""
    publish("t", 1, key="k")
    ends: list[str] = []

    def clean_up() -> None:
        for _ in range(2):
            before = PartitionLease.objects.get().lease_renewed_at
            later = PartitionLease.objects.filter(lease_renewed_at__gt=before)
            wait_until(lambda: given_up(caplog) or later.exists(), "the worker renews its lease")  # noqa: B023
        ends.append("cleaned up")

    async def handle(message: Message) -> None:
        with limited():
            try:
                await asyncio.sleep(FAR)
            finally:
                await sync_to_async(clean_up)()

    with registered("t", handle, max_runtime=LIMIT, retry=LATER):
        assert "nack 1" in run(threads=1)
    assert given_up(caplog) == []
    assert ends == ["cleaned up"]
    assert states() == [(False, 1, 0)]


def test_one_without_a_limit_is_told_of_with_what_it_awaits(caplog: pytest.LogCaptureFixture) -> None:
    publish("t", 1)
    go = threading.Event()

    async def inner() -> None:
        while not go.is_set():
            await asyncio.sleep(0.01)

    async def handle(message: Delivery) -> None:
        await inner()

    with registered("t", handle, visibility_timeout=0.01), running():

        def told() -> list[str]:
            found = [r.message for r in caplog.records if "handler still running" in r.message]
            return [message for message in found if "await asyncio.sleep(0.01)" in message]

        wait_until(told, "a warning, once the handler sleeps")
        go.set()
        wait_until(lambda: states() == [(True, 0, 0)], "it is done")
    assert "awaiting:\n" in told()[0]
    assert "await inner()" in told()[0]
