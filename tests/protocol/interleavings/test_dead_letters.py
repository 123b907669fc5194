"""Dead-lettering meets deletion, or another answer to the same message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress

import pytest

from django_mqueue import Delivery, StaleDelivery, Subscription, publish, subscribe
from django_mqueue.models import DeliveryState, Message, PartitionLease
from tests.support.fixtures import with_settings
from tests.support.subscribers import (
    consume,
    engine_of,
    in_log,
    poll_until,
    settle,
    settle_and_collect,
    with_state,
)

from .sides import STILL, collect_page, ends, move, waits
from .steps import COMMIT, Stopped

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, DEAD = "orders", "orders_dlq"

DONE, COPIED = "UPDATE queue_delivery_state", "INSERT INTO queue_messages"
STATE_GOES, LOG_GOES = "DELETE s FROM", "DELETE m FROM"
"""Statements before which a side stops."""


still = with_settings(MQUEUE={**STILL, "DISCOVERY_INTERVAL": 600})


@pytest.fixture
def delivery(worker: Subscription) -> Delivery:
    publish(TOPIC, 1, key="k")
    (got,) = poll_until(worker, 1)
    settle(worker)
    return got


def letters() -> list[tuple[str | None, str | None]]:
    """Return (failed group, last error) of each dead letter."""
    rows = Message.objects.filter(topic=DEAD).order_by("failed_group")
    return list(rows.values_list("failed_group", "last_error"))


def assert_buried_once() -> None:
    """Assert that the new owner dead-lettered the message, and that the stale worker's answer changed nothing."""
    assert letters() == [("g", "died")]
    state = DeliveryState.objects.get()
    assert (state.acked, state.in_flight, state.failure_count) == (True, False, 1)


@pytest.fixture
def other(worker: Subscription) -> Iterator[Subscription]:
    """Another member of the worker's group."""
    with Subscription(TOPIC, "g", "other") as subscription:
        yield subscription


def steal(thief: Subscription) -> None:
    """Give the partition to ``thief``, which may then dead-letter messages in flight there."""
    holder = engine_of(thief).state.holder.incarnation
    PartitionLease.objects.filter(partition_key="k").update(holder=holder)


def bury(owner: Subscription, delivery: Delivery) -> bool:
    """Dead-letter a message that a former owner has left unanswered too often."""
    return bool(engine_of(owner).acknowledger.dead_letter(delivery.status.receipt, "died", 3))


def refused(verb: str) -> AbstractContextManager[object]:
    """Expect ``StaleDelivery``. A stale reject of a message that is already a dead letter may also succeed."""
    return suppress(StaleDelivery) if verb == "reject" else pytest.raises(StaleDelivery)


class TestDeadLetterAndDeletion:
    @pytest.mark.parametrize("step", [DONE, COPIED, COMMIT])
    def test_a_collection_begins_while_a_message_is_dead_lettered(
        self, worker: Subscription, delivery: Delivery, step: str
    ) -> None:
        """B rejects 1 and stops. A watermark and a collection leave 1 and do not wait. B commits.

        A collection deletes 1.
        """
        with Stopped(lambda: delivery.reject("no"), step) as rejection:
            ends(lambda: move(worker))
            ends(lambda: collect_page(TOPIC))
            assert in_log(TOPIC) == [delivery.offset]
            assert letters() == []
            assert rejection.go()
        settle_and_collect(worker)
        assert in_log(TOPIC) == with_state(TOPIC, "g") == []
        assert letters() == [("g", "no")]

    @pytest.mark.parametrize("step", [STATE_GOES, LOG_GOES, COMMIT])
    def test_a_message_is_dead_lettered_while_its_neighbours_are_deleted(
        self, worker: Subscription, delivery: Delivery, step: str
    ) -> None:
        """A (collection) deletes 1 and stops. B rejects 2 of the same partition without waiting.

        A does not delete 2.
        """
        delivery.ack()
        publish(TOPIC, 2, key="k")
        (second,) = poll_until(worker, 1)
        settle(worker)
        with Stopped(lambda: collect_page(TOPIC), step) as collection:
            assert ends(lambda: second.reject("no"))
            assert letters() == [("g", "no")]
            collection.go()
        assert in_log(TOPIC) == with_state(TOPIC, "g") == [second.offset]

    def test_a_stale_worker_dead_letters_what_is_deleted_at_that_moment(
        self, worker: Subscription, delivery: Delivery
    ) -> None:
        """1 was delivered again and is acked. A (collection) deletes it and stops before COMMIT.

        B (a stale worker) rejects 1, waits for A, and is refused. There is no dead letter and no state.
        """
        DeliveryState.objects.update(delivery_token=1, acked=True, in_flight=False)
        engine_of(worker).state.mark_dirty("k")
        move(worker)
        with Stopped(lambda: collect_page(TOPIC), COMMIT) as collection, pytest.raises(StaleDelivery):
            waits(collection, lambda: delivery.reject("stale"))
        assert in_log(TOPIC) == with_state(TOPIC, "g") == []
        assert letters() == []


