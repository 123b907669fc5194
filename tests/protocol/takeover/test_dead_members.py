"""A member is dead if its session lock is free and its heartbeat is old. Other members take its leases over."""

from __future__ import annotations

import pytest
from django.db import connections
from django.test import override_settings

from django_mqueue import StaleDelivery, Subscription, publish
from django_mqueue.models import SubscriberHeartbeat
from django_mqueue.policy.shares import takes_new
from tests.protocol.interleavings.sides import ends
from tests.protocol.interleavings.steps import COMMIT, Stopped
from tests.protocol.interleavings.workers import owner
from tests.support.statements import counted
from tests.support.transactions import HeldTransaction

from .workers import PATIENT, TOPIC, discover, let_pass, observer, status, worker

pytestmark = pytest.mark.django_db(transaction=True)

AGE = 3
"""``DISCOVERY_INTERVAL`` plus the two seconds in which a worker may reconnect."""
DECISION = "FOR UPDATE SKIP LOCKED"


def test_the_leases_of_a_dead_worker_are_taken_over_at_once() -> None:
    """Its message is delivered again, alone. The dead worker's ack is refused."""
    publish(TOPIC, 1, key="k")
    with worker("a") as a, worker("b") as b:
        (delivery,) = a.claim()
        a.cut()
        let_pass(AGE)
        discover(b.engine)
        assert (owner(), status()) == ("b", "silent")
        assert b.engine.has_quarantined
        with pytest.raises(StaleDelivery):
            a.use(delivery.ack)


def test_a_worker_whose_session_stands_is_not_dead() -> None:
    """The process is stopped, or its machine is lost. The server still holds its session, so only the lease decides."""
    publish(TOPIC, 1, key="k")
    with worker("a") as a, observer("b") as b:
        (delivery,) = a.claim()
        let_pass(3600)
        discover(b)
        assert (owner(), status()) == ("a", "alive")
        assert a.use(delivery.ack)


def test_a_worker_that_reconnects_in_time_loses_nothing() -> None:
    """Others look right after its connection is cut. It keeps its leases and its share."""
    publish(TOPIC, 1, key="k")
    with worker("a") as a, observer("b") as b:
        (delivery,) = a.claim()
        a.cut()
        let_pass(-3600)
        discover(b)
        assert (owner(), b.membership.members) == ("a", ["a", "b"])
        a.discover()
        let_pass(3600)
        discover(b)
        assert owner() == "a"
        assert a.use(delivery.ack)
        assert a.partitions == ["k"]


def test_others_look_again_when_the_heartbeat_is_old_enough() -> None:
    """The next discovery is due then, and not an interval later. Until then the dead worker keeps its share."""
    publish(TOPIC, 1, key="k")
    rare = {**PATIENT, "DISCOVERY_INTERVAL": 1000}
    with override_settings(MQUEUE=rare), worker("a") as a, observer("b") as b:
        a.cut()
        let_pass(500)
        discover(b)
        assert b.membership.members == ["a", "b"]
        assert b.membership.due_in() <= 502


def test_a_worker_that_has_just_connected_looks_again_soon() -> None:
    """The next discovery is due when its connection is old enough to judge others."""
    rare = {**PATIENT, "DISCOVERY_INTERVAL": 1000}
    with override_settings(MQUEUE=rare), worker("a") as a, observer("b") as b:
        a.cut()
        discover(b, connected_for=-10)
        assert b.membership.due_in() <= 12


def test_a_worker_that_dies_before_its_first_discovery_is_dead_like_any_other() -> None:
    with worker("a", discovers=False) as a, observer("b") as b:
        a.cut()
        let_pass(AGE)
        discover(b)
        assert (status(), b.membership.members) == ("silent", ["b"])


def test_a_new_partition_does_not_wait_for_a_worker_that_may_be_dead() -> None:
    """It is A's by the hash, and A still has its share. B has just connected, and waits. Later B takes it."""
    with worker("a") as a, observer("b") as b:
        a.cut()
        let_pass(-3600)
        name = next(name for name in map(str, range(99)) if takes_new(name, 0, 2))
        publish(TOPIC, 1, key=name)
        discover(b, connected_for=-3600)
        assert owner(name) is None
        discover(b)
        assert (owner(name), b.membership.members) == ("b", ["a", "b"])


def test_a_worker_that_has_just_connected_judges_nobody() -> None:
    """After an outage of the server or of a proxy all locks are free. The first worker to return leaves the others."""
    publish(TOPIC, 1, key="k")
    with worker("a") as a, observer("b") as b:
        (delivery,) = a.claim()
        a.cut()
        let_pass(3600)
        discover(b, connected_for=-3600)
        assert (owner(), b.membership.members) == ("a", ["a", "b"])
        a.discover()
        discover(b)
        assert owner() == "a"
        assert a.use(delivery.ack)


