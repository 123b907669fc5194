"""Groups that subscribe and unsubscribe at the same time, or while their workers run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from django_mqueue import Delivery, StaleDelivery, Subscription, publish, subscribe, unsubscribe
from django_mqueue.models import Offset, PartitionLease, SubscriberHeartbeat
from django_mqueue.service.registration import is_registered
from django_mqueue.store.connection import session
from tests.factories import HeartbeatFactory
from tests.support.fixtures import with_settings
from tests.support.subscribers import consume, engine_of, in_log, settle, watermark, with_state
from tests.support.transactions import Background, HeldTransaction, wait_for_lock_wait, wait_until

from .sides import STILL, delivered, ends, move, waits
from .steps import COMMIT, Stopped

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, GROUP = "orders", "g"

TOPIC_ROW = "INSERT INTO queue_offsets"
REGISTRATION_GOES, LEASES_GO = "DELETE o FROM", "SELECT id, partition_key FROM queue_partition_leases"


still = with_settings(MQUEUE={**STILL, "DISCOVERY_INTERVAL": 600})


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Subscription]:
    """A worker that does not read everything again for a new connection, because each side's thread opens one."""
    monkeypatch.setattr(session.Watched, "is_new", lambda watched: False)
    with Subscription(TOPIC, GROUP) as subscription:
        yield subscription


@pytest.fixture
def deliveries(worker: Subscription) -> list[Delivery]:
    return delivered(worker, 2)


def registered() -> bool:
    return is_registered(TOPIC, GROUP, "default")


def positions() -> list[str]:
    """Return the partitions for which the group has stored a position."""
    rows = Offset.objects.filter(consumer_group=GROUP).exclude(partition_key="")
    return list(rows.values_list("partition_key", flat=True))


class TestRegisterAndUnregister:
    def test_a_group_leaves_while_it_registers(self) -> None:
        """A subscribes and stops before COMMIT. B unsubscribes and waits for A. A returns True.

        B removes the registration.
        """
        with Stopped(lambda: subscribe(TOPIC, GROUP), COMMIT) as registration:
            assert waits(registration, lambda: unsubscribe(TOPIC, GROUP))
            assert registration.result() is True
        assert not registered()

    @pytest.mark.parametrize("step", [REGISTRATION_GOES, LEASES_GO, COMMIT])
    def test_a_group_registers_while_it_leaves(self, step: str) -> None:
        """B unsubscribes and stops. A subscribes without waiting, and finds the group still registered.

        Between the two steps of leaving: features/groups/test_races.py,
        test_an_unsubscribe_that_ends_late_takes_nothing_from_those_who_came_again.
        """
        subscribe(TOPIC, GROUP)
        with Stopped(lambda: unsubscribe(TOPIC, GROUP), step) as leaving:
            assert ends(lambda: subscribe(TOPIC, GROUP)) is False
            assert leaving.go()
        assert not registered()

    def test_a_group_comes_and_goes_before_a_registration_goes_on(self) -> None:
        """A finds the group not registered and stops. B subscribes, works and unsubscribes.

        A registers the group again. The new registration gets all messages.
        """
        publish(TOPIC, 1, key="k")
        with Stopped(lambda: subscribe(TOPIC, GROUP), TOPIC_ROW) as registration:
            with Subscription(TOPIC, GROUP) as other:
                consume(other, 1)
                settle(other)
            assert unsubscribe(TOPIC, GROUP)
            assert registration.go() is True
        assert positions() == []
        assert with_state(TOPIC, GROUP) == []
        with Subscription(TOPIC, GROUP) as again:
            assert [delivery.payload for delivery in consume(again, 1)] == [1]


class TestTwoRegistrations:
    def test_the_second_of_one_group_finds_it_registered(self) -> None:
        """A registers at offset 2 and stops before COMMIT. B registers at the earliest offset and waits.

        A's start counts.
        """
        for n in range(2):
            second = publish(TOPIC, n, key="k").offset
        with Stopped(lambda: subscribe(TOPIC, GROUP, start=second), COMMIT, skip=2) as registration:
            assert waits(registration, lambda: subscribe(TOPIC, GROUP)) is False
            assert registration.result() is True
        with Subscription(TOPIC, GROUP) as worker:
            assert [delivery.payload for delivery in consume(worker, 1)] == [1]

    def test_the_first_rolls_back(self) -> None:
        """A registers on a new topic. B and C register the same group and wait. A rolls back.

        B or C registers the group.
        """
        with (
            HeldTransaction(lambda: subscribe(TOPIC, GROUP)) as a,
            Background(lambda: subscribe(TOPIC, GROUP)) as b,
            Background(lambda: subscribe(TOPIC, GROUP)) as c,
        ):
            wait_for_lock_wait(b)
            wait_for_lock_wait(c)
            a.rollback()
            assert sorted([b.result(), c.result()]) == [False, True]
        assert registered()

    def test_two_groups_of_a_new_topic(self) -> None:
        """A registers one group and so creates the topic, and stops. B registers another and waits for A.

        Both are registered.
        """
        with Stopped(lambda: subscribe(TOPIC, GROUP), COMMIT) as registration:
            assert waits(registration, lambda: subscribe(TOPIC, "other"))
            assert registration.result()
        assert registered()
        assert is_registered(TOPIC, "other", "default")
        assert Offset.objects.filter(topic=TOPIC, consumer_group="").count() == 1


def anew() -> bool:
    return unsubscribe(TOPIC, GROUP) and subscribe(TOPIC, GROUP)