class TestTwoDeadLettersOfOneMessage:
    @pytest.mark.parametrize("step", [COPIED, COMMIT])
    @pytest.mark.parametrize("verb", ["ack", "nack", "reject"])
    def test_the_stale_worker_comes_while_the_new_owner_buries(
        self, delivery: Delivery, other: Subscription, verb: str, step: str
    ) -> None:
        """A (the new owner) dead-letters 1 and stops. B (the stale worker) answers 1, waits for A, and changes nothing.

        The stale worker against a takeover: protocol/fencing/test_races.py.
        """
        steal(other)
        with Stopped(lambda: bury(other, delivery), step) as burial, refused(verb):
            waits(burial, getattr(delivery, verb))
        assert burial.result()
        assert_buried_once()

    @pytest.mark.parametrize("verb", ["ack", "nack", "reject"])
    def test_the_new_owner_buries_before_the_stale_worker_goes_on(
        self, delivery: Delivery, other: Subscription, verb: str
    ) -> None:
        """B (the stale worker) answers 1 and stops before its first statement. A (the new owner) dead-letters 1.

        B continues and changes nothing.
        """
        with Stopped(getattr(delivery, verb), DONE) as answer, refused(verb):
            steal(other)
            assert ends(lambda: bury(other, delivery))
            answer.go()
        assert_buried_once()

    @pytest.mark.parametrize("step", [COPIED, COMMIT])
    def test_the_owner_rejects_before_it_becomes_a_stale_one(
        self, delivery: Delivery, other: Subscription, step: str
    ) -> None:
        """B (the owner) rejects 1 and stops. A takes over the partition and waits for B. B commits.

        A dead-letters nothing.
        """
        with Stopped(lambda: delivery.reject("no"), step) as rejection:
            waits(rejection, lambda: steal(other))
            assert rejection.result()
        bury(other, delivery)
        assert letters() == [("g", "no")]
        assert DeliveryState.objects.get().failure_count == 1

    @pytest.mark.parametrize("step", [COPIED, COMMIT])
    def test_one_answer_twice_at_once(self, delivery: Delivery, step: str) -> None:
        """Two threads A and B reject 1. A stops. B waits for A, then changes nothing and returns True.

        There is one dead letter.
        """
        with Stopped(lambda: delivery.reject("one"), step) as rejection:
            assert waits(rejection, lambda: delivery.reject("two"))
            assert rejection.result()
        assert letters() == [("g", "one")]
        assert DeliveryState.objects.get().failure_count == 1

    @pytest.mark.parametrize("step", [DONE, COPIED, COMMIT])
    def test_two_groups_at_once(self, worker: Subscription, step: str) -> None:
        """A rejects 1 for group g and stops. B rejects 1 for group h without waiting. A continues.

        There are two dead letters. The same one after the other: features/dead_letters/test_dead_letters.py.
        """
        subscribe(TOPIC, "h")
        publish(TOPIC, 1, key="k")
        with Subscription(TOPIC, "h") as other:
            (mine,), (theirs,) = poll_until(worker, 1), poll_until(other, 1)
            with Stopped(lambda: mine.reject("g says no"), step) as rejection:
                assert ends(lambda: theirs.reject("h says no"))
                assert letters() == [("h", "h says no")]
                assert rejection.go()
            settle(worker)
            settle_and_collect(other)
        assert letters() == [("g", "g says no"), ("h", "h says no")]
        assert in_log(TOPIC) == []
        with Subscription(DEAD, "watchers") as watchers:
            assert {letter.failed_group for letter in consume(watchers, 2)} == {"g", "h"}
