"""A handler extends its delivery in a transaction that stays open. It keeps no lock on the lease or the state.

So its worker renews the lease, others take it over when it has expired, and it can be released. A former owner is
refused when it extends, and when it acks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from django.db import transaction
from django.test import override_settings

from django_mqueue import Delivery, Released, StaleDelivery, Subscription, publish, release
from django_mqueue.models import DeliveryState, PartitionLease
from django_mqueue.workers.registry import handlers
from django_mqueue.workers.runner import Runner, RunOptions
from tests.support.processes import FAST
from tests.support.running import Seen, registered
from tests.support.shop.models import Sale
from tests.support.subscribers import engine_of
from tests.support.threads import raw_connection
from tests.support.transactions import PATIENCE, Background, HeldTransaction, wait_until

from .sides import ends
from .workers import GROUP, TOPIC, acquire, claim, expire, owner, run_out, state, worker

pytestmark = pytest.mark.django_db(transaction=True)

still = pytest.mark.usefixtures("still")
LEVELS = ["READ COMMITTED", "REPEATABLE READ"]


class Handler:
    """An atomic handler in a thread. It writes a row, extends its delivery, and waits in its transaction for ``go``."""

    def __init__(self, delivery: Delivery, isolation: str = "") -> None:
        self.delivery, self.error = delivery, ""
        self.asked, self._on = threading.Event(), threading.Event()
        self._thread = Background(self._run, isolation=isolation)

    def __enter__(self) -> Handler:
        self._thread.start()
        assert self.asked.wait(PATIENCE), "it waits for a lock"
        return self

    def __exit__(self, *error: object) -> None:
        self.go()

    def go(self) -> str:
        """Let the handler end. Return "" if its ack counts, else the name of the error."""
        self._on.set()
        self._thread.join()
        return self._thread.result()

    def _run(self) -> str:
        try:
            with self.delivery.atomic():
                Sale.objects.create(number=self.delivery.offset)
                assert self.delivery.extend(60)
                self.asked.set()
                assert self._on.wait(PATIENCE)
        except StaleDelivery as stale:
            return type(stale).__name__
        finally:
            self.asked.set()
        return ""


@contextmanager
def handling(isolation: str = "") -> Iterator[tuple[Subscription, Subscription, Handler]]:
    """Yield A, B and A's handler. The handler has extended its delivery. B is another member of the group."""
    publish(TOPIC, 1, key="k")
    with worker("a") as a, worker("b") as b:
        (delivery,) = claim(a)
        with Handler(delivery, isolation) as handler:
            yield a, b, handler


@still
@pytest.mark.parametrize("isolation", LEVELS)
def test_it_leaves_no_lock_on_the_lease_nor_on_its_state(isolation: str) -> None:
    with handling(isolation) as (_, _, handler), raw_connection() as other:
        for table in ("queue_partition_leases", "queue_delivery_state"):
            assert len(other.execute(f"SELECT 1 FROM {table} FOR UPDATE SKIP LOCKED")) == 1, table
        other.rollback()
        assert state().invisible_until > state().delivered_at + 59_000
        assert handler.go() == ""
    assert state().acked


@still
@pytest.mark.parametrize("isolation", LEVELS)
def test_a_takeover(isolation: str) -> None:
    """A extends, and its lease expires. B takes over the partition and the message. A's ack is refused.

    A's writes are rolled back, and B's ack counts.
    """
    with handling(isolation) as (_, b, handler):
        expire()
        assert ends(lambda: acquire(b)) == 1
        (again,) = b.poll()
        assert (owner(), again.attempt) == ("b", 2)
        with pytest.raises(StaleDelivery):
            handler.delivery.extend(60)
        assert handler.go() == "StaleDelivery"
        assert again.ack()
    assert not Sale.objects.exists()


@still
def test_a_release() -> None:
    """A extends. A caller releases the lease at once. B leases the partition and gets the message."""
    with handling() as (_, b, handler):
        assert ends(lambda: release(TOPIC, GROUP, partition="k")) == Released(("k",), (), ())
        assert ends(lambda: acquire(b)) == 1
        (again,) = b.poll()
        assert handler.go() == "StaleDelivery"
        assert again.ack()
    assert not Sale.objects.exists()


@still
def test_a_successor_of_the_same_name() -> None:
    """A extends. Another subscriber of the same name starts, leases at once, and gets the message.

    A's ack is refused.
    """
    with handling() as (_, _, handler), Subscription(TOPIC, GROUP, name="a") as successor:
        (again,) = wait_until(successor.poll, "the successor gets the message")
        assert again.attempt == 2
        assert handler.go() == "StaleDelivery"
        assert again.ack()
    assert not Sale.objects.exists()