class TestSubscribedAgainUnderRunningWorkers:
    @pytest.mark.parametrize("step", ["INSERT INTO queue_delivery_state", COMMIT])
    def test_while_a_claim_is_under_way(self, worker: Subscription, step: str) -> None:
        """A (worker) claims 1 and stops. B unsubscribes and subscribes again, and waits for A. A delivers 1.

        This delivery belongs to the old registration. B removes its state, and A's ack is refused. The next worker gets
        the message.
        """
        publish(TOPIC, 0, key="k")
        consume(worker, 1)
        publish(TOPIC, 1, key="k")
        engine = engine_of(worker)

        def has_heard() -> bool:
            engine.tailer.tick()
            return engine.has_work

        wait_until(has_heard, "the worker knows message 1")  # So that the claim's COMMIT is the first one.
        with Stopped(lambda: engine.claim(1, 1), step) as claim:
            assert waits(claim, anew)
            (delivery,) = claim.result()
        assert with_state(TOPIC, GROUP) == []
        with pytest.raises(StaleDelivery):
            delivery.ack()
        assert_all_comes_again(2)

    @pytest.mark.parametrize("step", [LEASES_GO, COMMIT])
    def test_a_claim_while_the_group_is_leaving(self, worker: Subscription, step: str) -> None:
        """B unsubscribes and stops. A (worker) tries to claim 1, and gets nothing without waiting. B commits."""
        publish(TOPIC, 0, key="k")
        consume(worker, 1)
        publish(TOPIC, 1, key="k")
        with Stopped(anew, step) as leaving:
            assert ends(worker.poll) == []
            leaving.go()
        assert with_state(TOPIC, GROUP) == []
        assert_all_comes_again(2)

    @pytest.mark.parametrize("step", [TOPIC_ROW, COMMIT])
    def test_while_a_watermark_is_on_its_way(
        self, worker: Subscription, deliveries: list[Delivery], step: str
    ) -> None:
        """A moves the watermark and stops. B unsubscribes and subscribes again, and waits for A. A commits.

        B deletes it.
        """
        worker.ack(deliveries)
        with Stopped(lambda: move(worker), step) as watermarks:
            assert waits(watermarks, anew)
        assert positions() == []
        assert_all_comes_again(2)

    @pytest.mark.parametrize("step", [LEASES_GO, COMMIT])
    def test_a_watermark_while_the_group_is_leaving(
        self, worker: Subscription, deliveries: list[Delivery], step: str
    ) -> None:
        """B unsubscribes and stops. A's watermark writes nothing and does not wait. B commits and subscribes again."""
        worker.ack(deliveries)
        with Stopped(anew, step) as leaving:
            ends(lambda: move(worker))
            leaving.go()
        move(worker)
        assert positions() == []
        assert watermark(TOPIC, GROUP, "k") == 0
        assert_all_comes_again(2)

    def test_while_an_ack_is_about_to_commit(self, worker: Subscription, deliveries: list[Delivery]) -> None:
        """A (worker) acks 1 and stops before COMMIT. B unsubscribes and subscribes again, and waits for A's lease.

        A's ack returns True, because it counted in the old registration. B removes its state.
        """
        with Stopped(deliveries[0].ack, COMMIT) as ack:
            assert waits(ack, anew)
            assert ack.result()
        assert_all_comes_again(2)

    def test_an_ack_while_the_group_is_leaving(
        self, worker: Subscription, deliveries: list[Delivery]
    ) -> None:
        """B unsubscribes and stops before COMMIT. A (worker) acks 1 and waits for B. B commits. A's ack is refused."""
        with Stopped(anew, COMMIT) as leaving, pytest.raises(StaleDelivery):
            waits(leaving, deliveries[0].ack)
        assert_all_comes_again(2)

    @pytest.mark.parametrize("step", [LEASES_GO, "DELETE t FROM queue_subscriber_heartbeats", COMMIT])
    def test_a_lease_is_taken_while_the_group_is_leaving(self, worker: Subscription, step: str) -> None:
        """B unsubscribes and stops. A (worker) tries to lease k, and gets nothing without waiting. B commits.

        No lease of the removed group remains. The group's next workers would have to wait until it expires.
        """
        engine = engine_of(worker)

        def take() -> None:
            with engine.state.lock:
                engine.membership._acquire(["k"])

        with Stopped(lambda: unsubscribe(TOPIC, GROUP), step) as leaving:
            ends(take)
            assert "k" in engine.membership.candidates
            leaving.go()
        assert not PartitionLease.objects.filter(consumer_group=GROUP).exists()


def assert_all_comes_again(count: int) -> None:
    """Assert that a new worker of the group gets all messages from the beginning, each once."""
    with Subscription(TOPIC, GROUP, "next") as subscription:
        assert [delivery.offset for delivery in consume(subscription, count)] == in_log(TOPIC)


def test_a_heartbeat_row_is_deleted_while_its_subscriber_starts_again() -> None:
    """A starts, and B deletes the old row of A's name, as ``forget_dead`` does. A finds the row, and waits for B.

    B commits. A inserts the row again.
    """
    subscribe(TOPIC, GROUP)
    HeartbeatFactory.create(consumer_group=GROUP, topic=TOPIC, subscriber_name="a")
    with (
        HeldTransaction(lambda: SubscriberHeartbeat.objects.filter(subscriber_name="a").delete()) as deletion,
        Background(lambda: Subscription(TOPIC, GROUP, "a").__enter__()) as start,
    ):
        assert start.is_blocked
        deletion.commit()
        start.result().close()
    (row,) = SubscriberHeartbeat.objects.filter(subscriber_name="a")
    assert row.heartbeat_at > 0
