"""A claim meets a takeover or another worker's claim in the same partition. Each test runs one order of the two."""

from __future__ import annotations

import pytest

from django_mqueue import StaleDelivery, publish
from django_mqueue.models import DeliveryState
from django_mqueue.store import leases
from tests.support.subscribers import engine_of, poll_until
from tests.support.transactions import HeldTransaction, wait_until

from .sides import ends
from .steps import COMMIT, Stopped
from .workers import GROUP, TOPIC, acquire, claim, claim_suspect, expire, owner, run_out, state, worker

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("still")]

LEASE_CHECK = "SELECT l.partition_key FROM queue_offsets r"
"""The first statement of a claim. Before it, the subscriber has selected messages in memory."""


def test_a_theft_between_choosing_and_claiming() -> None:
    """A selects a message in memory. B takes over the partition, claims and commits.

    A checks its lease and gets nothing. B gets attempt 1. ``protocol/fencing/test_races.py`` tests two more orders: a
    claim while the takeover is not committed, and a takeover while the claim of a new message is not committed.
    """
    publish(TOPIC, 1, key="k")
    with worker("a") as a, worker("b") as b:
        expire()
        with Stopped(lambda: claim(a), LEASE_CHECK) as claiming:
            assert acquire(b) == 1
            (delivery,) = claim(b)
            assert claiming.go() == []
        assert delivery.attempt == 1
        assert delivery.ack()
    assert DeliveryState.objects.count() == 1


def test_a_former_owner_does_not_wait_for_the_new_ones_claim() -> None:
    """A selects a message. B takes over, claims, and does not commit. A checks its lease, gets nothing and returns.

    A returns while B is stopped. B alone has the message.
    """
    publish(TOPIC, 1, key="k")
    with worker("a") as a, worker("b") as b:
        expire()
        with Stopped(lambda: claim(a), LEASE_CHECK) as former:
            assert acquire(b) == 1
            with Stopped(lambda: claim(b), COMMIT) as new:
                assert former.go() == []
                assert not new.has_gone_on
                (delivery,) = new.go()
        assert (delivery.attempt, state().delivered_to) == (1, "b")
        assert delivery.ack()


@pytest.mark.parametrize("strict", [True, False])
def test_a_theft_does_not_wait_for_a_claim_of_one_of_several(strict: bool) -> None:
    """A claims the first of three messages and does not commit. B tries to take over, gets nothing, and returns.

    A commits, and B takes over. B gets A's message first, alone, with attempt 2. Then it gets the others in order, with
    attempt 1. A's answer is refused.
    """
    for n in range(3):
        publish(TOPIC, n, key="k")
    with worker("a", strict=strict) as a, worker("b", strict=strict) as b:
        expire()
        with Stopped(lambda: claim(a, 1), COMMIT) as claiming:
            assert ends(lambda: acquire(b)) == 0
            assert owner() == "a"
            (held,) = claiming.go()
        assert acquire(b) == 1
        polls: list[list[tuple[int, int]]] = []
        while deliveries := b.poll():
            polls.append([(delivery.payload, delivery.attempt) for delivery in deliveries])
            b.ack(deliveries)
        assert polls == ([[(0, 2)], [(1, 1)], [(2, 1)]] if strict else [[(0, 2)], [(1, 1), (2, 1)]])
        with pytest.raises(StaleDelivery):
            held.ack()


def test_a_theft_does_not_wait_for_the_claim_of_a_retry() -> None:
    """A claims its own retry and does not commit. B tries to take over and gets nothing. A commits. B takes over.

    B gets attempt 3: each claim that reached a handler counts once.
    """
    publish(TOPIC, 1, key="k")
    with worker("a") as a, worker("b") as b:
        a.poll()[0].nack()
        expire()
        with Stopped(lambda: claim(a), COMMIT) as claiming:
            assert ends(lambda: acquire(b)) == 0
            (held,) = claiming.go()
        assert acquire(b) == 1
        (stolen,) = b.poll()
        assert (held.attempt, stolen.attempt, state().failure_count) == (2, 3, 1)
        with pytest.raises(StaleDelivery):
            held.ack()
        assert stolen.ack()


def test_the_claim_of_a_retry_does_not_wait_for_a_theft() -> None:
    """B takes over and does not commit. A tries to claim its own retry, gets nothing, and returns. B commits.

    B gets the retry with attempt 2.
    """
    publish(TOPIC, 1, key="k")
    with worker("a") as a, worker("b") as b:
        a.poll()[0].nack()
        expire()
        with Stopped(lambda: acquire(b), COMMIT) as theft:
            assert ends(lambda: claim(a)) == []
            assert theft.go() == 1
        assert claim(a) == []
        (delivery,) = poll_until(b, 1)
        assert delivery.attempt == 2
        assert delivery.ack()


def test_a_claim_does_not_wait_for_a_theft_that_is_undone() -> None:
    """B takes over, and dies before its commit. Until then A gets nothing.

    After that A gets the message, and only A.
    """
    publish(TOPIC, 1, key="k")
    with worker("a") as a, worker("b") as b:
        expire()
        thief = engine_of(b).state.holder
        with HeldTransaction(lambda: leases.acquire("default", thief, ["k"], 600_000)) as theft:
            assert theft.result() == ["k"]
            assert ends(lambda: claim(a)) == []
            theft.rollback()
        (delivery,) = wait_until(lambda: claim(a), "it tries again")
        assert owner() == "a"
        assert delivery.attempt == 1
        assert delivery.ack()


def test_a_suspect_that_its_former_owner_was_about_to_claim() -> None:
    """A starts to claim an expired message. B takes over, claims it, and does not commit. A gets nothing.

    A returns while B is stopped. B alone gets attempt 2.
    """
    publish(TOPIC, 1, key="k")
    with worker("a", visibility_timeout=0.01) as a, worker("b") as b:
        claim(a)
        run_out(a)
        expire()
        with Stopped(lambda: claim_suspect(a), LEASE_CHECK) as former:
            assert acquire(b) == 1
            with Stopped(lambda: claim_suspect(b), COMMIT) as new:
                assert former.go() == []
                assert not new.has_gone_on
                (delivery,) = new.go()
        assert (delivery.attempt, state().delivered_to, state().failure_count) == (2, "b", 0)
        assert delivery.ack()


def test_a_theft_does_not_wait_for_the_claim_of_a_suspect() -> None:
    """A claims a quarantined message alone and does not commit. B tries to take over and gets nothing.

    A commits and does not answer. B takes over and gets attempt 3. Attempt 2 ran alone unanswered, so it counts as a
    failure.
    """
    publish(TOPIC, 1, key="k")
    with worker("a", visibility_timeout=0.01) as a, worker("b") as b:
        claim(a)
        run_out(a)
        expire()
        with Stopped(lambda: claim_suspect(a), COMMIT) as claiming:
            assert ends(lambda: acquire(b)) == 0
            (held,) = claiming.go()
        assert acquire(b) == 1
        (stolen,) = b.poll()
        assert (held.attempt, stolen.attempt, state().failure_count) == (2, 3, 1)
        with pytest.raises(StaleDelivery):
            held.ack()
        assert stolen.ack()
    assert DeliveryState.objects.get(consumer_group=GROUP).acked
