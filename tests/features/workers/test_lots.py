"""A thread gets a lot of quick messages at once. Each of them is still settled by its own outcome."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import F

from django_mqueue import Message, OutgoingMessage, Reject, Subscription, publish_many, unsubscribe
from django_mqueue.models import DeliveryState, PartitionLease
from django_mqueue.workers import pool
from django_mqueue.workers.handler_calls import HandlerCall
from django_mqueue.workers.pool import HandlerPool
from django_mqueue.workers.registry import handlers
from django_mqueue.workers.runner import Runner, RunOptions
from django_mqueue.workers.sharing import Sharing
from tests.support.running import Seen, registered, run
from tests.support.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fast")]

COUNT = 150


@pytest.fixture(autouse=True)
def lots(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Report 1 ms for each call, so that lots have up to 50 messages, also with a small backlog. Return their sizes."""
    sizes: list[int] = []
    start = HandlerPool.start

    def note(pool: HandlerPool, calls: list[HandlerCall]) -> None:
        sizes.append(len(calls))
        start(pool, calls)

    def end(sharing: Sharing, call: HandlerCall) -> None:
        sharing._turns.ended(sharing.subscriber_of(call.deliveries[0]), 0.001)

    monkeypatch.setattr("django_mqueue.workers.sharing.LOTS_FROM", 10)
    monkeypatch.setattr(Sharing, "ended", end)
    monkeypatch.setattr(HandlerPool, "start", note)
    return sizes


def fill() -> None:
    publish_many("t", [OutgoingMessage(n, key=f"k{n % 7}") for n in range(COUNT)])


def handle(then: Callable[[Message], object], **options: Any) -> Seen:
    """Run a worker with one thread until all messages are handled."""
    fill()
    with registered("t", seen := Seen(then), **options):
        run(threads=options.get("concurrency", 1))
    return seen


def test_all_of_a_lot_are_handled_once(lots: list[int]) -> None:
    seen = handle(lambda message: None)
    assert sorted(seen.payloads) == list(range(COUNT))
    assert max(lots) > 10
    assert set(DeliveryState.objects.values_list("acked", "retry_count")) == {(True, 0)}


def test_a_message_that_fails_is_settled_alone(lots: list[int]) -> None:
    def fail(message: Message) -> None:
        if message.payload == 100 and message.attempt == 1:
            raise ValueError("not yet")
        if message.payload == 120:
            raise Reject("never")

    seen = handle(fail, retry=[0])
    assert max(lots) > 10
    assert seen.attempts(100) == [1, 2]
    assert {n: seen.attempts(n) for n in range(COUNT) if n != 100} == {
        n: [1] for n in range(COUNT) if n != 100
    }


@pytest.mark.parametrize("where", ["hook", "retry policy", "filter", "kind"])
def test_code_of_the_user_outside_of_a_transaction_has_autocommit(lots: list[int], where: str) -> None:
    """Statements of the driver's cursors are committed at once, also between the atomic messages of a lot."""
    found = list[bool]()

    def look() -> None:
        connection.ensure_connection()
        found.append(bool(connection.connection.get_autocommit()) or connection.in_atomic_block)

    def act(message: Message) -> None:
        assert connection.in_atomic_block
        if where == "hook":
            transaction.on_commit(look)
        elif where == "retry policy" and message.attempt == 1:
            raise ValueError("again")

    def policy(attempt: int, error: BaseException) -> float:
        look()
        return 0.0

    def filtered(message: Message) -> bool:
        look()
        return True

    def parse(payload: Any) -> Any:
        look()
        return payload

    options: dict[str, dict[str, Any]] = {
        "hook": {},
        "retry policy": {"retry": policy},
        "filter": {"filter": filtered},
        "kind": {"kinds": {"": parse}},
    }
    handle(act, atomic=True, **options[where])
    assert max(lots) > 10
    assert len(found) >= COUNT
    assert all(found)


