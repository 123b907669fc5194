"""The messages that a watermark may pass, and the state that is kept until then."""

from __future__ import annotations

import pytest

from django_mqueue import OutgoingMessage, Subscription, publish, publish_many
from tests.support.subscribers import (
    consume,
    consume_rest,
    engine_of,
    poll_until,
    settle,
    watermark,
    with_state,
)
from tests.support.transactions import HeldTransaction, wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("kept")]

TOPIC, GROUP = "orders", "billing"


def test_a_watermark_stays_below_an_open_transaction() -> None:
    """A later message of the same key is acknowledged. The earlier one may still commit."""
    with Subscription(TOPIC, GROUP) as subscription:
        publish(TOPIC, "before", key="k")
        consume(subscription, 1)
        with HeldTransaction(lambda: publish(TOPIC, "late", key="k").offset) as late:
            publish(TOPIC, "after", key="k")
            consume(subscription, 1)
            settle(subscription)
            assert watermark(TOPIC, GROUP, "k") < late.result()


def test_what_is_done_behind_an_open_message_stays_done() -> None:
    """One of five messages is not acked. The state of the others is kept, and the next owner gets only this one."""
    publish_many(TOPIC, [OutgoingMessage(n, key="k") for n in range(5)])
    with Subscription(TOPIC, GROUP) as subscription:
        _, *others = poll_until(subscription, 5)
        subscription.ack(others)
        settle(subscription)
        assert len(with_state(TOPIC, GROUP)) == 5
    with Subscription(TOPIC, GROUP) as heir:
        assert [delivery.payload for delivery in consume_rest(heir)] == [0]


def test_who_leaves_moves_the_watermarks_that_waited_for_an_open_transaction() -> None:
    """The transaction has ended just before, and the worker has not checked since."""
    with Subscription(TOPIC, GROUP) as subscription:
        with HeldTransaction(lambda: publish(TOPIC, "open", key="k")):
            done = publish(TOPIC, "done", key="k").offset
            consume(subscription, 1)
            memory = engine_of(subscription).state
            wait_until(
                lambda: subscription.poll() == [] and memory.unsettled and not memory.dirty,
                "the watermark waits",
            )
        assert watermark(TOPIC, GROUP, "k") < done
    assert watermark(TOPIC, GROUP, "k") == done
