"""A message that is claimed ahead of free threads is no attempt until a handler receives it."""

from __future__ import annotations

from typing import Any

import pytest
from django.db.models import F

from django_mqueue import Delivery, OutgoingMessage, Subscription, publish, publish_many
from django_mqueue.models import DeliveryState, PartitionLease
from django_mqueue.protocol.subscriber import Subscriber
from django_mqueue.workers.completer import Completer
from django_mqueue.workers.handler_calls import Outcome, Verdict
from django_mqueue.workers.registry import handlers
from django_mqueue.workers.sharing import Plan, Share
from tests.protocol.interleavings.workers import start
from tests.support.running import Seen, registered
from tests.support.subscribers import engine_of, let_die, poll_until
from tests.support.transactions import HeldTransaction, wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("kept")]

TOPIC, GROUP = "orders", "billing"


def claimed_ahead(subscription: Subscription) -> Delivery:
    """Claim the first message, as a worker does when all its threads are busy."""
    engine = engine_of(subscription)

    def claim() -> list[Delivery]:
        engine.tick()
        with engine.state.lock:
            return engine.claimer.claim(1, 0)

    claimed: list[Delivery] = wait_until(claim, "it is claimed")
    (delivery,) = claimed
    assert not DeliveryState.objects.get().handed
    return delivery


def test_what_was_claimed_ahead_is_noted_when_it_starts() -> None:
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, GROUP) as subscription:
        delivery = claimed_ahead(subscription)
        assert start(subscription, delivery)
        assert DeliveryState.objects.get().handed
        assert delivery.ack()


def test_what_was_stolen_is_not_started() -> None:
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, GROUP) as subscription:
        delivery = claimed_ahead(subscription)
        PartitionLease.objects.update(holder="thief", leased_by="thief")
        assert not start(subscription, delivery)
    assert not DeliveryState.objects.get().handed


def test_what_was_delivered_again_is_not_started() -> None:
    """Another subscriber had the lease in between, and this worker does not know it."""
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, GROUP) as subscription:
        delivery = claimed_ahead(subscription)
        DeliveryState.objects.update(delivery_token=delivery.status.receipt.token + 1)
        assert not start(subscription, delivery)
    assert not DeliveryState.objects.get().handed


@pytest.mark.parametrize(
    "changes",
    [{"delivery_token": F("delivery_token") + 1}, {"in_flight": False}],
    ids=["delivered again", "put back"],
)
def test_what_was_lost_is_not_started_after_a_lock_wait(changes: dict[str, Any]) -> None:
    """Another subscriber had the lease while the group rested. Then the worker skips locked rows, and starts messages.

    The other subscriber has claimed the message, or has put it back because no handler had it. This worker can claim it
    again.
    """
    publish("errands", 1, key="k")
    with registered("errands", Seen(), group="ahead"), Subscription("errands", "ahead") as subscription:
        (handler,) = handlers(["errands:ahead"])
        delivery, engine = claimed_ahead(subscription), engine_of(subscription)
        DeliveryState.objects.update(**changes)
        engine.careful = True

        def claim(
            subscriber: Subscriber, acks: list[Delivery], starting: list[Delivery], share: Share
        ) -> None:
            subscriber.ack_and_claim(acks, starting, 0, 0, 0)

        Completer({engine: handler}).settle_and_start({engine: Plan([[delivery]])}, claim, lambda lot: None)
        assert delivery.status.lost
        assert not engine.state.in_flight
        assert not engine.state.partitions["k"].in_flight
    assert not DeliveryState.objects.get().handed


@pytest.mark.parametrize("verdict", [Verdict("ack"), Verdict("nack", 1, "no")], ids=lambda one: one.verb)
def test_an_outcome_that_is_lost_is_logged_after_a_lock_wait(
    verdict: Verdict, caplog: pytest.LogCaptureFixture
) -> None:
    publish("errands", 1, key="k")
    with registered("errands", Seen(), group="ahead"), Subscription("errands", "ahead") as subscription:
        (handler,) = handlers(["errands:ahead"])
        delivery, engine = claimed_ahead(subscription), engine_of(subscription)
        DeliveryState.objects.update(delivery_token=F("delivery_token") + 1)
        engine.careful = True
        completer = Completer({engine: handler})
        completer.unsettled.append(Outcome(delivery, verdict))
        completer.settle_and_start(
            {}, lambda subscriber, acks, *_: subscriber.acknowledger.ack(acks), lambda lot: None
        )
        assert not completer.unsettled
    assert f"cannot {verdict.verb} errands@{delivery.offset}" in caplog.text


def test_what_no_handler_was_given_has_used_no_attempt() -> None:
    """Its worker stops without releasing it, and another worker takes over."""
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, GROUP, name="gone") as gone:
        claimed_ahead(gone)
        let_die("gone")
        with Subscription(TOPIC, GROUP, name="heir") as heir:
            (delivery,) = poll_until(heir, 1)
            assert (delivery.attempt, delivery.status.alone) == (1, False)
            assert delivery.ack()


def test_a_locked_one_holds_up_no_takeover() -> None:
    """It is in quarantine until the other transaction ends. The messages beside it are delivered."""
    publish_many(TOPIC, [OutgoingMessage(n, key="k") for n in (1, 2)])
    with Subscription(TOPIC, GROUP, name="gone") as gone:
        claimed_ahead(gone)
        let_die("gone")
        with Subscription(TOPIC, GROUP, name="heir") as heir:
            with HeldTransaction(lambda: DeliveryState.objects.select_for_update().get()):
                (other,) = poll_until(heir, 1)
                assert other.payload == 2
                assert other.ack()
            (delivery,) = poll_until(heir, 1)
            assert (delivery.payload, delivery.attempt) == (1, 1)
            assert delivery.ack()


def test_a_dropped_partition_is_no_work() -> None:
    """A claim drops a partition whose lease is lost, and then marks it for the next claim."""
    publish(TOPIC, 1, key="k")
    with Subscription(TOPIC, GROUP) as subscription:
        poll_until(subscription, 1)
        state = engine_of(subscription).state
        partition = state.partitions["k"]
        partition.more = partition.waiting_more = True
        partition.fresh.clear()
        state.drop({"k"})
        state.mark_ready(partition)
        assert (dict(state.ready), dict(state.needs_log_read), dict(state.stale_waiting)) == (
            {},
            {},
            {},
        )
