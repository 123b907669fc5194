"""Signals of workers. Receivers that are slow, raise or hang do not harm the worker."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from django.db import connection, connections, transaction
from django.test import override_settings

from django_mqueue import Message, OutgoingMessage, Postpone, Reject, Retry, publish, publish_many, signals
from django_mqueue.models import DeliveryState, PartitionLease
from django_mqueue.signals import Event
from django_mqueue.testing import drain
from django_mqueue.workers import signal_dispatcher
from django_mqueue.workers.signal_dispatcher import SignalDispatcher
from tests.support.processes import FAST
from tests.support.running import Seen, registered, run
from tests.support.shop.models import Sale
from tests.support.subscribers import done
from tests.support.transactions import PATIENCE, wait_until

from .listening import LEASES, Heard, listening

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(signal_dispatcher, "LINGER", PATIENCE)
    with override_settings(MQUEUE={**FAST, "LEASE_RENEWAL_INTERVAL": 0.2}):
        yield


def test_each_outcome_is_told_in_order_in_a_thread_of_its_own() -> None:
    def handle(message: Message) -> None:
        if message.payload == "retry" and message.attempt == 1:
            raise Retry("once more", delay=0)
        if message.payload == "reject":
            raise Reject("never")
        if message.payload == "postpone" and not postponed:
            postponed.append(1)
            raise Postpone(0)

    postponed: list[int] = []
    payloads = ["ack", "retry", "reject", "postpone"]
    publish_many("t", [OutgoingMessage(p, key=p, id=p) for p in payloads])
    with listening() as heard, registered("t", handle):
        run(threads=1)
    told = {p: [name for name, arguments in heard.calls if arguments["id"] == p] for p in payloads}
    assert told == {
        "ack": ["delivered", "acked"],
        "retry": ["delivered", "failed", "delivered", "acked"],
        "reject": ["delivered", "failed", "dead_lettered"],
        "postpone": ["delivered", "postponed", "delivered", "acked"],
    }
    assert heard.threads == {"mqueue-signals"}
    (failed,) = [arguments for arguments in heard.of("failed") if arguments["id"] == "retry"]
    assert (failed["error"], failed["attempt"], failed["retry_in"]) == ("once more", 1, 0)


def test_leases_of_a_worker_are_told() -> None:
    publish("t", 1, key="k")
    with listening(*LEASES) as heard, registered("t", Seen()):
        run()
    assert heard.names == ["lease_won", "lease_lost"]
    assert [told["partitions"] for _, told in heard.calls] == [("k",), ("k",)]
    assert heard.of("lease_lost")[0]["reason"] == "stopped"


def test_an_atomic_handlers_ack_is_told_once_and_after_its_commit() -> None:
    seen: list[int] = []

    def look(**arguments: Any) -> None:
        seen.append(Sale.objects.count())

    publish("t", 1)
    sell = registered("t", lambda message: Sale.objects.create(number=1), atomic=True)
    with listening(signals.acked, signals.published, then=look) as heard, sell:
        run()
    assert (heard.names, seen) == (["acked"], [1])


def test_drain_sends_the_signal_of_an_atomic_ack_once() -> None:
    """``drain`` updates its memory at once, and the hook of the commit does it again."""
    publish("t", 1)
    sell = registered("t", lambda message: Sale.objects.create(number=1), atomic=True)
    with listening(signals.acked) as heard, sell:
        drain("t")
    assert heard.names == ["acked"]


def test_without_listeners_a_worker_starts_no_thread_and_makes_no_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    put: list[Event] = []
    monkeypatch.setattr(SignalDispatcher, "put", lambda self, event: put.append(event))
    publish("t", 1)
    names: set[str] = set()
    with registered("t", lambda message: names.update(t.name for t in threading.enumerate())):
        run()
    assert (done(), put) == (1, [])
    assert "mqueue-signals" not in names


class Unnamed:
    """A receiver without a ``__qualname__``: Django fails when it logs this receiver's error."""

    def __call__(self, **arguments: Any) -> None:
        raise RuntimeError("unnamed")


