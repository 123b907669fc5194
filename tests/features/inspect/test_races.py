"""``remove`` and ``send_to_front`` alongside claims, acks, other groups, deletion and registration, in both orders."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import override_settings

from django_mqueue import (
    Delivery,
    NotRegistered,
    StaleDelivery,
    Subscription,
    publish,
    purge,
    reset,
    subscribe,
    unsubscribe,
)
from django_mqueue.inspect import erase, hold, messages, remove, send_to_front
from django_mqueue.models import DeliveryState, Message
from tests.protocol.interleavings.sides import collect_page, ends, waits
from tests.protocol.interleavings.steps import COMMIT, Stopped
from tests.protocol.interleavings.workers import STILL, acquire, claim, hear, worker
from tests.support.fixtures import with_settings
from tests.support.subscribers import in_log, poll_until, settle, with_state
from tests.support.transactions import HeldTransaction

from .scene import scheduled

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, GROUP = "orders", "billing"
LOCK = "SET updated_at = GREATEST"
CLAIMED = [("remove", True), ("remove", False), ("to front", False), ("hold", True), ("hold", False)]
MOVES: dict[str, Callable[..., int]] = {"remove": remove, "to front": send_to_front, "hold": hold}


still = with_settings(MQUEUE=STILL)


def status() -> str | None:
    (message,) = messages(TOPIC, group=GROUP)
    return message.status


class TestClaims:
    @pytest.mark.parametrize(
        ("name", "fresh"),
        [("remove", True), ("remove", False), ("to front", False), ("hold", True), ("hold", False)],
    )
    def test_a_claim_is_under_way(self, name: str, fresh: bool) -> None:
        """A (claim) has marked 1 and stops at its COMMIT. B waits for A, and leaves 1 to the handler that has it."""
        with worker("a") as a:
            has_one(a, fresh)
            with Stopped(lambda: claim(a), COMMIT) as claiming:
                assert waits(claiming, lambda: MOVES[name](TOPIC, group=GROUP)) == 0
            (delivery,) = claiming.result()
            assert status() == "in_flight"
            assert delivery.ack()
        assert [e.error for e in messages(TOPIC, group=GROUP).messages[0].errors] == ([] if fresh else [""])

    @pytest.mark.parametrize("fresh", [True, False])
    def test_a_removal_is_under_way(self, fresh: bool) -> None:
        """A (remove) has changed 1 and stops at its COMMIT. B (claim) gets nothing, without a wait. A commits."""
        with worker("a") as a:
            has_one(a, fresh)
            with Stopped(lambda: remove(TOPIC, group=GROUP), COMMIT) as removal:
                assert ends(lambda: claims(a)) == []
                assert removal.go() == 1
            assert claims(a) == []
        assert status() == "done"

    @pytest.mark.parametrize("fresh", [True, False])
    def test_it_is_being_sent_to_the_front(self, fresh: bool) -> None:
        """A (send to front) has changed 1 and stops at its COMMIT. B (claim) gets nothing, without a wait.

        A commits. 1 is delivered once.
        """
        with worker("a") as a:
            has_one(a, fresh)
            with Stopped(lambda: send_to_front(TOPIC, group=GROUP), COMMIT) as sending:
                assert ends(lambda: claims(a)) == []
                assert sending.go() == 1
            deliveries = poll_until(a, 1)
            assert [d.attempt for d in deliveries] == [1 if fresh else 2]
            assert claims(a) == []
            assert deliveries[0].ack()

    @pytest.mark.parametrize(
        ("name", "fresh"),
        [("remove", True), ("remove", False), ("to front", False), ("hold", True), ("hold", False)],
    )
    def test_it_is_delivered_between_the_search_and_the_change(self, name: str, fresh: bool) -> None:
        """A has found 1 and stops before its first lock. B claims 1. A changes nothing."""
        with worker("a") as a:
            has_one(a, fresh)
            with Stopped(lambda: MOVES[name](TOPIC, group=GROUP), LOCK) as moving:
                (delivery,) = poll_until(a, 1)
                assert moving.go() == 0
            row = DeliveryState.objects.get()
            assert (row.acked, row.in_flight, row.delivery_token) == (
                False,
                True,
                delivery.status.receipt.token,
            )
            assert delivery.ack()

    def test_the_claims_of_another_group_go_on(self) -> None:
        """A (remove) stops at its COMMIT. B (another group) claims and acks the same message, without a wait."""
        publish(TOPIC, 1, key="k")
        subscribe(TOPIC, GROUP)
        other = Subscription(TOPIC, "other")
        with other, Stopped(lambda: remove(TOPIC, group=GROUP), COMMIT) as removal:
            (delivery,) = ends(lambda: poll_until(other, 1))
            assert ends(delivery.ack)
            assert removal.go() == 1


class TestHolding:
    def test_it_is_held_between_the_choice_and_the_claim(self) -> None:
        """A (claim) has chosen 1 and stops before its first lock. B (hold) changes 1. A gets nothing."""
        with worker("a") as a:
            has_one(a, False)
            with Stopped(lambda: claim(a), "queue_partition_leases") as claiming:
                assert ends(lambda: hold(TOPIC, group=GROUP)) == 1
                assert claiming.go() == []
        assert status() == "waiting"


class TestErasing:
    @pytest.mark.parametrize("fresh", [True, False])
    def test_a_claim_is_under_way(self, fresh: bool) -> None:
        """A (claim) has marked 1 and stops at its COMMIT. B (erase) waits for A, and deletes 1 with its state."""
        with worker("a") as a:
            has_one(a, fresh)
            with Stopped(lambda: claim(a), COMMIT) as claiming:
                (erased,) = waits(claiming, lambda: erase(key="k"))
            assert (erased.deleted, erased.in_flight, erased.left) == (1, 1, 0)
            (delivery,) = claiming.result()
            with pytest.raises(StaleDelivery):
                delivery.ack()
        assert not DeliveryState.objects.exists()

    @pytest.mark.parametrize("fresh", [True, False])
    def test_it_is_being_erased(self, fresh: bool) -> None:
        """A (erase) has deleted 1 and stops at its COMMIT. B (claim) gets nothing, without a wait. A commits."""
        with worker("a") as a:
            has_one(a, fresh)
            with Stopped(lambda: erase(key="k"), COMMIT) as erasing:
                assert ends(lambda: claims(a)) == []
                assert erasing.go()[0].deleted == 1
            assert claims(a) == []
        assert not DeliveryState.objects.exists()

    def test_it_is_delivered_between_the_search_and_the_change(self) -> None:
        """A (erase) has found 1 and stops before its first lock. B claims 1. A deletes it, and B's ack is stale."""
        with worker("a") as a:
            has_one(a, True)
            with Stopped(lambda: erase(key="k"), "FOR UPDATE") as erasing:
                (delivery,) = poll_until(a, 1)
                assert erasing.go()[0].in_flight == 1
            with pytest.raises(StaleDelivery):
                delivery.ack()
        assert not DeliveryState.objects.exists()


