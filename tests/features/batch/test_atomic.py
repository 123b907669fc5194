"""``batch=True, atomic=True`` commits the handler's writes, its publishes and all acks together, or none of them."""

from __future__ import annotations

import pytest
from asgiref.sync import sync_to_async
from django.core.management import CommandError
from django.db import connection, transaction

from django_mqueue import BatchFailure, Delivery, Postpone, Reject, publish, publish_many, subscribe
from django_mqueue.models import DeliveryState, Message
from tests.support.running import registered, run
from tests.support.shop.models import Sale
from tests.support.steps import equal_counts, sold
from tests.support.subscribers import let_leases_expire, take_leases_away
from tests.support.threads import raw_connection

from .batches import AT_ONCE, LATER, Batches, errors, letters, publish_all, states

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("fast")]


def sell(messages: list[Delivery]) -> None:
    Sale.objects.bulk_create([Sale(number=message.payload) for message in messages])
    publish_many("sold", [message.payload for message in messages])


def receipts() -> int:
    return Message.objects.filter(topic="sold").count()


def test_effects_publishes_and_acks_are_one_commit() -> None:
    """Another connection sees equal numbers of sales, acks and messages at any time while the handlers run."""
    publish_many("orders", range(150))
    with equal_counts() as wait_for_a_look:

        def sell_watched(messages: list[Delivery]) -> None:
            """Keep the sales uncommitted until the other connection has read at least once."""
            sell(messages)
            wait_for_a_look()

        with registered("orders", sell_watched, batch=True, atomic=True, batch_size=3):
            run()
    assert sold() == list(range(150))
    assert states() == [(True, 0, 0)] * 150


def test_a_batch_that_raises_leaves_nothing() -> None:
    publish_all("orders", range(3))

    def handle(messages: list[Delivery]) -> None:
        sell(messages)
        if messages[0].attempt == 1:
            raise ValueError("not yet")

    with registered("orders", seen := Batches(handle), batch=True, atomic=True, retry=AT_ONCE):
        run()
    assert seen.payloads == [[0, 1, 2]] * 2
    assert (sold(), receipts(), states()) == ([0, 1, 2], 3, [(True, 1, 1)] * 3)


def test_of_a_batch_that_fails_in_part_all_is_rolled_back() -> None:
    """The named message fails. The worker delivers the others again and counts no attempt for them."""
    publish_all("orders", range(4))

    def handle(messages: list[Delivery]) -> None:
        sell(messages)
        if bad := {m: ValueError("bad") for m in messages if m.payload == 2 and m.attempt < 2}:
            raise BatchFailure(bad)

    with registered("orders", seen := Batches(handle), batch=True, atomic=True, retry=[600]):
        output = run()
        assert "ack 3, nack 1, postpone 3" in output
        DeliveryState.objects.filter(acked=False).update(invisible_until=0)
        run()
    assert seen.payloads == [[0, 1, 2, 3], [0, 1, 3], [2]]
    assert [seen.attempts(n) for n in range(4)] == [[1, 1], [1, 1], [1, 2], [1, 1]]
    assert (sold(), receipts()) == ([0, 1, 2, 3], 4)
    assert states() == [(True, 0, 0), (True, 0, 0), (True, 1, 1), (True, 0, 0)]
    assert errors() == ["ValueError: bad"]


def test_named_ones_may_be_rejected_or_postponed() -> None:
    publish_all("orders", range(3))

    def handle(messages: list[Delivery]) -> None:
        sell(messages)
        if len(messages) == 3:
            raise BatchFailure({messages[0]: Reject("never"), messages[2]: Postpone(600)})

    with registered("orders", seen := Batches(handle), batch=True, atomic=True):
        run()
    assert (seen.payloads, sold(), receipts()) == ([[0, 1, 2], [1]], [1], 1)
    assert letters("orders") == {b"0": "never"}
    assert states() == [(True, 1, 0), (True, 0, 0), (False, 0, 0)]


def test_one_that_fails_always_is_given_up_and_all_others_are_done_once() -> None:
    """Each failure also rolls back the other messages of its batch."""
    publish_all("orders", range(20))

    def handle(messages: list[Delivery]) -> None:
        sell(messages)
        if bad := {m: ValueError("bad") for m in messages if m.payload % 7 == 0}:
            raise BatchFailure(bad)

    with registered(
        "orders",
        seen := Batches(handle),
        batch=True,
        atomic=True,
        batch_size=4,
        retry=AT_ONCE,
        max_attempts=3,
    ):
        run()
    good = [n for n in range(20) if n % 7]
    assert (sold(), receipts()) == (good, len(good))
    assert sorted(letters("orders")) == [b"0", b"14", b"7"]
    for n in range(20):
        assert seen.attempts(n) == [1, 2, 3] if n % 7 == 0 else set(seen.attempts(n)) == {1}