def test_other_threads_take_what_waits_behind_a_slow_call(lots: list[int]) -> None:
    """One call ends only after all other messages are handled. Some of them were in its lot."""
    fill()
    others = threading.Semaphore(0)
    waited: list[bool] = []

    def block(message: Message) -> None:
        if message.payload == 40:
            waited.extend(others.acquire(timeout=PATIENCE) for _ in range(COUNT - 1))
        else:
            others.release()

    with registered("t", seen := Seen(block)):
        run(threads=2)
    assert max(lots) > 10
    assert waited == [True] * (COUNT - 1)
    assert sorted(seen.payloads) == list(range(COUNT))


def test_the_time_limit_of_one_call_does_not_touch_its_lot(
    lots: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler hangs with one message. The messages behind it are handled by another thread."""

    def limit(call: HandlerCall) -> float:
        """Give up no other call, however slow the machine is."""
        (delivery,) = call.deliveries
        return 0.3 if delivery.payload == 40 and delivery.attempt == 1 else math.inf

    monkeypatch.setattr(pool, "_limit", limit)
    fill()
    door = threading.Event()

    def hang(message: Message) -> None:
        if message.payload == 40 and message.attempt == 1:
            door.wait(PATIENCE)

    with registered("t", seen := Seen(hang), max_runtime=0.3, retry=[0]):
        run(threads=1)
        door.set()
    assert max(lots) > 10
    assert seen.attempts(40) == [1, 2]
    assert {n: seen.attempts(n) for n in range(COUNT) if n != 40} == {n: [1] for n in range(COUNT) if n != 40}


def test_a_call_that_is_given_up_before_its_lot_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The outcome of the overdue call is there at once. The messages behind it are still handled."""
    fill()
    door = threading.Event()
    behind: list[int] = []
    give_up = HandlerPool.give_up

    def give_up_at_once(self: HandlerPool, lot: pool.Lot, *arguments: Any) -> None:
        behind.append(len(lot.waiting))
        give_up(self, lot, *arguments)
        wait_until(lambda: not self._results.empty(), "its outcome is there")

    def hang(message: Message) -> None:
        if message.payload == 40 and message.attempt == 1:
            door.wait(PATIENCE)

    monkeypatch.setattr(HandlerPool, "give_up", give_up_at_once)
    monkeypatch.setattr(pool, "SLOW", PATIENCE)
    with registered("t", seen := Seen(hang), max_runtime=1.0, retry=[0] * 5):
        run(threads=1)
        door.set()
    assert max(behind) > 0, "no message was behind it"
    assert set(seen.payloads) == set(range(COUNT))
    assert not DeliveryState.objects.exclude(acked=True).exists()


def first_of_a_lot(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return a list that will contain the payload of the first message of the first lot with over 10 messages."""
    found: list[Any] = []
    start = HandlerPool.start

    def note(self: HandlerPool, calls: list[HandlerCall]) -> None:
        if len(calls) > 10 and not found:
            found.append(calls[0].deliveries[0].payload)
        start(self, calls)

    monkeypatch.setattr(HandlerPool, "start", note)
    return found


def test_a_lot_that_got_old_starts_nothing_that_another_worker_has_got(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its process stands still during a call, and loses its leases. The loop has not noticed it yet."""
    monkeypatch.setattr(pool, "LOT_VALID", -1.0)
    monkeypatch.setattr(pool, "SLOW", PATIENCE)
    first = first_of_a_lot(monkeypatch)
    fill()
    after: list[Any] = []

    def handle(message: Message) -> None:
        if after:
            after.append(message.payload)
        elif first == [message.payload]:
            PartitionLease.objects.update(
                holder="thief", leased_by="thief", lease_renewed_at=F("lease_renewed_at") + 3_600_000
            )
            after.append(message.payload)

    with registered("t", Seen(handle)):
        options = RunOptions(threads=1, drain=True, drain_timeout=0, max_seconds=PATIENCE)
        Runner(handlers(["t"]), options).run()
    assert after == first != []


def test_what_waits_in_a_lot_of_a_group_that_was_unsubscribed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker forgets these messages, so that it can drain. The handler of another group goes on."""
    monkeypatch.setattr(pool, "SLOW", PATIENCE)
    first = first_of_a_lot(monkeypatch)
    fill()
    take_back = Sharing.take_back
    taken: list[int] = []

    def note(self: Sharing, calls: list[HandlerCall]) -> int:
        taken.append(count := take_back(self, calls))
        return count

    def leave(message: Message) -> None:
        if first == [message.payload]:
            unsubscribe("t", "g")
            (engine,) = (one for one in runner._handlers if one.state.topic == "t")
            wait_until(lambda: engine not in runner._joined, "the worker notices it")
            pool.SLOW = 0.0
            runner._pool.wake()
            wait_until(lambda: any(taken), "the lot is taken back")

    monkeypatch.setattr(Sharing, "take_back", note)
    with registered("t", Seen(leave)), registered("u", Seen()):
        runner = Runner(handlers(["t", "u"]), RunOptions(threads=1, drain=True, max_seconds=PATIENCE))
        runner.run()
    assert runner._starter.is_idle


def test_a_worker_that_stops_gives_back_what_has_not_started(lots: list[int]) -> None:
    """The worker is told to stop in the middle of a lot. The rest of the lot has used no attempt."""
    fill()
    runner: Runner

    def stop(message: Message) -> None:
        if message.payload == 40:
            runner.stop()
            stopping.wait(PATIENCE)

    stopping = threading.Event()
    withdraw = HandlerPool.withdraw

    def taken(pool: HandlerPool, *, all_lots: bool) -> list[HandlerCall]:
        found = withdraw(pool, all_lots=all_lots)
        if all_lots:
            left.extend(found)
            stopping.set()
        return found

    left: list[HandlerCall] = []
    with registered("t", seen := Seen(stop)), pytest.MonkeyPatch.context() as patch:
        patch.setattr(HandlerPool, "withdraw", taken)
        patch.setattr(pool, "SLOW", PATIENCE)
        runner = Runner(handlers(["t"]), RunOptions(threads=1, max_seconds=PATIENCE))
        runner.run()
    assert left, "the lot had more messages"
    assert not DeliveryState.objects.filter(in_flight=True).exists()
    acked = DeliveryState.objects.filter(acked=True).count()
    assert acked == len(seen.messages) < COUNT
    with registered("t", again := Seen()):
        run()
    assert {message.attempt for message in again.messages} == {1}
    assert sorted(seen.payloads + again.payloads) == list(range(COUNT))


def test_a_slow_message_delays_only_its_own_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow message blocks the only thread of a worker, which has claimed messages of all partitions. Another joins.

    The other subscriber gets its share of the partitions meanwhile, with the messages that the worker puts back.
    """
    first = first_of_a_lot(monkeypatch)
    fill()
    end, got = threading.Event(), list[int]()

    def block(message: Message) -> None:
        if first == [message.payload]:
            assert end.wait(PATIENCE), "the other subscriber gets its share"

    def ahead() -> set[int]:
        """Return the messages claimed ahead, when the slow message runs and no other waits in its thread."""
        if not first or runner._pool.has_waiting:
            return set()
        return {d.payload for waiting in runner._starter.sharing.ahead.values() for d in list(waiting)}

    def has_share() -> bool:
        for delivery in subscription.poll(COUNT):
            got.append(delivery.payload)
            delivery.ack()
        return len({number % 7 for number in got}) >= 3

    with registered("t", seen := Seen(block)), ThreadPoolExecutor(1) as threads:
        runner = Runner(handlers(["t"]), RunOptions(threads=1))
        running = threads.submit(runner.run)
        try:
            waiting = wait_until(ahead, "the worker has claimed messages ahead")
            assert len({number % 7 for number in waiting}) >= 6, "no partition without a message in flight"
            with Subscription("t", "g") as subscription:
                wait_until(has_share, "the other subscriber gets its share")
        finally:
            runner.stop()
            end.set()
        running.result(PATIENCE)
    assert waiting.intersection(got)
    assert not set(got) & set(seen.payloads)
    assert {message.attempt for message in seen.messages} == {1}