def leave(**arguments: Any) -> None:
    raise SystemExit("a receiver that wants to go")


def test_receivers_that_raise_are_logged_and_keep_nobody_from_anything(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """All messages are handled, and all receivers are called."""
    bad: list[Callable[..., None]] = [Unnamed(), partial(Unnamed())]
    publish_many("t", range(20))
    with registered("t", Seen()):
        for receiver in bad:
            signals.acked.connect(receiver)
        try:
            with listening(signals.acked) as heard:
                run()
        finally:
            for receiver in bad:
                signals.acked.disconnect(receiver)
    assert (done(), len(heard.calls)) == (20, 20)
    records = [r for r in caplog.records if r.name == "django_mqueue" and "receiver" in r.message]
    assert len(records) == 40
    assert {str(r.exc_info[1]) for r in records if r.exc_info} == {"unnamed"}


def test_a_receiver_that_exits_ends_neither_the_worker_nor_the_telling(
    caplog: pytest.LogCaptureFixture,
) -> None:
    publish_many("t", range(5))
    with listening(signals.acked, then=leave) as heard, registered("t", Seen()):
        run()
    assert (done(), len(heard.calls)) == (5, 5)


def test_a_receiver_that_hangs_costs_the_worker_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the receiver hangs, the worker handles messages and renews its lease. Then it leaves its group at once."""
    monkeypatch.setattr(signal_dispatcher, "LINGER", 0.1)
    entered, leave, returned = threading.Event(), threading.Event(), list[bool]()
    lease = PartitionLease.objects.filter(partition_key="k")

    def hang(**arguments: Any) -> None:
        entered.set()
        leave.wait(4 * PATIENCE)
        returned.append(True)

    held: list[tuple[str, str]] = []

    def handle(message: Message) -> None:
        if message.payload == "second":
            assert entered.wait(PATIENCE)
            for _ in range(3):
                renewed = lease.get().lease_renewed_at
                wait_until(lambda: lease.get().lease_renewed_at > renewed, "the lease is renewed")  # noqa: B023
        held.append((lease.get().leased_by, message.payload))
        if message.payload != "last":
            publish("t", "second" if message.payload == "first" else "last", key="k")

    publish("t", "first", key="k")
    try:
        with listening(*LEASES, signals.delivered, signals.acked, then=hang), registered("t", handle):
            run(name="me")
            assert not returned, "the worker has waited for the receiver"
        assert held == [("me", "first"), ("me", "second"), ("me", "last")]
        assert done() == 3
        assert PartitionLease.objects.filter(leased_by="").count() == 1
        assert "signals were dropped" in caplog.text
    finally:
        leave.set()
    wait_until(
        lambda: not [t for t in threading.enumerate() if t.name == "mqueue-signals"],
        "the thread ends once its receiver lets it",
    )


def test_more_events_than_there_is_room_for_are_dropped_and_counted(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest events are kept, in order. The worker handles all messages before the first receiver returns."""
    monkeypatch.setattr(signal_dispatcher, "SIZE", 50)
    leave, put, original = threading.Event(), list[str](), SignalDispatcher.put

    def note(self: SignalDispatcher, event: Event) -> None:
        put.append(event.keywords["id"])
        original(self, event)

    monkeypatch.setattr(SignalDispatcher, "put", note)
    publish_many("t", [OutgoingMessage(n, key="k", id=f"{n:04}") for n in range(300)])

    def hang(**arguments: Any) -> None:
        leave.wait(PATIENCE)

    def handle(message: Message) -> None:
        if message.payload == "stop":
            wait_until(lambda: done() >= 300 and len(put) >= 300, "all are done, and told")
            leave.set()

    with listening(signals.acked, then=hang) as heard, registered("t", handle, batch_size=100):
        publish("t", "stop")
        run()
    told = [arguments["id"] for arguments in heard.of("acked")]
    assert 50 <= len(told) <= 54
    assert told[:50] == put[:50]
    (first, *_, last) = [r.getMessage() for r in caplog.records if "signals were dropped" in r.message]
    assert "1 signals were dropped" in first
    assert f"{301 - len(told)} signals were dropped" in last


def test_what_is_waiting_when_a_worker_stops_is_told_before_it_ends() -> None:
    """The worker leaves its group first, and then waits for the slow receiver."""
    released: list[int] = []

    def slow(**arguments: Any) -> None:
        if not released:
            wait_until(lambda: PartitionLease.objects.filter(leased_by="").exists(), "it has left")
        threading.Event().wait(0.02)
        released.append(PartitionLease.objects.filter(leased_by="").count())

    publish_many("t", [OutgoingMessage(n, key="k") for n in range(40)])
    with listening(signals.acked, then=slow) as heard, registered("t", Seen(), batch_size=40):
        run()
    assert len(heard.calls) == 40
    assert released == [1] * 40


def test_receivers_may_use_the_database_and_leave_it_as_they_like(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker rolls back an open transaction, replaces a broken connection, and closes all connections."""

    def use(**arguments: Any) -> None:
        number = int(arguments["id"])
        Sale.objects.create(number=number)
        if number == 1:
            connection.close()
            with transaction.atomic():
                Sale.objects.create(number=100)
                transaction.set_rollback(True)
        elif number == 2:
            transaction.atomic().__enter__()
            Sale.objects.create(number=200)
        elif number == 3:
            raw = connection.connection
            assert raw is not None
            raw.close()
            Sale.objects.create(number=300)

    closed: list[str] = []
    original = connections.close_all

    def close_all() -> None:
        closed.append(threading.current_thread().name)
        original()

    monkeypatch.setattr(connections, "close_all", close_all)
    publish_many("t", [OutgoingMessage(n, key="k", id=str(n)) for n in range(6)])
    with listening(signals.acked, then=use), registered("t", Seen()):
        run()
    assert sorted(Sale.objects.values_list("number", flat=True)) == [0, 1, 2, 3, 4, 5]
    assert "left a transaction open" in caplog.text
    assert "mqueue-signals" in closed


@pytest.mark.parametrize("atomic", [False, True])
def test_a_receiver_of_what_a_handler_publishes_does_not_fail_the_handler(
    atomic: bool, caplog: pytest.LogCaptureFixture
) -> None:
    publish("t", 1)
    handler = registered("t", lambda message: publish("next", 1), atomic=atomic)
    with listening(signals.published, then=Unnamed()) as heard, handler:
        run()
    assert (done(), heard.names) == (1, ["published"])
    assert DeliveryState.objects.get().failure_count == 0


def test_a_receiver_may_publish() -> None:
    def again(**arguments: Any) -> None:
        if arguments["topic"] == "t":
            publish("answers", arguments["id"])

    publish_many("t", range(3))
    seen = Seen()
    with listening(signals.acked, then=again), registered("t", Seen()), registered("answers", seen):
        run(drain=True)
        run(drain=True)
    assert len(seen.messages) == 3


def test_async_receivers_are_called_too(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[str] = []

    async def receive(*, id: str, **arguments: Any) -> None:
        heard.append(id)
        raise RuntimeError("after all")

    publish("t", 1, id="one")
    signals.acked.connect(receive)
    try:
        with registered("t", Seen()):
            run()
    finally:
        signals.acked.disconnect(receive)
    assert heard == ["one"]
    assert "receive" in caplog.text


def test_a_process_that_can_start_no_thread_goes_on_without(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_thread(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    telling = SignalDispatcher()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", no_thread)
        telling.put(partial(signals.acked.send_logged, "t"))
    assert telling.dropped == 1
    assert "too slow" not in caplog.text
    heard = Heard()
    signals.acked.connect(heard)
    try:
        with telling:
            telling.put(partial(signals.acked.send_logged, "t"))
    finally:
        signals.acked.disconnect(heard)
    assert len(heard.calls) == 1
    assert caplog.records[0].levelno == logging.ERROR
