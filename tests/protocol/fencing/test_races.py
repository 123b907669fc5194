"""Settle and claim deliveries while the theft of their lease is uncommitted. Open transactions force the order."""

from __future__ import annotations

import pytest
from django.test import override_settings

from django_mqueue import Delivery, StaleDelivery, Subscription, publish
from django_mqueue.models import DeliveryState, Message, PartitionLease
from tests.support.fixtures import with_settings
from tests.support.processes import wait_until
from tests.support.subscribers import engine_of
from tests.support.threads import Background, raw_connection

pytestmark = pytest.mark.django_db(transaction=True)


slow_leases = with_settings(MQUEUE={"DISCOVERY_INTERVAL": 0.02, "LEASE_DURATION": 60})
"""Use long leases, so that only the test steals them."""


@pytest.mark.parametrize("verb", ["ack", "nack", "reject", "postpone", "extend"])
def test_an_answer_that_meets_an_uncommitted_theft_waits_for_it_and_is_refused(verb: str) -> None:
    publish("t", 1, key="k")
    with Subscription("t", "g", name="old") as old, raw_connection() as thief:
        (held,) = old.poll()
        thief.execute("UPDATE queue_partition_leases SET holder = 'thief', leased_by = 'thief'")
        arguments = (30,) if verb == "extend" else ()
        answer = Background(lambda: getattr(held, verb)(*arguments)).start()
        assert answer.is_blocked
        thief.commit()
        with pytest.raises(StaleDelivery):
            answer.result()
    state = DeliveryState.objects.get()
    assert (state.acked, state.in_flight, state.failure_count) == (False, True, 0)
    assert not Message.objects.filter(topic="t_dlq").exists()


def test_an_answer_that_meets_a_theft_that_is_undone_counts() -> None:
    publish("t", 1, key="k")
    with Subscription("t", "g", name="old") as old, raw_connection() as thief:
        (held,) = old.poll()
        thief.execute("UPDATE queue_partition_leases SET holder = 'thief'")
        answer = Background(held.ack).start()
        assert answer.is_blocked
        thief.rollback()
        assert answer.result()


def test_a_claim_that_meets_an_uncommitted_theft_does_not_wait_and_gets_nothing() -> None:
    """The claim gets nothing before and after the theft commits. The messages that it read ahead are the thief's."""
    for n in range(5):
        publish("t", n, key="k")
    with Subscription("t", "g", name="old") as old, raw_connection() as thief:
        assert len(old.poll(max_messages=2)) == 2
        thief.execute("UPDATE queue_partition_leases SET holder = 'thief', leased_by = 'thief'")
        assert Background(old.poll).start().result() == []
        thief.commit()
        engine_of(old).state.mark_ready(engine_of(old).state.partitions["k"])
        assert old.poll() == []
    assert DeliveryState.objects.count() == 2


def test_a_theft_that_meets_an_uncommitted_claim_waits_for_it_and_finds_what_it_claimed() -> None:
    """The message is new to one worker only. The thief gets it as unacknowledged, with attempt 2."""
    offset = publish("t", 1, key="k").offset
    with Subscription("t", "g", name="old") as old, raw_connection() as blocker:
        blocker.execute(
            "INSERT INTO queue_delivery_state (consumer_group, topic, partition_key, message_offset, acked, in_flight,"
            " invisible_until, retry_count, failure_count, delivery_token, handed, alone, delivered_to, delivered_at)"
            " VALUES ('g', 't', 'k', %s, 0, 1, 0, 0, 0, 1, 0, 0, '', 0)",
            [offset],
        )
        claim = Background(old.poll).start()
        assert claim.is_blocked, "it holds its lease row, and waits to write the delivery"
        with (
            override_settings(MQUEUE={"DISCOVERY_INTERVAL": 0.02, "LEASE_DURATION": 0.1}),
            Subscription("t", "g", name="thief") as thief,
        ):
            looks = []

            def look() -> list[Delivery]:
                looks.append(thief.poll())
                return looks[-1]

            theft = Background(lambda: wait_until(look, "the thief gets it")).start()
            wait_until(lambda: len(looks) > 25, "it looks again and again after the lease has run out")
            assert not theft.is_done
            assert PartitionLease.objects.get().leased_by == "old"
            blocker.rollback()
            (claimed,) = claim.result()
            (stolen,) = theft.result()
            assert (claimed.offset, claimed.attempt) == (stolen.offset, 1)
            assert stolen.attempt == 2
            with pytest.raises(StaleDelivery):
                claimed.ack()
            assert stolen.ack()
