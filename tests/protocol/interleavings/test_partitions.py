"""Workers lease partitions, or give up partitions without messages, while others publish to them or lease them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from django.test import override_settings

from django_mqueue import Subscription, publish, subscribe
from django_mqueue.models import Offset, PartitionLease
from django_mqueue.store import leases
from django_mqueue.store.connection import session
from tests.support.subscribers import consume, consume_rest, engine_of, in_log, settle_and_collect
from tests.support.threads import raw_connection
from tests.support.transactions import Background, HeldTransaction, wait_for_lock_wait

from .sides import ends, give_up
from .steps import COMMIT, Stopped
from .workers import GROUP, STILL, TOPIC, acquire, claim, expire, owner, worker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("still", "at_once")]

LOOK, FORGET = "SELECT p.partition_key, (SELECT m.`offset`", "SELECT o.id FROM queue_offsets o"
"""Steps after the lease is deleted: check that the log has no message, then delete the position."""


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a statement that deadlocks fail. It is not retried."""
    monkeypatch.setattr(session, "ATTEMPTS", 1)


def test_two_take_a_new_partition() -> None:
    """A leases it and does not commit. B leases it and waits. A commits. B gets nothing. (A and B are alike.)"""
    subscribe(TOPIC, GROUP)
    with worker("a") as a, worker("b") as b:
        publish(TOPIC, 1, key="k")
        with Stopped(lambda: acquire(a), COMMIT) as first, Background(lambda: acquire(b)) as second:
            wait_for_lock_wait(second)
            assert first.go() == 1
            assert second.result() == 0
        assert claim(b) == []
        (delivery,) = claim(a)
        assert delivery.ack()


def test_two_take_a_new_partition_and_the_first_dies() -> None:
    """A leases it and dies before its commit. B leases it, waits, and then gets it."""
    subscribe(TOPIC, GROUP)
    with worker("a") as a, worker("b") as b:
        publish(TOPIC, 1, key="k")
        me = engine_of(a).state.holder
        with (
            HeldTransaction(lambda: leases.acquire("default", me, ["k"], 600_000)) as first,
            Background(lambda: acquire(b)) as second,
        ):
            wait_for_lock_wait(second)
            first.rollback()
            assert second.result() == 1
        (delivery,) = claim(b)
        assert delivery.ack()


@pytest.mark.parametrize("others", [("b", "a", "d"), ("d", "b", "a")])
@pytest.mark.parametrize("ours", [("a", "c", "b"), ("a", "b", "c")])
def test_two_steal_overlapping_sets_in_any_order(ours: Sequence[str], others: Sequence[str]) -> None:
    """A third connection has c locked. A takes over a, b and c, and does not commit.

    B takes over b, a and d, and returns. A commits. No side waits. A has a and b, and B has d. When the third
    connection releases its lock, B takes c.
    """
    for key in "abcd":
        publish(TOPIC, key, key=key)
    with worker("gone"), worker("a") as a, worker("b") as b, raw_connection() as third:
        expire()
        third.execute(
            "SELECT 1 FROM queue_partition_leases FORCE INDEX (queue_leases_partition)"
            " WHERE consumer_group = %s AND topic = %s AND partition_key = 'c' FOR UPDATE",
            [GROUP, TOPIC],
        )
        with Stopped(lambda: acquire(a, *ours), COMMIT) as first:
            assert ends(lambda: acquire(b, *others)) == 1
            assert first.go() == 2
        assert [owner(key) for key in "abcd"] == ["a", "a", "gone", "b"]
        third.rollback()
        assert acquire(b, "c") == 1


def test_two_take_overlapping_sets_of_new_partitions() -> None:
    """A leases a and b and does not commit. B leases c, b and a, and waits. A commits. B gets c."""
    subscribe(TOPIC, GROUP)
    with worker("a") as a, worker("b") as b:
        for key in "abc":
            publish(TOPIC, key, key=key)
        with (
            Stopped(lambda: acquire(a, "b", "a"), COMMIT) as first,
            Background(lambda: acquire(b, "c", "b", "a")) as second,
        ):
            wait_for_lock_wait(second)
            assert first.go() == 2
            assert second.result() == 1
        assert [owner(key) for key in "abc"] == ["a", "a", "b"]
        assert [delivery.payload for delivery in claim(b)] == ["c"]


