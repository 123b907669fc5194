"""A subscriber's connection dies at a critical statement. It loses no lease, no message and no order of a key."""

from __future__ import annotations

from collections import defaultdict

import pytest
from django.test import override_settings

from django_mqueue import Delivery, OutgoingMessage, Subscription, publish, publish_many, subscribe
from django_mqueue.models import DeliveryState, Message, PartitionLease
from tests.support.subscribers import consume, consume_rest, done, poll_until
from tests.support.transactions import wait_until

from .breaking import kill_own_connection, killed_at, lost_answer_to_commit

pytestmark = pytest.mark.django_db(transaction=True)

TOPIC, GROUP = "orders", "billing"

CLAIM_OF_A_SUSPECT = "UPDATE queue_delivery_state s FORCE INDEX (PRIMARY) SET s.errors"

READS = {
    "where the group stands": ("SELECT partition_key, offset_acked, scan_offset", ""),
    "what is unanswered": (
        "SELECT partition_key, message_offset, delivery_token, handed, alone",
        "AND in_flight = 1",
    ),
    "what waits": ("SELECT partition_key, message_offset, invisible_until", "AND in_flight = 0"),
    "what is new": ("SELECT m.partition_key, m.`offset` FROM queue_messages", ""),
}


@pytest.mark.parametrize("read", READS)
def test_the_connection_dies_while_partitions_are_loaded(read: str) -> None:
    """The connection dies at one of the four reads after the leases were taken. The subscriber has read only a part.

    It still delivers all messages long before a lease expires: new ones, a retry, and a dead owner's message.
    """
    publish_many(TOPIC, [OutgoingMessage(n, key=f"k{n % 3}") for n in range(9)])
    gone = Subscription(TOPIC, GROUP, name="gone", batch_size=2).open()
    left, back, *others = poll_until(gone, 6)
    back.postpone(0)
    gone.ack(others)
    PartitionLease.objects.update(lease_renewed_at=0)
    beginning, holding = READS[read]
    with Subscription(TOPIC, GROUP, name="heir") as heir:
        with killed_at(beginning, holding=holding):
            poll_until(heir, lambda got: (heir.ack(got), done() == 9)[1])
        attempts = {state.message_offset: state.retry_count for state in DeliveryState.objects.all()}
    assert (attempts[left.offset], attempts[back.offset]) == (1, 0)


def deaths(subscription: Subscription, until_letters: int) -> list[int]:
    """Poll and answer nothing until there are ``until_letters`` dead letters. Return the attempts of the deliveries."""
    attempts: list[int] = []

    def given_up() -> bool:
        attempts.extend(delivery.attempt for delivery in subscription.poll())
        return Message.objects.filter(topic=f"{TOPIC}_dlq").count() >= until_letters

    wait_until(given_up, "it is given up")
    return attempts


@pytest.mark.parametrize(
    ("beginning", "where"),
    [
        ("INSERT INTO queue_messages", "in the burial"),
        (CLAIM_OF_A_SUSPECT, "in a claim"),
    ],
)
def test_the_connection_dies_while_a_suspect_is_dealt_with(beginning: str, where: str) -> None:
    """The connection dies while a quarantined message is claimed alone, or is dead-lettered.

    The message has exactly its attempts: one together with others, then ``max_attempts`` alone.
    """
    subscribe(TOPIC, GROUP)
    publish(TOPIC, "poison", key="k")
    with (
        Subscription(TOPIC, GROUP, max_attempts=2, visibility_timeout=0.1) as subscription,
        killed_at(beginning),
    ):
        assert deaths(subscription, 1) == [1, 2, 3], where
    state = DeliveryState.objects.get()
    assert (state.acked, state.in_flight, state.failure_count) == (True, False, 2)


def test_the_connection_dies_while_a_suspect_that_has_failed_is_claimed_again() -> None:
    """A KILL rolls back the second claim, which counts the first death alone. That death still counts."""
    publish(TOPIC, "poison", key="k")
    with Subscription(TOPIC, GROUP, max_attempts=2, visibility_timeout=0.1) as subscription:
        assert [delivery.attempt for delivery in poll_until(subscription, 2)] == [1, 2]
        with killed_at(CLAIM_OF_A_SUSPECT):
            assert deaths(subscription, 1) == [3]


@pytest.mark.parametrize("keys", [3, 600])
def test_a_claim_whose_commit_was_not_heard_of_keeps_the_order_of_keys(keys: int) -> None:
    """Strict order. The claim of every key's first message is committed, but the answer is lost.

    The claim is undone, since no handler had the messages. No key's second message comes before its first. This also
    holds for 600 partitions, more than one statement reads again.
    """
    publish_many(TOPIC, [OutgoingMessage(n, key=f"k{k}") for n in range(3) for k in range(keys)])
    got: dict[str | None, list[Delivery]] = defaultdict(list)
    with Subscription(TOPIC, GROUP, strict=True) as subscription:

        def all_came() -> bool:
            deliveries = subscription.poll(1000)
            for delivery in deliveries:
                got[delivery.key].append(delivery)
            subscription.ack(deliveries)
            return sum(map(len, got.values())) >= 3 * keys

        with lost_answer_to_commit("INSERT INTO queue_delivery_state"):
            wait_until(all_came, "everything", every=0.005)
    assert len(got) == keys
    for deliveries in got.values():
        assert [(d.payload, d.attempt) for d in deliveries] == [(0, 1), (1, 1), (2, 1)]


@pytest.mark.parametrize("strict", [True, False])
def test_an_acquisition_whose_commit_was_not_heard_of_delivers_nothing_twice(strict: bool) -> None:
    """The lease is committed, but the subscriber does not know it.

    The renewal finds the lease. The message is delivered once.
    """
    subscribe(TOPIC, GROUP)
    with Subscription(TOPIC, GROUP, strict=strict) as subscription:
        subscription.poll()
        with lost_answer_to_commit("INSERT IGNORE INTO queue_partition_leases"):
            publish(TOPIC, "one", key="k")
            (delivery,) = poll_until(subscription, 1)
        publish(TOPIC, "two", key="k")
        others = [other.payload for other in consume_rest(subscription)]
        assert others == ([] if strict else ["two"])
        assert delivery.attempt == 1
        assert delivery.ack()


@override_settings(MQUEUE={"LEASE_DURATION": 60})
def test_leaving_with_a_connection_that_has_died_releases_all_the_same() -> None:
    """The connection dies between two statements, then ``close`` runs. The next subscriber gets the partition at once.

    It does not wait until the lease expires.
    """
    publish(TOPIC, 1, key="k")
    subscription = Subscription(TOPIC, GROUP, name="a").open()
    consume(subscription, 1)
    kill_own_connection()
    subscription.close()
    assert not PartitionLease.objects.exclude(holder="").exists()
    publish(TOPIC, 2, key="k")
    with Subscription(TOPIC, GROUP, name="b") as other:
        consume(other, 1)
