"""Strict order follows commits: a message committed before another one is sent is delivered before it.

Offsets alone do not show this order: a message may commit after later offsets have been read.
"""

from __future__ import annotations

import math

import pytest

from django_mqueue import OutgoingMessage, Subscription, publish, publish_many
from django_mqueue.protocol.partition_state import READ_AHEAD
from tests.support.fixtures import with_settings
from tests.support.subscribers import QUICK, engine_of, poll_until
from tests.support.transactions import HeldTransaction

pytestmark = pytest.mark.django_db(transaction=True)


long_leases = with_settings(MQUEUE={**QUICK, "LEASE_DURATION": 600, "LEASE_RENEWAL_INTERVAL": 200})


def test_what_committed_late_comes_before_what_was_sent_after_its_commit() -> None:
    """A is inserted. A later offset of another key is read. A commits. B is sent. A comes first, then B."""
    with Subscription("orders", "g", strict=True) as subscription:
        publish("orders", "zero", key="k")
        poll_until(subscription, 1)[0].ack()
        with HeldTransaction(lambda: publish("orders", "A", key="k")) as late:
            publish("orders", "other", key="z")
            poll_until(subscription, 1)[0].ack()
            engine_of(subscription).tailer.tails[
                "orders"
            ].sweep_at = math.inf  # The next check for late commits is far away.
            late.commit()
        publish("orders", "B", key="k")
        got = []
        for _ in range(2):
            (delivery,) = poll_until(subscription, 1)
            got.append(delivery.payload)
            delivery.ack()
    assert got == ["A", "B"]


def test_the_same_where_the_log_is_read_on_before_the_tail_is() -> None:
    """As above, with a backlog: both messages are found by reading the partition, not by polling the tail."""
    with HeldTransaction(lambda: publish("orders", "A", key="k")) as late:
        publish_many("orders", [OutgoingMessage(n, key="k") for n in range(READ_AHEAD + 5)])
        with Subscription("orders", "g", strict=True) as subscription:
            (first,) = poll_until(subscription, 1)
            first.ack()
            late.commit()
            publish("orders", "B", key="k")
            got, claimer = [], engine_of(subscription).claimer
            while "B" not in got:
                (delivery,) = claimer.claim(1, 1)  # as between two polls of the tail
                got.append(delivery.payload)
                delivery.ack()
    assert "A" in got
    assert [payload for payload in got if payload != "A"] == [*range(1, READ_AHEAD + 5), "B"]
