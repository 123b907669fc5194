"""A subscriber or worker leaves: during a poll, in a transaction, after its connection died, or without a database."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Generic, TypeVar

import pytest
from django.db import connection, transaction
from django.test import override_settings

from django_mqueue import ClosedSubscription, Subscription, publish
from django_mqueue.models import DeliveryState, PartitionLease, SubscriberHeartbeat
from tests.support.processes import FAST, Workers
from tests.support.running import Seen, registered, run
from tests.support.subscribers import QUICK, consume, poll_until
from tests.support.threads import kill_connections, other_connections
from tests.support.transactions import PATIENCE, Background, wait_until

from .breaking import before_statement, killed_at
from .proxy import Proxy

pytestmark = pytest.mark.django_db(transaction=True)

Result = TypeVar("Result")

TOPIC, GROUP = "orders", "billing"


def assert_nothing_is_held(group: str = GROUP) -> None:
    assert not PartitionLease.objects.filter(consumer_group=group).exclude(holder="").exists()
    assert not SubscriberHeartbeat.objects.filter(consumer_group=group, deregistered_at=None).exists()


class Watched:
    """A lock that counts how often threads have asked for it."""

    def __init__(self) -> None:
        self.lock, self.asked = threading.Lock(), 0

    def __enter__(self) -> None:
        self.asked += 1
        self.lock.acquire()

    def __exit__(self, *error: object) -> None:
        self.lock.release()


def watch(subscription: Subscription) -> Watched:
    """Replace the lock that separates the polls and the close of a subscription."""
    watched = Watched()
    vars(subscription)["_polling"] = watched
    return watched


class Paused(Generic[Result]):
    """Work in a thread that waits for ``go_on`` before its first statement that begins with ``beginning``."""

    def __init__(self, work: Callable[[], Result], beginning: str) -> None:
        self.there, self.go_on = threading.Event(), threading.Event()
        self.work, self.beginning = work, beginning
        self.thread = Background(self._run).start()
        assert self.there.wait(PATIENCE), f"no statement began with {beginning!r}"

    def _run(self) -> Result:
        with before_statement(self.beginning, self._pause):
            return self.work()

    def _pause(self) -> None:
        self.there.set()
        assert self.go_on.wait(PATIENCE)


@override_settings(MQUEUE=QUICK)
def test_closing_waits_for_a_poll_of_another_thread() -> None:
    """Another thread closes the subscription while ``poll`` is in its claim.

    The poll ends first, then all is released.
    """
    publish(TOPIC, 1, key="k")
    subscription = Subscription(TOPIC, GROUP).open()
    consume(subscription, 1)
    publish(TOPIC, 2, key="k")
    lock = watch(subscription)
    polling = Paused(lambda: poll_until(subscription, 1), "INSERT INTO queue_delivery_state")
    closing = Background(subscription.close).start()
    wait_until(lambda: closing.is_done or lock.asked == 2, "it asks for the lock of the poll")
    assert not closing.is_done, "closed in the middle of a poll"
    polling.go_on.set()
    (delivery,) = polling.thread.result()
    closing.result()
    assert delivery.payload == 2
    assert_nothing_is_held()


@override_settings(MQUEUE=QUICK)
def test_a_poll_that_waited_for_close_brings_nothing_back() -> None:
    """Another thread polls while ``close`` runs. The poll raises, and creates no lease and no heartbeat."""
    publish(TOPIC, 1, key="k")
    subscription = Subscription(TOPIC, GROUP).open()
    consume(subscription, 1)
    lock = watch(subscription)
    closing = Paused(subscription.close, "UPDATE queue_subscriber_heartbeats")
    polling = Background(subscription.poll).start()
    wait_until(lambda: polling.is_done or lock.asked == 2, "it asks for the lock of the close")
    assert not polling.is_done
    closing.go_on.set()
    closing.thread.result()
    with pytest.raises(ClosedSubscription):
        polling.result()
    assert_nothing_is_held()


@pytest.mark.parametrize("kind", ["atomic", "autocommit off"])
def test_closing_inside_a_transaction_keeps_no_publisher_waiting(kind: str) -> None:
    """The close must not lock the gate in the caller's transaction.

    Others publish while that transaction stays open.
    """
    publish(TOPIC, 1, key="k")
    subscription = Subscription(TOPIC, GROUP).open()
    consume(subscription, 1)
    for n in range(3):
        publish(TOPIC, n, key="k")
    within: AbstractContextManager[object] = transaction.atomic() if kind == "atomic" else nullcontext()
    transaction.set_autocommit(kind == "atomic")
    try:
        with within:
            subscription.close()
            publishing = Background(lambda: [publish(TOPIC, n, key="k") for n in range(3)]).start()
            publishing.result()
        if kind != "atomic":
            connection.commit()
    finally:
        transaction.set_autocommit(True)
    assert_nothing_is_held()


def test_a_graceful_stop_whose_connection_has_died_releases_all() -> None:
    """The connection is killed while the worker is idle, then SIGTERM comes.

    The leases last a minute, but all are released at once.
    """
    with Workers({**FAST, "LEASE_DURATION": 60, "LEASE_RENEWAL_INTERVAL": 20}) as workers:
        before = set(other_connections())
        publish("orders", {"n": 1}, key="k")
        worker = workers.start("orders:billing", "--threads", "1", "--poll-interval", "20")
        wait_until(lambda: DeliveryState.objects.filter(acked=True).exists(), "it has done its message")
        kill_connections(set(other_connections()) - before)
        assert worker.stop() == 0
        assert "Traceback" not in worker.output()
    assert_nothing_is_held()


@override_settings(MQUEUE={**QUICK, "LEASE_DURATION": 60})
def test_who_loses_the_connection_in_the_middle_of_leaving_leaves_by_a_new_one() -> None:
    """The connection dies before the statement that deregisters the subscriber."""
    publish(TOPIC, 1, key="k")
    subscription = Subscription(TOPIC, GROUP).open()
    consume(subscription, 1)
    with killed_at("UPDATE queue_subscriber_heartbeats", holding="SET deregistered_at"):
        subscription.close()
    assert_nothing_is_held()


@override_settings(MQUEUE={**QUICK, "LEASE_DURATION": 60})
def test_a_worker_that_loses_the_connection_in_the_middle_of_leaving_leaves_all_groups() -> None:
    """The connection dies at the first of two groups. The worker then also leaves the second group."""
    publish(TOPIC, 1, key="k")
    publish("parcels", 1, key="k")
    with (
        registered(TOPIC, seen := Seen(), "one"),
        registered("parcels", seen, "two"),
        killed_at("UPDATE queue_subscriber_heartbeats", holding="SET deregistered_at"),
    ):
        assert "stopped: ack 2" in run()
    assert_nothing_is_held("one")
    assert_nothing_is_held("two")


def wait_until_its_handler_runs() -> None:
    """Wait for a heartbeat after the claim.

    It shows that the worker knows of the commit and has started the handler.
    """
    wait_until(lambda: DeliveryState.objects.filter(in_flight=True).exists(), "its message is claimed")
    before = SubscriberHeartbeat.objects.get().heartbeat_at
    wait_until(lambda: SubscriberHeartbeat.objects.get().heartbeat_at > before, "its handler runs")


def test_a_stop_with_a_result_in_hand_and_the_database_away_ends(tmp_path: Path) -> None:
    """A handler ends while the database is unreachable. SIGTERM comes, and the database stays unreachable.

    The worker retries the ack until the lease expires. After that it no longer owns the delivery.
    """
    file = tmp_path / "file"
    with Proxy() as proxy, Workers({**FAST, "LEASE_DURATION": 2}) as workers:
        publish("orders", {"n": 1, "do": "wait_for_file", "file": str(file)}, key="k")
        worker = workers.start("orders:billing", url=proxy.url)
        wait_until_its_handler_runs()
        proxy.cut()
        wait_until(lambda: "retrying" in worker.output(), "it has noticed")
        file.touch()
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0
        assert "the file is there" in worker.output()
    assert DeliveryState.objects.get().in_flight


def test_a_stop_with_a_result_in_hand_answers_it_when_the_database_comes_back(tmp_path: Path) -> None:
    """The database is reachable again before the lease expires. The message is acked, and is not handled twice."""
    file, mqueue = tmp_path / "file", {**FAST, "LEASE_DURATION": 600, "LEASE_RENEWAL_INTERVAL": 10}
    with Proxy() as proxy, Workers(mqueue) as workers:
        publish("orders", {"n": 1, "do": "wait_for_file", "file": str(file)}, key="k")
        worker = workers.start("orders:billing", url=proxy.url)
        wait_until_its_handler_runs()
        proxy.cut()
        wait_until(lambda: "retrying" in worker.output(), "it has noticed")
        worker.send(signal.SIGTERM)
        file.touch()
        wait_until(lambda: "the file is there" in worker.output(), "the handler has ended")
        proxy.mend()
        assert worker.wait() == 0
    state = DeliveryState.objects.get()
    assert (state.acked, state.retry_count) == (True, 0)
    assert_nothing_is_held()
