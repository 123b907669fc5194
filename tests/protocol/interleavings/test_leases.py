"""Two steps that acquire, take over, renew or release a lease meet in one partition. Each test runs one order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from django_mqueue import StaleDelivery, Subscription, publish, subscribe
from django_mqueue.models import PartitionLease, SubscriberHeartbeat
from django_mqueue.policy.quarantine import Quarantine
from django_mqueue.protocol.claim_scheduler import ClaimScheduler
from django_mqueue.protocol.subscriber import Subscriber
from django_mqueue.protocol.tailer import Tailer
from django_mqueue.store import leases
from tests.support.subscribers import engine_of
from tests.support.transactions import Background, HeldTransaction, wait_for_lock_wait

from .sides import ends
from .steps import COMMIT, Stopped
from .workers import GROUP, TOPIC, acquire, claim, expire, owner, renew, state, worker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("still")]


def has(subscription: Subscription) -> list[str]:
    """Return the partitions that the subscriber has in memory."""
    return sorted(engine_of(subscription).state.partitions)


def test_a_theft_does_not_wait_for_a_renewal_and_takes_nothing() -> None:
    """A renews its expired leases and does not commit. B tries to take over, gets nothing and returns. A commits."""
    publish(TOPIC, 1, key="k")
    with worker("a") as a, worker("b") as b:
        expire()
        me = engine_of(a).state.holder
        with HeldTransaction(lambda: leases.renew("default", me)) as renewal:
            assert ends(lambda: acquire(b)) == 0
            assert renewal.commit() == 1
        assert acquire(b) == 0
        assert (owner(), has(a), has(b)) == ("a", ["k"], [])
        (delivery,) = claim(a)
        assert delivery.ack()


def test_a_renewal_between_the_look_and_the_theft() -> None:
    """B reads that A's lease has expired. A renews it and commits. B locks the rows that it read, and gets nothing."""
    publish(TOPIC, 1, key="k")
    with worker("a") as a, worker("b") as b:
        expire()
        with Stopped(lambda: acquire(b), "FOR UPDATE SKIP LOCKED") as theft:
            renew(a)
            assert theft.go() == 0
        assert (owner(), has(a), has(b)) == ("a", ["k"], [])
        (delivery,) = claim(a)
        assert delivery.ack()


def test_a_theft_between_the_look_and_the_theft() -> None:
    """B reads that a lease has expired. A takes it over and commits.

    B locks the rows that it read, and gets nothing.
    """
    publish(TOPIC, 1, key="k")
    with worker("gone"), worker("a") as a, worker("b") as b:
        expire()
        with Stopped(lambda: acquire(b), "FOR UPDATE SKIP LOCKED") as second:
            assert acquire(a) == 1
            assert second.go() == 0
        assert (owner(), has(a), has(b)) == ("a", ["k"], [])
        (delivery,) = claim(a)
        assert delivery.ack()


def test_a_renewal_does_not_wait_for_a_theft_and_lets_go_at_the_next() -> None:
    """B takes over and does not commit. A renews its other leases and returns. B commits.

    A renews again, and drops the partition from memory.
    """
    publish(TOPIC, 1, key="k")
    with worker("a") as a, worker("b") as b:
        expire()
        with Stopped(lambda: acquire(b), COMMIT) as theft:
            ends(lambda: renew(a))
            assert has(a) == ["k"]
            assert theft.go() == 1
        renew(a)
        assert (owner(), has(a), has(b)) == ("b", [], ["k"])
        assert PartitionLease.objects.get().lease_renewed_at > 0
        (delivery,) = claim(b)
        assert delivery.ack()


def test_a_renewal_does_not_wait_for_an_answer_in_an_open_transaction() -> None:
    """A acks in its handler's transaction, which stays open. Meanwhile A renews its other lease.

    B tries to take over both and gets nothing: one lease is renewed, and the other is locked.
    """
    publish(TOPIC, 1, key="k")
    publish(TOPIC, 2, key="l")
    with worker("a") as a, worker("b") as b:
        one, _two = claim(a)
        expire()
        with HeldTransaction(one.ack) as handler:
            ends(lambda: renew(a))
            assert ends(lambda: acquire(b, "k", "l")) == 0
            handler.commit()
        assert has(a) == ["k", "l"]
        renewed = dict(PartitionLease.objects.values_list("partition_key", "lease_renewed_at"))
        assert (renewed[one.key or ""], min(renewed.values())) == (0, 0)
        assert max(renewed.values()) > 0


@pytest.fixture
def heir() -> Iterator[Subscription]:
    """Another subscriber of the name "a" that is not yet announced. Its next step is ``announce``."""
    subscribe(TOPIC, GROUP)
    subscription = Subscription(TOPIC, GROUP, name="a")
    engine = Subscriber(TOPIC, GROUP, "a", subscription._options, Tailer("default"), polled_by_caller=True)
    engine.state.tail = engine.tailer.join(TOPIC, engine)
    subscription._subscriber, subscription._scheduler = (
        engine,
        ClaimScheduler([engine], Quarantine(quiet_for=0)),
    )
    with closing(subscription):
        yield subscription