def test_an_async_handler() -> None:
    publish_all("orders", range(3))

    async def handle(messages: list[Delivery]) -> None:
        await sync_to_async(sell)(messages)
        if messages[0].attempt == 1:
            raise ValueError("not yet")

    with registered("orders", handle, batch=True, atomic=True, retry=AT_ONCE):
        run()
    assert (sold(), receipts(), states()) == ([0, 1, 2], 3, [(True, 1, 1)] * 3)


def take_one(offset: int) -> None:
    """Change the delivery token, as if another worker had claimed the message."""
    with raw_connection() as other:
        other.execute(
            "UPDATE queue_delivery_state SET delivery_token = delivery_token + 1 WHERE message_offset = %s",
            [offset],
        )
        other.commit()


def test_a_batch_whose_lease_was_lost_rolls_everything_back() -> None:
    """Only the sales of the later deliveries are committed."""
    subscribe("orders", "g")
    publish_all("orders", range(3))

    def handle(messages: list[Delivery]) -> None:
        sell(messages)
        if len(seen.given) == 1:
            take_leases_away()

    with registered("orders", seen := Batches(handle), batch=True, atomic=True):
        with pytest.raises(CommandError, match="other workers have leased their partitions"):
            run(drain_timeout=0.1)
        assert (seen.payloads, sold(), receipts()) == ([[0, 1, 2]], [], 0)
        let_leases_expire()
        run()
    assert seen.payloads == [[0, 1, 2], [0], [1], [2]], "suspects come alone"
    assert [seen.attempts(n) for n in range(3)] == [[1, 2]] * 3
    assert (sold(), receipts(), states()) == ([0, 1, 2], 3, [(True, 0, 1)] * 3)


def test_if_one_of_them_is_anothers_all_is_rolled_back_and_the_rest_come_again() -> None:
    """The worker counts no attempt for the other messages."""
    publish_all("orders", range(3))

    def handle(messages: list[Delivery]) -> None:
        sell(messages)
        if len(seen.given) == 1:
            take_one(messages[1].offset)

    with registered("orders", seen := Batches(handle), batch=True, atomic=True):
        run(max_messages=5)
    assert seen.payloads == [[0, 1, 2], [0, 2]]
    assert [seen.attempts(n) for n in (0, 2)] == [[1, 1], [1, 1]]
    assert (sold(), receipts()) == ([0, 2], 2)
    first, other, last = DeliveryState.objects.order_by("message_offset")
    assert (first.acked, other.acked, other.in_flight, last.acked) == (True, False, True, True)


def test_a_batch_that_ends_its_transaction_is_found_out() -> None:
    publish_all("orders", range(2))

    def handle(messages: list[Delivery]) -> None:
        with connection.cursor() as cursor:
            cursor.execute("COMMIT")
        sell(messages)

    with registered("orders", handle, batch=True, atomic=True, retry=None):
        run()
    assert (sold(), receipts(), states()) == ([], 0, [(True, 1, 0)] * 2)
    assert errors()[0].startswith("django_mqueue.exceptions.BrokenTransaction")


def test_a_hook_that_fails_after_the_commit_changes_nothing() -> None:
    publish_all("orders", range(2))

    def handle(messages: list[Delivery]) -> None:
        sell(messages)
        transaction.on_commit(lambda: 1 // 0)

    with registered("orders", handle, batch=True, atomic=True):
        assert "stopped: ack 2" in run()
    assert (sold(), states()) == ([0, 1], [(True, 0, 0)] * 2)


def test_what_is_not_wanted_is_acked_though_the_batch_fails() -> None:
    publish_all("orders", range(3))

    def handle(messages: list[Delivery]) -> None:
        sell(messages)
        raise ValueError("no")

    wants = lambda message: message.payload != 1  # noqa: E731
    with registered("orders", handle, batch=True, atomic=True, filter=wants, retry=LATER):
        run()
    assert (sold(), states()) == ([], [(False, 1, 0), (True, 0, 0), (False, 1, 0)])
    publish("orders", 3)