def test_a_lock_of_another_server_says_nothing() -> None:
    """On a node of a cluster, the locks of the other nodes look free."""
    publish(TOPIC, 1, key="k")
    with worker("a") as a, observer("b") as b:
        elsewhere = "mqueue.0123456789abcdef." + a.lock().rpartition(".")[2]
        SubscriberHeartbeat.objects.filter(subscriber_name="a").update(session_lock=elsewhere)
        a.cut()
        let_pass(3600)
        discover(b)
        assert (owner(), status()) == ("a", "alive")


def test_a_subscription_is_not_judged() -> None:
    """Its caller may close the connection between two polls. Only its lease decides."""
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, "billing", name="a") as a:
        (delivery,) = a.poll()
        connections["default"].close()
        let_pass(3600)
        with observer("b") as b:
            discover(b)
        assert owner() == "a"
        assert delivery.ack()


def test_a_subscription_judges_nobody() -> None:
    """Nothing shows how long its connection has existed."""
    publish(TOPIC, 1, key="k")
    with worker("a") as a, Subscription(TOPIC, "billing", name="b") as b:
        a.cut()
        let_pass(3600)
        assert b.poll() == []
        assert owner() == "a"


def test_a_worker_that_comes_back_between_the_look_and_the_decision() -> None:
    """B reads that A is dead. A reconnects. B decides again in its transaction, and takes nothing."""
    publish(TOPIC, 1, key="k")
    with worker("a") as a, observer("b") as b:
        (delivery,) = a.claim()
        a.cut()
        let_pass(AGE)
        with Stopped(lambda: discover(b), DECISION, skip=1) as takeover:
            a.reconnect()
            takeover.go()
        assert owner() == "a"
        assert a.use(delivery.ack)


def test_a_heartbeat_between_the_look_and_the_decision() -> None:
    """B reads that A is dead. A reconnects, sends a heartbeat and loses its connection again. It has time again."""
    publish(TOPIC, 1, key="k")
    with worker("a") as a, observer("b") as b:
        (delivery,) = a.claim()
        a.cut()
        let_pass(3600)
        with Stopped(lambda: discover(b), DECISION, skip=1) as takeover:
            let_pass(-7200)
            takeover.go()
        assert owner() == "a"
        assert a.use(delivery.ack)


def test_a_worker_comes_back_during_the_takeover() -> None:
    """B has released A's leases and does not commit. A reconnects without waiting. It has lost its leases."""
    publish(TOPIC, 1, key="k")
    with worker("a") as a, observer("b") as b:
        (delivery,) = a.claim()
        a.cut()
        let_pass(AGE)
        with Stopped(lambda: discover(b), COMMIT, skip=1) as takeover:
            ends(a.beat)
            takeover.go()
        assert owner() == "b"
        with pytest.raises(StaleDelivery):
            a.use(delivery.ack)
        a.renew()
        assert a.partitions == []
        a.discover()
        assert status() == "alive"


def test_two_workers_find_a_dead_one_at_the_same_time() -> None:
    """B releases A's leases and does not commit. C does not wait, and looks again soon."""
    publish(TOPIC, 1, key="k")
    with worker("a") as a, observer("b") as b, observer("c") as c:
        a.cut()
        let_pass(AGE)
        with Stopped(lambda: discover(b), COMMIT) as takeover:
            ends(lambda: discover(c))
            assert "a" not in c.membership.members
            assert c.membership.due_in() <= 0.1
            takeover.go()
        assert owner() == "b"


def test_a_lease_that_is_locked_is_taken_over_later(caplog: pytest.LogCaptureFixture) -> None:
    """A's transaction of a handler is still open: the server has not noticed that this connection has ended."""
    publish(TOPIC, 1, key="k")
    publish(TOPIC, 2, key="l")
    with worker("a") as a, observer("b") as b:
        (one, *_) = sorted(a.claim(), key=lambda delivery: delivery.key or "")
        a.cut()
        let_pass(AGE)
        with HeldTransaction(one.ack) as handler:
            discover(b)
            assert (owner("k"), owner("l")) == ("a", "b")
            assert "worker is dead" not in caplog.text
            handler.rollback()
        discover(b)
        assert (owner("k"), status()) == ("b", "silent")
        assert "worker is dead, its leases are released" in caplog.text


def test_a_discovery_without_dead_members_has_the_same_statements() -> None:
    with worker("a") as a, Subscription(TOPIC, "billing", name="b") as b:
        a.discover()

        def count() -> int:
            with counted() as cost:
                a.engine.membership.discover_now()
            return cost.count

        engine = b._subscriber
        assert engine is not None
        with counted() as cost:
            engine.membership.discover_now()
        assert a.use(count) == cost.count


def test_a_worker_that_leaves_is_not_silent() -> None:
    with worker("a") as a:
        a.use(a.engine.stop)
        assert (a.lock(), status()) == ("", "left")


def test_a_dead_worker_that_is_not_found_becomes_silent_with_its_lease() -> None:
    with worker("a") as a:
        a.cut()
        let_pass(3600)
        assert status() == "alive"
        let_pass(36_000)
        assert status() == "silent"