def has_one(subscription: Subscription, fresh: bool) -> None:
    """Let the subscriber know a message that is undelivered, or was put back and is due."""
    publish(TOPIC, 1, key="k")
    acquire(subscription)
    if not fresh:
        claim(subscription)[0].nack()


def claims(subscription: Subscription) -> list[Delivery]:
    """Read new messages, claim them, and return the deliveries."""
    hear(subscription)
    return claim(subscription)


class TestAnswers:
    def test_a_handlers_transaction_is_not_waited_for(self) -> None:
        """A (atomic handler) has acked 1 in an open transaction. B removes 2 of the same key, and leaves 1."""
        with worker("a", batch_size=1) as a:
            publish(TOPIC, 1, key="k")
            publish(TOPIC, 2, key="k")
            (delivery,) = poll_until(a, 1)
            with HeldTransaction(delivery.ack) as handler:
                assert ends(lambda: remove(TOPIC, group=GROUP)) == 1
                handler.commit()
        assert [m.status for m in messages(TOPIC, group=GROUP)] == ["done", "done"]
        assert [len(m.errors) for m in messages(TOPIC, group=GROUP)] == [0, 1]

    def test_a_stale_answer_that_holds_the_row_is_not_waited_for(self) -> None:
        """A (a stale worker's transaction) has locked the state of 1, which waits for a retry.

        B leaves 1, without a wait.
        """
        with worker("a") as a:
            publish(TOPIC, 1, key="k")
            poll_until(a, 1)[0].nack(delay=60)

            def hold() -> None:
                list(DeliveryState.objects.select_for_update().filter(consumer_group=GROUP))

            with HeldTransaction(hold) as stale:
                assert ends(lambda: remove(TOPIC, group=GROUP)) == 0
                stale.rollback()
            assert remove(TOPIC, group=GROUP) == 1