@still
def test_a_renewal() -> None:
    """A extends, and its lease expires. A can still renew it. B tries to take over and gets nothing."""
    with handling() as (a, b, handler):
        expire()
        engine_of(a).send_heartbeat_if_due()
        engine_of(a).membership._renew()
        assert PartitionLease.objects.get().lease_renewed_at > 0
        assert ends(lambda: acquire(b)) == 0
        assert handler.go() == ""
    assert state().acked


@pytest.mark.parametrize(
    "change",
    [
        lambda: PartitionLease.objects.update(holder="another"),
        lambda: DeliveryState.objects.update(delivery_token=1),
        lambda: DeliveryState.objects.update(acked=True, in_flight=False),
    ],
    ids=["stolen", "delivered again", "finished"],
)
@still
@pytest.mark.parametrize("isolation", LEVELS)
def test_a_former_owner_that_asks_changes_nothing(isolation: str, change: Callable[[], object]) -> None:
    """A begins its transaction and reads. Then the delivery ends or another worker owns it.

    A extends and is refused.
    """
    publish(TOPIC, 1, key="k")
    with worker("a") as a:
        (delivery,) = claim(a)
        before = state().invisible_until

        def ask() -> None:
            with transaction.atomic():
                assert DeliveryState.objects.get().in_flight
                Background(change).start().join()
                with pytest.raises(StaleDelivery):
                    delivery.extend(60)

        with Background(ask, isolation=isolation) as asking:
            asking.result()
        assert state().invisible_until == before


@still
def test_what_the_same_transaction_has_answered() -> None:
    """The transaction acks first, and so locks the state.

    The extension does not wait for the transaction's own lock, and is refused.
    """
    publish(TOPIC, 1, key="k")
    with worker("a") as a:
        (delivery,) = claim(a)
        with transaction.atomic():
            assert delivery.ack()
            with pytest.raises(StaleDelivery):
                delivery.extend(60)
        assert state().acked


@still
def test_what_another_transaction_is_answering() -> None:
    """B acks the delivery in a transaction that stays open.

    A extends in a transaction, and is refused without waiting.
    """
    publish(TOPIC, 1, key="k")
    with worker("a") as a:
        (delivery,) = claim(a)

        def ask() -> None:
            with transaction.atomic(), pytest.raises(StaleDelivery):
                delivery.extend(60)

        with HeldTransaction(delivery.ack) as answer:
            ends(ask)
            assert answer.commit()
        assert state().acked


@still
def test_asking_for_what_has_run_out_is_in_time_while_nobody_else_has_it() -> None:
    """A extends in its transaction after its time has run out.

    A's poll in another thread does not deliver the message again.
    """
    publish(TOPIC, 1, key="k")
    with worker("a", visibility_timeout=0.01) as a:
        (delivery,) = claim(a)
        run_out(a)
        with Handler(delivery) as handler:
            assert a.poll() == []
            assert handler.go() == ""
        assert state().acked


@override_settings(MQUEUE={**FAST, "LEASE_DURATION": 600})
def test_a_healthy_worker_keeps_its_lease(caplog: pytest.LogCaptureFixture) -> None:
    """An atomic handler extends its delivery and runs while the lease is renewed again and again.

    The worker keeps the same lease, and the message is delivered once. Another member of the group polls meanwhile.
    """
    taken: set[int] = set()

    def handle(message: Delivery) -> None:
        message.extend(60)
        if message.payload == 2:
            return
        taken.add(lease().leased_at)
        for _ in range(8):  # 0.4 s each
            before = renewed()
            wait_until(lambda: renewed() > before, "the lease is renewed", every=0.1)  # noqa: B023
        taken.add(lease().leased_at)

    def lease() -> PartitionLease:
        return Background(lambda: PartitionLease.objects.get(partition_key="k")).start().result()

    def renewed() -> int:
        return int(lease().lease_renewed_at)

    publish("t", 1, key="k")
    with registered("t", seen := Seen(handle), atomic=True):  # type: ignore[arg-type]
        runner = Runner(handlers(["t"]), RunOptions(name="a", max_seconds=120))
        with Background(runner.run) as running:
            try:
                wait_until(lambda: seen.messages, "it has begun")
                with Subscription("t", "g", "b") as other:
                    done = DeliveryState.objects.filter(acked=True)
                    wait_until(lambda: other.poll() or done.exists(), "it is done")
                    publish("t", 2, key="k")
                    wait_until(lambda: other.poll() or done.count() == 2, "the next one too")
            finally:
                runner.stop()
                running.result()
    assert [(message.payload, message.attempt) for message in seen.messages] == [(1, 1), (2, 1)]
    assert len(taken) == 1
    assert "unanswered" not in caplog.text