@pytest.fixture(params=["an empty log", "a log that keeps it"])
def drained(request: pytest.FixtureRequest) -> Iterator[Subscription]:
    """Yield the owner of a partition whose only message is acked. The log is empty, or still keeps the message."""
    empty = request.param == "an empty log"
    with override_settings(MQUEUE={**STILL, "RETENTION": 0 if empty else 3600}):
        publish(TOPIC, "old", key="k")
        with worker("a") as a:
            consume(a, 1)
            settle_and_collect(a)
            assert bool(in_log(TOPIC)) != empty
            assert Offset.objects.filter(consumer_group=GROUP, partition_key="k").exists()
            yield a


def test_a_partition_is_given_up_before_a_publisher_commits(drained: Subscription) -> None:
    """A (a publisher) publishes to it and does not commit. B gives it up and returns. A commits.

    B returns while A is stopped. The new message is delivered.
    """
    with HeldTransaction(lambda: publish(TOPIC, "new", key="k")) as publisher:
        ends(lambda: give_up(drained, "k"))
        assert owner() is None
        publisher.commit()
    assert [delivery.payload for delivery in consume(drained, 1)] == ["new"]
    assert consume_rest(drained) == []


@pytest.mark.parametrize("step", [LOOK, COMMIT])
def test_a_message_comes_while_its_partition_is_given_up(drained: Subscription, step: str) -> None:
    """B deletes the lease and does not commit. A (a publisher) publishes to the partition and commits. B commits.

    The publisher does not wait. The message is delivered, whether the position is kept or deleted.
    """
    with Stopped(lambda: give_up(drained, "k"), step) as leaving:
        ends(lambda: publish(TOPIC, "new", key="k"))
        assert not leaving.has_gone_on
        leaving.go()
    assert owner() is None
    assert [delivery.payload for delivery in consume(drained, 1)] == ["new"]
    assert consume_rest(drained) == []


def test_a_message_comes_between_the_look_and_the_deletion_of_a_position() -> None:
    """B gives up a partition and finds its log empty. A publishes to it and commits.

    B deletes the position and commits. Without a position, the message is found from the group's start offset.
    """
    with override_settings(MQUEUE={**STILL, "RETENTION": 0}), worker("a") as a:
        publish(TOPIC, "old", key="k")
        consume(a, 1)
        settle_and_collect(a)
        with Stopped(lambda: give_up(a, "k"), FORGET) as leaving:
            ends(lambda: publish(TOPIC, "new", key="k"))
            leaving.go()
        assert not Offset.objects.filter(consumer_group=GROUP, partition_key="k").exists()
        assert [delivery.payload for delivery in consume(a, 1)] == ["new"]
        assert consume_rest(a) == []


def test_another_takes_a_partition_while_it_is_given_up(drained: Subscription) -> None:
    """A gives it up and does not commit. A message is published. B tries to lease the partition and gets nothing.

    A commits, and B leases it. A also sees the message, but does not deliver it.
    """
    with worker("b") as b:
        with Stopped(lambda: give_up(drained, "k"), COMMIT) as leaving:
            publish(TOPIC, "new", key="k")
            assert ends(lambda: acquire(b)) == 0
            leaving.go()
        assert acquire(b) == 1
        assert consume_rest(drained) == []
        assert [delivery.payload for delivery in consume(b, 1)] == ["new"]


def test_a_partition_is_given_up_while_another_finds_it_held(drained: Subscription) -> None:
    """A message is published. B tries to lease the partition, finds it leased by A, and does not commit.

    A gives it up and returns. B commits. The partition has no lease. The message is delivered.
    """
    with worker("b") as b:
        publish(TOPIC, "new", key="k")
        with Stopped(lambda: acquire(b), COMMIT) as taking:
            ends(lambda: give_up(drained, "k"))
            assert taking.go() == 0
        assert not PartitionLease.objects.exists()
        assert [delivery.payload for delivery in consume(drained, 1)] == ["new"]
        assert consume_rest(b) == []