def announce(subscription: Subscription) -> None:
    engine_of(subscription).membership.start()


def leave(subscription: Subscription) -> None:
    engine = engine_of(subscription)
    with engine.state.lock:
        engine.membership.stop()


def test_a_successor_does_not_wait_for_its_predecessors_claim(heir: Subscription) -> None:
    """A claims and does not commit. Another A starts without waiting. The first A commits.

    The second A takes its leases. The claimed message is delivered again with attempt 2. The first A's answer is
    refused.
    """
    publish(TOPIC, 1, key="k")
    with worker("a") as a:
        with Stopped(lambda: claim(a), COMMIT) as claiming:
            ends(lambda: announce(heir))
            assert owner() == "a"
            (held,) = claiming.go()
        (again,) = heir.poll()
        assert (held.attempt, again.attempt) == (1, 2)
        with pytest.raises(StaleDelivery):
            held.ack()
        assert again.ack()


def test_a_claim_does_not_wait_for_a_successors_start_and_gets_nothing(heir: Subscription) -> None:
    """Another A starts and does not commit. The first A claims, gets nothing, and returns. The second A commits.

    The second A gets the message with attempt 1.
    """
    publish(TOPIC, 1, key="k")
    with worker("a") as a:
        with Stopped(lambda: announce(heir), COMMIT) as starting:
            assert ends(lambda: claim(a)) == []
            starting.go()
        assert claim(a) == []
        (delivery,) = heir.poll()
        assert delivery.attempt == 1
        assert delivery.ack()


def test_a_successor_does_not_wait_for_its_predecessors_ack(heir: Subscription) -> None:
    """A acks and does not commit. Another A starts without waiting. The first A commits, and its ack counts.

    The second A leases k.
    """
    publish(TOPIC, 1, key="k")
    with worker("a") as a:
        (delivery,) = claim(a)
        with Stopped(delivery.ack, COMMIT) as ack:
            ends(lambda: announce(heir))
            assert ack.go()
        assert heir.poll() == []
        assert has(heir) == ["k"]
    assert state().acked


def test_an_ack_waits_for_a_successors_start_and_is_refused(heir: Subscription) -> None:
    """Another A starts and does not commit. The first A acks and waits. The second A commits.

    The ack is refused, and the message is delivered again.
    """
    publish(TOPIC, 1, key="k")
    with worker("a") as a:
        (delivery,) = claim(a)
        with Stopped(lambda: announce(heir), COMMIT) as starting, Background(delivery.ack) as ack:
            wait_for_lock_wait(ack)
            starting.go()
            with pytest.raises(StaleDelivery):
                ack.result()
        (again,) = heir.poll()
        assert again.attempt == 2
        assert again.ack()


def test_a_successor_waits_for_its_predecessors_end(heir: Subscription) -> None:
    """A leaves and does not commit. Another A starts and waits. The first A commits.

    The second A joins and takes over.
    """
    publish(TOPIC, 1, key="k")
    with worker("a") as a:
        with Stopped(lambda: leave(a), COMMIT) as end, Background(lambda: announce(heir)) as starting:
            wait_for_lock_wait(starting)
            end.go()
            starting.result()
        (delivery,) = heir.poll()
        assert delivery.attempt == 1
        assert delivery.ack()
        assert SubscriberHeartbeat.objects.get().deregistered_at is None


def test_an_end_does_not_wait_for_the_successors_start_and_takes_nothing_from_it(heir: Subscription) -> None:
    """Another A starts and does not commit. The first A leaves and returns. The second A commits.

    The second A keeps its heartbeat and its leases.
    """
    publish(TOPIC, 1, key="k")
    with worker("a") as a:
        with Stopped(lambda: announce(heir), COMMIT) as starting:
            ends(lambda: leave(a))
            starting.go()
        assert SubscriberHeartbeat.objects.get().deregistered_at is None
        (delivery,) = heir.poll()
        leave(a)
        assert (owner(), delivery.attempt) == ("a", 1)
        assert delivery.ack()


def test_an_acquisition_does_not_wait_for_an_end() -> None:
    """A leaves and does not commit. B tries to lease the partition and gets nothing. A commits. B leases it at once."""
    publish(TOPIC, 1, key="k")
    with worker("a") as a, worker("b") as b:
        with Stopped(lambda: leave(a), COMMIT) as end:
            assert ends(lambda: acquire(b)) == 0
            end.go()
        assert acquire(b) == 1
        (delivery,) = b.poll()
        assert delivery.ack()


def test_an_end_does_not_wait_for_an_acquisition_in_vain() -> None:
    """B tries to lease the partition, finds it leased, and does not commit. A leaves and returns. B commits.

    The lease is free, and the next subscriber that looks for work gets it.
    """
    publish(TOPIC, 1, key="k")
    with worker("a") as a, worker("b") as b:
        with Stopped(lambda: acquire(b), COMMIT) as taking:
            ends(lambda: leave(a))
            assert taking.go() == 0
        assert owner() == ""
        assert engine_of(b).find_work()
        (delivery,) = b.poll()
        assert delivery.ack()