class TestOthersThatChangeIt:
    @pytest.mark.parametrize("name", MOVES)
    def test_two_at_once(self, name: str) -> None:
        """A has changed 1 and stops at its COMMIT.

        B has also found 1, and waits for A. After a removal, B changes nothing.
        """
        publish(TOPIC, 1, key="k")
        subscribe(TOPIC, GROUP)
        with Stopped(lambda: MOVES[name](TOPIC, group=GROUP, status="pending"), COMMIT) as first:
            second = waits(first, lambda: MOVES[name](TOPIC, group=GROUP, status="pending"))
        assert (first.result(), second) == (1, 0 if name == "remove" else 1)

    @pytest.mark.parametrize(("name", "begin"), [("remove", "gone"), ("to front", "reset")])
    def test_the_group_begins_anew(self, name: str, begin: str) -> None:
        """A has found 1 and stops before its first lock. B resets the group, or unsubscribes it. A changes nothing."""
        publish(TOPIC, 1, key="k")
        subscribe(TOPIC, GROUP)
        with Stopped(lambda: MOVES[name](TOPIC, group=GROUP), LOCK) as moving:
            if begin == "reset":
                ends(lambda: reset(TOPIC, GROUP, "latest"))
            else:
                ends(lambda: unsubscribe(TOPIC, GROUP))
            with pytest.raises(NotRegistered):
                moving.go()
        assert with_state(TOPIC, GROUP) == []

    def test_a_reset_waits_for_a_removal(self) -> None:
        """A (remove) stops at its COMMIT. B (reset) waits for A, and then makes the message pending again."""
        publish(TOPIC, 1, key="k")
        subscribe(TOPIC, GROUP)
        with Stopped(lambda: remove(TOPIC, group=GROUP), COMMIT) as removal:
            waits(removal, lambda: reset(TOPIC, GROUP, "earliest"))
        assert removal.result() == 1
        assert status() == "pending"


class TestDeletion:
    def test_a_dead_letter_is_purged_that_a_consumer_is_to_be_spared(self) -> None:
        """A (purge) has deleted the letter and stops at its COMMIT.

        B (remove for the letter's consumer) leaves no state.
        """
        subscribe(f"{TOPIC}_dlq", "clerk")
        publish(TOPIC, 1, key="k")
        with worker("a") as a:
            poll_until(a, 1)[0].reject("no")
        with Stopped(lambda: purge(TOPIC), COMMIT) as purging:
            assert ends(lambda: remove(f"{TOPIC}_dlq", group="clerk")) == 0
            assert purging.go() == 1
        assert with_state(f"{TOPIC}_dlq", "clerk") == in_log(f"{TOPIC}_dlq") == []

    def test_a_purge_leaves_what_is_being_removed(self) -> None:
        """A (remove for the consumer) stops at its COMMIT. B (purge) leaves the letter, without a wait."""
        subscribe(f"{TOPIC}_dlq", "clerk")
        publish(TOPIC, 1, key="k")
        with worker("a") as a:
            poll_until(a, 1)[0].reject("no")
        with Stopped(lambda: remove(f"{TOPIC}_dlq", group="clerk"), COMMIT) as removal:
            assert ends(lambda: purge(TOPIC)) == 0
            assert removal.go() == 1
        assert purge(TOPIC) == 1
        assert with_state(f"{TOPIC}_dlq", "clerk") == in_log(f"{TOPIC}_dlq") == []

    @pytest.mark.parametrize("name", MOVES)
    def test_a_collection_does_not_wait(self, name: str) -> None:
        """A has changed 2 and stops at its COMMIT. B (collection) deletes 1 of the same key, without a wait."""
        with override_settings(MQUEUE={**STILL, "RETENTION": 0}), worker("a") as a:
            first = publish(TOPIC, 1, key="k").offset
            poll_until(a, 1)[0].ack()
            settle(a)
            second = publish(TOPIC, 2, key="k").offset
            assert in_log(TOPIC) == [first, second]
            with Stopped(lambda: MOVES[name](TOPIC, group=GROUP, status="pending"), COMMIT) as moving:
                ends(lambda: collect_page(TOPIC))
                assert in_log(TOPIC) == [second]
                assert moving.go() == 1

    @pytest.mark.parametrize("asked", [{"group": GROUP}, {"group": None, "status": "scheduled"}])
    def test_what_somebody_holds_is_left(self, asked: dict[str, Any]) -> None:
        """A (an application) has published a duplicate id in an open transaction. B does not wait for it."""
        subscribe(TOPIC, GROUP)
        publish(TOPIC, 1, key="k", id="mine")
        (later,) = scheduled("tomorrow")

        def hold() -> None:
            publish(TOPIC, 1, key="k", id="mine")
            list(Message.objects.select_for_update().filter(offset=later))

        with HeldTransaction(hold) as application:
            assert ends(lambda: remove(TOPIC, **asked)) == 0
            application.commit()
        assert remove(TOPIC, **asked) == 1
